"""Hours to train published models on a node: a ladder from minutes to centuries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.training import best_rates, own_step_rates
from report.quantities.whole_runs import CHECK, correct_estimates, correct_sums

_HOUR = 3600.0
# Training FLOP per multiply-add: two forward, four backward (gradients for inputs and for weights).
_TRAINING = 6.0
# Parameters in a transformer's blocks / (layers x width^2), without embeddings (Kaplan et al. 2020, equation 2.1).
_BLOCK = 12

Figure = Callable[[str], float]


@dataclass(frozen=True)
class Step:
    """A published run's own training step, as the experiment `training` times it.

    model: name of the network in `training`. batch: samples in a step of the run; a larger batch is not the run's.
    samples: function that computes the samples in the whole run from a function that looks up figures by name.
    """

    model: str
    batch: int
    samples: Callable[[Figure], float]


@dataclass(frozen=True)
class Run:
    """A published training run.

    name: display name.
    id: prefix for its figures in data/reference.
    flop: function that computes the total FLOP from a function that looks up figures by name.
    scale: `small` for small image or text sets (CIFAR-10, Shakespeare), else `large`.
    step: the run's own step; None if `training` times no network near enough to the run's.
    """

    name: str
    id: str
    family: str
    flop: Callable[[Figure], float]
    scale: str = "large"
    step: Step | None = None


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
_IMAGES = _flop_product(_TRAINING, "mac", "images", "epochs")
_ITERATIONS = _flop_product(_TRAINING, "mac", "iterations", "batch")


def _convolutional_step(model: str, batch: int, macs: float, flop: Callable[[Figure], float]) -> Step:
    """Return the step of a convolutional network that takes `macs` multiply-adds per image as it is timed.

    The samples are as many images as take the run's operations. They differ from the run's images by at most 7%, for
    ResNet-50: its timed form strides in the 3x3 convolutions, and takes 4.09 in place of 3.8 billion multiply-adds.
    """
    return Step(model, batch, lambda figure: flop(figure) / (_TRAINING * macs))


# Batches without a figure in data/reference: AlexNet's (Krizhevsky et al. 2012, section 5), airbench94's (its script),
# and ResNet-18's, for which the source prints none; 128 is usual.
RUNS = (
    Run(
        "nanoGPT on Shakespeare (small)", "nanogpt-cpu", "transformer", _CHARACTERS, "small",
        Step("nanogpt-cpu", 12, _flop_product(1.0, "iterations", "sequences")),
    ),
    Run(
        "airbench94 on CIFAR-10", "airbench94", "convolutional", _COUNTED_FLOP, "small",
        _convolutional_step("airbench94", 1024, 118_147_360, _COUNTED_FLOP),
    ),
    Run(
        "nanoGPT on Shakespeare", "nanogpt", "transformer", _CHARACTERS, "small",
        Step("nanogpt", 64, _flop_product(1.0, "iterations", "sequences")),
    ),
    Run(
        "ResNet-18 on CIFAR-10", "resnet18-cifar", "convolutional", _COUNTED_FLOP, "small",
        _convolutional_step("resnet-18", 128, 555_422_720, _COUNTED_FLOP),
    ),
    Run(
        "AlexNet on ImageNet", "alexnet", "convolutional", _IMAGES,
        step=_convolutional_step("alexnet", 128, 724_406_816, _IMAGES),
    ),
    Run("Alpaca 7B fine-tune (at most)", "alpaca", "transformer", _EXAMPLES),
    Run(
        "ResNet-50 on ImageNet", "resnet50", "convolutional", _ITERATIONS,
        step=_convolutional_step("resnet-50", 256, 4_089_184_256, _ITERATIONS),
    ),
    Run(
        "GPT-2 (124M) on FineWeb", "gpt2-124m", "transformer",
        _flop_product(_TRAINING, "parameters", "steps", "tokens_per_step"),
        # A sample has 1,024 tokens, in the run (-t in its script) and as it is timed.
        step=Step("gpt2-124m-1024", 512, _flop_product(1 / 1024, "steps", "tokens_per_step")),
    ),
    # BERT's step as it is timed (a classifier's, on 128 tokens) does not stand for its pre-training: a tenth of the run
    # has 512 tokens, and its heads predict words. By operations, a sample of the run takes 1.4 times as much.
    Run("BERT base", "bert-base", "transformer", _bert_flop),
    Run("Pythia-1.4B", "pythia-1.4b", "transformer", _TOKENS),
    Run("Llama 2 7B", "llama2-7b", "transformer", _TOKENS),
    Run("Llama 2 70B", "llama2-70b", "transformer", _TOKENS),
    Run("Llama 3.1 405B", "llama31-405b", "transformer", _flop_product(1.0, "training_flop")),
)  # fmt: skip
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


def own_step_seconds(run: Run, data: Dataset) -> Estimates:
    """Return the seconds that a run takes on each device that timed its own step: samples / samples per second.

    The correction is that of a sum of parts (see `whole_runs`). A step that was timed with a smaller batch than the
    run's counts its update once per measured batch: the update took 2% to 6% of these steps. Reading and decoding data,
    dropout (of nanoGPT and AlexNet), and tests of accuracy are left out, and Adam stands for each run's optimiser.
    nanoGPT's head is timed for 256 bytes in place of 65 characters, which adds at most 3% to a step's operations.
    """
    if run.step is None:
        return Estimates.empty()
    rates = own_step_rates(data, run.step.model, run.step.batch)
    samples = run.step.samples(lambda name: data.figure(f"{run.id}.{name}"))
    return correct_sums(data, rates.inverse() * samples)


def _without_devices(estimates: Estimates, others: Estimates) -> Estimates:
    """Drop the estimates for devices for which there are others."""
    there = set(others.rows("node", "device"))
    return estimates.take([device not in there for device in estimates.rows("node", "device")])


@_ladder_quantity("ladder.hours_to_train", "h", ("run", "flop", "scale", "method", "threads", "baseline"))
def hours_to_train(data: Dataset) -> Estimates:
    """Hours for a published training run, from its own training step, or from the best rate of its model family.

    method: own step, if the device timed the run's own step (see `own_step_seconds`), by the fastest format and
    library. line, otherwise: total FLOP / the device's best training rate for the model family. The rate is for the
    study's own, small model in the same family, at its best batch size, number format and library (see `best_rates`),
    which favours the device. Jobs that were run whole show how much longer runs take than derived by either method, and
    how much that varies. The time and its interval grow accordingly (see `whole_runs`). Without such jobs there is no
    interval. Memory limits and other needs of large models are left out. Estimates by one line err together, but own
    steps share only the error of the jobs' mean: `common_error` counts a list of runs for both extremes, and keeps the
    lower count. flop: the total, to three digits. scale: small for small image or text sets. baseline: node, on a CPU.
    """
    rates = best_rates(data)
    per_run = []
    for run in RUNS:
        own = own_step_seconds(run, data)
        by_line = _without_devices(_run_seconds(run, rates, data), own)
        seconds = concat_estimates([own.label(method="own step"), by_line.label(method="line")])
        flop = float(f"{total_flop(run, data):.3g}")
        per_run.append((seconds / _HOUR).label(run=run.name, flop=flop, scale=run.scale))
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
