"""Hours to train published models on a node: a ladder from minutes to centuries."""

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
# Training FLOP per multiply-add: two forward, four backward (gradients for inputs and for weights).
_TRAINING = 6.0
# Parameters in a transformer's blocks / (layers x width^2), without embeddings (Kaplan et al. 2020, equation 2.1).
_BLOCK = 12

Figure = Callable[[str], float]


@dataclass(frozen=True)
class Run:
    """A published training run.

    name: display name.
    id: prefix for its figures in data/reference.
    flop: function that computes the total FLOP from a function that looks up figures by name.
    scale: `small` for small image or text sets (CIFAR-10, Shakespeare), else `large`.
    """

    name: str
    id: str
    family: str
    flop: Callable[[Figure], float]
    scale: str = "large"


def _flop_product(factor: float, *names: str) -> Callable[[Figure], float]:
    """Return a function that multiplies a factor by the run's figures with these names."""
    return lambda figure: math.prod(map(figure, names), start=factor)


def _bert_flop(figure: Figure) -> float:
    """Compute total FLOP for BERT. Most training steps use short sequences, and the others use long sequences."""
    short = figure("short_share")
    length = short * figure("short_tokens") + (1 - short) * figure("long_tokens")
    return length * _flop_product(_TRAINING * _BLOCK, "layers", "width", "width", "steps", "sequences")(figure)


_COUNTED_FLOP = _flop_product(1.0, "flop")
_TOKENS = _flop_product(_TRAINING, "parameters", "tokens")
_CHARACTERS = _flop_product(_TRAINING * _BLOCK, "layers", "width", "width", "iterations", "sequences", "context")
# This is an upper bound, because every example counts with the most tokens that any example may have.
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
# LARGE: runs for which to count nodes. DAYS: time in which these nodes must finish a run.
LARGE, DAYS = ("llama2-7b", "llama2-70b", "llama31-405b"), 90

_ladder_quantity = partial(
    quantity, experiments=["training", "time-to-train"], tier="derived", checked=CHECK, common_error=True
)


def total_flop(run: Run, data: Dataset) -> float:
    """Return a run's total FLOP. Raises MissingSourceError for a figure that is missing or not verified.

    Transformers need 6 x parameters x tokens (Kaplan et al. 2020, section 2.1; attention scores left out).
    Convolutional networks need 6 x multiply-adds x images. If the source counts the FLOP itself, its count is used.
    """
    return run.flop(lambda name: data.figure(f"{run.id}.{name}"))


def _run_seconds(run: Run, rates: Estimates, data: Dataset) -> Estimates:
    """Return the seconds that a run takes on each device with a rate for its model family, corrected by whole runs."""
    rates = rates.filter(family=run.family).drop_labels("family")
    flop = total_flop(run, data)
    derived = rates.label(estimate=flop / rates.numbers("estimate"))
    return correct_estimates(data, Estimates.from_estimates(derived.frame), flop)


@_ladder_quantity("ladder.hours_to_train", "h", ("run", "flop", "scale", "threads", "baseline"))
def hours_to_train(data: Dataset) -> Estimates:
    """Hours for a published training run: total FLOP / the device's best training rate for its model family, corrected.

    The rate is for the study's own, small model in the same family, at its best batch size, number format and library
    (see `best_rates`), which favours the device. Jobs that were run whole show how much longer runs take than derived
    from their operations, and how much that varies. The time and its interval grow accordingly (see `whole_runs`).
    Without such jobs there is no interval. Memory limits and other needs of large models are left out. flop: the total,
    to three digits. scale: small for small image or text sets. baseline: node, on a CPU.
    """
    rates = best_rates(data)
    per_run = [
        (_run_seconds(run, rates, data) / _HOUR).label(
            run=run.name, flop=float(f"{total_flop(run, data):.3g}"), scale=run.scale
        )
        for run in RUNS
    ]
    return concat_estimates(per_run)


@_ladder_quantity("ladder.nodes_for_90_days", "nodes", ("run", "parameters", "threads", "baseline"))
def nodes_for_90_days(data: Dataset) -> Estimates:
    """Number of machines like this one (or GPUs like this one) that together finish a published run in 90 days.

    The run is a model's pre-training. Its 6 x parameters x tokens operations are divided by 90 days and by the device's
    best training rate for any transformer (see `best_rates`), corrected like `ladder.hours_to_train`. The result is a
    lower bound, because it ignores memory limits and communication, as if every machine kept its full speed.
    """
    rates = best_rates(data)
    per_run = [
        _run_seconds(run, rates, data).label(run=run.name, parameters=data.figure(f"{run.id}.parameters"))
        for run in RUNS
        if run.id in LARGE
    ]
    return concat_estimates(per_run) / (DAYS * 24 * _HOUR)
