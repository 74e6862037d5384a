"""McCalpin's STREAM benchmark on a CPU: copy, scale, add and triad."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from experiments.kernels.llvm_compile import IR_TYPE, Team, aligned_array, compile_ir, vector_bytes
from experiments.workload import Dtype

# STREAM_SCALAR: the factor s in scale and triad. STREAM_ARRAYS: arrays that each operation reads or writes.
STREAM_SCALAR = 3.0
STREAM_ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}


def stream_ir(op: str, dtype: Dtype, lanes: int, unroll: int = 4, nontemporal: bool = False) -> str:
    """Return IR for copy c = a, scale c = s*a, add c = a + b or triad c = a + s*b (McCalpin's STREAM).

    The kernel makes `repeat` passes over `blocks` blocks with unroll*lanes elements each. Before a plain store, the
    cache reads the line to overwrite. STREAM does not count this traffic, and non-temporal stores avoid it.
    """
    scalar, _ = IR_TYPE[dtype]
    hint = ", !nontemporal !0" if nontemporal else ""
    vector, align = f"<{lanes} x {scalar}>", lanes * dtype.itemsize
    body = []
    for u in range(unroll):
        a, b, result = f"%a{u}", f"%b{u}", f"%r{u}"
        body.append(f"  %k{u} = add i64 %j, {u}")
        body.append(f"  %pa{u} = getelementptr {vector}, ptr %a, i64 %k{u}")
        body.append(f"  {a} = load {vector}, ptr %pa{u}, align {align}")
        if STREAM_ARRAYS[op] == 3:
            body.append(f"  %pb{u} = getelementptr {vector}, ptr %b, i64 %k{u}")
            body.append(f"  {b} = load {vector}, ptr %pb{u}, align {align}")
        if op == "copy":
            result = a
        elif op == "scale":
            body.append(f"  {result} = fmul {vector} {a}, %s")
        elif op == "add":
            body.append(f"  {result} = fadd {vector} {a}, {b}")
        else:
            body.append(
                f"  {result} = call {vector} @llvm.fmuladd.v{lanes}{IR_TYPE[dtype][1]}("
                f"{vector} {b}, {vector} %s, {vector} {a})"
            )
        body.append(f"  %pc{u} = getelementptr {vector}, ptr %c, i64 %k{u}")
        body.append(f"  store {vector} {result}, ptr %pc{u}, align {align}{hint}")
    lines = "\n".join(body)
    fmuladd = f"@llvm.fmuladd.v{lanes}{IR_TYPE[dtype][1]}"
    return f"""
declare {vector} {fmuladd}({vector}, {vector}, {vector})
define void @kernel(i64 %repeat, i64 %blocks, ptr %c, ptr %a, ptr %b, ptr %ps) {{
entry:
  %s = load {vector}, ptr %ps
  br label %again
again:
  %i = phi i64 [0, %entry], [%i1, %done]
  br label %loop
loop:
  %n = phi i64 [0, %again], [%n1, %loop]
  %j = mul i64 %n, {unroll}
{lines}
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %blocks
  br i1 %more, label %loop, label %done
done:
  %i1 = add i64 %i, 1
  %rest = icmp ult i64 %i1, %repeat
  br i1 %rest, label %again, label %end
end:
  {"fence seq_cst" if nontemporal else ""}
  ret void
}}
!0 = !{{i32 1}}"""


def stream(
    op: str, dtype: Dtype, arrays: Sequence[Any], threads: int, nontemporal: bool = False
) -> Callable[[int], None]:
    """Return kernel(repeat), which makes `repeat` passes with the operation `op` over NumPy arrays (c, a, b).

    Each thread works on its own contiguous section, in whole blocks. The kernel leaves out the last elements if there
    are too few to fill one block per thread (see `stream_elements`).
    """

    lanes = vector_bytes() // dtype.itemsize
    address, _ = compile_ir(stream_ir(op, dtype, lanes, nontemporal=nontemporal))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 4)(address)
    per_thread = stream_elements(len(arrays[0]), dtype, threads) // threads
    scalar = aligned_array(lanes, dtype)
    scalar[:] = STREAM_SCALAR
    three = (arrays[0], arrays[1], arrays[-1])
    addresses = [[array.ctypes.data + t * per_thread * dtype.itemsize for array in three] for t in range(threads)]
    team = Team(threads)
    blocks = per_thread // (4 * lanes)

    def run(repeat: int) -> None:
        team.run([partial(function, repeat, blocks, c, a, b, scalar.ctypes.data) for c, a, b in addresses])

    return run


def stream_elements(length: int, dtype: Dtype, threads: int) -> int:
    """Count the elements among `length` that `stream` uses: equally many whole blocks per thread."""
    block = 4 * (vector_bytes() // dtype.itemsize) * threads
    return length // block * block
