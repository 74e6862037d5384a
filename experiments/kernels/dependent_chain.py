"""Kernel to count a core's cycles: a chain of dependent operations that take one cycle each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from experiments.kernels.llvm_compile import compile_ir


def chain_ir(length: int = 64) -> str:
    """Return IR for a loop over `length` operations that each need the previous result.

    xor and add take one cycle each on every current core. They alternate, because a compiler could replace successive
    additions by one multiplication. Their operands are registers, because some cores eliminate operations with
    constants during register renaming, so that these operations take no cycle.
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


def chain() -> tuple[Callable[[int], int], int]:
    """Return (kernel, operations per loop iteration); each operation takes one cycle.

    kernel(n) runs n loop iterations and returns the last operation's result.
    """
    length = 64
    address, _ = compile_ir(chain_ir(length))
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
    return (lambda n: int(function(n, 0x9E3779B97F4A7C15 - 2**64, 0x3C6EF372FE94F82A))), length


def chain_value(n: int, length: int = 64) -> int:
    """Compute, with Python integers, the value that kernel(n) from `chain` should return."""
    a, b, mask = 0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A, 2**64 - 1
    x = a
    for i in range(n * length):
        x = (x + a) & mask if i % 2 else x ^ b
    return x - 2**64 if x >= 2**63 else x
