"""Formulas: units are checked at once, intervals follow from the inputs, and every input can be moved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from contract.errors import StudyError
from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed, documented, measured
from report.derived_estimates import DerivedEstimates, Work, derive, join, quotient
from report.estimates import Estimates
from report.quantities import Quantity, quantities

from .conftest import Factory
from .evidence import data

DAYS = Formula("T = G / n", "d", {"G": ("GPU hours", "h"), "n": ("GPUs", "1")})
RATE = Formula("r = F / t", "FLOP/s", {"F": ("operations", "FLOP"), "t": ("time", "s")})
WITH = [quantity for quantity in quantities().values() if quantity.formulas]


def entry(name: str, value: float, unit: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name, "subject": "S", "what": "Something", "value": value, "unit": unit, "date": "2024",
        "source": {"title": "Table 4", "publisher": "P", "url": "https://example.org", "where": "p. 1"},
        "status": "verified", **more,
    }  # fmt: skip


def known(synthetic: Factory, *entries: dict[str, Any]) -> Dataset:
    found = data(synthetic, synthetic("node-a").clock())
    return Dataset(found.nodes, {one["id"]: one for one in entries})


def cells(value: float, se: float = 0.02, df: float = 8.0, **labels: Any) -> Estimates:
    import pandas as pd

    row = {"estimate": value, "se": se, "df": df, "n_rounds": 3, "n_samples": 15, "behind": (4, 7), "detail": ""}
    return Estimates.from_estimates(pd.DataFrame([{**labels, **row}]))


@pytest.mark.parametrize("quantity", WITH, ids=lambda one: one.name)
def test_every_formula_gives_its_quantity_in_its_unit(quantity: Quantity) -> None:
    for formula in quantity.formulas:
        formula.check()
        assert Formula(formula.text, quantity.unit, formula.symbols).evaluate(dict.fromkeys(formula.symbols, 1.0))
        assert all(symbol in formula.text for symbol in formula.symbols)


def test_units_are_converted() -> None:
    work = Work({}, DAYS, {"G": assumed(240.0, "h", "w"), "n": assumed(5.0, "1", "w")})
    assert derive([work]).frame["estimate"].iloc[0] == pytest.approx(2.0)
    minutes = Work({}, DAYS, {"G": assumed(1440.0, "min", "w"), "n": assumed(1.0, "1", "w")})
    assert derive([minutes]).frame["estimate"].iloc[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [("T = G * n", "s/d", "not in 's/d'"), ("T = G / n", "USD", "not in 'USD'"), ("T = G + n", "d", "not in 'd'")],
)
def test_a_formula_whose_sides_differ_is_refused(text: str, unit: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        Formula(text, unit, DAYS.symbols).check()


def test_operations_do_not_pass_for_a_bare_number() -> None:
    with pytest.raises(StudyError, match="not in 'h'"):
        Formula("T = F / r", "h", {"F": RATE.symbols["F"], "r": ("rate", "1/s")}).check()


@pytest.mark.parametrize(("unit", "said"), [("USD", "cannot be made of 'USD'"), ("hrs/wek", "no unit 'hrs/wek'")])
def test_an_entry_in_a_wrong_unit_is_named(synthetic: Factory, unit: str, said: str) -> None:
    found = known(synthetic, entry("a.gpu_hours", 240.0, unit))
    work = Work({}, DAYS, {"G": documented(found, "a.gpu_hours"), "n": assumed(5.0, "1", "w")})
    with pytest.raises(StudyError, match=f"a.gpu_hours: its unit does not fit G .*{said}"):
        derive([work])


def test_what_a_source_leaves_open_is_in_the_interval_and_what_is_assumed_is_not(synthetic: Factory) -> None:
    found = known(synthetic, entry("a.hours", 240.0, "h", low=120.0, high=480.0))
    inputs = {"G": documented(found, "a.hours"), "n": assumed(5.0, "1", "w", 1.0, 10.0)}
    made = derive([Work({}, DAYS, inputs)])
    assert list(made.frame[["low", "estimate", "high"]].iloc[0]) == pytest.approx([1, 2, 4])
    assert [float(made.moved(0, "n", end).frame["estimate"].iloc[0]) for end in ("low", "high")] == pytest.approx(
        [10, 1]
    )
    at = made.moved(0, "G", "high").frame.iloc[0]
    assert at["low"] == at["estimate"] == at["high"] == pytest.approx(4)


def test_entries_beside_bound_the_sensitivity_alone(synthetic: Factory) -> None:
    others = [entry("b.usd", 30.0, "USD/h"), {**entry("c.usd", 99.0, "USD/h"), "status": "not verified"}]
    found = known(synthetic, entry("a.usd", 50.0, "USD/h"), *others)
    price = documented(found, "a.usd", ["b.usd", "c.usd", "d.usd"])
    assert (price.low, price.high, price.spans) == (30, 50, False)
    assert price.entries == ("a.usd", "b.usd") and found.used.entries == {"a.usd", "b.usd"}


def test_an_interval_is_that_of_a_quotient_of_cells() -> None:
    above, below = cells(8e9, unit="FLOP"), cells(2.0, se=0.03, df=5.0)
    made = derive([Work({}, RATE, {"F": measured(above, 0, "FLOP", ""), "t": measured(below, 0, "s", "")})])
    wanted = (above.without("unit") / below).frame.iloc[0]
    for name in ("estimate", "low", "high", "se", "df"):
        assert float(made.frame[name].iloc[0]) == pytest.approx(float(wanted[name]), rel=1e-6), name
    assert made.log and made.frame["behind"].iloc[0] == (4, 7) and made.frame["n_samples"].iloc[0] == 30


def test_an_unknown_interval_stays_unknown() -> None:
    made = derive(
        [Work({}, RATE, {"F": assumed(1.0, "FLOP", "w"), "t": measured(cells(2.0, math.nan, 0.0), 0, "s", "")})]
    )
    row = made.frame.iloc[0]
    assert row["estimate"] == pytest.approx(0.5) and np.isnan(row["low"]) and np.isnan(row["high"])


def test_what_cells_share_moves_in_all_of_them_and_what_is_their_own_does_not() -> None:
    shared = assumed(10.0, "FLOP", "w", 5.0, 20.0)
    works = [
        Work({"model": name}, RATE, {"F": shared, "t": measured(cells(seconds), 0, "s", "")})
        for name, seconds in (("a", 1.0), ("b", 2.0))
    ]
    made = derive(works)
    assert list(made.moved(1, "F", "high").frame["estimate"]) == pytest.approx([20, 10])
    own = made.moved(1, "t", "low").frame["estimate"]
    assert own.iloc[0] == pytest.approx(10) and own.iloc[1] > 5
    assert made.find({"model": "b"}) == 1 and made.find({"model": "c"}) is None and made.find({}) is None


def test_a_quotient_keeps_its_sides() -> None:
    formula = Formula("S = g / c", "1", {"g": ("GPU", "FLOP/s"), "c": ("CPU", "FLOP/s")})
    made = quotient(formula, cells(9e12, model="gpt", device="cuda:0"), cells(3e12, model="gpt", threads=2))
    both = join([made.label(precision="equal"), derive([]), made.label(precision="best")])
    assert isinstance(both, DerivedEstimates) and len(both) == 2
    row = both.find({"model": "gpt", "device": "cuda:0", "threads": 2, "precision": "best"})
    assert row == 1
    work = both.works[row]
    assert work.inputs["g"].value / work.inputs["c"].value == pytest.approx(float(both.frame["estimate"].iloc[row]))
    assert work.inputs["c"].what == "gpt, 2 threads" and work.inputs["g"].behind == (4, 7)


def test_counts_are_rounded_up() -> None:
    formula = Formula("n = a / b", "1", {"a": ("needed", "B"), "b": ("one", "B")}, rounded_up=True)
    inputs = {"a": Input(33.0, "GB", "assumed", "w"), "b": Input(16.0, "GB", "assumed", "w")}
    assert float(derive([Work({}, formula, inputs)]).frame["estimate"].iloc[0]) == 3
