"""How long published training runs would take on a node: a ladder of runs, from minutes to for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity
from report.quantities.ladder import LOOPS
from report.quantities.training import baselines

_HOUR = 3600.0
# FLOP of training by multiply-add: two forward, four backward (gradients of inputs and of weights).
_TRAINING = 6

# The study's models whose measured rate stands for that of a family.
FAMILIES = {
    "convolutional": ["cnn", "resnet"],
    "transformer": ["gpt", "gpt2", "gpt-1m", "gpt-10m", "gpt-85m", "gpt-350m", "gpt-1.3b", "gpt-7b", "vit"],
}

Figure = Callable[[str], float]


@dataclass(frozen=True)
class Run:
    """A published training run.

    name: what the report calls it. id: what its figures in data/reference begin with.
    flop: its total FLOP, from a function that gives its figures by name.
    """

    name: str
    id: str
    family: str
    flop: Callable[[Figure], float]


def _blocks(figure: Figure) -> float:
    """Parameters of transformer blocks, embeddings left out. Source: Kaplan et al. 2020, equation 2.1."""
    return 12 * figure("layers") * figure("width") ** 2


def _characters(figure: Figure) -> float:
    return _TRAINING * _blocks(figure) * figure("iterations") * figure("sequences") * figure("context")


def _bert(figure: Figure) -> float:
    short = figure("short_share")
    length = short * figure("short_tokens") + (1 - short) * figure("long_tokens")
    return _TRAINING * _blocks(figure) * figure("steps") * figure("sequences") * length


def _gpt2(figure: Figure) -> float:
    return _TRAINING * figure("parameters") * figure("steps") * figure("tokens_per_step")


def _tokens(figure: Figure) -> float:
    return _TRAINING * figure("parameters") * figure("tokens")


def _examples(figure: Figure) -> float:
    """At most: examples that are shorter than the longest take less."""
    return _TRAINING * figure("parameters") * figure("examples") * figure("epochs") * figure("most_tokens")


def _epochs(figure: Figure) -> float:
    return _TRAINING * figure("mac") * figure("images") * figure("epochs")


def _iterations(figure: Figure) -> float:
    return _TRAINING * figure("mac") * figure("iterations") * figure("batch")


def _counted(figure: Figure) -> float:
    return figure("flop")


RUNS = (
    Run("nanoGPT on Shakespeare (small)", "nanogpt-cpu", "transformer", _characters),
    Run("airbench94 on CIFAR-10", "airbench94", "convolutional", _counted),
    Run("nanoGPT on Shakespeare", "nanogpt", "transformer", _characters),
    Run("ResNet-18 on CIFAR-10", "resnet18-cifar", "convolutional", _counted),
    Run("AlexNet on ImageNet", "alexnet", "convolutional", _epochs),
    Run("Alpaca 7B fine-tune (at most)", "alpaca", "transformer", _examples),
    Run("ResNet-50 on ImageNet", "resnet50", "convolutional", _iterations),
    Run("GPT-2 (124M) on FineWeb", "gpt2-124m", "transformer", _gpt2),
    Run("BERT base", "bert-base", "transformer", _bert),
    Run("Pythia-1.4B", "pythia-1.4b", "transformer", _tokens),
    Run("Llama 2 7B", "llama2-7b", "transformer", _tokens),
    Run("Llama 2 70B", "llama2-70b", "transformer", _tokens),
    Run("Llama 3.1 405B", "llama31-405b", "transformer", lambda figure: figure("training_flop")),
)
# Of which the nodes are counted that it takes to be done in so many days.
LARGE, DAYS = ("llama2-7b", "llama2-70b", "llama31-405b"), 90


def total_flop(run: Run, data: Dataset) -> float:
    """Total FLOP of a run. Raises MissingSourceError for a figure that is missing or not verified.

    Transformers: 6 x parameters x tokens (Kaplan et al. 2020, section 2.1; attention
    scores left out). Convolutional networks: 6 x multiply-adds x images. Otherwise
    the source's own count.
    """
    return run.flop(lambda name: data.figure(f"{run.id}.{name}"))


def best_rates(data: Dataset) -> Estimates:
    """FLOP/s of the fastest training step of each family on each device: a CPU with all threads.

    Over models of the family, batch sizes, number formats and libraries; `detail`
    says which it was. The plain loops of the ladder are left out.
    """
    cells = data.summary("training", value="flop_per_s")
    if not len(cells):
        return cells
    cells = cells.at((~cells.frame["backend"].isin(LOOPS)).to_numpy(bool))
    cpu = baselines(cells)
    cells = concat([cpu.only(baseline="node") if len(cpu) else cpu, cells.only(device="gpu")])
    found = []
    for family, models in FAMILIES.items():
        these = cells.only(model=models)
        if len(these):
            these = these.label(batch=[f"batch {size}" for size in these.frame["batch"]])
            by = [name for name in ("node", "device", "threads", "baseline") if name in these.labels]
            found.append(these.best(by, of=["model", "batch", "dtype", "backend"]).label(family=family))
    return concat(found) if found else Estimates.empty()


@quantity(
    "ladder.hours_to_train",
    unit="h",
    tier="derived",
    needs={"experiments": ["training"], "device": "any"},
    labels=("run", "flop", "threads", "baseline"),
    says="On {node}, a published training run ({labels}) would take {value}",
)
def hours_to_train(data: Dataset) -> Estimates:
    """Total FLOP of a published training run over the device's best measured training rate of its family.

    The rate is that of the study's own, small model of the same family at its best
    batch size, number format and library (see `best_rates`), the most favourable to
    the device; it stands in for the large model's. Reading the data, memory and what
    a large model needs beyond it are left out. flop: the total, to three digits.
    baseline: node, on a CPU.
    """
    rates = best_rates(data)
    if not len(rates):
        return rates
    found = []
    for run in RUNS:
        seconds = _seconds(run, rates, data)
        if len(seconds):
            found.append((seconds / _HOUR).label(run=run.name, flop=float(f"{total_flop(run, data):.3g}")))
    return concat(found) if found else Estimates.empty()


def _seconds(run: Run, rates: Estimates, data: Dataset) -> Estimates:
    """Seconds of a run on each device that has a rate of its family."""
    these = rates.only(family=run.family).without("family")
    frame = these.frame.assign(estimate=total_flop(run, data) / these.frame["estimate"].astype(float))
    return Estimates.from_estimates(frame) if len(frame) else these


def _large(data: Dataset) -> Estimates:
    """Seconds of each large run on each device, labelled with its parameters."""
    rates = best_rates(data)
    if not len(rates):
        return rates
    large = [run for run in RUNS if run.id in LARGE]
    return concat(
        [
            _seconds(run, rates, data).label(run=run.name, parameters=data.figure(f"{run.id}.parameters"))
            for run in large
        ]
    )


@quantity(
    "ladder.nodes_for_90_days",
    unit="nodes",
    tier="derived",
    needs={"experiments": ["training"], "device": "any"},
    labels=("run", "parameters", "threads", "baseline"),
    says="It takes {value} such as {node} to train a published model in 90 days ({labels})",
)
def nodes_for_90_days(data: Dataset) -> Estimates:
    """Machines like this one (of a GPU node: such GPUs) that finish a published pre-training run in 90 days.

    6 x parameters x tokens over the device's best measured training rate of any transformer
    (see `best_rates`) and 90 days. At the least: that the model does not fit, and what
    machines tell each other, is left out, as if all kept the pace of one alone.
    """
    seconds = _large(data)
    return seconds / (DAYS * 24 * _HOUR) if len(seconds) else seconds
