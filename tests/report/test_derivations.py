"""Derived estimates: unit checks, intervals from the inputs, and results for changed inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from contract.errors import StudyError
from report.data.dataset import Dataset
from report.derivations import Formula, assumed_input, documented_input, measured_input
from report.derived_estimates import Derivation, derive
from report.estimates import Estimates
from report.quantities import Quantity, quantities

from .conftest import Factory
from .figure_evidence import nodes_dataset
from .test_claims import make_entry

DAYS = Formula("T = G / n", "d", {"G": ("GPU hours", "h"), "n": ("GPUs", "1")})
RATE = Formula("r = F / t", "FLOP/s", {"F": ("operations", "FLOP"), "t": ("time", "s")})
DERIVED = [quantity for quantity in quantities().values() if quantity.formulas]


def with_entries(synthetic: Factory, *entries: dict[str, Any]) -> Dataset:
    return Dataset(nodes_dataset(synthetic, synthetic("node-a").clock()).nodes, {item["id"]: item for item in entries})


def case(value: float, se: float = 0.02, df: float = 8.0, **labels: Any) -> Estimates:
    row = {"estimate": value, "se": se, "df": df, "n_rounds": 3, "n_samples": 15, "source_rows": (4, 7), "detail": ""}
    return Estimates.from_rows([{**labels, **row}], log=True)


def single_row(estimates: Estimates) -> dict[str, Any]:
    (row,) = estimates.frame.to_dict("records")
    return {str(name): value for name, value in row.items()}


@pytest.mark.parametrize("quantity", DERIVED, ids=lambda quantity: quantity.name)
def test_formulas_match_the_units_declared_by_their_quantities(quantity: Quantity) -> None:
    for formula in quantity.formulas:
        formula.check_units()
        assert Formula(formula.text, quantity.unit, formula.symbols).evaluate(dict.fromkeys(formula.symbols, 1.0))
        assert all(symbol in formula.text for symbol in formula.symbols)


@pytest.mark.parametrize(("hours", "unit", "gpus"), [(240.0, "h", 5.0), (2880.0, "min", 1.0)])
def test_inputs_are_converted_to_the_formula_units(hours: float, unit: str, gpus: float) -> None:
    days = derive([Derivation({}, DAYS, {"G": assumed_input(hours, unit, "w"), "n": assumed_input(gpus, "1", "w")})])
    assert single_row(days)["estimate"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "unit", "symbols"),
    [
        ("T = G * n", "s/d", DAYS.symbols),
        ("T = G / n", "USD", DAYS.symbols),
        ("T = G + n", "d", DAYS.symbols),
        # FLOP is a unit of its own, so F / r is not a time.
        ("T = F / r", "h", {"F": RATE.symbols["F"], "r": ("rate", "1/s")}),
    ],
)
def test_formula_with_inconsistent_units_is_refused(text: str, unit: str, symbols: dict[str, tuple[str, str]]) -> None:
    with pytest.raises(StudyError, match=f"not in '{unit}'"):
        Formula(text, unit, symbols).check_units()


@pytest.mark.parametrize(
    ("unit", "message"), [("USD", "'USD' cannot be converted to"), ("hrs/wek", "no unit 'hrs/wek'")]
)
def test_entry_with_a_wrong_unit_is_refused_by_name(synthetic: Factory, unit: str, message: str) -> None:
    data = with_entries(synthetic, make_entry("a.gpu_hours", 240.0, unit))
    derivation = Derivation({}, DAYS, {"G": documented_input(data, "a.gpu_hours"), "n": assumed_input(5.0, "1", "w")})
    with pytest.raises(StudyError, match=f"a.gpu_hours: its unit does not fit G .*{message}"):
        derive([derivation])


def test_interval_includes_source_ranges_but_not_assumed_ranges(synthetic: Factory) -> None:
    data = with_entries(synthetic, make_entry("a.hours", 240.0, "h", low=120.0, high=480.0))
    days = derive(
        [Derivation({}, DAYS, {"G": documented_input(data, "a.hours"), "n": assumed_input(5.0, "1", "w", 1.0, 10.0)})]
    )
    assert [single_row(days)[end] for end in ("low", "estimate", "high")] == pytest.approx([1, 2, 4])
    moved = [single_row(days.move_input(0, "n", end))["estimate"] for end in ("low", "high")]
    assert moved == pytest.approx([10, 1])
    row = single_row(days.move_input(0, "G", "high"))
    assert row["low"] == row["estimate"] == row["high"] == pytest.approx(4)


def test_interval_from_measured_inputs_matches_a_quotient() -> None:
    above, below = case(8e9, unit="FLOP"), case(2.0, se=0.03, df=5.0)
    rate = derive(
        [Derivation({}, RATE, {"F": measured_input(above, 0, "FLOP", ""), "t": measured_input(below, 0, "s", "")})]
    )
    expected = single_row(above.drop_labels("unit") / below)
    for name in ("estimate", "low", "high", "se", "df"):
        assert single_row(rate)[name] == pytest.approx(expected[name], rel=1e-6), name
    assert rate.log and single_row(rate)["source_rows"] == (4, 7) and single_row(rate)["n_samples"] == 30
    unknown = measured_input(case(2.0, math.nan, 0.0), 0, "s", "")
    row = single_row(derive([Derivation({}, RATE, {"F": assumed_input(1.0, "FLOP", "w"), "t": unknown})]))
    assert row["estimate"] == pytest.approx(0.5) and np.isnan(row["low"]) and np.isnan(row["high"])


def test_moving_a_shared_input_moves_all_cases() -> None:
    shared = assumed_input(10.0, "FLOP", "w", 5.0, 20.0)
    rates = derive([Derivation({"model": name}, RATE, {"F": shared, "t": measured_input(case(seconds), 0, "s", "")})
                   for name, seconds in (("a", 1.0), ("b", 2.0))])  # fmt: skip
    assert list(rates.move_input(1, "F", "high")["estimate"]) == pytest.approx([20, 10])
    own = list(rates.move_input(1, "t", "low")["estimate"])
    assert own[0] == pytest.approx(10) and own[1] > 5
    assert rates.find_row({"model": "b"}) == 1 and rates.find_row({"model": "c"}) is None and rates.find_row({}) is None
