"""Quantities of work on tables: rows per second, and who is faster than whom."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import RUNTIMES, Estimates, concat
from report.quantities import quantity, says
from report.quantities.comparing import best_ratios, with_library

# What a table's user gets who chooses nothing.
DEFAULT = "pandas"
_POINT = ["node", "device", "op", "rows", "transfers"]
_tabular = partial(quantity, experiments=["tabular"])


def rates(data: Dataset) -> Estimates:
    """Rows per second: a point's rows over its median time. `library` says who, and on how many threads."""
    times = data.summary("tabular")
    per_second = times.numbers("rows") / times.numbers("estimate")
    return with_library(Estimates.from_estimates(times.label(estimate=per_second).frame).without("dtype"))


@_tabular("tabular.rate", "rows/s", ("op", "rows", "backend", "transfers", "threads"))
@says("On {node}, a table is worked through ({labels}) at {value}")
def rate(data: Dataset) -> Estimates:
    """Rows per second of one operation on one table.

    `backend: best` is the fastest library of each point, on as many threads as suit it.
    """
    found = rates(data)
    return concat([found.without("library"), found.best(_POINT, of=["library"]).label(backend="best")])


@_tabular("tabular.gpu_gain", "1", ("op", "rows", "transfers", *RUNTIMES), device="both")
@says("On {node}, the GPU works through a table {value} times as fast as its host's CPU ({labels})")
def gpu_gain(data: Dataset) -> Estimates:
    """Time of the host's fastest library over that of the GPU's fastest, same operation and rows.

    transfers: whether the GPU's time includes the way from host memory and back. runtime, cpu_runtime: the libraries of
    the GPU and of the CPU.
    """
    gpu, cpu = rates(data).only(device="gpu"), rates(data).only(device="cpu").without("device", "transfers")
    return concat(best_ratios(gpu, cpu, ["op", "rows", "transfers"], ["library"]))
