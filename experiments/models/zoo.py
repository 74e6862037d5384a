"""Models by name, with real data and operation counts."""

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
from experiments.models.small_networks import Airbench94, AlexNet, Cnn, Gpt, Lstm, Mlp, ResNet, ResNet18, WideResNet


@dataclass(frozen=True)
class Entry:
    """Model with real data and operation counts.

    model: function that makes the model with random weights.
    batch: function that draws (inputs, targets) from real data, with replacement, for a number of samples.
    counts: weight and multiply-add counts. Attention counts in full, as in `torch.utils.flop_counter`, although a
        causal kernel may skip half of it.
    sample: input shape for one sample. Inputs are integers if an embedding reads them, else float32.
    family: dense, convolutional, recurrent or transformer.
    first_input_has_gradient: True if the backward pass also computes the gradient of the first product's input, as
        after an embedding; False if the first product reads the data.
    images: True if inputs have the shape (n, channels, height, width), to allow channels-last layout.
    kept: bytes per sample saved for the backward pass; None if `activation_bytes` has to count them.
    described: the network's entry in the catalogue; None for small networks.
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
        """Output rows per sample: one per token or time step, and 1 for classifiers."""
        return self.counts.output[0]

    @property
    def classes(self) -> int:
        """Output columns, one per class."""
        return self.counts.output[1]

    def parameters(self) -> int:
        """Count the weights."""
        return self.counts.parameters

    def trained_parameters(self) -> int:
        """Count the weights that a training step changes."""
        return self.counts.parameters if self.counts.trained is None else self.counts.trained

    def forward_flop(self, batch: int) -> float:
        """Count the FLOP in a forward pass's products and convolutions: 2 FLOP per multiply-add."""
        return 2.0 * batch * self.counts.macs

    def step_flop(self, batch: int) -> float:
        """Count the FLOP in a training step's products and convolutions.

        The forward pass takes 2 FLOP per multiply-add. The gradients of the weights take as much again, and so do those
        of the inputs. If the first product reads the data, the gradient of its input is not computed.
        """
        if self.counts.step_macs is not None:
            return 2.0 * batch * self.counts.step_macs
        skipped = 0 if self.first_input_has_gradient else self.counts.first_macs
        return 2.0 * batch * (3 * self.counts.macs - skipped)

    def activation_bytes(self) -> float:
        """Count the bytes per sample that a training step in float32 saves for the backward pass.

        This is the difference between batches with two samples and with one, to leave out a batch's fixed costs. Each
        storage that autograd saves counts once, and weights do not count. Models run on fake tensors, which need no
        memory. Only recurrent models run on real tensors, because only a real run shows the size of the workspace that
        their library saves.
        """
        return _saved_bytes(self, 2) - _saved_bytes(self, 1) if self.kept is None else self.kept


@contextlib.contextmanager
def model_without_data(entry: Entry) -> Iterator[nn.Module]:
    """Yield the model under FakeTensorMode, in which tensors have shapes but no data."""
    with torch.device("meta"):
        model = entry.model()
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield model.to_empty(device="cpu")


@cache
def _saved_bytes(entry: Entry, batch: int) -> float:
    """Count the bytes that autograd saves in a forward pass and the loss; weights do not count."""
    saved: dict[int, int] = {}
    alive: list[Tensor] = []  # keep the tensors alive, so that no storage id is used twice

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if not isinstance(tensor, nn.Parameter):
            alive.append(tensor)
            saved[storage._cdata] = storage.nbytes()
        return tensor

    context = contextlib.nullcontext(entry.model()) if entry.family == "recurrent" else model_without_data(entry)
    with torch.random.fork_rng(devices=[]), context as model:
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        kind = torch.int64 if entry.first_input_has_gradient else torch.float32
        inputs, targets = torch.zeros(batch, *entry.sample, dtype=kind), torch.zeros(batch * entry.length).long()
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            loss = functional.cross_entropy(model(inputs), targets)
        del loss
    return float(sum(size for key, size in saved.items() if key not in weights))


def catalogue_entry(network: catalogue.Network) -> Entry:
    """Make an entry for a network from the catalogue.

    Transformers is imported only when the model is made, a batch is drawn, or the network is not counted yet.
    """

    def model() -> nn.Module:
        from experiments.models.from_transformers import CatalogueModel

        return CatalogueModel(network)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        from experiments.models import from_transformers

        return from_transformers.draw_batch(network, size)

    def count() -> Counts:
        from experiments.models import from_transformers

        return from_transformers.count_network(network)

    return Entry(
        model,
        batch,
        network.counts or count(),
        network.shape,
        network.family,
        first_input_has_gradient=network.kind == "tokens",
        images=network.kind == "image",
        kept=network.activation_bytes,
        described=network,
    )


def _image_entry(model: Callable[[], nn.Module], batch: Callable[[int], tuple[Tensor, Tensor]], side: int, family: str,
            counts: Counts) -> Entry:  # fmt: skip
    return Entry(model, batch, counts, (1, side, side), family, images=True)


def _photograph_entry(model: Callable[[], nn.Module], side: int, counts: Counts) -> Entry:
    """Make an entry for a network that classifies crops of photographs, whose classes are random."""

    def batch(size: int) -> tuple[Tensor, Tensor]:
        return real_data.photograph_batch(size, side), torch.randint(counts.output[1], (size,))

    return Entry(model, batch, counts, (3, side, side), "convolutional", images=True)


def _byte_entry(model: Callable[[], nn.Module], family: str, counts: Counts) -> Entry:
    """Make an entry for a network that predicts a text's next byte."""
    length = counts.output[0]
    passages = partial(real_data.text_batch, length=length)
    return Entry(model, passages, counts, (length,), family, first_input_has_gradient=True)


# The multiply-add counts come from torch's counter (see the tests), or from formulas for operators that the counter
# lacks.
ZOO: dict[str, Entry] = {
    "mlp": _image_entry(Mlp, real_data.digits_batch, 8, "dense", Counts(301_066, 300_032, 32_768, (1, 10))),
    "cnn": _image_entry(Cnn, real_data.digits_batch, 8, "convolutional", Counts(66_154, 1_798_144, 18_432, (1, 10))),
    "resnet": _image_entry(
        ResNet, real_data.mnist_batch, 28, "convolutional", Counts(271_994, 31_021_952, 112_896, (1, 10))
    ),
    "wide-resnet": _image_entry(
        WideResNet, real_data.mnist_batch, 28, "convolutional", Counts(4_325_834, 494_988_800, 451_584, (1, 10))
    ),
    "lstm-32": _byte_entry(Lstm, "recurrent", Counts(1_183_744, 35_651_584, 8_388_608, (32, 256))),
    "lstm-128": _byte_entry(Lstm, "recurrent", Counts(1_183_744, 142_606_336, 33_554_432, (128, 256))),
    "lstm-512": _byte_entry(Lstm, "recurrent", Counts(1_183_744, 570_425_344, 134_217_728, (512, 256))),
    "gpt-1m": _byte_entry(
        partial(Gpt, 128, 4, 5, 128), "transformer", Counts(1_073_536, 150_994_944, 6_291_456, (128, 256))
    ),
    # `nanogpt-cpu` and `nanogpt` have the shapes in nanoGPT's examples for a CPU and for a GPU (see its README and its
    # train_shakespeare_char.py).
    "nanogpt-cpu": _byte_entry(
        partial(Gpt, 128, 4, 4, 64), "transformer", Counts(867_072, 56_623_104, 3_145_728, (64, 256))
    ),
    "nanogpt": _byte_entry(
        partial(Gpt, 384, 6, 6, 256), "transformer", Counts(10_942_464, 3_045_064_704, 113_246_208, (256, 256))
    ),
    # Networks of published training runs.
    "resnet-18": _photograph_entry(ResNet18, 32, Counts(11_173_962, 555_422_720, 1_769_472, (1, 10))),
    "airbench94": _photograph_entry(Airbench94, 32, Counts(1_972_792, 118_147_360, 276_768, (1, 10))),
    "alexnet": _photograph_entry(AlexNet, 227, Counts(60_965_224, 724_406_816, 105_415_200, (1, 1_000))),
    **{name: catalogue_entry(network) for name, network in catalogue.networks().items()},
}
