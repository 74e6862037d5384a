"""Chains compute what they say on a CPU, by instructions that really wait for each other."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.devices.cpu import CpuDevice
from experiments.kernels import compile
from experiments.kernels.sequential import BITS, cpu, tasks
from experiments.registry import get
from experiments.work import Unsupported, Work

CPU = CpuDevice()
# Kernel, data and a footprint that is small but has something to it.
KINDS = [
    ("chain", "random", 4),
    ("chase", "random", 3 * 64 * 40),
    ("branches", "predictable", 256),
    ("branches", "random", 256),
    ("states", "text", 100_000),
]
LONGEST = BITS * 400


def point(kernel: str, data: str, footprint: int, **more: Any) -> Work:
    params = {"chains": "one", "threads": 1, "backend": "numba", **more}
    made = get("sequential").function(CPU, kernel=kernel, data=data, footprint=footprint, **params)
    assert isinstance(made, Work)
    return made


def error(made: Work) -> float:
    assert made.check is not None
    return made.check()


@pytest.mark.parametrize(("kernel", "data", "footprint"), KINDS)
@given(blocks=st.integers(0, LONGEST // BITS), chains=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=25)
def test_chains_end_where_the_reference_says(
    kernel: str, data: str, footprint: int, blocks: int, chains: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    task = tasks.make(kernel, data, footprint, chains, LONGEST, 64, random)
    walkers = cpu.CpuChains("cpu", kernel, task.table, chains)
    starts = task.starts(random)
    walkers.place(starts)
    walkers.walk(BITS * blocks)
    np.testing.assert_array_equal(walkers.ends(), task.expected(starts, BITS * blocks))
    if kernel == "chase":
        walkers.go_on()
        walkers.walk(BITS)
        np.testing.assert_array_equal(walkers.ends(), task.expected(starts, BITS * (blocks + 1)))


@given(lines=st.integers(2, 60), chains=st.integers(1, 4), line=st.sampled_from([64, 128]), seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_chase_is_one_tour_of_all_lines_of_its_own_part(lines: int, chains: int, line: int, seed: int) -> None:
    made = tasks.make("chase", "random", lines * chains * line, chains, 0, line, np.random.default_rng(seed))
    assert made.table.nbytes == lines * chains * line
    assert made.table.ctypes.data % line == 0
    for chain, start in enumerate(made.starts(np.random.default_rng(seed))):
        at, seen = int(start), []
        for _ in range(lines):
            seen.append(at * 4 // line)
            at = int(made.table[at])
        assert at == start
        assert sorted(seen) == list(range(chain * lines, (chain + 1) * lines))


def test_the_text_has_what_makes_a_parser_branch() -> None:
    table, boundaries = tasks.table_of_text()
    contents = bytes(table)
    assert boundaries[0] == 0 and boundaries[-1] == len(contents)
    for piece in (b'""', b',"', b",,", b"\n"):
        assert contents.count(piece) > 1000, piece
    # Line ends within quotes: fewer records than lines.
    assert len(boundaries) < 0.9 * contents.count(b"\n")


def test_predictable_and_random_branches_go_either_way_equally_often() -> None:
    def taken(data: str) -> float:
        table = tasks.make("branches", data, 1 << 16, 1, 0, 64, np.random.default_rng(3)).table
        return float(np.unpackbits(table.view(np.uint8)).mean())

    assert taken("predictable") == 0.5
    assert taken("random") == pytest.approx(0.5, abs=0.005)  # seven standard deviations


@pytest.mark.parametrize("kernel", list(cpu.KERNELS))
def test_a_kernel_that_skips_a_step_is_noticed(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    right = cpu.KERNELS[kernel]

    def lazy(table: Any, starts: Any, ends: Any, which: int, steps: int) -> None:
        # One word fewer for branches, whose walks are whole words; one record or more for states.
        less = {"branches": BITS, "states": 500}.get(kernel, 1)
        right(table, starts, ends, which, steps - less)

    monkeypatch.setitem(cpu.KERNELS, kernel, lazy)
    data, footprint = {"chain": ("random", 4), "states": ("text", 1 << 21)}.get(kernel, ("random", 1 << 14))
    assert error(point(kernel, data, footprint)) == 1.0


def test_a_point_says_how_many_chains_share_its_time() -> None:
    for chains, threads in (("one", 1), ("full", 2)):
        made = point("chain", "random", 4, chains=chains, threads=threads)
        assert made.observe is not None
        assert made.observe() == {"chains_in_flight": (float(threads), "1")}
        assert made.metric == "step_time"
        assert made.per == cpu.CpuChains.steps("chain", threads, 4)
        assert error(made) == 0.0


def test_a_chase_goes_on_where_it_stopped_and_the_others_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    walk = cpu.CpuChains.walk

    def noted(self: Any, steps: int) -> None:
        begun.append(int(self._starts[0]))
        walk(self, BITS)

    monkeypatch.setattr(cpu.CpuChains, "walk", noted)
    for kernel, data, footprint, fresh in (("chase", "random", 1 << 16, 3), ("states", "text", 1 << 21, 1)):
        made = point(kernel, data, footprint)
        begun.clear()
        for _ in range(3):
            made.calls[0]()
        assert len(set(begun)) == fresh, kernel


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"kernel": "chain", "data": "random", "footprint": 4, "threads": 2}, "one chain runs on one thread"),
        ({"kernel": "chain", "data": "random", "footprint": 4, "backend": "cupy"}, "does not run on cpu"),
        ({"kernel": "chain", "data": "text", "footprint": 4}, "chain works on random data, not on text"),
        ({"kernel": "chain", "data": "random", "footprint": 64}, "footprint of the kernel chain is 4"),
        ({"kernel": "chase", "data": "random", "footprint": 64}, "too small for 1 chains"),
        ({"kernel": "chase", "data": "random", "footprint": 2**34 + 64}, "more than 16 GiB"),
        ({"kernel": "branches", "data": "random", "footprint": 1000}, "a power of two"),
        ({"kernel": "states", "data": "text", "footprint": 2**40}, "a text of"),
        ({"kernel": "states", "data": "text", "footprint": 1 << 12}, "a text of"),
    ],
)
def test_a_point_that_cannot_be_says_why(params: dict[str, Any], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        point(**params)


# The machine code that LLVM makes of the kernels.

x86 = pytest.mark.skipif(compile.vector_bytes() < 32, reason="the names of the instructions are those of x86")


def loops(kernel: str) -> list[list[str]]:
    """Instructions of each innermost loop of a kernel, for all types of arguments that it was compiled for."""
    table = np.zeros(64, dtype=np.uint8 if kernel == "states" else np.uint32)
    cpu.CpuChains("cpu", kernel, table, 1).walk(0)  # compiles it
    return [loop for assembly in cpu.KERNELS[kernel].inspect_asm().values() for loop in loops_of(assembly)]


def loops_of(assembly: str) -> list[list[str]]:
    """The innermost loops of the first function in an assembly text: from a label to the last jump back to it."""
    lines = [line.strip() for line in assembly.split("retq", 1)[0].splitlines()]
    code = [line for line in lines if line and not line.startswith(("#", ".p2align", ".cfi"))]
    labels = {line[:-1]: number for number, line in enumerate(code) if line.endswith(":")}
    ends: dict[int, int] = {}
    for number, line in enumerate(code):
        jump = re.match(r"j[a-z]+\s+(\S+)", line)
        if jump and labels.get(jump[1], number) < number:
            ends[labels[jump[1]]] = number
    inner = [(a, b) for a, b in ends.items() if not any(a < c and d < b for c, d in ends.items())]
    assert inner
    return [[line for line in code[a : b + 1] if not line.endswith(":")] for a, b in inner]


def count(pattern: str, loop: list[str]) -> int:
    return sum(bool(re.match(pattern, line)) for line in loop)


def register(name: str) -> str:
    """One name for a register whatever part of it is meant: ecx and rcx, r8d and r8."""
    return re.sub(r"^[er](?=[a-z])|(?<=\d)d$", "", name)


@x86
@pytest.mark.parametrize("kernel", list(cpu.KERNELS))
def test_no_loop_does_several_steps_at_once_or_chooses_without_a_branch(kernel: str) -> None:
    for loop in loops(kernel):
        assert count(r"cmov|set[a-z]+\b|sbb|prefetch|.*%[xyz]mm", loop) == 0, loop


@x86
def test_every_step_of_the_chain_is_there() -> None:
    for loop in loops("chain"):
        assert count(r"imul", loop) == count(r"shr", loop) == count(r"xor", loop) >= 1, loop


@x86
def test_every_load_of_the_chase_waits_for_the_last() -> None:
    for loop in loops("chase"):
        loads = [re.match(r"movl\s+\(%\w+,%(\w+),4\), %(\w+)", line) for line in loop]
        chained = [(register(load[1]), register(load[2])) for load in loads if load]
        assert chained
        assert count(r".*\(%", loop) == len(chained), "a load that is not part of the chain"
        for (index, _), (_, before) in zip(chained, chained[-1:] + chained[:-1], strict=True):
            assert index == before


@x86
@pytest.mark.parametrize(("kernel", "decisions"), [("branches", 2), ("states", 7)])
def test_what_is_written_as_a_branch_is_one(kernel: str, decisions: int) -> None:
    """One jump for each comparison of the source, and one for the loop."""
    assert max(count(r"j(?!mp)", loop) for loop in loops(kernel)) >= decisions
