"""The study's models by name, each with real data and its count of operations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from experiments.models import catalogue, data
from experiments.models.networks import VOCABULARY, Cnn, Gpt, Lstm, Mlp, ResNet, WideResNet

__all__ = ["ZOO", "Entry", "Mlp", "from_catalogue"]


@dataclass(frozen=True)
class Entry:
    """A model, its data and its count of operations.

    model: makes it, with random weights.
    batch: (inputs, targets) of so many samples, drawn from real data with repetition.
    macs: multiply-adds of each product of one sample, forward.
    first_input_has_gradient: whether the first counted layer also computes the gradient
        of its input (layers fed by the data do not; those behind an embedding do).
    sample: shape of one sample's input; whole numbers behind an embedding, else float32.
    family: dense, convolutional, recurrent or transformer.
    length: tokens or steps in a sample; 1 for images.
    classes: width of the answer.
    weights: their number, where it is known without making the model.
    trained: weights that a training step changes, where it is not all of them.
    step_macs: multiply-adds of a training step of one sample, where they do not follow from `macs`.
    kept: bytes that one more sample keeps for the backward pass, where they are known.
    images: inputs are (n, channels, height, width), so that they may lie with channels last.
    described: a network by name, as the catalogue has it.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    macs: Callable[[], list[int]]
    first_input_has_gradient: bool
    sample: tuple[int, ...]
    family: str
    length: int = 1
    classes: int = 10
    images: bool = False
    weights: int | None = None
    trained: int | None = None
    step_macs: int | None = None
    kept: float | None = None
    described: catalogue.Network | None = None

    def parameters(self) -> int:
        """Number of weights, without making them."""
        return _parameters(self.model) if self.weights is None else self.weights

    def trained_parameters(self) -> int:
        """Number of weights that a training step changes."""
        return self.parameters() if self.trained is None else self.trained

    def forward_flop(self, batch: int) -> float:
        """FLOP of the products and convolutions of one forward pass: 2 per multiply-add."""
        return 2.0 * batch * sum(self.macs())

    def step_flop(self, batch: int) -> float:
        """FLOP of one training step in products and convolutions.

        Forward 2 per multiply-add, backward as much for the weights' and again for the inputs' gradients.
        """
        if self.step_macs is not None:
            return 2.0 * batch * self.step_macs
        macs = self.macs()
        skipped = 0 if self.first_input_has_gradient else macs[0]
        return 2.0 * batch * (3 * sum(macs) - skipped)

    def activation_bytes(self) -> float:
        """Bytes that one more sample of a batch keeps for the backward pass, in float32.

        What autograd saves, without weights, each storage once: of two samples less
        that of one, so that what a batch needs once is left out. On tensors without
        data; but a recurrence's library keeps a workspace whose size only a run shows.
        """
        return _saved(self, 2) - _saved(self, 1) if self.kept is None else self.kept


@contextlib.contextmanager
def without_data(entry: Entry) -> Iterator[nn.Module]:
    """The model; within, tensors on the CPU have shapes and no data."""
    with torch.device("meta"):
        model = entry.model()
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield model.to_empty(device="cpu")


@cache
def _parameters(model: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in model().parameters())


@cache
def _saved(entry: Entry, batch: int) -> float:
    """Bytes in what autograd saves of a forward pass and its loss besides the weights."""
    seen: dict[int, int] = {}
    kept: list[Tensor] = []  # as long as they live, no other storage has their number

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not isinstance(tensor, nn.Parameter):
            kept.append(tensor)
            seen[storage._cdata] = storage.nbytes()
        return tensor

    made = contextlib.nullcontext(entry.model()) if entry.family == "recurrent" else without_data(entry)
    with torch.random.fork_rng(devices=[]), made as model:
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        kind = torch.int64 if entry.first_input_has_gradient else torch.float32
        inputs, targets = torch.zeros(batch, *entry.sample, dtype=kind), torch.zeros(batch * entry.length).long()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            loss = functional.cross_entropy(model(inputs), targets)
        del loss
    return float(sum(size for key, size in seen.items() if key not in weights))


def _gpt(width: int, heads: int, blocks: int, length: int) -> Entry:
    """A GPT of this shape, and its passages of text."""
    return Entry(
        partial(Gpt, width, heads, blocks, length),
        partial(data.text_batch, length=length),
        partial(Gpt.macs, width, blocks, length),
        first_input_has_gradient=True,
        sample=(length,),
        family="transformer",
        length=length,
        classes=VOCABULARY,
    )


def _lstm(length: int) -> Entry:
    """The LSTM over passages of this length."""
    return Entry(
        Lstm,
        partial(data.text_batch, length=length),
        partial(Lstm.macs, length),
        first_input_has_gradient=True,
        sample=(length,),
        family="recurrent",
        length=length,
        classes=VOCABULARY,
    )


def from_catalogue(network: catalogue.Network) -> Entry:
    """A network of the catalogue. Transformers is loaded when it is made."""

    def model() -> nn.Module:
        from experiments.models.from_transformers import Catalogued

        return Catalogued(network)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        from experiments.models import from_transformers

        return from_transformers.batch(network, size)

    def counted() -> catalogue.Counts:
        from experiments.models import from_transformers

        return from_transformers.count(network)

    counts = network.counts or counted()
    return Entry(
        model,
        batch,
        lambda: [counts.first_macs, counts.macs - counts.first_macs],
        first_input_has_gradient=network.kind == "tokens",
        sample=network.shape,
        family=network.family,
        length=counts.output[0],
        classes=counts.output[1],
        images=network.kind == "image",
        weights=counts.parameters,
        trained=counts.trained,
        step_macs=counts.step_macs,
        kept=network.activation_bytes,
        described=network,
    )


DIGIT, IMAGE = (1, 8, 8), (1, ResNet.SIZE, ResNet.SIZE)

ZOO: dict[str, Entry] = {
    "mlp": Entry(Mlp, data.digits_batch, Mlp.macs, False, DIGIT, "dense", images=True),
    "cnn": Entry(Cnn, data.digits_batch, Cnn.macs, False, DIGIT, "convolutional", images=True),
    "resnet": Entry(ResNet, data.mnist_batch, ResNet.macs, False, IMAGE, "convolutional", images=True),
    "wide-resnet": Entry(
        WideResNet, data.mnist_batch, WideResNet.macs, False, IMAGE, "convolutional", images=True
    ),
    "lstm-32": _lstm(32),
    "lstm-128": _lstm(128),
    "lstm-512": _lstm(512),
    "gpt-1m": _gpt(128, 4, 5, 128),
    # The shapes of nanoGPT's own examples: for a CPU, and for a GPU (its train_shakespeare_char.py and README).
    "nanogpt-cpu": _gpt(128, 4, 4, 64),
    "nanogpt": _gpt(384, 6, 6, 256),
    **{name: from_catalogue(network) for name, network in catalogue.networks().items()},
}  # fmt: skip
