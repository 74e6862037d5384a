"""Text from a GPT, token by token: the prompt in one pass, then a token at a time from cached keys and values."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.devices import Device
from experiments.models import data
from experiments.models.networks import Block, Gpt
from experiments.work import Dtype, Unsupported, largest, relative_error

# Formats in which weights and cache are kept and computed with.
FORMATS = (Dtype.FLOAT64, Dtype.FLOAT32, Dtype.TF32, Dtype.BFLOAT16, Dtype.FLOAT16)


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
    """The model's answer in float64 from its own weights, where float64 can be had; (rows, classes), on the CPU.

    A GPT goes block by block, so that one block alone is held in float64: copies of all would
    not fit beside a model that fills the memory.
    """
    where = device.name if device.float64 else "cpu"

    def through(module: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = copy.deepcopy(module).to(where).double()(x)
        return out

    x = inputs.to(where)
    with torch.no_grad():
        if not isinstance(model, Gpt):
            return through(model, x.double() if x.is_floating_point() else x).cpu()
        x = through(model.tokens, x) + model.places[: x.shape[1]].to(where).double()
        for block in model.blocks:
            x = through(block, x)
        return through(model.head, through(model.norm, x)).flatten(0, 1).cpu()


class Generator:
    """A GPT that continues texts of `context` tokens, of which it keeps the keys and values of every layer.

    prefill: all tokens at once; fills the cache and gives the logits of the next ones, (batch, 256).
    decode: the last of the tokens alone, from the cache of those before it: the same logits. Neither
    moves on, so that every call is the same work, in the same memory.
    Both count their FLOP (2 for each multiply-add of the products; attention whole, though a causal
    kernel may skip half) and their least traffic in bytes: all weights that are multiplied with, and
    the cache, each once.
    Raises Unsupported if the model does not know so many places.
    """

    def __init__(self, model: Gpt, device: Device, dtype: Dtype, batch: int, context: int) -> None:
        if not 2 <= context <= model.length:
            raise Unsupported(f"a context of {context} tokens: this model knows 2 to {model.length}")
        allow_tf32(device, dtype)
        kept = device.torch_dtype(dtype)
        self.model = model.to(device.name, kept).eval()
        self.device, self.dtype, self.batch, self.context = device, dtype, batch, context
        self.blocks = cast(list[Block], list(self.model.blocks))
        heads = self.blocks[0].heads
        shape = (batch, heads, context, model.width // heads)
        self.cache = [
            (torch.zeros(shape, dtype=kept, device=device.name), torch.zeros(shape, dtype=kept, device=device.name))
            for _ in self.blocks
        ]
        self.tokens = torch.zeros(batch, context, dtype=torch.int64, device=device.name)
        self.give()

    def give(self, tokens: Tensor | None = None) -> Tensor:
        """Take these texts (batch, context) from now on, or others at random; gives them."""
        chosen = data.text_batch(self.batch, self.context)[0] if tokens is None else tokens
        self.tokens.copy_(chosen)
        self.prefill()
        return chosen

    @torch.no_grad()
    def prefill(self) -> Tensor:
        """Logits of the tokens after all texts, and the whole cache anew."""
        return self._through(0)

    @torch.no_grad()
    def decode(self) -> Tensor:
        """Logits of the tokens after all texts, from their last tokens and the cache of those before."""
        return self._through(self.context - 1)

    def _through(self, start: int) -> Tensor:
        """The texts from place `start` on; those before are in the cache."""
        model = self.model
        x = model.tokens(self.tokens[:, start:]) + model.places[start : self.context]
        for block, (keys, values) in zip(self.blocks, self.cache, strict=True):
            x = self._block(block, x, keys, values, start)
        out: Tensor = model.head(model.norm(x[:, -1]))
        return out

    def _block(self, block: Block, x: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        """As the block's own forward, with the keys and values of earlier places from the cache."""
        batch, length, width = x.shape
        split = (batch, length, block.heads, width // block.heads)
        q, k, v = (part.reshape(split).transpose(1, 2) for part in block.qkv(block.norm1(x)).chunk(3, dim=-1))
        keys[:, :, start:].copy_(k)
        values[:, :, start:].copy_(v)
        # One token may look at all others; of several, each at those before it.
        seen = functional.scaled_dot_product_attention(q, keys, values, is_causal=length > 1)
        x = x + block.mix(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + block.down(functional.gelu(block.up(block.norm2(x))))
        return out

    def flop(self, phase: str) -> float:
        """Operations of the products of one call: `prefill` or `decode`."""
        tokens = self.context if phase == "prefill" else 1
        width, blocks = self.model.width, len(self.blocks)
        products = 12 * width**2 * tokens + 2 * tokens * self.context * width
        return 2.0 * self.batch * (blocks * products + self.model.head.weight.numel())

    def bytes(self, phase: str) -> float:
        """Least traffic of one call: the weights, of the tables only the rows that are looked up, and the cache."""
        tokens = self.context if phase == "prefill" else 1
        size = self.tokens.new_zeros(0).to(self.device.torch_dtype(self.dtype)).element_size()
        tables = {id(self.model.tokens.weight), id(self.model.places)}
        weights = sum(p.numel() for p in self.model.parameters() if id(p) not in tables)
        looked_up = (self.batch + 1) * tokens * self.model.width
        cached = sum(keys.numel() + values.numel() for keys, values in self.cache)
        return float(size * (weights + looked_up + cached))

    def call(self, phase: str) -> Callable[[], Tensor]:
        """What does one phase: `prefill` or `decode`."""
        return self.prefill if phase == "prefill" else self.decode

    def error(self, phase: str, call: Callable[[], Tensor] | None = None) -> float:
        """Relative error of a phase's logits on fresh texts, against the model's forward pass in float64.

        call: what does the phase, where it is not this object's own method. Of a decoding the
        cache is filled for the fresh texts first; of a prefilling, its cache is checked too, by decoding from it.
        """
        texts = self.give()
        right = exact_logits(self.model, texts, self.device).unflatten(0, texts.shape)[:, -1]
        if phase == "decode":
            return self._against(right, (call or self.decode)())
        for part in (part for pair in self.cache for part in pair):
            part.fill_(torch.nan)
        return largest(self._against(right, (call or self.prefill)()), self._against(right, self.decode()))

    def _against(self, right: Tensor, logits: Tensor) -> float:
        return relative_error(logits.cpu().double(), right)
