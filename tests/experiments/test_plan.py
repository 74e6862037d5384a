"""A plan says how long a run takes, and fits it into a budget by leaving out what is worth least."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from experiments import plan
from experiments.cli import main
from experiments.plan import Plan, full_plan, left_out, record, told, within
from experiments.sweep import read_preset

CPU = {"id": "cpu", "kind": "cpu", "name": "a CPU"}
H200 = {"id": "cuda:0", "kind": "gpu", "name": "NVIDIA H200", "multiprocessors": 132}


def block(value: int, *sizes: int, **more: Any) -> dict[str, Any]:
    cases = [{"m": n, "n": n, "k": n, "dtype": "float32", "backend": "torch", "threads": 1} for n in sizes]
    return {"value": value, "cases": cases, **more}


def preset(*blocks: dict[str, Any], rounds: int = 5, point_s: float = 10.0) -> dict[str, Any]:
    limits = {"target": 0.05, "point_s": point_s, "round_s": 10_000.0, "max_samples": 60}
    return {"rounds": rounds, **limits, "experiments": {"gemm": {"sweep": list(blocks)}}}


def planned(*blocks: dict[str, Any], **more: Any) -> Plan:
    return full_plan(preset(*blocks, **more), "test", [CPU], cores=2)


def sizes(made: Plan) -> list[int]:
    """The sizes that are kept."""
    (job,) = made.jobs
    return sorted(dict(point.params)["m"] for point in job.points if ("cpu", point) not in made.left_out)


def test_more_points_rounds_and_seconds_take_longer() -> None:
    one = planned(block(1, 64)).seconds
    assert planned(block(1, 64, 65)).seconds > one
    assert planned(block(1, 64), rounds=6).seconds > one
    assert planned(block(1, 64), point_s=11).seconds > one
    assert planned(block(1, 64), block(1, 65, rounds=1)).seconds < planned(block(1, 64, 65)).seconds


def test_a_block_may_have_seconds_of_its_own() -> None:
    assert planned(block(1, 64, point_s=1.0)).seconds == pytest.approx(planned(block(1, 64), point_s=1.0).seconds)


def test_what_fits_is_left_alone() -> None:
    made = planned(block(3, 64))
    assert within(made, made.seconds) == made


def test_details_go_first_then_rounds_then_what_adds() -> None:
    made = planned(block(1, 64), block(2, 65), block(3, 66))
    without_details = planned(block(1, 64), block(2, 65)).seconds
    few = within(made, without_details)
    assert (sizes(few), few.rounds) == ([64, 65], 5)
    fewer = within(made, without_details * 0.7)
    assert (sizes(fewer), fewer.rounds) == ([64, 65], 3)
    fewest = within(made, planned(block(1, 64), rounds=3).seconds)
    assert (sizes(fewest), fewest.rounds) == ([64], 3)


def test_a_budget_too_small_for_the_comparisons_is_refused_with_what_they_take() -> None:
    made = planned(block(1, 64, 65), block(3, 66))
    with pytest.raises(
        StudyError, match=r"a budget of 0.5 min: what the comparisons need takes about 1 min in 3 rounds"
    ):
        within(made, 30)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=12), st.floats(0.3, 1.2))
def test_a_trimmed_plan_fits_and_keeps_what_is_essential(values: list[int], share: float) -> None:
    made = planned(*(block(value, 64 + number) for number, value in enumerate(values)))
    try:
        trimmed = within(made, share * made.seconds)
    except StudyError:
        essential = planned(*(block(1, 64 + n) for n, value in enumerate(values) if value == 1), rounds=3)
        assert essential.seconds > share * made.seconds
        return
    assert trimmed.seconds <= share * made.seconds
    assert {64 + n for n, value in enumerate(values) if value == 1} <= set(sizes(trimmed))


def test_a_recorded_plan_tells_a_round_what_to_leave_out_and_why(tmp_path: Path) -> None:
    made = planned(block(1, 64), block(3, 66))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(record(within(made, made.seconds * 0.7), 1.5)))
    points, why = left_out(path, "gemm", "cpu")
    assert [dict(point.params)["m"] for point in points] == [66]
    assert why == "plan: left out to fit 1.5 min"
    assert left_out(path, "gemm", "cuda:0") == (frozenset(), "")
    assert left_out(None, "gemm", "cpu") == (frozenset(), "")


@pytest.mark.parametrize("name", ["quick", "full"])
def test_our_presets_fit_their_own_budgets_on_a_data_centre_gpu_and_its_host(name: str) -> None:
    content = read_preset(name)
    minutes = plan.budget_min(content, [CPU, H200])
    assert minutes is not None
    made = within(full_plan(content, name, [CPU, H200], cores=16), minutes * 60)
    assert made.rounds >= 3
    assert made.seconds <= minutes * 60


def test_the_plan_of_a_gpu_that_is_not_here_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "full", "--gpu", "NVIDIA H200", "--cores", "16"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^gemm +cuda:0 +\d+ +\d+ +\d+ +\d+\.\d$", said, re.MULTILINE)
    assert re.search(r"in all about \d+\.\d of 50 min in \d rounds", said)


def test_a_plan_without_a_budget_leaves_nothing_out() -> None:
    assert "left out" in told(planned(block(3, 64)), None)
    assert budget_free(preset(block(3, 64))) is None


def budget_free(content: dict[str, Any]) -> float | None:
    return plan.budget_min(content, [CPU])
