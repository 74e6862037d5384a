"""Quantities of training on several devices: how well it scales, and how many the memory of a model asks for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed, documented
from report.derived_estimates import DerivedEstimates, Work, derive
from report.estimates import Estimates
from report.quantities import quantity
from report.quantities.architecture import counted

_LABELS = ("model", "batch", "ranks", "interconnect", "dtype", "threads")
_NEEDS = {"experiments": ["several-devices"], "device": "any"}
# Bytes for each parameter while Adam trains it. In mixed precision 2 for the weight, 2 for its gradient, and 4 each
# for a float32 copy and two moments (Rajbhandari et al. 2020, ZeRO, section 3.1); all in float32, 4 each for the
# weight, its gradient and two moments: the same.
STATE_BYTES = 16
# Samples of a batch for which the study's own models must have room.
BATCH = 32
# Published models by size, and what their figures in data/reference begin with.
PUBLISHED = {
    "small": {"ResNet-50": "resnet50", "GPT-2 (124M)": "gpt2-124m"},
    "middle": {"Pythia-1.4B": "pythia-1.4b", "Llama 3.1 8B": "llama31-8b"},
    "large": {"Llama 3.1 70B": "llama31-70b", "Llama 3.1 405B": "llama31-405b"},
}
# The study's models that stand for small projects.
OWN = {"mlp": "MLP on digits", "resnet": "ResNet on MNIST", "gpt2": "GPT-2's blocks on bytes"}
_MEMORY = ".memory_bytes"


@quantity(
    "several_devices.efficiency",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, each of several ranks trains at {value} of the rate of one alone ({labels})",
)
def efficiency(data: Dataset) -> Estimates:
    """Samples per second of all ranks over as many times those of one rank, each with a batch of its own.

    Source: weak scaling (Gustafson 1988). Ranks on a CPU share its memory and caches.
    """
    rates = data.summary("several-devices", "samples_per_s")
    if not len(rates):
        return rates
    one = rates.only(ranks=1).without("ranks")
    several = rates.at((rates.frame["ranks"] > 1).to_numpy(bool))
    if not len(one) or not len(several):
        return Estimates.empty()
    share = several / one
    return share.scaled_by(1 / share.frame["ranks"].astype(float)).without("backend")


@quantity(
    "several_devices.communication_share",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, what the ranks tell each other is {value} of a training step ({labels})",
)
def communication_share(data: Dataset) -> Estimates:
    """1 - time of a step that averages no gradients / time of one that does; both of the slowest rank."""
    cells = data.summary("several-devices", "communication_share")
    return cells.without("backend") if len(cells) else cells


@quantity(
    "training.memory_model_error",
    unit="1",
    needs={"experiments": ["training", "models"], "device": "any"},
    labels=("model", "batch", "dtype", "threads", "backend"),
    says="On {node}, the model of memory differs from the measured peak of a training step by {value} of it ({labels})",
)
def memory_model_error(data: Dataset) -> Estimates:
    """(16 bytes x parameters + bytes kept of a sample x batch) / measured peak - 1: negative where it forgets some.

    What a sample keeps is counted in float32: under autocast to bfloat16 the model expects rather too much.
    """
    peaks = data.summary("training", "peak_memory")
    parameters, kept = by_model(data, "parameters"), by_model(data, "activation_bytes")
    if not len(peaks):
        return peaks
    peaks = peaks.at(peaks.frame["model"].isin(set(parameters) & set(kept)).to_numpy(bool))
    if not len(peaks):
        return Estimates.empty()
    named = list(zip(peaks.frame["model"], peaks.frame["batch"], strict=True))
    predicted = np.array([needed_bytes(parameters[name], kept[name], float(batch)) for name, batch in named])
    frame = peaks.frame
    ratio = {name: predicted / frame[end].astype(float) for name, end in _TURNED.items()}
    ends = {name: values - 1 for name, values in ratio.items()}
    return Estimates(frame.assign(**ends, se=ratio["estimate"] * frame["se"].astype(float)), log=False)


_TURNED = {"estimate": "estimate", "low": "high", "high": "low"}


def by_model(data: Dataset, metric: str) -> dict[str, float]:
    """A counted property of the study's models by name: the same on every node."""
    cells = counted(data, metric)
    if not len(cells):
        return {}
    return dict(zip(cells.frame["model"].astype(str), cells.frame["estimate"].astype(float), strict=True))


def needed_bytes(parameters: float, kept: float = 0.0, batch: float = 0.0) -> float:
    """Memory to train a model with Adam: its state, and what the samples of a batch keep for backward."""
    return STATE_BYTES * parameters + kept * batch


STATE = (
    "weights, gradients and two moments of Adam: 2 + 2 + 12 bytes in mixed precision, 4 each in float32 (Rajbhandari "
    "et al. 2020, ZeRO, section 3.1)"
)
# Weight and gradient of 2 bytes with moments of 1 byte each; and 4 bytes more for gradients kept in float32.
_LEAST_STATE, _MOST_STATE = 6.0, 20.0


def state_bytes() -> Input:
    """Bytes for each parameter while it is trained."""
    return assumed(float(STATE_BYTES), "B", STATE, _LEAST_STATE, _MOST_STATE)


def parts(data: Dataset) -> dict[str, Input]:
    """Memory of each GPU: as its maker states it, and as the measured nodes' GPUs tell it. No processor with cores."""
    stated = {
        str(entry["subject"]): documented(data, name)
        for name, entry in data.reference.items()
        if name.endswith(_MEMORY)
        and f"{name.removesuffix(_MEMORY)}.cores" not in data.reference
        and entry["status"] == "verified"
        and entry.get("value")
    }
    told = {
        f"{device['name']}, measured here": Input(
            float(device["memory_bytes"]), "B", "measured", "told by the device", what=str(device["name"])
        )
        for node in data.nodes.nodes
        for device in node.record["devices"]
        if device["kind"] == "gpu" and device.get("memory_bytes")
    }
    return stated | told


def jobs(data: Dataset) -> Iterator[tuple[str, str, dict[str, Input], str]]:
    """Models to train: name, size, what goes into their memory, and what it is for. Raises MissingSourceError."""
    for size, models in PUBLISHED.items():
        for name, prefix in models.items():
            counted_in = {"N": documented(data, f"{prefix}.parameters"), **_batch(0.0, 0.0, "left out")}
            yield name, size, counted_in, "weights, gradients and moments"
    parameters, kept = by_model(data, "parameters"), by_model(data, "activation_bytes")
    for model, name in OWN.items():
        if model in parameters and model in kept:
            own = Input(parameters[model], "1", "measured", "counted by this study", what=f"Parameters of {name}")
            counted_in = {"N": own, **_batch(kept[model], float(BATCH), "counted by this study")}
            yield name, "small", counted_in, f"weights, gradients, moments and a batch of {BATCH}"


def _batch(kept: float, batch: float, source: str) -> dict[str, Input]:
    return {
        "a": Input(kept, "B", "measured" if kept else "assumed", source, what="Kept of a sample for the backward pass"),
        "b": assumed(batch, "1", "samples of a batch" if batch else "the batch comes on top"),
    }


NEEDED = Formula(
    "n = (s * N + a * b) / M",
    "1",
    {
        "s": ("bytes for each parameter", "B"),
        "N": ("parameters", "1"),
        "a": ("bytes kept of a sample", "B"),
        "b": ("samples of a batch", "1"),
        "M": ("memory of one GPU", "B"),
    },
    rounded_up=True,
)


@quantity(
    "several_devices.gpus_needed",
    unit="1",
    tier="derived",
    labels=("model", "size", "accelerator"),
    says="GPUs that hold a model between them while it is trained ({labels}): at least {value}",
    formulas=(NEEDED,),
)
def needed(data: Dataset) -> DerivedEstimates:
    """Memory to train a model with Adam over that of one GPU, rounded up: how many hold it between them at the least.

    Memory: 16 bytes for each parameter (weights, gradients, moments; Rajbhandari et al. 2020,
    ZeRO, section 3.1), and for the study's own models what a batch keeps for the backward pass.
    What published models keep of their batches comes on top. `training.memory_model_error`
    holds the model against measured peaks.
    """
    works = []
    for name, size, counted_in, what in jobs(data):
        wanted = needed_bytes(*(counted_in[symbol].value for symbol in "Nab"))
        for part, memory in parts(data).items():
            share = wanted / memory.value
            detail = f"{what} take {100 * share:.3g}% of one" if share <= 1 else f"{what} take {share:.3g} times one"
            labels = {"model": name, "size": size, "accelerator": part}
            works.append(Work(labels, NEEDED, {"s": state_bytes(), **counted_in, "M": memory}, detail))
    return derive(works)
