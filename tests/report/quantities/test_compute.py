"""Quantities of products, training, libraries, inference and numerics give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from report.pages.families import training as training_pages
from report.pages.figure_data import View
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import GIGA, evidence

from .builders import ONE_GPU, ask, counted, host, layer, product, say, step, with_gpu, zoo
from .made_cases import Made, case, cases, holding, only


def products(synthetic: Factory) -> SyntheticNode:
    node = product(synthetic(gpus=1), 1e12, graph=4e12)
    product(node, 3e12, n=1024)
    product(node, 3e12, graph=6e12, dtype="bfloat16")
    product(node, 9e12, n=256, status="wrong", reason="error 0.3")
    node.clock(spread=0).peak(40 * 2 * 3e9, spread=0).peak(80 * 2 * 3e9, threads=2, spread=0)
    node.gemm(20, spread=0).gemm(30, n=1024, threads=2, spread=0).gemm(10, n=1024, backend="numpy", spread=0)
    node.peak(12e9, kernel="scalar_fma", spread=0).peak(24e9, kernel="scalar_fma", threads=2, spread=0)
    return node


_GPU, _CPU = {"device": "gpu", "dtype": "float32"}, {"device": "cpu"}
_SHARE = {"backend": "torch", "device": "gpu", "dtype": "bfloat16"}
test_products = holding(
    products,
    case("gemm.rate", 1e12, **_GPU, backend="torch", n=512),
    case("gemm.rate", 4e12, **_GPU, backend="best", detail="torch graph, 512x512x512"),
    case("gemm.rate", 3e12, **_GPU, backend="torch", shape="best"),
    # 3 TFLOP/s at 1.5 GHz are 2,000 operations a cycle, or 1,000 multiply-adds.
    case("gemm.mac_per_cycle", 1000.0, **_SHARE),
    case("gemm.mac_per_cycle", 2000.0, **{**_SHARE, "backend": "best"}),
    case("gemm.mac_per_cycle", 30.0, **_CPU, backend="torch", threads=2, sources=("gemm", "clock")),
    case("gemm.mac_per_cycle_per_core", 15.0, **_CPU, backend="torch", threads="all"),
    case("gemm.peak_share", 30 / 80, **_CPU, backend="torch", threads=2),
    case("gemm.scaling_efficiency", 30 / 40, **_CPU, backend="best", threads=2),
    case("peak.mac_per_cycle", 40.0, threads=2),
    # Of one thread alone, though two were measured.
    case("peak.scalar_mac_per_cycle", {1: 2.0}, by="threads"),
)


def test_a_clock_that_falls_with_the_rate_does_not_widen_their_ratio(synthetic: Factory) -> None:
    node = product(product(synthetic(gpus=1), 3e12), 3e12, n=1024)
    for row in node.rows:  # throttled a little more in every round
        row["value"] *= 1 + 0.1 * row["round"] + 1e-5 * row["sample"] * row["round"]
        row["clock_mhz"] /= 1 + 0.1 * row["round"]
    found = evidence(synthetic, node)
    rate, per_cycle = (only(f"gemm.{name}", found, n=512) for name in ("rate", "mac_per_cycle"))
    assert per_cycle["estimate"] == pytest.approx(1000, rel=1e-3)
    assert per_cycle["high"] / per_cycle["low"] < 1.001 < 1.3 < rate["high"] / rate["low"]


def training(synthetic: Factory) -> list[SyntheticNode]:
    return [with_gpu(synthetic), host(synthetic, "node-b", gain=5.0)]


_A, _TORCH = {"node": "node-a"}, {"node": "node-a", "backend": "torch", "dtype": "float32", "threads": 2}
_EQUAL, _BEST = {"precision": "equal", "dtype": "float32"}, {"precision": "best"}
_MFU = {"sources": ("training", "peak")}
test_training = holding(
    training,
    case("training.speedup", 900 / 15, baseline="core", **_EQUAL),
    case("training.speedup", 3000 / 20, baseline="core", **_BEST),
    case("training.speedup", 900 / 27, baseline="node", **_EQUAL),
    case("training.speedup", 50.0, baseline="node", **_BEST),
    case("training.speedup", {"node-a": 900 / 135}, by="node", baseline="fleet", **_EQUAL),
    case("training.speedup", {"node-a": 10.0}, by="node", baseline="fleet", **_BEST),
    case("training.mfu", 18 / 90, **_TORCH, **_MFU),
    case("training.mfu", 900e6 / 1e10, device="gpu", dtype="float32", sources=("training", "gemm")),
    case("training.scaling_efficiency", 0.9, **_TORCH),
    *(case("training.ladder", rate, **_A, rung=rung, detail=detail) for rung, rate, detail in (
        ("one core, as it comes", 10.0, "torch, float32"), ("one core, at its best", 20.0, "torch, bfloat16"),
        ("all cores, as it comes", 18.0, "torch, float32"), ("all cores, best library", 27.0, "onednn, float32"),
        ("all cores, at their best", 60.0, "inductor, bfloat16"), ("GPU, float32", 900.0, "torch, float32"),
        ("GPU, at its best", 3000.0, "torch, bfloat16"),
    )),
)  # fmt: skip


def test_each_gpu_is_held_against_its_own_host_and_the_fleet_is_named(made: Made, synthetic: Factory) -> None:
    fleet = cases("training.speedup", made(training), baseline="fleet")
    other = made(training).label("node-b")
    assert set(fleet["detail"]) == {f"over {other}", f"bfloat16 over {other}, bfloat16"}
    nodes = [synthetic(name, gpus=1, cores=cores) for name, cores in (("small", 2), ("large", 8))]
    for node in nodes:
        step(step(node, 10 * node.cores, threads=node.cores), 1000, **ONE_GPU)
    alone = cases("training.speedup", evidence(synthetic, *nodes), baseline="node", precision="equal")
    assert dict(alone.rows("node", "estimate")) == {"small": pytest.approx(50), "large": pytest.approx(12.5)}
    one = Factory(synthetic.root.parent / "one")
    assert "fleet" not in set(cases("training.speedup", evidence(one, with_gpu(one)))["baseline"])


def test_a_gpu_is_compared_by_the_faster_of_eager_and_captured_steps(synthetic: Factory) -> None:
    node = step(with_gpu(synthetic), 1800, backend="graph", **ONE_GPU)
    found = evidence(synthetic, step(node, 1500, backend="graph", dtype="bfloat16", **ONE_GPU))
    case("training.capture_gain", {"float32": 2.0, "bfloat16": 0.5}, by="dtype").check(found)
    case("training.speedup", 1800 / 15, baseline="core", **_EQUAL).check(found)
    case("training.speedup", 3000 / 20, baseline="core", **_BEST).check(found)
    case("training.ladder", 1800, **_A, rung="GPU, float32", detail="graph, float32").check(found)
    (shown,) = training_pages.captured_exhibit(View("node-a", "A server", {}, found.table, found), "captured-1")
    assert "0.50 to 2 times" in shown.chart.title
    assert shown.table and [row[0] for row in shown.table.rows] == [
        "mlp, batch 32, bfloat16, GPU", "mlp, batch 32, float32, GPU",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "status", "reason", "there"),
    [
        (256, "oom", "CUDA out of memory", True),
        (256, "skipped", "memory: needs 9 GiB", True),
        (256, "skipped", "budget: one call needs 9 s", False),
        (4, "oom", "another process took the memory", False),
    ],
)
def test_the_largest_batch_over_an_eighth_of_it(
    synthetic: Factory, refused: int, status: str, reason: str, there: bool
) -> None:
    node, about = synthetic(gpus=1), {"model": "gpt2", "dtype": "bfloat16", **ONE_GPU}
    for batch, rate in {8: 80.0, 16: 150.0, 32: 250.0, 64: 380.0, 128: 400.0}.items():
        step(node, rate, batch, **about)
    step(node, 1.0, refused, **about, status=status, reason=reason)
    found = cases("scaling.throughput_over_eighth", evidence(synthetic, node)).rows("batch", "estimate", "detail")
    detail = "256 does not fit; from 64 on within a tenth of the highest rate"
    assert found == ([(128, pytest.approx(400 / 150), detail)] if there else [])


def climbed(synthetic: Factory) -> SyntheticNode:
    """Products and training steps at these rates, in GFLOP/s."""
    node = synthetic(gpus=1)

    def at(rate: float, m: int = 1000, steps: float = 0, **more: Any) -> None:
        flop = 2.0 * m * 1000 * 1000
        params = {"m": m, "n": 1000, "k": 1000}
        node.point("gemm", flop / (rate * GIGA), params=params, flop=flop, **{"spread": 0, **more})
        if steps:
            step(node, 1000 * steps, **more)

    at(0.03, 4, 0.03, backend="python", dtype="float64")
    at(4, steps=4, backend="scalar")
    at(50, steps=50, backend="simd")
    for threads, gain in ((1, 1.0), (2, 1.8)):
        at(100 * gain, steps=40 * gain, backend="torch", threads=threads)
        at(240 * gain, steps=60 * gain, backend="onednn", threads=threads)
        at(480 * gain, backend="onednn", threads=threads, dtype="bfloat16")
    at(500, backend="blis")  # the fastest on one core, and not tried on all
    at(3000, **ONE_GPU)  # of which two thirds of the time are the launch
    at(9000, metric="graph_time", **ONE_GPU)
    at(90000, dtype="bfloat16", **ONE_GPU)
    # What must not be taken for a rung: another shape, another batch, another model.
    at(1e6, 2000, backend="onednn")
    step(node, 1e9, batch=64)
    step(node, 1e9, model="gpt")
    for threads, rate in ((1, 40), (2, 50), (4, 60)):
        about: dict[str, Any] = {"backend": "llvm", "dtype": "float64", "spread": 0, "bytes": 1e9}
        node.point("bandwidth", 1 / rate, threads=threads, params={"op": "triad", "footprint": 2**28}, **about)
    return node


_RUNGS = {
    "interpreted loop": (0.03, "python, float64"), "compiled loop, scalar": (4, "scalar, float32"),
    "compiled loop, vectors": (50, "simd, float32"), "PyTorch, one core": (100, "torch, float32"),
    "PyTorch as it comes": (180, "torch, float32"), "best library, one core": (500, "blis, float32"),
    "best library, all cores": (432, "onednn, float32"), "bfloat16, all cores": (864, "onednn, bfloat16"),
    "GPU, float32": (9000, "torch, float32"), "GPU, best format": (90000, "torch, bfloat16"),
}  # fmt: skip
_STEPS = {"interpreted loop": 0.03, "PyTorch as it comes": 72, "best library, one core": 60,
          "best library, all cores": 108}  # fmt: skip
_ONE = {"work": "product", "sources": ("gemm",)}
test_ladder = holding(
    climbed,
    *(case("ladder.rate", rate * GIGA, rung=name, detail=said, **_ONE) for name, (rate, said) in _RUNGS.items()),
    *(case("ladder.rate", rate * GIGA, work="training step", rung=rung, sources=("training",))
      for rung, rate in _STEPS.items()),
    case("bandwidth.scaling_efficiency", {2: 50 / 80, 4: 60 / 160}, by="threads", backend="best"),
)  # fmt: skip


def libraries(synthetic: Factory) -> SyntheticNode:
    node = layer(layer(layer(synthetic(gpus=1), 1e-3), 6e-3, "native"), 0.5e-3, "searched")
    layer(layer(node, 0.25e-3, dtype="tf32"), 2e-3, "native", dtype="tf32")
    layer(layer(node, 1e-3, kind="lstm", shape="256"), 0.9e-3, "native", kind="lstm", shape="256")
    layer(node, 5e-3, kind="lstm", shape="512")  # nothing to hold it against
    layer(layer(node, 1e-2, device="cpu"), 3e-2, "native", device="cpu")
    for variant, seconds in (("library", 1e-3), ("tiled", 8e-3), ("naive", 2e-2)):
        layer(node, seconds, variant, "product", "1024")
    layer(node, 0.2e-3, "library", "product", "1024", dtype="tf32")
    # Of short products most of the time is the host's, which launches them; longer ones are not timed in a graph.
    for seconds, more in ((8e-6, {}), (32e-6, {"metric": "graph_time"})):
        layer(node, max(seconds, 32e-6), "library", "product", "512", **more)
        layer(node, seconds / (1 if not more else 8), "library", "product", "512", dtype="tf32", **more)
    layer(node, 64e-6, "naive", "product", "512")
    for variant, seconds in (("library", 1e-3), ("float32_sums", 1.5e-3)):
        layer(node, seconds, variant, "product", "16384", dtype="bfloat16")
    return node


_PRODUCT, _LAYER = {"layer": "product", "shape": "1024"}, {"layer": "convolution", "device": "gpu"}
test_libraries = holding(
    libraries,
    case("libraries.rate", 2e12, **_LAYER, variant="searched"),
    case("libraries.gain", {"native": 6.0}, by="variant", **_LAYER, dtype="float32"),
    case("libraries.gain", 8.0, **_LAYER, dtype="tf32"),
    case("libraries.gain", {"256": 0.9}, by="shape", layer="lstm"),
    case("libraries.gain", {"tiled": 8.0}, by="variant", **_PRODUCT),  # the faster of this project's kernels
    case("libraries.gain", 3.0, device="cpu"),
    case("libraries.matrix_unit_gain", 5.0, **_PRODUCT),
    case("libraries.matrix_unit_gain", 2.0, **_LAYER),  # the searched algorithm is the best without them
    case("libraries.matrix_unit_gain", 8.0, layer="product", shape="512"),
    case("libraries.gain", {"naive": 2.0}, by="variant", layer="product", shape="512"),
)


def vulkan(synthetic: Factory) -> SyntheticNode:
    """The study's own kernel on a GPU, and products of the library, one of them of the same shape and format."""
    node = synthetic("node-a", gpus=1)
    about: dict[str, Any] = {"flop": 2.0 * 2048**3, "spread": 1e-4}
    node.point("without-cuda", 4e-3, backend="cuda", params={"kernel": "naive", "n": 2048}, **about, **ONE_GPU)
    for seconds, more in ((4e-4, ONE_GPU), (1e-4, {"dtype": "bfloat16", **ONE_GPU}), (1.0, {"device": "cpu"})):
        node.point("gemm", seconds, params={"m": 2048, "n": 2048, "k": 2048}, **about, **more)
    return product(node, 1e18)


test_without_cuda = holding(vulkan, case("without_cuda.naive_over_library", 0.1, rel=0.01))


def inference(synthetic: Factory) -> SyntheticNode:
    node = zoo(synthetic, gpus=1)
    ask(node, "mlp", 20e-6, threads=1, backend="onnx")  # the quickest; no partner with one thread
    ask(node, "mlp", 1e-3, batch=32, threads=2)
    ask(node, "mlp", 40e-6, threads=2, backend="inductor")
    ask(node, "mlp", 10e-6, threads=2, backend="onnx", dtype="int8")
    ask(node, "mlp", 100e-6, **ONE_GPU)
    ask(node, "mlp", 50e-6, backend="graph", **ONE_GPU)
    begun = len(node.rows)
    ask(node, "mlp", 100e-6, batch=2, threads=2, samples=200)
    for row in node.rows[begun:]:
        row["value"] = 1e-6 * (row["sample"] + 1) * 1.01 ** row["round"]
    say(node, "prefill", 0.5, 4e10, 4e8)
    say(node, "decode", 0.02, 1e9, 4e8)
    return node


_MLP = {"device": "cpu", "model": "mlp", "dtype": "float32"}
test_inference = holding(
    inference,
    case("inference.latency_s", 20e-6, **_MLP, batch=1, backend="best", detail="onnx, 1 thread",
         sources=("inference",)),
    case("inference.fastest_p99_s", 2e-3, model="gpt-1m", detail="float32, onnx, 2 threads"),
    # Fewer than a hundred samples a round say nothing of it.
    case("inference.fastest_p99_s", {2: 198e-6 * 1.01**2}, by="batch", device="cpu", model="mlp", batch=[2, 32]),
    case("inference.onnx_gain", {2: 2.0}, by="threads", model="mlp"),
    case("inference.int8_gain", 2.5),
    case("generation.tokens_per_s", {"prefill": 4 * 256 / 0.5, "decode": 4 / 0.02}, by="phase"),
)  # fmt: skip


# A chip whose threads do 1 GFLOP/s each until 50,000 of them are at work.
FULL = 50_000
COUNTS = (1, 32, 1024, 8192, 16384, 32768, 65536, 1048576)


def work(node: SyntheticNode, seconds: float, kernel: str, device: str = "cuda:0", **more: Any) -> None:
    params = {"kernel": kernel, **{name: more.pop(name, 0) for name in ("in_flight", "paths", "n")}}
    more = {"spread": 1e-3, "backend": "cupy", **more}
    node.point("parallelism", seconds, device=device, dtype="", params=params, **more)


def chip(synthetic: Factory, counts: tuple[int, ...] = COUNTS, power: float = 1.0, spread: float = 1e-3) -> Any:
    """The chip; with power < 1 its threads hinder each other from the second on."""
    node = synthetic("node-a", gpus=1)
    for threads in counts:
        seconds = 1e6 * threads / (GIGA * min(threads, FULL) ** power)
        work(node, seconds, "chains", in_flight=threads, flop=1e6 * threads, spread=spread)
    return node


def parallel(synthetic: Factory) -> SyntheticNode:
    node: SyntheticNode = chip(synthetic)
    for paths, seconds in ((1, 1e-3), (8, 7e-3), (32, 24e-3)):
        work(node, seconds, "paths", paths=paths)
    # A vector unit goes through every path; past 16 of them single elements are faster.
    for paths in (1, 8, 32):
        work(node, 1e-4 * paths, "paths", "cpu", paths=paths, backend="llvm")
        work(node, 2e-3, "paths", "cpu", paths=paths, backend="llvm-scalar")
    return node


test_parallelism = holding(
    parallel,
    # Nine tenths lie between shares of 0.655 and 1.
    case("parallelism.threads_for_90_percent", 32768 * 2 ** (np.log(0.9 / 0.65536) / np.log(1 / 0.65536)), low=32768,
         high=65536, rel=0.02),
    # Up to half of the threads that would fill the chip.
    case("parallelism.linearity", dict.fromkeys(COUNTS[1:5], 1.0), by="in_flight", rel=0.01),
    case("parallelism.divergence_cost", {8: 7, 32: 24}, by="paths", device="gpu", rel=0.01),
    case("parallelism.divergence_cost", 20, device="cpu", paths=32, detail="llvm-scalar", rel=0.01),
    case("parallelism.divergence_cost", 8, device="cpu", paths=8, detail="llvm", rel=0.01,
         labels={"node": "node-a", "device": "cpu", "paths": 8}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "spread", "low", "high"),
    [((1, 16384, 44000, 46000, 65536), 0.03, 16384, 65536), ((65536, 131072), 1e-3, float("nan"), 65536)],
    ids=["what the intervals cannot tell widens the bracket", "full from the start"],
)
def test_the_bracket_of_nine_tenths(
    synthetic: Factory, counts: tuple[int, ...], spread: float, low: float, high: float
) -> None:
    found = only("parallelism.threads_for_90_percent", evidence(synthetic, chip(synthetic, counts, spread=spread)))
    assert [found["low"], found["high"]] == pytest.approx([low, high], nan_ok=True)
    assert found["estimate"] <= high and not found["estimate"] < low


def test_threads_that_hinder_each_other_are_not_proportional(synthetic: Factory) -> None:
    # The best rate is that of 1,951 free threads: 1,024 are more than half of them.
    case("parallelism.linearity", 32**-0.3, rel=0.02).check(evidence(synthetic, chip(synthetic, power=0.7)))


METHODS = ("cell_order", "permuted", "summation", "split_k", "threads", "libraries", "repeat")


def odd(synthetic: Factory) -> SyntheticNode:
    """Results that differ, and counts of models."""
    node = synthetic("node-a", gpus=1)
    once: dict[str, Any] = {"unit": "1", "samples": 1}

    def spreads(method: str, ulp: float, **more: Any) -> None:
        params, values = {"method": method, "m": 64, "n": 48, "k": 768}, {"spread_ulp": ulp, "error_ulp": 2 * ulp}
        node.point("numerics", values, params=params, **once, **more)

    def repeated(n: int, distinct: float, spread: float, **more: Any) -> None:
        about: dict[str, Any] = {"params": {"method": "repeat", "m": n, "n": n, "k": n}, **once, **more}
        node.point("numerics", distinct, metric="distinct_results", spread=0, **about)
        node.point("numerics", 1e14, metric="fingerprint", spread=spread, **about)

    for ulp, method in enumerate(METHODS):
        spreads(method, ulp, spread=1e-4 if ulp else 0)
    spreads("threads", 3, spread=1.5, dtype="bfloat16")
    spreads("cell_order", 0, spread=0, rounds=1, dtype="float64")
    repeated(8, 4, 0)
    repeated(9, 4, 0.3)
    repeated(10, 1, 0, rounds=1)
    counted(node, "mlp", parameters=300, levels=5, span=29, width=262, median_width=51, length=10, step_flop=18e3,
            forward_flop=6e3)  # fmt: skip
    return counted(node, "lstm-32", levels=449, span=969, width=890, median_width=512)


_DEFAULT = {"dtype": "float32", "shape": "64x48x768"}
_WIDTH: dict[str, Any] = {"width": "exact", "model": "mlp"}
test_numerics_and_counts = holding(
    odd,
    case("numerics.spread_across_cells_ulp", 0, method="cell_order", width="exact", **_DEFAULT),
    case("numerics.spread_across_cells_ulp", 0, dtype="float64", width="unknown"),
    case("numerics.spread_across_cells_ulp", {"cell_order": 0, "permuted": 1}, by="method", width="any", **_DEFAULT),
    case("numerics.spread_within_cell_ulp", {name: ulp for ulp, name in enumerate(METHODS) if 1 < ulp < 6}, by="method",
         **_DEFAULT),
    # A spread is never negative.
    case("numerics.spread_within_cell_ulp", 2.5513, dtype="bfloat16", low=0, high=6.6172),
    case("numerics.determinism", {"8x8x8": 4, "9x9x9": 4}, by="shape", over="calls", n=[8, 9], width="exact"),
    case("numerics.determinism", {"calls": 1}, by="over", n=10, width="unknown"),
    case("numerics.determinism", {"8x8x8": 1, "9x9x9": 3}, by="shape", over="rounds", width="exact"),
    # Counts are exact although they were made once.
    case("sequential.parallel_width", 262, level="widest", **_WIDTH),
    case("sequential.parallel_width", 512, model="lstm-32", level="median", width="exact"),
    case("sequential.dependent_levels", {"operators": 5, "operators, sums as trees": 29}, by="counted", **_WIDTH),
    case("models.flop_per_parameter_token", {"training": 6, "inference": 2}, by="of", **_WIDTH),
)  # fmt: skip


def recurrent(synthetic: Factory, flop: float) -> Dataset:
    """A GPU that gains 2 with the LSTM and 20 with the transformer, at batch 16 of each."""
    node = synthetic(gpus=1)
    for model, batch, gain, work in (
        ("lstm-128", 16, 2.0, flop), ("gpt-1m", 16, 20.0, 1.1e9), ("gpt-1m", 256, 100.0, 17.6e9), ("mlp", 32, 1.0, 1e9),
    ):  # fmt: skip
        for device, threads, seconds in (("cpu", 1, 2.0), ("cpu", 2, 1.0), ("cuda:0", 0, 1 / gain)):
            about: dict[str, Any] = {"params": {"model": model, "batch": batch}, "flop": work, "spread": 1e-4}
            node.point("training", seconds, device=device, threads=threads, **about)
    return evidence(synthetic, node)


def test_the_recurrence_is_compared_with_the_step_of_like_arithmetic(synthetic: Factory) -> None:
    name, found = "sequential.recurrent_over_transformer", recurrent(synthetic, 1e9)
    by = [(baseline, precision) for baseline in ("core", "node") for precision in ("best", "equal")]
    case(name, dict.fromkeys(by, 0.1), by=("baseline", "precision"), model="lstm-128", batch=16, rel=0.01,
         detail="over gpt-1m, batch 16, torch over torch").check(found)  # fmt: skip
    place = {"baseline": "node", "precision": "equal"}
    sides = cases("training.speedup", found, **place, model=["lstm-128", "gpt-1m"], batch=16).numbers("se")
    assert only(name, found, **place)["se"] == pytest.approx((sides**2).sum() ** 0.5, rel=1e-6)


def test_steps_of_unlike_arithmetic_are_not_compared(synthetic: Factory) -> None:
    assert not len(cases("sequential.recurrent_over_transformer", recurrent(synthetic, 1e7)))
