"""Small points for every GPU experiment, which cover its formats, libraries, launches and kinds of work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

Point = tuple[str, dict[str, Any]]

_SHAPE = {"m": 48, "n": 80, "k": 96}
_PINNED = {"host_memory": "pinned"}
# A causal network as a user may configure it. It is small, because each operator is simulated separately.
OWN_MODELS = {
    "small-gpt": {
        "class": "GPT2LMHeadModel", "config": {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 500},
        "input": {"tokens": 16},
    },
}  # fmt: skip


def _grid(name: str, common: dict[str, Any], **axes: tuple[Any, ...]) -> Iterator[Point]:
    """Yield a point for each combination of values; by default, torch computes in float32."""
    plain = {"backend": "torch"} if name == "transfer" else {"dtype": "float32", "backend": "torch"}
    for values in product(*axes.values()):
        yield name, {**plain, **common, **dict(zip(axes, values, strict=True))}


def _product_points() -> Iterator[Point]:
    formats = ("float64", "float32", "tf32", "bfloat16", "float16", "float8_e4m3fn", "int8")
    yield from _grid("gemm", _SHAPE, dtype=formats)
    contents = ("zeros", "ones", "integers", "normal", "sparse", "denormal")
    yield from _grid("content", {**_SHAPE, "dtype": "bfloat16"}, content=contents)
    yield from _grid("numerics", {"m": 12, "n": 20, "k": 40}, method=("permuted", "summation", "split_k", "repeat"))
    yield from _grid("sustained", {"extent": 64, "dtype": "bfloat16"}, load=("one_block", "products", "idle"))
    yield "sustained", {"load": "triad", "extent": 24_000, "dtype": "float32", "backend": "torch"}


def _memory_points() -> Iterator[Point]:
    axes: dict[str, tuple[Any, ...]] = {"op": ("copy", "scale", "add", "triad"), "backend": ("cupy", "torch")}
    yield from _grid("bandwidth", {"footprint": 24_000}, **axes)
    yield from _grid("bandwidth", {"footprint": 24_000, "op": "triad", "dtype": "float64"}, backend=("cupy", "torch"))
    axes = {"direction": ("host_to_device", "device_to_host"), "size": (4, 70_001)}
    yield from _grid("transfer", _PINNED, **axes)
    yield from _grid("transfer", {**_PINNED, "host_memory": "pageable", "size": 70_001}, direction=axes["direction"])
    yield from _grid("transfer", {"direction": "both", "size": 70_001, **_PINNED})
    yield from _grid("transfer", {"direction": "device_to_device", "size": 70_001, "host_memory": "none"})


def _request_points() -> Iterator[Point]:
    shapes = {"elementwise": (1024, 1, 1), "gemv": (48, 1, 80), "gemm": (50, 60, 70), "mlp": (9, 128, 96)}
    for op, shape in shapes.items():
        common = {"op": op, **dict(zip("mnk", shape, strict=True)), "uses": 3, **_PINNED}
        yield from _grid("offload", common, launch=("eager", "graph"))
    common = {"op": "gemm", **_SHAPE, "uses": 1, "launch": "eager", "dtype": "bfloat16"}
    yield from _grid("offload", common, host_memory=("pinned", "pageable"))
    yield from _grid("offload", {**common, "dtype": "float64", **_PINNED})
    yield from _grid("inference", {"batch": 2}, model=("mlp", "cnn"), backend=("torch", "graph"))
    # Leave out the catalogue's token models. They slice a tensor of positions, which fails in inference mode if the
    # tensor is played.
    yield from _grid("inference", {"batch": 1}, model=("mobilenet-v2",), backend=("torch", "graph", "channels_last"))
    yield from _grid("inference", {"batch": 1, "dtype": "bfloat16"}, model=("gpt-1m", "lstm-32"))
    text = {"model": "llama-tiny", "format": "BF16", "tokens": 16}
    for phase, backend in (("prompt", "transformers"), ("decode", "transformers"), ("decode", "transformers-graph")):
        yield "language-models", {**text, "phase": phase, "backend": backend}
    load = {"users": 2, "prompt_tokens": 8, "new_tokens": 8, "seconds": 1, "cores": 1}
    for backend in ("xllamacpp", "llama-server"):
        yield "language-serving", {"model": "llama-tiny", "format": "Q8_0", **load, "backend": backend}


def _model_points() -> Iterator[Point]:
    yield from _grid("training", {"batch": 4}, model=("mlp", "cnn"), dtype=("float32", "tf32", "bfloat16"))
    yield from _grid("training", {"batch": 2}, model=("resnet",))
    yield from _grid("training", {"batch": 4, "backend": "graph"}, model=("mlp", "cnn"), dtype=("float32", "bfloat16"))
    yield from _grid("training", {"batch": 2, "model": "gpt-1m", "dtype": "bfloat16"}, backend=("torch", "graph"))
    yield from _grid("training", {"batch": 4, "model": "mlp", "dtype": "float16"}, backend=("torch", "graph"))
    axes: dict[str, tuple[Any, ...]] = {"phase": ("training", "forward"), "dtype": ("float32", "bfloat16")}
    yield from _grid("roofline", {"model": "mlp", "batch": 4}, **axes)
    yield from _grid("roofline", {"model": "small-gpt", "batch": 1}, phase=("prefill", "decode"))
    yield from _grid("equivalence", {"batch": 4, "steps": 2}, model=("mlp", "cnn"))
    yield from _grid("orchestration", {"model": "mlp", "batch": 6, "workers": 0}, source=("preloaded", "photographs"))
    yield from _grid("orchestration", {"model": "mlp", "batch": 6, "workers": 1, "source": "memory"})
    yield "time-to-train", {"job": "digits-mlp", "dtype": "float32", "backend": "torch"}


def _layer_points() -> Iterator[Point]:
    layer = {"batch": 1, "passes": "forward", "dtype": "float32"}
    kinds = (("convolution", "conv5-3x3", "library"), ("lstm", "256-cells", "native"),
             ("product", "1024x1024", "library"), ("product", "16384x512", "naive"))  # fmt: skip
    for kind, shape, variant in kinds:
        yield "libraries", {**layer, "layer": kind, "shape": shape, "variant": variant}
    yield "libraries", {**layer, "layer": "product", "shape": "1024x1024", "variant": "library", "dtype": "tf32"}
    yield "libraries", {**layer, "layer": "convolution", "shape": "conv5-3x3", "variant": "library", "passes": "both"}


def _kernel_points() -> Iterator[Point]:
    tasks = (("chain", 4, "random"), ("branches", 4096, "predictable"), ("states", 1 << 16, "text"),
             ("chase", 1 << 16, "random"))  # fmt: skip
    for (kernel, footprint, data), chains in product(tasks, ("one", "full")):
        common = {"kernel": kernel, "footprint": footprint, "data": data, "chains": chains, "backend": "cupy"}
        yield "sequential", common
    for in_flight in (1, 32, 100):
        yield "parallelism", {"kernel": "chains", "in_flight": in_flight, "paths": 0, "backend": "cupy"}
    for paths in (1, 8, 32):
        yield "parallelism", {"kernel": "paths", "in_flight": 0, "paths": paths, "backend": "cupy"}
    for kernel, n in (("triad", 1000), ("naive", 32), ("tiled", 32)):
        yield "without-cuda", {"kernel": kernel, "n": n, "dtype": "float32", "backend": "cuda"}


def _table_points() -> Iterator[Point]:
    for op, transfers in product(("filter", "sort", "group_by", "join"), ("included", "excluded")):
        yield "tabular", {"op": op, "rows": 1000, "transfers": transfers, "backend": "torch"}
    for backend in ("xgboost", "lightgbm", "sklearn"):
        yield "boosting", {"phase": "predict", "rows": 1, "trees": 1, "backend": backend}


POINTS: list[Point] = [
    (name, {**params, "threads": 0})
    for points in (
        _product_points,
        _memory_points,
        _request_points,
        _model_points,
        _layer_points,
        _kernel_points,
        _table_points,
    )
    for name, params in points()
]


def is_expensive(name: str, params: dict[str, Any]) -> bool:
    """Tell if a step has thousands of operators.

    Such a point runs only on the NVIDIA GPU, because all played GPUs would run the same operators.
    """
    if name == "language-models":
        return params["phase"] == "decode"
    return name != "language-serving" and params.get("model", "mlp") not in ("mlp", "cnn")


# GPU work that cannot be played, and the reason for each.
NOT_PLAYED = {
    "libraries: cuDNN's LSTM": "CPU operators have no cuDNN",
    "libraries: convolutions without cuDNN": "torch falls back to oneDNN, as on a CPU",
    "libraries: loaded libraries": "this process loads no driver",
    "serving": "its server is a separate process that opens the device by name",
    "several-devices": "there is one GPU, and no NCCL",
    "tabular by CuPy": "the stand-in for CuPy cannot sort, join or count",
    "without-cuda by Vulkan and WebGPU": "they cannot see a played GPU; other tests use Mesa's software device",
    "training and inference by inductor": "Triton compiles kernels only for real GPUs",
    "times, power, driver and profiler": "the CPU does the work",
}
