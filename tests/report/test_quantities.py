"""Quantities give what the nodes were built to have."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.data.nodes import read_nodes
from report.judging.filters import select
from report.quantities import TIERS, quantities

from .conftest import Factory, SyntheticNode
from .evidence import of, value


def data(synthetic: Factory, *nodes: SyntheticNode, reference: dict[str, Any] | None = None) -> Dataset:
    return Dataset(read_nodes([synthetic.write(nodes)], True), reference or {})


def products(synthetic: Factory) -> SyntheticNode:
    """Two libraries, two shapes, one and two threads; exact, so that values can be compared."""
    node = synthetic("node-a")
    for threads, gain in ((1, 1.0), (2, 1.6)):
        for backend, rate in (("torch", 10), ("onednn", 20)):
            for n, share in ((256, 0.5), (512, 1.0)):
                node.gemm(rate * share * gain, n=n, backend=backend, threads=threads, spread=0)
        node.peak(32 * 2 * 3e9 * threads, threads=threads, spread=0)
    return node.peak(2 * 2 * 3e9, kernel="scalar_fma", spread=0).clock(spread=0)


def test_products_per_cycle_share_of_peak_and_scaling(synthetic: Factory) -> None:
    found = data(synthetic, products(synthetic))
    best: dict[str, Any] = {"dtype": "float32", "backend": "best"}
    assert value(of("gemm.mac_per_cycle_per_core", found, threads=1, **best)) == pytest.approx(20)
    assert value(of("gemm.mac_per_cycle_per_core", found, threads="all", **best)) == pytest.approx(16)
    assert value(of("gemm.mac_per_cycle", found, threads="all", **best)) == pytest.approx(32)
    assert value(of("gemm.rate", found, threads=1, **best)) == pytest.approx(20 * 2 * 3e9)
    assert value(of("gemm.peak_share", found, threads=1, **best)) == pytest.approx(20 / 32)
    assert value(of("gemm.scaling_efficiency", found, threads="all", **best)) == pytest.approx(0.8)
    assert value(of("peak.scalar_mac_per_cycle", found, threads=1)) == pytest.approx(2)


def test_aggregates_enter_only_when_asked_for(synthetic: Factory) -> None:
    found = data(synthetic, products(synthetic))
    assert len(of("gemm.rate", found, threads=1)) == 4
    assert len(of("gemm.rate", found, threads=1, backend="torch")) == 2
    best = of("gemm.rate", found, threads=1, backend="torch", shape="best")
    assert value(best) == pytest.approx(10 * 2 * 3e9)
    assert best.frame["detail"].iloc[0] == "torch, 512x512x512"


def test_a_ratio_of_quantities_is_wider_than_either(synthetic: Factory) -> None:
    node = synthetic("node-a").gemm(20).gemm(10, n=256).clock()
    found = data(synthetic, node)
    per_cycle = of("gemm.mac_per_cycle_per_core", found, threads=1, backend="best").frame.iloc[0]
    rate = of("gemm.rate", found, threads=1, backend="best").frame.iloc[0]
    assert per_cycle["high"] / per_cycle["low"] > rate["high"] / rate["low"]
    assert per_cycle["n_rounds"] == 3 and per_cycle["n_samples"] == 30


def test_a_wrong_result_is_never_used(synthetic: Factory) -> None:
    node = synthetic("node-a").gemm(20, spread=0).gemm(900, n=256, status="wrong", reason="error 0.3")
    assert value(of("gemm.rate", data(synthetic, node), backend="best")) == pytest.approx(20 * 2 * 3e9)


def test_bandwidth_counts_only_footprints_beyond_the_cache(synthetic: Factory) -> None:
    node = synthetic("node-a", cache=2**20)
    for footprint, rate in ((2**20, 9e10), (2**22, 2e10), (2**24, 1e10)):
        node.point(
            "bandwidth", footprint / rate, params={"op": "triad", "footprint": footprint}, bytes=footprint,
            backend="llvm", threads=2, spread=0,
        )  # fmt: skip
    found = data(synthetic, node)
    assert sorted(of("bandwidth.rate", found, op="triad").frame["footprint"]) == [2**22, 2**24]
    assert value(of("bandwidth.rate", found, op="triad", backend="best")) == pytest.approx(2e10)


def trained(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    job = {"params": {"model": "mlp", "batch": 64}, "spread": 0, "flop": 1e9}
    split = {"time.forward": 0.3, "time.backward": 0.6, "time.update": 0.1}
    for dtype, threads, seconds in (("float32", 1, 1.0), ("float32", 2, 0.5), ("bfloat16", 2, 0.25)):
        metrics = {"time": seconds, **{name: share * seconds for name, share in split.items()}}
        node.point("training", metrics, dtype=dtype, threads=threads, **job)
    node.point("training", 0.01, dtype="float32", device="cuda:0", **job)
    node.point("training", 0.005, dtype="bfloat16", device="cuda:0", **job)
    node.peak(4e9, threads=1, spread=0).peak(8e9, threads=2, spread=0)
    return node.gemm(1e12 / 6e9, device="cuda:0", spread=0)


def test_training_rates_splits_and_utilisation(synthetic: Factory) -> None:
    found = data(synthetic, trained(synthetic))
    assert value(of("training.rate", found, device="cpu", dtype="float32", threads=1)) == pytest.approx(64)
    assert value(of("training.split", found, device="cpu", dtype="float32", threads=1, phase="backward")) == (
        pytest.approx(0.6)
    )
    assert value(of("training.mfu", found, device="cpu", threads=1)) == pytest.approx(1e9 / 4e9)
    assert value(of("training.mfu", found, device="gpu")) == pytest.approx(1e9 / 0.01 / 1e12)


@pytest.mark.parametrize(
    ("baseline", "precision", "ratio"), [("core", "equal", 100), ("node", "equal", 50), ("node", "best", 50)]
)
def test_a_speedup_names_its_base(synthetic: Factory, baseline: str, precision: str, ratio: float) -> None:
    found = data(synthetic, trained(synthetic))
    scope = {"baseline": baseline, "precision": precision}
    if precision == "equal":
        scope["dtype"] = "float32"
    assert value(of("training.speedup", found, **scope)) == pytest.approx(ratio)


def test_device_memory_over_the_link(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    params = {"direction": "host_to_device", "size": 2**28, "host_memory": "pinned"}
    node.point("transfer", 2**28 / 5e10, device="cuda:0", params=params, bytes=2**28, spread=0)
    copy = {"op": "copy", "footprint": 2**30}
    node.point("bandwidth", 2**30 / 3e12, device="cuda:0", params=copy, bytes=2**30, spread=0)
    assert value(of("transfer.memory_ratio", data(synthetic, node))) == pytest.approx(60)


def test_nothing_measured_is_no_cell_and_no_error(synthetic: Factory) -> None:
    found = data(synthetic, synthetic("node-a").clock())
    for quantity in quantities().values():
        if quantity.tier == "measured" and quantity.experiments != ("clock",):
            assert len(quantity.compute(found)) == 0, quantity.name


def entry(name: str, number: float, **more: Any) -> dict[str, Any]:
    return {
        "id": name, "subject": "S", "what": "Something", "value": number, "unit": "1", "date": "2024",
        "source": {"title": "T", "publisher": "P", "url": "https://example.org", "where": "p. 1"},
        "status": "verified", **more,
    }  # fmt: skip


FIGURES = {
    "llama31-405b.gpu_hours": 240.0, "llama31-405b.gpus": 2.0, "llama31-405b.parameters": 1e9,
    "llama31-405b.tokens": 1e9, "llama31-405b.mfu_low": 0.25, "llama31-405b.mfu_high": 1.0, "h100-sxm.bf16_flops": 1e13,
    "llama31-405b.hidden": 4.0, "llama31-405b.ffn": 8.0, "llama31-405b.heads": 4.0, "llama31-405b.kv_heads": 2.0,
}  # fmt: skip


def test_derived_quantities_follow_their_formulas(synthetic: Factory) -> None:
    units = {"llama31-405b.gpu_hours": "h", "h100-sxm.bf16_flops": "FLOP/s"}
    figures = {name: entry(name, number, unit=units.get(name, "1")) for name, number in FIGURES.items()}
    found = data(synthetic, synthetic("a-node"), reference=figures)
    assert value(of("llama405b.days_from_gpu_hours", found)) == 5
    days = of("llama405b.days_from_flop", found).frame.iloc[0]
    at_peak = 6e18 / (2 * 1e13) / 86400
    assert (days["low"], days["estimate"], days["high"]) == pytest.approx((at_peak, 2 * at_peak, 4 * at_peak))
    assert value(of("llama405b.layer_mac_per_token", found)) == 3 * 32 + 2 * 16 + 2 * 16 * 0.5
    assert value(of("product1000.mac", found)) == 1e9


def test_a_figure_that_was_not_verified_is_no_evidence(synthetic: Factory) -> None:
    figures = {name: entry(name, v) for name, v in FIGURES.items()}
    figures["llama31-405b.gpus"]["status"] = "not verified"
    found = data(synthetic, synthetic("a-node"), reference=figures)
    with pytest.raises(MissingSourceError, match="not verified"):
        of("llama405b.days_from_gpu_hours", found)
    assert "llama31-405b.gpus" not in set(of("reference.value", found).frame["entry"])


def test_published_figures_keep_their_range(synthetic: Factory) -> None:
    found = data(synthetic, synthetic("a-node"), reference={"x": entry("x", 2.0, low=1.0, high=3.0)})
    row = of("reference.value", found, entry=["x"]).frame.iloc[0]
    assert (row["low"], row["estimate"], row["high"]) == (1, 2, 3)


@pytest.mark.parametrize("name", list(quantities()))
def test_every_quantity_says_what_it_is(name: str) -> None:
    quantity = quantities()[name]
    assert quantity.tier in TIERS and quantity.compute.__doc__
    assert "{value}" in quantity.says
    if quantity.tier == "measured":
        assert quantity.experiments and "{node}" in quantity.says


def test_a_share_above_its_ceiling_decides_nothing(synthetic: Factory) -> None:
    node = synthetic("node-a").gemm(40).gemm(20, n=256).peak(20 * 2 * 3e9).clock()
    cells = select(quantities()["gemm.peak_share"].estimates(data(synthetic, node)), {"backend": "best"})
    row = cells.frame.iloc[0]
    assert row["estimate"] == pytest.approx(2, rel=0.1)
    assert pd.isna(row["low"]) and "a measurement was disturbed" in row["detail"]
