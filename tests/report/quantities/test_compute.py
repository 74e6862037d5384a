"""Quantities on products, training, libraries, inference and numerics reproduce the values given to synthetic nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from report.pages.families import training as training_pages
from report.pages.figure_data import View
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import GIGA, evidence

from .builders import (
    ONE_GPU,
    add_counts,
    add_generation,
    add_layer,
    add_product,
    add_request,
    add_step,
    all_models_node,
    cpu_gpu_node,
    cpu_node,
)
from .made_cases import DatasetOf, case, case_test, select_row, select_rows


def products_node(synthetic: Factory) -> SyntheticNode:
    node = add_product(synthetic(gpus=1), 1e12, graph=4e12)
    add_product(node, 3e12, n=1024)
    add_product(node, 3e12, graph=6e12, dtype="bfloat16")
    add_product(node, 9e12, n=256, status="wrong", reason="error 0.3")
    node.clock(spread=0).peak(40 * 2 * 3e9, spread=0).peak(80 * 2 * 3e9, threads=2, spread=0)
    node.gemm(20, spread=0).gemm(30, n=1024, threads=2, spread=0).gemm(10, n=1024, backend="numpy", spread=0)
    node.peak(12e9, kernel="scalar_fma", spread=0).peak(24e9, kernel="scalar_fma", threads=2, spread=0)
    return node


_GPU, _CPU = {"device": "gpu", "dtype": "float32"}, {"device": "cpu"}
_SHARE = {"backend": "torch", "device": "gpu", "dtype": "bfloat16"}
test_products = case_test(
    products_node,
    case("gemm.rate", 1e12, **_GPU, backend="torch", n=512),
    case("gemm.rate", 4e12, **_GPU, backend="best", detail="torch graph, 512x512x512"),
    case("gemm.rate", 3e12, **_GPU, backend="torch", shape="best"),
    # 3 TFLOP/s at 1.5 GHz are 2,000 operations per cycle, or 1,000 multiply-adds.
    case("gemm.mac_per_cycle", 1000.0, **_SHARE),
    case("gemm.mac_per_cycle", 2000.0, **{**_SHARE, "backend": "best"}),
    case("gemm.mac_per_cycle", 30.0, **_CPU, backend="torch", threads=2, sources=("gemm", "clock")),
    case("gemm.mac_per_cycle_per_core", 15.0, **_CPU, backend="torch", threads="all"),
    case("gemm.peak_share", 30 / 80, **_CPU, backend="torch", threads=2),
    case("gemm.scaling_efficiency", 30 / 40, **_CPU, backend="best", threads=2),
    case("peak.mac_per_cycle", 40.0, threads=2),
    # The node also measured this peak on two threads, but the quantity uses only one thread.
    case("peak.scalar_mac_per_cycle", {1: 2.0}, by="threads"),
)


def test_clock_falling_with_the_rate_does_not_widen_their_ratio(synthetic: Factory) -> None:
    node = add_product(add_product(synthetic(gpus=1), 3e12), 3e12, n=1024)
    for row in node.rows:  # Times grow and the clock falls from round to round, as on a throttled GPU.
        row["value"] *= 1 + 0.1 * row["round"] + 1e-5 * row["sample"] * row["round"]
        row["clock_mhz"] /= 1 + 0.1 * row["round"]
    data = evidence(synthetic, node)
    rate, per_cycle = (select_row(f"gemm.{name}", data, n=512) for name in ("rate", "mac_per_cycle"))
    assert per_cycle["estimate"] == pytest.approx(1000, rel=1e-3)
    assert per_cycle["high"] / per_cycle["low"] < 1.001 < 1.3 < rate["high"] / rate["low"]


def training_nodes(synthetic: Factory) -> list[SyntheticNode]:
    return [cpu_gpu_node(synthetic), cpu_node(synthetic, "node-b", gain=5.0)]


_A, _TORCH = {"node": "node-a"}, {"node": "node-a", "backend": "torch", "dtype": "float32", "threads": 2}
_EQUAL, _BEST = {"precision": "equal", "dtype": "float32"}, {"precision": "best"}
_MFU = {"sources": ("training", "peak")}
test_training = case_test(
    training_nodes,
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
        ("one core, plain PyTorch", 10.0, "torch, float32"), ("one core, tuned", 20.0, "torch, bfloat16"),
        ("all cores, plain PyTorch", 18.0, "torch, float32"), ("all cores, best library", 27.0, "onednn, float32"),
        ("all cores, tuned", 60.0, "inductor, bfloat16"), ("GPU, float32", 900.0, "torch, float32"),
        ("GPU, tuned", 3000.0, "torch, bfloat16"),
    )),
)  # fmt: skip


def test_gpu_is_compared_with_its_own_host_and_the_named_fleet(dataset_of: DatasetOf, synthetic: Factory) -> None:
    fleet = select_rows("training.speedup", dataset_of(training_nodes), baseline="fleet")
    other = dataset_of(training_nodes).label("node-b")
    assert set(fleet["detail"]) == {f"over {other}", f"bfloat16 over {other}, bfloat16"}
    nodes = [synthetic(name, gpus=1, cores=cores) for name, cores in (("small", 2), ("large", 8))]
    for node in nodes:
        add_step(add_step(node, 10 * node.cores, threads=node.cores), 1000, **ONE_GPU)
    alone = select_rows("training.speedup", evidence(synthetic, *nodes), baseline="node", precision="equal")
    assert dict(alone.rows("node", "estimate")) == {"small": pytest.approx(50), "large": pytest.approx(12.5)}
    single = Factory(synthetic.root.parent / "one")
    assert "fleet" not in set(select_rows("training.speedup", evidence(single, cpu_gpu_node(single)))["baseline"])


def test_gpu_uses_the_faster_of_eager_and_captured_steps(synthetic: Factory) -> None:
    node = add_step(cpu_gpu_node(synthetic), 1800, backend="graph", **ONE_GPU)
    data = evidence(synthetic, add_step(node, 1500, backend="graph", dtype="bfloat16", **ONE_GPU))
    case("training.capture_gain", {"float32": 2.0, "bfloat16": 0.5}, by="dtype").check(data)
    case("training.speedup", 1800 / 15, baseline="core", **_EQUAL).check(data)
    case("training.speedup", 3000 / 20, baseline="core", **_BEST).check(data)
    case("training.ladder", 1800, **_A, rung="GPU, float32", detail="graph, float32").check(data)
    (exhibit,) = training_pages.captured_exhibit(View("node-a", "A server", {}, data.table, data), "captured-1")
    assert "0.50 to 2 times" in exhibit.chart.title
    assert exhibit.table and [row[0] for row in exhibit.table.rows] == [
        "mlp, batch 32, bfloat16, GPU", "mlp, batch 32, float32, GPU",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "status", "reason", "has_estimate"),
    [
        (256, "oom", "CUDA out of memory", True),
        (256, "skipped", "memory: needs 9 GiB", True),
        (256, "skipped", "budget: one call needs 9 s", False),
        (4, "oom", "another process took the memory", False),
    ],
)
def test_throughput_at_the_largest_batch_over_an_eighth(
    synthetic: Factory, refused: int, status: str, reason: str, has_estimate: bool
) -> None:
    node, about = synthetic(gpus=1), {"model": "gpt2", "dtype": "bfloat16", **ONE_GPU}
    for batch, rate in {8: 80.0, 16: 150.0, 32: 250.0, 64: 380.0, 128: 400.0}.items():
        add_step(node, rate, batch, **about)
    add_step(node, 1.0, refused, **about, status=status, reason=reason)
    rows = select_rows("scaling.throughput_over_eighth", evidence(synthetic, node)).rows("batch", "estimate", "detail")
    detail = "256 does not fit; from 64 on within a tenth of the highest rate"
    assert rows == ([(128, pytest.approx(400 / 150), detail)] if has_estimate else [])


def ladder_node(synthetic: Factory) -> SyntheticNode:
    """Return a node with products and training steps at known rates, in GFLOP/s."""
    node = synthetic(gpus=1)

    def add_rate(rate: float, m: int = 1000, steps: float = 0, **more: Any) -> None:
        flop = 2.0 * m * 1000 * 1000
        params = {"m": m, "n": 1000, "k": 1000}
        node.point("gemm", flop / (rate * GIGA), params=params, flop=flop, **{"spread": 0, **more})
        if steps:
            add_step(node, 1000 * steps, **more)

    add_rate(0.03, 4, 0.03, backend="python", dtype="float64")
    add_rate(4, steps=4, backend="scalar")
    add_rate(50, steps=50, backend="simd")
    for threads, gain in ((1, 1.0), (2, 1.8)):
        add_rate(100 * gain, steps=40 * gain, backend="torch", threads=threads)
        add_rate(240 * gain, steps=60 * gain, backend="onednn", threads=threads)
        add_rate(480 * gain, backend="onednn", threads=threads, dtype="bfloat16")
    add_rate(500, backend="blis")  # This product is the fastest on one core, but has no rate on all cores.
    add_rate(3000, **ONE_GPU)  # The launch takes two thirds of the time. The graph in the next line avoids it.
    add_rate(9000, metric="graph_time", **ONE_GPU)
    add_rate(90000, dtype="bfloat16", **ONE_GPU)
    # No rung on the ladder uses these points, because they do not have the ladder's shape, batch or model.
    add_rate(1e6, 2000, backend="onednn")
    add_step(node, 1e9, batch=64)
    add_step(node, 1e9, model="gpt")
    for threads, rate in ((1, 40), (2, 50), (4, 60)):
        about: dict[str, Any] = {"backend": "llvm", "dtype": "float64", "spread": 0, "bytes": 1e9}
        node.point("bandwidth", 1 / rate, threads=threads, params={"op": "triad", "footprint": 2**28}, **about)
    return node


_RUNGS = {
    "interpreted loop": (0.03, "python, float64"), "compiled loop, scalar": (4, "scalar, float32"),
    "compiled loop, vectors": (50, "simd, float32"), "PyTorch, one core": (100, "torch, float32"),
    "PyTorch, all cores": (180, "torch, float32"), "best library, one core": (500, "blis, float32"),
    "best library, all cores": (432, "onednn, float32"), "bfloat16, all cores": (864, "onednn, bfloat16"),
    "GPU, float32": (9000, "torch, float32"), "GPU, best format": (90000, "torch, bfloat16"),
}  # fmt: skip
_STEPS = {"interpreted loop": 0.03, "PyTorch, all cores": 72, "best library, one core": 60,
          "best library, all cores": 108}  # fmt: skip
_ONE = {"work": "product", "sources": ("gemm",)}
test_ladder = case_test(
    ladder_node,
    *(case("ladder.rate", rate * GIGA, rung=name, detail=detail, **_ONE) for name, (rate, detail) in _RUNGS.items()),
    *(case("ladder.rate", rate * GIGA, work="training step", rung=rung, sources=("training",))
      for rung, rate in _STEPS.items()),
    case("bandwidth.scaling_efficiency", {2: 50 / 80, 4: 60 / 160}, by="threads", backend="best"),
)  # fmt: skip


def libraries_node(synthetic: Factory) -> SyntheticNode:
    node = add_layer(add_layer(add_layer(synthetic(gpus=1), 1e-3), 6e-3, "native"), 0.5e-3, "searched")
    add_layer(add_layer(node, 0.25e-3, dtype="tf32"), 2e-3, "native", dtype="tf32")
    add_layer(add_layer(node, 1e-3, kind="lstm", shape="256"), 0.9e-3, "native", kind="lstm", shape="256")
    add_layer(node, 5e-3, kind="lstm", shape="512")  # No other variant computes this shape, so it has no gain.
    add_layer(add_layer(node, 1e-2, device="cpu"), 3e-2, "native", device="cpu")
    for variant, seconds in (("library", 1e-3), ("tiled", 8e-3), ("naive", 2e-2)):
        add_layer(node, seconds, variant, "product", "1024")
    add_layer(node, 0.2e-3, "library", "product", "1024", dtype="tf32")
    # Launches by the host dominate the times of short products, so these are timed in a graph as well. Longer products
    # have no graph times.
    for seconds, more in ((8e-6, {}), (32e-6, {"metric": "graph_time"})):
        add_layer(node, max(seconds, 32e-6), "library", "product", "512", **more)
        add_layer(node, seconds / (1 if not more else 8), "library", "product", "512", dtype="tf32", **more)
    add_layer(node, 64e-6, "naive", "product", "512")
    for variant, seconds in (("library", 1e-3), ("float32_sums", 1.5e-3)):
        add_layer(node, seconds, variant, "product", "16384", dtype="bfloat16")
    return node


_PRODUCT, _LAYER = {"layer": "product", "shape": "1024"}, {"layer": "convolution", "device": "gpu"}
test_libraries = case_test(
    libraries_node,
    case("libraries.rate", 2e12, **_LAYER, variant="searched"),
    case("libraries.gain", {"native": 6.0}, by="variant", **_LAYER, dtype="float32"),
    case("libraries.gain", 8.0, **_LAYER, dtype="tf32"),
    case("libraries.gain", {"256": 0.9}, by="shape", layer="lstm"),
    case("libraries.gain", {"tiled": 8.0}, by="variant", **_PRODUCT),  # The gain is over `tiled`, which beats `naive`.
    case("libraries.gain", 3.0, device="cpu"),
    case("libraries.matrix_unit_gain", 5.0, **_PRODUCT),
    case("libraries.matrix_unit_gain", 2.0, **_LAYER),  # Without matrix units, `searched` is the fastest variant.
    case("libraries.matrix_unit_gain", 8.0, layer="product", shape="512"),
    case("libraries.gain", {"naive": 2.0}, by="variant", layer="product", shape="512"),
)


def vulkan_node(synthetic: Factory) -> SyntheticNode:
    """Return a GPU node with the study's own kernel and with library products, one in the kernel's shape and format."""
    node = synthetic("node-a", gpus=1)
    about: dict[str, Any] = {"flop": 2.0 * 2048**3, "spread": 1e-4}
    node.point("without-cuda", 4e-3, backend="cuda", params={"kernel": "naive", "n": 2048}, **about, **ONE_GPU)
    for seconds, more in ((4e-4, ONE_GPU), (1e-4, {"dtype": "bfloat16", **ONE_GPU}), (1.0, {"device": "cpu"})):
        node.point("gemm", seconds, params={"m": 2048, "n": 2048, "k": 2048}, **about, **more)
    return add_product(node, 1e18)


test_without_cuda = case_test(vulkan_node, case("without_cuda.naive_over_library", 0.1, rel=0.01))


def inference_node(synthetic: Factory) -> SyntheticNode:
    node = all_models_node(synthetic, gpus=1)
    # This request is the fastest, but its gain over PyTorch is unknown, because PyTorch was not timed on one thread.
    add_request(node, "mlp", 20e-6, threads=1, backend="onnx")
    add_request(node, "mlp", 1e-3, batch=32, threads=2)
    add_request(node, "mlp", 40e-6, threads=2, backend="inductor")
    add_request(node, "mlp", 10e-6, threads=2, backend="onnx", dtype="int8")
    add_request(node, "mlp", 100e-6, **ONE_GPU)
    add_request(node, "mlp", 50e-6, backend="graph", **ONE_GPU)
    start = len(node.rows)
    add_request(node, "mlp", 100e-6, batch=2, threads=2, samples=200)
    for row in node.rows[start:]:
        row["value"] = 1e-6 * (row["sample"] + 1) * 1.01 ** row["round"]
    add_generation(node, "prefill", 0.5, 4e10, 4e8)
    add_generation(node, "decode", 0.02, 1e9, 4e8)
    return node


_MLP = {"device": "cpu", "model": "mlp", "dtype": "float32"}
test_inference = case_test(
    inference_node,
    case("inference.latency_s", 20e-6, **_MLP, batch=1, backend="best", detail="onnx, 1 thread",
         sources=("inference",)),
    case("inference.fastest_p99_s", 2e-3, model="gpt-1m", detail="float32, onnx, 2 threads"),
    # A 99th percentile needs at least 100 samples per round. Batch 32 has fewer samples, so it has no estimate.
    case("inference.fastest_p99_s", {2: 198e-6 * 1.01**2}, by="batch", device="cpu", model="mlp", batch=[2, 32]),
    case("inference.onnx_gain", {2: 2.0}, by="threads", model="mlp"),
    case("inference.int8_gain", 2.5),
    case("generation.tokens_per_s", {"prefill": 4 * 256 / 0.5, "decode": 4 / 0.02}, by="phase"),
)  # fmt: skip


# FULL: thread count that fills the invented chip. Up to this number, each thread adds 1 GFLOP/s.
# COUNTS: thread counts that are measured.
FULL = 50_000
COUNTS = (1, 32, 1024, 8192, 16384, 32768, 65536, 1048576)


def add_work(node: SyntheticNode, seconds: float, kernel: str, device: str = "cuda:0", **more: Any) -> None:
    params = {"kernel": kernel, **{name: more.pop(name, 0) for name in ("in_flight", "paths", "n")}}
    more = {"spread": 1e-3, "backend": "cupy", **more}
    node.point("parallelism", seconds, device=device, dtype="", params=params, **more)


def chip_node(synthetic: Factory, counts: tuple[int, ...] = COUNTS, power: float = 1.0, spread: float = 1e-3) -> Any:
    """Return a node with a chip that FULL threads fill. If `power` is below 1, its threads slow each other down."""
    node = synthetic("node-a", gpus=1)
    for threads in counts:
        seconds = 1e6 * threads / (GIGA * min(threads, FULL) ** power)
        add_work(node, seconds, "chains", in_flight=threads, flop=1e6 * threads, spread=spread)
    return node


def parallelism_node(synthetic: Factory) -> SyntheticNode:
    node: SyntheticNode = chip_node(synthetic)
    for paths, seconds in ((1, 1e-3), (8, 7e-3), (32, 24e-3)):
        add_work(node, seconds, "paths", paths=paths)
    # Vector code executes every path, so its time grows with the path count. Scalar code always takes the same time,
    # so it is faster beyond 20 paths.
    for paths in (1, 8, 32):
        add_work(node, 1e-4 * paths, "paths", "cpu", paths=paths, backend="llvm")
        add_work(node, 2e-3, "paths", "cpu", paths=paths, backend="llvm-scalar")
    return node


test_parallelism = case_test(
    parallelism_node,
    # 32,768 threads reach 65.5% of the best rate and 65,536 threads reach all of it, so 90% lies between these counts.
    case("parallelism.threads_for_90_percent", 32768 * 2 ** (np.log(0.9 / 0.65536) / np.log(1 / 0.65536)), low=32768,
         high=65536, rel=0.02),
    # Linearity is the rate per thread divided by the rate of one thread. It is computed only up to FULL / 2 threads.
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
def test_bracket_around_90_percent(
    synthetic: Factory, counts: tuple[int, ...], spread: float, low: float, high: float
) -> None:
    row = select_row(
        "parallelism.threads_for_90_percent", evidence(synthetic, chip_node(synthetic, counts, spread=spread))
    )
    assert [row["low"], row["high"]] == pytest.approx([low, high], nan_ok=True)
    assert row["estimate"] <= high and not row["estimate"] < low


def test_contending_threads_are_not_linear(synthetic: Factory) -> None:
    # If each thread kept the rate of one thread alone, about 1,950 threads would reach the best rate. Linearity is
    # computed up to half that number: here for 32 threads, but not for 1,024.
    case("parallelism.linearity", 32**-0.3, rel=0.02).check(evidence(synthetic, chip_node(synthetic, power=0.7)))


METHODS = ("cell_order", "permuted", "summation", "split_k", "threads", "libraries", "repeat")


def numerics_node(synthetic: Factory) -> SyntheticNode:
    """Return a node with products whose results differ by method and round, and with counts for two models."""
    node = synthetic("node-a", gpus=1)
    once: dict[str, Any] = {"unit": "1", "samples": 1}

    def add_spread(method: str, ulp: float, **more: Any) -> None:
        params, values = {"method": method, "m": 64, "n": 48, "k": 768}, {"spread_ulp": ulp, "error_ulp": 2 * ulp}
        node.point("numerics", values, params=params, **once, **more)

    def add_repeats(n: int, distinct: float, spread: float, **more: Any) -> None:
        about: dict[str, Any] = {"params": {"method": "repeat", "m": n, "n": n, "k": n}, **once, **more}
        node.point("numerics", distinct, metric="distinct_results", spread=0, **about)
        node.point("numerics", 1e14, metric="fingerprint", spread=spread, **about)

    for ulp, method in enumerate(METHODS):
        add_spread(method, ulp, spread=1e-4 if ulp else 0)
    add_spread("threads", 3, spread=1.5, dtype="bfloat16")
    add_spread("cell_order", 0, spread=0, rounds=1, dtype="float64")
    add_repeats(8, 4, 0)
    add_repeats(9, 4, 0.3)
    add_repeats(10, 1, 0, rounds=1)
    add_counts(node, "mlp", parameters=300, levels=5, span=29, width=262, median_width=51, length=10, step_flop=18e3,
            forward_flop=6e3)  # fmt: skip
    return add_counts(node, "lstm-32", levels=449, span=969, width=890, median_width=512)


_DEFAULT = {"dtype": "float32", "shape": "64x48x768"}
_WIDTH: dict[str, Any] = {"width": "exact", "model": "mlp"}
test_numerics_and_counts = case_test(
    numerics_node,
    case("numerics.spread_across_cells_ulp", 0, method="cell_order", width="exact", **_DEFAULT),
    case("numerics.spread_across_cells_ulp", 0, dtype="float64", width="unknown"),
    case("numerics.spread_across_cells_ulp", {"cell_order": 0, "permuted": 1}, by="method", width="any", **_DEFAULT),
    case("numerics.spread_within_cell_ulp", {name: ulp for ulp, name in enumerate(METHODS) if 1 < ulp < 6}, by="method",
         **_DEFAULT),
    # A spread is never negative, so its interval ends at 0.
    case("numerics.spread_within_cell_ulp", 2.5513, dtype="bfloat16", low=0, high=6.6172),
    case("numerics.determinism", {"8x8x8": 4, "9x9x9": 4}, by="shape", over="calls", n=[8, 9], width="exact"),
    case("numerics.determinism", {"calls": 1}, by="over", n=10, width="unknown"),
    case("numerics.determinism", {"8x8x8": 1, "9x9x9": 3}, by="shape", over="rounds", width="exact"),
    # Counts of operators or levels are exact, even if they come from one round.
    case("sequential.parallel_width", 262, level="widest", **_WIDTH),
    case("sequential.parallel_width", 512, model="lstm-32", level="median", width="exact"),
    case("sequential.dependent_levels", {"operators": 5, "operators, sums as trees": 29}, by="counted", **_WIDTH),
    case("models.flop_per_parameter_token", {"training": 6, "inference": 2}, by="of", **_WIDTH),
)  # fmt: skip


def recurrent_dataset(synthetic: Factory, flop: float) -> Dataset:
    """Return evidence in which a GPU speeds up the LSTM 2 times and the transformer 20 times, both at batch 16.

    flop: operations per LSTM step.
    """
    node = synthetic(gpus=1)
    for model, batch, gain, work in (
        ("lstm-128", 16, 2.0, flop), ("gpt-1m", 16, 20.0, 1.1e9), ("gpt-1m", 256, 100.0, 17.6e9), ("mlp", 32, 1.0, 1e9),
    ):  # fmt: skip
        for device, threads, seconds in (("cpu", 1, 2.0), ("cpu", 2, 1.0), ("cuda:0", 0, 1 / gain)):
            about: dict[str, Any] = {"params": {"model": model, "batch": batch}, "flop": work, "spread": 1e-4}
            node.point("training", seconds, device=device, threads=threads, **about)
    return evidence(synthetic, node)


def test_recurrent_step_is_compared_with_a_step_of_similar_work(synthetic: Factory) -> None:
    name, data = "sequential.recurrent_over_transformer", recurrent_dataset(synthetic, 1e9)
    by = [(baseline, precision) for baseline in ("core", "node") for precision in ("best", "equal")]
    case(name, dict.fromkeys(by, 0.1), by=("baseline", "precision"), model="lstm-128", batch=16, rel=0.01,
         detail="over gpt-1m, batch 16, torch over torch").check(data)  # fmt: skip
    place = {"baseline": "node", "precision": "equal"}
    sides = select_rows("training.speedup", data, **place, model=["lstm-128", "gpt-1m"], batch=16).numbers("se")
    assert select_row(name, data, **place)["se"] == pytest.approx((sides**2).sum() ** 0.5, rel=1e-6)


def test_steps_with_different_work_are_not_compared(synthetic: Factory) -> None:
    assert not len(select_rows("sequential.recurrent_over_transformer", recurrent_dataset(synthetic, 1e7)))
