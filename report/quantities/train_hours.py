"""How long published training runs would take on a node: a ladder of runs, from minutes to for ever."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.training import best_rates
from report.quantities.whole_runs import CHECK, correct_estimates

_HOUR = 3600.0
# FLOP of training by multiply-add: two forward, four backward (gradients of inputs and of weights).
_TRAINING = 6.0
# Parameters of transformer blocks, embeddings left out, by layer and width squared (Kaplan et al. 2020, equation 2.1).
_BLOCK = 12

Figure = Callable[[str], float]


@dataclass(frozen=True)
class Run:
    """A published training run.

    name: what the report calls it. id: what its figures in data/reference begin with.
    flop: its total FLOP, from a function that gives its figures by name.
    scale: small for runs on a small set of images or text (CIFAR-10, Shakespeare), else large.
    """

    name: str
    id: str
    family: str
    flop: Callable[[Figure], float]
    scale: str = "large"


def _flop_product(factor: float, *names: str) -> Callable[[Figure], float]:
    """Total FLOP as a factor times figures of the run."""
    return lambda figure: math.prod(map(figure, names), start=factor)


def _bert_flop(figure: Figure) -> float:
    """Most steps are on short sequences, the rest on long ones."""
    short = figure("short_share")
    length = short * figure("short_tokens") + (1 - short) * figure("long_tokens")
    return length * _flop_product(_TRAINING * _BLOCK, "layers", "width", "width", "steps", "sequences")(figure)


_COUNTED_FLOP = _flop_product(1.0, "flop")
_TOKENS = _flop_product(_TRAINING, "parameters", "tokens")
_CHARACTERS = _flop_product(_TRAINING * _BLOCK, "layers", "width", "width", "iterations", "sequences", "context")
# At most: examples that are shorter than the longest take less.
_EXAMPLES = _flop_product(_TRAINING, "parameters", "examples", "epochs", "most_tokens")
RUNS = (
    Run("nanoGPT on Shakespeare (small)", "nanogpt-cpu", "transformer", _CHARACTERS, "small"),
    Run("airbench94 on CIFAR-10", "airbench94", "convolutional", _COUNTED_FLOP, "small"),
    Run("nanoGPT on Shakespeare", "nanogpt", "transformer", _CHARACTERS, "small"),
    Run("ResNet-18 on CIFAR-10", "resnet18-cifar", "convolutional", _COUNTED_FLOP, "small"),
    Run("AlexNet on ImageNet", "alexnet", "convolutional", _flop_product(_TRAINING, "mac", "images", "epochs")),
    Run("Alpaca 7B fine-tune (at most)", "alpaca", "transformer", _EXAMPLES),
    Run("ResNet-50 on ImageNet", "resnet50", "convolutional", _flop_product(_TRAINING, "mac", "iterations", "batch")),
    Run(
        "GPT-2 (124M) on FineWeb",
        "gpt2-124m",
        "transformer",
        _flop_product(_TRAINING, "parameters", "steps", "tokens_per_step"),
    ),
    Run("BERT base", "bert-base", "transformer", _bert_flop),
    Run("Pythia-1.4B", "pythia-1.4b", "transformer", _TOKENS),
    Run("Llama 2 7B", "llama2-7b", "transformer", _TOKENS),
    Run("Llama 2 70B", "llama2-70b", "transformer", _TOKENS),
    Run("Llama 3.1 405B", "llama31-405b", "transformer", _flop_product(1.0, "training_flop")),
)
# Of which the nodes are counted that it takes to be done in so many days.
LARGE, DAYS = ("llama2-7b", "llama2-70b", "llama31-405b"), 90

_ladder_quantity = partial(quantity, experiments=["training", "time-to-train"], tier="derived", checked=CHECK)


def total_flop(run: Run, data: Dataset) -> float:
    """Total FLOP of a run. Raises MissingSourceError for a figure that is missing or not verified.

    Transformers: 6 x parameters x tokens (Kaplan et al. 2020, section 2.1; attention
    scores left out). Convolutional networks: 6 x multiply-adds x images. Otherwise
    the source's own count.
    """
    return run.flop(lambda name: data.figure(f"{run.id}.{name}"))


def _run_seconds(run: Run, rates: Estimates, data: Dataset) -> Estimates:
    """Seconds of a run on each device that has a rate of its family, as far as whole runs tell how far that is off."""
    rates = rates.only(family=run.family).without("family")
    flop = total_flop(run, data)
    derived = rates.label(estimate=flop / rates.numbers("estimate"))
    return correct_estimates(data, Estimates.from_estimates(derived.frame), flop)


@_ladder_quantity("ladder.hours_to_train", "h", ("run", "flop", "scale", "threads", "baseline"))
def hours_to_train(data: Dataset) -> Estimates:
    """Total FLOP of a published training run over the device's best measured training rate of its family, corrected.

    The rate is that of the study's own, small model of the same family at its best
    batch size, number format and library (see `best_rates`), the most favourable to
    the device. Jobs that were run whole show how much longer such a run takes than was
    derived for it, by its operations, and how much that scatters: the
    time is longer by so much, and its interval wider (see `whole_runs`). Where no
    such jobs were run there is no interval. Memory, and what a large model needs beyond it, are
    left out. flop: the total, to three digits. scale: small for runs on a small set of images
    or text. baseline: node, on a CPU.
    """
    rates = best_rates(data)
    found = [
        (_run_seconds(run, rates, data) / _HOUR).label(
            run=run.name, flop=float(f"{total_flop(run, data):.3g}"), scale=run.scale
        )
        for run in RUNS
    ]
    return concat_estimates(found)


@_ladder_quantity("ladder.nodes_for_90_days", "nodes", ("run", "parameters", "threads", "baseline"))
def nodes_for_90_days(data: Dataset) -> Estimates:
    """Machines like this one (of a GPU node: such GPUs) that finish a published pre-training run in 90 days.

    6 x parameters x tokens over the device's best measured training rate of any transformer
    (see `best_rates`), corrected as `ladder.hours_to_train` is, and 90 days. At the least: that the
    model does not fit, and what machines tell each other, is left out, as if all kept the pace of one alone.
    """
    rates = best_rates(data)
    found = [
        _run_seconds(run, rates, data).label(run=run.name, parameters=data.figure(f"{run.id}.parameters"))
        for run in RUNS
        if run.id in LARGE
    ]
    return concat_estimates(found) / (DAYS * 24 * _HOUR)
