"""What threads do side by side: how many of them a GPU can use, and what it costs if they part ways.

chains  each thread iterates x = x*x + c. Every multiply-add waits for the last one, so that
        throughput is as the number of threads until there are enough to hide the wait.
        From -1.99 to -1.9 for c the sequence is chaotic: one wrong step changes every bit
paths   each element takes, turn by turn, one of several arms of a branch. All arms do the
        same rounds of integer arithmetic, each with a constant of its own. A table in memory
        says which: in every turn a group of GROUP elements takes `paths` different arms,
        dealt at random, so that no device can guess them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.kernels.cuda_compile import kernel

if TYPE_CHECKING:
    import torch

# A GPU issues one instruction for so many threads, a warp; a CPU's vectors take as many elements here.
GROUP = 32
# Long beside the branch that leads to an arm; all arms together still fit an instruction cache.
ROUNDS = 16
# Odd, so that a round is a bijection, and none so simple that a compiler would rather shift and add.
MULTIPLIERS = tuple(0x9E3779B1 * (2 * arm + 1) & 0xFFFFFFFF for arm in range(GROUP))
# Rows of the table, a power of 2: a group begins with the row of its own number, and goes on by GROUP every turn. On a
# CPU it is GROUP turns until a row comes again, after more jumps than a core remembers.
ROWS = GROUP * GROUP
# Elements on a CPU: they stay in the cache next to a core.
CPU_ELEMENTS = GROUP * GROUP
# One warp for each of the four schedulers of a multiprocessor: blocks of more could not be spread as evenly.
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

// A loop, which no compiler runs under a predicate or merges with that of another arm.
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


def room(device: str) -> tuple[int, int]:
    """Multiprocessors of a GPU, and the threads that each of them holds at once."""
    import torch

    about = torch.cuda.get_device_properties(device)
    return int(about.multi_processor_count), int(about.max_threads_per_multi_processor)


def full(device: str) -> int:
    """Threads of as many whole blocks of paths as a GPU holds at once."""
    multiprocessors, each = room(device)
    return multiprocessors * (each // PATH_BLOCK) * PATH_BLOCK


def spread(threads: int, multiprocessors: int) -> tuple[int, int]:
    """Grid and block: over as many multiprocessors as there are warps, then up to a warp for each scheduler a block.

    The hardware gives every multiprocessor a block before it gives any a second one.
    """
    share = -(-threads // multiprocessors)
    block = min(-(-share // GROUP) * GROUP, CHAIN_BLOCK)
    return -(-threads // block), block


def chains(device: str) -> Chains:
    """A callable (starts, ends, steps, c): float32 tensors of one element a thread. Raises Unsupported without CuPy."""
    launch, (multiprocessors, _) = kernel(SOURCE, "chains", device), room(device)

    def run(starts: torch.Tensor, ends: torch.Tensor, steps: int, c: float) -> None:
        threads = starts.numel()
        given = (np.uint32(threads), np.uint32(steps), np.float32(c))
        launch(*spread(threads, multiprocessors), starts, ends, *given)

    return run


def cuda_paths(device: str) -> Paths:
    """A callable (table, starts, ends, turns, paths), a thread an element. Raises Unsupported without CuPy.

    table: bytes of shape (ROWS, GROUP); starts, ends: 32 bits a thread, whole groups.
    """
    launch = kernel(SOURCE, "paths", device)

    def run(table: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, turns: int, paths: int) -> None:
        threads = starts.numel()
        given = (np.uint32(threads), np.uint32(turns), np.uint32(paths - 1))
        launch(-(-threads // PATH_BLOCK), PATH_BLOCK, table, starts, ends, *given)

    return run


def deal(random: np.random.Generator) -> Any:
    """A table of arms: in each row every one of them once, in random order. Shape (ROWS, GROUP), uint8, NumPy.

    Of fewer paths, a power of 2, each arm's number is the rest of this one: all are taken equally often.
    """
    return random.permuted(np.tile(np.arange(GROUP, dtype=np.uint8), (ROWS, 1)), axis=1)


def after_steps(starts: torch.Tensor, steps: int, c: float) -> torch.Tensor:
    """The ends of chains, in float64 rounded to float32 at every step. starts: float64 that are float32.

    Squares are exact. Where |x| < 1/8 a sum may be rounded twice, which changes a bit of
    it once in some 2^29 steps.
    """
    constant, x = float(np.float32(c)), starts
    for _ in range(steps):
        x = (x * x + constant).float().double()
    return x


def after_turns(table: torch.Tensor, starts: torch.Tensor, turns: int, paths: int) -> torch.Tensor:
    """The ends of elements on their paths, all at once and without a branch: int64, of the shape of `starts`."""
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
