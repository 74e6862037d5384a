"""Formulas: units are checked at once, intervals follow from the inputs, every input can be moved, and all is told."""

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
WITH = [quantity for quantity in quantities().values() if quantity.formulas]


def known(synthetic: Factory, *entries: dict[str, Any]) -> Dataset:
    return Dataset(nodes_dataset(synthetic, synthetic("node-a").clock()).nodes, {one["id"]: one for one in entries})


def cases(value: float, se: float = 0.02, df: float = 8.0, **labels: Any) -> Estimates:
    row = {"estimate": value, "se": se, "df": df, "n_rounds": 3, "n_samples": 15, "source_rows": (4, 7), "detail": ""}
    return Estimates.from_rows([{**labels, **row}], log=True)


def only(made: Estimates) -> dict[str, Any]:
    (row,) = made.frame.to_dict("records")
    return {str(name): value for name, value in row.items()}


@pytest.mark.parametrize("quantity", WITH, ids=lambda one: one.name)
def test_every_formula_gives_its_quantity_in_its_unit(quantity: Quantity) -> None:
    for formula in quantity.formulas:
        formula.check_units()
        assert Formula(formula.text, quantity.unit, formula.symbols).evaluate(dict.fromkeys(formula.symbols, 1.0))
        assert all(symbol in formula.text for symbol in formula.symbols)


@pytest.mark.parametrize(("hours", "unit", "gpus"), [(240.0, "h", 5.0), (2880.0, "min", 1.0)])
def test_units_are_converted(hours: float, unit: str, gpus: float) -> None:
    made = derive([Derivation({}, DAYS, {"G": assumed_input(hours, unit, "w"), "n": assumed_input(gpus, "1", "w")})])
    assert only(made)["estimate"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "unit", "symbols"),
    [
        ("T = G * n", "s/d", DAYS.symbols),
        ("T = G / n", "USD", DAYS.symbols),
        ("T = G + n", "d", DAYS.symbols),
        # Operations do not pass for a bare number.
        ("T = F / r", "h", {"F": RATE.symbols["F"], "r": ("rate", "1/s")}),
    ],
)
def test_a_formula_whose_sides_differ_is_refused(text: str, unit: str, symbols: dict[str, tuple[str, str]]) -> None:
    with pytest.raises(StudyError, match=f"not in '{unit}'"):
        Formula(text, unit, symbols).check_units()


@pytest.mark.parametrize(("unit", "said"), [("USD", "'USD' cannot be converted to"), ("hrs/wek", "no unit 'hrs/wek'")])
def test_an_entry_in_a_wrong_unit_is_named(synthetic: Factory, unit: str, said: str) -> None:
    found = known(synthetic, make_entry("a.gpu_hours", 240.0, unit))
    work = Derivation({}, DAYS, {"G": documented_input(found, "a.gpu_hours"), "n": assumed_input(5.0, "1", "w")})
    with pytest.raises(StudyError, match=f"a.gpu_hours: its unit does not fit G .*{said}"):
        derive([work])


def test_what_a_source_leaves_open_is_in_the_interval_and_what_is_assumed_is_not(synthetic: Factory) -> None:
    found = known(synthetic, make_entry("a.hours", 240.0, "h", low=120.0, high=480.0))
    made = derive(
        [Derivation({}, DAYS, {"G": documented_input(found, "a.hours"), "n": assumed_input(5.0, "1", "w", 1.0, 10.0)})]
    )
    assert [only(made)[end] for end in ("low", "estimate", "high")] == pytest.approx([1, 2, 4])
    moved = [only(made.move_input(0, "n", end))["estimate"] for end in ("low", "high")]
    assert moved == pytest.approx([10, 1])
    at = only(made.move_input(0, "G", "high"))
    assert at["low"] == at["estimate"] == at["high"] == pytest.approx(4)


def test_an_interval_is_that_of_a_quotient_of_cases() -> None:
    above, below = cases(8e9, unit="FLOP"), cases(2.0, se=0.03, df=5.0)
    made = derive(
        [Derivation({}, RATE, {"F": measured_input(above, 0, "FLOP", ""), "t": measured_input(below, 0, "s", "")})]
    )
    wanted = only(above.drop_labels("unit") / below)
    for name in ("estimate", "low", "high", "se", "df"):
        assert only(made)[name] == pytest.approx(wanted[name], rel=1e-6), name
    assert made.log and only(made)["source_rows"] == (4, 7) and only(made)["n_samples"] == 30
    unknown = measured_input(cases(2.0, math.nan, 0.0), 0, "s", "")
    row = only(derive([Derivation({}, RATE, {"F": assumed_input(1.0, "FLOP", "w"), "t": unknown})]))
    assert row["estimate"] == pytest.approx(0.5) and np.isnan(row["low"]) and np.isnan(row["high"])


def test_what_cases_share_moves_in_all_of_them_and_what_is_their_own_does_not() -> None:
    shared = assumed_input(10.0, "FLOP", "w", 5.0, 20.0)
    made = derive([Derivation({"model": name}, RATE, {"F": shared, "t": measured_input(cases(seconds), 0, "s", "")})
                   for name, seconds in (("a", 1.0), ("b", 2.0))])  # fmt: skip
    assert list(made.move_input(1, "F", "high")["estimate"]) == pytest.approx([20, 10])
    own = list(made.move_input(1, "t", "low")["estimate"])
    assert own[0] == pytest.approx(10) and own[1] > 5
    assert made.find_row({"model": "b"}) == 1 and made.find_row({"model": "c"}) is None and made.find_row({}) is None
