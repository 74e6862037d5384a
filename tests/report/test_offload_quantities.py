"""Quantities of a request to a GPU and back give what the nodes were built to have."""

from __future__ import annotations

import math
from typing import Any

import pytest

from report.data.dataset import Dataset
from report.data.reference import REFERENCE, read_reference
from report.estimates import Estimates
from report.judging.claims import Part, read_claims
from report.judging.filters import lacking, select
from report.judging.judge import CLAIMS
from report.judging.rules import decide
from report.quantities import offload, quantities

from .conftest import Factory, SyntheticNode
from .evidence import data, value

HOST = {
    "eager": ["enqueue_h2d", "enqueue_compute", "enqueue_d2h", "synchronise"],
    "graph": ["launch", "synchronise"],
}
SQUARE = {"op": "gemm", "m": 1000, "n": 1000, "k": 1000}


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"offload.{name}"].compute(found), scope)


def on_cpu(node: SyntheticNode, seconds: float, threads: int = 1, backend: str = "torch", **more: Any) -> None:
    shape, more = shaped(more)
    params = {**shape, "host_memory": "none", "launch": "eager"}
    node.point("offload", seconds, params=params, threads=threads, backend=backend, **more)


def to_gpu(
    node: SyntheticNode,
    seconds: float,
    parts: tuple[float, float, float] | None = None,
    host_memory: str = "pinned",
    launch: str = "eager",
    **more: Any,
) -> None:
    """A request that takes so long, and its parts on the GPU: h2d, compute, d2h."""
    shape, more = shaped(more)
    host = (
        ("enqueue_h2d", "enqueue_compute", "enqueue_d2h", "synchronise")
        if launch == "eager"
        else ("launch", "synchronise")
    )
    values = {"time": seconds, **{f"time.{name}": seconds / len(host) for name in host}}
    if parts:
        values |= {"device_time": sum(parts)}
        values |= {f"device_time.{name}": one for name, one in zip(offload.PARTS, parts, strict=True)}
    params = {**shape, "host_memory": host_memory, "launch": launch}
    node.point("offload", values, params=params, device="cuda:0", **more)


def shaped(more: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    shape = {name: more.pop(name, one) for name, one in {**SQUARE, "uses": 1}.items()}
    return shape, {"spread": 0.0, **more}


@pytest.mark.parametrize(
    ("op", "shape", "elements"),
    [
        ("elementwise", (10, 1, 1), 20),
        ("gemv", (10, 1, 30), 40),
        ("gemm", (10, 20, 30), 10 * 30 + 30 * 20 + 10 * 20),
        ("mlp", (10, 20, 30), 2 * 10 * 30),
    ],
)
def test_the_size_of_a_request_is_what_travels(op: str, shape: tuple[int, int, int], elements: int) -> None:
    assert offload.size(op, *shape, "float32") == 4 * elements
    assert offload.size(op, *shape, "bfloat16") == 2 * elements


def test_shares_of_a_request_add_up_on_either_clock(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    to_gpu(node, 100e-6, (20e-6, 10e-6, 30e-6), spread=0.01)
    to_gpu(node, 80e-6, launch="graph", spread=0.01)
    to_gpu(node, 200e-6, host_memory="pageable", spread=0.01)
    found = data(synthetic, node)
    for launch, clock, phases, approximately in (
        ("eager", "device", ["h2d", "compute", "d2h", "launch_and_wait"], [0.2, 0.1, 0.3, 0.4]),
        ("graph", "device", ["h2d", "compute", "d2h", "launch_and_wait"], [0.25, 0.125, 0.375, 0.25]),
        ("eager", "host", ["enqueue_h2d", "enqueue_compute", "enqueue_d2h", "synchronise"], [0.25] * 4),
        ("graph", "host", ["launch", "synchronise"], [0.5] * 2),
    ):
        cells = of("phase_share", found, launch=launch, clock=clock, host_memory="pinned").frame.set_index("phase")
        assert sorted(cells.index) == sorted(phases)
        for phase, share in zip(phases, approximately, strict=True):
            assert cells.loc[phase, "estimate"] == pytest.approx(share, rel=0.1)
            assert cells.loc[phase, "low"] < cells.loc[phase, "estimate"] < cells.loc[phase, "high"]
        assert cells["estimate"].sum() == pytest.approx(1, abs=0.02)
    assert len(of("phase_share", found, host_memory="pageable", clock="device")) == 0
    assert len(of("phase_share", found, host_memory="pageable", clock="host")) == 4


def test_a_rest_that_noise_makes_negative_is_none(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    to_gpu(node, 100e-6, (50e-6, 30e-6, 25e-6))
    assert value(of("phase_share", data(synthetic, node), phase="launch_and_wait")) == 0


def test_transfers_against_the_whole_and_against_the_computation(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    mlp = {"op": "mlp", "m": 64, "n": 1024, "k": 1024}
    to_gpu(node, 100e-6, (20e-6, 10e-6, 30e-6), **mlp)
    to_gpu(node, 1000e-6, (20e-6, 900e-6, 30e-6), uses=100, **mlp)
    to_gpu(node, 10e-6, (1e-6, 4e-6, 1e-6), op="elementwise", m=8, n=1, k=1)
    found = data(synthetic, node)
    assert value(of("transfer_share", found, op="mlp", batch=64, uses=1)) == pytest.approx(0.5)
    assert value(of("transfer_share", found, op="mlp", batch=64, uses=100)) == pytest.approx(0.05)
    assert value(of("transfer_over_compute", found, op="mlp", uses=1)) == pytest.approx(5)
    small = of("transfer_over_compute", found, device="gpu", op="elementwise")
    assert value(small) == pytest.approx(0.5)
    assert small.label_values(0) == {
        "node": "node-a", "device": "cuda:0", "op": "elementwise", "size": 64, "uses": 1, "dtype": "float32",
        "host_memory": "pinned",
    }  # fmt: skip


def test_the_sum_of_two_times_is_no_surer_than_they_are(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    to_gpu(node, 100e-6, (20e-6, 10e-6, 30e-6), spread=0.05)
    found = data(synthetic, node)
    there, back, both = (cells.frame.iloc[0] for cells in (
        offload.on_device(found, "h2d"), offload.on_device(found, "d2h"), offload.transfers(found)
    ))  # fmt: skip
    assert both["estimate"] == pytest.approx(there["estimate"] + back["estimate"])
    wide = (there["high"] - there["low"]) + (back["high"] - back["low"])
    assert both["high"] - both["low"] == pytest.approx(wide, rel=0.05)


def test_a_batch_and_its_uses_bound_where_loading_hardly_counts(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for m, there in ((64, 1e-5), (8192, 1e-3)):
        for uses in (1, 10, 100):
            # Ten uses are enough for a small batch, and not for a large one.
            compute = uses * (1e-4 if m == 64 else 1e-3)
            to_gpu(node, there + compute, (there, compute, 0.1 * there), op="mlp", m=m, n=1024, k=1024, uses=uses)
    (claim,) = (one for one in read_claims(CLAIMS, read_reference(REFERENCE)) if one.id == "W23")
    part = claim.parts[0]
    cells = of("transfer_share", data(synthetic, node), **part.scope)
    ruling = decide(part.rule, cells, part.threshold)
    assert ruling.outcome == "depends"
    assert ruling.boundary == (
        "batch 64: holds from 10 uses on, fails at 1 use; batch 8,192: holds at 100 uses, fails up to 10 uses"
    )


def both(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    on_cpu(node, 10e-3)
    on_cpu(node, 8e-3, backend="onednn")
    on_cpu(node, 5e-3, threads=2)
    to_gpu(node, 1e-3, (0.4e-3, 0.1e-3, 0.4e-3))
    to_gpu(node, 0.5e-3, launch="graph")
    to_gpu(node, 4e-3, host_memory="pageable")
    return node


def test_a_gpu_is_held_against_the_fastest_library_of_its_host(synthetic: Factory) -> None:
    found = data(synthetic, both(synthetic))
    gain = of("speedup", found, launch="eager", host_memory="pinned", baseline="core")
    assert value(gain) == pytest.approx(8)
    assert gain.frame["detail"].iloc[0] == "over onednn, 1 thread"
    assert value(of("speedup", found, launch="eager", host_memory="pinned", baseline="node")) == pytest.approx(5)
    assert value(of("speedup", found, host_memory="pageable", baseline="core")) == pytest.approx(2)


def test_one_thread_stands_for_a_node_where_it_is_fastest_of_all_that_were_tried(synthetic: Factory) -> None:
    node = both(synthetic)
    tiny = {"op": "elementwise", "m": 8, "n": 1, "k": 1}
    on_cpu(node, 1e-6, **tiny)
    to_gpu(node, 1e-5, **tiny)
    assert len(of("speedup", data(synthetic, node), op="elementwise", baseline="node")) == 0
    on_cpu(node, 3e-6, threads=2, **tiny)
    assert value(of("speedup", data(synthetic, node), op="elementwise", baseline="node")) == pytest.approx(0.1)


def test_products_of_the_other_experiment_count_for_the_cpu(synthetic: Factory) -> None:
    node = both(synthetic)
    node.point("gemm", 4e-3, params={"m": 1000, "n": 1000, "k": 1000}, backend="numpy", spread=0.0)
    node.point("gemm", 1e-6, params={"m": 1000, "n": 1000, "k": 1000}, device="cuda:0", dtype="int8", spread=0.0)
    gain = of("speedup", data(synthetic, node), launch="eager", host_memory="pinned", baseline="core")
    assert value(gain) == pytest.approx(4)
    assert gain.frame["detail"].iloc[0] == "over numpy, 1 thread"


def test_a_hundred_cores_are_one_times_a_hundred(synthetic: Factory) -> None:
    node = both(synthetic)
    to_gpu(node, 1e-5, dtype="bfloat16")  # no core has measured this format
    found = data(synthetic, node)
    scope = {"m": 1000, "n": 1000, "k": 1000}
    included = of("speedup_over_100_cores", found, **scope, transfers="included")
    assert value(included) == pytest.approx(8e-3 / 100 / 0.5e-3)
    assert included.frame["detail"].iloc[0] == "pinned, graph over onednn, 1 thread"
    assert value(of("speedup_over_100_cores", found, **scope, transfers="excluded")) == pytest.approx(8e-5 / 1e-4)


def sweep(node: SyntheticNode, cpu: dict[int, float], gpu: dict[int, float], **more: Any) -> SyntheticNode:
    """Times over the number of elements, 8 bytes there and back for each."""
    for m, seconds in cpu.items():
        on_cpu(node, seconds, op="elementwise", m=m, n=1, k=1, **more)
    for m, seconds in gpu.items():
        to_gpu(node, seconds, op="elementwise", m=m, n=1, k=1, **more)
    return node


def test_where_the_gpu_overtakes_lies_between_the_sizes_that_decide(synthetic: Factory) -> None:
    node = sweep(
        synthetic("node-a", gpus=1),
        {1000: 1e-6, 10_000: 1e-5, 100_000: 1e-4},
        {1000: 2e-5, 10_000: 2e-5, 100_000: 2e-5, 1_000_000: 2e-5},
        spread=0.01,
    )
    cell = of("crossover", data(synthetic, node), baseline="core").frame.iloc[0]
    assert (cell["low"], cell["high"]) == (80_000, 800_000)
    assert cell["estimate"] == pytest.approx(160_000, rel=0.1)
    assert cell["detail"] == "the GPU is ahead from size 800,000 on, not up to 80,000"


@pytest.mark.parametrize(
    ("gpu", "detail"),
    [
        ({1000: 1e-7, 10_000: 1e-7}, "the GPU is ahead at every size measured"),
        ({1000: 1e-3, 10_000: 1e-3}, "the CPU is ahead at every size measured"),
        ({1000: 1e-7, 10_000: 1e-3}, "the CPU is ahead from size 80,000 on, not up to 8,000"),
    ],
)
def test_where_the_gpu_does_not_overtake_there_is_no_size(
    synthetic: Factory, gpu: dict[int, float], detail: str
) -> None:
    node = sweep(synthetic("node-a", gpus=1), {1000: 1e-5, 10_000: 1e-5}, gpu, spread=0.01)
    cell = of("crossover", data(synthetic, node), baseline="core").frame.iloc[0]
    assert all(math.isnan(cell[name]) for name in ("estimate", "low", "high"))
    assert cell["detail"] == detail


@pytest.mark.parametrize("name", ["phase_share", "transfer_share", "transfer_over_compute", "speedup", "crossover"])
def test_without_a_gpu_a_comparison_awaits_hardware(synthetic: Factory, name: str) -> None:
    node = synthetic("node-a")
    on_cpu(node, 1e-3)
    found = data(synthetic, node)
    quantity = quantities()[f"offload.{name}"]
    cells = quantity.compute(found)
    assert len(cells) == 0
    verdict, _ = lacking(Part("", quantity.name, "at_least", 5, ""), quantity, cells, found)
    assert verdict == "awaiting hardware"
    assert value(of("request_time", found, op="gemm", device="cpu", threads=1)) == pytest.approx(1e-3)


def test_without_a_cpu_there_is_nothing_to_overtake(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    to_gpu(node, 1e-3, (1e-4, 1e-4, 1e-4))
    found = data(synthetic, node)
    for name in ("speedup", "crossover", "speedup_over_100_cores"):
        assert len(of(name, found)) == 0
