"""Work on tables, and gradient-boosted trees: rates, and GPU gains relative to the host."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import RUNTIMES, Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.rate_arithmetic import best_over_host, best_ratios, with_library

# Library that users choose by default for tables.
DEFAULT = "pandas"
_POINT = ["node", "device", "op", "rows", "transfers"]


def row_rates(data: Dataset) -> Estimates:
    """Return rows per second: rows divided by the median time. `library` gives the library and its thread count."""
    times = data.summary("tabular")
    per_second = times.numbers("rows") / times.numbers("estimate")
    return with_library(Estimates.from_estimates(times.label(estimate=per_second).frame).drop_labels("dtype"))


@quantity("tabular.rate", "rows/s", ("op", "rows", "backend", "transfers", "threads"))
def table_rate(data: Dataset) -> Estimates:
    """Rows per second for one operation on one table.

    `backend: best` is the fastest library and thread count per point.
    """
    rates = row_rates(data)
    return concat_estimates(
        [rates.drop_labels("library"), rates.best_per_group(_POINT, detail=["library"]).label(backend="best")]
    )


@quantity("tabular.gpu_gain", "1", ("op", "rows", "transfers", *RUNTIMES), device="both")
def gpu_gain(data: Dataset) -> Estimates:
    """Time for a table operation with the host's fastest library, divided by that with the GPU's fastest library.

    Operation and rows are the same. transfers: GPU time with or without copies from and to host memory. runtime,
    cpu_runtime: libraries on the GPU and on the CPU.
    """
    gpu, cpu = (
        row_rates(data).filter(device="gpu"),
        row_rates(data).filter(device="cpu").drop_labels("device", "transfers"),
    )
    return concat_estimates(best_ratios(gpu, cpu, ["op", "rows", "transfers"], ["library"]))


_FIT = ["rows", "trees"]


def boosting_rates(data: Dataset) -> Estimates:
    """Return calls per second at every point, by phase; `library` gives the library and its thread count."""
    return with_library(data.summary("boosting").drop_labels("dtype")).inverse()


def _call_seconds(data: Dataset, phase: str) -> Estimates:
    """Return seconds per call in a phase; rows with `backend: best` use the fastest library and thread count."""
    rates = boosting_rates(data).filter(phase=phase).drop_labels("phase")
    best = rates.best_per_group(["node", "device", *_FIT], detail=["library"]).label(backend="best")
    return concat_estimates([rates.drop_labels("library").inverse(), best.inverse()])


@quantity("boosting.fit_s", "s", (*_FIT, "backend", "threads"))
def fit_s(data: Dataset) -> Estimates:
    """Seconds to fit `trees` trees to a table with 28 columns in host memory, including sorting into bins.

    `backend: best` is the fastest library and thread count per point.
    """
    return _call_seconds(data, "fit")


@quantity("boosting.predict_s", "s", (*_FIT, "backend", "threads"))
def predict_s(data: Dataset) -> Estimates:
    """Seconds to predict probabilities with `trees` trees for all rows in a table in host memory.

    `backend: best` is the fastest library and thread count per point.
    """
    return _call_seconds(data, "predict")


@quantity("boosting.gpu_gain", "1", ("phase", *_FIT, *RUNTIMES), device="both")
def trees_gain(data: Dataset) -> Estimates:
    """Time for boosted trees with the host's fastest library, divided by that with the GPU's fastest library.

    Phase (fit or predict), rows and trees are the same. Data are in host memory on both sides, so GPU time includes
    copies. runtime, cpu_runtime: libraries on the GPU and on the CPU. All libraries use the same number format for
    tables.
    """
    return best_over_host(boosting_rates(data), ["phase", *_FIT], ["library"])
