"""Compiler from LLVM IR to machine code, and helpers for vector widths, threads and aligned memory.

The IR goes to LLVM's code generator without optimisation, because LLVM would fold a dependent chain into one
multiplication. Each kernel is a C function. Calls release Python's interpreter lock, to let several threads run a
kernel at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from experiments.workload import Dtype

IR_TYPE = {Dtype.FLOAT32: ("float", "f32"), Dtype.FLOAT64: ("double", "f64")}
_keep: list[Any] = []  # keep the engines alive, because they own the machine code


def vector_bytes() -> int:
    """Return the width in bytes of the widest vector register that LLVM supports on this host."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    if features.get("avx"):
        return 32
    return 16


def has_fma() -> bool:
    """Return True if the core has an instruction for a fused multiply-add; without it, LLVM calls a slow routine."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("fma") or features.get("neon") or features.get("asimd"))


@cache
def compile_ir(ir: str) -> tuple[int, str]:
    """Compile IR and return (address of the function `kernel`, the module's assembly text)."""
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


def aligned_array(length: int, dtype: Dtype) -> Any:
    """Return an uninitialised NumPy array with `length` elements, aligned to a cache line."""
    import numpy as np

    raw = np.empty(length * dtype.itemsize + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + length * dtype.itemsize].view(dtype.value)


class Team:
    """Group of threads that run several calls at the same time."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def run(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run each call on its own thread, with the last call on the calling thread, and wait for all calls."""
        futures = [self._pool.submit(call) for call in calls[:-1]] if self._pool else []
        calls[-1]()
        for future in futures:
            future.result()
