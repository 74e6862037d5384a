"""Quantities of long runs, whole jobs, several devices and prices give what the nodes were built to have."""

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
from report.quantities.whole_runs import FAMILY_OF, Line
from report.statistics import half_width
from tests.report.conftest import CPU, GPU, Factory, SyntheticNode
from tests.report.priced_nodes import GIGA, REFERENCE, add_training, evidence, figure_value, priced_node

from .builders import ADDED, ONE_GPU, PREDICTED, counted, job, joules, listed, peak, run, slowing, tails
from .made_cases import Made, case, cases, holding, only

_STEP = {"model": "mlp", "batch": 32}


def sustained(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    run(node, "loses", slowing(0.05, noise=0.002), flop=1e9)
    run(node, "scatters", slowing(0.0, noise=0.01), flop=1e9)
    run(node, "calls", slowing(0.0, 0.0125), calls=100, rounds=2, flop=1e9)
    run(node, "short", slowing(0.05, 0.02), flop=1e9)
    run(node, "few", slowing(0.05, 10.0, 13), flop=1e9)
    run(node, "idle", [0.05] * 40, rounds=3, extent=1, flop=float("nan"), power_w=lambda *_: 70.0)
    run(
        node, "products", [1.0] * 20, rounds=3, utilisation=lambda *_: 1.0,
        clock_mhz=lambda _, at: 1980.0 if at < 18 else 1500.0,
        temperature_c=lambda _, at: 40.0 + at, power_w=lambda number, at: 600.0 + number if at >= 18 else 100.0,
    )  # fmt: skip
    # While the counter still averages over what was before, it shows less.
    low: dict[str, Any] = {"seconds": [1.0] * 10, "rounds": 3, "extent": 64, "flop": 1e9}
    run(node, "one_block", utilisation=lambda _, at: 0.3 if at < 5 else 1.0, **low)
    run(node, "differs", utilisation=lambda number, _: 0.5 + 0.02 * number, **low)
    run(node, "one_round", utilisation=lambda *_: 1.0, **{**low, "rounds": 1})
    # Against a faster product of the same format, not of another, the run above does little.
    run(node, "products", [10.0] * 10, utilisation=lambda *_: 1.0, rounds=3, dtype="float16", extent=1)
    shape: dict[str, Any] = {"params": {"m": 64, "n": 64, "k": 64}, "flop": 1e12, **ONE_GPU}
    node.point("gemm", 1.0, dtype="float16", **shape)
    node.point("gemm", 0.01, dtype="float8_e4m3fn", **shape)
    # Power over time stands in only where nothing counts.
    joules(node, "training", 0.1, ADDED, params={"model": "mlp", "batch": 64}, **ONE_GPU)
    for at, dtype, energy in (("cpu", "float32", 6.0), ("cuda:0", "float32", 3.0), ("cuda:0", "bfloat16", 2.0)):
        joules(node, "training", energy, params=_STEP, device=at, dtype=dtype)
    return node


_USED = {"sources": ("sustained",)}
test_sustained = holding(
    sustained,
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


def test_a_run_that_only_scatters_has_lost_nothing(made: Made) -> None:
    found = only("sustained.throughput_drift", made(sustained), load="scatters")
    assert found["low"] < 0 < found["high"] < 0.02
    random = np.random.default_rng(1)
    each = (rate_drift(pd.DataFrame({"value": np.exp(0.01 * random.standard_normal(100))})) for _ in range(1000))
    assert 970 < sum(one["low"] <= 0 <= one["high"] for one in each) < 998


def test_readings_are_medians_of_a_rounds_later_half_and_no_power_is_no_reading(synthetic: Factory) -> None:
    shown: Any = {"clock_mhz": lambda _, at: 100.0 + 100 * at, "power_w": lambda *_: 0.0, "utilisation": lambda *_: 0.0}
    found = evidence(synthetic, run(synthetic("node-a", gpus=1), "products", [1.0] * 10, rounds=3, **shown))
    assert found.readings("sustained", "clock_mhz").rows("estimate", "n_rounds") == [(pytest.approx(800), 3)]
    assert [len(found.readings("sustained", name)) for name in ("power_w", "utilisation")] == [0, 1]
    assert len(found.readings("gemm", "clock_mhz")) == 0


def test_power_times_time_stands_in_where_nothing_counts(synthetic: Factory) -> None:
    joules(node := synthetic("node-a", gpus=1), "training", 8.0, params=_STEP)
    joules(node, "training", 1.0, ADDED, params=_STEP, **ONE_GPU)
    detail = "power times time over counted by the device"
    case("energy.training_ratio", 8.0, precision="equal", detail=detail).check(evidence(synthetic, node))


def whole_jobs(synthetic: Factory) -> list[SyntheticNode]:
    node = job(listed(synthetic), "digits-mlp", 0.1, GIGA, threads=1)
    for row in node.rows:
        if row["metric"] == "reached_share" and row["round"] == 1 and "table-net" in row["params"]:
            row["value"] = 0.0
    # Twice the steps in one round take twice the time: the prediction is as good as in the others.
    doubled = job(add_training(synthetic("node-b"), 200), "bytes-gpt", 2.0, 100 * GIGA)
    for row in doubled.rows:
        if row["round"] == 2 and row["metric"] in ("job_time", "steps", "forward_passes", "job_flop"):
            row["value"] *= 2
    laptop = priced_node(synthetic, name="node-c", model="Intel(R) Core(TM) i7-1360P")
    add_training(add_training(laptop, 100), 150, model="gpt2")
    gpu = SyntheticNode(synthetic.root / "node-d", [CPU, GPU])
    add_training(add_training(gpu, 9000, **ONE_GPU), 3000)
    return [node, doubled, laptop, gpu, job(synthetic("node-e"), "digits-mlp", PREDICTED, GIGA, spread=0.05)]


_A = {"node": "node-a", "dtype": "float32", "threads": "all", "width": "any"}
_JOBS = {"sources": ("time-to-train",)}
_RATED: dict[str, Any] = {"sources": ("time-to-train", "training"), "method": "rate"}
test_jobs = holding(
    whole_jobs,
    case("time_to_train.job_time", 2.5, job="table-net", **{**_A, "width": "unknown"}),
    case("time_to_train.prediction_error", 1 - PREDICTED / 2.5, job="digits-mlp", method="parts", **_A),
    case("time_to_train.prediction_error", PREDICTED / 2.0 - 1, job="bytes-gpt", method="parts", **_A),
    # 100 GFLOP at 200 GFLOP/s are half a second: of the 2 s that it took, a quarter.
    case("time_to_train.prediction_error", 0.75, job="bytes-gpt", **_RATED, **_A),
    case("time_to_train.prediction_error", 0.75, node="node-b", low=0.75, high=0.75, **_RATED),
    # An error whose sign is open begins at zero.
    case("time_to_train.prediction_error", 0.0450, node="node-e", low=0, high=0.7237, **_JOBS),
    case("time_to_train.ratio", 60, baseline="laptop", precision="best", sources=("training",), width="any",
         labels={"node": "node-d", "device": "cuda:0", "baseline": "laptop", "precision": "best", "runtime": "torch",
                 "cpu_runtime": "torch"}),
)  # fmt: skip


NANOGPT, RESNET = "nanoGPT on Shakespeare", "ResNet-50 on ImageNet"
# As published: 6 operations for each weight and word, or what the run itself says.
FLOP = {
    NANOGPT: 6 * (12 * 6 * 384**2) * 5000 * 64 * 256,
    RESNET: 6 * 3.8e9 * 60e4 * 256,
    "AlexNet on ImageNet": 6 * 0.724e9 * 108e6,
    "GPT-2 (124M) on FineWeb": 7.44e18,
    "Llama 3.1 405B": 6 * 405e9 * 15.6e12,
    "Pythia-1.4B": 6 * 1.2086e9 * 299.89e9,
    "Llama 2 70B": 6 * 70e9 * 2e12,
    "Alpaca 7B fine-tune (at most)": 6 * 7e9 * 52e3 * 3 * 512,
    # 90% of the steps on 128 tokens, the rest on 512; 85 million parameters in the blocks.
    "BERT base": 6 * 84.9e6 * 256e6 * 166.4,
}


def published(synthetic: Factory) -> list[SyntheticNode]:
    node, other = synthetic("node-a", gpus=1), synthetic("node-b", gpus=1)
    add_training(node, 100)
    add_training(node, 200, dtype="bfloat16")
    add_training(node, 250, model="gpt2", backend="onednn", spread=1e-3)
    add_training(node, 150, model="cnn")
    add_training(node, 9000, dtype="bfloat16", **ONE_GPU)
    # What must not stand for either family: another family, one thread, plain loops.
    add_training(node, 1e6, model="mlp")
    add_training(node, 1e6, threads=1)
    add_training(node, 1e6, model="cnn", backend="simd")
    # Jobs that were run whole took twice as long as is derived for them, whatever their size.
    for number, name in enumerate(TRANSFORMERS):
        job(node, name, 2 * 10.0**number, 250 * GIGA * 10.0**number)
    return [node, add_training(other, 8000, **ONE_GPU)]  # of its GPU alone


def hours(name: str, rate: float) -> float:
    return FLOP[name] / (rate * GIGA) / 3600


TRANSFORMERS = [name for name, family in FAMILY_OF.items() if family == "transformer"]
_SERVERS = 2 * 6 * 70e9 * 2e12 / (250 * GIGA) / (90 * 86400)
# Of GPUs no job was run whole: what is derived for them has no interval.
_OPEN: dict[str, Any] = {"width": "unknown", "sources": ("training",)}
test_published_runs = holding(
    published,
    case("ladder.hours_to_train", 2 * hours(NANOGPT, 250), run=NANOGPT, device="cpu",
         detail="gpt2, batch 16, float32, onednn",
         labels={"node": "node-a", "device": "cpu", "threads": 2, "baseline": "node", "run": NANOGPT, "flop": 5.22e15,
                 "scale": "small"}),
    case("ladder.hours_to_train", {"node-a": hours(NANOGPT, 9000), "node-b": hours(NANOGPT, 8000)}, by="node",
         run=NANOGPT, device="gpu", **_OPEN),
    case("ladder.hours_to_train", {"cpu": 2 * hours(RESNET, 150)}, by="device", run=RESNET, scale="large", width="any"),
    case("ladder.nodes_for_90_days", _SERVERS, device="cpu", parameters=70e9),
    case("ladder.nodes_for_90_days", {size: 6 * size * tokens / (9000 * GIGA) / (90 * 86400) for size, tokens in
         ((7e9, 2e12), (70e9, 2e12), (405e9, 15.6e12))}, by="parameters", node="node-a", device="gpu", rel=0.02,
         **_OPEN),
    # The same of a server with 128 such cores.
    case("ladder.servers_for_90_days", _SERVERS * 2 / 128, parameters=70e9, evidence="scaled"),
    case("time_to_train.held_out", dict.fromkeys(TRANSFORMERS, 1.0), by="job", width="any"),
)  # fmt: skip


def line(ratio: Sequence[float], flop: Sequence[float]) -> Line:
    return Line(tuple(f"job-{at}" for at in range(len(flop))), np.array(flop), np.array(ratio))


def test_the_more_a_run_computes_the_less_it_is_corrected_and_nothing_is_extrapolated() -> None:
    falling = line([8.0, 4.0, 2.0, 1.0], [1e10, 1e11, 1e12, 1e13])
    factors = [falling.correction(flop)[0] for flop in (1e5, 1e10, 1e11, 3e12, 1e13, 1e20)]
    assert factors == pytest.approx([8, 8, 4, 8 * 2 ** -math.log10(300), 1, 1])
    assert falling.correction(1e11)[1] == pytest.approx(0, abs=1e-6) and falling.correction(1e11)[2] == 2


def test_a_further_job_is_predicted_as_often_as_the_level_says() -> None:
    """Jobs about a line: the interval of one that is held out holds it, but for one in a hundred."""
    draw = np.random.default_rng(7)
    flop, held = np.logspace(10, 14, 9), []
    for _ in range(400):
        ratio = np.exp(1.5 - 0.2 * np.log(flop / 1e10) + draw.normal(0, 0.3, 9))
        factor, se, df = line(ratio.tolist(), flop.tolist()).without_job(4).correction(flop[4])
        held.append(abs(math.log(ratio[4] / factor)) <= half_width(se, df))
    assert 0.975 <= np.mean(held) <= 1


def test_too_few_jobs_give_no_line_and_no_interval(synthetic: Factory) -> None:
    node = add_training(synthetic("node-a"), 250, model="gpt2")
    for name in TRANSFORMERS[:4]:
        job(node, name, 2.0, 250 * GIGA)
    found = evidence(synthetic, node)
    assert not len(cases("time_to_train.held_out", found))
    assert cases("ladder.hours_to_train", found)["low"].isna().all()


def test_the_flop_of_runs_are_as_published_and_grow(made: Made) -> None:
    """A factor of two in the rate moves a boundary by two runs at most."""
    flop = {one.name: total_flop(one, made(published)) for one in RUNS}
    assert {name: flop[name] for name in FLOP} == pytest.approx(FLOP, rel=0.02)
    totals = list(flop.values())
    assert totals == sorted(totals) and all(above / below > 2 for below, above in zip(totals, totals[2:], strict=False))


def several(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    node.devices[1]["memory_bytes"] = 20e9
    counted(node, "gpt2", parameters=1e6, activation_bytes=1e5)
    counted(node, "mlp", parameters=1e6, activation_bytes=1e9)
    peak(node, "gpt2", 1, 1.25 * (16e6 + 1e5), **ONE_GPU)
    peak(node, "gpt2", 100, 0.5 * (16e6 + 1e7))
    return peak(node, "unknown", 1, 1e6)


_NEEDED: dict[str, Any] = {"name": "several_devices.gpus_needed", "width": "exact"}
test_several_devices = holding(
    several,
    case("training.memory_model_error", {"cuda:0": -0.2, "cpu": 1.0}, by="device", rel=0.02, sources=("training",)),
    # 405e9 parameters of 16 bytes on devices of 80e9.
    case(estimate=81, model="Llama 3.1 405B", accelerator="NVIDIA H100 SXM5", **_NEEDED),
    # 16e6 bytes of state and 32 samples of 1e9 bytes on a measured device of 20e9.
    case(estimate=2, model="MLP on digits", accelerator="Synthetic GPU, measured here",
         detail="weights, gradients, moments and a batch of 32 take 1.6 times one", **_NEEDED),
)  # fmt: skip


H100 = "NVIDIA H100 80GB HBM3"
CORE, T4, HIRED = (figure_value(f"aws-{name}.usd_per_hour") / share
                   for name, share in (("c7a.large", 2), ("g4dn.xlarge", 1), ("p5.48xlarge", 8)))  # fmt: skip


def hired(synthetic: Factory) -> SyntheticNode:
    node = priced_node(synthetic, gpu=H100, cores=4)
    tails(node, {5: 0.01, 20: 0.03}, cores=4)
    tails(node, {5: 0.02, 20: 0.3}, cores=2)
    tails(node, {5: 0.4}, service="slow")
    for backend, dtype, p99 in (("torch", "float32", 0.08), ("onnx", "int8", 0.02), ("openvino", "bfloat16", 0.03)):
        tails(node, {10: p99}, service="text-classifier", backend=backend, dtype=dtype)
    tails(node, {20: 0.001}, service="text-classifier", cores=4, backend="other")
    tails(node, {5: 0.09}, service="unsure", spread=0.3)
    add_training(node, 100, threads=4, spread=1e-3)
    return add_training(node, 9000, spread=1e-3, **ONE_GPU)


_TOKENS = sum(figure_value(f"deepseek-v3.serving_{name}_tokens_per_day") for name in ("input", "output"))
_DAYS = figure_value("deepseek-v3.gpu_hours") / (figure_value("deepseek-v3.serving_nodes") * 8) / 24
test_prices = holding(
    hired,
    *(case("price.cpu_over_gpu_per_request", CORE * cores / T4, service="classifier", requests_per_s=load,
           width="exact", detail=f"{cores} cores of c7a.large against g4dn.xlarge; float32, held at {held} requests/s")
      for load, cores, held in ((1, 2, 5), (5, 2, 5), (10, 4, 20), (20, 4, 20))),
    # Of as many cores, the fastest runtime is named.
    case("price.cpu_over_gpu_per_request", CORE * 2 / T4, service="text-classifier", requests_per_s=5,
         cpu_runtime="onnx", width="exact",
         detail="2 cores of c7a.large against g4dn.xlarge; int8, held at 10 requests/s"),
    case("price.cpu_over_gpu_per_request", CORE * 4 / T4, service="text-classifier", requests_per_s=20,
         cpu_runtime="other", width="exact"),
    # What no server answers in time has no price, and what is unsure no interval.
    case("price.cpu_over_gpu_per_request", None, service="slow"),
    case("price.cpu_over_gpu_per_request", CORE * 2 / T4, service="unsure", requests_per_s=5, width="unknown"),
    case("price.speedup_over_price_ratio", 90 * 4 * CORE / HIRED, precision="best", rel=0.01),
    # Serving overtakes training the later the less is served.
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
def test_a_gpu_is_found_by_its_name(name: str, machine: str) -> None:
    assert (gpu_machine(name) or ("",))[0] == machine
    assert f"{machine}.gpus" in REFERENCE and f"{machine}.usd_per_hour" in REFERENCE


def test_a_processor_of_a_maker_whose_machines_are_not_priced_has_no_price(made: Made) -> None:
    assert core_price(made(cluster), {"vendor": "Unheard of"}) is None


UNVERIFIED = {"status": "not verified"}


@pytest.mark.parametrize(
    ("name", "gpu", "changed", "said"),
    [
        ("price.break_even_hours", "", {}, r"h100-pcie\.usd .*h200\.usd_in_system .*dgx-a100\.usd"),
        ("price.rank_per_dollar", "", {}, r"rtx-3060\.usd, .*rtx-4060-ti-16gb\.memory_bytes_per_s"),
        ("price.speedup_over_price_ratio", "Unheard Of 9", {}, "Unheard Of 9"),
        ("ladder.hours_to_train", "", {"bert-base.steps": UNVERIFIED}, "BERT"),
        ("ladder.cpu_cluster_cost_ratio", "", {"bert-wikipedia.tokens": UNVERIFIED}, "not verified"),
        ("several_devices.gpus_needed", "", {"resnet50.parameters": UNVERIFIED}, "ResNet-50"),
    ],
)
def test_a_figure_that_is_missing_or_not_verified_is_asked_for(
    synthetic: Factory, name: str, gpu: str, changed: dict[str, Any], said: str
) -> None:
    node = add_training(priced_node(synthetic, gpu=gpu), 100)
    if gpu:
        add_training(node, 9000, **ONE_GPU)
    with pytest.raises(MissingSourceError, match=said):
        cases(name, evidence(synthetic, node, changed=changed))


LARGEST, DAY = 405_000_000_000, 86400
WORK, RATIO = 3.8e25, "ladder.cpu_cluster_cost_ratio"
# FLOP/s of a server of 128 cores as the node's, of one of MLPerf's, and of that as it is rated.
SEQUENCES = figure_value("mlperf-training-3.1.16x2x8480plus.bert_sequences_per_s") / 16
RATES = {
    "scaled": 400 * GIGA / 2 * 128,
    "documented": SEQUENCES * 6 * 12 * figure_value("bert-large.layers") * figure_value("bert-large.width") ** 2 * 256,
    "rated": figure_value("xeon-8480plus-2s.bf16_flops")
    * (figure_value("llama31-405b.mfu_low") * figure_value("llama31-405b.mfu_high")) ** 0.5,
}


def cluster(synthetic: Factory) -> SyntheticNode:
    return add_training(priced_node(synthetic), 400)


@pytest.mark.parametrize(
    ("kind", "machine", "cores"), [("scaled", "c7a", 3 / 2), ("documented", "c7i", 6 / 7), ("rated", "c7i", 6 / 7)]
)
def test_servers_days_power_and_cost_follow_from_the_rate_of_one(
    made: Made, kind: str, machine: str, cores: float
) -> None:
    found = made(cluster)
    # The servers that are priced have other numbers of cores.
    servers = {days: WORK / (RATES[kind] * cores * days * DAY) for days in (54, 90)}
    cost = servers[54] * 54 * 24 * figure_value(f"aws-{machine}.48xlarge.usd_per_hour")
    gpu = figure_value("llama31-405b.gpu_hours") * figure_value("aws-p5.48xlarge.usd_per_hour") / 8
    alone = only("ladder.servers_for_90_days", found, evidence=kind, parameters=LARGEST)
    assert alone["estimate"] == pytest.approx(WORK / (RATES[kind] * 90 * DAY))
    assert only(RATIO, found, evidence=kind, by="operations")["estimate"] == pytest.approx(cost / gpu)
    whole = quantities()[RATIO].estimates(found)
    assert isinstance(whole, DerivedEstimates)
    gpus = figure_value("llama31-405b.gpus")
    # The numbers of the claims' other words, worked out from the same inputs.
    expected = {f"days on {gpus:,.0f} servers": servers[54] * 54 / gpus, "cost of the run": cost}
    for days, count in servers.items():
        expected |= {f"servers for {days} days": count, f"power of those for {days} days": count * 1000}
    told = {name: one.filter(evidence=kind).value("estimate", 0) for name, _, one in whole.other_results}
    assert told == pytest.approx(expected)


def large(synthetic: Factory) -> SyntheticNode:
    node = cluster(synthetic)
    node.cores = 64
    return node


def test_a_machine_of_many_cores_is_a_server_and_two_cores_are_none(made: Made) -> None:
    for build, known in ((large, "measured"), (cluster, "scaled")):
        found = cases("ladder.servers_for_90_days", made(build), parameters=LARGEST)
        assert set(found["evidence"]) == {known, "documented", "rated"}


def test_the_ratio_of_costs_by_the_relation_to_gpus_on_the_same_job(made: Made) -> None:
    relation = figure_value("mlperf-training-3.1.8xh100.bert_sequences_per_s") / (SEQUENCES * 96 / 112)
    prices = figure_value("aws-c7i.48xlarge.usd_per_hour") / figure_value("aws-p5.48xlarge.usd_per_hour")
    found = only(RATIO, made(cluster), evidence="documented", by="relation to GPUs")
    assert found["estimate"] == pytest.approx(relation * prices)
