"""Probabilities of tokens against Transformers, on a model of two of the layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.devices import Device
from experiments.language import gguf_files, runtimes
from experiments.language.shapes import Format, Shape, shapes

# The model that is checked has the widths, heads and formats of the whole one: Q4_K_M mixes its types in both of
# these layers, and of an output layer each row is computed alike.
LAYERS, VOCABULARY = 2, 4096
# Prompts that are checked, their tokens, and the places of a context.
PROMPTS, TOKENS, CONTEXT = 6, 16, 64
# Largest right error. llama.cpp rounds the inputs of each product to 8 bits, by blocks of 32 or 256: of normal values
# each about 0.6%, of which 2 layers of 4 products in a row make 1 to 2% (measured), and 24 layers 3%. OpenVINO
# computes in bfloat16 with keys and values in 8 bits (2 to 4% measured).
TOLERANCE = 0.06


def checked_shape(model: str) -> Shape:
    """The shape of which answers are checked for a model."""
    shape = shapes()[model]
    return replace(shape, layers=min(shape.layers, LAYERS), vocabulary=min(shape.vocabulary, VOCABULARY))


@lru_cache(maxsize=1)
def _reference(model: str, kind: Format) -> Any:
    import torch

    from experiments.language.transformers_reference import network

    shape = checked_shape(model)
    return network(gguf_files.model_file(f"{model}-checked", shape, kind), shape, torch.float32)


def error(model: str, kind: Format, backend: str, device: Device, threads: int) -> float:
    """Error of a runtime's logits, see `difference`."""
    shape = checked_shape(model)
    path = gguf_files.model_file(f"{model}-checked", shape, kind)
    runtime = runtimes.RUNTIMES[backend](path, shape, device, threads, CONTEXT)
    try:
        return difference(model, kind, lambda prompts: [runtime.following(prompt) for prompt in prompts])
    finally:
        runtime.close()


def difference(model: str, kind: Format, following: Callable[[list[runtimes.Ids]], list[runtimes.Following]]) -> float:
    """Root mean square of the errors of logits, relative to their standard deviation.

    following: from prompts (tokens,) to tokens that may follow each, and the logarithms of their probabilities, by the
    model of the checked shape. Logits count up to a constant, on fresh random prompts; the reference is Transformers in
    float32, with the weights that gguf reads from the same file. nan if a logarithm is.
    """
    from experiments.language.transformers_reference import logits

    squares, spread = [], []
    prompts = [runtimes.random_prompt(TOKENS) for _ in range(PROMPTS)]
    for prompt, (ids, told) in zip(prompts, following(prompts), strict=True):
        right = runtimes.log_probabilities(logits(_reference(model, kind), prompt))
        squares.append(np.mean((told - right[ids]) ** 2))
        spread.append(right.var())
    return float(np.sqrt(np.mean(squares) / np.mean(spread)))
