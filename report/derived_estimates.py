"""Estimates that formulas give, each with its arithmetic.

The intervals cover the uncertainty in measurements and sources, but not assumptions and alternative figures;
`report.judging.verdict_records` varies these one at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from report import statistics
from report.derivations import Floats, Formula, Input, Labels, measured_input
from report.estimates import Estimates, concat_estimates, merge_source_rows
from report.formatting import labels_text

# Step in an input's logarithm, to differentiate a formula numerically.
_STEP = 1e-4


@dataclass(frozen=True)
class Derivation:
    """Arithmetic for one case: its labels, its formula, and an input for each symbol.

    detail: as in `Estimates`.
    """

    labels: Labels
    formula: Formula
    inputs: Mapping[str, Input]
    detail: str = ""

    def values(self, names: Iterable[str] | None = None, end: str = "value") -> dict[str, float]:
        """Return each input's value in its symbol's unit.

        names: inputs that take the `end` of their range ('low' or 'high') in place of their value; None for no inputs.
        """
        moved = set(names or ())
        return {
            name: self.formula.convert(name, getattr(term, end) if name in moved else term.value, term)
            for name, term in self.inputs.items()
        }


@dataclass(frozen=True)
class DerivedEstimates(Estimates):
    """Cases with their derivations.

    other_results: further results from the same inputs, each with its name and unit.
    """

    derivations: Sequence[Derivation] = ()
    other_results: tuple[tuple[str, str, DerivedEstimates], ...] = ()

    def with_other_results(self, *others: tuple[str, str, DerivedEstimates]) -> DerivedEstimates:
        return replace(self, other_results=others)

    def label(self, **values: Any) -> DerivedEstimates:
        return replace(self, frame=self.frame.assign(**values))

    def drop_labels(self, *labels: str) -> DerivedEstimates:
        return replace(self, frame=Estimates.drop_labels(self, *labels).frame)

    def find_row(self, labels: Labels) -> int | None:
        """Return the row with exactly these labels, None if there is none."""
        same = np.ones(len(self), dtype=bool)
        for name in self.labels:
            column = self.frame[name]
            same &= ((column == labels[name]) if name in labels else column.isna() | (column == "")).to_numpy(bool)
        return int(np.argmax(same)) if same.any() else None

    def move_input(self, row: int, symbol: str, end: str) -> Estimates:
        """Recompute the cases with one input of `row` fixed at the `low` or `high` end of its range.

        If several cases have the input in common, it moves in all of them. A measurement of one case moves in that case
        alone.
        """
        term = self.derivations[row].inputs[symbol]
        rows = (
            [row]
            if term.single_case
            else [n for n, derivation in enumerate(self.derivations) if derivation.inputs.get(symbol) == term]
        )
        fixed = replace(
            term, value=getattr(term, end), low=math.nan, high=math.nan, se=0.0, df=math.inf, in_interval=False
        )
        affected = [self.derivations[n] for n in rows]
        moved = derive(
            [replace(derivation, inputs={**derivation.inputs, symbol: fixed}) for derivation in affected]
        ).frame
        frame = self.frame.copy()
        for name in ("estimate", "low", "high"):
            column = frame[name].to_numpy(float, copy=True)
            column[rows] = moved[name].to_numpy(float)
            frame[name] = column
        return Estimates(frame, self.log)


def derive(derivations: Sequence[Derivation]) -> DerivedEstimates:
    """Evaluate each case's formula. Raises StudyError for a unit that does not fit.

    The interval covers two kinds of uncertainty. For inputs measured on the log scale, standard errors are propagated
    to first order (exact for products and quotients), with degrees of freedom as in `statistics.combine`. For inputs
    with `in_interval`, the interval extends to the smallest and the largest result over all combinations of their ends.
    Without standard errors and such inputs, the case is exact.
    """
    rows: list[dict[str, Any]] = [{} for _ in derivations]
    log = any(term.se != 0 for derivation in derivations for term in derivation.inputs.values())
    log = log and not any(term.in_interval for derivation in derivations for term in derivation.inputs.values())
    for formula in dict.fromkeys(derivation.formula.text for derivation in derivations):
        places = [place for place, derivation in enumerate(derivations) if derivation.formula.text == formula]
        for place, result in zip(places, _evaluate_formula([derivations[place] for place in places], log), strict=True):
            rows[place] = {**derivations[place].labels, **result}
    if not rows:
        return DerivedEstimates(Estimates.empty().frame)
    frame = pd.DataFrame(rows)
    return DerivedEstimates(frame, log, tuple(derivations))


def _evaluate_formula(derivations: Sequence[Derivation], log: bool) -> list[dict[str, Any]]:
    """Evaluate one formula for several derivations; return the columns `VALUES` for each, as a dictionary."""
    formula, names = derivations[0].formula, list(derivations[0].inputs)
    values = [derivation.values() for derivation in derivations]
    arrays = {name: np.array([value[name] for value in values]) for name in names}
    estimate = formula.evaluate(arrays)
    se2, spent = np.zeros(len(derivations)), np.zeros(len(derivations))
    for name in names:
        errors, dfs = (
            np.array([getattr(derivation.inputs[name], of) for derivation in derivations]) for of in ("se", "df")
        )
        if (errors != 0).any():
            up, down = (formula.evaluate({**arrays, name: arrays[name] * np.exp(sign * _STEP)}) for sign in (1, -1))
            part = np.square(np.log(up / down) / (2 * _STEP) * errors)
            se2 += part
            with np.errstate(divide="ignore", invalid="ignore"):
                spent += np.where(part > 0, part / dfs, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(se2 > 0, se2 / spent, np.where(np.isnan(se2), 0.0, np.inf))
    half = np.where(se2 == 0, 0.0, statistics.half_width(np.sqrt(se2), df))
    least, most = _corners(derivations, arrays, estimate)
    results = []
    for place, derivation in enumerate(derivations):
        inputs = [term for term in derivation.inputs.values() if term.n_rounds]
        results.append(
            {
                "estimate": float(estimate[place]),
                "low": float(least[place] * np.exp(-half[place])),
                "high": float(most[place] * np.exp(half[place])),
                "se": float(np.sqrt(se2[place])) if log else math.nan,
                "df": float(df[place]),
                "n_rounds": min((term.n_rounds for term in inputs), default=0),
                "n_samples": sum(term.n_samples for term in inputs),
                "detail": derivation.detail,
                "source_rows": merge_source_rows(term.source_rows for term in inputs),
            }
        )
    return results


def _corners(
    derivations: Sequence[Derivation], arrays: Mapping[str, Floats], estimate: Floats
) -> tuple[Floats, Floats]:
    """Return each case's smallest and largest result over all combinations of `in_interval` range ends."""
    least, most = estimate.copy(), estimate.copy()
    spanning = [name for name in arrays if any(derivation.inputs[name].in_interval for derivation in derivations)]
    for ends in itertools.product(("low", "high"), repeat=len(spanning)):
        corner = dict(arrays)
        for name, end in zip(spanning, ends, strict=True):
            corner[name] = np.array(
                [
                    derivation.values([name] if derivation.inputs[name].in_interval else [], end)[name]
                    for derivation in derivations
                ]
            )
        corner_result = derivations[0].formula.evaluate(corner)
        least, most = np.minimum(least, corner_result), np.maximum(most, corner_result)
    return least, most


@dataclass(frozen=True)
class _LazyDerivations(Sequence[Derivation]):
    """Sequence that makes each derivation only when it is read. There can be very many, and few are read."""

    length: int
    make: Callable[[int], Derivation]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: Any) -> Any:
        if row >= self.length:
            raise IndexError(row)
        return self.make(row)


def with_derivations(cases: Estimates, make: Callable[[int], Derivation]) -> DerivedEstimates:
    """Attach derivations to cases computed in bulk; `make` returns the derivation for a row."""
    return DerivedEstimates(cases.frame, cases.log, _LazyDerivations(len(cases), make))


def _case_text(cases: Estimates, row: int) -> str:
    labels = labels_text(cases.label_values(row))
    return "; ".join(text for text in (labels, str(cases.frame["detail"].iloc[row])) if text)


def quotient(formula: Formula, above: Estimates, below: Estimates) -> DerivedEstimates:
    """Divide `above` by `below`, with derivations.

    The formula's first symbol stands for `above`, the second for `below`.
    """
    numbered = above.label(above_row=range(len(above))) / below.label(below_row=range(len(below)))
    if not len(numbered):
        return DerivedEstimates(numbered.frame, numbered.log)
    rows = list(zip(numbered.frame["above_row"].astype(int), numbered.frame["below_row"].astype(int), strict=True))

    def make(row: int) -> Derivation:
        symbol_rows = zip(formula.symbols.items(), (above, below), rows[row], strict=True)
        inputs = {
            symbol: measured_input(cases, n, unit, _case_text(cases, n))
            for (symbol, (_, unit)), cases, n in symbol_rows
        }
        return Derivation({}, formula, inputs)

    return with_derivations(numbered.drop_labels("above_row", "below_row"), make)


@dataclass(frozen=True)
class _ChainedDerivations(Sequence[Derivation]):
    parts: Sequence[Sequence[Derivation]]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, row: Any) -> Any:
        for part in self.parts:
            if row < len(part):
                return part[row]
            row -= len(part)
        raise IndexError(row)


def concat_derived(parts: Sequence[DerivedEstimates]) -> DerivedEstimates:
    """Concatenate derived cases, as `estimates.concat_estimates`, with their derivations."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return DerivedEstimates(Estimates.empty().frame)
    joined = concat_estimates(filled)
    return DerivedEstimates(joined.frame, joined.log, _ChainedDerivations([part.derivations for part in filled]))
