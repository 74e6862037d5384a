"""Check of a runtime's token probabilities on a model with only two layers, compared to Transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.devices import Device
from experiments.language import gguf_files, runtimes
from experiments.language.shapes import Format, Shape, shapes

# Layer count and vocabulary size of the checked model, which otherwise has the full model's widths, heads and number
# formats. Two layers are enough to contain all number types in Q4_K_M. A smaller vocabulary is enough, because all
# output rows are computed in the same way.
LAYERS, VOCABULARY = 2, 4096
PROMPTS, TOKENS, CONTEXT = 6, 16, 64
# Largest accepted logit error. llama.cpp rounds the inputs of products to 8 bits, in blocks of 32 or 256 values. For
# normally distributed values, this causes an error of about 0.6% in a product. The logit error grows to 1 to 2%
# (measured) over 2 layers with 4 successive products each, and to 3% over 24 layers. OpenVINO computes in bfloat16 with
# a KV cache in 8 bits, which causes 2 to 4% (measured).
TOLERANCE = 0.06


def checked_shape(model: str) -> Shape:
    """Return a model's shape, with layers and vocabulary reduced for the check."""
    shape = shapes()[model]
    return replace(shape, layers=min(shape.layers, LAYERS), vocabulary=min(shape.vocabulary, VOCABULARY))


@lru_cache(maxsize=1)
def _reference(model: str, kind: Format) -> Any:
    import torch

    from experiments.language.transformers_reference import load_network

    shape = checked_shape(model)
    return load_network(gguf_files.model_file(f"{model}-checked", shape, kind), shape, torch.float32)


def runtime_logit_error(model: str, kind: Format, backend: str, device: Device, threads: int) -> float:
    """Load the reduced model in a runtime and return the `logit_error` of its answers."""
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
    """Return the root mean square error of log probabilities, relative to their standard deviation in the reference.

    next_tokens: runs the reduced model and returns, for each prompt (tokens,), the candidates for the next token and
    their log probabilities. The prompts are new and random. The reference is Transformers in float32, with weights that
    gguf reads from the same file. The result is nan if a log probability is nan.
    """
    from experiments.language.transformers_reference import next_logits

    squares, spread = [], []
    prompts = [runtimes.random_prompt(TOKENS) for _ in range(PROMPTS)]
    for prompt, (ids, logarithms) in zip(prompts, next_tokens(prompts), strict=True):
        reference = runtimes.log_probabilities(next_logits(_reference(model, kind), prompt))
        squares.append(np.mean((logarithms - reference[ids]) ** 2))
        spread.append(reference.var())
    return float(np.sqrt(np.mean(squares) / np.mean(spread)))
