"""The ladder of inference: one request from PyTorch as it comes to the fastest runtime and number format."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity, says
from report.quantities.comparing import exact_where_equal
from report.quantities.inference import FORMATS, requests

# Backends that are PyTorch itself: as it comes, compiled, captured in a graph, or with another layout.
PYTORCH = ("torch", "channels_last", "inductor", "graph")
# From the bottom to the top. A rung takes the fastest of what it names; a key that it lacks may have any value.
RUNGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("PyTorch as it comes", {"backend": "torch", "dtype": "float32"}),
    ("PyTorch, tuned", {"backend": PYTORCH, "dtype": "float32"}),
    ("PyTorch, tuned, best format", {"backend": PYTORCH, "dtype": FORMATS}),
    ("best runtime", {"dtype": "float32"}),
    ("best floating-point format", {"dtype": FORMATS}),
    ("best of all formats", {}),
)
DEFAULT, TUNED, TUNED_FORMAT, RUNTIME, FLOAT, BEST = (name for name, _ in RUNGS)
_REQUEST = ["node", "device", "model", "parameters", "batch", "threads"]
_BASE = [name for name in _REQUEST if name != "parameters"]
_BY = ["backend", "dtype"]
_inference = partial(quantity, experiments=["inference"])
_LABELS = ("model", "parameters", "batch", "threads")


@_inference("inference.ladder", "s", (*_LABELS, "rung", "place", "runtime", "dtype"))
@says("On {node}, a request ({labels}) is answered after {value}")
def ladder(data: Dataset) -> Estimates:
    """Median time of a request on each rung, for each network, batch and number of threads.

    A rung takes the fastest measured backend and format of those that it names: PyTorch as it comes in float32; any
    backend of PyTorch in float32, then in any floating-point format; any runtime in float32; any runtime in any
    floating-point format; any runtime in any format, int8 included. runtime, dtype: of that point. place: the rung
    counted from the bottom. A rung that no measured point adds to is left out, but for the last, which is the fastest
    of all; a request that PyTorch as it comes did not answer, or nothing else, has no rungs.
    """
    times = requests(data)
    added = _added(times)
    found = []
    for place, (rung, wanted) in enumerate(RUNGS, start=1):
        best = times.only(**wanted).inverse().best(_REQUEST, of=_BY, keep=_BY).inverse()
        kept = [_stands(rung, added[request]) for request in best.rows(*_BASE)]
        found.append(best.at(np.array(kept, bool)).label(rung=rung, place=place))
    rungs = concat(found)
    return rungs.label(runtime=rungs["backend"]).without("backend")


def _added(times: Estimates) -> dict[tuple[Any, ...], set[str]]:
    """The rungs of each request to which a point adds: the lowest that takes it."""
    lowest = pd.Series(BEST, times.frame.index)
    for rung, wanted in reversed(RUNGS):
        taken = times.label(row=range(len(times))).only(**wanted)["row"]
        lowest.iloc[taken.to_numpy(int)] = rung
    found: dict[tuple[Any, ...], set[str]] = {}
    for request, rung in zip(times.rows(*_BASE), lowest, strict=True):
        found.setdefault(request, set()).add(rung)
    return found


def _stands(rung: str, added: set[str]) -> bool:
    """Whether a request to which points add these rungs has this one."""
    return DEFAULT in added and len(added) > 1 and rung in {DEFAULT, BEST, *added}


def _over(above: Estimates, below: Estimates) -> Estimates:
    """Time of one rung over that of another; the labels rung, place, runtime and dtype are those below."""
    return exact_where_equal(above.by(*_BASE) / below).label(detail="")


@_inference("inference.ladder_gain", "1", (*_LABELS, "rung", "place", "runtime", "dtype"))
@says("On {node}, a request ({labels}) is answered {value} times as fast as by PyTorch as it comes")
def ladder_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes, float32, over that on each higher rung of `inference.ladder`.

    Exactly 1 where nothing that was tried is faster.
    """
    rungs = ladder(data)
    return _over(rungs.only(rung=DEFAULT), rungs.at(rungs["rung"] != DEFAULT))


def _equal_precision(rungs: Estimates) -> Estimates:
    """The highest rung of each request in float32."""
    return rungs.only(rung=[DEFAULT, TUNED, RUNTIME]).ascending("place").last(*_BASE)


@_inference("inference.runtime_gain", "1", (*_LABELS, "runtime", "dtype"))
@says("On {node}, the fastest runtime answers {value} times as fast as PyTorch as it comes, in float32 ({labels})")
def runtime_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes over that of the fastest runtime that was tried, both in float32.

    PyTorch compiled, or with another layout, counts as a runtime. Exactly 1 where none is faster.
    """
    return _equal_precision(ladder_gain(data)).without("rung", "place")


@_inference("inference.format_gain", "1", (*_LABELS, "runtime", "dtype"))
@says("On {node}, the fastest format answers {value} times as fast as float32, each in its fastest runtime ({labels})")
def format_gain(data: Dataset) -> Estimates:
    """Median time of a request in the fastest runtime in float32 over that in the fastest runtime and format.

    runtime, dtype: of the fastest; int8 counts, though its answers may err more than those of a floating-point format.
    Only requests that were tried in another format than float32.
    """
    rungs, formats = ladder(data), requests(data)
    others = set(formats.at(formats["dtype"] != "float32").rows(*_BASE))
    best = rungs.only(rung=BEST)
    best = best.at(np.array([request in others for request in best.rows(*_BASE)], bool))
    return _over(_equal_precision(rungs), best).without("rung", "place")
