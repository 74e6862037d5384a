"""How far a few numbers of a device foretell what its kernels and steps take.

Two numbers: peak arithmetic P, in each format, and bandwidth B. A kernel of F FLOP and M bytes
takes max(F / P, M / B); a step is the sum of its operators. A third number t is what each
launch costs; a fourth, C, is the bandwidth of the last cache, for what fits it.

Each kernel is put into one of two halves by a hash of what it is: numbers are fitted on one half
and judged on the other. The kernels are all that were measured, no sample of others: their median
is a fact about this list, and its interval is that of the measurements. Everything is done round by
round, ceilings and fit included; rounds are the unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from report import stats
from report.cells import Cells
from report.evidence import Data
from report.quantities import quantity
from report.quantities.kernels import PLACE, Floats, Kernels, rounds
from report.wording import with_unit

# How many numbers, and whether peak and bandwidth are taken as measured or fitted.
MODELS = ((2, "measured"), (2, "fitted"), (3, "fitted"), (4, "fitted"))
# Past this logarithm of predicted over measured, a kernel pulls ever less at the numbers.
TOLERATED = 0.25
# Where the search for what a launch costs begins, in seconds; it is by logarithms.
_LAUNCHES = (1e-6, 3e-5)
_LABELS = ("threads", "numbers", "ceilings")
_EXPERIMENTS = ["roofline", "gemm", "bandwidth"]


def fit(kernels: Kernels, numbers: int, ceilings: str) -> dict[str, float]:
    """The numbers that foretell these kernels best, of so many and with ceilings that are fitted or stand as measured.

    Least squares of the logarithms with Cauchy's loss: past TOLERATED, misses count ever less, for it is the
    median that judges. From several starts; the best in the median.
    """
    free = ["peak", "bandwidth"] if ceilings == "fitted" else []
    free += ["launch"] if numbers > 2 else []
    free += ["cache"] if numbers > 3 else []
    if not free:
        return {"peak": 1.0, "bandwidth": 1.0}

    def named(x: Floats) -> dict[str, float]:
        return {"peak": 1.0, "bandwidth": 1.0, **dict(zip(free, map(float, np.exp(x)), strict=True))}

    def misses(x: Floats) -> Floats:
        out: Floats = np.log(kernels.predicted(named(x)) / kernels.seconds)
        return out

    found = []
    for launch in _LAUNCHES if numbers > 2 else (1.0,):
        start = {"peak": 0.0, "bandwidth": 0.0, "launch": np.log(launch), "cache": np.log(3.0)}
        ends = {"peak": (-7, 1), "bandwidth": (-7, 1), "launch": (-23, 0), "cache": (0, 5)}
        bounds = tuple(np.array([ends[name][side] for name in free], float) for side in (0, 1))
        done = least_squares(misses, [start[name] for name in free], loss="cauchy", f_scale=TOLERATED, bounds=bounds)
        found.append((float(np.median(np.abs(misses(done.x)))), named(done.x)))
    return min(found, key=lambda one: one[0])[1]


@dataclass(frozen=True)
class Foretold:
    """The kernels that are judged on one node, device and number of threads, as so many numbers foretell them.

    labels: node, device, threads, numbers, ceilings. fits: the numbers of each round. measured, predicted:
    seconds of shape (rounds, kernels). work, what: of each kernel.
    """

    labels: dict[str, Any]
    fits: Sequence[Mapping[str, float]]
    work: NDArray[np.str_]
    what: NDArray[np.str_]
    measured: Floats
    predicted: Floats

    @property
    def errors(self) -> Floats:
        """|predicted / measured - 1| of each kernel in each round."""
        missed: Floats = np.abs(self.predicted / self.measured - 1)
        return missed


def foretold(data: Data, node: str | None = None) -> list[Foretold]:
    """Predictions of every kernel that is judged (on one node, or on all), by place and how many numbers they take.

    Of places where steps of models were measured too: products alone do not stand for what devices are asked for.
    """
    found = []
    for place, per_round in rounds(data, node).items():
        if not any(what.startswith("roofline") for what in per_round[0].what):
            continue
        judged = [one.half(held=True) for one in per_round]
        for numbers, ceilings in MODELS:
            fits = [fit(one.half(held=False), numbers, ceilings) for one in per_round]
            labels = {**dict(zip(PLACE, place, strict=True)), "numbers": numbers, "ceilings": ceilings}
            measured = np.array([one.seconds for one in judged])
            predicted = np.array([one.predicted(by) for one, by in zip(judged, fits, strict=True)])
            found.append(Foretold(labels, fits, judged[0].work, judged[0].what, measured, predicted))
    return found


def _over_rounds(values: Sequence[float] | Floats, log: bool) -> dict[str, float]:
    """estimate, low, high, se and df from one value a round."""
    made = stats.on_log_scale([values]) if log else stats.on_linear_scale([values], counted=False, share=False)
    names = ("estimate", "low", "high", "se", "df")
    found = {name: float(getattr(made, name)[0]) for name in names}
    return found if log else {**found, "low": max(found["low"], 0.0)}


@quantity(
    "roofline.prediction_error",
    unit="1",
    needs={"experiments": _EXPERIMENTS, "device": "any"},
    labels=_LABELS,
    says="On {node}, the time of half of all kernels and steps is foretold to within {value} of it ({labels})",
)
def prediction_error(data: Data) -> Cells:
    """Median over the kernels that are judged of |predicted / measured - 1|, from two, three and four numbers.

    ceilings: measured (peak and bandwidth as the study's own kernels reach them) or fitted (the
    shares of both that foretell the other half of the kernels best). One value a round; interval by Student's t.
    """
    rows = [
        {
            **one.labels,
            **_over_rounds(np.median(one.errors, axis=1), log=False),
            "n_rounds": len(one.fits),
            "n_samples": one.measured.size,
            "detail": f"{len(one.what)} kernels; {spelt(one.fits)}",
        }
        for one in foretold(data)
    ]
    return Cells(pd.DataFrame(rows), log=False) if rows else Cells.empty()


def spelt(fits: Sequence[Mapping[str, float]]) -> str:
    """The numbers in words, each the median over rounds."""
    middle = {name: float(np.median([one[name] for one in fits])) for name in fits[0]}
    words = [f"{100 * middle['peak']:.0f}% of the peak", f"{100 * middle['bandwidth']:.0f}% of the bandwidth"]
    words += [f"{with_unit(middle['launch'], 's')} a launch"] if "launch" in middle else []
    words += [f"{middle['cache']:.1f} times the bandwidth from the cache"] if "cache" in middle else []
    return ", ".join(words)


@quantity(
    "roofline.bandwidth_error_over_compute_error",
    unit="1",
    needs={"experiments": _EXPERIMENTS, "device": "any"},
    labels=("threads",),
    says="On {node}, bandwidth alone misses the time of kernels by {value} times what arithmetic alone does ({labels})",
)
def bandwidth_error_over_compute_error(data: Data) -> Cells:
    """Median error of predictions from bandwidth alone over that from peak arithmetic alone.

    Each with the one number that foretells the other half best: the median of measured over predicted.
    Kernels that compute and move; passes over memory are left out, for bandwidth is taken from them.
    """
    rows: list[dict[str, Any]] = []
    for place, per_round in rounds(data).items():
        values = [
            _alone(one, one.bytes.sum(axis=1)) / _alone(one, one.flop.sum(axis=1) / one.peak) for one in per_round
        ]
        if np.isfinite(values).all() and min(values) > 0:
            n = int((per_round[0].held & _computes(per_round[0])).sum())
            rows.append(
                {
                    **dict(zip(PLACE, place, strict=True)), **_over_rounds(values, log=True),
                    "n_rounds": len(values), "n_samples": n * len(values), "detail": f"{n} kernels",
                }
            )  # fmt: skip
    return Cells(pd.DataFrame(rows)) if rows else Cells.empty()


def _computes(kernels: Kernels) -> NDArray[np.bool_]:
    both: NDArray[np.bool_] = (kernels.flop.sum(axis=1) > 0) & (kernels.work != "bandwidth")
    return both


def _alone(kernels: Kernels, amount: Floats) -> float:
    """Median error on the kernels that are judged if time is in proportion to an amount."""
    scale = kernels.seconds / np.where(_computes(kernels), amount, np.nan)
    factor = np.nanmedian(scale[~kernels.held])
    return float(np.nanmedian(np.abs(factor / scale[kernels.held] - 1)))
