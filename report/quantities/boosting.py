"""Quantities of gradient-boosted trees: seconds of a fit and of a prediction, and a GPU against its host."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import RUNTIMES, Estimates, concat
from report.quantities import quantity, says
from report.quantities.comparing import best_ratios, with_library

_WORK = ["rows", "trees"]
_boosting = partial(quantity, experiments=["boosting"])


def speeds(data: Dataset) -> Estimates:
    """Calls per second of every point, with its phase; `library` names the library and its threads."""
    return with_library(data.summary("boosting").without("dtype")).inverse()


def _seconds(data: Dataset, phase: str) -> Estimates:
    """Seconds of a call, also under `backend: best`: by the fastest library on as many threads as suit it."""
    found = speeds(data).only(phase=phase).without("phase")
    best = found.best(["node", "device", *_WORK], of=["library"]).label(backend="best")
    return concat([found.without("library").inverse(), best.inverse()])


@_boosting("boosting.fit_s", "s", (*_WORK, "backend", "threads"))
@says("On {node}, boosted trees learn from a table in {value} ({labels})")
def fit_s(data: Dataset) -> Estimates:
    """Seconds in which `trees` trees are fitted to a table of 28 columns in host memory, sorting into bins included.

    `backend: best` is the fastest library of each point, on as many threads as suit it.
    """
    return _seconds(data, "fit")


@_boosting("boosting.predict_s", "s", (*_WORK, "backend", "threads"))
@says("On {node}, boosted trees predict a table's labels in {value} ({labels})")
def predict_s(data: Dataset) -> Estimates:
    """Seconds in which `trees` trees give the chances of all rows of a table in host memory.

    `backend: best` is the fastest library of each point, on as many threads as suit it.
    """
    return _seconds(data, "predict")


@_boosting("boosting.gpu_gain", "1", ("phase", *_WORK, *RUNTIMES), device="both")
@says("On {node}, boosted trees are {value} times as fast on the GPU as on its host's CPU ({labels})")
def gpu_gain(data: Dataset) -> Estimates:
    """Time of the host's fastest library over that of the GPU's fastest, same phase, rows and trees.

    Data lie in host memory on both sides, so the GPU's time includes copies. runtime, cpu_runtime: the libraries of the
    GPU and of the CPU. All libraries take tables in the same number format.
    """
    found = speeds(data)
    gpu, cpu = found.only(device="gpu"), found.only(device="cpu").without("device")
    return concat(best_ratios(gpu, cpu, ["phase", *_WORK], ["library"]))
