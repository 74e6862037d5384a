"""Quantities of trained models that answer: how long a request waits, how many are answered, and text by the token."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import gemm, quantity, says
from report.quantities.memory import over_memory

TAIL = 0.99
# The 99th percentile of fewer samples is their largest.
LEAST_SAMPLES = 100
# Number formats in which a trained model answers as it is.
FORMATS = ("float32", "tf32", "bfloat16", "float16")
_LABELS = ("model", "parameters", "batch", "dtype", "backend", "threads")
_REQUEST = ["node", "device", "model", "parameters", "batch", "dtype"]
_GENERATION = ("model", "parameters", "phase", "context", "batch", "dtype", "backend", "threads")
_of_inference = partial(quantity, experiments=["inference"], labels=_LABELS)
_of_pair = partial(quantity, experiments=["inference"], labels=("model", "parameters", "batch", "dtype", "threads"))
_of_text = partial(quantity, experiments=["generation"], labels=_GENERATION)


def with_parameters(data: Dataset, found: Estimates) -> Estimates:
    """The same with the number of weights of each model, which the experiment `models` counts on any node."""
    known = dict(data.summary("models", "parameters").rows("model", "estimate"))
    return found.label(parameters=found["model"].map(known))


def with_quickest(times: Estimates) -> Estimates:
    """Beside the times the quickest library and number of threads for each request, as `backend: best`."""
    best = times.inverse().best(_REQUEST, of=["backend", "threads"]).inverse()
    return concat([times, best.label(backend="best")])


def requests(data: Dataset) -> Estimates:
    """Median time of one request of each point, with the number of weights of its network."""
    return with_parameters(data, data.summary("inference"))


@_of_inference("inference.latency_s", "s")
@says("On {node}, a request ({labels}) is answered after {value}")
def latency(data: Dataset) -> Estimates:
    """Median time of one request, on the host's clock, copies to a GPU and back included.

    parameters: weights of the model, which order the models. `backend: best` is the quickest
    library and number of threads for each model, batch and number format; `detail` names them.
    """
    return with_quickest(requests(data))


@quantity("inference.fastest_p99_s", "s", experiments=["inference"], labels=("model", "parameters", "batch"))
@says("On {node}, at its best 99% of requests ({labels}) are answered within {value}")
def fastest_p99(data: Dataset) -> Estimates:
    """99th percentile of the time of single requests, of the quickest library, number of threads and format.

    Formats: of FORMATS, which need no retraining; products in 8-bit whole numbers answer differently. `detail` names
    what was quickest.
    """
    times = with_parameters(data, data.percentile("inference", TAIL, LEAST_SAMPLES)).only(dtype=list(FORMATS))
    request = ["node", "device", "model", "parameters", "batch"]
    return times.inverse().best(request, of=["dtype", "backend", "threads"]).inverse()


@_of_pair("inference.onnx_gain", "1")
@says("On {node}, ONNX Runtime answers {value} times as fast as PyTorch ({labels})")
def onnx_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes over that in ONNX Runtime: same model, format and threads."""
    return requests(data).ratio("backend", "torch", "onnx")


@quantity("inference.int8_gain", "1", experiments=["inference"], labels=("model", "parameters", "batch", "threads"))
@says("On {node}, products in 8-bit whole numbers answer {value} times as fast as in float32 ({labels})")
def int8_gain(data: Dataset) -> Estimates:
    """Median time of a request in float32 over that with dynamically quantised products, both in ONNX Runtime."""
    return requests(data).only(backend="onnx").without("backend").ratio("dtype", "float32", "int8")


@_of_text("generation.tokens_per_s", "tokens/s")
@says("On {node}, text is read or written at {value} ({labels})")
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens over the median time of a call: of a prefilling those of the prompts, of a decoding one for each text."""
    calls = with_parameters(data, data.summary("generation").inverse())
    tokens = calls.numbers("context").where(calls["phase"] == "prefill", 1)
    return calls.scaled_by(tokens * calls.numbers("batch"))


@quantity("generation.bandwidth_share", "1", experiments=["generation", "bandwidth"], labels=_GENERATION)
@says("On {node}, generating text ({labels}) takes {value} of the memory's measured bandwidth")
def bandwidth_share(data: Dataset) -> Estimates:
    """Bytes that a call has to move (weights and cache, each once) over its time and over the measured bandwidth.

    Bandwidth: the fastest of STREAM's passes by as many threads. Models whose bytes could stay in caches
    (fewer than four times the last one) are left out. It may exceed 1: a call mostly reads, and STREAM also writes.
    """
    rates, moved = (data.summary("generation", value=value) for value in ("bytes_per_s", "bytes"))
    return with_parameters(data, over_memory(data, rates, moved))


@_of_text("generation.peak_share", "1", ceiling=1.0)
@says("On {node}, generating text ({labels}) uses {value} of the device's measured peak")
def peak_share(data: Dataset) -> Estimates:
    """FLOP of a call over its time and over the measured peak: of multiply-adds on a CPU, of products on a GPU."""
    return with_parameters(data, gemm.share_of_peak(data, data.summary("generation", value="flop_per_s")))
