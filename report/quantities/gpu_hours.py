"""Hours that published training runs take on one H100, and took on their makers' own machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed_input, documented_input, is_verified
from report.derived_estimates import Derivation, DerivedEstimates, derive
from report.quantities.cpu_servers import BERT_SYMBOLS, Symbols, bert_inputs
from report.quantities.derived import GPU_HOURS, arithmetic_quantity
from report.quantities.server_hours import CONVOLUTIONAL, TRAINED, image_inputs, published_input
from report.quantities.train_hours import RUNS, Run, total_flop

GPU = "H100 SXM"
# MLPerf's training for ResNet-50 on eight such GPUs, and on the cluster from which CONVOLUTIONAL starts.
_ON_GPUS = "mlperf-training-3.1/nvidia.eos_ngc23.09_mxnet.resnet"
_ON_SERVERS = next(record for record, name in TRAINED.items() if name.startswith("ResNet-50"))
_GPUS = assumed_input(8.0, "1", "the submissions' system description")

_SHARED: Symbols = {"F": ("operations of the run", "FLOP"), "g": ("GPUs at work", "1")}
TRANSFORMER = Formula(
    "T = F / (H / g * w * B * L)",
    "h",
    {
        **_SHARED,
        "H": ("sequences that the GPUs trained BERT large on per second", "1/s"),
        **{symbol: BERT_SYMBOLS[symbol] for symbol in "wBL"},
    },
)
BY_TIMES = Formula(
    "T = F / (I / m * o * M) * (t * g) / (u * m)",
    "h",
    {
        **_SHARED,
        **{symbol: CONVOLUTIONAL.symbols[symbol] for symbol in "ImoM"},
        "t": ("time in which the GPUs trained ResNet-50", "s"),
        "u": ("time in which the cluster trained ResNet-50", "s"),
    },
)


@arithmetic_quantity("ladder.gpu_hours", "h", ("run", "scale", "gpu"), formulas=(TRANSFORMER, BY_TIMES))
def gpu_hours(data: Dataset) -> DerivedEstimates:
    """Hours that one H100 takes for a published training run, at the rates of eight of them in MLPerf Training 3.1.

    A transformer's operations are divided by the rate at which each GPU trained BERT large. A convolutional network's
    hours on a server (see `ladder.server_hours`) are divided by the speed of a GPU over such a server in training
    ResNet-50. Memory limits are left out, and small networks do not reach such rates. Raises MissingSourceError.
    """
    return derive(list(_gpu_derivations(data)))


def _gpu_derivations(data: Dataset) -> Iterator[Derivation]:
    bert = bert_inputs(data)
    records = data.published.records_by_key
    for run in RUNS:
        labels = {"run": run.name, "scale": run.scale, "gpu": GPU}
        shared = {"F": Input(total_flop(run, data), "FLOP", "documented", f"figures of {run.name}"), "g": _GPUS}
        if run.family == "transformer":
            rate = documented_input(data, "mlperf-training-3.1.8xh100.bert_sequences_per_s")
            inputs = {**shared, "H": rate, **{symbol: bert[symbol] for symbol in "wBL"}}
            yield Derivation(labels, TRANSFORMER, inputs, "at the rate of BERT large")
        elif {_ON_GPUS, _ON_SERVERS} <= records.keys():
            times = {
                symbol: published_input(records[key], data, "s")
                for symbol, key in (("t", _ON_GPUS), ("u", _ON_SERVERS))
            }
            yield Derivation(labels, BY_TIMES, {**shared, **image_inputs(data), **times}, "at the rate of ResNet-50")


# For each run, the entry with its makers' time, and their machine; for ResNet-50, those who trained it later.
_MAKERS: Mapping[str, tuple[str, str]] = {
    "nanogpt-cpu": ("nanogpt-cpu.makers_s", "a laptop’s CPU"),
    "airbench94": ("airbench94.makers_s", "one A100"),
    "nanogpt": ("nanogpt.makers_s", "one A100"),
    "resnet18-cifar": ("resnet18-cifar.makers_s", "one A100"),
    "alexnet": ("alexnet.makers_s", "two GTX 580"),
    "resnet50": ("goyal2017.makers_s", "256 GPUs of 2017"),
    "gpt2-124m": ("gpt2-124m.makers_s", "8 A100"),
    "bert-base": ("bert-base.makers_s", "4 Cloud TPUs"),
}
_LARGEST = "llama31-405b"
DOCUMENTED = Formula("T = t", "h", {"t": ("time of the run, as its makers tell it", "s")})
_BY_GPU_HOURS = replace(GPU_HOURS, unit="h")


@arithmetic_quantity("ladder.makers_hours", "h", ("run", "machine"), formulas=(DOCUMENTED, _BY_GPU_HOURS))
def makers_hours(data: Dataset) -> DerivedEstimates:
    """Hours that a published training run took on the machine of its makers, as they tell it.

    For Llama 3.1 405B: GPU hours / GPUs (see `llama405b.days_from_gpu_hours`). Runs without a documented time are left
    out.
    """
    return derive([derivation for run in RUNS for derivation in _documented_hours(run, data)])


def _documented_hours(run: Run, data: Dataset) -> Iterator[Derivation]:
    if run.id == _LARGEST:
        gpus = documented_input(data, f"{_LARGEST}.gpus")
        inputs = {"G": documented_input(data, f"{_LARGEST}.gpu_hours"), "n": gpus}
        labels = {"run": run.name, "machine": f"{gpus.value:,.0f} H100"}
        yield Derivation(labels, _BY_GPU_HOURS, inputs, "GPU hours / GPUs")
    elif run.id in _MAKERS and is_verified(data, _MAKERS[run.id][0]):
        entry, machine = _MAKERS[run.id]
        yield Derivation({"run": run.name, "machine": machine}, DOCUMENTED, {"t": documented_input(data, entry)})
