"""Two CPU versions of the kernel `paths` from `experiments.kernels.gpu_threads`.

masked     one vector holds a group of elements. The core runs all branch arms in use, one after the other,
           each on the whole vector. A mask selects the elements that keep the arm's result
branching  the core processes one element at a time, and jumps to the element's branch arm
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Literal

from experiments.kernels.gpu_threads import GROUP, MULTIPLIERS, ROUNDS, ROWS, Paths
from experiments.kernels.llvm_compile import compile_ir

if TYPE_CHECKING:
    import torch

UNROLLED = 4


def _arm_ir(arm: int, type_: str, start: str, after: str) -> str:
    """Return IR for branch arm number `arm`: ROUNDS hash rounds, which begin with the value named `start`.

    The result has the name %x{arm}.{UNROLLED}. The IR ends with a jump to the label `after`.
    """
    lanes = GROUP if type_ != "i32" else 1

    def broadcast(value: int) -> str:
        return f"<{', '.join([f'i32 {value}'] * lanes)}>" if lanes > 1 else str(value)

    body = "\n".join(
        f"""  %h{arm}.{i} = lshr {type_} %x{arm}.{i}, {broadcast(16)}
  %g{arm}.{i} = xor {type_} %x{arm}.{i}, %h{arm}.{i}
  %x{arm}.{i + 1} = mul {type_} %g{arm}.{i}, {broadcast(MULTIPLIERS[arm])}"""
        for i in range(UNROLLED)
    )
    return f"""
arm{arm}:
  br label %rounds{arm}
rounds{arm}:
  %r{arm} = phi i32 [0, %arm{arm}], [%s{arm}, %rounds{arm}]
  %x{arm}.0 = phi {type_} [{start}, %arm{arm}], [%x{arm}.{UNROLLED}, %rounds{arm}]
{body}
  %s{arm} = add i32 %r{arm}, {UNROLLED}
  %more{arm} = icmp ult i32 %s{arm}, {ROUNDS}
  br i1 %more{arm}, label %rounds{arm}, label %{after}"""


def _loop_ir(body: str, step: int) -> str:
    """Return IR for a kernel with two nested loops: over turns (see `gpu_threads`), and in each turn over elements.

    body: IR to process `step` elements, which ends with a jump to the label %next.
    """
    return f"""
define void @kernel(ptr %table, ptr %xs, i64 %elements, i64 %turns, i32 %mask) {{
entry:
  br label %turn
turn:
  %t = phi i64 [0, %entry], [%t.next, %turned]
  br label %each
each:
  %e = phi i64 [0, %turn], [%e.next, %next]
  %group = udiv i64 %e, {GROUP}
  %lane = urem i64 %e, {GROUP}
  %gone = mul i64 %t, {GROUP}
  %sum = add i64 %group, %gone
  %row = urem i64 %sum, {ROWS}
  %first = mul i64 %row, {GROUP}
  %place = add i64 %first, %lane
  %from = getelementptr i8, ptr %table, i64 %place
  %at = getelementptr i32, ptr %xs, i64 %e
{body}
next:
  %e.next = add i64 %e, {step}
  %more = icmp ult i64 %e.next, %elements
  br i1 %more, label %each, label %turned
turned:
  %t.next = add i64 %t, 1
  %again = icmp ult i64 %t.next, %turns
  br i1 %again, label %turn, label %end
end:
  ret void
}}"""


def masked_ir() -> str:
    """Return IR that runs all arms in use one after the other, each on all elements in a group at once.

    The kernel's argument %mask is the number of the last arm in use.
    """
    vector, bytes_ = f"<{GROUP} x i32>", f"<{GROUP} x i8>"
    last = GROUP - 1
    arms = ""
    for arm in range(GROUP):
        arm_numbers = f"<{', '.join([f'i32 {arm}'] * GROUP)}>"
        following = f"br i1 %last{arm}, label %taken, label %arm{arm + 1}" if arm < last else "br label %taken"
        before = f"%v{arm}" if arm else "%x"
        arms += _arm_ir(arm, vector, "%x", f"take{arm}")
        arms += f"""
take{arm}:
  %is{arm} = icmp eq {vector} %arms, {arm_numbers}
  %v{arm + 1} = select <{GROUP} x i1> %is{arm}, {vector} %x{arm}.{UNROLLED}, {vector} {before}
  %last{arm} = icmp eq i32 %mask, {arm}
  {following}"""
    ends = ", ".join(f"[%v{arm + 1}, %take{arm}]" for arm in range(GROUP))
    body = f"""  %x = load {vector}, ptr %at, align 4
  %bytes = load {bytes_}, ptr %from, align 1
  %numbers = zext {bytes_} %bytes to {vector}
  %one = insertelement {vector} zeroinitializer, i32 %mask, i32 0
  %masks = shufflevector {vector} %one, {vector} zeroinitializer, {vector} zeroinitializer
  %arms = and {vector} %numbers, %masks
  br label %arm0
{arms}
taken:
  %v = phi {vector} {ends}
  store {vector} %v, ptr %at, align 4
  br label %next"""
    return _loop_ir(body, GROUP)


def branching_ir() -> str:
    """Return IR that jumps to each element's arm through an address table."""
    arms = "".join(_arm_ir(arm, "i32", "%x", "taken") for arm in range(GROUP))
    cases = " ".join(f"i32 {arm}, label %arm{arm}" for arm in range(GROUP))
    ends = ", ".join(f"[%x{arm}.{UNROLLED}, %rounds{arm}]" for arm in range(GROUP))
    body = f"""  %x = load i32, ptr %at
  %byte = load i8, ptr %from
  %number = zext i8 %byte to i32
  %arm = and i32 %number, %mask
  switch i32 %arm, label %none [ {cases} ]
none:
  unreachable
{arms}
taken:
  %y = phi i32 {ends}
  store i32 %y, ptr %at
  br label %next"""
    return _loop_ir(body, 1)


def cpu_paths(kind: Literal["masked", "branching"]) -> Paths:
    """Return a callable (table, starts, ends, turns, paths) that runs a CPU version of `paths` on one core.

    The arguments are the same as for `cuda_paths`, but the tensors are in host memory.
    """
    address, _ = compile_ir(masked_ir() if kind == "masked" else branching_ir())
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_int32)(address)

    def run(table: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, turns: int, paths: int) -> None:
        ends.copy_(starts)
        function(table.data_ptr(), ends.data_ptr(), ends.numel(), turns, paths - 1)

    return run
