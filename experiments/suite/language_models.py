"""Language models in the shapes that people run, from GGUF files of random weights: prompts, and tokens after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.language.shapes import Format, Name, shapes
from experiments.registry import Params, experiment
from experiments.workload import Threads, Unsupported, Workload, missing_library

if TYPE_CHECKING:
    from experiments.language.runtimes import Runtime

# Names of RUNTIMES, and a program.
Backend = Literal[
    "llama-cpp-python", "xllamacpp", "openvino-genai", "llama-bench", "transformers", "transformers-graph"
]
# Tokens that one call writes.
RUN = 8
# Operations for which a core has time while it reads a byte of weights: by the plan's CORE_FLOPS, 15 GB/s.
FLOP_PER_BYTE = 6.0

_loaded: dict[tuple[Any, ...], Runtime] = {}


def memory(model: str, format: Format, backend: str, tokens: int, **_: Any) -> float:
    """Weights, keys and values; and the two layers that are checked, in float32."""
    from experiments.language.gguf_files import file_bytes
    from experiments.language.token_check import checked_shape

    shape = shapes()[model]
    reference = 0 if backend == "llama-bench" else 4 * checked_shape(model).parameters
    return float(file_bytes(shape, format) + reference + shape.cache_bytes(tokens + RUN))


def flop(model: str, format: Format, phase: str, tokens: int, **_: Any) -> float:
    """Of one call; of tokens that are written, as many as would take as long as it takes to read their bytes."""
    from experiments.language.weights import bytes_per_token

    if phase == "prompt":
        return shapes()[model].flop(tokens)
    return RUN * max(shapes()[model].flop(1, tokens), FLOP_PER_BYTE * bytes_per_token(format, shapes()[model]))


def extra_s(threads: int, **_: Any) -> float:
    """Writing files, loading the model and the layers that are checked: on a CPU as measured, a GPU's is a guess."""
    return 2.0 if threads else 4.0


def lacks(_: Sequence[Mapping[str, Any]], params: Params) -> str:
    """Runtimes that are no part of the study's own installation, and are not there."""
    from experiments.language import llama_bench

    if params["backend"] == "llama-bench" and llama_bench.program() is None:
        return llama_bench.ABSENT
    if params["backend"] == "llama-cpp-python" and find_spec("llama_cpp") is None:
        return str(missing_library(ModuleNotFoundError(name="llama_cpp")))
    return ""


@experiment("language-models", memory=memory, flop=flop, extra_s=extra_s, load_s=2.0, lacks=lacks)
def language_models(
    device: Device, model: Name, format: Format, phase: Literal["prompt", "decode"], tokens: int, backend: Backend,
    threads: Threads,
) -> Workload:  # fmt: skip
    """One model in one runtime.

    model: a shape with random weights, or a file of the user's own. format: of the file.

    prompt: a call computes the token after a fresh prompt of so many. decode: a call computes RUN tokens, one after
    the other, with the keys and values of `tokens` before them cached; its time is that of one token.
    llama-bench: a program on PATH, which times itself; its answers cannot be checked.

    FLOP: by formula, attention as a causal kernel computes it. bytes: the weights that a token reads, and the cache.
    Unsupported: a runtime that is not installed, or that does not read the format or compute on the device.
    """
    from experiments.language import gguf_files, llama_bench, token_check
    from experiments.language.runtimes import random_prompt
    from experiments.language.weights import bytes_per_token

    shape = shapes()[model]
    if not 1 < tokens <= shape.context - RUN:
        raise Unsupported(f"{tokens} tokens: this model takes 2 to {shape.context - RUN}")
    writes = phase == "decode"
    counted: dict[str, Any] = {
        "flop": shape.flop(1, tokens) if writes else shape.flop(tokens),
        "bytes": float(bytes_per_token(format, shape) + shape.cache_bytes(tokens)),
    }
    if backend == "llama-bench":
        path = gguf_files.model_file(model, shape, format)

        def observe() -> dict[str, tuple[list[float], str]]:
            return {"time": (llama_bench.seconds(path, device, threads, tokens, RUN if writes else 0), "s")}

        return Workload(observe=observe, **counted)
    runtime = loaded(model, format, backend, device, threads, tokens)
    prompt = random_prompt(tokens)
    return Workload(
        run=partial(runtime.write, prompt, RUN) if writes else lambda: runtime.read(random_prompt(tokens)),
        per=float(RUN) if writes else None,
        check=lambda: token_check.error(model, format, backend, device, threads),
        tolerance=token_check.TOLERANCE,
        **counted,
    )


def loaded(model: str, format: Format, backend: str, device: Device, threads: int, tokens: int) -> Runtime:
    """The runtime with this model: the one that the last point had, or a new one in its place."""
    from experiments.language import gguf_files
    from experiments.language.runtimes import RUNTIMES

    asked = (model, format, backend, device.name, threads, tokens)
    if asked not in _loaded:
        while _loaded:
            _loaded.popitem()[1].close()
        path = gguf_files.model_file(model, shapes()[model], format)
        _loaded[asked] = RUNTIMES[backend](path, shapes()[model], device, threads, tokens + RUN)
    return _loaded[asked]
