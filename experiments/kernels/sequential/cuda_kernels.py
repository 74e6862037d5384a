"""The kernels on NVIDIA GPUs: CUDA C compiled by CuPy on first use, one GPU thread per chain."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.kernels.cuda_compile import compile_module, open_cupy
from experiments.kernels.sequential import BITS, MULTIPLIER, Chains

BLOCK = 256

# The kernels compute the same integers as `cpu_kernels`. The macro KEPT keeps the compiler from computing both arms of
# a branch and selecting one result. NVIDIA's assembler, ptxas, would still replace short branches by predicated
# instructions. The macro MARKED prevents this with a profiler event, which is never predicated and has no other effect.
SOURCE = f"""
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL(name, type) \\
    extern "C" __global__ void __launch_bounds__({BLOCK}) name( \\
        const type* __restrict__ table, u32 size, const u64* starts, u64* ends, u32 chains, u32 steps)
#define KEPT(value) asm volatile("" : "+r"(value))
#define MARKED asm volatile("pmevent 1;")

KERNEL(chain, u32) {{
    const u32 which = blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= chains) return;
    u32 x = (u32)starts[which];
    for (u32 step = 0; step < steps; ++step)
        x = (x ^ x >> 16) * {MULTIPLIER}u;
    ends[which] = x;
}}

KERNEL(chase, u32) {{
    const u32 which = blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= chains) return;
    u32 x = (u32)starts[which];
    for (u32 step = 0; step < steps; ++step)
        x = table[x];
    ends[which] = x;
}}

KERNEL(branches, u32) {{
    const u32 which = blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= chains) return;
    const u32 first = (u32)starts[which], mask = size - 1;
    u32 x = first;
    for (u32 block = 0; block < steps / {BITS}; ++block) {{
        u32 word = table[(first + block) & mask];
        for (u32 bit = 0; bit < {BITS}; ++bit) {{
            if (word & 1) {{
                x += word;
                KEPT(x);
                MARKED;
            }} else {{
                x ^= word;
                KEPT(x);
                MARKED;
            }}
            word >>= 1;
        }}
    }}
    ends[which] = x;
}}

KERNEL(states, unsigned char) {{
    enum {{ START, PLAIN, QUOTED, QUOTE }};
    const u32 which = blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= chains) return;
    const u64 first = starts[which];
    u32 state = START, fields = 0, records = 0;
    for (u32 step = 0; step < steps; ++step) {{
        const unsigned char byte = table[first + step];
        if (state == QUOTED) {{
            if (byte == '"') {{ state = QUOTE; KEPT(state); }}
        }} else if (state == QUOTE && byte == '"') {{
            state = QUOTED; KEPT(state);
        }} else if (byte == ',') {{
            ++fields; state = START; KEPT(state);
        }} else if (byte == '\\n') {{
            ++fields; ++records; state = START; KEPT(state);
        }} else if (byte == '"' && state == START) {{
            state = QUOTED; KEPT(state);
        }} else {{
            state = PLAIN; KEPT(state);
        }}
    }}
    ends[which] = (u64)fields << 32 | records;
}}
"""


class CudaChains(Chains):
    """Chains on a GPU, with one chain per thread. They run on the default stream, where PyTorch records its events."""

    backend = "cupy"

    def __init__(self, device: str, kernel: str, table: Any, chains: int) -> None:
        cupy = open_cupy(device)
        self._kernel = compile_module(SOURCE).get_function(kernel)
        self._table, self._chains = cupy.asarray(table), chains
        self._starts, self._ends = (cupy.zeros(chains, dtype=np.uint64) for _ in range(2))

    @classmethod
    def max_chains(cls, device: str, threads: int) -> int:
        """Count the threads in all blocks that the GPU holds at once."""
        import torch

        gpu = torch.cuda.get_device_properties(device)
        return int(gpu.multi_processor_count) * (int(gpu.max_threads_per_multi_processor) // BLOCK) * BLOCK

    @classmethod
    def line_bytes(cls) -> int:
        return 128

    @classmethod
    def steps(cls, kernel: str, chains: int, footprint: int) -> int:
        single, full = (1 << 16, 1 << 12) if kernel == "chase" else (1 << 20, 1 << 17)
        return single if chains == 1 else full

    def set_starts(self, starts: Any) -> None:
        self._starts.set(starts)

    def walk(self, steps: int) -> None:
        threads = min(BLOCK, self._chains)
        fixed = (self._table, np.uint32(self._table.size), self._starts, self._ends, np.uint32(self._chains))
        self._kernel((-(-self._chains // threads),), (threads,), (*fixed, np.uint32(steps)))

    def continue_from_ends(self) -> None:
        self._starts, self._ends = self._ends, self._starts

    def ends(self) -> Any:
        return self._ends.get()
