"""Preflight's check of torch's profiler: what it counts, and how it ends. Answers of other processes are synthetic."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.devices.cpu import CpuDevice
from experiments.jobs import Plan
from experiments.preflight import Preflight, profiler
from experiments.preflight.profiler import Seen

H100 = "NVIDIA H100 80GB HBM3"
LEVEL = {"before_s": [1.0, 1.1, 1.0], "after_s": [1.05] * 5, "records": [480] * 5}


@pytest.mark.parametrize(
    ("changed", "in_order", "words"),
    [
        ({}, True, "480 records a session, all sessions whole"),
        ({"after_s": [1.3] * 5}, False, "18% slower"),
        ({"after_s": [0.9] * 4 + [9.0]}, True, "all sessions whole"),
        ({"records": [480, 479, 478, 480, 480]}, False, "2 of 5 sessions lost some"),
        ({"records": [480, 476, 476, 476, 476]}, False, "4 of 5 sessions lost some"),
        ({"records": [479] * 5}, False, "5 of 5 sessions lost some"),
        ({"records": [0] * 5}, False, "no session recorded a kernel"),
    ],
)
def test_a_profiler_that_slows_or_loses_kernels_is_told(changed: dict[str, Any], in_order: bool, words: str) -> None:
    seen = Seen(**{**LEVEL, **changed})
    assert seen.in_order == in_order
    assert words in seen.words


def test_the_profilers_check_counts_whole_steps_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SESSIONS", 2), ("TIMED_S", 0.01), ("PAUSE_S", 0.0), ("REPEATS", 1)):
        monkeypatch.setattr(profiler, name, value)
    seen = profiler.observe(CpuDevice())
    assert seen.lost == 0
    assert seen.records[0] > 20 * profiler.STEPS
    assert min(*seen.before_s, *seen.after_s) > 0


def stand_in(says: Any, code: int = 0) -> list[str]:
    """The command of a check that says this whatever it is asked."""
    text = says if isinstance(says, str) else json.dumps(says)
    return [
        sys.executable,
        "-c",
        f"import sys; print({text!r}); print('error: trouble', file=sys.stderr); exit({code})",
    ]


def test_the_check_runs_with_the_variables_of_a_measuring_process() -> None:
    told = [sys.executable, "-c", "import os, json; print(json.dumps({'before_s': [1], 'after_s': [1],"
            "'records': [4 if 'TEARDOWN_CUPTI' in os.environ else 0]}))"]  # fmt: skip
    for device, records in (("cuda:0", [4]), ("xpu:0", [0])):
        seen, _ = profiler.check(device, 60, told)
        assert seen and seen.records == records


@pytest.mark.parametrize("command", [stand_in("no answer"), stand_in({"before_s": []}), stand_in("", 1)])
def test_a_check_without_an_answer_says_why(command: Sequence[str]) -> None:
    seen, words = profiler.check("mps", 60, command)
    assert seen is None
    assert words == "not checked: trouble"


def test_a_device_without_a_profiler_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    says = f"import sys; sys.exit({profiler.UNSUPPORTED + 'torch has no profiler for mps'!r})"
    tried = Preflight(Plan((), 1), {"mps": ("Apple M9", None)}, 5, Path(os.devnull), ["mps"], say=lambda _: None,
                      profiling=[sys.executable, "-c", says])  # fmt: skip
    assert tried.run()
    assert [(line.verdict, line.seen) for line in tried.lines] == [("unsupported", "torch has no profiler for mps")]


def test_a_check_that_there_is_no_time_for_is_left_out() -> None:
    tried = Preflight(Plan((), 1), {"cuda:0": (H100, None)}, 0.3, Path(os.devnull), ["cuda:0"], say=lambda _: None)
    assert tried.run()
    assert [line.verdict for line in tried.lines] == ["left out"]


def test_a_check_that_hangs_is_ended() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    seen, words = profiler.check("cpu", 0.5, command)
    assert seen is None
    assert "no answer" in words
