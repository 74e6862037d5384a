"""How well a few numbers of a device predict what its kernels and steps take.

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
from numpy.typing import NDArray

from contract import ending
from report import statistics
from report.data.dataset import Dataset
from report.estimates import Estimates
from report.formatting import with_unit
from report.quantities import fits, quantity, says
from report.quantities.kernels import PLACE, Floats, Kernels, rounds, source_rows

# How many numbers, and whether peak and bandwidth are taken as measured or fitted.
MODELS = ((2, "measured"), (2, "fitted"), (3, "fitted"), (4, "fitted"))
# Places from which on it is worth starting processes that share them.
MANY = 100
# Where the search for what a launch costs begins, in seconds; that for the cache at three times the memory's bandwidth.
_LAUNCHES = (1e-6, 3e-5)
_LABELS = ("threads", "numbers", "ceilings")
_EXPERIMENTS = ["roofline", "gemm", "bandwidth"]


def fit(rounds: Sequence[Kernels], numbers: int, ceilings: str) -> list[dict[str, float]]:
    """The numbers that predict each round's kernels best, of so many and with ceilings that are fitted or as measured.

    Least squares of the logarithms with Cauchy's loss: past TOLERATED, misses count ever less, for it is the
    median that judges. From several starts; the best in the median.
    """
    if ceilings == "measured":
        return [{"peak": 1.0, "bandwidth": 1.0} for _ in rounds]
    launches = _LAUNCHES if numbers > 2 else _LAUNCHES[:1]
    starts = [{"peak": 1.0, "bandwidth": 1.0, "launch": launch, "cache": 3.0} for launch in launches]
    return fits.fit(rounds, fits.NUMBERS[:numbers], starts)


@dataclass(frozen=True)
class Predictions:
    """The kernels that are judged on one node, device and number of threads, as so many numbers predict them.

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


def predictions(data: Dataset, node: str | None = None) -> list[Predictions]:
    """Predictions of every kernel that is judged (on one node, or on all), by place and how many numbers they take.

    Of places where steps of models were measured too: products alone do not stand for what devices are asked for.
    """
    places = {
        place: per_round
        for place, per_round in rounds(data, node).items()
        if any(what.startswith("roofline") for what in per_round[0].what)
    }
    fitted = [[one.half(False) for one in per_round] for per_round in places.values()]
    processes = ending.available_cpus() if len(places) >= MANY else 1
    found = []
    for (place, per_round), by_model in zip(
        places.items(), ending.mapped(_fits, fitted, processes=processes), strict=True
    ):
        judged = [one.half(True) for one in per_round]
        measured = np.array([one.seconds for one in judged])
        for (numbers, ceilings), known in zip(MODELS, by_model, strict=True):
            predicted = np.array([one.predicted(by) for one, by in zip(judged, known, strict=True)])
            labels = {**dict(zip(PLACE, place, strict=True)), "numbers": numbers, "ceilings": ceilings}
            found.append(Predictions(labels, known, judged[0].work, judged[0].what, measured, predicted))
    return found


def _fits(per_round: Sequence[Kernels]) -> list[list[dict[str, float]]]:
    """The numbers of each round, by each of MODELS."""
    return [fit(per_round, numbers, ceilings) for numbers, ceilings in MODELS]


@quantity("roofline.prediction_error", "1", experiments=_EXPERIMENTS, labels=_LABELS)
@says("On {node}, the time of half of all kernels and steps is predicted to within {value} of it ({labels})")
def prediction_error(data: Dataset) -> Estimates:
    """Median over the kernels that are judged of |predicted / measured - 1|, from two, three and four numbers.

    ceilings: measured (peak and bandwidth as the study's own kernels reach them) or fitted (the
    shares of both that foretell the other half of the kernels best). One value a round; interval by Student's t.
    """
    found = predictions(data)
    rows = [
        {
            **one.labels,
            "n_rounds": len(one.fits),
            "n_samples": one.measured.size,
            "detail": f"{len(one.what)} kernels; {spelt(one.fits)}",
            "source_rows": source_rows(data, *(one.labels[name] for name in PLACE)),
        }
        for one in found
    ]
    errors = [np.median(one.errors, axis=1) for one in found]
    made = Estimates.from_points(rows, statistics.on_linear_scale(errors, counted=False, share=False))
    return made.label(low=made["low"].clip(lower=0.0))


def spelt(fits: Sequence[Mapping[str, float]]) -> str:
    """The numbers in words, each the median over rounds."""
    middle = {name: float(np.median([one[name] for one in fits])) for name in fits[0]}
    words = [f"×{middle[name]:.2f} the measured {name}" for name in ("peak", "bandwidth")]
    words += [f"{with_unit(middle['launch'], 's')} a launch"] if "launch" in middle else []
    words += [f"×{middle['cache']:.2f} the measured bandwidth from the cache"] if "cache" in middle else []
    return ", ".join(words)


@quantity("roofline.bandwidth_error_over_compute_error", "1", experiments=_EXPERIMENTS, labels=("threads",))
@says("On {node}, bandwidth alone misses the time of kernels by {value} times what arithmetic alone does ({labels})")
def bandwidth_error_over_compute_error(data: Dataset) -> Estimates:
    """Median error of predictions from bandwidth alone over that from peak arithmetic alone.

    Each with the one number that foretells the other half best: the median of measured over predicted.
    Kernels that compute and move; passes over memory are left out, for bandwidth is taken from them.
    """
    rows, values = [], []
    for place, per_round in rounds(data).items():
        ratios = [
            _alone(one, one.bytes.sum(axis=1)) / _alone(one, one.flop.sum(axis=1) / one.peak) for one in per_round
        ]
        if np.isfinite(ratios).all() and min(ratios) > 0:
            n = int((per_round[0].held & _computes(per_round[0])).sum())
            counts = {"n_rounds": len(ratios), "n_samples": n * len(ratios), "detail": f"{n} kernels"}
            labels = dict(zip(PLACE, place, strict=True))
            rows.append({**labels, **counts, "source_rows": source_rows(data, *place)})
            values.append(ratios)
    # Each for itself: what one machine's ratios vary by says nothing of another's.
    return Estimates.from_points(rows, statistics.on_log_scale(values, np.arange(len(values))), log=True)


def _computes(kernels: Kernels) -> NDArray[np.bool_]:
    both: NDArray[np.bool_] = (kernels.flop.sum(axis=1) > 0) & (kernels.work != "bandwidth")
    return both


def _alone(kernels: Kernels, amount: Floats) -> float:
    """Median error on the kernels that are judged if time is in proportion to an amount."""
    scale = kernels.seconds / np.where(_computes(kernels), amount, np.nan)
    factor = np.nanmedian(scale[~kernels.held])
    return float(np.nanmedian(np.abs(factor / scale[kernels.held] - 1)))
