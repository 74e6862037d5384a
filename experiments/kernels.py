"""Own kernels for the CPU, written as LLVM IR so that what runs is what is read here.

No optimisation pass runs over them: LLVM would otherwise fold a dependent chain
into one multiplication. The machine-code generator alone chooses instructions.
Each is a C function called without the interpreter lock, so that Python threads
run them on several cores.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm

from experiments.work import Dtype, Unsupported

_IR_TYPE = {Dtype.FLOAT32: ("float", "f32"), Dtype.FLOAT64: ("double", "f64")}
# Accumulators in flight: enough to cover the latency of an FMA (4 cycles) on two
# pipes, few enough for the 16 registers of AVX2.
ACCUMULATORS = 12
_keep: list[Any] = []  # the engines own the machine code


def vector_bytes() -> int:
    """Widest vector register that the host's compiler target has, in bytes."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    if features.get("avx"):
        return 32
    return 16


def has_fma() -> bool:
    """Whether the core multiplies and adds in one instruction (else LLVM calls a slow library routine)."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("fma") or features.get("neon") or features.get("asimd"))


@cache
def _compile(ir: str) -> tuple[int, str]:
    """Address of the function `kernel` and its assembly text."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(ir)
    module.verify()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    assembly = target.emit_assembly(module)
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    _keep.append(engine)
    return engine.get_function_address("kernel"), assembly


def chain_ir(length: int = 64) -> str:
    """A loop over `length` operations, each of which needs the last one's result.

    xor and add take one cycle each on every current core; alternating, they have no
    closed form; from registers, they cannot be done while renaming.
    """
    body = "\n".join(
        f"  %x{i + 1} = {'add' if i % 2 else 'xor'} i64 %x{i}, {'%a' if i % 2 else '%b'}" for i in range(length)
    )
    return f"""
define i64 @kernel(i64 %n, i64 %a, i64 %b) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %x0 = phi i64 [%a, %entry], [%x{length}, %loop]
{body}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret i64 %x{length}
}}"""


def fma_ir(dtype: Dtype, lanes: int, accumulators: int = ACCUMULATORS) -> str:
    """A loop of independent x = x*b + c on registers alone; the sums are stored so that they are used."""
    scalar, suffix = _IR_TYPE[dtype]
    vector = f"<{lanes} x {scalar}>" if lanes > 1 else scalar
    fma = f"@llvm.fma.v{lanes}{suffix}" if lanes > 1 else f"@llvm.fma.{suffix}"
    each = range(accumulators)
    starts = "\n".join(f"  %x{i} = phi {vector} [%d, %entry], [%y{i}, %loop]" for i in each)
    body = "\n".join(f"  %y{i} = call {vector} {fma}({vector} %x{i}, {vector} %b, {vector} %c)" for i in each)
    stores = "\n".join(
        f"  %p{i} = getelementptr {vector}, ptr %out, i64 {i + 3}\n  store {vector} %y{i}, ptr %p{i}" for i in each
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


# Arrays that each operation reads and writes, and its scalar s.
STREAM_SCALAR = 3.0
STREAM_ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}


def stream_ir(op: str, dtype: Dtype, lanes: int, unroll: int = 4) -> str:
    """copy c = a, scale c = s*a, add c = a + b, triad c = a + s*b (McCalpin's STREAM).

    The kernel goes `repeat` times over `blocks` blocks of unroll*lanes elements.
    Its stores are plain ones: the caches first read each line that is written,
    traffic that STREAM's count of bytes leaves out.
    """
    scalar, _ = _IR_TYPE[dtype]
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
                f"  {result} = call {vector} @llvm.fmuladd.v{lanes}{_IR_TYPE[dtype][1]}("
                f"{vector} {b}, {vector} %s, {vector} {a})"
            )
        body.append(f"  %pc{u} = getelementptr {vector}, ptr %c, i64 %k{u}")
        body.append(f"  store {vector} {result}, ptr %pc{u}, align {align}")
    lines = "\n".join(body)
    fmuladd = f"@llvm.fmuladd.v{lanes}{_IR_TYPE[dtype][1]}"
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
  ret void
}}"""


def chain() -> tuple[Callable[[int], int], int]:
    """(kernel(n), operations per n): a dependent chain, one cycle an operation."""
    length = 64
    address, _ = _compile(chain_ir(length))
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
    return (lambda n: int(function(n, 0x9E3779B97F4A7C15 - 2**64, 0x3C6EF372FE94F82A))), length


def chain_value(n: int, length: int = 64) -> int:
    """What `chain` must return after n rounds, computed by Python's integers."""
    a, b, mask = 0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A, 2**64 - 1
    x = a
    for i in range(n * length):
        x = (x + a) & mask if i % 2 else x ^ b
    return x - 2**64 if x >= 2**63 else x


def fma(dtype: Dtype, lanes: int, threads: int) -> tuple[Callable[[int], Any], int]:
    """(kernel(n) -> largest relative error of its results, multiply-adds per n over all threads).

    Raises Unsupported where the core has no fused multiply-add.
    """
    import numpy as np

    if not has_fma():
        raise Unsupported("this CPU has no fused multiply-add")
    address, _ = _compile(fma_ir(dtype, lanes))
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address)
    random = np.random.default_rng()
    memory = []
    for _ in range(threads):
        # x = c - x goes back and forth between two random values: bits toggle as they do
        # in real data, and nothing grows, settles or becomes denormal.
        block = aligned((ACCUMULATORS + 3) * lanes, dtype)
        block[:lanes] = -1.0
        block[lanes : 3 * lanes] = random.normal(size=2 * lanes)
        memory.append(block)
    team = Team(threads)

    def run(n: int) -> float:
        team.run([partial(function, n, block.ctypes.data) for block in memory])
        worst = 0.0
        for block in memory:
            _, c, d = block[: 3 * lanes].astype(np.float64).reshape(3, lanes)
            right = c - d if n % 2 else d
            results = block[3 * lanes :].reshape(ACCUMULATORS, lanes)
            worst = max(worst, float(np.max(np.abs(results - right)) / np.max(np.abs(np.stack([c, d])))))
        return worst

    return run, ACCUMULATORS * lanes * threads


def stream(op: str, dtype: Dtype, arrays: Sequence[Any], threads: int) -> Callable[[int], None]:
    """kernel(repeat): `op` over NumPy arrays (c, a, b), each thread on its own contiguous part.

    Elements past a multiple of the threads' common block are left out: see `stream_elements`.
    """

    lanes = vector_bytes() // dtype.itemsize
    address, _ = _compile(stream_ir(op, dtype, lanes))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 4)(address)
    per_thread = stream_elements(len(arrays[0]), dtype, threads) // threads
    scalar = aligned(lanes, dtype)
    scalar[:] = STREAM_SCALAR
    three = (arrays[0], arrays[1], arrays[-1])
    places = [[array.ctypes.data + t * per_thread * dtype.itemsize for array in three] for t in range(threads)]
    team = Team(threads)
    blocks = per_thread // (4 * lanes)

    def run(repeat: int) -> None:
        team.run([partial(function, repeat, blocks, c, a, b, scalar.ctypes.data) for c, a, b in places])

    return run


def stream_elements(length: int, dtype: Dtype, threads: int) -> int:
    """Elements of `length` that `stream` really touches: whole blocks for every thread."""
    block = 4 * (vector_bytes() // dtype.itemsize) * threads
    return length // block * block


def aligned(length: int, dtype: Dtype) -> Any:
    """An uninitialised NumPy array of `length` elements that starts on a cache line."""
    import numpy as np

    raw = np.empty(length * dtype.itemsize + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + length * dtype.itemsize].view(dtype.value)


class Team:
    """Threads that start a list of calls together and wait for all of them."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def run(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run every call, the last one on the calling thread."""
        others = [self._pool.submit(call) for call in calls[:-1]] if self._pool else []
        calls[-1]()
        for other in others:
            other.result()
