"""Quantities of work on tables and of gradient-boosted trees, and of a GPU against its host."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import RUNTIMES, Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.rate_arithmetic import best_over_host, best_ratios, with_library

# What a table's user gets who chooses nothing.
DEFAULT = "pandas"
_POINT = ["node", "device", "op", "rows", "transfers"]


def row_rates(data: Dataset) -> Estimates:
    """Rows per second: a point's rows over its median time. `library` says who, and on how many threads."""
    times = data.summary("tabular")
    per_second = times.numbers("rows") / times.numbers("estimate")
    return with_library(Estimates.from_estimates(times.label(estimate=per_second).frame).without("dtype"))


@quantity("tabular.rate", "rows/s", ("op", "rows", "backend", "transfers", "threads"))
def table_rate(data: Dataset) -> Estimates:
    """Rows per second of one operation on one table.

    `backend: best` is the fastest library of each point, on as many threads as suit it.
    """
    found = row_rates(data)
    return concat_estimates([found.without("library"), found.best(_POINT, of=["library"]).label(backend="best")])


@quantity("tabular.gpu_gain", "1", ("op", "rows", "transfers", *RUNTIMES), device="both")
def gpu_gain(data: Dataset) -> Estimates:
    """Time of the host's fastest library over that of the GPU's fastest, same operation and rows.

    transfers: whether the GPU's time includes the way from host memory and back. runtime, cpu_runtime: the libraries of
    the GPU and of the CPU.
    """
    gpu, cpu = row_rates(data).only(device="gpu"), row_rates(data).only(device="cpu").without("device", "transfers")
    return concat_estimates(best_ratios(gpu, cpu, ["op", "rows", "transfers"], ["library"]))


_FIT = ["rows", "trees"]


def boosting_rates(data: Dataset) -> Estimates:
    """Calls per second of every point, with its phase; `library` names the library and its threads."""
    return with_library(data.summary("boosting").without("dtype")).inverse()


def _seconds(data: Dataset, phase: str) -> Estimates:
    """Seconds of a call, also under `backend: best`: by the fastest library on as many threads as suit it."""
    found = boosting_rates(data).only(phase=phase).without("phase")
    best = found.best(["node", "device", *_FIT], of=["library"]).label(backend="best")
    return concat_estimates([found.without("library").inverse(), best.inverse()])


@quantity("boosting.fit_s", "s", (*_FIT, "backend", "threads"))
def fit_s(data: Dataset) -> Estimates:
    """Seconds in which `trees` trees are fitted to a table of 28 columns in host memory, sorting into bins included.

    `backend: best` is the fastest library of each point, on as many threads as suit it.
    """
    return _seconds(data, "fit")


@quantity("boosting.predict_s", "s", (*_FIT, "backend", "threads"))
def predict_s(data: Dataset) -> Estimates:
    """Seconds in which `trees` trees give the chances of all rows of a table in host memory.

    `backend: best` is the fastest library of each point, on as many threads as suit it.
    """
    return _seconds(data, "predict")


@quantity("boosting.gpu_gain", "1", ("phase", *_FIT, *RUNTIMES), device="both")
def trees_gain(data: Dataset) -> Estimates:
    """Time of the host's fastest library over that of the GPU's fastest, same phase, rows and trees.

    Data lie in host memory on both sides, so the GPU's time includes copies. runtime, cpu_runtime: the libraries of the
    GPU and of the CPU. All libraries take tables in the same number format.
    """
    return best_over_host(boosting_rates(data), ["phase", *_FIT], ["library"])
