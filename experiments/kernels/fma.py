"""Kernel for a core's peak arithmetic rate: fused multiply-adds that use registers only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from experiments.kernels.llvm_compile import IR_TYPE, Team, aligned_array, compile_ir, has_fma
from experiments.workload import Dtype, Unsupported, largest_error

# Independent accumulators. Two pipes with a latency of 4 cycles need at least 8 to stay busy. AVX2 has 16 registers,
# which also have to hold the operands b and c.
ACCUMULATORS = 12


def fma_ir(dtype: Dtype, lanes: int, accumulators: int = ACCUMULATORS) -> str:
    """Return IR for a loop with independent multiply-adds x = x*b + c that uses registers only.

    The results are stored after the loop, because LLVM drops loops without results.
    """
    scalar, suffix = IR_TYPE[dtype]
    vector = f"<{lanes} x {scalar}>" if lanes > 1 else scalar
    fma = f"@llvm.fma.v{lanes}{suffix}" if lanes > 1 else f"@llvm.fma.{suffix}"
    indices = range(accumulators)
    starts = "\n".join(f"  %x{i} = phi {vector} [%d, %entry], [%y{i}, %loop]" for i in indices)
    body = "\n".join(f"  %y{i} = call {vector} {fma}({vector} %x{i}, {vector} %b, {vector} %c)" for i in indices)
    stores = "\n".join(
        f"  %p{i} = getelementptr {vector}, ptr %out, i64 {i + 3}\n  store {vector} %y{i}, ptr %p{i}" for i in indices
    )
    return f"""
declare {vector} {fma}({vector}, {vector}, {vector})
define void @kernel(i64 %n, ptr %out) {{
entry:
  %b = load {vector}, ptr %out
  %q = getelementptr {vector}, ptr %out, i64 1
  %c = load {vector}, ptr %q
  %o = getelementptr {vector}, ptr %out, i64 2
  %d = load {vector}, ptr %o
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{starts}
{body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
{stores}
  ret void
}}"""


def repeat_kernel(ir: str, memory: Sequence[Any], error: Callable[[Any, int], float]) -> Callable[[int], float]:
    """Return kernel(n), which runs n loop iterations on each array in `memory` and returns the largest error.

    ir: LLVM IR with the loop. memory: NumPy arrays; a separate thread runs the loop on each.
    error: function of (array, n) that returns the array's error after n iterations.
    """
    address, _ = compile_ir(ir)
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address)
    team = Team(len(memory))

    def run(n: int) -> float:
        team.run([partial(function, n, block.ctypes.data) for block in memory])
        worst = 0.0
        for block in memory:
            worst = largest_error(worst, error(block, n))
        return worst

    return run


def fma(dtype: Dtype, lanes: int, threads: int) -> tuple[Callable[[int], float], int]:
    """Return (kernel, multiply-adds per loop iteration, summed over all threads).

    kernel(n) runs n loop iterations on every thread and returns the largest relative error of the results.
    Raises Unsupported if the core has no fused multiply-add.
    """
    import numpy as np

    if not has_fma():
        raise Unsupported("this CPU has no fused multiply-add")
    random = np.random.default_rng()
    memory = []
    for _ in range(threads):
        # Set b = -1, so that x = c - x alternates between two random values. Bits toggle as in real data, and no value
        # grows, settles or becomes denormal.
        block = aligned_array((ACCUMULATORS + 3) * lanes, dtype)
        block[:lanes] = -1.0
        block[lanes : 3 * lanes] = random.normal(size=2 * lanes)
        memory.append(block)

    def error(block: Any, n: int) -> float:
        _, c, d = block[: 3 * lanes].astype(np.float64).reshape(3, lanes)
        expected = c - d if n % 2 else d
        results = block[3 * lanes :].reshape(ACCUMULATORS, lanes)
        return float(np.max(np.abs(results - expected)) / np.max(np.abs(np.stack([c, d]))))

    return repeat_kernel(fma_ir(dtype, lanes), memory, error), ACCUMULATORS * lanes * threads
