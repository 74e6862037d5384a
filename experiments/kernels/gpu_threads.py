"""Kernels for thread parallelism: how many threads a GPU can use, and the cost of divergent branches.

chains  each thread iterates x = x*x + c. Every multiply-add waits for the last one, so throughput
        grows with the thread count until there are enough threads to hide the latency. For c
        from -1.99 to -1.9 the sequence is chaotic: one wrong step changes every bit
paths   each element takes one of several branch arms per turn. All arms do the same rounds of
        integer arithmetic, each with its own constant. A table in memory selects the arm: in every
        turn a group of GROUP elements takes `paths` different arms, dealt at random to defeat
        prediction
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.kernels.cuda_compile import compile_kernel

if TYPE_CHECKING:
    import torch

# Number of threads in a warp, for which a GPU issues one instruction; the CPU kernels use vectors with as many
# elements.
GROUP = 32
# Number of rounds in an arm: enough to take long compared with the branch to the arm, few enough that the code for all
# arms fits an instruction cache.
ROUNDS = 16
# Constants for the arms: odd, to make a round a bijection, and too complex for compilers to replace the multiplication
# by shifts and adds.
MULTIPLIERS = tuple(0x9E3779B1 * (2 * arm + 1) & 0xFFFFFFFF for arm in range(GROUP))
# Number of rows in the table, a power of 2: a group starts at the row with its own number and advances by GROUP every
# turn. On a CPU a group meets the same row again after GROUP turns, after more jumps than a branch predictor remembers.
ROWS = GROUP * GROUP
# Number of elements on a CPU: few enough to stay in the L1 cache.
CPU_ELEMENTS = GROUP * GROUP
# Threads per block of chains: one warp for each of a multiprocessor's four schedulers. Larger blocks could not be
# spread as evenly over the multiprocessors.
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
    """Return a GPU's multiprocessor count, and the threads that each one holds at once."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count), int(properties.max_threads_per_multi_processor)


def resident_threads(device: str) -> int:
    """Return the number of threads that a GPU holds at once in whole blocks of the kernel `paths`."""
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
    """Return a callable (starts, ends, steps, c) on float32 tensors, one element per thread. Raises Unsupported."""
    launch, (multiprocessors, _) = compile_kernel(SOURCE, "chains", device), thread_capacity(device)

    def run(starts: torch.Tensor, ends: torch.Tensor, steps: int, c: float) -> None:
        threads = starts.numel()
        scalars = (np.uint32(threads), np.uint32(steps), np.float32(c))
        launch(*launch_shape(threads, multiprocessors), starts, ends, *scalars)

    return run


def cuda_paths(device: str) -> Paths:
    """Return a callable (table, starts, ends, turns, paths), one thread per element. Raises Unsupported without CuPy.

    table: bytes, shape (ROWS, GROUP). starts, ends: 32-bit numbers, one per thread, for whole groups of threads.
    """
    launch = compile_kernel(SOURCE, "paths", device)

    def run(table: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, turns: int, paths: int) -> None:
        threads = starts.numel()
        scalars = (np.uint32(threads), np.uint32(turns), np.uint32(paths - 1))
        launch(-(-threads // PATH_BLOCK), PATH_BLOCK, table, starts, ends, *scalars)

    return run


def make_arm_table(random: np.random.Generator) -> Any:
    """Return an arm table: each row holds every arm once, in random order. Shape (ROWS, GROUP), uint8, NumPy.

    The kernels take an arm's number modulo `paths`. As `paths` is a power of 2, they take all arms below it equally
    often.
    """
    return random.permuted(np.tile(np.arange(GROUP, dtype=np.uint8), (ROWS, 1)), axis=1)


def chain_ends(starts: torch.Tensor, steps: int, c: float) -> torch.Tensor:
    """Return the chains' ends, in float64 rounded to float32 at every step. starts: float32 values in float64.

    Squares are exact in float64. If |x| < 1/8, a sum may be rounded twice (to float64, then to float32), which changes
    a bit once in some 2^29 steps.
    """
    constant, x = float(np.float32(c)), starts
    for _ in range(steps):
        x = (x * x + constant).float().double()
    return x


def path_ends(table: torch.Tensor, starts: torch.Tensor, turns: int, paths: int) -> torch.Tensor:
    """Return the paths' ends for all elements at once, without branches: int64, in the shape of `starts`."""
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
