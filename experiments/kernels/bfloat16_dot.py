"""Kernel to measure the peak bfloat16 rate of a core's vector units.

Each instruction multiplies pairs of bfloat16 numbers and adds the products to sums in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from experiments.kernels.fma import ACCUMULATORS, repeat_kernel
from experiments.kernels.llvm_compile import aligned_array
from experiments.workload import Dtype, Unsupported

# LANES: float32 sums per register. PAIR: products that one instruction adds to each sum.
LANES, PAIR = 16, 2
_DOT = "@llvm.x86.avx512bf16.dpbf16ps.512"


def dot_ir(accumulators: int = ACCUMULATORS) -> str:
    """Return IR for a loop with x = (x + dot(b, c)) + dot(b, d) that uses registers only.

    The caller sets d = -c, so the sums do not grow, but their bits toggle as in real data. The intermediate sums
    x + dot(b, c) are stored after the loop, because LLVM drops loops without results.
    """
    sums, pairs = f"<{LANES} x float>", f"<{LANES * PAIR} x bfloat>"
    indices = range(accumulators)
    starts = "\n".join(f"  %x{i} = phi {sums} [%s, %entry], [%z{i}, %loop]" for i in indices)
    up = "\n".join(f"  %y{i} = call {sums} {_DOT}({sums} %x{i}, {pairs} %b, {pairs} %c)" for i in indices)
    down = "\n".join(f"  %z{i} = call {sums} {_DOT}({sums} %y{i}, {pairs} %b, {pairs} %d)" for i in indices)
    stores = "\n".join(
        f"  %p{i} = getelementptr {sums}, ptr %out, i64 {i + 4}\n  store {sums} %y{i}, ptr %p{i}" for i in indices
    )
    loads = "\n".join(
        f"  %q{i} = getelementptr {sums}, ptr %out, i64 {i}\n  %{name} = load {kind}, ptr %q{i}"
        for i, (name, kind) in enumerate([("s", sums), ("b", pairs), ("c", pairs), ("d", pairs)])
    )
    return f"""
declare {sums} {_DOT}({sums}, {pairs}, {pairs})
define void @kernel(i64 %n, ptr %out) {{
entry:
{loads}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{starts}
{up}
{down}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
{stores}
  ret void
}}"""


def unsupported_reason() -> str:
    """Return the reason if this kernel cannot measure the CPU's bfloat16 peak; '' otherwise."""
    features = llvm.get_host_cpu_features()
    if features.get("amx-bf16"):
        return "this CPU has matrix units (AMX), whose peak no kernel of this study measures"
    return "" if features.get("avx512bf16") else "this CPU has no AVX512-BF16"


def dot(threads: int) -> tuple[Callable[[int], float], int]:
    """Return (kernel, multiply-adds per loop iteration, summed over all threads).

    kernel(n) runs n loop iterations on every thread and returns the largest relative error of the sums.
    Raises Unsupported if the core lacks the instruction, or has faster matrix units.
    """
    import numpy as np

    reason = unsupported_reason()
    if reason:
        raise Unsupported(reason)
    random = np.random.default_rng()
    memory = []
    for _ in range(threads):
        block = aligned_array((ACCUMULATORS + 4) * LANES, Dtype.FLOAT32)
        factors = random.normal(size=(2, LANES * PAIR)).astype(np.float32)
        # Take each float32's upper half, which is a bfloat16.
        b, c = (factors.view(np.uint32) >> 16).astype(np.uint16)
        block[:LANES] = random.normal(size=LANES)
        block[LANES : 4 * LANES].view(np.uint16)[:] = np.concatenate([b, c, c ^ 0x8000])
        memory.append(block)

    def error(block: Any, _: int) -> float:
        halves = block[LANES : 3 * LANES].view(np.uint16).astype(np.uint32) << 16
        b, c = halves.view(np.float32).astype(np.float64).reshape(2, LANES, PAIR)
        start, terms = block[:LANES].astype(np.float64), b * c
        size = np.abs(start) + np.abs(terms).sum(axis=1)
        results = block[4 * LANES :].reshape(ACCUMULATORS, LANES)
        return float(np.max(np.abs(results - (start + terms.sum(axis=1))) / size))

    return repeat_kernel(dot_ir(), memory, error), 2 * ACCUMULATORS * LANES * PAIR * threads
