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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from contract import child_processes
from report import statistics
from report.data.dataset import Dataset
from report.estimates import Estimates
from report.formatting import with_unit
from report.quantities import quantity
from report.quantities.kernels import PLACE, Floats, Kernels, kernel_rounds, source_rows

# How many numbers, and whether peak and bandwidth are taken as measured or fitted.
MODELS = ((2, "measured"), (2, "fitted"), (3, "fitted"), (4, "fitted"))
# Places from which on it is worth starting processes that share them.
MANY = 100
# Where the search for what a launch costs begins, in seconds; that for the cache at three times the memory's bandwidth.
_LAUNCHES = (1e-6, 3e-5)
_LABELS = ("threads", "numbers", "ceilings")
_EXPERIMENTS = ["roofline", "gemm", "bandwidth"]
NUMBERS = ("peak", "bandwidth", "launch", "cache")
# Past this logarithm of predicted over measured, a kernel pulls ever less at the numbers.
TOLERATED = 0.25
# Logarithms of the numbers lie between these.
_BOUNDS = np.array([[-7.0, -7.0, -23.0, 0.0], [1.0, 1.0, 0.0, 5.0]])
# Where the larger of two times changes places the loss has a kink, at which steps may stop: rounded off in the search
# for where to begin. Each with the tolerance at which it stops.
_SEARCH, _END = (16.0, 1e-6), (math.inf, 1e-12)


def fit_model(rounds: Sequence[Kernels], numbers: int, ceilings: str) -> list[dict[str, float]]:
    """The numbers that predict each round's kernels best, of so many and with ceilings that are fitted or as measured.

    Least squares of the logarithms with Cauchy's loss: past TOLERATED, misses count ever less, for it is the
    median that judges. From several starts; the best in the median.
    """
    if ceilings == "measured":
        return [{"peak": 1.0, "bandwidth": 1.0} for _ in rounds]
    launches = _LAUNCHES if numbers > 2 else _LAUNCHES[:1]
    starts = [{"peak": 1.0, "bandwidth": 1.0, "launch": launch, "cache": 3.0} for launch in launches]
    return fit_numbers(rounds, NUMBERS[:numbers], starts)


def fit_numbers(
    rounds: Sequence[Kernels], free: Sequence[str], starts: Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """The numbers `free` that predict the kernels of each round best, under Cauchy's loss.

    rounds: the same kernels in each. starts: of all that is free; from each of them the medians over rounds are fitted,
    and each round from what comes of it the best in the median miss. Of peak and bandwidth, what is not free is 1.
    """
    middle = replace(
        rounds[0],
        seconds=np.median([one.seconds for one in rounds], axis=0),
        peak=np.median([one.peak for one in rounds], axis=0),
        bandwidth=float(np.median([one.bandwidth for one in rounds])),
    )
    at = [NUMBERS.index(name) for name in free]
    found = [_minimise(middle, at, np.log([start[name] for name in free]), *_SEARCH) for start in starts]
    best = min(found, key=lambda x: float(np.median(np.abs(_log_errors(middle, _all_logarithms(x, at), math.inf)[0]))))
    fitted = [np.exp(_minimise(one, at, best, *_END)).tolist() for one in rounds]
    return [{"peak": 1.0, "bandwidth": 1.0, **dict(zip(free, numbers, strict=True))} for numbers in fitted]


def _minimise(kernels: Kernels, at: list[int], x: Floats, sharpness: float, stop: float) -> Floats:
    """The logarithms of the numbers at these places of NUMBERS that predict kernels best, looked for from x on."""

    # The derivatives are asked for where the misses have just been.
    @lru_cache(maxsize=1)
    def misses(x: tuple[float, ...]) -> tuple[Floats, Floats]:
        values, slopes = _log_errors(kernels, _all_logarithms(x, at), sharpness)
        return values, slopes[:, at]

    # Copies: what it is given, it works in.
    found: Floats = least_squares(
        lambda x: misses(tuple(x))[0].copy(), x, lambda x: misses(tuple(x))[1].copy(),
        bounds=_BOUNDS[:, at], loss="cauchy", f_scale=TOLERATED, xtol=stop, ftol=stop, gtol=stop,
    ).x  # fmt: skip
    return found


def _all_logarithms(x: Sequence[float] | Floats, at: list[int]) -> Floats:
    """The logarithms of all NUMBERS, of which x are those at some places."""
    # No launch takes no time unless that is fitted: its logarithm is far below any.
    every = np.array([0.0, 0.0, -np.inf, 0.0])
    every[at] = x
    return every


def _log_errors(kernels: Kernels, x: Floats, sharpness: float) -> tuple[Floats, Floats]:
    """Logarithm of predicted over measured of each kernel at the logarithms x of NUMBERS, and its derivatives.

    sharpness: the power of the mean that stands for the larger of an operator's two times.
    """
    peak, bandwidth, _, cache = np.exp(-x)
    slower = 1 + kernels.cached * (cache - 1)
    arithmetic = kernels.flop * (peak / kernels.peak)[:, None]
    memory = kernels.bytes * (slower * bandwidth / kernels.bandwidth)[:, None]
    larger = np.maximum(arithmetic, memory)
    # To that power, the smaller one over the larger; the larger one's share of the slope.
    ratio = np.divide(np.minimum(arithmetic, memory), larger, out=np.zeros_like(larger), where=larger > 0) ** sharpness
    spent_by, lead = larger * (1 + ratio) ** (1 / sharpness), 1 / (1 + ratio)
    of_memory = np.where(memory > arithmetic, lead, 1 - lead)
    computing, moving = (spent_by * (1 - of_memory)).sum(axis=1), (spent_by * of_memory).sum(axis=1)
    launching = kernels.launches * np.exp(x[2])
    spent = computing + moving + launching
    by_cache = moving * (1 - (1 - kernels.cached) / slower)
    return np.log(spent / kernels.seconds), np.array([-computing, -moving, launching, -by_cache]).T / spent[:, None]


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


def predict_places(data: Dataset, node: str | None = None) -> list[Predictions]:
    """Predictions of every kernel that is judged (on one node, or on all), by place and how many numbers they take.

    Of places where steps of models were measured too: products alone do not stand for what devices are asked for.
    """
    places = {
        place: per_round
        for place, per_round in kernel_rounds(data, node).items()
        if any(what.startswith("roofline") for what in per_round[0].what)
    }
    fitted = [[one.half(False) for one in per_round] for per_round in places.values()]
    processes = child_processes.available_cpus() if len(places) >= MANY else 1
    found = []
    for (place, per_round), by_model in zip(
        places.items(), child_processes.map_parallel(_fit_models, fitted, processes=processes), strict=True
    ):
        judged = [one.half(True) for one in per_round]
        measured = np.array([one.seconds for one in judged])
        for (numbers, ceilings), known in zip(MODELS, by_model, strict=True):
            predicted = np.array([one.predicted(by) for one, by in zip(judged, known, strict=True)])
            labels = {**dict(zip(PLACE, place, strict=True)), "numbers": numbers, "ceilings": ceilings}
            found.append(Predictions(labels, known, judged[0].work, judged[0].what, measured, predicted))
    return found


def _fit_models(per_round: Sequence[Kernels]) -> list[list[dict[str, float]]]:
    """The numbers of each round, by each of MODELS."""
    return [fit_model(per_round, numbers, ceilings) for numbers, ceilings in MODELS]


@quantity("roofline.prediction_error", "1", experiments=_EXPERIMENTS, labels=_LABELS, reads=("offload", "peak"))
def prediction_error(data: Dataset) -> Estimates:
    """Median over the kernels that are judged of |predicted / measured - 1|, from two, three and four numbers.

    ceilings: measured (peak and bandwidth as the study's own kernels reach them) or fitted (the
    shares of both that foretell the other half of the kernels best). One value a round; interval by Student's t.
    """
    found = predict_places(data)
    rows = [
        {
            **one.labels,
            "n_rounds": len(one.fits),
            "n_samples": one.measured.size,
            "detail": f"{len(one.what)} kernels; {format_fits(one.fits)}",
            "source_rows": source_rows(data, *(one.labels[name] for name in PLACE)),
        }
        for one in found
    ]
    errors = [np.median(one.errors, axis=1) for one in found]
    made = Estimates.from_points(rows, statistics.estimate_on_linear_scale(errors, counted=False, share=False))
    return made.label(low=made["low"].clip(lower=0.0))


def format_fits(fits: Sequence[Mapping[str, float]]) -> str:
    """The numbers in words, each the median over rounds."""
    middle = {name: float(np.median([one[name] for one in fits])) for name in fits[0]}
    words = [f"×{middle[name]:.2f} the measured {name}" for name in ("peak", "bandwidth")]
    words += [f"{with_unit(middle['launch'], 's')} a launch"] if "launch" in middle else []
    words += [f"×{middle['cache']:.2f} the measured bandwidth from the cache"] if "cache" in middle else []
    return ", ".join(words)


@quantity(
    "roofline.bandwidth_error_over_compute_error",
    "1",
    experiments=_EXPERIMENTS,
    labels=("threads",),
    reads=("offload", "peak"),
)
def bandwidth_error_over_compute_error(data: Dataset) -> Estimates:
    """Median error of predictions from bandwidth alone over that from peak arithmetic alone.

    Each with the one number that foretells the other half best: the median of measured over predicted.
    Kernels that compute and move; passes over memory are left out, for bandwidth is taken from them.
    """
    rows, values = [], []
    for place, per_round in kernel_rounds(data).items():
        ratios = [
            _single_number_error(one, one.bytes.sum(axis=1))
            / _single_number_error(one, one.flop.sum(axis=1) / one.peak)
            for one in per_round
        ]
        if np.isfinite(ratios).all() and min(ratios) > 0:
            n = int((per_round[0].held & _computing_mask(per_round[0])).sum())
            counts = {"n_rounds": len(ratios), "n_samples": n * len(ratios), "detail": f"{n} kernels"}
            labels = dict(zip(PLACE, place, strict=True))
            rows.append({**labels, **counts, "source_rows": source_rows(data, *place)})
            values.append(ratios)
    # Each for itself: what one machine's ratios vary by says nothing of another's.
    return Estimates.from_points(rows, statistics.estimate_on_log_scale(values, np.arange(len(values))), log=True)


def _computing_mask(kernels: Kernels) -> NDArray[np.bool_]:
    both: NDArray[np.bool_] = (kernels.flop.sum(axis=1) > 0) & (kernels.work != "bandwidth")
    return both


def _single_number_error(kernels: Kernels, amount: Floats) -> float:
    """Median error on the kernels that are judged if time is in proportion to an amount."""
    scale = kernels.seconds / np.where(_computing_mask(kernels), amount, np.nan)
    factor = np.nanmedian(scale[~kernels.held])
    return float(np.nanmedian(np.abs(factor / scale[kernels.held] - 1)))
