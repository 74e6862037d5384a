"""Language models in widely used shapes, with random weights in GGUF files: reading prompts and generating tokens."""

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

# Keys in `experiments.language.runtimes.RUNTIMES`, and the separate program llama-bench.
Backend = Literal[
    "llama-cpp-python", "xllamacpp", "openvino-genai", "llama-bench", "transformers", "transformers-graph"
]
# Number of tokens to generate per call.
RUN = 8
# Number of operations that a core can do while it reads a byte of weights, at the plan's CORE_FLOPS and 15 GB/s.
FLOP_PER_BYTE = 6.0

_loaded: dict[tuple[Any, ...], Runtime] = {}


def memory(model: str, format: Format, backend: str, tokens: int, **_: Any) -> float:
    """Estimate the bytes for the weights, for keys and values, and for the check's two layers in float32."""
    from experiments.language.gguf_files import file_bytes
    from experiments.language.token_check import checked_shape

    shape = shapes()[model]
    reference = 0 if backend == "llama-bench" else 4 * checked_shape(model).parameters
    return float(file_bytes(shape, format) + reference + shape.cache_bytes(tokens + RUN))


def flop(model: str, format: Format, phase: str, tokens: int, **_: Any) -> float:
    """Return the FLOP per call, from which the plan estimates the time for the call.

    Generating tokens takes at least as long as reading the weights, so return at least the FLOP that a core could do
    in that time.
    """
    from experiments.language.weights import bytes_per_token

    if phase == "prompt":
        return shapes()[model].flop(tokens)
    return RUN * max(shapes()[model].flop(1, tokens), FLOP_PER_BYTE * bytes_per_token(format, shapes()[model]))


def extra_s(threads: int, **_: Any) -> float:
    """Estimate the seconds to write files and load the models. The CPU value is measured, the GPU value is a guess."""
    return 2.0 if threads else 4.0


def lacks(_: Sequence[Mapping[str, Any]], params: Params) -> str:
    """Return an error message if the backend is optional and missing; '' otherwise."""
    from experiments.language import llama_bench

    if params["backend"] == "llama-bench" and llama_bench.program_path() is None:
        return llama_bench.ABSENT
    if params["backend"] == "llama-cpp-python" and find_spec("llama_cpp") is None:
        return str(missing_library(ModuleNotFoundError(name="llama_cpp")))
    return ""


@experiment("language-models", memory=memory, flop=flop, extra_s=extra_s, load_s=2.0, lacks=lacks)
def language_models(
    device: Device, model: Name, format: Format, phase: Literal["prompt", "decode"], tokens: int, backend: Backend,
    threads: Threads,
) -> Workload:  # fmt: skip
    """Run one model in one runtime.

    model: a shape with random weights, or the user's own file.
    format: number format in the file.

    prompt: a call reads a fresh prompt of `tokens` tokens and computes the next token. decode: a call generates RUN
        tokens, one after the other, with keys and values for the `tokens` before them cached; the time is per token.
        llama-bench: a program on PATH that times itself; its answers cannot be checked.

    FLOP: by formula, with causal attention.
    bytes: the weights to read per token, plus the cached keys and values.
    Unsupported: a runtime that is not installed, cannot read the format or cannot compute on the device.
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
            return {"time": (llama_bench.test_seconds(path, device, threads, tokens, RUN if writes else 0), "s")}

        return Workload(observe=observe, **counted)
    runtime = open_runtime(model, format, backend, device, threads, tokens)
    prompt = random_prompt(tokens)
    return Workload(
        run=partial(runtime.decode, prompt, RUN) if writes else lambda: runtime.prefill(random_prompt(tokens)),
        per=float(RUN) if writes else None,
        check=lambda: token_check.runtime_logit_error(model, format, backend, device, threads),
        tolerance=token_check.TOLERANCE,
        **counted,
    )


def open_runtime(model: str, format: Format, backend: str, device: Device, threads: int, tokens: int) -> Runtime:
    """Return a runtime with these settings: reuse the last runtime if its settings are equal, else replace it."""
    from experiments.language import gguf_files
    from experiments.language.runtimes import RUNTIMES

    key = (model, format, backend, device.name, threads, tokens)
    if key not in _loaded:
        while _loaded:
            _loaded.popitem()[1].close()
        path = gguf_files.model_file(model, shapes()[model], format)
        _loaded[key] = RUNTIMES[backend](path, shapes()[model], device, threads, tokens + RUN)
    return _loaded[key]
