"""Text generation by prefill and decode with a KV cache, seeded weights for models, and reference logits in float64."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from experiments.devices import Device
from experiments.workload import Dtype, Unsupported, largest_error, relative_error

FORMATS = (Dtype.FLOAT64, Dtype.FLOAT32, Dtype.TF32, Dtype.BFLOAT16, Dtype.FLOAT16)
# Texts per batch whose logits are checked.
CHECKED = 2


@contextlib.contextmanager
def seeded_weights(device: Device, dtype: Dtype) -> Iterator[None]:
    """Make models in this context draw their weights from seed 0, on this device and in this number format.

    Raises Unsupported for formats in which PyTorch cannot draw weights.
    """
    if dtype not in FORMATS:
        raise Unsupported(f"PyTorch cannot draw weights in {dtype}")
    before = torch.get_default_dtype()
    torch.set_default_dtype(device.torch_dtype(dtype))
    try:
        torch.manual_seed(0)
        with torch.device(device.name):
            yield
    finally:
        torch.set_default_dtype(before)


def set_tf32(device: Device, dtype: Dtype) -> None:
    """Allow TF32 for float32 products on a GPU if `dtype` is TF32, else forbid it.

    The switch holds for the whole process, so each measurement must set it.
    """
    if device.kind == "gpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype is Dtype.TF32


def exact_logits(model: nn.Module, inputs: Tensor, device: Device) -> Tensor:
    """Compute the model's output (rows, classes) in float64, and return it in host memory.

    The computation runs on the device if the device supports float64, else on the CPU.
    """
    where = device.name if device.supports_float64 else "cpu"
    exact = inputs.to(where)
    with torch.no_grad():
        out: Tensor = copy.deepcopy(model).to(where).double()(exact.double() if exact.is_floating_point() else exact)
    return out.cpu()


class CachedNetwork:
    """Causal Transformers network with a KV cache for up to `max_tokens` tokens per text."""

    def __init__(self, network: Any, max_tokens: int) -> None:
        from transformers import StaticCache

        self.network, self.length = network, 0
        self.cache: Any = StaticCache(config=network.config, max_cache_len=max_tokens)

    def read(self, ids: Tensor) -> Tensor:
        """Process the tokens `ids` (texts, tokens), append them to the cache, and return the next token's logits.

        The logits have the shape (texts, vocabulary).
        """
        with torch.no_grad():
            out = self.network(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.length += ids.shape[1]
        logits: Tensor = out.logits[:, -1]
        return logits

    def truncate(self, start: int) -> None:
        """Drop cached tokens from position `start` on."""
        excess = self.length - start
        if excess > 0 and hasattr(self.cache.layers[0], "crop"):
            self.cache.crop(-excess)
        elif excess > 0:
            # Before Transformers 5.21, this is the only counter in a layer of a static cache.
            for layer in self.cache.layers:
                layer.cumulative_length.sub_(excess)
        self.length = start


class Generator:
    """Prefill and decode for a catalogue network on random texts.

    `prefill` processes all tokens at once. `decode` processes each text's last token, with the earlier tokens in the
    cache. They return the same logits (texts, vocabulary) for the next token, and every call does the same work.
    draw: returns random texts (texts, tokens).
    """

    def __init__(self, model: Any, draw: Callable[[], Tensor], device: Device) -> None:
        self.model, self.draw, self.device = model.eval(), draw, device
        self.tokens = draw().to(device.name)
        self.cached = CachedNetwork(model.network, self.tokens.shape[1])
        self.prefill()

    def prefill(self) -> Tensor:
        """Fill the cache anew with all tokens and return the next token's logits."""
        self.cached.truncate(0)
        return self.cached.read(self.tokens)

    def decode(self) -> Tensor:
        """Process each text's last token, with the earlier tokens in the cache, and return the next token's logits."""
        self.cached.truncate(self.tokens.shape[1] - 1)
        return self.cached.read(self.tokens[:, -1:])

    def error(self, phase: str) -> float:
        """Return the relative error of the logits on new texts, compared to float64.

        phase: name of the method to check, `decode` or `prefill`. Both checks run `prefill` and then `decode`. To check
        `decode`, only its logits are compared. To check `prefill`, both methods' logits are compared and the larger
        error counts, because wrong values that `prefill` leaves in the cache show only in `decode`.
        """
        self.tokens.copy_(self.draw())
        if phase == "prefill":
            for layer in self.cached.cache.layers:
                layer.keys.fill_(torch.nan)
                layer.values.fill_(torch.nan)
        first = self.prefill()
        logits = [self.decode()] if phase == "decode" else [first, self.decode()]
        checked = torch.randperm(len(self.tokens))[:CHECKED].to(self.device.name)
        exact = exact_logits(self.model, self.tokens[checked], self.device).unflatten(0, (len(checked), -1))[:, -1]
        return largest_error(*(relative_error(rows[checked].cpu().double(), exact) for rows in logits))
