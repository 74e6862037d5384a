"""Quantities of a request to a GPU and back give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.judging.claims import read_claims
from report.judging.judge import CLAIMS
from report.quantities import offload
from tests.report.deciding import decide

from .conftest import Factory, SyntheticNode
from .evidence import data
from .priced import REFERENCE
from .quantity_cases_2 import Case, case, cases, cells, measured

SQUARE = {"op": "gemm", "m": 1000, "n": 1000, "k": 1000, "uses": 1}
MLP, TINY = {"op": "mlp", "m": 64, "n": 1024, "k": 1024}, {"op": "elementwise", "m": 8, "n": 1, "k": 1}
HOST = {
    "eager": ["enqueue_h2d", "enqueue_compute", "enqueue_d2h", "synchronise"],
    "graph": ["launch", "synchronise"],
}


def to_gpu(
    node: SyntheticNode,
    seconds: float,
    parts: tuple[float, ...] = (),
    *,
    device: str = "cuda:0",
    host_memory: str = "pinned",
    launch: str = "eager",
    **more: Any,
) -> None:
    """A request that takes so long, and its parts on the GPU: h2d, compute, d2h."""
    shape = {name: more.pop(name, one) for name, one in SQUARE.items()}
    on_gpu = device != "cpu"
    params = {**shape, "host_memory": host_memory if on_gpu else "none", "launch": launch}
    values = {"time": seconds, **{f"time.{name}": seconds / len(HOST[launch]) for name in HOST[launch] if on_gpu}}
    values |= {f"device_time.{name}": one for name, one in zip(offload.PARTS, parts, strict=False)}
    node.point("offload", values, params=params, device=device, **{"spread": 1e-4, **more})


def on_cpu(node: SyntheticNode, seconds: float, **more: Any) -> None:
    to_gpu(node, seconds, device="cpu", **more)


def build(synthetic: Factory) -> Dataset:
    node = synthetic("node-a", gpus=1)
    on_cpu(node, 10e-3)
    on_cpu(node, 8e-3, backend="onednn")
    on_cpu(node, 5e-3, threads=2)
    # What the experiment gemm measured counts too, in a number format that requests have.
    product: dict[str, Any] = {"params": {"m": 500, "n": 500, "k": 500}, "spread": 1e-4, "backend": "numpy"}
    node.point("gemm", 4e-3, **product)
    node.point("gemm", 1e-6, dtype="int8", device="cuda:0", **product)
    to_gpu(node, 1e-3, (0.4e-3, 0.1e-3, 0.3e-3))
    to_gpu(node, 0.5e-3, launch="graph", **{**SQUARE, "op": "gemv"})
    to_gpu(node, 0.5e-3, launch="graph", dtype="bfloat16")  # no core has measured this format
    to_gpu(node, 4e-3, host_memory="pageable")
    to_gpu(node, 2e-3, **{**SQUARE, "m": 500, "n": 500, "k": 500})
    on_cpu(node, 1e-6, **TINY)
    to_gpu(node, 1e-5, (1e-6, 4e-6, 1e-6), **TINY)
    to_gpu(node, 100e-6, (20e-6, 10e-6, 30e-6), **MLP)
    to_gpu(node, 1000e-6, (20e-6, 900e-6, 30e-6), uses=100, **MLP)
    # Noise makes the rest negative.
    to_gpu(node, 100e-6, (50e-6, 30e-6, 25e-6), **{**MLP, "m": 65})
    return data(synthetic, node)


found = measured(build)
_EAGER = {"launch": "eager", "host_memory": "pinned"}
_SQUARE = {"op": "gemm", "m": 1000, "dtype": "float32"}
_ONLY = {"sources": ("offload",)}


@cases(
    case("offload.request_time", 10e-3, device="cpu", backend="torch", threads=1, **_SQUARE),
    case("offload.phase_share", {"h2d": 0.4, "compute": 0.1, "d2h": 0.3, offload.REST: 0.2}, by="phase", clock="device",
         **_SQUARE, **_EAGER),
    case("offload.phase_share", dict.fromkeys(HOST["eager"], 0.25), by="phase", clock="host", **_SQUARE, **_EAGER),
    case("offload.phase_share", dict.fromkeys(HOST["graph"], 0.5), by="phase", clock="host", op="gemv"),
    case("offload.phase_share", 0, phase=offload.REST, m=65, width="exact"),
    case("offload.phase_share", None, clock="device", op="gemv"),
    case("offload.transfer_share", {1: 0.5, 100: 0.05}, by="uses", op="mlp", batch=64),
    case("offload.transfer_over_compute", 5, op="mlp", batch=64, uses=1),
    case("offload.transfer_over_compute", 0.5, op="elementwise", labels={"node": "node-a", "device": "cuda:0",
         "op": "elementwise", "size": 64, "uses": 1, "dtype": "float32", "host_memory": "pinned"}),
    case("offload.speedup", 8, baseline="core", detail="over onednn, 1 thread", **_SQUARE, **_EAGER),
    case("offload.speedup", 5, baseline="node", detail="over torch, 2 threads", **_SQUARE, **_EAGER),
    case("offload.speedup", 2, baseline="core", host_memory="pageable"),
    case("offload.speedup", 2, m=500, detail="over numpy, 1 thread", sources=("offload", "gemm")),
    # One thread stands for a node only where all were tried as well.
    case("offload.speedup", {"core": 0.1}, by="baseline", op="elementwise"),
    case("offload.speedup_over_100_cores", 0.08, m=1000, transfers="included", **_ONLY,
         detail="pinned, eager over onednn, 1 thread"),
    case("offload.speedup_over_100_cores", 0.8, transfers="excluded", detail="pinned over onednn, 1 thread", **_ONLY),
)  # fmt: skip
def test_requests(found: Dataset, one: Case) -> None:
    one.check(found)


@pytest.mark.parametrize(
    ("op", "shape", "elements"),
    [("elementwise", (9, 1, 1), 18), ("gemv", (9, 1, 3), 12), ("gemm", (2, 3, 4), 26), ("mlp", (2, 3, 4), 16)],
)
def test_the_size_of_a_request_is_what_travels(op: str, shape: tuple[int, int, int], elements: int) -> None:
    assert offload.size(op, *shape, "float32") == 4 * elements == 2 * offload.size(op, *shape, "bfloat16")


def test_the_sum_of_two_times_is_no_surer_than_they_are(found: Dataset) -> None:
    parts = offload.on_device(found, "h2d"), offload.on_device(found, "d2h"), offload.transfers(found)
    there, back, both = (next(iter(part.only(**SQUARE).rows("estimate", "low", "high"))) for part in parts)
    assert both == pytest.approx([one + other for one, other in zip(there, back, strict=True)], rel=1e-5)


def test_a_batch_and_its_uses_bound_where_loading_hardly_counts(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for m, there, each in ((64, 1e-5, 1e-4), (8192, 1e-3, 1e-3)):
        for uses in (1, 10, 100):
            # Ten uses are enough for a small batch, and not for a large one.
            to_gpu(node, there + uses * each, (there, uses * each, 0.1 * there), **{**MLP, "m": m}, uses=uses)
    (claim,) = (one for one in read_claims(CLAIMS, REFERENCE) if one.id == "W23")
    part = claim.parts[0]
    ruling = decide(part.rule, cells(part.quantity, data(synthetic, node), **part.scope), part.threshold)
    outcomes = zip(ruling.estimates.rows("batch", "uses"), ruling.sides, strict=True)
    assert {key for key, outcome in outcomes if outcome == "supports"} == {(64, 10), (64, 100), (8192, 100)}


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({1000: 2e-5, 10_000: 2e-5, 100_000: 2e-5, 1_000_000: 2e-5}, (80_000, 160_000, 800_000)),
        ({1000: 1e-7, 10_000: 1e-7}, None),
        ({1000: 1e-3, 10_000: 1e-3}, None),
        ({1000: 1e-8, 10_000: 1e-3}, None),
    ],
    ids=["overtakes", "always ahead", "never ahead", "falls behind"],
)
def test_where_the_gpu_overtakes(
    synthetic: Factory, gpu: dict[int, float], expected: tuple[float, float, float] | None
) -> None:
    node = synthetic("node-a", gpus=1)
    for m, seconds in {1000: 1e-6, 10_000: 1e-5, 100_000: 1e-4}.items():
        on_cpu(node, seconds, **{**TINY, "m": m}, spread=0.01)
    for m, seconds in gpu.items():
        to_gpu(node, seconds, **{**TINY, "m": m}, spread=0.01)
    ((*ends, detail),) = cells("offload.crossover", data(synthetic, node), baseline="core").rows(
        "low", "estimate", "high", "detail"
    )
    assert ends == pytest.approx(expected or [float("nan")] * 3, rel=0.1, nan_ok=True)
    assert detail
