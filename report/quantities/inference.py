"""Quantities of trained models that answer: how long a request waits, text by the token, and the ladder of inference.

The ladder: one request from PyTorch as it comes to the fastest runtime and number format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import gemm, quantity
from report.quantities.memory import share_of_bandwidth
from report.quantities.rate_arithmetic import BEST_LABELS, best_over_host, without_error_where_equal

TAIL = 0.99
# The 99th percentile of fewer samples is their largest.
LEAST_SAMPLES = 100
# Number formats in which a trained model answers as it is.
FORMATS = ("float32", "tf32", "bfloat16", "float16")
_LABELS = ("model", "parameters", "batch", "threads")
_REQUEST = ["node", "device", "model", "parameters", "batch"]
_GENERATION = ("model", "parameters", "phase", "context", "batch", "dtype", "backend", "threads")


def with_parameters(data: Dataset, found: Estimates) -> Estimates:
    """The same with the number of weights of each model, which the experiment `models` counts on any node."""
    known = dict(data.summary("models", "parameters").rows("model", "estimate"))
    return found.label(parameters=found["model"].map(known))


def request_times(data: Dataset) -> Estimates:
    """Median time of one request of each point, with the number of weights of its network."""
    return with_parameters(data, data.summary("inference"))


@quantity(
    "inference.latency_s", "s", ("model", "parameters", "batch", "dtype", "backend", "threads"), reads=("models",)
)
def latency(data: Dataset) -> Estimates:
    """Median time of one request, on the host's clock, copies to a GPU and back included.

    parameters: weights of the model, which order the models. `backend: best` is the quickest
    library and number of threads for each model, batch and number format; `detail` names them.
    """
    times = request_times(data)
    best = times.inverse().best([*_REQUEST, "dtype"], of=["backend", "threads"]).inverse()
    return concat_estimates([times, best.label(backend="best")])


@quantity("inference.fastest_p99_s", "s", ("model", "parameters", "batch"), reads=("models",))
def fastest_p99(data: Dataset) -> Estimates:
    """99th percentile of the time of single requests, of the quickest library, number of threads and format.

    Formats: of FORMATS, which need no retraining; products in 8-bit whole numbers answer differently. `detail` names
    what was quickest.
    """
    times = with_parameters(data, data.percentile("inference", TAIL, LEAST_SAMPLES)).only(dtype=list(FORMATS))
    return times.inverse().best(_REQUEST, of=["dtype", "backend", "threads"]).inverse()


@quantity("inference.onnx_gain", "1", ("model", "parameters", "batch", "dtype", "threads"), reads=("models",))
def onnx_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes over that in ONNX Runtime: same model, format and threads."""
    return request_times(data).ratio("backend", "torch", "onnx")


@quantity("inference.int8_gain", "1", _LABELS, reads=("models",))
def int8_gain(data: Dataset) -> Estimates:
    """Median time of a request in float32 over that with dynamically quantised products, both in ONNX Runtime."""
    return request_times(data).only(backend="onnx").without("backend").ratio("dtype", "float32", "int8")


@quantity("generation.tokens_per_s", "tokens/s", _GENERATION, reads=("models",))
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens over the median time of a call: of a prefilling those of the prompts, of a decoding one for each text."""
    calls = with_parameters(data, data.summary("generation").inverse())
    tokens = calls.numbers("context").where(calls["phase"] == "prefill", 1)
    return calls.scaled_by(tokens * calls.numbers("batch"))


@quantity("generation.bandwidth_share", "1", _GENERATION, experiments=["generation", "bandwidth"], reads=("models",))
def bandwidth_share(data: Dataset) -> Estimates:
    """Bytes that a call has to move (weights and cache, each once) over its time and over the measured bandwidth.

    Bandwidth: the fastest of STREAM's passes by as many threads. Models whose bytes could stay in caches
    (fewer than four times the last one) are left out. It may exceed 1: a call mostly reads, and STREAM also writes.
    """
    rates, moved = (data.summary("generation", value=value) for value in ("bytes_per_s", "bytes"))
    return with_parameters(data, share_of_bandwidth(data, rates, moved))


@quantity("generation.peak_share", "1", _GENERATION, ceiling=1.0, reads=("gemm", "models", "peak"))
def peak_share(data: Dataset) -> Estimates:
    """FLOP of a call over its time and over the measured peak: of multiply-adds on a CPU, of products on a GPU."""
    return with_parameters(data, gemm.share_of_peak(data, data.summary("generation", value="flop_per_s")))


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
_BASE = ["node", "device", "model", "batch", "threads"]


@quantity("inference.ladder", "s", (*_LABELS, "rung", "place", "runtime", "dtype"), reads=("models",))
def runtime_ladder(data: Dataset) -> Estimates:
    """Median time of a request on each rung, for each network, batch and number of threads.

    A rung takes the fastest measured backend and format of those that it names: PyTorch as it comes in float32; any
    backend of PyTorch in float32, then in any floating-point format; any runtime in float32; any runtime in any
    floating-point format; any runtime in any format, int8 included. runtime, dtype: of that point. place: the rung
    counted from the bottom. A rung that no measured point adds to is left out, but for the last, which is the fastest
    of all; a request that PyTorch as it comes did not answer, or nothing else, has no rungs.
    """
    times = request_times(data)
    added, by = _rungs_with_points(times), ["backend", "dtype"]
    found = []
    for place, (rung, wanted) in enumerate(RUNGS, start=1):
        best = times.only(**wanted).inverse().best([*_REQUEST, "threads"], of=by, keep=by).inverse()
        kept = [_has_rung(rung, added[request]) for request in best.rows(*_BASE)]
        found.append(best.at(np.array(kept, bool)).label(rung=rung, place=place))
    rungs = concat_estimates(found)
    return rungs.label(runtime=rungs["backend"]).without("backend")


def _rungs_with_points(times: Estimates) -> dict[tuple[Any, ...], set[str]]:
    """The rungs of each request to which a point adds: the lowest that takes it."""
    lowest = pd.Series(BEST, times.frame.index)
    for rung, wanted in reversed(RUNGS):
        taken = times.label(row=range(len(times))).only(**wanted)["row"]
        lowest.iloc[taken.to_numpy(int)] = rung
    found: dict[tuple[Any, ...], set[str]] = {}
    for request, rung in zip(times.rows(*_BASE), lowest, strict=True):
        found.setdefault(request, set()).add(rung)
    return found


def _has_rung(rung: str, added: set[str]) -> bool:
    """Whether a request to which points add these rungs has this one."""
    return DEFAULT in added and len(added) > 1 and rung in {DEFAULT, BEST, *added}


def _rung_ratio(above: Estimates, below: Estimates) -> Estimates:
    """Time of one rung over that of another; the labels rung, place, runtime and dtype are those below."""
    return without_error_where_equal(above.by(*_BASE) / below).label(detail="")


@quantity("inference.ladder_gain", "1", (*_LABELS, "rung", "place", "runtime", "dtype"), reads=("models",))
def ladder_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes, float32, over that on each higher rung of `inference.ladder`.

    Exactly 1 where nothing that was tried is faster.
    """
    rungs = runtime_ladder(data)
    return _rung_ratio(rungs.only(rung=DEFAULT), rungs.at(rungs["rung"] != DEFAULT))


def _highest_float32_rungs(rungs: Estimates) -> Estimates:
    """The highest rung of each request in float32."""
    return rungs.only(rung=[DEFAULT, TUNED, RUNTIME]).ascending("place").last(*_BASE)


@quantity("inference.runtime_gain", "1", (*_LABELS, "runtime", "dtype"), reads=("models",))
def runtime_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes over that of the fastest runtime that was tried, both in float32.

    PyTorch compiled, or with another layout, counts as a runtime. Exactly 1 where none is faster.
    """
    return _highest_float32_rungs(ladder_gain(data)).without("rung", "place")


@quantity("inference.format_gain", "1", (*_LABELS, "runtime", "dtype"), reads=("models",))
def format_gain(data: Dataset) -> Estimates:
    """Median time of a request in the fastest runtime in float32 over that in the fastest runtime and format.

    runtime, dtype: of the fastest; int8 counts, though its answers may err more than those of a floating-point format.
    Only requests that were tried in another format than float32.
    """
    rungs, formats = runtime_ladder(data), request_times(data)
    others = set(formats.at(formats["dtype"] != "float32").rows(*_BASE))
    best = rungs.only(rung=BEST)
    best = best.at(np.array([request in others for request in best.rows(*_BASE)], bool))
    return _rung_ratio(_highest_float32_rungs(rungs), best).without("rung", "place")


@quantity("inference.gpu_over_cpu", "1", ("model", *BEST_LABELS), device="both", reads=("models",))
def answers_over_cpu(data: Dataset) -> Estimates:
    """Most samples per second of one GPU over the most of its host's CPU: the offline scenario of MLPerf Inference.

    Each side at its own best batch, runtime and number of threads. precision: equal (the same dtype on both sides) or
    best (each side's fastest dtype). runtime, cpu_runtime: of the GPU and of the CPU; `detail` names both sides' batch
    and format.
    """
    rates = request_times(data).inverse()
    return _batches_over_host(rates.scaled_by(rates.numbers("batch")), ["model"])


@quantity("generation.gpu_over_cpu", "1", ("model", "phase", *BEST_LABELS), device="both", reads=("models",))
def tokens_over_cpu(data: Dataset) -> Estimates:
    """Most tokens per second of one GPU over the most of its host's CPU, each at its own best batch and runtime.

    precision, runtime, cpu_runtime: as for `inference.gpu_over_cpu`.
    """
    return _batches_over_host(tokens_per_s(data).without("parameters"), ["model", "phase"], ["context"])


def _batches_over_host(rates: Estimates, by: Sequence[str], of: Sequence[str] = ()) -> Estimates:
    """The most of each GPU over the most of its host's CPU; `detail` names batches and formats."""
    return best_over_host(rates.label(batch=[f"batch {int(size)}" for size in rates["batch"]]), by, [*of, "batch"])
