"""Test that disturbed points are measured again after a run. Only the real run's samples are not synthetic."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.attempts import disturbed_attempts
from contract.errors import StudyError
from contract.files import write_json
from contract.node import PARTIAL, RECORD, missing_rounds, read_node, write_node
from contract.node_pack import check_round, repeat_files, round_file_name
from contract.sample_table import read_samples, write_samples
from experiments import repeats
from experiments.cli import main
from experiments.jobs import Job, Plan, Point, read_plan
from experiments.outcome_summary import disturbed_text
from experiments.repeats import repeat_rounds
from experiments.rounds import Round
from report.data.gather import gather
from report.data.gathered_files import read_dataset, read_summary
from report.pages.disturbed_results import repeat_sentence
from tests.contract.test_tables import make_table
from tests.experiments.test_node import RECORD as NODE

BUSY, NEVER = "busy: 40% other load", 99
POINTS = {m: Point.from_params("gemm", {"m": m, "backend": "llvm"}, point_s=1.0, predicted_s=6.0) for m in (1, 2, 3)}
JOB = Job("gemm", "cpu", "cpu", 0.1, 600.0, 9, tuple(POINTS.values()), start_s=3.0)
PLAN = Plan((JOB,), 2, preset="/somewhere/mine.yaml")


class Machine:
    """A stand-in for a machine, which measures without time passing.

    quiet_from: for each (round, point), the attempt from which on it is quiet. stop_after: files to write before the
    process is killed. ran_s: seconds that each file takes.
    """

    def __init__(self, folder: Path, quiet_from: dict[tuple[int, int], int], ran_s: float = 10.0) -> None:
        self.folder, self.quiet_from, self.ran_s = folder / NODE["id"], quiet_from, ran_s
        self.written: list[str] = []
        self.stop_after = NEVER
        self.probe = folder / "probe.json"
        write_node(self.probe, NODE)
        for number in (1, 2):
            self.write(self.folder / round_file_name("gemm", "cpu", number), Round(JOB, number, 0), "", {})

    def write(self, out: Path, measured: Round, node: str, options: Any, planned: str = "") -> float:
        if len(self.written) >= self.stop_after:
            raise KeyboardInterrupt
        rows = []
        for point in measured.job.round_points(measured.number):
            quiet = measured.attempt >= self.quiet_from.get((measured.number, dict(point.params)["m"]), 1)
            flags = "" if quiet else BUSY
            place = {"round": measured.number, "attempt": measured.attempt, "run": f"r{out.stem}", "node": NODE["id"]}
            value = float(measured.attempt)
            rows += [{**place, **point.columns, "flags": flags, "value": value, "sample": index} for index in range(3)]
        about = {"wall_s": self.ran_s, "started_utc": "2026-01-02T07:00:00Z", "ended_utc": "2026-01-02T07:30:00Z"}
        write_samples(out, make_table(*rows), about)
        if measured.attempt > 1:
            self.written.append(out.name)
        return self.ran_s

    def repeat(self, share: float = 10.0) -> str:
        return repeat_rounds(self.folder, self.probe, NODE["id"], PLAN, share, 7)

    def points(self, name: str) -> list[str]:
        return sorted(set(read_samples(self.folder / name)[0]["params"]))


@pytest.fixture
def make_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def make(quiet_from: dict[tuple[int, int], int], **more: Any) -> Machine:
        machine = Machine(tmp_path, quiet_from, **more)
        monkeypatch.setattr(repeats, "measure_into_file", machine.write)
        return machine

    return make


@pytest.mark.parametrize(
    ("flags", "text"),
    [(("", "", BUSY), ""), (("", BUSY), ", 1 disturbed by other processes"), (("clock", "clock"), "")],
)
def test_line_of_a_round_counts_points_with_half_of_their_samples_disturbed(flags: tuple[str, ...], text: str) -> None:
    rows = [{"flags": words, "elapsed_s": 1.0} for words in flags]
    assert disturbed_text([rows, [{"flags": ""}]]) == text


def test_only_disturbed_points_are_repeated_and_at_most_twice(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine({(1, 1): 2, (1, 2): NEVER, (2, 3): 3})
    summary = machine.repeat()
    # All second attempts precede all third attempts, to give a neighbour time to end.
    files = ["gemm.cpu.1-2.parquet", "gemm.cpu.2-2.parquet", "gemm.cpu.1-3.parquet", "gemm.cpu.2-3.parquet"]
    assert machine.written == files
    assert list(map(machine.points, files)) == [['{"m":1}', '{"m":2}'], ['{"m":3}'], ['{"m":2}'], ['{"m":3}']]
    assert summary == (
        "others disturbed 3 of 6 points in a round: 3 measured again in 0.7 min (limit: 3.3), 2 of them are quiet now"
    )
    assert machine.repeat() == summary and machine.written == files, "a second command has nothing to measure"
    for name in files:
        check_round(machine.folder / name)


def test_quiet_run_repeats_nothing(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine({})
    assert machine.repeat() == "others disturbed none of 6 points in a round: nothing is measured again"
    assert machine.written == []
    assert not (machine.folder / PARTIAL).exists()


def test_killed_command_resumes_with_the_next_file(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine({(1, 1): NEVER, (2, 1): NEVER})
    machine.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        machine.repeat()
    before = {path.name: path.stat().st_mtime_ns for path in machine.folder.glob("*.parquet")}
    # A file that was cut off is measured again.
    (machine.folder / "gemm.cpu.2-2.parquet").write_bytes(b"PAR1")
    machine.stop_after = NEVER
    machine.repeat()
    assert machine.written[3:] == ["gemm.cpu.2-2.parquet", "gemm.cpu.2-3.parquet"]
    changed = {
        path.name for path in machine.folder.glob("*.parquet") if path.stat().st_mtime_ns != before.get(path.name)
    }
    assert changed == set(machine.written[3:])


def test_time_limit_holds_over_all_attempts_and_after_a_kill(make_machine: Callable[..., Machine]) -> None:
    disturbed = {(number, m): NEVER for number in (1, 2) for m in POINTS}
    # Each round took 42 s, twice the predicted 3 s for a process and 6 s for each point. The limit is 42 s: a whole
    # round fits, and nothing after it.
    machine = make_machine(disturbed, ran_s=42.0)
    assert "3 measured again in 0.7 min (limit: 0.7)" in machine.repeat(0.5)
    assert machine.written == ["gemm.cpu.1-2.parquet"] and len(machine.points("gemm.cpu.1-2.parquet")) == 3
    machine.repeat(0.5)
    assert len(machine.written) == 1, "the limit counts earlier repeats"
    # The other 33.6 s are enough to start a process (6 s) and to measure two points (12 s each).
    machine.repeat(0.9)
    assert machine.written[1:] == ["gemm.cpu.2-2.parquet"] and len(machine.points("gemm.cpu.2-2.parquet")) == 2


@pytest.mark.parametrize("change", [{"status": "wrong", "reason": "differs"}, {"elapsed_s": float("nan")}])
def test_points_without_a_timed_result_are_not_repeated(
    make_machine: Callable[..., Machine], change: dict[str, Any]
) -> None:
    machine = make_machine({(1, 1): NEVER})
    path = machine.folder / "gemm.cpu.1.parquet"
    samples, about = read_samples(path)
    write_samples(path, samples.assign(**change), about)
    machine.repeat()
    assert machine.written == []


def test_record_holds_repeats_and_time_of_first_attempts(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine({(1, 1): 2})
    machine.repeat()
    write_json(machine.probe.with_name("plan.json"), PLAN.as_json)
    firsts = [str(machine.folder / f"gemm.cpu.{number}.parquet") for number in (1, 2)]
    stray = machine.folder / "gemm.cpu.5-2.parquet"
    stray.write_bytes((machine.folder / "gemm.cpu.1-2.parquet").read_bytes())
    words = ["--probe", str(machine.probe), "--plan", str(machine.probe.with_name("plan.json"))]
    assert main(["seal", *words, "--rounds", *firsts, "--out", str(machine.folder / RECORD)]) == 0
    record = read_node(machine.folder / RECORD)
    names = sorted(path.name for path in machine.folder.glob("*.parquet"))
    assert names == ["gemm.cpu.1-2.parquet", "gemm.cpu.1.parquet", "gemm.cpu.2.parquet"]
    assert record["jobs"]["gemm.cpu"]["wall_s"] == [10.0, 10.0]
    assert missing_rounds(record, names) == []


def test_share_outside_0_to_1_is_refused_and_0_measures_nothing(
    make_machine: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    machine = make_machine({(1, 1): 2})
    words = ["repeat", "--node", str(machine.probe), "--plan", "none.json", "--folder", str(machine.folder), "--share"]
    with pytest.raises(StudyError, match="is not a share from 0 to 1"):
        main([*words, "1.5"])
    assert main([*words, "0"]) == 0
    assert "no point is measured again" in capsys.readouterr().err
    assert machine.written == []


def test_report_keeps_all_attempts_and_uses_the_quiet_one(make_machine: Callable[..., Machine], tmp_path: Path) -> None:
    machine = make_machine({(1, 1): 2, (2, 1): 3, (2, 2): NEVER})
    machine.repeat()
    out = tmp_path / "data"
    gather([machine.folder], out, allow_synthetic=True)
    data = read_dataset(out)
    rows = read_summary(out).set_index("params")
    assert rows["n_rounds"].tolist() == [2, 2, 2] and rows["n_samples"].tolist() == [6, 6, 6]
    assert rows["estimate"].round(6).to_dict() == {'{"m":1}': round(6**0.5, 6), '{"m":2}': 1.0, '{"m":3}': 1.0}
    used = data.samples("gemm")
    chosen = used[["params", "round", "attempt"]].astype({"params": str}).drop_duplicates()
    assert sorted(chosen.itertuples(index=False, name=None)) == [
        ('{"m":1}', 1, 2), ('{"m":1}', 2, 3), ('{"m":2}', 1, 1), ('{"m":2}', 2, 1), ('{"m":3}', 1, 1), ('{"m":3}', 2, 1)
    ]  # fmt: skip
    (node,) = data.nodes.nodes
    assert node.repeats == {"measured": 3, "quiet": 2}
    assert node.missing_rounds() == []
    sentence = repeat_sentence(data)
    assert sentence.startswith("2 of 3 rounds replace a first attempt")


PRESET = """
{rounds: 2, target: 0.001, point_s: 1.2, round_s: 60, max_samples: 500, experiments: {clock: {sweep: [
  {grid: {backend: [llvm], threads: [1], chain: [1000000]}}]}}}
"""


def _work() -> None:
    while True:
        pass


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """Keep all cores busy with other processes."""
    neighbours = [
        multiprocessing.get_context("fork").Process(target=_work, daemon=True) for _ in range(os.cpu_count() or 1)
    ]
    for process in neighbours:
        process.start()
    try:
        yield
    finally:
        for process in neighbours:
            process.kill()
            process.join()


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux's counters of other processes' time")
def test_point_disturbed_by_a_real_neighbour_is_measured_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    preset, probe, plan_file = tmp_path / "mine.yaml", tmp_path / "node.json", tmp_path / "plan.json"
    preset.write_text(PRESET)
    assert main(["probe", "--out", str(probe)]) == 0
    assert main(["plan", "--preset", str(preset), "--node", str(probe), "--out", str(plan_file)]) == 0
    folder = tmp_path / "nodes" / read_node(probe)["id"]
    first, run = folder / "clock.cpu.1.parquet", ["run", "clock", "--plan", str(plan_file), "--node", str(probe)]
    with busy_neighbour():
        assert main([*run, "--out", str(first)]) == 0
    assert main([*run, "--round", "2", "--out", str(folder / "clock.cpu.2.parquet")]) == 0
    assert disturbed_attempts(read_samples(first)[0]).tolist() == [True]
    words = ["repeat", "--node", str(probe), "--plan", str(plan_file), "--folder", str(folder), "--share", "1"]
    assert main(words) == 0
    assert re.search("others disturbed [12] of 2 points in a round: [12] measured again", capfd.readouterr().err)
    second, *third = repeat_files(first)
    samples, about = read_samples(second)
    assert set(samples["attempt"]) == {2} and samples["value"].notna().all()
    assert about["planned"] == read_plan(plan_file).job("clock", "cpu").digest(1)
    assert not third or disturbed_attempts(samples).all(), "a third attempt follows only a disturbed second"

    # A new first attempt replaces the round with its further attempts.
    assert main([*run, "--out", str(first)]) == 0
    assert repeat_files(first) == []
