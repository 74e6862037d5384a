"""A failing point never affects the others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pandas as pd
import pytest

import contract.node
from contract.files import write_json
from contract.sample_table import read_samples, write_samples
from experiments import plan, rounds, worker_processes
from experiments.cli import main
from experiments.jobs import Plan
from experiments.machine_state import Reading
from experiments.registry import Experiment, _parameter_types
from experiments.rounds import Round
from experiments.sweep import Sweep
from tests.experiments import broken_worker

BROKEN = Experiment(
    "broken",
    broken_worker.break_point,
    _parameter_types(broken_worker.break_point),
    smaller=None,
    memory=None,
    flop=None,
    fits=("cpu",),
    environment=lambda params: {"CHOSEN_BY_POINT": "yes"} if params["how"] == "reports a changed environment" else {},
)
NAMES = {
    broken_worker.break_point: "broken",
    broken_worker.profile_point: "profiled",
    broken_worker.spoil_process: "spoiling",
}
COMMAND = [sys.executable, "-u", broken_worker.__file__]
SPOILING = ("OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "PYTHONMALLOCSTATS", "GLIBC_TUNABLES", "ACME_TOKEN")


def make_round(
    hows: list[str], *blocks: dict[str, Any], number: int = 1, seed: int = 1, device: str = "cpu",
    function: Any = broken_worker.break_point, **changes: Any,
) -> Round:  # fmt: skip
    """Return a round with a point for each fault, on the CPU or a GPU stand-in."""
    settings: dict[str, Any] = {"target": 0.5, "point_s": 0.02, "round_s": 600.0, "max_samples": 6, **changes}
    cases = [{"how": how, "index": index, "backend": "llvm"} for index, how in enumerate(hows)]
    experiment = replace(BROKEN, name=NAMES[function], function=function, parameters=_parameter_types(function))
    sweep = Sweep(experiment, blocks=[{"cases": cases}, *blocks], place="test", **settings)
    device_kind = "cpu" if device == "cpu" else "gpu"
    return Round(
        plan.plan_job(sweep, {"id": device, "kind": device_kind}, 2), number, seed, command=[*COMMAND, device_kind]
    )


def outcomes_by_fault(measured_round: Round) -> dict[str, tuple[str, str]]:
    """Return status and reason from the first row for each fault."""
    rows = [row for row in measured_round.rows if row["sample"] == 0]
    return {re.findall('"how":"([^"]*)"', row["params"])[0]: (row["status"], row["reason"]) for row in rows}


@pytest.fixture(scope="module", autouse=True)
def _find_tests() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield


@pytest.fixture(scope="module")
def printed_lines() -> list[str]:
    """Return the list that collects what `measured_round` prints."""
    return []


@pytest.fixture(scope="module")
def measured_round(printed_lines: list[str]) -> Round:
    """Run a round with every fault except hanging, plus a point that the plan leaves out."""
    hows = [how for how in get_args(broken_worker.How) if how != "hangs"]
    full_round = make_round(hows, {"rounds": 1, "cases": [{"how": "left out", "index": 0, "backend": "llvm"}]})
    left_out = {point: "plan: no time" for point in full_round.job.points if "left out" in dict(point.params).values()}
    full_round.job = full_round.job.leave_out(left_out)
    full_round.meanwhile = lambda: printed_lines.append("meanwhile")
    with pytest.MonkeyPatch.context() as patch:
        for name in SPOILING:
            patch.setenv(name, "1")
        patch.setattr("builtins.print", lambda text, **_: printed_lines.append(text))
        full_round.run()
    return full_round


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("right", "ok", ""),
        ("prints", "ok", ""),
        ("observes three", "ok", ""),
        ("killed", "failed", "ended by SIGKILL (out of memory?)"),
        ("raises", "failed", "ZeroDivisionError: index out of luck"),
        ("no memory", "oom", ""),
        ("wrong", "wrong", "exceeds the tolerance"),
        ("nan", "wrong", "exceeds the tolerance"),
        ("unsupported", "unsupported", "not on this planet"),
        ("observes no number", "failed", "latency is not a number"),
        ("left out", "skipped", "plan: no time"),
    ],
)
def test_every_outcome_is_a_row_with_its_reason(measured_round: Round, how: str, status: str, words: str) -> None:
    outcome, reason = outcomes_by_fault(measured_round)[how]
    assert outcome == status
    assert words in reason
    assert bool(reason) == (status != "ok")


def test_new_process_starts_after_a_crash_and_for_another_environment(
    measured_round: Round, printed_lines: list[str]
) -> None:
    assert measured_round.workers == 3
    assert printed_lines.count("meanwhile") == 3, "meanwhile runs at each start"
    environment = outcomes_by_fault(measured_round)["reports its environment"][1].split()
    assert "PATH" in environment
    # The worker gets neither the variables of this process that spoil measurements nor the variables of another point.
    assert not {*SPOILING, "CHOSEN_BY_POINT"} & set(environment)
    assert "CHOSEN_BY_POINT" in outcomes_by_fault(measured_round)["reports a changed environment"][1].split()
    assert sorted(map(sorted, measured_round.environments)) == [[], ["CHOSEN_BY_POINT"]]
    (line,) = [line for line in printed_lines if line != "meanwhile"]
    assert line.startswith("broken on cpu, round 1: 14 points in ")
    assert "1 skipped" in line


def test_observed_list_becomes_samples_of_one_metric(measured_round: Round) -> None:
    rows = [row for row in measured_round.rows if "observes three" in row["params"]]
    assert [(row["metric"], row["sample"], row["value"], row["unit"]) for row in rows] == [
        *(("latency", i, value, "s") for i, value in enumerate((1.0, 2.0, 4.0))),
        ("failed_share", 0, 0.0, "1"),
    ]
    assert measured_round.timed_s >= 0.05, "observing counts as measuring if nothing is timed"


def saved_samples(measured_round: Round, folder: Path) -> pd.DataFrame:
    """Write the round's samples to a file and read them back."""
    path = folder / f"{measured_round.job.name}.1.parquet"
    write_samples(path, rounds.samples_table(measured_round, "node", "run"), {})
    return read_samples(path)[0]


def test_row_refused_by_the_schema_fails_only_its_point(measured_round: Round, tmp_path: Path) -> None:
    table = saved_samples(measured_round, tmp_path)
    refused = table[table["params"].str.contains("share of two")]
    assert refused["status"].tolist() == ["failed"]
    assert "2.0 is more than the whole, for a share" in refused["reason"].iloc[0]
    assert set(table["status"]) == {"ok", "failed", "oom", "wrong", "unsupported", "skipped"}
    assert len(table["params"].unique()) == len(get_args(broken_worker.How))


def test_each_workload_and_its_energy_have_rows_with_their_own_counts(tmp_path: Path) -> None:
    part = {
        "status": "ok", "series": [{"metric": "time", "unit": "s", "values": [0.5, 0.6]}], "calls": 4, "flop": 8.0,
        "readings": [vars(Reading(at)) for at in (1.0, 2.0)], "stop_reason": "samples", "bytes": 16.0,
        "warmup_s": 0.1, "timed_s": 4.4, "energy": {"metric": "energy", "unit": "J", "value": 50.0},
    }  # fmt: skip
    refused = {"status": "unsupported", "reason": "cannot be captured", "metric": "graph_time"}
    answer: dict[str, Any] = {
        "status": "ok", "parts": [part, refused], "observed": {}, "error": 0.1, "tolerance": 0.2, "flop": 99.0,
        "bytes": 98.0,
    }  # fmt: skip
    measured = make_round(["right"])
    measured._add_rows(measured.job.points[0], answer)
    first, second, energy, graph = saved_samples(measured, tmp_path).to_dict("records")
    assert (first["value"], second["value"], second["elapsed_s"]) == (0.5, 0.6, 2.0)
    assert [first[name] for name in ("flop", "bytes", "error", "stop_reason")] == [8.0, 16.0, 0.1, "samples"]
    assert [energy[name] for name in ("metric", "value", "unit", "calls", "flop")] == ["energy", 50.0, "J", 4, 8.0]
    assert {name: graph[name] for name in refused} == refused
    assert (measured.warmup_s, measured.timed_s) == (0.1, 4.4)


DEVICE_ERRORS = [
    "CUDA error: an illegal memory access was encountered",
    "cudaErrorLaunchFailure: unspecified launch failure",
    "HIP error: invalid device function",
    "Native API failed: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
    "Validation Error: Parent device is lost",
    "!cannot be captured in a graph: CUDA error: unspecified",
]


# After any error on a GPU, a check tests that the GPU still computes.
@pytest.mark.parametrize(
    ("device", "hows"),
    [("cpu", DEVICE_ERRORS), ("cuda:0", ["words of nobody", "!no reason", "!capture alone"])],
)
def test_device_error_does_not_affect_later_points(device: str, hows: list[str]) -> None:
    measured = make_round([*hows, *["right"] * 3], function=broken_worker.spoil_process, device=device)
    measured.run()
    assert len(measured.outcomes) == len(hows) + 3
    outcomes = outcomes_by_fault(measured)
    assert outcomes.pop("right") == ("ok", "")
    for how, (status, reason) in outcomes.items():
        words = "cannot be captured" if how == "!capture alone" else how if how[0] == "!" else f"RuntimeError: {how}"
        assert (status, reason[: len(words)]) == ("unsupported" if how[0] == "!" else "failed", words)
    assert len(hows) <= measured.workers <= len(hows) + 1, "each error ends its process"


def profiled_round(*hows: str, **changes: Any) -> Round:
    """Run a round with profiles on a GPU stand-in."""
    profiled_run = make_round(list(hows), function=broken_worker.profile_point, device="cuda:0", **changes)
    profiled_run.run()
    return profiled_run


def test_profiles_follow_in_a_second_pass_and_join_their_points_rows(tmp_path: Path) -> None:
    hows = ["right"] * 4 + ["raises", "no number", "killed"]
    measured = profiled_round(*hows)
    points = measured.rows_by_point()
    assert len(points) == len(hows)
    for rows in points:
        (how,) = outcomes_by_fault(SimpleNamespace(rows=rows[:1]))
        row_by_metric = {row["metric"]: row for row in rows}
        assert {"built_before", "cupti_share"} < set(row_by_metric)
        assert row_by_metric["time"]["status"] == "ok", "a profile that fails costs no timed row"
        built, cupti = row_by_metric["built_before"], row_by_metric["cupti_share"]
        if how in ("right", "no number"):
            assert cupti["value"] == 1.0, "the process was started with TEARDOWN_CUPTI=1"
        words = {
            "raises": "ZeroDivisionError",
            "no number": "does not contain this metric",
            "killed": "ended by SIGKILL",
        }
        if how in words:
            assert (built["status"], words[how] in built["reason"], "value" in built) == ("failed", True, False)
    assert measured.environments == [{"TEARDOWN_CUPTI": "1"}]
    table = saved_samples(measured, tmp_path)
    assert set(table.loc[table["metric"] == "cupti_share", "status"]) == {"ok", "failed"}


def test_all_points_are_timed_before_the_first_profile() -> None:
    built = [row["value"] for row in profiled_round(*["right"] * 5).rows if row["metric"] == "built_before"]
    assert sorted(built) == [5, 6, 7, 8, 9]


def test_profiles_past_the_round_budget_are_skipped_rows() -> None:
    measured = profiled_round("slow to build", round_s=0.4)
    row_by_metric = {row["metric"]: (row["status"], row["reason"]) for row in measured.rows}
    assert row_by_metric["time"] == ("ok", "")
    assert (
        row_by_metric["built_before"]
        == row_by_metric["cupti_share"]
        == ("skipped", "budget: this round's 0.4 s are used up")
    )


def scripted_worker(*lines: str) -> list[str]:
    """Return a worker command that reports ready and then runs `lines`."""
    return [sys.executable, "-c", "\n".join(["import time", "input()", "print('{}', flush=True)", "input()", *lines])]


@pytest.mark.parametrize("output", ["{'status': nothing", "null", "[1]"])
def test_invalid_answer_fails_only_its_point_and_process(output: str) -> None:
    measured = make_round(["right"] * 3)
    measured.command = scripted_worker(f"print({output!r})")
    measured.run()
    assert [(row["status"], "not a JSON object" in row["reason"]) for row in measured.rows] == [("failed", True)] * 3
    assert measured.workers == 3


def test_answer_without_required_keys_fails_its_point() -> None:
    measured = make_round(["right"])
    measured.command = scripted_worker("""print('{"status": "ok", "parts": []}')""")
    measured.run()
    assert [(row["status"], "KeyError" in row["reason"]) for row in measured.rows] == [("failed", True)]


@pytest.mark.parametrize(
    "profile", ['{"profiled": []}', '{"profiled": 5, "profiled_s": 1}', '{"profiled_s": 1, "profiled": [1]}']
)
def test_malformed_profile_keeps_the_timed_rows(monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    answer = worker_processes.Worker.measure

    def measure(self: worker_processes.Worker, order: dict[str, Any], limit_s: float) -> dict[str, Any]:
        return dict(json.loads(profile)) if "profile" in order else answer(self, order, limit_s)

    monkeypatch.setattr(worker_processes.Worker, "measure", measure)
    row_by_metric = {row["metric"]: (row["status"], row["reason"]) for row in profiled_round("right").rows}
    assert row_by_metric["time"] == ("ok", "")
    assert {status for status, _ in (row_by_metric["built_before"], row_by_metric["cupti_share"])} == {"failed"}


def test_hanging_point_times_out() -> None:
    measured = make_round(["right"], hang_s={"cpu": 0.2})
    measured.command = scripted_worker("time.sleep(60)")
    measured.run()
    assert measured.rows[0]["status"] == "timeout"


def test_start_time_is_known_only_for_processes_that_get_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    ready_calls: list[object] = []
    loaded: list[object] = []
    monkeypatch.setattr(worker_processes.subprocess, "run", lambda words, **_: loaded.append(words))
    ready = [sys.executable, "-c", "input(); print('{\"ready\": true}', flush=True); input()"]
    begun = time.perf_counter()
    started = worker_processes.measure_start_s("cpu", command=ready, then=ready_calls.append)
    assert 0.005 < (started or 0.0) < time.perf_counter() - begun
    for command in (scripted_worker("time.sleep(60)"), [sys.executable, "-c", "raise SystemExit(3)"]):
        assert worker_processes.measure_start_s("cpu", command=command, then=ready_calls.append) is None
    assert len(ready_calls) == len(loaded) - 2 == 1, "then runs only for a ready process"


def test_summary_counts_one_point_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    for hows, words in ((["right"], ": 1 point in "), (["right"] * 2, ": 2 points in ")):
        make_round(hows).run()
        assert words in capsys.readouterr().err


def test_points_past_the_round_budget_are_skipped_with_the_reason() -> None:
    measured = make_round(["right"] * 4, round_s=1e-9)
    measured.run()
    assert {(row["status"], row["reason"][:7]) for row in measured.rows} == {("skipped", "budget:")}


@pytest.mark.parametrize(("number", "expected"), [(1, {"right", "raises"}), (2, {"right"})])
def test_block_for_the_first_rounds_is_absent_from_later_ones(number: int, expected: set[str]) -> None:
    first = {"rounds": 1, "cases": [{"how": "raises", "index": 0, "backend": "llvm"}]}
    measured = make_round(["right"], first, number=number, round_s=1e-9)
    measured.run()
    assert set(outcomes_by_fault(measured)) == expected


def test_order_is_shuffled_with_a_seed_per_round() -> None:
    def order(seed: int) -> list[str]:
        """Return the order of the points in a round that has too little time to start a process."""
        measured = make_round(["right"] * 12, seed=seed, round_s=1e-9)
        measured.run()
        return [row["params"] for row in measured.rows]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
    seeds = {rounds.round_seed(0, name, device, n) for name in "ab" for device in ("cpu", "cuda:0") for n in (1, 2)}
    assert len(seeds) == 8
    assert rounds.round_seed(0, "a", "cpu", 1) == rounds.round_seed(0, "a", "cpu", 1)


def test_clock_set_back_during_a_round_keeps_durations_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back = [timedelta()]
    measure = Round.run
    clock = SimpleNamespace(now=lambda zone: datetime.now(zone) - back[0], strptime=datetime.strptime)
    monkeypatch.setattr(contract.node, "datetime", clock)
    monkeypatch.setattr(Round, "run", lambda self: measure(self) or back.insert(0, timedelta(hours=1)))
    preset, out = tmp_path / "mine.yaml", tmp_path / "clock.parquet"
    preset.write_text(
        "{rounds: 1, target: 0.5, point_s: 0.05, round_s: 60, max_samples: 6, experiments: {clock: {sweep: ["
        "{grid: {backend: [llvm], threads: [1], chain: [1000000]}}]}}}"
    )
    assert main(["run", "clock", "--preset", str(preset), "--out", str(out)]) == 0
    samples, about = read_samples(out)
    began, ended = (datetime.strptime(about[name], "%Y-%m-%dT%H:%M:%SZ") for name in ("started_utc", "ended_utc"))
    assert abs((ended - began).total_seconds() - about["wall_s"]) <= 2
    assert samples["value"].gt(0).all() and samples["elapsed_s"].le(about["wall_s"]).all()


def test_planned_run_imports_no_library_before_the_worker_starts(tmp_path: Path) -> None:
    plan_file, out = tmp_path / "plan.json", str(tmp_path / "gemm.cuda-0.1.parquet")
    job = replace(make_round(["right"]).job, experiment="gemm", device="cuda:0", kind="gpu")
    write_json(plan_file, Plan((job,), 1).as_json)
    words = ["run", "gemm", "--device", "cuda:0", "--plan", str(plan_file), "--out", out]
    program = f"""
import sys
from experiments import worker_processes
def start(*_):
    heavy = {{"torch", "pandas", "pandera", "pyarrow", "numpy", "experiments.suite", "llvmlite"}}
    print(sorted(heavy & set(sys.modules)))
    sys.exit(7)
worker_processes.Worker.start = start
from experiments.cli import main
main({words!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (7, "[]"), done.stderr


def test_temporary_files_of_a_stopped_process_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = "import tempfile, time; tempfile.mkstemp(); print('{\"ready\": true}', flush=True); time.sleep(99)"
    worker = worker_processes.Worker([sys.executable, "-c", script], None, {}, lambda: None)
    assert worker.start({}) == {"ready": True}
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name[:3] for path in folder.iterdir()) == ["loc", "tmp"]
    worker.stop()
    assert list(tmp_path.iterdir()) == []


def test_only_scratch_folders_of_killed_parents_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, in_use = worker_processes.Scratch(), worker_processes.Scratch()
    assert left._lock is not None
    os.close(left._lock)  # the system closes files when a process ends
    worker_processes.Scratch()
    assert not left.path.exists()
    assert in_use.path.exists()
