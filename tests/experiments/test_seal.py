"""A node's record is written last; what belongs to another preset or machine is not mixed in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from contract.errors import StudyError
from contract.files import write_json
from contract.node import PARTIAL, missing_rounds, read_node, record_path, write_node
from contract.tables import write_samples
from experiments import hardware
from experiments.cli import main
from experiments.jobs import Job, Plan, Point
from experiments.seal import begin, pace
from tests.contract.test_tables import table

RECORD: dict[str, Any] = {
    "schema": 1,
    "id": "some-cpu-2c-abc123",
    "origin": "synthetic",
    "hardware": {"cpu": {"model": "Some CPU", "usable_cores": 2}, "memory_bytes": 1, "gpus": []},
    "software": {"os": "Linux 6", "python": "3.11", "packages": {}, "blas": []},
    "devices": [{"id": "cpu", "kind": "cpu", "name": "Some CPU"}],
    "left_out": [],
    "study": {"version": "0", "commit": "unknown"},
    "started_utc": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_node(tmp_path / "probe.json", RECORD)
    return tmp_path / "nodes" / RECORD["id"]


def measured(folder: Path, name: str, hour: int, node: str = RECORD["id"]) -> str:
    about = {"started_utc": f"2026-01-02T{hour:02}:00:00Z", "ended_utc": f"2026-01-02T{hour:02}:30:00Z"}
    write_samples(folder / name, table({"node": node}), about)
    return str(folder / name)


def seal(folder: Path, *rounds: str) -> int:
    probe = str(folder.parents[1] / "probe.json")
    return main(["seal", "--probe", probe, "--rounds", *rounds, "--out", str(folder / "node.json")])


def test_the_record_spans_its_rounds(folder: Path) -> None:
    first, last = measured(folder, "gemm.cpu.1.parquet", 7), measured(folder, "gemm.cpu.2.parquet", 9)
    assert seal(folder, last, first) == 0
    record = read_node(folder / "node.json")
    assert (record["started_utc"], record["ended_utc"]) == ("2026-01-02T07:00:00Z", "2026-01-02T09:30:00Z")
    assert record["id"] == RECORD["id"]


def test_rounds_of_an_earlier_preset_are_set_aside_and_kept(folder: Path) -> None:
    now, before = measured(folder, "gemm.cpu.1.parquet", 7), measured(folder, "gemm.cpu.5.parquet", 3)
    content = Path(before).read_bytes()
    seal(folder, now)
    assert sorted(path.name for path in folder.glob("*.parquet")) == ["gemm.cpu.1.parquet"]
    assert (folder / "superseded" / "gemm.cpu.5.parquet").read_bytes() == content


def test_rounds_of_another_machine_are_named(folder: Path) -> None:
    strange = measured(folder, "gemm.cpu.1.parquet", 7, node="another-cpu-8c-fff000")
    with pytest.raises(StudyError, match=r"describes some-cpu-2c-abc123, but rounds of another-cpu-8c-fff000"):
        seal(folder, strange)
    assert not (folder / "node.json").exists()


def test_results_of_another_machine_are_not_continued_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = folder.parents[1] / "probe.json"
    with pytest.raises(StudyError, match=r"describes some-cpu-2c-abc123, this machine is .*results=FOLDER"):
        main(["check", "--preset", "quick", "--node", str(probe)])
    monkeypatch.setattr(hardware, "kind", lambda: RECORD["id"])
    assert main(["check", "--preset", "quick", "--node", str(probe)]) == 0


def plan_of(tmp_path: Path) -> tuple[Path, Plan]:
    """A plan of two jobs in two rounds, the second job's points left out of it."""
    point = Point.of("gemm", {"m": 8}, point_s=1.0, predicted_s=90.0)
    job = Job("gemm", "cpu", "cpu", 0.1, 60.0, 9, (point,), start_s=10.0)
    other = Job("training", "cuda:0", "gpu", 0.1, 60.0, 9, (replace(point, left_out="plan: left out to fit 1 min"),))
    plan = Plan((job, other), 2)
    write_json(tmp_path / "plan.json", plan.plain)
    return tmp_path / "plan.json", plan


def test_a_folder_of_rounds_has_a_record_from_the_first_on_and_says_what_is_missing(folder: Path) -> None:
    _, plan = plan_of(folder.parents[1])
    measured(folder, "gemm.cpu.1.parquet", 7)
    begin(folder, folder.parents[1] / "probe.json", plan)
    assert record_path(folder) == folder / PARTIAL
    record = read_node(record_path(folder))
    assert record["jobs"]["gemm.cpu"]["predicted_s"] == [100.0, 100.0]
    assert record["jobs"]["training.cuda-0"] == {"predicted_s": [], "left_out": {"plan: left out to fit 1 min": 1}}
    assert missing_rounds(record, [path.name for path in folder.glob("*.parquet")]) == ["gemm.cpu.2"]
    assert pace(record) == {}


def test_sealing_keeps_what_rounds_took_beside_what_was_planned_and_the_hosts(folder: Path) -> None:
    path, plan = plan_of(folder.parents[1])
    rounds = []
    for number, (host, wall_s) in enumerate((("aaaaaa", 150.0), ("bbbbbb", 170.0)), start=1):
        about = {
            "started_utc": RECORD["started_utc"],
            "ended_utc": RECORD["started_utc"],
            "host": host,
            "wall_s": wall_s,
        }
        write_samples(folder / f"gemm.cpu.{number}.parquet", table({"node": RECORD["id"]}), about)
        rounds.append(str(folder / f"gemm.cpu.{number}.parquet"))
    begin(folder, folder.parents[1] / "probe.json", plan)
    assert seal(folder, *rounds, "--plan", str(path)) == 0
    record = read_node(record_path(folder))
    assert record["hosts"] == ["aaaaaa", "bbbbbb"]
    assert record["jobs"]["gemm.cpu"]["wall_s"] == [150.0, 170.0]
    assert pace(record) == {"gemm.cpu": pytest.approx(1.6)}
    there = sorted(path.name for path in folder.iterdir())
    assert there == ["gemm.cpu.1.parquet", "gemm.cpu.2.parquet", "node.json"]
    assert missing_rounds(record, there) == []


def test_a_round_that_is_measured_anew_breaks_the_seal(folder: Path) -> None:
    _, plan = plan_of(folder.parents[1])
    seal(folder, measured(folder, "gemm.cpu.1.parquet", 7))
    begin(folder, folder.parents[1] / "probe.json", plan)
    assert record_path(folder) == folder / PARTIAL
    begin(folder, folder.parents[1] / "probe.json", replace(plan, rounds=1))
    assert read_node(folder / PARTIAL)["jobs"]["gemm.cpu"]["predicted_s"] == [100.0], "the plan is another one now"


def test_what_became_of_a_nodes_points_is_told_by_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        lost = {
            "status": "unsupported",
            "reason": f"no FP8 here, {number}.5 s on",
            "value": float("nan"),
            "stop_reason": "",
        }
        both = pd.concat(
            [
                table({"node": RECORD["id"], "round": number}),
                table({"node": RECORD["id"], "round": number, "dtype": "float8_e4m3fn", **lost}),
            ]
        )
        write_samples(
            folder / f"gemm.cpu.{number}.parquet", both.drop_duplicates(["dtype", "sample"], ignore_index=True), {}
        )
    (folder / "gemm.cpu.3.parquet").write_bytes(b"not a table")
    begin(folder, folder.parents[1] / "probe.json", plan_of(folder.parents[1])[1])
    assert main(["outcomes", str(folder.parent)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{RECORD['id']}: 3 rounds of jobs, 2 points ok, 2 not"
    assert "2  gemm on cpu: unsupported: no FP8 here, 1.5 s on" in said[1]
    assert "gemm.cpu.3.parquet" in said[2]
    assert len(said) == 3
    with pytest.raises(StudyError, match=r"no node in .*results/nodes"):
        main(["outcomes", str(folder.parents[1] / "elsewhere")])
