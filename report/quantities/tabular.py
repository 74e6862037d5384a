"""Quantities of work on tables: rows per second, and who is faster than whom."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.formatting import count
from report.quantities import quantity

_NEEDS = ["tabular"]
_TASK = ["node", "op", "rows"]
_POINT = ["node", "device", "op", "rows", "transfers"]
# What a table's user gets who chooses nothing.
DEFAULT = "pandas"


def rates(data: Dataset) -> Estimates:
    """Rows per second: a point's rows over its median time. `library` says who, and on how many threads."""
    times = data.summary("tabular")
    if not len(times):
        return times
    frame = times.frame
    per_second = Estimates.from_estimates(frame.assign(estimate=frame["rows"].astype(float) / frame["estimate"]))
    library = [
        f"{backend}, {count(int(threads), 'thread')}" if threads else str(backend)
        for backend, threads in frame[["backend", "threads"]].itertuples(index=False)
    ]
    return per_second.without("dtype").label(library=library)


@quantity(
    "tabular.rate",
    unit="rows/s",
    needs={"experiments": _NEEDS, "device": "any"},
    labels=("op", "rows", "backend", "transfers", "threads"),
    says="On {node}, a table is worked through ({labels}) at {value}",
)
def rate(data: Dataset) -> Estimates:
    """Rows per second of one operation on one table.

    `backend: best` is the fastest library of each point, on as many threads as suit it.
    """
    cells = rates(data)
    if not len(cells):
        return cells
    best = cells.best(_POINT, of=["library"]).label(backend="best")
    return concat([cells.without("library"), best])


@quantity(
    "tabular.gpu_gain",
    unit="1",
    needs={"experiments": _NEEDS, "device": "both"},
    labels=("op", "rows", "transfers"),
    says="On {node}, the GPU works through a table {value} times as fast as its host's CPU ({labels})",
)
def gpu_gain(data: Dataset) -> Estimates:
    """Time of the host's fastest library over that of the GPU's fastest, same operation and rows.

    transfers: whether the GPU's time includes the way from host memory and back.
    """
    cells = rates(data)
    if not len(cells):
        return cells
    gpu = cells.only(device="gpu").best(_POINT, of=["library"])
    cpu = cells.only(device="cpu").best(_TASK, of=["library"])
    if not len(gpu) or not len(cpu):
        return Estimates.empty()
    gain = gpu / cpu
    rivals = gain.frame[_TASK].merge(cpu.frame[[*_TASK, "detail"]], on=_TASK, how="left")["detail"]
    return gain.label(detail=[f"{mine} over {rival}" for mine, rival in zip(gain.frame["detail"], rivals, strict=True)])


@quantity(
    "tabular.library_gain",
    unit="1",
    needs={"experiments": _NEEDS, "device": "cpu"},
    labels=("op", "rows"),
    says="On {node}, the fastest other library is {value} times as fast on a table as pandas ({labels})",
)
def library_gain(data: Dataset) -> Estimates:
    """Time of pandas over that of the fastest other library of the CPU, same operation and rows.

    pandas works on one thread, the other on as many as suit it: what a choice of library gains
    on the whole machine. Below 1 where none is faster.
    """
    cells = rates(data)
    if not len(cells):
        return cells
    cells = cells.only(device="cpu")
    usual = (cells.frame["backend"] == DEFAULT).to_numpy(bool)
    others, default = cells.at(~usual).best(["device", *_TASK], of=["library"]), cells.at(usual)
    if not len(others) or not len(default):
        return Estimates.empty()
    return others / default.best(_TASK)
