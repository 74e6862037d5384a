"""Inference with trained models: latency, tokens per second, and the inference ladder.

The ladder's rungs lead from default PyTorch to the fastest runtime and number format, for one request.
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
# With fewer samples, the 99th percentile is the maximum.
LEAST_SAMPLES = 100
# Number formats that need no retraining.
FORMATS = ("float32", "tf32", "bfloat16", "float16")
_LABELS = ("model", "parameters", "batch", "threads")
_REQUEST = ["node", "device", "model", "parameters", "batch"]
_GENERATION = ("model", "parameters", "phase", "context", "batch", "dtype", "backend", "threads")


def with_parameters(data: Dataset, estimates: Estimates) -> Estimates:
    """Add each model's weight count, which the experiment `models` counts on any node."""
    counts = dict(data.summary("models", "parameters").rows("model", "estimate"))
    return estimates.label(parameters=estimates["model"].map(counts))


def request_times(data: Dataset) -> Estimates:
    """Return the median time per request at each point, with the model's weight count."""
    return with_parameters(data, data.summary("inference"))


@quantity(
    "inference.latency_s", "s", ("model", "parameters", "batch", "dtype", "backend", "threads"), reads=("models",)
)
def latency(data: Dataset) -> Estimates:
    """Median time per request on the host's clock, including copies to and from a GPU.

    parameters: weight count, to order the models. `backend: best` is the fastest library and thread count for each
    model, batch and number format; `detail` names them.
    """
    times = request_times(data)
    best = times.inverse().best_per_group([*_REQUEST, "dtype"], detail=["backend", "threads"]).inverse()
    return concat_estimates([times, best.label(backend="best")])


@quantity("inference.fastest_p99_s", "s", ("model", "parameters", "batch"), reads=("models",))
def fastest_p99(data: Dataset) -> Estimates:
    """99th percentile of the request time, with the fastest library, thread count and number format.

    Only formats that need no retraining are included: float32, TF32, bfloat16 and float16. Products in 8-bit integers
    are left out, because they change the answers. `detail` names the fastest library, thread count and format.
    """
    times = with_parameters(data, data.percentile("inference", TAIL, LEAST_SAMPLES)).filter(dtype=list(FORMATS))
    return times.inverse().best_per_group(_REQUEST, detail=["dtype", "backend", "threads"]).inverse()


@quantity("inference.onnx_gain", "1", ("model", "parameters", "batch", "dtype", "threads"), reads=("models",))
def onnx_gain(data: Dataset) -> Estimates:
    """Median request time in default PyTorch, divided by that in ONNX Runtime: same model, format and threads."""
    return request_times(data).ratio("backend", "torch", "onnx")


@quantity("inference.int8_gain", "1", _LABELS, reads=("models",))
def int8_gain(data: Dataset) -> Estimates:
    """Median request time in float32, divided by that with dynamically quantised products, both in ONNX Runtime."""
    return request_times(data).filter(backend="onnx").drop_labels("backend").ratio("dtype", "float32", "int8")


@quantity("generation.tokens_per_s", "tokens/s", _GENERATION, reads=("models",))
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens in a call, divided by its median time.

    A prefill counts all tokens in its prompts, and a decoding step counts one token per text.
    """
    calls = with_parameters(data, data.summary("generation").inverse())
    tokens = calls.numbers("context").where(calls["phase"] == "prefill", 1)
    return calls.scaled_by(tokens * calls.numbers("batch"))


@quantity("generation.bandwidth_share", "1", _GENERATION, experiments=["generation", "bandwidth"], reads=("models",))
def bandwidth_share(data: Dataset) -> Estimates:
    """Bytes that a call has to move (weights and cache, once each), divided by its time and by the measured bandwidth.

    The measured bandwidth comes from STREAM's fastest pass with as many threads as the call. Models that might fit into
    caches (fewer bytes than four times the last-level cache) are left out. The result may exceed 1, because a call
    mostly reads, and STREAM also writes.
    """
    rates, moved = (data.summary("generation", value=value) for value in ("bytes_per_s", "bytes"))
    return with_parameters(data, share_of_bandwidth(data, rates, moved))


@quantity("generation.peak_share", "1", _GENERATION, ceiling=1.0, reads=("gemm", "models", "peak"))
def peak_share(data: Dataset) -> Estimates:
    """FLOP/s that a call reaches, relative to a measured peak: the FMA rate on a CPU, the best product on a GPU."""
    return with_parameters(data, gemm.share_of_peak(data, data.summary("generation", value="flop_per_s")))


# PyTorch backends: default, another layout, compiled, or captured in a graph.
PYTORCH = ("torch", "channels_last", "inductor", "graph")
# Rungs from bottom to top. Each has the labels that its points must have; a label that is not named may have any value.
# A rung shows its fastest point.
RUNGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("plain PyTorch", {"backend": "torch", "dtype": "float32"}),
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
    """Median request time on each rung of the inference ladder, by model, batch and thread count.

    Each rung allows certain backends and formats, and shows the fastest. From the bottom, the rungs allow default
    PyTorch in float32; any PyTorch backend in float32; any PyTorch backend in any floating-point format; any runtime in
    float32; any runtime in any floating-point format; and any runtime and format, int8 included. runtime, dtype: the
    fastest backend and format on that rung. place: the rung's number, from the bottom. A rung that adds no measured
    point to the lower rungs is left out, except for the last rung, which shows the fastest point of all. A request has
    rungs only if it was measured in default PyTorch in float32, and also with another backend or format.
    """
    times = request_times(data)
    added, by = _rungs_with_points(times), ["backend", "dtype"]
    selected = []
    for place, (rung, limits) in enumerate(RUNGS, start=1):
        best = times.filter(**limits).inverse().best_per_group([*_REQUEST, "threads"], detail=by, keep=by).inverse()
        present = [_has_rung(rung, added[request]) for request in best.rows(*_BASE)]
        selected.append(best.take(np.array(present, bool)).label(rung=rung, place=place))
    rungs = concat_estimates(selected)
    return rungs.label(runtime=rungs["backend"]).drop_labels("backend")


def _rungs_with_points(times: Estimates) -> dict[tuple[Any, ...], set[str]]:
    """Return for each request the rungs that have points of their own.

    A point belongs to the lowest rung that it matches.
    """
    lowest = pd.Series(BEST, times.frame.index)
    for rung, limits in reversed(RUNGS):
        taken = times.label(row=range(len(times))).filter(**limits)["row"]
        lowest.iloc[taken.to_numpy(int)] = rung
    rungs: dict[tuple[Any, ...], set[str]] = {}
    for request, rung in zip(times.rows(*_BASE), lowest, strict=True):
        rungs.setdefault(request, set()).add(rung)
    return rungs


def _has_rung(rung: str, added: set[str]) -> bool:
    """Tell if a request has this rung; `added` comes from `_rungs_with_points`."""
    return DEFAULT in added and len(added) > 1 and rung in {DEFAULT, BEST, *added}


def _rung_ratio(above: Estimates, below: Estimates) -> Estimates:
    """Divide the times in `above` by those in `below`, whose labels rung, place, runtime and dtype the result keeps."""
    return without_error_where_equal(above.keep_labels(*_BASE) / below).label(detail="")


@quantity("inference.ladder_gain", "1", (*_LABELS, "rung", "place", "runtime", "dtype"), reads=("models",))
def ladder_gain(data: Dataset) -> Estimates:
    """Median request time in default PyTorch in float32, divided by that on each higher rung in `inference.ladder`.

    The result is exactly 1 if no other backend or format that was tried is faster.
    """
    rungs = runtime_ladder(data)
    return _rung_ratio(rungs.filter(rung=DEFAULT), rungs.take(rungs["rung"] != DEFAULT))


def _highest_float32_rungs(rungs: Estimates) -> Estimates:
    """Return each request's highest rung in float32."""
    return rungs.filter(rung=[DEFAULT, TUNED, RUNTIME]).sort_by("place").last_per_group(*_BASE)


@quantity("inference.runtime_gain", "1", (*_LABELS, "runtime", "dtype"), reads=("models",))
def runtime_gain(data: Dataset) -> Estimates:
    """Median request time in default PyTorch, divided by that in the fastest runtime tried, both in float32.

    Compiled PyTorch and other layouts count as runtimes. The result is exactly 1 if no runtime is faster.
    """
    return _highest_float32_rungs(ladder_gain(data)).drop_labels("rung", "place")


@quantity("inference.format_gain", "1", (*_LABELS, "runtime", "dtype"), reads=("models",))
def format_gain(data: Dataset) -> Estimates:
    """Median request time in the fastest float32 runtime, divided by that in the fastest runtime and format.

    runtime, dtype: the fastest runtime and format. int8 counts, although its answers may be less accurate than a
    floating-point format's. A request has a case only if it was also tried in a format other than float32.
    """
    rungs, formats = runtime_ladder(data), request_times(data)
    requests = set(formats.take(formats["dtype"] != "float32").rows(*_BASE))
    best = rungs.filter(rung=BEST)
    best = best.take(np.array([request in requests for request in best.rows(*_BASE)], bool))
    return _rung_ratio(_highest_float32_rungs(rungs), best).drop_labels("rung", "place")


@quantity("inference.gpu_over_cpu", "1", ("model", *BEST_LABELS), device="both", reads=("models",))
def answers_over_cpu(data: Dataset) -> Estimates:
    """Samples per second on one GPU, relative to those on its host's CPU, each at its highest rate.

    Each side uses its own best batch, runtime and thread count, as in MLPerf Inference's offline scenario. precision:
    equal (the same dtype on both sides) or best (each side's fastest dtype). runtime, cpu_runtime: runtimes on the GPU
    and on the CPU. `detail` names batch and format on both sides.
    """
    rates = request_times(data).inverse()
    return _batches_over_host(rates.scaled_by(rates.numbers("batch")), ["model"])


@quantity("generation.gpu_over_cpu", "1", ("model", "phase", *BEST_LABELS), device="both", reads=("models",))
def tokens_over_cpu(data: Dataset) -> Estimates:
    """Tokens per second on one GPU, relative to those on its host's CPU, each at its best batch and runtime.

    precision, runtime, cpu_runtime: as for `inference.gpu_over_cpu`.
    """
    return _batches_over_host(tokens_per_s(data).drop_labels("parameters"), ["model", "phase"], ["context"])


def _batches_over_host(rates: Estimates, by: Sequence[str], of: Sequence[str] = ()) -> Estimates:
    """Divide each GPU's best rate by its host CPU's best rate; `detail` names batches and formats."""
    return best_over_host(rates.label(batch=[f"batch {int(size)}" for size in rates["batch"]]), by, [*of, "batch"])
