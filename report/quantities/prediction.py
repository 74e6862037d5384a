"""Errors in kernel and step times predicted from a few numbers per device.

The simplest model has two numbers: the peak arithmetic P in each format, and the bandwidth B. It predicts that a kernel
with F FLOP and M bytes takes max(F / P, M / B), and that a step takes the sum over its operators. A third number t is
the cost per launch; a fourth, C, is the last-level cache's bandwidth, for data that fit into it.

A hash assigns each kernel to one of two halves: the numbers are fitted to one half and judged on the other. The kernels
are all that this study measured, not a random sample from all possible kernels. So the median error describes this
list, and its interval covers measurement error only. Ceilings (peak and bandwidth) and fits are computed per round, and
intervals are over rounds.
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

# Each model uses this many of NUMBERS, and ceilings (peak and bandwidth) that are measured or fitted.
MODELS = ((2, "measured"), (2, "fitted"), (3, "fitted"), (4, "fitted"))
# Fewest places (node, device and thread count) for which parallel processes fit the models.
MANY = 100
# Starting values for the seconds per launch. The cache bandwidth starts at three times the memory bandwidth.
_LAUNCHES = (1e-6, 3e-5)
_LABELS = ("threads", "numbers", "ceilings")
_EXPERIMENTS = ["roofline", "gemm", "bandwidth"]
NUMBERS = ("peak", "bandwidth", "launch", "cache")
# Scale for Cauchy's loss, in log(predicted / measured). Errors beyond it have less influence on the fit.
TOLERATED = 0.25
# Lower and upper bounds for the logarithms of NUMBERS.
_BOUNDS = np.array([[-7.0, -7.0, -23.0, 0.0], [1.0, 1.0, 0.0, 5.0]])
# Sharpness (see `_log_errors`) and stopping tolerance: _SEARCH for the search, _END for the final fit. Where arithmetic
# time equals memory time, the loss has a kink at which the optimiser may stop; a finite sharpness smooths the kink.
_SEARCH, _END = (16.0, 1e-6), (math.inf, 1e-12)


def fit_model(rounds: Sequence[Kernels], numbers: int, ceilings: str) -> list[dict[str, float]]:
    """Fit a model with the first `numbers` of NUMBERS to each round. With ceilings as measured, nothing is fitted.

    The fit uses least squares on logarithms with Cauchy's loss, in which errors beyond TOLERATED count less, because a
    model is judged by its median error, which large errors hardly affect. From several starts, the result with the
    smallest median error is kept.
    """
    if ceilings == "measured":
        return [{"peak": 1.0, "bandwidth": 1.0} for _ in rounds]
    launches = _LAUNCHES if numbers > 2 else _LAUNCHES[:1]
    starts = [{"peak": 1.0, "bandwidth": 1.0, "launch": launch, "cache": 3.0} for launch in launches]
    return fit_numbers(rounds, NUMBERS[:numbers], starts)


def fit_numbers(
    rounds: Sequence[Kernels], free: Sequence[str], starts: Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """Fit the numbers named in `free` to the kernels in each round, under Cauchy's loss.

    rounds: the same kernels in each round. starts: dictionaries with a starting value for every number in `free`.
    First, the medians over rounds are fitted, once from each start. The result with the smallest median error then
    starts the fit to each round. `peak` and `bandwidth` are 1 unless they are in `free`.
    """
    middle = replace(
        rounds[0],
        seconds=np.median([kernels.seconds for kernels in rounds], axis=0),
        peak=np.median([kernels.peak for kernels in rounds], axis=0),
        bandwidth=float(np.median([kernels.bandwidth for kernels in rounds])),
    )
    at = [NUMBERS.index(name) for name in free]
    results = [_minimise(middle, at, np.log([start[name] for name in free]), *_SEARCH) for start in starts]
    best = min(
        results, key=lambda x: float(np.median(np.abs(_log_errors(middle, _all_logarithms(x, at), math.inf)[0])))
    )
    fitted = [np.exp(_minimise(kernels, at, best, *_END)).tolist() for kernels in rounds]
    return [{"peak": 1.0, "bandwidth": 1.0, **dict(zip(free, numbers, strict=True))} for numbers in fitted]


def _minimise(kernels: Kernels, indices: list[int], x: Floats, sharpness: float, stop: float) -> Floats:
    """Minimise the loss over the logarithms of NUMBERS at `indices`, starting at x."""

    # Keep the last result, because the optimiser asks for derivatives right after the errors at the same numbers.
    @lru_cache(maxsize=1)
    def misses(x: tuple[float, ...]) -> tuple[Floats, Floats]:
        values, slopes = _log_errors(kernels, _all_logarithms(x, indices), sharpness)
        return values, slopes[:, indices]

    # Return copies, because the optimiser modifies these arrays in place.
    result: Floats = least_squares(
        lambda x: misses(tuple(x))[0].copy(), x, lambda x: misses(tuple(x))[1].copy(),
        bounds=_BOUNDS[:, indices], loss="cauchy", f_scale=TOLERATED, xtol=stop, ftol=stop, gtol=stop,
    ).x  # fmt: skip
    return result


def _all_logarithms(x: Sequence[float] | Floats, indices: list[int]) -> Floats:
    """Return the logarithms of all NUMBERS: x at `indices`, and the default for each number that is not fitted."""
    # A launch cost that is not fitted is 0, so its logarithm is -inf.
    logarithms = np.array([0.0, 0.0, -np.inf, 0.0])
    logarithms[indices] = x
    return logarithms


def _log_errors(kernels: Kernels, x: Floats, sharpness: float) -> tuple[Floats, Floats]:
    """Return log(predicted / measured) per kernel, and its derivatives by x, the logarithms of NUMBERS.

    sharpness: exponent for the power mean that smooths the maximum of arithmetic and memory time.
    """
    peak, bandwidth, _, cache = np.exp(-x)
    slower = 1 + kernels.cached * (cache - 1)
    arithmetic = kernels.flop * (peak / kernels.peak)[:, None]
    memory = kernels.bytes * (slower * bandwidth / kernels.bandwidth)[:, None]
    larger = np.maximum(arithmetic, memory)
    # `ratio` is (smaller time / larger time) ** sharpness. On logarithms, the smoothed maximum `spent_by` has the
    # derivative `lead` with respect to the larger time, and 1 - `lead` with respect to the smaller time.
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
    """Judged kernels on one node, device and thread count, as one model predicts them.

    labels: node, device, threads, numbers, ceilings. fits: fitted numbers per round. measured, predicted: seconds with
    shape (rounds, kernels). work, keys: kind and key per kernel.
    """

    labels: dict[str, Any]
    fits: Sequence[Mapping[str, float]]
    work: NDArray[np.str_]
    keys: NDArray[np.str_]
    measured: Floats
    predicted: Floats

    @property
    def errors(self) -> Floats:
        """Return |predicted / measured - 1| per kernel and round."""
        missed: Floats = np.abs(self.predicted / self.measured - 1)
        return missed


def predict_places(data: Dataset, node: str | None = None) -> list[Predictions]:
    """Predict every judged kernel on one node, or on all nodes, with each model.

    Places (node, device and thread count) without measured model steps are left out, because products alone do not
    represent the work that devices do.
    """
    places = {
        place: per_round
        for place, per_round in kernel_rounds(data, node).items()
        if any(key.startswith("roofline") for key in per_round[0].keys)
    }
    fitted = [[kernels.select(False) for kernels in per_round] for per_round in places.values()]
    processes = child_processes.available_cpus() if len(places) >= MANY else 1
    predictions = []
    for (place, per_round), by_model in zip(
        places.items(), child_processes.map_parallel(_fit_models, fitted, processes=processes), strict=True
    ):
        judged = [kernels.select(True) for kernels in per_round]
        measured = np.array([kernels.seconds for kernels in judged])
        for (numbers, ceilings), fits in zip(MODELS, by_model, strict=True):
            predicted = np.array([kernels.predict_seconds(by) for kernels, by in zip(judged, fits, strict=True)])
            labels = {**dict(zip(PLACE, place, strict=True)), "numbers": numbers, "ceilings": ceilings}
            predictions.append(Predictions(labels, fits, judged[0].work, judged[0].keys, measured, predicted))
    return predictions


def _fit_models(per_round: Sequence[Kernels]) -> list[list[dict[str, float]]]:
    """Fit each model in MODELS to the rounds."""
    return [fit_model(per_round, numbers, ceilings) for numbers, ceilings in MODELS]


@quantity("roofline.prediction_error", "1", experiments=_EXPERIMENTS, labels=_LABELS, reads=("offload", "peak"))
def prediction_error(data: Dataset) -> Estimates:
    """Median |predicted / measured - 1| over kernels, if their times are predicted from two, three or four numbers.

    Numbers are fitted to half the kernels, and the error is over the other half. ceilings: measured (peak and bandwidth
    as the study's own kernels reach them) or fitted (the shares of both that best predict the kernels to fit). There is
    one value per round, and the interval is Student's t.
    """
    predictions = predict_places(data)
    rows = [
        {
            **prediction.labels,
            "n_rounds": len(prediction.fits),
            "n_samples": prediction.measured.size,
            "detail": f"{len(prediction.keys)} kernels; {format_fits(prediction.fits)}",
            "source_rows": source_rows(data, *(prediction.labels[name] for name in PLACE)),
        }
        for prediction in predictions
    ]
    errors = [np.median(prediction.errors, axis=1) for prediction in predictions]
    estimates = Estimates.from_points(rows, statistics.estimate_on_linear_scale(errors, counted=False, share=False))
    return estimates.label(low=estimates["low"].clip(lower=0.0))


def format_fits(fits: Sequence[Mapping[str, float]]) -> str:
    """Describe the fitted numbers in words; each is the median over rounds."""
    middle = {name: float(np.median([fit[name] for fit in fits])) for name in fits[0]}
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
    """Median error in times predicted from bandwidth alone, relative to predictions from peak arithmetic alone.

    Each prediction uses a single number, the median ratio of measured to predicted time over half the kernels; the
    error is over the other half. Only kernels with arithmetic are included. Memory passes are left out, because they
    define the bandwidth.
    """
    rows, values = [], []
    for place, per_round in kernel_rounds(data).items():
        ratios = [
            _single_number_error(kernels, kernels.bytes.sum(axis=1))
            / _single_number_error(kernels, kernels.flop.sum(axis=1) / kernels.peak)
            for kernels in per_round
        ]
        if np.isfinite(ratios).all() and min(ratios) > 0:
            n = int((per_round[0].judged & _computing_mask(per_round[0])).sum())
            counts = {"n_rounds": len(ratios), "n_samples": n * len(ratios), "detail": f"{n} kernels"}
            labels = dict(zip(PLACE, place, strict=True))
            rows.append({**labels, **counts, "source_rows": source_rows(data, *place)})
            values.append(ratios)
    # Each machine is its own group, because the variation on one machine says nothing about another machine.
    return Estimates.from_points(rows, statistics.estimate_on_log_scale(values, np.arange(len(values))), log=True)


def _computing_mask(kernels: Kernels) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = (kernels.flop.sum(axis=1) > 0) & (kernels.work != "bandwidth")
    return mask


def _single_number_error(kernels: Kernels, amount: Floats) -> float:
    """Return the median error on the judged kernels if their times are predicted to be proportional to `amount`."""
    scale = kernels.seconds / np.where(_computing_mask(kernels), amount, np.nan)
    factor = np.nanmedian(scale[~kernels.judged])
    return float(np.nanmedian(np.abs(factor / scale[kernels.judged] - 1)))
