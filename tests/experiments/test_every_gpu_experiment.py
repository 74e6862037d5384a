"""Every experiment's points for a GPU, from preset to answer, on a second CPU that stands in for one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import worker
from experiments.jobs import Point
from experiments.kernels.cuda import module
from experiments.registry import get
from experiments.state import Watch
from experiments.suite import sustained
from experiments.sweep import read_preset, sweep
from tests.experiments.second_device import SecondCpu

TINY = str(Path(__file__).parents[1] / "workflow" / "tiny.yaml")
CONTENT = read_preset(TINY)
NAMES = [name for name in CONTENT["experiments"] if "gpu" in get(name).fits]


def answered(point: Point) -> dict[str, Any]:
    policy = {"target": 0.5, "budget_s": 0.5, "max_samples": 6}
    order = {"experiment": point.experiment, "params": dict(point.params), "policy": policy}
    return worker.answer_to(order, SecondCpu(), Watch("cpu"))


@pytest.mark.parametrize("name", NAMES)
def test_its_points_are_measured_or_say_what_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Kernels in CUDA C have tests of their own, in which they run.
    monkeypatch.setitem(sys.modules, "cupy", None)
    module.cache_clear()
    # What takes a GPU milliseconds takes the CPU in its place seconds.
    monkeypatch.setattr(sustained, "IN_A_GRAPH", 10)
    points = sweep(CONTENT, name, TINY).points("gpu")
    assert points
    for point in points:
        answer = answered(point)
        assert answer["status"] in ("ok", "unsupported"), f"{point.params}: {answer['reason']}"
        assert (answer["status"] == "ok") == ("parts" in answer)
        for part in answer.get("parts", ()):
            assert part["status"] == "ok", part["reason"]
            assert all(value > 0 for series in part["series"] for value in series["values"])
