"""Quantities of trained models that answer: how long a request waits, how many are answered, and text by the token."""

from __future__ import annotations

from collections.abc import Sequence

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import gemm, quantity
from report.quantities.memory import CACHE_MULTIPLE, bandwidth_rate, last_level_cache
from report.quantities.offload import per_second

TAIL = 0.99
# The 99th percentile of fewer samples is their largest.
LEAST_SAMPLES = 100
_LABELS = ("model", "parameters", "batch", "dtype", "backend", "threads")
_NEEDS = {"experiments": ["inference"], "device": "any"}
_REQUEST = ["node", "device", "model", "parameters", "batch", "dtype"]
_GENERATION = ("model", "parameters", "phase", "context", "batch", "dtype", "backend", "threads")


def with_parameters(data: Dataset, cells: Estimates) -> Estimates:
    """The cells with the number of weights of each model, which the experiment `models` counts on any node."""
    counted = data.summary("models", "parameters")
    known = dict(zip(counted.frame["model"], counted.frame["estimate"], strict=True)) if len(counted) else {}
    return cells.label(parameters=cells.frame["model"].map(known)) if len(cells) else cells


def with_quickest(cells: Estimates) -> Estimates:
    """Beside the cells the quickest library and number of threads for each request, as `backend: best`."""
    if not len(cells):
        return cells
    best = per_second(per_second(cells).best(_REQUEST, of=["backend", "threads"]))
    return concat([cells, best.label(backend="best")])


@quantity(
    "inference.latency_s",
    unit="s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, a request ({labels}) is answered after {value}",
)
def latency(data: Dataset) -> Estimates:
    """Median time of one request, on the host's clock, copies to a GPU and back included.

    parameters: weights of the model, which order the models. `backend: best` is the quickest
    library and number of threads for each model, batch and number format; `detail` names them.
    """
    return with_quickest(with_parameters(data, data.summary("inference")))


@quantity(
    "inference.p99_latency_s",
    unit="s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, 99% of requests ({labels}) are answered within {value}",
)
def p99_latency(data: Dataset) -> Estimates:
    """99th percentile of the time of single requests, of rounds with at least LEAST_SAMPLES of them.

    Each round has its own; rounds are the unit of the interval. `backend: best` as for `latency_s`.
    """
    tail = data.percentile("inference", TAIL, LEAST_SAMPLES)
    return with_quickest(with_parameters(data, tail))


@quantity(
    "inference.throughput",
    unit="samples/s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, requests one after the other ({labels}) answer {value}",
)
def throughput(data: Dataset) -> Estimates:
    """Batch over the median time of a request: what one caller gets who waits for each answer."""
    cells = per_second(latency(data))
    return cells.scaled_by(cells.frame["batch"].astype(float)) if len(cells) else cells


def _gain(cells: Estimates, over: str, slow: str, quick: str) -> Estimates:
    """Times with `over` = slow, divided by those with `over` = quick of the same request on the same device."""
    if not len(cells):
        return cells
    sides = [cells.only(**{over: name}).without(over) for name in (slow, quick)]
    return sides[0] / sides[1]


def _requests(data: Dataset) -> Estimates:
    return with_parameters(data, data.summary("inference"))


@quantity(
    "inference.onnx_gain",
    unit="1",
    needs=_NEEDS,
    labels=("model", "parameters", "batch", "dtype", "threads"),
    says="On {node}, ONNX Runtime answers {value} times as fast as PyTorch ({labels})",
)
def onnx_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes over that in ONNX Runtime: same model, format and threads."""
    return _gain(_requests(data), "backend", "torch", "onnx")


@quantity(
    "inference.compile_gain",
    unit="1",
    needs=_NEEDS,
    labels=("model", "parameters", "batch", "dtype", "threads"),
    says="On {node}, compiled PyTorch answers {value} times as fast as PyTorch as it comes ({labels})",
)
def compile_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes over that by `torch.compile`."""
    return _gain(_requests(data), "backend", "torch", "inductor")


@quantity(
    "inference.graph_gain",
    unit="1",
    needs={"experiments": ["inference"], "device": "gpu"},
    labels=("model", "parameters", "batch", "dtype"),
    says="On {node}, a request whose kernels are one graph is answered {value} times as fast as with each launched "
    "({labels})",
)
def graph_gain(data: Dataset) -> Estimates:
    """Median time of a request in PyTorch as it comes over that with its kernels captured in one graph."""
    return _gain(_requests(data), "backend", "torch", "graph")


@quantity(
    "inference.int8_gain",
    unit="1",
    needs=_NEEDS,
    labels=("model", "parameters", "batch", "threads"),
    says="On {node}, products in 8-bit whole numbers answer {value} times as fast as in float32 ({labels})",
)
def int8_gain(data: Dataset) -> Estimates:
    """Median time of a request in float32 over that with dynamically quantised products, both in ONNX Runtime."""
    cells = _requests(data)
    return _gain(cells.only(backend="onnx").without("backend"), "dtype", "float32", "int8") if len(cells) else cells


@quantity(
    "generation.tokens_per_s",
    unit="tokens/s",
    needs={"experiments": ["generation"], "device": "any"},
    labels=_GENERATION,
    says="On {node}, text is read or written at {value} ({labels})",
)
def tokens_per_s(data: Dataset) -> Estimates:
    """Tokens over the median time of a call: of a prefilling those of the prompts, of a decoding one for each text."""
    cells = with_parameters(data, per_second(data.summary("generation")))
    if not len(cells):
        return cells
    tokens = cells.frame["context"].where(cells.frame["phase"] == "prefill", 1).astype(float)
    return cells.scaled_by(tokens * cells.frame["batch"].astype(float))


@quantity(
    "generation.bandwidth_share",
    unit="1",
    needs={"experiments": ["generation", "bandwidth"], "device": "any"},
    labels=_GENERATION,
    says="On {node}, generating text ({labels}) takes {value} of the memory's measured bandwidth",
)
def bandwidth_share(data: Dataset) -> Estimates:
    """Bytes that a call has to move (weights and cache, each once) over its time and over the measured bandwidth.

    Bandwidth: the fastest of STREAM's passes by as many threads. Models whose bytes could stay in caches
    (fewer than four times the last one) are left out. It may exceed 1: a call mostly reads, and STREAM also writes.
    """
    cells, memory = data.summary("generation", value="bytes_per_s"), bandwidth_rate(data)
    moved = data.summary("generation", value="bytes")
    if not len(cells) or not len(memory):
        return Estimates.empty()
    best = memory.only(backend="best").best(["node", "device", "threads"], of=["op", "dtype"])
    places = zip(moved.frame["node"], moved.frame["device"], moved.frame["estimate"], strict=True)
    large = [i for i, (n, d, total) in enumerate(places) if total >= CACHE_MULTIPLE * last_level_cache(data, n, d)]
    return with_parameters(data, cells.at(large) / best)


@quantity(
    "generation.peak_share",
    unit="1",
    needs={"experiments": ["generation"], "device": "any"},
    labels=_GENERATION,
    says="On {node}, generating text ({labels}) uses {value} of the device's measured peak",
    ceiling=1.0,
)
def peak_share(data: Dataset) -> Estimates:
    """FLOP of a call over its time and over the measured peak: of multiply-adds on a CPU, of products on a GPU."""
    cells = data.summary("generation", value="flop_per_s")
    shares: Sequence[Estimates] = []
    if len(cells):
        fma, products = gemm.peak(data, "fma"), gemm.rate(data)
        if len(products):
            products = products.only(device="gpu", backend="best")
        ceilings = [(kind, peak) for kind, peak in (("cpu", fma), ("gpu", products)) if len(peak)]
        shares = [
            cells.only(device=kind) / peak.only(device=kind).by("node", "device", "dtype", *_threads(kind))
            for kind, peak in ceilings
        ]
    return with_parameters(data, concat(list(shares))) if shares else Estimates.empty()


def _threads(kind: str) -> Sequence[str]:
    """Labels by which a peak is found besides its device and format."""
    return ["threads"] if kind == "cpu" else []
