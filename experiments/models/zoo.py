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

from experiments.models import catalogue, real_data
from experiments.models.catalogue import Counts
from experiments.models.small_networks import Cnn, Gpt, Lstm, Mlp, ResNet, WideResNet


@dataclass(frozen=True)
class Entry:
    """A model, its data and its count of operations.

    model: makes it, with random weights.
    batch: (inputs, targets) of so many samples, drawn from real data with repetition.
    counts: its sizes. Attention counts whole, as by `torch.utils.flop_counter`, though a causal kernel may skip half.
    sample: shape of one sample's input; whole numbers behind an embedding, else float32.
    family: dense, convolutional, recurrent or transformer.
    first_input_has_gradient: true if the first counted layer also computes the gradient of its input, as behind an
        embedding; layers fed by the data do not.
    images: inputs are (n, channels, height, width), so that they may lie with channels last.
    kept: bytes that one more sample keeps for the backward pass, where they are known.
    described: a network by name, as the catalogue has it.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    counts: Counts
    sample: tuple[int, ...]
    family: str
    first_input_has_gradient: bool = False
    images: bool = False
    kept: float | None = None
    described: catalogue.Network | None = None

    @property
    def length(self) -> int:
        """Tokens or steps in a sample; 1 for images."""
        return self.counts.output[0]

    @property
    def classes(self) -> int:
        """Width of the answer."""
        return self.counts.output[1]

    def parameters(self) -> int:
        """Number of weights."""
        return self.counts.parameters

    def trained_parameters(self) -> int:
        """Number of weights that a training step changes."""
        return self.counts.parameters if self.counts.trained is None else self.counts.trained

    def forward_flop(self, batch: int) -> float:
        """FLOP of the products and convolutions of one forward pass: 2 per multiply-add."""
        return 2.0 * batch * self.counts.macs

    def step_flop(self, batch: int) -> float:
        """FLOP of one training step in products and convolutions.

        Forward 2 per multiply-add, backward as much for the weights' and again for the inputs' gradients.
        """
        if self.counts.step_macs is not None:
            return 2.0 * batch * self.counts.step_macs
        skipped = 0 if self.first_input_has_gradient else self.counts.first_macs
        return 2.0 * batch * (3 * self.counts.macs - skipped)

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


def from_catalogue(network: catalogue.Network) -> Entry:
    """A network of the catalogue. Transformers is loaded when it is made."""

    def model() -> nn.Module:
        from experiments.models.from_transformers import Catalogued

        return Catalogued(network)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        from experiments.models import from_transformers

        return from_transformers.batch(network, size)

    def counted() -> Counts:
        from experiments.models import from_transformers

        return from_transformers.count(network)

    return Entry(
        model,
        batch,
        network.counts or counted(),
        network.shape,
        network.family,
        first_input_has_gradient=network.kind == "tokens",
        images=network.kind == "image",
        kept=network.activation_bytes,
        described=network,
    )


def _images(model: Callable[[], nn.Module], batch: Callable[[int], tuple[Tensor, Tensor]], side: int, family: str,
            counts: Counts) -> Entry:  # fmt: skip
    return Entry(model, batch, counts, (1, side, side), family, images=True)


def _bytes(model: Callable[[], nn.Module], family: str, counts: Counts) -> Entry:
    """A network that predicts the next byte of passages."""
    length = counts.output[0]
    passages = partial(real_data.text_batch, length=length)
    return Entry(model, passages, counts, (length,), family, first_input_has_gradient=True)


# The counts are torch's (see the tests), or the formulas' where its counter does not know an operator.
ZOO: dict[str, Entry] = {
    "mlp": _images(Mlp, real_data.digits_batch, 8, "dense", Counts(301_066, 300_032, 32_768, (1, 10))),
    "cnn": _images(Cnn, real_data.digits_batch, 8, "convolutional", Counts(66_154, 1_798_144, 18_432, (1, 10))),
    "resnet": _images(
        ResNet, real_data.mnist_batch, 28, "convolutional", Counts(271_994, 31_021_952, 112_896, (1, 10))
    ),
    "wide-resnet": _images(
        WideResNet, real_data.mnist_batch, 28, "convolutional", Counts(4_325_834, 494_988_800, 451_584, (1, 10))
    ),
    "lstm-32": _bytes(Lstm, "recurrent", Counts(1_183_744, 35_651_584, 8_388_608, (32, 256))),
    "lstm-128": _bytes(Lstm, "recurrent", Counts(1_183_744, 142_606_336, 33_554_432, (128, 256))),
    "lstm-512": _bytes(Lstm, "recurrent", Counts(1_183_744, 570_425_344, 134_217_728, (512, 256))),
    "gpt-1m": _bytes(
        partial(Gpt, 128, 4, 5, 128), "transformer", Counts(1_073_536, 150_994_944, 6_291_456, (128, 256))
    ),
    # The shapes of nanoGPT's own examples: for a CPU, and for a GPU (its train_shakespeare_char.py and README).
    "nanogpt-cpu": _bytes(
        partial(Gpt, 128, 4, 4, 64), "transformer", Counts(867_072, 56_623_104, 3_145_728, (64, 256))
    ),
    "nanogpt": _bytes(
        partial(Gpt, 384, 6, 6, 256), "transformer", Counts(10_942_464, 3_045_064_704, 113_246_208, (256, 256))
    ),
    **{name: from_catalogue(network) for name, network in catalogue.networks().items()},
}
