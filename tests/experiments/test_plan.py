"""A plan predicts a run's duration and drops the least valuable points to fit a budget."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import write_json
from contract.node import GPU_CACHE_BYTES
from experiments import hardware, plan
from experiments.cli import main
from experiments.devices.cuda import CudaDevice
from experiments.jobs import COMPILE_S, HANG_FACTOR, JOB_S, MEMORY_SHARE, Job, Plan, Point, read_plan
from experiments.plan import fit_budget, full_plan
from experiments.suite import boosting
from experiments.sweep import PRESETS, find_sweep, read_preset
from tests.experiments.torch_standin import Torch, install

CPU = {"id": "cpu", "kind": "cpu", "name": "a CPU"}
H200 = {"id": "cuda:0", "kind": "gpu", "name": "NVIDIA H200", "multiprocessors": 132}


def block(value: int, *sizes: int, **more: Any) -> dict[str, Any]:
    cases = [{"m": n, "n": n, "k": n, "dtype": "float32", "backend": "torch", "threads": 1} for n in sizes]
    return {"value": value, "cases": cases, **more}


def preset(*blocks: dict[str, Any], rounds: int = 5, point_s: float = 10.0) -> dict[str, Any]:
    limits = {"target": 0.05, "point_s": point_s, "round_s": 10_000.0, "max_samples": 60}
    return {"rounds": rounds, **limits, "experiments": {"gemm": {"sweep": list(blocks)}}}


def make_plan(*blocks: dict[str, Any], **more: Any) -> Plan:
    return full_plan(preset(*blocks, **more), "test", [CPU], cores=2)


def kept_sizes(trimmed: Plan) -> list[int]:
    (job,) = trimmed.jobs
    return sorted(dict(point.params)["m"] for point in job.points if not point.left_out)


def test_more_points_rounds_and_seconds_take_longer() -> None:
    base_s = make_plan(block(1, 64)).seconds
    assert make_plan(block(1, 64, 65)).seconds > base_s
    assert make_plan(block(1, 64), rounds=6).seconds > base_s
    assert make_plan(block(1, 64), point_s=11).seconds > base_s
    assert make_plan(block(1, 64), block(1, 65, rounds=1)).seconds < make_plan(block(1, 64, 65)).seconds
    assert make_plan(block(1, 64, point_s=1.0)).seconds == pytest.approx(make_plan(block(1, 64), point_s=1.0).seconds)


THREE = [block(1, 64), block(2, 65), block(3, 66)]


@pytest.mark.parametrize(
    ("blocks", "seconds", "expected", "rounds"),
    [
        # A plan that fits stays as it is. Otherwise, details (points of value 3) are dropped first, then rounds, then
        # additions (points of value 2).
        (THREE, make_plan(*THREE).seconds, [64, 65, 66], 5),
        (THREE, make_plan(*THREE[:2]).seconds, [64, 65], 5),
        (THREE, make_plan(*THREE[:2]).seconds * 0.7, [64, 65], 3),
        (THREE, make_plan(block(1, 64), rounds=3).seconds, [64], 3),
        # Details are dropped before additions. Among points of equal value, the longest point is dropped first.
        (
            [block(1, 64), block(2, 65, point_s=20), block(2, 67), block(3, 66)],
            make_plan(block(1, 64), block(2, 67), rounds=3).seconds,
            [64, 67],
            3,
        ),
        # A dropped point is restored if dropping a longer one later makes room for it.
        (
            [block(1, 64), block(2, 65, point_s=50), block(3, 66)],
            make_plan(block(1, 64), block(3, 66), rounds=3).seconds,
            [64, 66],
            3,
        ),
    ],
)
def test_lowest_value_is_dropped_first(blocks: list[Any], seconds: float, expected: list[int], rounds: int) -> None:
    trimmed = fit_budget(make_plan(*blocks), seconds / 60)
    assert (kept_sizes(trimmed), trimmed.rounds) == (expected, rounds)


def test_budget_below_the_essential_points_is_refused_with_their_duration() -> None:
    full = make_plan(block(1, 64, 65), block(3, 66))
    with pytest.raises(
        StudyError, match=r"0.5 min is too small: the points that comparisons require take about \S+ min in 3 rounds"
    ) as raised:
        fit_budget(full, 0.5)
    assert fit_budget(full, float(str(raised.value).split("about ")[1].split()[0])).rounds == 3, (
        "the reported minutes suffice"
    )
    # A preset's own budget always keeps the essential points, even on a slow machine.
    least = fit_budget(full, 0.5, at_least_essential=True)
    assert (kept_sizes(least), least.rounds) == ([64, 65], 3)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=12), st.floats(0.3, 1.2))
def test_trimmed_plan_fits_and_keeps_essential_points(values: list[int], share: float) -> None:
    full = make_plan(*(block(value, 64 + number) for number, value in enumerate(values)))
    try:
        trimmed = fit_budget(full, share * full.seconds / 60)
    except StudyError:
        essential = make_plan(*(block(1, 64 + n) for n, value in enumerate(values) if value == 1), rounds=3)
        assert essential.seconds > share * full.seconds
        return
    assert trimmed.seconds <= share * full.seconds
    (job,) = trimmed.jobs
    dropped_s = [point.predicted_s for point in job.points if point.left_out]
    if dropped_s and kept_sizes(trimmed):
        assert trimmed.seconds + min(dropped_s) * trimmed.rounds > share * full.seconds
    assert {64 + n for n, value in enumerate(values) if value == 1} <= set(kept_sizes(trimmed))


@pytest.mark.parametrize("minutes", [2.0, 3.0, 5.0, 8.0])
def test_plan_fits_its_minutes_when_rounds_are_cut_short(minutes: float) -> None:
    content = preset(block(1, 64), block(3, *range(65, 95)), rounds=3) | {"round_s": 60.0}
    trimmed = fit_budget(full_plan(content, "test", [CPU], cores=2), minutes)
    assert trimmed.seconds <= 60 * minutes
    assert 64 in kept_sizes(trimmed)


def test_plan_file_keeps_left_out_points_and_reasons(tmp_path: Path) -> None:
    full = make_plan(block(1, 64), block(3, 66))
    trimmed, path = fit_budget(full, full.seconds * 0.7 / 60), tmp_path / "plan.json"
    write_json(path, trimmed.as_json)
    read = read_plan(path)
    assert read.as_json == trimmed.as_json
    assert {dict(point.params)["m"]: point.left_out for point in read.job("gemm", "cpu").points} == {
        64: "", 66: f"plan: left out to fit {trimmed.budget_min:g} min",
    }  # fmt: skip
    with pytest.raises(StudyError, match=r"does not measure gemm on cuda:0\. It measures gemm on cpu"):
        read.job("gemm", "cuda:0")
    write_json(path, {"rounds": 3, "left_out": {}})
    with pytest.raises(StudyError, match="make the plan again"):
        read_plan(path)


def extra_timeout(
    experiment: str, hang_s: dict[str, float], device: dict[str, Any], **params: Any
) -> tuple[float, Job]:
    """Plan a job with a single point; return extra seconds and the job, as read back from JSON.

    The extra seconds are the part of the point's timeout that comes neither from its prediction nor from its budget.
    """
    content = read_preset("full") | {"hang_s": hang_s}
    part = replace(find_sweep(content, experiment, "test"), blocks=[{"cases": [params]}], point_s=30.0)
    job = Job.from_json(json.loads(json.dumps(plan.plan_job(part, {"id": "cpu", "kind": "cpu", **device}, 4).as_json)))
    (point,) = job.points
    return job.limit_s(point) - point.predicted_s - HANG_FACTOR * point.point_s, job


PRODUCT: dict[str, Any] = {"m": 64, "n": 64, "k": 64, "dtype": "float32", "backend": "torch"}
STEP: dict[str, Any] = {"model": "mlp", "batch": 4, "dtype": "float32"}
CARD = {"id": "cuda:0", "kind": "gpu"}


@pytest.mark.parametrize(
    ("hang_s", "device", "params", "seconds"),
    [
        ({}, {}, PRODUCT, 60),
        ({"cpu": 40, "gpu": 25}, {}, PRODUCT, 40),
        ({"cpu": 40, "gpu": 25}, CARD, PRODUCT, 25),
        ({"cpu": 40}, CARD, PRODUCT, 60),
        ({"gpu": 25}, {**CARD, "maker": "NVIDIA"}, STEP | {"backend": "torch"}, 25),
        # Compiling kernels at the first call takes tens of seconds.
        ({"gpu": 25}, {**CARD, "maker": "AMD"}, STEP | {"backend": "torch"}, 25 + COMPILE_S),
        ({"gpu": 25}, CARD, STEP | {"backend": "inductor"}, 25 + COMPILE_S),
        ({}, {}, STEP | {"backend": "inductor"}, 60 + COMPILE_S),
    ],
)
def test_timeout_depends_on_preset_device_kind_and_compilation(
    hang_s: dict[str, float], device: dict[str, Any], params: dict[str, Any], seconds: float
) -> None:
    assert extra_timeout("gemm" if "m" in params else "training", hang_s, device, **params)[0] == pytest.approx(seconds)


def test_lasting_work_times_out_soon_after_its_budget() -> None:
    load = {"load": "products", "extent": 64, "dtype": "float32", "backend": "torch"}
    _, job = extra_timeout("sustained", {"gpu": 25}, CARD, **load)
    (point,) = job.points
    assert point.point_s + 25 <= job.limit_s(point) < 1.1 * point.point_s + 26
    earlier = {key: value for key, value in job.as_json.items() if key not in ("hang_s", "lasting")}
    assert Job.from_json(earlier).hang_s == 60, "plans of earlier versions have none"


def test_job_without_points_is_left_out_of_rounds() -> None:
    full = make_plan(block(1, 64), block(3, 66, rounds=1))
    (first_round_point,) = (point for point in full.jobs[0].points if point.value == 3)
    assert [job.name for job in full.round_jobs(1)] == ["gemm.cpu"]
    assert full.round_jobs(6) == []
    nothing = replace(full, jobs=(full.jobs[0].leave_out(dict.fromkeys(full.jobs[0].points, "no time")),))
    assert nothing.round_jobs(1) == []
    assert nothing.seconds == 0
    first_only = replace(
        full,
        jobs=(full.jobs[0].leave_out({point: "no" for point in full.jobs[0].points if point != first_round_point}),),
    )
    assert (len(first_only.round_jobs(1)), len(first_only.round_jobs(2))) == (1, 0)


def test_point_that_needs_more_gpus_is_left_out_and_starts_no_job() -> None:
    grid = {"interconnect": ["nccl"], "dtype": ["bfloat16"], "backend": ["torch"]}
    sweep = [{"on": "gpu", "cases": [{"model": "gpt-1m", "batch": 4, "ranks": 2}], "grid": grid}]
    content = {**preset(block(1, 64)), "experiments": {"several-devices": {"sweep": sweep}}}
    gpus = [{**H200, "id": f"cuda:{number}", "maker": "NVIDIA"} for number in range(2)]
    alone = full_plan(content, "test", [CPU, gpus[0]], cores=2)
    assert [point.left_out for job in alone.jobs for point in job.points] == [
        "unsupported: 2 devices are needed to train on several, this node has 1"
    ]
    assert (alone.round_jobs(1), alone.seconds) == ([], 0)
    assert len(full_plan(content, "test", [CPU, *gpus], cores=2).round_jobs(1)) == 2


def test_round_starts_with_gpus_and_keeps_the_preset_order() -> None:
    content = preset(block(1, 64))
    peak = {"kernel": ["fma"], "dtype": ["float32"], "backend": ["llvm"], "threads": [1], "loops": [9]}
    content["experiments"] = {"peak": {"sweep": [{"grid": peak}]}, **content["experiments"]}
    full = full_plan(content, "test", [CPU, H200], cores=2)
    assert [job.name for job in full.jobs] == ["gemm.cuda-0", "peak.cpu", "gemm.cpu"]


def test_each_stage_finishes_its_rounds_before_the_next(tmp_path: Path) -> None:
    content = preset(block(1, 64), rounds=2)
    gemm = content["experiments"]["gemm"]
    late = {"stage": 2, "sweep": [{"grid": {"backend": ["llvm"], "threads": [1], "chain": [9]}}]}
    content["experiments"] = {"clock": late, "gemm": gemm}
    full = full_plan(content, "test", [CPU, H200], cores=2)
    assert [(number, job.name) for number, job in full.order] == [
        (1, "gemm.cuda-0"), (1, "gemm.cpu"), (2, "gemm.cuda-0"), (2, "gemm.cpu"), (1, "clock.cpu"), (2, "clock.cpu"),
    ]  # fmt: skip
    write_json(tmp_path / "plan.json", full.as_json)
    assert read_plan(tmp_path / "plan.json").order == full.order
    assert full.seconds == pytest.approx(sum(job.seconds(number) for number, job in full.order) + 6 * JOB_S)


LARGE = {**H200, "l2_bytes": 300}


@pytest.mark.parametrize(
    ("gpu", "own", "largest"),
    [
        (LARGE, 300, 300),
        ({**LARGE, "last_level_cache_bytes": 400}, 400, 400),
        ({**H200, "l2_bytes": 100}, 100, 200),
        (H200, GPU_CACHE_BYTES, GPU_CACHE_BYTES),
    ],
)
def test_cache_multiples_use_each_devices_own_cache(
    gpu: dict[str, Any], own: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "last_level_cache_bytes", lambda: 200)
    case = {"op": "copy", "dtype": "float64", "backend": "torch", "threads": 1}
    content = preset()
    content["experiments"] = {
        "bandwidth": {"sweep": [{"cases": [case], "grid": {"footprint": ["1xLLC", "1xlargestLLC"]}}]}
    }
    full = full_plan(content, "test", [CPU, gpu], cores=2)
    footprints = {job.device: {dict(point.params)["footprint"] for point in job.points} for job in full.jobs}
    assert footprints == {"cuda:0": {own, largest}, "cpu": {200, largest}}


@pytest.mark.parametrize("name", [path.stem for path in PRESETS.glob("*.yaml")])
def test_preset_rounds_have_twice_the_planned_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "usable_cores", lambda: 16)
    monkeypatch.setattr(hardware, "last_level_cache_bytes", lambda: 64 << 20)
    full = full_plan(read_preset(name), name, [CPU, {**H200, **plan.H100}], cores=16)
    assert full.jobs
    # A round skips its last points when its time limit is reached. To avoid this, the limit must be at least twice as
    # long as the planned seconds, without the start.
    short = [job.name for number, job in full.order if job.round_s < 2 * (job.seconds(number) - job.start_s)]
    assert short == []


def test_digest_changes_with_the_points_of_a_round() -> None:
    def digest(*blocks: dict[str, Any], number: int = 1, **more: Any) -> str:
        return make_plan(*blocks, **more).jobs[0].digest(number)

    same = digest(block(1, 64), block(2, 65))
    assert same == digest(block(1, 64), block(2, 65), rounds=9)
    assert same == digest(block(1, 64), block(2, 65, rounds=1))
    assert len({same, digest(block(1, 64)), digest(block(1, 64), block(2, 65), point_s=1.0)}) == 3
    assert digest(block(1, 64), block(2, 65, rounds=1), number=2) == digest(block(1, 64))
    full = make_plan(block(1, 64), block(2, 65))
    slower = replace(full.jobs[0], points=tuple(replace(point, predicted_s=99.0) for point in full.jobs[0].points))
    assert slower.digest(1) == same, "a prediction measures nothing"
    assert full.jobs[0].leave_out({full.jobs[0].points[1]: "no time"}).digest(1) != same


def test_plan_counts_a_process_start_per_environment() -> None:
    (torch,) = block(1, 64)["cases"]
    content = preset({"cases": [torch, {**torch, "backend": "openblas-haswell"}]})
    full = full_plan(content, "test", [CPU], 2, {"cpu": 4.0})
    (job,) = full.jobs
    assert job.seconds(1) == pytest.approx(8.0 + sum(point.predicted_s for point in job.points))


@pytest.mark.parametrize(("name", "cache"), [("quick", 64), ("full", 2), ("full", 1200), ("rented", 512)])
def test_presets_fit_their_own_budgets_on_an_h200(name: str, cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "last_level_cache_bytes", lambda: cache << 20)
    monkeypatch.setattr(hardware, "usable_cores", lambda: 16)
    content = read_preset(name)
    minutes = plan.budget_min(content, [CPU, H200])
    assert minutes is not None
    fitted = fit_budget(full_plan(content, name, [CPU, H200], cores=16, start_s={"cuda:0": 9.0, "cpu": 4.0}), minutes)
    assert fitted.rounds >= min(3, content["rounds"])
    assert fitted.seconds <= minutes * 60
    assert all(not point.left_out for job in fitted.jobs for point in job.points if point.value == 1)


def test_plan_scales_known_call_seconds_by_machine_speed() -> None:
    case: dict[str, Any] = {"phase": "fit", "rows": 10**6, "trees": 100, "backend": "xgboost", "threads": 2}

    def plan_point(core_flops: dict[str, float]) -> Point:
        content = preset(point_s=10.0) | {"experiments": {"boosting": {"sweep": [{"value": 1, "cases": [case]}]}}}
        (job,) = full_plan(content, "test", [CPU], 2, core_flops=core_flops).jobs
        return job.points[0]

    usual, slow = plan_point({}), plan_point({"python": plan.LOOP_FLOPS["python"] / 2})
    assert usual.call_s == boosting.call_s(**case)
    assert slow.call_s == pytest.approx(2 * boosting.call_s(**case))
    assert slow.predicted_s > usual.predicted_s > plan.FEWEST_CALLS * boosting.call_s(**case)


def test_plan_allows_more_time_for_emulated_formats() -> None:
    def seconds(dtype: str, core_flops: dict[str, float], backend: str = "torch") -> float:
        case = {"m": 2048, "n": 2048, "k": 2048, "dtype": dtype, "backend": backend, "threads": 1}
        content = preset({"value": 1, "cases": [case]}, point_s=1.0)
        (job,) = full_plan(content, "test", [CPU], 2, core_flops=core_flops).jobs
        return job.seconds(1)

    assert seconds("float32", {}, "scalar") > seconds("float32", {}) + 1, "a loop is slower than a library"
    emulated = {"bfloat16": 2e9}
    assert seconds("bfloat16", emulated) > seconds("bfloat16", {}) + 1
    assert seconds("float32", emulated) == seconds("float32", {})
    # oneDNN refuses a format that the CPU only emulates, so such a point takes almost no time after the start.
    ready = plan.START_S["cpu"]
    assert seconds("bfloat16", emulated, "onednn") - ready < 0.1 < seconds("bfloat16", {}, "onednn") - ready
    # oneDNN does not refuse float32 on a slow core, so the point takes its full time.
    assert seconds("float32", {"float32": 2e9}, "onednn") - ready > 1


def test_plan_prints_a_gpu_that_is_not_present(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "quick", "--gpu", "NVIDIA H200", "--cores", "16"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^gemm +cuda:0 +\d+ +\d+ +\d+ +\d+\.\d$", output, re.MULTILINE)
    assert plan.budget_min(preset(block(3, 64)), [CPU]) is None, "a preset need not have a budget"


# Free bytes: a T4 in a server, and a desktop's or notebook's card with 8 GB that also drives a screen.
T4 = SimpleNamespace(
    name="Tesla T4", total_memory=15_360 << 20, major=7, minor=5, multi_processor_count=40, L2_cache_size=4 << 20
)
RTX_4060 = SimpleNamespace(
    name="NVIDIA GeForce RTX 4060", total_memory=8_188 << 20, major=8, minor=9, multi_processor_count=24,
    L2_cache_size=24 << 20,
)  # fmt: skip
RTX_2060_SUPER = SimpleNamespace(**{**vars(T4), "name": "NVIDIA GeForce RTX 2060 SUPER", "total_memory": 8_192 << 20})


def plan_card(name: str, card: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(hardware, "usable_cores", lambda: 8)
    monkeypatch.setattr(hardware, "last_level_cache_bytes", lambda: 32 << 20)
    install(monkeypatch, Torch(card, cuda="12.6"))
    entry = json.loads(json.dumps(CudaDevice("cuda:0").describe()))
    full = full_plan(read_preset(name), name, [CPU, entry], cores=8)
    return fit_budget(full, 25, at_least_essential=True) if name == "rented" else full


@pytest.mark.parametrize(("card", "taken"), [(T4, 0.5e9), (RTX_4060, 1.2e9), (RTX_2060_SUPER, 1.2e9)])
def test_small_cards_have_memory_for_all_essential_points(
    card: SimpleNamespace, taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_card("rented", card, monkeypatch)
    essential = [point for job in planned.jobs if job.kind == "gpu" for point in job.points if point.value == 1]
    room = MEMORY_SHARE * (card.total_memory - taken)
    assert [point.params for point in essential if point.left_out or (point.memory or 0) > room] == []
    assert {str(dict(point.params)["phase"]) for point in essential if point.experiment == "roofline"} == {
        "training", "prefill", "decode",
    }  # fmt: skip
    large = plan_card("rented", SimpleNamespace(**{**vars(card), "total_memory": 80 << 30}), monkeypatch)
    experiments = {job.experiment for job in large.jobs if job.kind == "gpu" and job.has_points(1)}
    assert {point.experiment for point in essential} >= {
        name for name in experiments if any(point.value == 1 for point in large.job(name, "cuda:0").points)
    }


@pytest.mark.parametrize("name", ["quick", "full", "rented", "whole-runs"])
def test_card_without_bfloat16_units_measures_float16_and_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_card(name, T4, monkeypatch)
    gpu = [point for job in planned.jobs if job.kind == "gpu" for point in job.points]
    formats = {dict(point.params).get("dtype") for point in gpu}
    assert "float16" in formats and not formats & {"bfloat16", "tf32"}
    assert "BF16" not in {dict(point.params).get("format") for point in gpu if "transformers" in str(point.params)}
    assert len(gpu) == len(set(gpu)), "a point that another point stands for is measured once"
    assert {point.instead_of.get("dtype", "bfloat16") for point in gpu} <= {"bfloat16", "tf32"}
    assert "cuda:0 has no units for dtype bfloat16" in plan.format_plan(planned)
    host = {dict(point.params).get("dtype") for job in planned.jobs if job.kind == "cpu" for point in job.points}
    assert "bfloat16" in host, "the CPU keeps its format"
    assert all(dict(point.params).get("dtype") != "float16" or "dtype" in point.instead_of or name != "rented"
               for point in gpu if point.experiment != "gemm")  # fmt: skip


def test_substituted_point_keeps_the_highest_value_and_survives_the_plan_file(tmp_path: Path) -> None:
    lost = {"value": 1, "cases": [{"m": 8, "n": 8, "k": 8}], "grid": {"dtype": ["tf32"], "backend": ["torch"]}}
    plain = {**lost, "value": 3, "grid": {**lost["grid"], "dtype": ["float32"]}}
    card = {**H200, "substitutes": {"tf32": "float32"}}
    for blocks in ([lost, plain], [plain, lost]):
        (job,) = full_plan(preset(*blocks), "test", [card], cores=2).jobs
        (point,) = job.points
        assert (dict(point.params)["dtype"], point.value, point.instead_of) == ("float32", 1, {})
    (job,) = full_plan(preset(lost), "test", [card], cores=2).jobs
    (point,) = Job.from_json(json.loads(json.dumps(job.as_json))).points
    assert point.instead_of == {"dtype": "tf32"}


def test_card_too_small_for_all_replacements_keeps_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    case = {"op": "triad", "dtype": "float32", "backend": "cupy", "footprint": 8 << 30}
    content = preset()
    for memory, footprint in ((80 << 30, 8 << 30), (8 << 30, 3 << 30), (2 << 30, 8 << 30)):
        smaller = [{"footprint": 3 << 30}, {"footprint": 2 << 30}]
        content["experiments"] = {"bandwidth": {"sweep": [{"cases": [case], "smaller": smaller}]}}
        (job,) = full_plan(content, "test", [{**H200, "memory_bytes": memory}], cores=2).jobs
        assert dict(job.points[0].params)["footprint"] == footprint
