"""One bad point never costs the others."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contract.files import write_json
from contract.tables import read_samples, write_samples
from experiments import plan, rounds
from experiments.cli import main
from experiments.jobs import Plan
from experiments.registry import Experiment, _parameters
from experiments.rounds import Round
from experiments.state import Reading
from experiments.sweep import Sweep
from tests.experiments import broken_worker

BROKEN = Experiment(
    "broken",
    broken_worker.broken,
    _parameters(broken_worker.broken),
    smaller=None,
    memory=None,
    flop=None,
    fits=("cpu",),
    environment=lambda params: {"CHOSEN_BY_POINT": "yes"} if params["how"] == "is told" else {},
)
FIRST = {"how": "right", "index": 1, "backend": "llvm"}


COMMAND = [sys.executable, "-u", broken_worker.__file__]


def make(hows: list[str], *blocks: dict[str, Any], number: int = 1, seed: int = 1, **changes: Any) -> Round:
    settings: dict[str, Any] = {"target": 0.5, "point_s": 0.02, "round_s": 60.0, "max_samples": 6, **changes}
    cases = [{**FIRST, "how": how, "index": index} for index, how in enumerate(hows)]
    sweep = Sweep(BROKEN, blocks=[{"cases": cases}, *blocks], place="test", **settings)
    return Round(plan.job(sweep, {"id": "cpu", "kind": "cpu"}, 2), number, seed, command=COMMAND)


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def outcomes(measured: Round) -> dict[str, tuple[str, str]]:
    return {row["params"]: (row["status"], row["reason"]) for row in measured.rows if row["sample"] == 0}


def by_how(measured: Round) -> dict[str, tuple[str, str]]:
    return {key.split('"how":"')[1].split('"')[0]: value for key, value in outcomes(measured).items()}


def test_every_failure_is_a_row_and_the_rest_is_measured(tmp_path: Path) -> None:
    measured = make(["right", "killed", "raises", "no memory", "wrong", "nan", "unsupported", "prints", "right"])
    measured.run()
    seen = by_how(measured)
    assert seen["right"] == ("ok", "")
    assert seen["prints"] == ("ok", "")
    assert seen["killed"] == ("failed", "the measuring process was ended by SIGKILL (out of memory?)")
    assert seen["raises"][0] == "failed"
    assert "ZeroDivisionError: index out of luck" in seen["raises"][1]
    assert seen["no memory"][0] == "oom"
    assert seen["wrong"][0] == seen["nan"][0] == "wrong"
    assert seen["unsupported"] == ("unsupported", "not on this planet")
    assert sum(status == "ok" for status, _ in outcomes(measured).values()) == 3
    assert measured.workers == 2  # one was killed
    path = tmp_path / "broken.cpu.1.parquet"
    write_samples(path, rounds.table(measured, "node", "run"), {})
    table, _ = read_samples(path)
    assert set(table["status"]) == {"ok", "failed", "oom", "wrong", "unsupported"}


def test_every_work_of_a_point_and_its_energy_is_a_row(tmp_path: Path) -> None:
    part = {
        "status": "ok", "series": [{"metric": "time", "unit": "s", "values": [0.5, 0.6]}], "calls": 4, "flop": 8.0,
        "readings": [vars(Reading(at)) for at in (1.0, 2.0)], "stop_reason": "samples", "bytes": None,
        "warmup_s": 0.1, "timed_s": 4.4, "energy": {"metric": "energy", "unit": "J", "value": 50.0},
    }  # fmt: skip
    refused = {"status": "unsupported", "reason": "cannot be captured", "metric": "graph_time"}
    answer: dict[str, Any] = {
        "status": "ok",
        "parts": [part, refused],
        "observed": {},
        **dict.fromkeys(("error", "tolerance", "bytes")),
    }
    measured = make(["right"])
    measured._note(measured.job.points[0], {**answer, "flop": 8.0})
    path = tmp_path / "broken.cpu.1.parquet"
    write_samples(path, rounds.table(measured, "node", "run"), {})
    first, second, energy, graph = read_samples(path)[0].to_dict("records")
    assert (first["value"], second["value"], second["elapsed_s"]) == (0.5, 0.6, 2.0)
    assert [energy[name] for name in ("metric", "value", "unit", "calls", "flop")] == ["energy", 50.0, "J", 4, 8.0]
    assert {name: graph[name] for name in refused} == refused


def test_several_values_of_what_is_observed_are_samples_of_one_metric() -> None:
    measured = make(["observes three"])
    measured.run()
    seen = [(row["metric"], row["sample"], row["value"], row["unit"]) for row in measured.rows]
    assert seen == [
        *(("latency", i, value, "s") for i, value in enumerate((1.0, 2.0, 4.0))),
        ("failed_share", 0, 0.0, "1"),
    ]
    assert measured.timed_s >= 0.05, "where nothing is timed, observing is measuring"


def test_an_observation_that_is_no_number_costs_its_point_alone() -> None:
    measured = make(["observes no number", "right"])
    measured.run()
    status, reason = by_how(measured)["observes no number"]
    assert status == "failed"
    assert "latency is not a number" in reason
    assert by_how(measured)["right"] == ("ok", "")


def test_a_row_that_the_data_dictionary_refuses_costs_its_point_alone(tmp_path: Path) -> None:
    measured = make(["observes a share of two", "right", "observes three"])
    measured.run()
    path = tmp_path / "broken.cpu.1.parquet"
    write_samples(path, rounds.table(measured, "node", "run"), {})
    table, _ = read_samples(path)
    status = {
        how: group["status"].unique().tolist()
        for how, group in table.groupby(table["params"].str.extract('"how":"([^"]*)"')[0])
    }
    assert status == {"observes a share of two": ["failed"], "right": ["ok"], "observes three": ["ok"]}
    (reason,) = table.loc[table["status"].eq("failed"), "reason"]
    assert reason.startswith("its samples were refused: ")
    assert "2.0 is more than the whole, for a share" in reason


def test_an_answer_of_another_shape_costs_its_point_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = make(["right", "unsupported"])
    note = Round._note

    def cut(self: Round, point: Any, answer: dict[str, Any]) -> None:
        note(self, point, {key: value for key, value in answer.items() if key != "flop"})

    monkeypatch.setattr(Round, "_note", cut)
    measured.run()
    assert by_how(measured)["right"] == ("failed", "no answer that could be read (KeyError: 'flop')")
    assert by_how(measured)["unsupported"] == ("unsupported", "not on this planet")
    assert len(measured.outcomes) == 2


@pytest.mark.parametrize("said", ["{'status': nothing", "null", "[1]"])
def test_what_is_no_answer_costs_its_point_and_its_process_alone(said: str) -> None:
    measured = make(["right"] * 3)
    measured.command = [sys.executable, "-c", f"for _ in range(2): input(); print('{{}}' if _ == 0 else {said!r})"]
    measured.run()
    assert set(outcomes(measured).values()) == {("failed", "the measuring process said what is no answer")}
    assert measured.workers == 3


def test_what_a_process_loads_is_not_a_points_time_and_there_is_work_meanwhile() -> None:
    measured = make(["right", "killed", "right"])
    done: list[int] = []
    measured.meanwhile = lambda: done.append(measured.workers)
    measured.run()
    assert len(done) == measured.workers == 2, "once for each process that was started"
    asked: list[object] = []
    started = rounds.start_s("cpu", command=COMMAND, then=asked.append)
    assert started is not None
    assert started > 0.05
    assert rounds.start_s("cpu", command=[sys.executable, "-c", "raise SystemExit(3)"], then=asked.append) is None
    assert len(asked) == 1, "of a process that is not ready, nothing is asked"


def test_a_hanging_point_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "HANG_CONSTANT_S", 3.0)
    measured = make(["hangs", "right"])
    measured.run()
    assert by_how(measured)["hangs"] == ("timeout", "no answer within 3 s")
    assert by_how(measured)["right"][0] == "ok"


def test_points_past_the_rounds_budget_are_skipped_with_the_reason() -> None:
    measured = make(["right"] * 4, round_s=1e-9)
    measured.run()
    assert {status for status, _ in outcomes(measured).values()} == {"skipped"}
    assert all("budget" in reason for _, reason in outcomes(measured).values())


def test_what_a_plan_leaves_out_is_a_row_with_the_reason_and_is_not_measured() -> None:
    measured = make(["right", "killed"])
    (gone,) = [point for point in measured.job.points if dict(point.params)["how"] == "killed"]
    measured.job = measured.job.without({gone: "plan: left out to fit 5 min"})
    measured.run()
    assert by_how(measured) == {"right": ("ok", ""), "killed": ("skipped", "plan: left out to fit 5 min")}


@pytest.mark.parametrize(("number", "expected"), [(1, {"right", "raises"}), (2, {"right"})])
def test_a_block_of_the_first_rounds_is_not_in_later_ones(number: int, expected: set[str]) -> None:
    first = {"rounds": 1, "cases": [{**FIRST, "how": "raises", "index": 0}]}
    measured = make(["right"], first, number=number)
    measured.run()
    assert set(by_how(measured)) == expected


def test_the_order_is_shuffled_by_the_seed() -> None:
    def order(seed: int) -> list[str]:
        measured = make(["unsupported"] * 12, seed=seed)
        measured.run()
        return list(outcomes(measured))

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))


def test_seeds_differ_between_rounds_devices_and_experiments() -> None:
    seeds = {rounds.round_seed(0, name, device, n) for name in "ab" for device in ("cpu", "cuda:0") for n in (1, 2)}
    assert len(seeds) == 8
    assert rounds.round_seed(0, "a", "cpu", 1) == rounds.round_seed(0, "a", "cpu", 1)


def test_progress_is_one_complete_line_when_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    make(["right", "unsupported"]).run()
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "broken on cpu, round 1: 2 points in" in said[0]
    assert "1 ok" in said[0]
    assert "1 unsupported" in said[0]


def test_inherited_variables_do_not_choose_a_librarys_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    measured = make(["tells its environment"])
    measured.run()
    ((status, reason),) = outcomes(measured).values()
    assert status == "unsupported"
    names = reason.split()
    assert "PATH" in names
    assert not {"OPENBLAS_CORETYPE", "OMP_NUM_THREADS"} & set(names)


def test_variables_of_a_point_are_set_in_its_own_process_and_recorded() -> None:
    measured = make(["tells its environment", "is told", "right", "is told"])
    measured.run()
    seen = by_how(measured)
    assert "CHOSEN_BY_POINT" in seen["is told"][1].split()
    assert "CHOSEN_BY_POINT" not in seen["tells its environment"][1].split()
    assert measured.workers == 2
    assert sorted(map(sorted, measured.environments)) == [[], ["CHOSEN_BY_POINT"]]


def test_progress_is_shown_on_a_terminal_even_one_that_does_not_tell_its_size(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    preset = root / "tests" / "workflow" / "tiny.yaml"
    words = [sys.executable, "-m", "experiments", "run", "peak", "--preset", str(preset)]
    ours, theirs = pty.openpty()  # 0 columns by 0 lines
    child = subprocess.Popen([*words, "--out", str(tmp_path / "peak.parquet")], stderr=theirs, cwd=root)
    os.close(theirs)
    said = b""
    while chunk := _read(ours):
        said += chunk
    assert child.wait() == 0
    text = said.decode()
    assert "peak on cpu, round 1:" in text
    assert "3/3" in text
    assert re.search(r"\[\d\d:\d\d<\d\d:\d\d", text)  # time spent, time left


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other side has been closed
        return b""


def test_a_clock_that_is_set_back_in_mid_round_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back_s = 0.0

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) - timedelta(seconds=back_s)

    def set_back(self: Round) -> None:
        nonlocal back_s
        measure(self)
        back_s = 3600.0

    measure = Round.run
    monkeypatch.setattr(rounds, "datetime", Clock)
    monkeypatch.setattr(Round, "run", set_back)
    preset, out = tmp_path / "mine.yaml", tmp_path / "clock.parquet"
    preset.write_text(
        "rounds: 1\ntarget: 0.5\npoint_s: 0.05\nround_s: 60\nmax_samples: 6\nexperiments:\n  clock:\n    sweep:\n"
        "      - grid: {backend: [llvm], threads: [1], chain: [1000000]}\n"
    )
    assert main(["run", "clock", "--preset", str(preset), "--out", str(out)]) == 0
    samples, about = read_samples(out)
    began, ended = (datetime.strptime(about[name], "%Y-%m-%dT%H:%M:%SZ") for name in ("started_utc", "ended_utc"))
    assert abs((ended - began).total_seconds() - about["wall_s"]) <= 2
    assert samples["value"].gt(0).all() and samples["elapsed_s"].le(about["wall_s"]).all()


def test_whoever_measures_by_a_plan_loads_no_library_before_the_measuring_process_starts(tmp_path: Path) -> None:
    plan_file = tmp_path / "plan.json"
    job = replace(make(["right"]).job, experiment="gemm", device="cuda:0", kind="gpu")
    write_json(plan_file, Plan((job,), 1).plain)
    words = [
        "run",
        "gemm",
        "--device",
        "cuda:0",
        "--plan",
        str(plan_file),
        "--out",
        str(tmp_path / "gemm.cuda-0.1.parquet"),
    ]
    program = f"""
import sys
from experiments import rounds
def start(*_):
    heavy = {{"torch", "pandas", "pandera", "pyarrow", "numpy", "experiments.suite", "llvmlite"}}
    print(sorted(heavy & set(sys.modules)))
    sys.exit(7)
rounds._Worker.start = start
from experiments.cli import main
main({words!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (7, "[]"), done.stderr
