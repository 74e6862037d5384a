"""Preflight finds faults that would spoil a run, and ends in time. The workers measure only stand-ins or the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.files import read_yaml, write_json
from experiments import preflight
from experiments.cli import main
from experiments.devices.cpu import CpuDevice
from experiments.jobs import Job, Plan, Point
from experiments.preflight import Preflight, profiler_check, rate_ranges
from experiments.preflight.point_kinds import Kind, breadth_first, job_kinds
from experiments.preflight.profiler_check import ProfilerTimes
from experiments.registry import get_experiment
from experiments.worker_processes import Workers
from tests.experiments import broken_worker

ROOT = Path(__file__).parents[2]
BROKEN = [sys.executable, "-u", broken_worker.__file__]
PLAYED = [sys.executable, "-u", "-m", "tests.experiments.played_worker"]
H100 = "NVIDIA H100 80GB HBM3"
RULES = rate_ranges.read_rules()


def job(experiment: str, *cases: dict[str, Any], device: str = "cuda:0", hang_s: float = 60.0) -> Job:
    points = tuple(Point.from_params(experiment, {**case, "threads": 0}, predicted_s=0.1) for case in cases)
    return Job(experiment, device, "cpu" if device == "cpu" else "gpu", 0.1, 60, 10, points, hang_s=hang_s)


def product(dtype: str = "bfloat16", size: int = 4096) -> dict[str, Any]:
    return {"m": size, "n": size, "k": size, "dtype": dtype, "backend": "torch"}


def kind(experiment: str, case: dict[str, Any]) -> Kind:
    return job_kinds(job(experiment, case), RULES)[0]


def part(value: float, metric: str = "time", unit: str = "s", flags: str = "", **work: float | None) -> dict[str, Any]:
    series = [{"metric": metric, "unit": unit, "values": [value] * 3}]
    return {"status": "ok", "series": series, "flop": None, "bytes": None, "readings": [{"flags": flags}], **work}


def verdict_row(point_kind: Kind, *parts: dict[str, Any], gpu: str = H100, **answer: Any) -> str:
    complete_answer = {"status": "ok", "reason": "ok", "parts": list(parts), "observed": {}, **answer}
    return preflight.judge(point_kind, complete_answer, rate_ranges.rated_peaks(gpu), 0.5).row(40)


def test_rate_is_compared_with_the_rated_peak() -> None:
    flop = 2.0 * 4096**3
    for rate, expected in ((612e12, "ok "), (60e12, "SLOW "), (5e15, "FAST ")):
        line = verdict_row(kind("gemm", product()), part(flop / rate, flop=flop))
        assert line.startswith(expected), line
        assert "expected 346 to 1.14e+03 TFLOP/s" in line or "expected 346 TFLOP/s to 1.14 PFLOP/s" in line
    unknown = verdict_row(kind("gemm", product()), part(1.0, flop=flop), gpu="NVIDIA GeForce RTX 4090 Laptop GPU")
    assert unknown.startswith("ok ")
    assert "expected" not in unknown
    # A T4 has no rated bfloat16 peak, so no rate is expected.
    assert "expected" not in verdict_row(kind("gemm", product()), part(1.0, flop=flop), gpu="Tesla T4")


def test_short_product_is_judged_by_its_graph_time() -> None:
    flop = 2.0 * 1000**3
    launched, alone = part(9e-6, flop=flop), part(4.5e-6, "graph_time", flop=flop)
    line = verdict_row(kind("gemm", product(size=1000)), launched, alone)
    assert "444 TFLOP/s" in line, line
    assert line.startswith("ok ")


def test_latency_above_its_range_is_slow() -> None:
    copy = {"direction": "host_to_device", "size": 4, "host_memory": "pinned", "backend": "torch"}
    assert verdict_row(kind("transfer", copy), part(6e-6, bytes=4.0)).startswith("ok ")
    assert verdict_row(kind("transfer", copy), part(3e-4, bytes=4.0)).startswith("SLOW ")


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("failed", "RuntimeError: CUDA error: an illegal memory access", "LOOK "),
        ("wrong", "relative error 0.5 exceeds the tolerance 0.1", "LOOK "),
        ("oom", "out of memory", "LOOK "),
        ("timeout", "no answer within 25 s", "LOOK "),
        ("unsupported", "polars is not installed: pip install polars", "LOOK "),
        ("unsupported", "mps does not compute with float64", "unsupported "),
        ("skipped", "memory: needs 90 GiB, 80 GiB are free", "left out "),
    ],
)
def test_fixable_outcome_needs_a_look(status: str, reason: str, expected: str) -> None:
    line = preflight.judge(kind("gemm", product()), {"status": status, "reason": reason}, None, 0.5).row(10)
    assert line.startswith(expected)
    assert reason in line


def test_throttling_by_power_limit_is_usual_and_by_heat_is_not() -> None:
    flop = 2.0 * 4096**3
    for flag, usual in (("throttled: power limit", True), ("throttled: heat", False)):
        assert ("usual" in verdict_row(kind("gemm", product()), part(flop / 6e14, flags=flag, flop=flop))) == usual


def test_metric_without_a_value_needs_a_look() -> None:
    lack = {"metric": "kernel_time", "unit": "s", "status": "failed", "reason": "no kernels"}
    line = verdict_row(kind("gemm", product("float64")), part(1.0), profiled=[lack])
    assert line.startswith("LOOK ")
    assert "kernel_time: no kernels" in line


def test_missing_metric_needs_a_look_unless_the_point_is_slow() -> None:
    flop = 2.0 * 4096**3
    lack = {"metric": "kernel_time", "unit": "s", "status": "failed", "reason": "no kernels"}
    for rate, expected in ((612e12, "LOOK "), (60e12, "SLOW ")):
        line = verdict_row(kind("gemm", product()), part(flop / rate, flop=flop), profiled=[lack])
        assert line.startswith(expected), line


def test_points_share_a_kind_if_their_words_and_rules_match() -> None:
    gemm = job("gemm", product(size=8192), product(size=4096), product(size=1000), product("float32"))
    copies = job("transfer", *({"direction": "host_to_device", "size": size, "host_memory": "pinned",
                                "backend": "torch"} for size in (4, 1 << 20, 1 << 28)))  # fmt: skip
    titles = [point_kind.title for point_kind in breadth_first([gemm, copies], RULES)]
    assert titles == [
        "gemm torch bfloat16 k=8192 m=8192 n=8192",
        "transfer torch host_to_device pinned size=4",
        "gemm torch bfloat16 k=1000 m=1000 n=1000",
        "transfer torch host_to_device pinned size=268435456",
        "gemm torch float32 k=4096 m=4096 n=4096",
    ]
    left_out = replace(gemm, points=tuple(replace(point, left_out="lacks: a GPU") for point in gemm.points))
    assert job_kinds(left_out, RULES) == []


def test_kinds_with_a_rule_come_before_kinds_without() -> None:
    gemm = job("gemm", product(size=64), product("float16", 64), product("float64", 4096))
    serving = job("broken", *({"how": how, "index": 0, "backend": "llvm"} for how in ("right", "wrong")))
    order = [point_kind.rule is not None for point_kind in breadth_first([gemm, serving], RULES)]
    assert order == [False, False, True, False, False]
    assert breadth_first([], RULES) == []


def test_every_rule_names_parameters_of_its_experiment() -> None:
    for rule in RULES:
        names = {*rule.where, *rule.least, *rule.most}
        assert names <= get_experiment(rule.experiment).parameters.keys(), rule
        low, high = rule.range or rule.share
        assert 0 < low < high
        assert rule.of in ("flops", "memory", "link", "seconds")


def test_peaks_match_the_reference_data() -> None:
    names = {
        "h100-sxm": H100, "h100-pcie": "NVIDIA H100 PCIe", "h100-nvl": "NVIDIA H100 NVL", "h200": "NVIDIA H200",
        "a100-sxm-40gb": "NVIDIA A100-SXM4-40GB", "a100-sxm-80gb": "NVIDIA A100-SXM4-80GB", "l4": "NVIDIA L4",
        "a100-pcie-40gb": "NVIDIA A100-PCIE-40GB", "a100-pcie-80gb": "NVIDIA A100 80GB PCIe", "l40s": "NVIDIA L40S",
        "mi300x": "AMD Instinct MI300X", "rtx-4090": "NVIDIA GeForce RTX 4090", "b200": "NVIDIA B200",
        "rtx-5090": "NVIDIA GeForce RTX 5090", "rtx-4060-ti-8gb": "NVIDIA GeForce RTX 4060 Ti",
    }  # fmt: skip
    reference = {
        entry["id"]: entry["value"] for entry in read_yaml(ROOT / "data/reference/gpus.yaml") if entry["value"]
    }
    compared = 0
    for ours, name in names.items():
        peaks = rate_ranges.rated_peaks(name)
        assert peaks, name
        for id_, value in ((f"{ours}.bf16_flops", peaks.flops.get("bfloat16")),
                           (f"{ours}.fp32_flops", peaks.flops.get("float32")),
                           (f"{ours}.memory_bytes_per_s", peaks.memory)):  # fmt: skip
            if id_ in reference and value:
                assert value == pytest.approx(reference[id_], rel=0.02), id_
                compared += 1
    assert compared > 25


def test_every_gpu_has_peaks_with_a_source_and_equal_names_differ_by_memory() -> None:
    for gpu in read_yaml(rate_ranges.FILE)["gpus"]:
        for name in gpu["names"]:
            peaks = rate_ranges.rated_peaks(name, gpu.get("memory", 0) * 1e9)
            assert peaks
            assert peaks.source
            assert peaks.memory == gpu["memory_rate"] * 1e9
    assert rate_ranges.rated_peaks("NVIDIA GeForce RTX 3060", 12.6e9) != rate_ranges.rated_peaks(
        "NVIDIA GeForce RTX 3060", 8.3e9
    )
    assert rate_ranges.rated_peaks(f"{H100} MIG 1g.10gb") is None


def broken_preflight(tmp_path: Path, *hows: str, minutes: float = 10.0, **changes: Any) -> tuple[Preflight, list[str]]:
    cases = ({"how": how, "index": 0, "backend": "llvm"} for how in hows)
    printed: list[str] = []
    plan = Plan((job("broken", *cases, device="cpu", hang_s=5.0),), 1)
    return Preflight(plan, {}, minutes, tmp_path / "log", say=printed.append, command=BROKEN, **changes), printed


@pytest.fixture(autouse=True)
def _find_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_failing_or_hanging_points_do_not_affect_others(tmp_path: Path) -> None:
    checks, printed = broken_preflight(tmp_path, "killed", "raises", "hangs", "unsupported", "right")
    assert not checks.run()
    verdicts = {line.what.split()[2]: line.verdict for line in checks.lines}
    assert verdicts == dict.fromkeys(("killed", "raises", "hangs"), "look") | {
        "unsupported": "unsupported",
        "right": "ok",
    }
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()
    assert printed[-1].startswith("5 kinds of points tried, 0 left out; 3 to look at")


@pytest.mark.parametrize("answer", ["{}", '{"status": "ok", "parts": 3}', '{"ready": true}', "[]", "what?"])
def test_unreadable_answer_fails_only_its_point(answer: str, tmp_path: Path) -> None:
    checks, printed = broken_preflight(tmp_path, "right", "wrong")
    checks.command = [sys.executable, "-u", "-c", f"import sys\nfor line in sys.stdin: print({answer!r})"]
    assert not checks.run()
    assert [line.verdict for line in checks.lines] == ["look", "look"]
    assert printed[-1].startswith("2 kinds of points tried")


def test_unreadable_profile_needs_a_look(tmp_path: Path) -> None:
    (checks, _), point = broken_preflight(tmp_path, "right"), kind("gemm", product())
    for profiled in ([3], [{"metric": "kernel_time"}], [{"metric": "kernel_time", "value": "?", "unit": "s"}], 3):
        checks._send_order = lambda *_, profiled=profiled: ({"status": "ok", "profiled": profiled}, 0.1)  # type: ignore[method-assign]
        line = checks._profile_kind(point, Workers(BROKEN, tmp_path / "log", lambda: None))
        assert (line.verdict, line.seen[:30]) == ("look", "no answer that could be read (")


def test_partial_run_counts_the_kinds_left_out(tmp_path: Path) -> None:
    checks, printed = broken_preflight(tmp_path, "right")
    checks._conclude(1, [kind("gemm", product())])
    assert printed[-1] == "1 kind of points tried, 1 left out; nothing to look at"


def test_preflight_ends_in_time_and_lists_the_kinds_left_out(tmp_path: Path) -> None:
    checks, printed = broken_preflight(tmp_path, "hangs", "right", minutes=0.05)
    begun = time.monotonic()
    # A run that tries no point fails.
    assert not checks.run()
    assert time.monotonic() - begun < 60
    assert printed[-2] == "left out because the 0.05 minutes were over: broken on cpu 2"
    assert printed[-1] == "0 kinds of points tried, 2 left out; increase --minutes"
    assert checks.lines[0].verdict == "left out"


def test_device_error_starts_a_fresh_process(tmp_path: Path) -> None:
    copy = {"direction": "host_to_device", "size": 4, "host_memory": "pinned", "backend": "torch"}
    jobs = (
        job("gemm", product("float32", 48)),
        job("transfer", copy, hang_s=8.0),
        job("training", {"model": "mlp", "batch": 4, "dtype": "float32", "backend": "torch"}),
    )
    printed: list[str] = []
    command = [*PLAYED, "--device-error", "gemm", "--hangs", "transfer"]
    checks = Preflight(
        Plan(jobs, 1), {"cuda:0": (H100, None)}, 10, tmp_path / "log", say=printed.append, command=command
    )
    assert not checks.run()
    verdicts = [line.verdict for line in checks.lines]
    # The training point runs on a CPU in place of the GPU, so it may count as slow.
    assert verdicts[:2] == ["look", "look"] and verdicts[2] in ("ok", "slow"), printed
    # Profiles follow all timed points.
    assert checks.lines[3].what.startswith("profile of training") and verdicts[3:] == ["ok"], printed
    assert "CUDA error" in checks.lines[0].seen
    assert H100 in printed[0]


def test_missing_device_is_a_study_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no device 'cuda:7'"):
        main(["preflight", "--device", "cuda:7", "--log", str(tmp_path / "log")])


def test_missing_gpu_needs_a_look_unless_only_the_cpu_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = {"id": "cpu", "kind": "cpu", "name": "a CPU", "memory_bytes": 1e9}
    monkeypatch.setattr(preflight, "_list_devices", lambda: ([cpu], ["CUDA: the driver is too old"]))
    plan = tmp_path / "plan.json"
    write_json(plan, Plan((job("gemm", product()), job("gemm", product(), device="cpu")), 1).as_json)
    for plan_file, device, expected in (
        (
            plan,
            None,
            ["cuda:0: the plan measures it, but this machine does not have it", "no GPU found: CUDA: the driver"],
        ),
        (None, None, ["no GPU found: CUDA: the driver is too old"]),
        (plan, "cpu", []),
    ):
        begun = time.monotonic() - 60
        checks = preflight.make_preflight("tests/workflow/tiny.yaml", plan_file, device, 0.001, tmp_path / "log", begun)
        checks.say = lambda _: None
        assert not checks.run()
        bad = [f"{line.what}: {line.seen}" for line in checks.lines if line.needs_a_look]
        assert len(bad) == len(expected)
        assert all(text.startswith(words) for text, words in zip(bad, expected, strict=True)), bad


def test_interrupt_message_says_to_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: Preflight) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Preflight, "run", interrupt)
    monkeypatch.setattr(preflight, "make_preflight", lambda *_: Preflight(Plan((), 1), {}, 1, tmp_path / "log"))
    assert main(["preflight"]) == 130
    assert capsys.readouterr().err == "interrupted: the lines above are valid; run the same command to start again\n"


def test_preflight_needs_neither_pandas_nor_snakemake(tmp_path: Path) -> None:
    sweep = "sweep: [{cases: [{m: 8, n: 8, k: 8}], grid: {dtype: [float32], backend: [torch], threads: [1]}}]"
    limits = "rounds: 1\ntarget: 0.1\npoint_s: 1\nround_s: 9\nmax_samples: 9\n"
    (tmp_path / "mine.yaml").write_text(f"{limits}experiments:\n  gemm:\n    {sweep}\n")
    program = f"""
import sys
sys.modules |= dict.fromkeys(("pandas", "pandera", "snakemake", "scipy", "sklearn", "matplotlib"))
from pathlib import Path
from experiments import preflight
preflight._list_devices = lambda: ([{{"id": "cpu", "kind": "cpu", "name": "a CPU"}}], [])
print(len(preflight.make_preflight({str(tmp_path / "mine.yaml")!r}, None, "cpu", 1.0, Path("log"), 0.0).plan.jobs))
"""
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout == "1\n"


STEADY = {"before_s": [1.0, 1.1, 1.0], "after_s": [1.05] * 5, "records": [480] * 5}


@pytest.mark.parametrize(
    ("changed", "in_order", "words"),
    [
        ({}, True, "480 records a session, all sessions complete"),
        ({"after_s": [1.3] * 5}, False, "18% slower"),
        ({"after_s": [0.9] * 4 + [9.0]}, True, "all sessions complete"),
        ({"records": [480, 479, 478, 480, 480]}, False, "2 of 5 sessions lost some"),
        ({"records": [480, 476, 476, 476, 476]}, False, "4 of 5 sessions lost some"),
        ({"records": [479] * 5}, False, "5 of 5 sessions lost some"),
        ({"records": [0] * 5}, False, "no session recorded a kernel"),
    ],
)
def test_profiler_that_slows_or_loses_kernels_is_reported(changed: dict[str, Any], in_order: bool, words: str) -> None:
    times = ProfilerTimes(**{**STEADY, **changed})
    assert times.in_order == in_order
    assert words in times.summary


def test_profiler_check_counts_whole_steps_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SESSIONS", 2), ("TIMED_S", 0.01), ("PAUSE_S", 0.0), ("REPEATS", 1)):
        monkeypatch.setattr(profiler_check, name, value)
    times = profiler_check.time_profiler(CpuDevice())
    assert times.lost_sessions == 0
    assert times.records[0] > 20 * profiler_check.STEPS
    assert min(*times.before_s, *times.after_s) > 0


def fake_check(output: str, code: int = 0) -> list[str]:
    """Return a profiler check command that ignores its arguments and prints `output`, then an error."""
    script = f"import sys; print({output!r}); print('error: trouble', file=sys.stderr); exit({code})"
    return [sys.executable, "-c", script]


def test_profiler_check_sets_teardown_cupti_on_cuda_only() -> None:
    command = [sys.executable, "-c", "import os, json; print(json.dumps({'before_s': [1], 'after_s': [1],"
            "'records': [4 if 'TEARDOWN_CUPTI' in os.environ else 0]}))"]  # fmt: skip
    for device, records in (("cuda:0", [4]), ("xpu:0", [0])):
        times, _ = profiler_check.check_profiler(device, 60, command)
        assert times and times.records == records


@pytest.mark.parametrize("command", [fake_check("no answer"), fake_check('{"before_s": []}'), fake_check("", 1)])
def test_profiler_check_without_an_answer_reports_the_error(command: Sequence[str]) -> None:
    times, words = profiler_check.check_profiler("mps", 60, command)
    assert times is None
    assert words == "not checked: trouble"


def test_device_without_a_profiler_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"import sys; sys.exit({profiler_check.UNSUPPORTED + 'torch has no profiler for mps'!r})"
    checks = Preflight(Plan((), 1), {"mps": ("Apple M9", None)}, 5, Path(os.devnull), ["mps"], say=lambda _: None,
                       profiling=[sys.executable, "-c", script])  # fmt: skip
    assert checks.run()
    assert [(line.verdict, line.seen) for line in checks.lines] == [("unsupported", "torch has no profiler for mps")]


def test_profiler_check_without_time_is_left_out() -> None:
    checks = Preflight(Plan((), 1), {"cuda:0": (H100, None)}, 0.3, Path(os.devnull), ["cuda:0"], say=lambda _: None)
    assert checks.run()
    assert [line.verdict for line in checks.lines] == ["left out"]


def test_hanging_profiler_check_is_stopped() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    times, words = profiler_check.check_profiler("cpu", 0.5, command)
    assert times is None
    assert "no answer" in words
