"""Quantities on long runs, whole jobs, several devices and prices reproduce the values given to synthetic nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from report.data.dataset import MissingSourceError
from report.derived_estimates import DerivedEstimates
from report.quantities import quantities
from report.quantities.prices import core_price, gpu_machine
from report.quantities.sustained import rate_drift
from report.quantities.train_hours import RUNS, total_flop
from report.quantities.whole_runs import FAMILY_OF, Line, Parts
from report.statistics import half_width
from tests.report.conftest import CPU, GPU, Factory, SyntheticNode
from tests.report.priced_nodes import GIGA, REFERENCE, add_training, evidence, figure_value, priced_node

from .builders import (
    ADDED,
    ONE_GPU,
    PREDICTED,
    add_counts,
    add_energy,
    add_job,
    add_peak_memory,
    add_run,
    add_tails,
    all_jobs_node,
    slowing_times,
)
from .made_cases import DatasetOf, case, case_test, select_row, select_rows

_STEP = {"model": "mlp", "batch": 32}


def sustained_node(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    add_run(node, "loses", slowing_times(0.05, noise=0.002), flop=1e9)
    add_run(node, "scatters", slowing_times(0.0, noise=0.01), flop=1e9)
    add_run(node, "calls", slowing_times(0.0, 0.0125), calls=100, rounds=2, flop=1e9)
    add_run(node, "short", slowing_times(0.05, 0.02), flop=1e9)
    add_run(node, "few", slowing_times(0.05, 10.0, 13), flop=1e9)
    add_run(node, "idle", [0.05] * 40, rounds=3, extent=1, flop=float("nan"), power_w=lambda *_: 70.0)
    add_run(
        node, "products", [1.0] * 20, rounds=3, utilisation=lambda *_: 1.0,
        clock_mhz=lambda _, i: 1980.0 if i < 18 else 1500.0,
        temperature_c=lambda _, i: 40.0 + i, power_w=lambda number, i: 600.0 + number if i >= 18 else 100.0,
    )  # fmt: skip
    # The first utilisations of `one_block` are low, as when the driver averages also over the time before the run.
    low: dict[str, Any] = {"seconds": [1.0] * 10, "rounds": 3, "extent": 64, "flop": 1e9}
    add_run(node, "one_block", utilisation=lambda _, i: 0.3 if i < 5 else 1.0, **low)
    add_run(node, "differs", utilisation=lambda number, _: 0.5 + 0.02 * number, **low)
    add_run(node, "one_round", utilisation=lambda *_: 1.0, **{**low, "rounds": 1})
    # This run is slow compared with the fastest product in its own format, float16. The product in float8 is not used
    # for the comparison.
    add_run(node, "products", [10.0] * 10, utilisation=lambda *_: 1.0, rounds=3, dtype="float16", extent=1)
    shape: dict[str, Any] = {"params": {"m": 64, "n": 64, "k": 64}, "flop": 1e12, **ONE_GPU}
    node.point("gemm", 1.0, dtype="float16", **shape)
    node.point("gemm", 0.01, dtype="float8_e4m3fn", **shape)
    # This energy is power times time. It is not used, because the GPU has an energy counter.
    add_energy(node, "training", 0.1, ADDED, params={"model": "mlp", "batch": 64}, **ONE_GPU)
    for device, dtype, energy in (("cpu", "float32", 6.0), ("cuda:0", "float32", 3.0), ("cuda:0", "bfloat16", 2.0)):
        add_energy(node, "training", energy, params=_STEP, device=device, dtype=dtype)
    return node


_USED = {"sources": ("sustained",)}
test_sustained = case_test(
    sustained_node,
    case("sustained.throughput_drift", 0.05, load="loses", rel=0.06, detail="in 128 s"),
    case("sustained.throughput_drift", {1: 0, 2: 0}, by="round", load="calls", width="exact", detail="in 125 s"),
    case("sustained.throughput_drift", None, load=["short", "few"]),
    case("sustained.utilisation_at_low_mfu", 1.0, load="one_block", low=0.995, high=1.0,
         detail="at 0.1% of the fastest product's rate", dtype="bfloat16", **_USED),
    case("sustained.utilisation_at_low_mfu", 0.54, load="differs", **_USED),
    case("sustained.utilisation_at_low_mfu", 1.0, load="one_round", width="unknown", **_USED),
    case("sustained.utilisation_at_low_mfu", {"float16": 1.0}, by="dtype", load="products",
         sources=("sustained", "gemm")),
    case("sustained.telemetry_share", 1.0, load="products", dtype="bfloat16", width="unknown"),
    case("sustained.telemetry_share", 0.0, load="one_block", width="unknown", **_USED),
    case("energy.training_ratio", {"equal": 2.0, "best": 3.0}, by="precision", model="mlp", runtime="torch",
         cpu_runtime="torch", sources=("training",)),
    case("energy.training_ratio", 3.0, precision="best", sources=("training",),
         detail="counted by the device, bfloat16 over counted by the device, float32"),
)  # fmt: skip


def test_noise_alone_is_no_drift(dataset_of: DatasetOf) -> None:
    row = select_row("sustained.throughput_drift", dataset_of(sustained_node), load="scatters")
    assert row["low"] < 0 < row["high"] < 0.02
    random = np.random.default_rng(1)
    each = (rate_drift(pd.DataFrame({"value": np.exp(0.01 * random.standard_normal(100))})) for _ in range(1000))
    assert 970 < sum(drift["low"] <= 0 <= drift["high"] for drift in each) < 998


def test_readings_are_second_half_medians_and_zero_power_is_missing(synthetic: Factory) -> None:
    columns: Any = {"clock_mhz": lambda _, i: 100.0 + 100 * i, "power_w": lambda *_: 0.0, "utilisation": lambda *_: 0.0}
    data = evidence(synthetic, add_run(synthetic("node-a", gpus=1), "products", [1.0] * 10, rounds=3, **columns))
    assert data.readings("sustained", "clock_mhz").rows("estimate", "n_rounds") == [(pytest.approx(800), 3)]
    assert [len(data.readings("sustained", name)) for name in ("power_w", "utilisation")] == [0, 1]
    assert len(data.readings("gemm", "clock_mhz")) == 0


def test_power_times_time_is_the_fallback_for_energy(synthetic: Factory) -> None:
    add_energy(node := synthetic("node-a", gpus=1), "training", 8.0, params=_STEP)
    add_energy(node, "training", 1.0, ADDED, params=_STEP, **ONE_GPU)
    detail = "power times time over counted by the device"
    case("energy.training_ratio", 8.0, precision="equal", detail=detail).check(evidence(synthetic, node))


def whole_job_nodes(synthetic: Factory) -> list[SyntheticNode]:
    node = add_job(all_jobs_node(synthetic), "digits-mlp", 0.1, GIGA, threads=1)
    for row in node.rows:
        if row["metric"] == "reached_share" and row["round"] == 1 and "table-net" in row["params"]:
            row["value"] = 0.0
    # In round 2, the job has twice the steps and takes twice the time, so its prediction is equally good.
    doubled = add_job(add_training(synthetic("node-b"), 200), "bytes-gpt", 2.0, 100 * GIGA)
    for row in doubled.rows:
        if row["round"] == 2 and row["metric"] in ("job_time", "steps", "forward_passes", "job_flop"):
            row["value"] *= 2
    laptop = priced_node(synthetic, name="node-c", model="Intel(R) Core(TM) i7-1360P")
    add_training(add_training(laptop, 100), 150, model="gpt2")
    gpu = SyntheticNode(synthetic.root / "node-d", [CPU, GPU])
    add_training(add_training(gpu, 9000, **ONE_GPU), 3000)
    return [node, doubled, laptop, gpu, add_job(synthetic("node-e"), "digits-mlp", PREDICTED, GIGA, spread=0.05)]


_A = {"node": "node-a", "dtype": "float32", "threads": "all", "width": "any"}
_JOBS = {"sources": ("time-to-train",)}
_RATED: dict[str, Any] = {"sources": ("time-to-train", "training"), "method": "rate"}
test_jobs = case_test(
    whole_job_nodes,
    case("time_to_train.job_time", 2.5, job="table-net", **{**_A, "width": "unknown"}),
    case("time_to_train.prediction_error", 1 - PREDICTED / 2.5, job="digits-mlp", method="parts", **_A),
    case("time_to_train.prediction_error", PREDICTED / 2.0 - 1, job="bytes-gpt", method="parts", **_A),
    # 100 GFLOP at 200 GFLOP/s take 0.5 s, a quarter of the measured 2 s.
    case("time_to_train.prediction_error", 0.75, job="bytes-gpt", **_RATED, **_A),
    case("time_to_train.prediction_error", 0.75, node="node-b", low=0.75, high=0.75, **_RATED),
    # The error is an absolute value, so its interval begins at zero if its sign is uncertain.
    case("time_to_train.prediction_error", 0.0450, node="node-e", low=0, high=0.7237, **_JOBS),
    case("time_to_train.ratio", 60, baseline="laptop", precision="best", sources=("training",), width="any",
         labels={"node": "node-d", "device": "cuda:0", "baseline": "laptop", "precision": "best", "runtime": "torch",
                 "cpu_runtime": "torch"}),
)  # fmt: skip


NANOGPT, RESNET = "nanoGPT on Shakespeare", "ResNet-50 on ImageNet"
# Total FLOP by published run. The publication gives the total, or the total is 6 FLOP per weight and token in a
# transformer, and 6 FLOP per multiply-add and image in a convolutional network.
FLOP = {
    NANOGPT: 6 * (12 * 6 * 384**2) * 5000 * 64 * 256,
    RESNET: 6 * 3.8e9 * 60e4 * 256,
    "AlexNet on ImageNet": 6 * 0.724e9 * 108e6,
    "GPT-2 (124M) on FineWeb": 7.44e18,
    "Llama 3.1 405B": 6 * 405e9 * 15.6e12,
    "Pythia-1.4B": 6 * 1.2086e9 * 299.89e9,
    "Llama 2 70B": 6 * 70e9 * 2e12,
    "Alpaca 7B fine-tune (at most)": 6 * 7e9 * 52e3 * 3 * 512,
    # BERT trains 90% of its steps on sequences of 128 tokens and 10% on 512, which is 166.4 on average. Its blocks have
    # 84.9e6 parameters.
    "BERT base": 6 * 84.9e6 * 256e6 * 166.4,
}


def published_run_nodes(synthetic: Factory) -> list[SyntheticNode]:
    node, other = synthetic("node-a", gpus=1), synthetic("node-b", gpus=1)
    add_training(node, 100)
    add_training(node, 200, dtype="bfloat16")
    add_training(node, 250, model="gpt2", backend="onednn", spread=1e-3)
    add_training(node, 150, model="cnn")
    add_training(node, 9000, dtype="bfloat16", **ONE_GPU)
    # No run uses these three rates: the first is for a model in neither family, the second for one thread, and the
    # third for plain loops.
    add_training(node, 1e6, model="mlp")
    add_training(node, 1e6, threads=1)
    add_training(node, 1e6, model="cnn", backend="simd")
    # Whole jobs, small or large, take twice the time that follows from their operations and the best rate.
    for number, name in enumerate(TRANSFORMERS):
        add_job(node, name, 2 * 10.0**number, 250 * GIGA * 10.0**number)
    return [node, add_training(other, 8000, **ONE_GPU)]  # This node has a rate only on its GPU.


def hours_at(name: str, rate: float) -> float:
    return FLOP[name] / (rate * GIGA) / 3600


TRANSFORMERS = [name for name, family in FAMILY_OF.items() if family == "transformer"]
_SERVERS = 2 * 6 * 70e9 * 2e12 / (250 * GIGA) / (90 * 86400)
# No whole job ran on a GPU, so the times derived for GPUs have no interval.
_OPEN: dict[str, Any] = {"width": "unknown", "sources": ("training",)}
test_published_runs = case_test(
    published_run_nodes,
    case("ladder.hours_to_train", 2 * hours_at(NANOGPT, 250), run=NANOGPT, device="cpu",
         detail="gpt2, batch 16, float32, onednn",
         labels={"node": "node-a", "device": "cpu", "threads": 2, "baseline": "node", "run": NANOGPT, "flop": 5.22e15,
                 "scale": "small", "method": "line"}),
    case("ladder.hours_to_train", {"node-a": hours_at(NANOGPT, 9000), "node-b": hours_at(NANOGPT, 8000)}, by="node",
         run=NANOGPT, device="gpu", **_OPEN),
    case("ladder.hours_to_train", {"cpu": 2 * hours_at(RESNET, 150)}, by="device", run=RESNET, scale="large",
         width="any"),
    case("ladder.nodes_for_90_days", _SERVERS, device="cpu", parameters=70e9),
    case("ladder.nodes_for_90_days", {size: 6 * size * tokens / (9000 * GIGA) / (90 * 86400) for size, tokens in
         ((7e9, 2e12), (70e9, 2e12), (405e9, 15.6e12))}, by="parameters", node="node-a", device="gpu", rel=0.02,
         **_OPEN),
    # A server with 128 cores like the node's replaces 64 nodes, which have two cores each.
    case("ladder.servers_for_90_days", _SERVERS * 2 / 128, parameters=70e9, evidence="scaled"),
    case("time_to_train.held_out", dict.fromkeys(TRANSFORMERS, 1.0), by="job", width="any"),
)  # fmt: skip


# Time that each whole job takes, relative to the sum of its parts.
MISSES = dict(zip(TRANSFORMERS, np.exp(0.1 + 0.05 * np.array([-1, 1, -1, 1, 0, 0, 0])).tolist(), strict=False))


def own_step_nodes(synthetic: Factory) -> list[SyntheticNode]:
    """Return a node whose GPU and CPU time nanoGPT's own step, and a node that times another network alone."""
    node, other = synthetic("node-a", gpus=1), add_training(synthetic("node-b"), 250)
    steps: list[dict[str, Any]] = [
        {"value": 2.0, "dtype": "bfloat16"},
        {"value": 0.05, **ONE_GPU},
        # These steps do not stand for the run's: a slower format, one thread, plain loops, a batch larger than the
        # run's, a single round without an interval, and another network.
        {"value": 4.0},
        {"value": 0.1, "threads": 1},
        {"value": 0.1, "backend": "simd"},
        {"value": 0.1, "batch": 128},
        {"value": 0.1, "batch": 32, "rounds": 1},
        {"value": 0.1, "model": "nanogpt-tiny"},
    ]
    for step in steps:
        about = {"threads": 2, "spread": 0.0, **step}
        params = {"model": about.pop("model", "nanogpt"), "batch": about.pop("batch", 64)}
        node.point("training", about.pop("value"), params=params, flop=1e12, **about)
    for number, (name, miss) in enumerate(MISSES.items()):
        add_job(node, name, PREDICTED * miss, GIGA * 2.0**number)
    return [node, other]


def other_misses(job: str) -> float:
    """Return the mean miss, on the logarithmic scale, of all jobs but one."""
    return math.exp(np.log([other for key, other in MISSES.items() if key != job]).mean())


_HELD = half_width(np.std(np.log(list(MISSES.values())), ddof=1) * math.sqrt(1 + 1 / len(MISSES)), len(MISSES) - 1)
_MIDDLE = math.exp(np.log(list(MISSES.values())).mean())
_OWN_HOURS = 5000 * 2.0 * _MIDDLE / 3600
test_own_steps = case_test(
    own_step_nodes,
    case("ladder.hours_to_train", _OWN_HOURS, run=NANOGPT, device="cpu", method="own step",
         low=_OWN_HOURS * math.exp(-_HELD), high=_OWN_HOURS * math.exp(_HELD),
         detail="nanogpt, batch 64, bfloat16, torch",
         labels={"node": "node-a", "device": "cpu", "threads": 2, "baseline": "node", "run": NANOGPT, "flop": 5.22e15,
                 "scale": "small", "method": "own step"}),
    case("ladder.hours_to_train", 5000 * 0.05 / 3600, run=NANOGPT, device="gpu", method="own step", **_OPEN),
    case("time_to_train.held_out_parts", {name: miss / other_misses(name) for name, miss in MISSES.items()}, by="job",
         sources=("time-to-train",)),
    # A job takes 100 steps; the step with the job's batch, format and threads takes 4 seconds.
    case("time_to_train.held_out_step", {name: PREDICTED * MISSES[name] / 100 / 4.0 / other_misses(name)
         for name in ("bytes-nanogpt", "bytes-nanogpt-hour")}, by="job"),
)  # fmt: skip


def test_each_device_has_one_time_per_run(dataset_of: DatasetOf) -> None:
    hours = quantities()["ladder.hours_to_train"].estimates(dataset_of(own_step_nodes))
    own, line = "own step", "line"
    methods = hours.filter(run=NANOGPT).rows("node", "device", "method")
    assert sorted(methods) == [("node-a", "cpu", own), ("node-a", "cuda:0", own), ("node-b", "cpu", line)]
    assert set(hours.filter(run="BERT base")["method"]) == {line}
    assert not hours.frame.duplicated(["node", "device", "run"]).any()


def make_line(ratio: Sequence[float], flop: Sequence[float]) -> Line:
    return Line(tuple(f"job-{i}" for i in range(len(flop))), np.array(flop), np.array(ratio))


def test_correction_interpolates_but_does_not_extrapolate() -> None:
    falling = make_line([8.0, 4.0, 2.0, 1.0], [1e10, 1e11, 1e12, 1e13])
    factors = [falling.correction(flop)[0] for flop in (1e5, 1e10, 1e11, 3e12, 1e13, 1e20)]
    assert factors == pytest.approx([8, 8, 4, 8 * 2 ** -math.log10(300), 1, 1])
    assert falling.correction(1e11)[1] == pytest.approx(0, abs=1e-6) and falling.correction(1e11)[2] == 2


def test_held_out_job_interval_has_its_stated_coverage() -> None:
    """If jobs scatter about a line, the interval for a held-out job contains the job in about 99% of draws."""
    draw = np.random.default_rng(7)
    flop, covered = np.logspace(10, 14, 9), []
    for _ in range(400):
        ratio = np.exp(1.5 - 0.2 * np.log(flop / 1e10) + draw.normal(0, 0.3, 9))
        factor, se, df = make_line(ratio.tolist(), flop.tolist()).without_job(4).correction(flop[4])
        covered.append(abs(math.log(ratio[4] / factor)) <= half_width(se, df))
    assert 0.975 <= np.mean(covered) <= 1


def test_sum_of_parts_interval_has_its_stated_coverage() -> None:
    """If jobs and nodes scatter, the interval contains a further job on one node in about 99% of draws or more."""
    draw, covered = np.random.default_rng(8), []
    for _ in range(400):
        misses = draw.normal(0.02, 0.05, (9, 1)) + draw.normal(0, 0.05, (9, 2))
        parts = Parts(tuple("abcdefghi"), np.exp(misses.mean(axis=1)), misses.var(axis=1))
        factor, se, df = parts.without_job(4).correction()
        covered.append(abs(misses[4, 0] - math.log(factor)) <= half_width(se, df))
    assert 0.975 <= np.mean(covered) <= 1


def test_published_steps_agree_with_the_figures(dataset_of: DatasetOf) -> None:
    """A step's batch is that of the run's figures, and its samples take the run's operations within a tenth."""
    data = dataset_of(published_run_nodes)
    steps = {run.id: run.step for run in RUNS if run.step}
    batches = {"nanogpt-cpu": "sequences", "nanogpt": "sequences", "resnet50": "batch"}
    assert {name: steps[name].batch for name in batches} == {
        name: data.figure(f"{name}.{figure}") for name, figure in batches.items()
    }
    assert steps["gpt2-124m"].batch * 1024 == data.figure("gpt2-124m.tokens_per_step")
    images = {"alexnet": 108e6, "resnet50": 153.6e6, "airbench94": 9.9 * 50e3, "resnet18-cifar": 200 * 50e3}
    samples = {name: steps[name].samples(lambda figure, name=name: data.figure(f"{name}.{figure}")) for name in images}
    assert samples == pytest.approx(images, rel=0.1)


def test_too_few_jobs_give_no_line_and_no_interval(synthetic: Factory) -> None:
    node = add_training(synthetic("node-a"), 250, model="gpt2")
    for name in TRANSFORMERS[:4]:
        add_job(node, name, 2.0, 250 * GIGA)
    data = evidence(synthetic, node)
    assert not len(select_rows("time_to_train.held_out", data))
    assert select_rows("ladder.hours_to_train", data)["low"].isna().all()


def test_run_flop_match_publications_and_are_spaced(dataset_of: DatasetOf) -> None:
    """Each run needs over twice as many FLOP as the run two places before it.

    Hence a machine that is twice as fast finishes at most two more of these runs in the same time.
    """
    flop = {run.name: total_flop(run, dataset_of(published_run_nodes)) for run in RUNS}
    assert {name: flop[name] for name in FLOP} == pytest.approx(FLOP, rel=0.02)
    totals = list(flop.values())
    assert totals == sorted(totals) and all(above / below > 2 for below, above in zip(totals, totals[2:], strict=False))


def several_devices_node(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    node.devices[1]["memory_bytes"] = 20e9
    add_counts(node, "gpt2", parameters=1e6, activation_bytes=1e5)
    add_counts(node, "mlp", parameters=1e6, activation_bytes=1e9)
    add_peak_memory(node, "gpt2", 1, 1.25 * (16e6 + 1e5), **ONE_GPU)
    add_peak_memory(node, "gpt2", 100, 0.5 * (16e6 + 1e7))
    return add_peak_memory(node, "unknown", 1, 1e6)


_NEEDED: dict[str, Any] = {"name": "several_devices.gpus_needed", "width": "exact"}
test_several_devices = case_test(
    several_devices_node,
    case("training.memory_model_error", {"cuda:0": -0.2, "cpu": 1.0}, by="device", rel=0.02, sources=("training",)),
    # The model needs 16 bytes for each of its 405e9 parameters, and a device has 80e9 bytes.
    case(estimate=81, model="Llama 3.1 405B", accelerator="NVIDIA H100 SXM5", **_NEEDED),
    # The state takes 16e6 bytes, and 32 samples take 1e9 bytes each. The measured device has 20e9 bytes.
    case(estimate=2, model="MLP on digits", accelerator="Synthetic GPU, measured here",
         detail="weights, gradients, moments and a batch of 32 take 1.6 times one", **_NEEDED),
)  # fmt: skip


H100 = "NVIDIA H100 80GB HBM3"
CORE, T4, HIRED = (figure_value(f"aws-{name}.usd_per_hour") / share
                   for name, share in (("c7a.large", 2), ("g4dn.xlarge", 1), ("p5.48xlarge", 8)))  # fmt: skip


def hired_node(synthetic: Factory) -> SyntheticNode:
    node = priced_node(synthetic, gpu=H100, cores=4)
    add_tails(node, {5: 0.01, 20: 0.03}, cores=4)
    add_tails(node, {5: 0.02, 20: 0.3}, cores=2)
    add_tails(node, {5: 0.4}, service="slow")
    for backend, dtype, p99 in (("torch", "float32", 0.08), ("onnx", "int8", 0.02), ("openvino", "bfloat16", 0.03)):
        add_tails(node, {10: p99}, service="text-classifier", backend=backend, dtype=dtype)
    add_tails(node, {20: 0.001}, service="text-classifier", cores=4, backend="other")
    add_tails(node, {5: 0.09}, service="unsure", spread=0.3)
    add_training(node, 100, threads=4, spread=1e-3)
    return add_training(node, 9000, spread=1e-3, **ONE_GPU)


_TOKENS = sum(figure_value(f"deepseek-v3.serving_{name}_tokens_per_day") for name in ("input", "output"))
_DAYS = figure_value("deepseek-v3.gpu_hours") / (figure_value("deepseek-v3.serving_nodes") * 8) / 24
test_prices = case_test(
    hired_node,
    *(case("price.cpu_over_gpu_per_request", CORE * cores / T4, service="classifier", requests_per_s=load,
           width="exact", detail=f"{cores} cores of c7a.large against g4dn.xlarge; float32, held at {limit} requests/s")
      for load, cores, limit in ((1, 2, 5), (5, 2, 5), (10, 4, 20), (20, 4, 20))),
    # If several runtimes serve the load on equally few cores, the fastest is named.
    case("price.cpu_over_gpu_per_request", CORE * 2 / T4, service="text-classifier", requests_per_s=5,
         cpu_runtime="onnx", width="exact",
         detail="2 cores of c7a.large against g4dn.xlarge; int8, held at 10 requests/s"),
    case("price.cpu_over_gpu_per_request", CORE * 4 / T4, service="text-classifier", requests_per_s=20,
         cpu_runtime="other", width="exact"),
    # A service that misses the deadline has no price. A service that may meet it has a price, but without an interval.
    case("price.cpu_over_gpu_per_request", None, service="slow"),
    case("price.cpu_over_gpu_per_request", CORE * 2 / T4, service="unsure", requests_per_s=5, width="unknown"),
    case("price.speedup_over_price_ratio", 90 * 4 * CORE / HIRED, precision="best", rel=0.01),
    # The less traffic there is, the more days pass until serving has used as many GPU hours as training did.
    case("serving.break_even_days", {_TOKENS / share: _DAYS * share for share in (1, 10, 100)}, by="traffic",
         width="any", sources=()),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        (H100, "aws-p5.48xlarge"), ("NVIDIA H100 PCIe", "lambda-1x-h100-pcie"), ("Tesla T4", "aws-g4dn.xlarge"),
        ("NVIDIA A100-SXM4-80GB", "aws-p4de.24xlarge"), ("NVIDIA A100-SXM4-40GB", "aws-p4d.24xlarge"),
        ("NVIDIA L4", "aws-g6.xlarge"), ("NVIDIA GH200 480GB", "lambda-1x-gh200"),
    ],
)  # fmt: skip
def test_gpu_name_selects_its_priced_machine(name: str, machine: str) -> None:
    assert (gpu_machine(name) or ("",))[0] == machine
    assert f"{machine}.gpus" in REFERENCE and f"{machine}.usd_per_hour" in REFERENCE


def test_unpriced_vendor_has_no_core_price(dataset_of: DatasetOf) -> None:
    assert core_price(dataset_of(cluster_node), {"vendor": "Unheard of"}) is None


UNVERIFIED = {"status": "not verified"}


@pytest.mark.parametrize(
    ("name", "gpu", "changed", "message"),
    [
        ("price.break_even_hours", "", {}, r"h100-pcie\.usd .*h200\.usd_in_system .*dgx-a100\.usd"),
        (
            "price.rank_per_dollar",
            "",
            dict.fromkeys(("rtx-3060.usd", "rtx-4060-ti-16gb.memory_bytes_per_s"), UNVERIFIED),
            r"rtx-3060\.usd, .*rtx-4060-ti-16gb\.memory_bytes_per_s",
        ),
        ("price.speedup_over_price_ratio", "Unheard Of 9", {}, "Unheard Of 9"),
        ("ladder.hours_to_train", "", {"bert-base.steps": UNVERIFIED}, "BERT"),
        ("ladder.cpu_cluster_cost_ratio", "", {"bert-wikipedia.tokens": UNVERIFIED}, "not verified"),
        ("several_devices.gpus_needed", "", {"resnet50.parameters": UNVERIFIED}, "ResNet-50"),
    ],
)
def test_missing_or_unverified_figure_is_named_in_the_error(
    synthetic: Factory, name: str, gpu: str, changed: dict[str, Any], message: str
) -> None:
    node = add_training(priced_node(synthetic, gpu=gpu), 100)
    if gpu:
        add_training(node, 9000, **ONE_GPU)
    with pytest.raises(MissingSourceError, match=message):
        select_rows(name, evidence(synthetic, node, changed=changed))


LARGEST, DAY = 405_000_000_000, 86400
WORK, RATIO = 3.8e25, "ladder.cpu_cluster_cost_ratio"
# SEQUENCES: BERT sequences per second and server, from an MLPerf result on 16 servers.
# RATES: FLOP/s per server, by evidence. A scaled server has 128 cores like the node's, a documented server is an MLPerf
# server, and a rated server reaches its rated peak times a utilisation.
SEQUENCES = figure_value("mlperf-training-3.1.16x2x8480plus.bert_sequences_per_s") / 16
RATES = {
    "scaled": 400 * GIGA / 2 * 128,
    "documented": SEQUENCES * 6 * 12 * figure_value("bert-large.layers") * figure_value("bert-large.width") ** 2 * 256,
    "rated": figure_value("xeon-8480plus-2s.bf16_flops")
    * (figure_value("llama31-405b.mfu_low") * figure_value("llama31-405b.mfu_high")) ** 0.5,
}


def cluster_node(synthetic: Factory) -> SyntheticNode:
    return add_training(priced_node(synthetic), 400)


@pytest.mark.parametrize(
    ("kind", "machine", "cores"), [("scaled", "c7a", 3 / 2), ("documented", "c7i", 6 / 7), ("rated", "c7i", 6 / 7)]
)
def test_servers_power_and_cost_follow_from_the_server_rate(
    dataset_of: DatasetOf, kind: str, machine: str, cores: float
) -> None:
    data = dataset_of(cluster_node)
    # A server with a price has `cores` times as many cores as the server with a known rate, so the rate is multiplied.
    servers = {days: WORK / (RATES[kind] * cores * days * DAY) for days in (54, 90)}
    cost = servers[54] * 54 * 24 * figure_value(f"aws-{machine}.48xlarge.usd_per_hour")
    gpu = figure_value("llama31-405b.gpu_hours") * figure_value("aws-p5.48xlarge.usd_per_hour") / 8
    alone = select_row("ladder.servers_for_90_days", data, evidence=kind, parameters=LARGEST)
    assert alone["estimate"] == pytest.approx(WORK / (RATES[kind] * 90 * DAY))
    assert select_row(RATIO, data, evidence=kind, by="operations")["estimate"] == pytest.approx(cost / gpu)
    whole = quantities()[RATIO].estimates(data)
    assert isinstance(whole, DerivedEstimates)
    gpus = figure_value("llama31-405b.gpus")
    # The quantity also gives these other results, which claims mention, from the same inputs.
    expected = {f"days on {gpus:,.0f} servers": servers[54] * 54 / gpus, "cost of the run": cost}
    for days, count in servers.items():
        expected |= {f"servers for {days} days": count, f"power of those for {days} days": count * 1000}
    results = {name: estimates.filter(evidence=kind).value("estimate", 0) for name, _, estimates in whole.other_results}
    assert results == pytest.approx(expected)


def large_cluster_node(synthetic: Factory) -> SyntheticNode:
    node = cluster_node(synthetic)
    node.cores = 64
    return node


def test_only_a_many_core_machine_counts_as_a_server(dataset_of: DatasetOf) -> None:
    for build, known in ((large_cluster_node, "measured"), (cluster_node, "scaled")):
        rows = select_rows("ladder.servers_for_90_days", dataset_of(build), parameters=LARGEST)
        assert set(rows["evidence"]) == {known, "documented", "rated"}


def test_cost_ratio_by_relation_to_gpus_on_the_same_job(dataset_of: DatasetOf) -> None:
    relation = figure_value("mlperf-training-3.1.8xh100.bert_sequences_per_s") / (SEQUENCES * 96 / 112)
    prices = figure_value("aws-c7i.48xlarge.usd_per_hour") / figure_value("aws-p5.48xlarge.usd_per_hour")
    row = select_row(RATIO, dataset_of(cluster_node), evidence="documented", by="relation to GPUs")
    assert row["estimate"] == pytest.approx(relation * prices)
