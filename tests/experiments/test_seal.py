"""A node's record is written last; what belongs to another preset or machine is not mixed in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.node import read_node, write_node
from contract.tables import write_samples
from experiments import hardware
from experiments.cli import main
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
