"""Texts that a causal network continues, from cached keys and values; weights in a format, and exact answers."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from experiments.devices import Device
from experiments.workload import Dtype, Unsupported, largest_error, relative_error

# Formats in which weights and cache are kept and computed with.
FORMATS = (Dtype.FLOAT64, Dtype.FLOAT32, Dtype.TF32, Dtype.BFLOAT16, Dtype.FLOAT16)
# Texts of a batch that are checked.
CHECKED = 2


@contextlib.contextmanager
def weights_on(device: Device, dtype: Dtype) -> Iterator[None]:
    """Models made here get their weights on the device, in this format, drawn anew from the same seed.

    Raises Unsupported for a format in which torch draws none.
    """
    if dtype not in FORMATS:
        raise Unsupported(f"weights in {dtype} are not part of this experiment")
    before = torch.get_default_dtype()
    torch.set_default_dtype(device.torch_dtype(dtype))
    try:
        torch.manual_seed(0)
        with torch.device(device.name):
            yield
    finally:
        torch.set_default_dtype(before)


def allow_tf32(device: Device, dtype: Dtype) -> None:
    """Let matrix units round float32 to TF32, or forbid it: a switch of the process, which each point sets."""
    if device.kind == "gpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype is Dtype.TF32


def exact_logits(model: nn.Module, inputs: Tensor, device: Device) -> Tensor:
    """The model's answer in float64 from its own weights, where float64 can be had; (rows, classes), on the CPU."""
    where = device.name if device.float64 else "cpu"
    exact = inputs.to(where)
    with torch.no_grad():
        out: Tensor = copy.deepcopy(model).to(where).double()(exact.double() if exact.is_floating_point() else exact)
    return out.cpu()


class Cached:
    """A causal network of Transformers that keeps the keys and values of the tokens that it has read.

    places: most tokens of a text.
    """

    def __init__(self, network: Any, places: int) -> None:
        from transformers import StaticCache

        self.network, self.length = network, 0
        self.cache: Any = StaticCache(config=network.config, max_cache_len=places)

    def read(self, ids: Tensor) -> Tensor:
        """Logits of the tokens after `ids` (texts, tokens), which follow those in the cache: (texts, vocabulary)."""
        with torch.no_grad():
            out = self.network(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.length += ids.shape[1]
        logits: Tensor = out.logits[:, -1]
        return logits

    def forget(self, start: int) -> None:
        """Drop the tokens from place `start` on."""
        if self.length > start:
            self.cache.crop(start - self.length)
        self.length = start


class Generator:
    """A causal network of the catalogue and some texts, the keys and values of all of whose tokens are cached.

    prefill: read all tokens of the texts at once, until the logits of the next ones, (texts, vocabulary). decode: read
    the last token of each text alone, with those before it in the cache: the same logits. Every call is the same work.
    draw: gives texts (texts, tokens).
    """

    def __init__(self, model: Any, draw: Callable[[], Tensor], device: Device) -> None:
        self.model, self.draw, self.device = model.eval(), draw, device
        self.tokens = draw().to(device.name)
        self.held = Cached(model.network, self.tokens.shape[1])
        self.prefill()

    def prefill(self) -> Tensor:
        """Logits of the tokens after all texts, and the whole cache anew."""
        self.held.forget(0)
        return self.held.read(self.tokens)

    def decode(self) -> Tensor:
        """The same logits from the last tokens and the cache of those before."""
        self.held.forget(self.tokens.shape[1] - 1)
        return self.held.read(self.tokens[:, -1:])

    def error(self, phase: str) -> float:
        """Relative error of a phase's logits on fresh texts against float64.

        Before a decoding the cache is filled; after a prefilling it is checked, by decoding from it.
        """
        self.tokens.copy_(self.draw())
        if phase == "prefill":
            for layer in self.held.cache.layers:
                layer.keys.fill_(torch.nan)
                layer.values.fill_(torch.nan)
        first = self.prefill()
        found = [self.decode()] if phase == "decode" else [first, self.decode()]
        some = torch.randperm(len(self.tokens))[:CHECKED].to(self.device.name)
        right = exact_logits(self.model, self.tokens[some], self.device).unflatten(0, (len(some), -1))[:, -1]
        return largest_error(*(relative_error(one[some].cpu().double(), right) for one in found))
