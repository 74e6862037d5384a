"""Test the choice of points for further rounds. All samples are synthetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import write_json
from contract.looks import KEY, read_further_rounds
from contract.node import missing_rounds, read_node, write_node
from contract.node_pack import round_file_name
from contract.sample_table import write_samples
from experiments.cli import main
from experiments.further_rounds import (
    ANCHORS,
    MeasuredRounds,
    choose_look_rounds,
    choose_session_rounds,
    read_measured_rounds,
)
from experiments.jobs import JOB_S, Job, Plan, Point, add_rounds, point_key
from experiments.node_writer import summarize_plan
from tests.contract.test_tables import make_table
from tests.experiments.test_node import RECORD as NODE

ENDED = datetime(2026, 1, 2, 8, tzinfo=UTC)
SOON, LATER = ENDED + timedelta(minutes=59), ENDED + timedelta(minutes=60)


def make_job(experiment: str, size: int, seconds: float = 2.0) -> Job:
    points = [
        Point.from_params(experiment, {"m": m, "backend": "llvm"}, point_s=1.0, predicted_s=seconds + m / 100)
        for m in range(size)
    ]
    return Job(experiment, "cpu", "cpu", 0.1, 600.0, 9, tuple(points), start_s=3.0)


JOBS = make_job("gemm", 20), make_job("peak", 3)
PLAN = Plan(JOBS, 3)
KEYS = [[point_key(job, point) for point in job.points] for job in JOBS]


def measured_rounds(spent_s: float = 0.0, pace: float = 1.0) -> MeasuredRounds:
    paces = {job.name: pace for job in JOBS}
    return MeasuredRounds(paces, spent_s, ENDED, frozenset(itertools.chain(*KEYS)))


def as_points(keys: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(KEY, key, strict=True)) for key in keys]


def case(*keys: tuple[Any, ...]) -> dict[str, Any]:
    return {"rounds": 5, "points": as_points(keys)}


def test_cases_are_taken_whole_in_their_order_while_the_time_suffices() -> None:
    """Each of the five rounds up to the last look takes 3 s to start, 1.25 s between jobs and 2 s a point."""
    gemm = KEYS[0]
    limit_min = 5 * (JOB_S + 3.0 + 3 * 2.1) / 60
    cases = [case(gemm[0], gemm[1]), case(gemm[2], gemm[3], gemm[4]), case(gemm[0], gemm[5])]
    document, text = choose_look_rounds(PLAN, measured_rounds(), cases, 5, limit_min, SOON)
    assert document["rounds"] == [4, 5]
    assert document["points"] == as_points([gemm[0], gemm[1], gemm[5]])
    assert document["anchors"] == []
    assert "3 points, behind 2 of 3 undecided cases" in text
    assert document["seconds"] == {"gemm.cpu": pytest.approx(3.0 + 3 * 2.02, abs=0.1)}


@given(st.floats(0, 300), st.floats(0.5, 3))
def test_predicted_time_never_exceeds_the_limit(spent_s: float, pace: float) -> None:
    measured = measured_rounds(spent_s, pace)
    document, _ = choose_look_rounds(PLAN, measured, [case(key) for key in itertools.chain(*KEYS)], 5, 5.0, LATER)
    seconds = sum(JOB_S + each for each in document["seconds"].values())
    assert 5 * seconds <= max(0.0, 300 - spent_s) + 1


def test_no_rounds_without_time_or_cases() -> None:
    for cases, spent_s in (([], 0.0), ([case(KEYS[0][0])], 300.0)):
        document, text = choose_look_rounds(PLAN, measured_rounds(spent_s), cases, 5, 5.0, SOON)
        assert (document["rounds"], document["points"]) == ([], [])
        assert text.startswith("no round before the look after 5 rounds")


def test_points_that_the_plan_lacks_are_ignored() -> None:
    left_out = PLAN.jobs[0].leave_out({PLAN.jobs[0].points[0]: "plan: left out"})
    plan = replace(PLAN, jobs=(left_out,))
    stranger = ("training", *KEYS[0][0][1:])
    document, _ = choose_look_rounds(
        plan, measured_rounds(), [case(KEYS[0][0], stranger), case(KEYS[0][1])], 5, 5.0, SOON
    )
    assert document["points"] == as_points([KEYS[0][1]])


def test_rounds_an_hour_later_have_anchors_beside_the_points() -> None:
    document, _ = choose_look_rounds(PLAN, measured_rounds(), [case(KEYS[0][0])], 5, 60.0, LATER)
    anchors = [tuple(point[name] for name in KEY) for point in document["anchors"]]
    assert len(anchors) == len(set(anchors)) == ANCHORS
    assert set(anchors) < set(KEYS[0][1:]), "anchors are decided points of the same experiment and device"
    sizes = [KEYS[0].index(key) for key in anchors]
    assert sizes == sorted(sizes)
    assert max(sizes) > 15 > 5 > min(sizes), "anchors are spread over the predicted times"


def test_session_measures_anchors_of_every_job() -> None:
    document, text = choose_session_rounds(PLAN, measured_rounds(), 2)
    assert document["rounds"] == [21, 22]
    assert document["points"] == []
    assert [point["experiment"] for point in document["anchors"]] == ["gemm"] * ANCHORS + ["peak"] * 3
    assert text.startswith("session 2: 8 points again, in 2 rounds")


def test_look_that_the_plan_lacks_is_refused() -> None:
    with pytest.raises(StudyError, match=r"a plan with 3 rounds has the looks \[5, 8\]"):
        choose_look_rounds(PLAN, measured_rounds(), [], 4, 5.0, SOON)


def further(rounds: list[int], keys: list[tuple[Any, ...]], look: int | None) -> dict[str, Any]:
    return {"rounds": rounds, "points": as_points(keys), "anchors": [], "look": look, "seconds": {}}


def test_further_rounds_leave_finished_rounds_as_they_are() -> None:
    plan = add_rounds(PLAN, [further([4, 5], KEYS[0][:2], 5), further([21, 22], KEYS[1][:1], None)])
    for before, after in zip(PLAN.jobs, plan.jobs, strict=True):
        assert [before.digest(number) for number in (1, 2, 3)] == [after.digest(number) for number in (1, 2, 3)]
    measured = {number: [len(job.round_points(number)) for job in plan.jobs] for number in (3, 4, 5, 6, 21, 22)}
    assert measured == {3: [20, 3], 4: [2, 0], 5: [2, 0], 6: [0, 0], 21: [0, 1], 22: [0, 1]}
    assert [look["rounds"] for look in plan.looks] == [3, 5, 8]
    assert plan.looks[1]["points"] == 2
    assert len(plan.looks[1]["digest"]) == 12


def test_record_lists_the_rounds_of_each_job() -> None:
    plan = add_rounds(PLAN, [further([21, 22], KEYS[1][:1], None)])
    record = {"jobs": summarize_plan(plan)}
    assert missing_rounds(record, [f"gemm.cpu.{number}.parquet" for number in (1, 2, 3)]) == [
        f"peak.cpu.{number}" for number in (1, 2, 3, 21, 22)
    ]
    assert plan.looks == (), "a session has no look"


def write_rounds(folder: Path) -> None:
    for number, status in ((1, "ok"), (2, "ok"), (3, "failed"), (4, "ok"), (21, "ok")):
        point = JOBS[0].points[number % 2]
        rows = make_table(
            {
                "round": number,
                "node": NODE["id"],
                **point.columns,
                "status": status,
                "reason": "" if status == "ok" else "it broke",
                "experiment": "gemm",
            }
        )
        about = {"wall_s": 30.0, "stood_s": 5.0, "started_utc": "2026-01-02T07:00:00Z"}
        write_samples(
            folder / round_file_name("gemm", "cpu", number),
            rows,
            {**about, "ended_utc": f"2026-01-02T{number:02}:30:00Z"},
        )


def test_measured_rounds_give_pace_time_and_sound_points(tmp_path: Path) -> None:
    write_rounds(tmp_path)
    measured = read_measured_rounds(tmp_path, PLAN)
    assert measured.paces == {"gemm.cpu": pytest.approx(75 / (3 * JOBS[0].seconds(1)))}
    assert measured.further_s == 25.0
    assert measured.ended == datetime(2026, 1, 2, 21, 30, tzinfo=UTC)
    assert measured.sound == {KEYS[0][0], KEYS[0][1]}


def test_command_announces_the_rounds_and_seal_records_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / NODE["id"]
    folder.mkdir()
    write_rounds(folder)
    plan, cases, out, probe = (tmp_path / name for name in ("plan.json", "cases.json", "look-5.json", "probe.json"))
    write_json(plan, PLAN.as_json)
    write_json(cases, {"cases": [case(KEYS[0][0]), case(KEYS[0][7])]})
    write_node(probe, NODE)
    words = ["further", "--plan", str(plan), "--folder", str(folder), "--look", "5", "--out", str(out)]
    with pytest.raises(StudyError, match="give the undecided cases and the time limit"):
        main(words)
    assert main([*words, "--cases", str(cases), "--minutes", "60"]) == 0
    assert "rounds 4 to 5: 2 points and" in capsys.readouterr().err
    assert read_further_rounds(out)["rounds"] == [4, 5]
    rounds = [str(folder / round_file_name("gemm", "cpu", number)) for number in (1, 2, 3, 4)]
    sealed = tmp_path / "sealed" / "node.json"
    sealed.parent.mkdir()
    common = ["seal", "--probe", str(probe), "--plan", str(plan), "--rounds", *rounds, "--out", str(sealed)]
    assert main([*common, "--looks"]) == 0
    assert read_node(sealed)["looks"] == [{"rounds": 3}, {"rounds": 5}, {"rounds": 8}]
    assert main([*common, "--further", str(out)]) == 0
    record = read_node(sealed)
    assert record["looks"][1]["points"] == 2
    assert record["jobs"]["gemm.cpu"]["wall_s"] == [30.0] * 4
    assert len(record["jobs"]["gemm.cpu"]["predicted_s"]) == 5
