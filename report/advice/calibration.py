"""Fit the formulas' constants to published outcomes, and measure the error on sources that the fit has not seen.

Each constant has a usual value for all hardware classes, from `report.advice.formulas`, and each class may differ from
it. A program, a model and a chip multiply the time by factors of their own (random effects); a year changes it by a
slope. The fit works on logarithms. Its loss grows slowly for outliers (Cauchy), and the usual values act as a prior
(Gaussian in logarithms), so that a kind with few outcomes stays near to them. A source counts as the root from its
number.

Held out: each source in turn is left out, and predicted from the others. Ranges and errors come from these predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from report.advice.formulas import FORMULAS, Formula
from report.advice.jobs import ON_GPU, Situation
from report.advice.outcomes import Outcome

Floats = NDArray[np.float64]
CLASSES = ("cpu", "apple", "integrated", "card", "datacentre")
# The loss's scale, in logarithms: an error by a fourth is ordinary.
ORDINARY = 0.25
# Errors beyond this, in logarithms, count as this much.
FARTHEST = 3.0
# Step for derivatives, in logarithms.
STEP = 1e-5
# A year's progress in software, and experts' gain, in logarithms: usual value and deviation.
YEAR, CARE = (0.0, 0.1), (-0.15, 0.15)
# By how much models, and chips, differ from their formula (one standard deviation).
OWN_FACTOR = 1.4
# A range is made to hold this share.
SHARE = 0.8
# Weight that the counted quantile has in a range's width; a normal distribution's has the rest.
COUNTED = 0.6
# Fewer sources allow no range.
FEWEST_SOURCES = 3


@dataclass(frozen=True)
class Constants:
    """Fitted constants for a kind. values: by class, then by constant.

    factors: on the time, as logarithms, by feature of the job (program, model, chip), then by its name.
    """

    values: Mapping[str, Mapping[str, float]]
    factors: Mapping[str, Mapping[str, float]]
    year: float

    def log_time(self, formula: Formula, situation: Situation) -> float:
        """Return the seconds for one item, as a logarithm."""
        time = formula.time(situation.inputs, self.values[situation.hardware_class])
        own = sum(self.factors[feature].get(name, 0.0) for feature, name in situation.features.items())
        return math.log(time) + own + self.year * situation.inputs["year"]


class _Fit:
    """One vector for a kind's unknowns: constants, their deviations by class, factors, year and care."""

    def __init__(self, kind: str, outcomes: Sequence[Outcome]) -> None:
        self.formula = FORMULAS[kind]
        self.names = list(self.formula.constants)
        self.factors = sorted({item for outcome in outcomes for item in outcome.situation.features.items() if item[1]})
        deviating = [name for name in self.names if self.formula.constants[name].between > 1]
        self.deviations = [(self.names.index(name), place) for name in deviating for place in range(len(CLASSES))]
        constants = self.formula.constants
        centres = [0.0] * (len(self.names) + len(self.deviations))
        scales = [math.log(constants[name].factor) for name in self.names]
        scales += [math.log(constants[self.names[place]].between) for place, _ in self.deviations]
        self.first_factor = len(centres)
        centres += [self._usual_factor(name) if feature == "program" else 0.0 for feature, name in self.factors]
        scales += [
            math.log(self.formula.program_factor if feature == "program" else OWN_FACTOR) for feature, _ in self.factors
        ]
        centres += [YEAR[0], CARE[0]]
        scales += [YEAR[1], CARE[1]]
        self.centres, self.scales = np.array(centres), np.array(scales)

    def _usual_factor(self, program: str) -> float:
        return -math.log(self.formula.programs.get(program.removesuffix(ON_GPU), 1.0))

    def rows(self, outcomes: Sequence[Outcome]) -> _Rows:
        classes = [CLASSES.index(outcome.situation.hardware_class) for outcome in outcomes]
        shifts = np.zeros((len(outcomes), len(self.names), len(self.centres)))
        factors = np.zeros((len(outcomes), len(self.centres)))
        places = {item: place for place, item in enumerate(self.factors, self.first_factor)}
        for row, outcome in enumerate(outcomes):
            shifts[row, range(len(self.names)), range(len(self.names))] = 1
            for position, (constant, place) in enumerate(self.deviations, len(self.names)):
                shifts[row, constant, position] = float(classes[row] == place)
            for item in outcome.situation.features.items():
                if item in places:
                    factors[row, places[item]] = 1
            factors[row, -2] = outcome.situation.inputs["year"]
            factors[row, -1] = outcome.care
        usual = [
            np.array([self.formula.constants[name].usual(CLASSES[place]) for place in classes]) for name in self.names
        ]
        inputs = [np.array([outcome.situation.inputs[name] for outcome in outcomes]) for name in self.formula.inputs]
        return _Rows(inputs, usual, shifts, factors)

    def log_times(self, unknowns: Floats, rows: _Rows) -> Floats:
        return self._log_formula(rows.shifts @ unknowns, rows) + rows.factors @ unknowns

    def _log_formula(self, shifts: Floats, rows: _Rows) -> Floats:
        """Return the formula's times as logarithms. shifts: of each row's constants, as logarithms."""
        values = [usual * np.exp(shifts[:, place]) for place, usual in enumerate(rows.usual)]
        return np.asarray(np.log(self.formula.function(*rows.inputs, *values)), dtype=float)

    def log_time_slopes(self, unknowns: Floats, rows: _Rows) -> Floats:
        """Return the derivatives of `log_times` by each unknown: rows x unknowns."""
        shifts, slopes = rows.shifts @ unknowns, rows.factors.copy()
        base = self._log_formula(shifts, rows)
        for place in range(len(self.names)):
            moved = shifts.copy()
            moved[:, place] += STEP
            by_constant = (self._log_formula(moved, rows) - base) / STEP
            slopes += by_constant[:, None] * rows.shifts[:, place]
        return slopes

    def solve(self, outcomes: Sequence[Outcome], start: Floats | None = None) -> Floats:
        """Return the unknowns with the least loss. start: where to begin, at the usual values by default."""
        rows = self.rows(outcomes)
        observed = np.log([outcome.time for outcome in outcomes])
        weights = np.sqrt(_weights(outcomes)) / ORDINARY

        begin = self.centres if start is None else start

        def weighted_errors(unknowns: Floats) -> Floats:
            return weights * np.clip(self.log_times(unknowns, rows) - observed, -FARTHEST, FARTHEST)

        def residuals(unknowns: Floats) -> Floats:
            errors = weighted_errors(unknowns)
            slow = np.sign(errors) * np.sqrt(np.log1p(errors**2))
            return np.concatenate([slow, (unknowns - self.centres) / self.scales])

        def slopes(unknowns: Floats) -> Floats:
            errors = np.abs(weighted_errors(unknowns))
            # The loss's derivative tends to 1 at 0.
            near = np.maximum(errors, 1e-6)
            by_error = weights * near / ((1 + near**2) * np.sqrt(np.log1p(near**2))) * (errors < FARTHEST * weights)
            return np.vstack([by_error[:, None] * self.log_time_slopes(unknowns, rows), np.diag(1 / self.scales)])

        solution = least_squares(residuals, begin, slopes, method="lm", x_scale=self.scales, ftol=1e-5, xtol=1e-5)
        return np.asarray(solution.x, dtype=float)

    def constants(self, unknowns: Floats) -> Constants:
        values: dict[str, dict[str, float]] = {}
        for number, name in enumerate(CLASSES):
            shift = unknowns[: len(self.names)].copy()
            for position, (constant, place) in enumerate(self.deviations, len(self.names)):
                if place == number:
                    shift[constant] += unknowns[position]
            values[name] = {
                constant: round_figures(self.formula.constants[constant].usual(name) * math.exp(shift[place]))
                for place, constant in enumerate(self.names)
            }
        programs = [name + ending for name in self.formula.programs for ending in ("", ON_GPU)]
        usual = {name: round(self._usual_factor(name), 4) for name in programs}
        factors: dict[str, dict[str, float]] = {"program": usual, "model": {}, "chip": {}}
        for (feature, name), value in zip(self.factors, unknowns[self.first_factor :], strict=False):
            factors[feature][name] = round(float(value), 4)
        return Constants(values, factors, round(float(unknowns[-2]), 4))


@dataclass(frozen=True)
class _Rows:
    inputs: list[Floats]
    usual: list[Floats]
    shifts: Floats
    factors: Floats


def round_figures(value: float, figures: int = 4) -> float:
    """Round a number to significant figures."""
    return float(f"{value:.{figures}g}")


def _weights(outcomes: Sequence[Outcome]) -> Floats:
    """Weigh each outcome by one over the root of the number that its source has."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.source] = counts.get(outcome.source, 0) + 1
    return np.array([counts[outcome.source] ** -0.5 for outcome in outcomes])


def fit_constants(kind: str, outcomes: Sequence[Outcome]) -> Constants:
    """Fit a kind's constants to all its outcomes."""
    fit = _Fit(kind, outcomes)
    return fit.constants(fit.solve(outcomes))


def held_out_errors(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Floats]:
    """Return log(predicted / observed) by source, with constants from all other sources."""
    fit = _Fit(kind, outcomes)
    # A program, model or chip in the left-out source alone stays at its usual factor, as no outcome moves it.
    start, errors = fit.solve(outcomes), {}
    for source in sorted({outcome.source for outcome in outcomes}):
        others = [outcome for outcome in outcomes if outcome.source != source]
        own = [outcome for outcome in outcomes if outcome.source == source]
        unknowns = fit.solve(others, start)
        # Predictions leave out the gain by experts' care.
        unknowns[-1] = 0.0
        errors[source] = fit.log_times(unknowns, fit.rows(own)) - np.log([outcome.time for outcome in own])
    return errors


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Return the value below which a share lies by weight, between neighbours in proportion."""
    order = np.argsort(values)
    sums = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share, sums / weights.sum(), values[order]))


def range_of_errors(errors: Iterable[Floats]) -> tuple[float, float]:
    """Return the factors from a prediction to both ends in its range, as logarithms.

    A few outcomes far off would widen all ranges, and their number is too small to place them: the half-width is a
    geometric mean between the held-out errors' quantile and a normal distribution's with their median.
    """
    errors = list(errors)
    values = -np.concatenate(errors)
    weights = np.concatenate([np.full(len(each), len(each) ** -0.5) for each in errors])
    middle = weighted_quantile(values, weights, 0.5)
    off = np.abs(values - middle)
    normal = weighted_quantile(off, weights, 0.5) / 0.6745 * 1.2816
    counted = weighted_quantile(off, weights, SHARE)
    half = max(normal, 0.05) ** (1 - COUNTED) * max(counted, 0.05) ** COUNTED
    # The middle moves half as far as the held-out errors say, as they are few.
    return middle / 2 - half, middle / 2 + half


def calibrate(outcomes: Sequence[Outcome], today: date) -> dict[str, Any]:
    """Fit all kinds, and return the record for `data/advice.json`: constants, ranges, and held-out errors."""
    kinds = {
        kind: _calibrate_kind(kind, [outcome for outcome in outcomes if outcome.situation.job.kind == kind])
        for kind in FORMULAS
    }
    medians = [error["median"] for record in kinds.values() for error in record["held_out"]["by_source"].values()]
    return {
        "date": today.isoformat(),
        "share": SHARE,
        "outcomes": len(outcomes),
        "sources": len({outcome.source for outcome in outcomes}),
        "median_error": round(float(np.median(medians)), 4),
        "kinds": kinds,
    }


def _calibrate_kind(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    constants = fit_constants(kind, outcomes)
    errors = held_out_errors(kind, outcomes)
    low, high = range_of_errors(errors.values())
    values = np.concatenate(list(errors.values()))
    inside = [float(np.mean((-each >= low) & (-each <= high))) for each in errors.values()]
    # Answers have their middle at the range's centre.
    centre = (low + high) / 2
    by_source = {
        source: {"outcomes": len(each), "median": round(float(np.median(np.abs(np.expm1(-each - centre)))), 4)}
        for source, each in errors.items()
    }
    sources = {name: {o.source for o in outcomes if o.situation.hardware_class == name} for name in CLASSES}
    return {
        "constants": constants.values,
        "factors": constants.factors,
        "year": constants.year,
        "low": round(low, 4),
        "high": round(high, 4),
        "sources_by_class": {name: len(members) for name, members in sources.items()},
        "held_out": {
            "outcomes": len(values),
            "sources": len(errors),
            "median_error": round(float(np.median([error["median"] for error in by_source.values()])), 4),
            "coverage": round(float(np.mean((-values >= low) & (-values <= high))), 4),
            "coverage_by_source": round(float(np.mean(inside)), 4),
            "width": round(math.exp(high - low), 3),
            "by_source": by_source,
        },
    }


def describe(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table: held-out errors by kind."""
    yield f"{'kind':<12}{'outcomes':>9}{'sources':>9}{'median error':>14}{'inside':>8}{'high/low':>10}"
    for kind, each in record["kinds"].items():
        held_out = each["held_out"]
        yield (
            f"{kind:<12}{held_out['outcomes']:>9}{held_out['sources']:>9}{held_out['median_error']:>14.0%}"
            f"{held_out['coverage']:>8.0%}{held_out['width']:>10.2f}"
        )
    yield f"{'all':<12}{record['outcomes']:>9}{record['sources']:>9}{record['median_error']:>14.0%}"
