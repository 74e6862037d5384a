"""Check a runtime's token probabilities on a model cut to two layers, with Transformers as the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.devices import Device
from experiments.language import gguf_files, runtimes
from experiments.language.shapes import Format, Shape, shapes

# Layers and vocabulary of the checked model, which keeps the widths, heads and formats of the full model. Two layers
# are enough, since Q4_K_M mixes types in both, and so is a part of the vocabulary, since all output rows are computed
# alike.
LAYERS, VOCABULARY = 2, 4096
PROMPTS, TOKENS, CONTEXT = 6, 16, 64
# Largest accepted error. llama.cpp rounds product inputs to 8 bits in blocks with 32 or 256 values. The error is about
# 0.6% for normal values, and grows to 1 to 2% (measured) over 2 layers with 4 successive products each, and to 3% over
# 24 layers. OpenVINO computes in bfloat16 with an 8-bit KV cache (2 to 4% measured).
TOLERANCE = 0.06


def checked_shape(model: str) -> Shape:
    """Return the reduced shape for checking a model."""
    shape = shapes()[model]
    return replace(shape, layers=min(shape.layers, LAYERS), vocabulary=min(shape.vocabulary, VOCABULARY))


@lru_cache(maxsize=1)
def _reference(model: str, kind: Format) -> Any:
    import torch

    from experiments.language.transformers_reference import load_network

    shape = checked_shape(model)
    return load_network(gguf_files.model_file(f"{model}-checked", shape, kind), shape, torch.float32)


def runtime_logit_error(model: str, kind: Format, backend: str, device: Device, threads: int) -> float:
    """Return a runtime's logit error, see `logit_error`."""
    shape = checked_shape(model)
    path = gguf_files.model_file(f"{model}-checked", shape, kind)
    runtime = runtimes.RUNTIMES[backend](path, shape, device, threads, CONTEXT)
    try:
        return logit_error(model, kind, lambda prompts: [runtime.next_tokens(prompt) for prompt in prompts])
    finally:
        runtime.close()


def logit_error(
    model: str, kind: Format, next_tokens: Callable[[list[runtimes.Ids]], list[runtimes.NextTokens]]
) -> float:
    """Return the root mean square logit error, relative to the logits' standard deviation.

    next_tokens: maps prompts (tokens,) to (candidate tokens, log probabilities), for the checked shape. Logits are
    compared up to a constant, on fresh random prompts, with Transformers in float32 and weights read by gguf from the
    same file. nan if a log probability is nan.
    """
    from experiments.language.transformers_reference import next_logits

    squares, spread = [], []
    prompts = [runtimes.random_prompt(TOKENS) for _ in range(PROMPTS)]
    for prompt, (ids, logarithms) in zip(prompts, next_tokens(prompts), strict=True):
        reference = runtimes.log_probabilities(next_logits(_reference(model, kind), prompt))
        squares.append(np.mean((logarithms - reference[ids]) ** 2))
        spread.append(reference.var())
    return float(np.sqrt(np.mean(squares) / np.mean(spread)))
