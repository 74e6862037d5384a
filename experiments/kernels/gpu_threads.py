"""Kernels for thread parallelism: they show how many threads a GPU can use, and the cost of divergent branches.

chains  each thread iterates x = x*x + c. Every multiply-add waits for the previous result, so the
        throughput grows with the thread count until there are enough threads to hide the latency. For
        c from -1.99 to -1.9 the sequence is chaotic, so an error in one step changes every bit of the
        end value
paths   in each turn (loop iteration), every thread takes one arm of a branch. All arms do the same
        integer arithmetic, but each multiplies by its own constant. A random table in memory gives the
        arm for each thread and turn, to defeat branch prediction. The argument `paths` is the number
        of different arms that a group of GROUP threads takes in a turn. In the CPU versions, elements
        take the place of threads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.kernels.cuda_compile import compile_kernel

if TYPE_CHECKING:
    import torch

# Threads per warp, to which a GPU issues each instruction as a whole; also elements per vector in the CPU kernel
# `masked`.
GROUP = 32
# Hash rounds (loop iterations) in a branch arm, enough to take long compared with the jump to the arm.
ROUNDS = 16
# Multiplier for each arm. The multipliers are odd, so a round maps different values to different values. They are too
# complex for compilers to replace the multiplication by shifts and adds.
MULTIPLIERS = tuple(0x9E3779B1 * (2 * arm + 1) & 0xFFFFFFFF for arm in range(GROUP))
# Rows in the arm table, a power of 2. Each group starts at the row with its number and advances by GROUP rows per turn,
# so it returns to its first row after GROUP turns. In these turns, a CPU core makes more jumps than its branch
# predictor can remember.
ROWS = GROUP * GROUP
# Elements in the CPU kernels, few enough for all to stay in the L1 cache.
CPU_ELEMENTS = GROUP * GROUP
# Threads per block in the kernel `chains`: one warp for each of the four schedulers in a multiprocessor. Threads in
# larger blocks would spread less evenly over the multiprocessors.
CHAIN_BLOCK = 4 * GROUP
PATH_BLOCK = 256

_ARMS = "\n".join(f"            case {arm}: ARM({multiplier}u)" for arm, multiplier in enumerate(MULTIPLIERS))
SOURCE = f"""
typedef unsigned int u32;

extern "C" __global__ void __launch_bounds__({CHAIN_BLOCK}) chains(
        const float* starts, float* ends, u32 threads, u32 steps, float c) {{
    const u32 which = blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= threads) return;
    float x = starts[which];
    #pragma unroll 128
    for (u32 step = 0; step < steps; ++step)
        x = fmaf(x, x, c);
    ends[which] = x;
}}

// A loop, which compilers neither predicate nor merge with another arm's.
#define ARM(multiplier) \\
    _Pragma("unroll 4") for (u32 round = 0; round < {ROUNDS}; ++round) x = (x ^ x >> 16) * multiplier; \\
    break;

extern "C" __global__ void __launch_bounds__({PATH_BLOCK}) paths(
        const unsigned char* __restrict__ table, const u32* starts, u32* ends, u32 threads, u32 turns, u32 mask) {{
    const u32 which = blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= threads) return;
    u32 x = starts[which], row = which / {GROUP};
    for (u32 turn = 0; turn < turns; ++turn, row += {GROUP})
        switch (table[row % {ROWS} * {GROUP} + which % {GROUP}] & mask) {{
{_ARMS}
        }}
    ends[which] = x;
}}
"""

Chains = Callable[["torch.Tensor", "torch.Tensor", int, float], None]
Paths = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor", int, int], None]


def thread_capacity(device: str) -> tuple[int, int]:
    """Return (multiprocessors in a GPU, threads that each multiprocessor holds at once)."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count), int(properties.max_threads_per_multi_processor)


def resident_threads(device: str) -> int:
    """Count the threads of the kernel `paths` that a GPU holds at once, in whole blocks."""
    multiprocessors, threads_each = thread_capacity(device)
    return multiprocessors * (threads_each // PATH_BLOCK) * PATH_BLOCK


def launch_shape(threads: int, multiprocessors: int) -> tuple[int, int]:
    """Return grid and block sizes that spread the threads evenly over all multiprocessors.

    A block has up to one warp per scheduler. The hardware gives every multiprocessor a block before it gives any
    multiprocessor a second block.
    """
    share = -(-threads // multiprocessors)
    block = min(-(-share // GROUP) * GROUP, CHAIN_BLOCK)
    return -(-threads // block), block


def chains(device: str) -> Chains:
    """Return a callable (starts, ends, steps, c) that runs the kernel `chains` on a GPU.

    starts, ends: float32 tensors with an element per thread. steps: multiply-adds per thread.
    Raises Unsupported as `compile_kernel` does.
    """
    launch, (multiprocessors, _) = compile_kernel(SOURCE, "chains", device), thread_capacity(device)

    def run(starts: torch.Tensor, ends: torch.Tensor, steps: int, c: float) -> None:
        threads = starts.numel()
        scalars = (np.uint32(threads), np.uint32(steps), np.float32(c))
        launch(*launch_shape(threads, multiprocessors), starts, ends, *scalars)

    return run


def cuda_paths(device: str) -> Paths:
    """Return a callable (table, starts, ends, turns, paths) that runs the kernel `paths` on a GPU.

    table: the table from `make_arm_table`, as a tensor. starts: each thread's first value, as 32-bit integers whose
    count is a multiple of GROUP. ends: tensor that gets each thread's last value. turns: number of branches that each
    thread takes one after the other. paths: number of different branch arms, a power of 2.
    Raises Unsupported as `compile_kernel` does.
    """
    launch = compile_kernel(SOURCE, "paths", device)

    def run(table: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, turns: int, paths: int) -> None:
        threads = starts.numel()
        scalars = (np.uint32(threads), np.uint32(turns), np.uint32(paths - 1))
        launch(-(-threads // PATH_BLOCK), PATH_BLOCK, table, starts, ends, *scalars)

    return run


def make_arm_table(random: np.random.Generator) -> Any:
    """Make a table in which each row holds every number of a branch arm once, in random order.

    The table is a uint8 NumPy array (ROWS, GROUP). The kernels use each number modulo `paths`. Since `paths` is a power
    of 2, each row selects the arms 0 to `paths` - 1 equally often.
    """
    return random.permuted(np.tile(np.arange(GROUP, dtype=np.uint8), (ROWS, 1)), axis=1)


def chain_ends(starts: torch.Tensor, steps: int, c: float) -> torch.Tensor:
    """Compute the chains' end values in float64, rounded to float32 at every step.

    starts: float32 values, stored as float64 to make their squares exact. If |x| < 1/8, the sum x*x + c may be rounded
    twice (to float64, then to float32). In about one step in 2^29, the second rounding changes the sum's last bit.
    """
    constant, x = float(np.float32(c)), starts
    for _ in range(steps):
        x = (x * x + constant).float().double()
    return x


def path_ends(table: torch.Tensor, starts: torch.Tensor, turns: int, paths: int) -> torch.Tensor:
    """Compute the end values for the kernel `paths`, shape (elements,), int64, for all elements at once."""
    import torch

    low = 0xFFFFFFFF
    x = (starts.long() & low).view(-1, GROUP)
    multipliers = torch.tensor(MULTIPLIERS, device=x.device)
    groups = torch.arange(len(x), device=x.device)
    for turn in range(turns):
        by = multipliers[table[(groups + GROUP * turn) % ROWS].long() & (paths - 1)]
        for _ in range(ROUNDS):
            x = (x ^ x >> 16) * by & low
    return x.view(-1)
