"""Quantity declarations, and quantities on reference figures, which use only verified figures."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.quantities import quantities, quantity
from tests.report.conftest import Factory
from tests.report.priced_nodes import evidence
from tests.report.test_claims import make_entry

from .made_cases import select_row, select_rows


@pytest.mark.parametrize("name", list(quantities()))
def test_every_quantity_has_a_description(name: str) -> None:
    declared = quantities()[name]
    assert declared.compute.__doc__ and (declared.tier != "measured" or declared.experiments)


@pytest.mark.parametrize(
    ("name", "more"), [("gemm.rate", {}), ("a.new", {"tier": "guessed"}), ("a.new", {"labels": ("estimate",)})]
)
def test_invalid_quantity_is_refused(name: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="quantity"):
        quantity(name, "1", **more)(lambda data: data.summary("gemm"))


def test_share_above_its_ceiling_has_no_interval(synthetic: Factory) -> None:
    node = synthetic("node-a").gemm(40).gemm(20, n=256).peak(20 * 2 * 3e9).clock()
    row = select_row("gemm.peak_share", evidence(synthetic, node), backend="best")
    assert row["estimate"] == pytest.approx(2, rel=0.1)
    assert pd.isna(row["low"]) and "a measurement was disturbed" in row["detail"]


def figure_dataset(synthetic: Factory, values: dict[str, dict[str, Any]]) -> Dataset:
    """Return evidence with only these reference entries. values: fields by entry id."""
    data = evidence(synthetic, synthetic("a-node"))
    return Dataset(data.nodes, {name: make_entry(name, **more) for name, more in values.items()})


NUMBERS = {
    "gpu_hours": 240.0, "gpus": 2.0, "parameters": 1e9, "tokens": 1e9, "mfu_low": 0.25, "mfu_high": 1.0,
    "hidden": 4.0, "ffn": 8.0, "heads": 4.0, "kv_heads": 2.0,
}  # fmt: skip
LLAMA: dict[str, dict[str, Any]] = {
    **{f"llama31-405b.{name}": {"value": value} for name, value in NUMBERS.items()},
    "llama31-405b.gpu_hours": {"value": 240.0, "unit": "h"},
    "h100-sxm.bf16_flops": {"value": 1e13, "unit": "FLOP/s"},
}


def test_derived_quantities_follow_their_formulas(synthetic: Factory) -> None:
    data = figure_dataset(synthetic, LLAMA)
    expected = {"llama405b.days_from_gpu_hours": 5, "llama405b.layer_mac_per_token": 3 * 32 + 2 * 16 + 2 * 16 * 0.5,
                "product1000.mac": 1e9}  # fmt: skip
    assert {name: select_row(name, data)["estimate"] for name in expected} == pytest.approx(expected)
    days, at_peak = select_row("llama405b.days_from_flop", data), 6e18 / (2 * 1e13) / 86400
    assert [days[end] for end in ("low", "estimate", "high")] == pytest.approx([at_peak, 2 * at_peak, 4 * at_peak])


def test_unverified_figure_is_no_evidence(synthetic: Factory) -> None:
    data = figure_dataset(synthetic, {**LLAMA, "llama31-405b.gpus": {"value": 2.0, "status": "not verified"}})
    with pytest.raises(MissingSourceError, match="not verified"):
        select_rows("llama405b.days_from_gpu_hours", data)
    assert "llama31-405b.gpus" not in set(select_rows("reference.value", data)["entry"])


def test_published_figures_keep_their_range(synthetic: Factory) -> None:
    row = select_row(
        "reference.value", figure_dataset(synthetic, {"x": {"value": 2.0, "low": 1.0, "high": 3.0}}), entry=["x"]
    )
    assert (row["low"], row["estimate"], row["high"]) == (1, 2, 3)
