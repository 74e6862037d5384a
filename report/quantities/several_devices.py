"""Training on several devices, and a model for training memory, compared to measured peaks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from report.data.dataset import Dataset
from report.data.network_labels import ADAPTED
from report.derivations import Formula, Input, assumed_input, documented_input, is_verified
from report.derived_estimates import Derivation, DerivedEstimates, derive
from report.estimates import Estimates
from report.formatting import format_number
from report.quantities import quantity
from report.quantities.architecture import counted_metric
from report.quantities.training import peak_memory

# Bytes per parameter in training with Adam. In mixed precision, they are 2 for the weight, 2 for its gradient, and 4
# each for a float32 copy of the weight and two moments (Rajbhandari et al. 2020, ZeRO, section 3.1). In float32, they
# are 4 each for the weight, its gradient and two moments, which adds up to the same.
STATE_BYTES = 16
# Batch size with which the study's own models must fit into memory.
BATCH = 32
# Published models by size, with the prefix for their figures in data/reference.
PUBLISHED = {
    "small": {"ResNet-50": "resnet50", "GPT-2 (124M)": "gpt2-124m"},
    "middle": {"Pythia-1.4B": "pythia-1.4b", "Llama 3.1 8B": "llama31-8b"},
    "large": {"Llama 3.1 70B": "llama31-70b", "Llama 3.1 405B": "llama31-405b"},
}
# Models that stand for small projects; the experiment `models` counts their parameters and activations.
STUDY_MODELS = {
    "mlp": "MLP on digits", "resnet": "ResNet on MNIST", "gpt2": "GPT-2's blocks on bytes",
    "resnet-50": "ResNet-50 on photographs", "bert-base-classifier": "BERT-base on 128 tokens",
}  # fmt: skip
_MEMORY = ".memory_bytes"
_COUNTED = "counted by this study"

_LABELS = ("model", "batch", "ranks", "interconnect", "dtype", "threads")
_STEP = ("model", "batch", "dtype", "threads", "backend")
_memory_quantity = partial(quantity, tier="derived", checked="training.memory_model_error")


@quantity("several_devices.efficiency", "1", _LABELS)
def weak_scaling_efficiency(data: Dataset) -> Estimates:
    """Samples per second over all ranks, divided by the rank count and by a single rank's rate.

    Each rank has its own batch (weak scaling, Gustafson 1988). Ranks on a CPU share its memory and caches.
    """
    rates = data.summary("several-devices", "samples_per_s")
    shares = rates.take(rates["ranks"] > 1) / rates.filter(ranks=1).drop_labels("ranks")
    return shares.scaled_by(1 / shares.numbers("ranks")).drop_labels("backend")


@quantity("several_devices.communication_share", "1", _LABELS)
def communication_share(data: Dataset) -> Estimates:
    """Share of the step time for communication: 1 - step time without gradient averaging / step time with it.

    Both times are the slowest rank's.
    """
    return data.summary("several-devices", "communication_share").drop_labels("backend")


@quantity("training.memory_model_error", "1", _STEP, experiments=["training", "models"])
def memory_model_error(data: Dataset) -> Estimates:
    """Memory model error: (16 bytes x parameters + activation bytes per sample x batch) / measured peak - 1.

    The error is negative if the model misses some memory. Activations are counted in float32, so the model
    overestimates under autocast to bfloat16.
    """
    return memory_model_errors(data, data.summary("training", "peak_memory"))


def memory_model_errors(data: Dataset, peaks: Estimates) -> Estimates:
    """Compute `memory_model_error` for some measured peaks."""
    parameters, activations = counts_by_model(data, "parameters"), counts_by_model(data, "activation_bytes")
    peaks = peaks.take(peaks["model"].isin(set(parameters) & set(activations)))
    needed = np.array(
        [needed_bytes(parameters[name], activations[name], batch) for name, batch in peaks.rows("model", "batch")]
    )
    ends = {"estimate": "estimate", "low": "high", "high": "low"}
    ratios = {name: needed / peaks.numbers(end) for name, end in ends.items()}
    errors = {name: ratio - 1 for name, ratio in ratios.items()}
    return Estimates(peaks.label(**errors, se=ratios["estimate"] * peaks.numbers("se")).frame, log=False)


def counts_by_model(data: Dataset, metric: str) -> dict[str, float]:
    """Return a property counted for each model, equal on every node. Leave out models that train only added weights."""
    counts = dict(counted_metric(data, metric).rows("model", "estimate"))
    return {model: value for model, value in counts.items() if model not in ADAPTED}


def parameters_input(model: str, number: float) -> Input:
    return Input(number, "1", "measured", _COUNTED, what=f"Parameters of {model}")


def needed_bytes(parameters: float, activations: float = 0.0, batch: float = 0.0) -> float:
    """Return bytes to train a model with Adam: its state, and the activations that a batch keeps for backward."""
    return STATE_BYTES * parameters + activations * batch


STATE = (
    "weights, gradients and two moments of Adam: 2 + 2 + 12 bytes in mixed precision, 4 each in float32 (Rajbhandari "
    "et al. 2020, ZeRO, section 3.1)"
)
# _LEAST_STATE: 2 bytes each for weight and gradient, and 1 each for two moments. _MOST_STATE: 4 bytes more than
# STATE_BYTES, for float32 gradients.
_LEAST_STATE, _MOST_STATE = 6.0, 20.0


def state_bytes() -> Input:
    """Return the bytes per parameter that training with Adam keeps."""
    return assumed_input(float(STATE_BYTES), "B", STATE, _LEAST_STATE, _MOST_STATE)


def gpu_memories(data: Dataset) -> dict[str, Input]:
    """Return each GPU type's memory as makers state it, and the memory that GPUs on measured nodes report."""
    stated = {
        str(entry["subject"]): documented_input(data, name)
        for name, entry in data.reference.items()
        if name.endswith(_MEMORY)
        and is_verified(data, name)
        and f"{name.removesuffix(_MEMORY)}.cores" not in data.reference
    }
    measured = {
        f"{device['name']}, measured here": Input(
            float(device["memory_bytes"]), "B", "measured", "told by the device", what=str(device["name"])
        )
        for node in data.nodes.nodes
        for device in node.record["devices"]
        if device["kind"] == "gpu" and device.get("memory_bytes")
    }
    return stated | measured


def training_jobs(data: Dataset) -> Iterator[tuple[str, str, dict[str, Input], str]]:
    """Yield for each model to train: name, size (small, middle or large), inputs for memory, and a description.

    Raises MissingSourceError.
    """
    none = {
        "a": Input(0.0, "B", "assumed", "left out", what="Kept of a sample for the backward pass"),
        "b": assumed_input(0.0, "1", "the batch comes on top"),
    }
    for size, models in PUBLISHED.items():
        for name, prefix in models.items():
            parameters = documented_input(data, f"{prefix}.parameters")
            yield name, size, {"N": parameters, **none}, "weights, gradients and moments"
    counted, kept = counts_by_model(data, "parameters"), counts_by_model(data, "activation_bytes")
    for model, name in STUDY_MODELS.items():
        if model in counted and model in kept:
            batch = {
                "a": Input(kept[model], "B", "measured", _COUNTED, what="Kept of a sample for the backward pass"),
                "b": assumed_input(float(BATCH), "1", "samples of a batch"),
            }
            inputs = {"N": parameters_input(name, counted[model]), **batch}
            yield name, "small", inputs, f"weights, gradients, moments and a batch of {BATCH}"


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


@_memory_quantity(
    "several_devices.gpus_needed", "1", ("model", "size", "accelerator"), formulas=(NEEDED,), reads=("models",)
)
def gpus_needed(data: Dataset) -> DerivedEstimates:
    """Fewest GPUs that hold a model in training with Adam: memory needed / one GPU's memory, rounded up.

    The memory needed is 16 bytes per parameter (weights, gradients, moments; Rajbhandari et al. 2020, ZeRO, section
    3.1), and for the study's own models also the activations that a batch keeps for the backward pass. For published
    models, activations come on top. `training.memory_model_error` compares this memory model to measured peaks.
    """
    works, memories = [], gpu_memories(data)
    for name, size, inputs, what in training_jobs(data):
        needed = needed_bytes(*(inputs[symbol].value for symbol in "Nab"))
        for part, memory in memories.items():
            share = needed / memory.value
            detail = f"{what} take {100 * share:.3g}% of one" if share <= 1 else f"{what} take {share:.3g} times one"
            labels = {"model": name, "size": size, "accelerator": part}
            works.append(Derivation(labels, NEEDED, {"s": state_bytes(), **inputs, "M": memory}, detail))
    return derive(works)


# Common GPU memory sizes, in bytes.
SIZES = (8e9, 12e9, 16e9, 24e9, 80e9)
# Smallest peak, in bytes, to compare with the memory model: below it, library overhead is as large as the model.
LEAST_PEAK = 2e8
# Assumed range for measured / modelled memory, if no measured peak reaches LEAST_PEAK.
_UNCHECKED = (0.5, 2.0)

_STATE = {"s": ("bytes for each parameter: weight, gradient, moments", "B"), "N": ("parameters", "1")}
_BATCH = {"a": ("bytes that a sample keeps for the backward pass", "B"), "b": ("samples in a batch", "1")}
_OFF = {"e": ("measured peak over what the model of memory says", "1")}
WITH_BATCH = Formula("B = (s * N + a * b) * e", "B", {**_STATE, **_BATCH, **_OFF})
LEAST = Formula("B = s * N", "B", _STATE)
_COUNT = Formula("n = b", "1", {"b": ("models that take no more", "1")})


def model_ratio(data: Dataset) -> Input:
    """Divide measured peaks of at least LEAST_PEAK by the memory model; return the median and range."""
    peaks = peak_memory(data)
    errors = memory_model_errors(data, peaks.take(peaks.numbers("estimate") >= LEAST_PEAK))
    if not len(errors):
        why = f"no peak of {LEAST_PEAK / 1e6:g} MB or more was measured"
        return Input(1.0, "1", "assumed", why, *_UNCHECKED, in_interval=True)
    ratio = 1 / (1 + errors.numbers("estimate").to_numpy())
    what = f"Median and range of {len(ratio)} measured steps of {LEAST_PEAK / 1e6:g} MB and more"
    middle, low, high = float(np.median(ratio)), float(ratio.min()), float(ratio.max())
    return Input(
        middle, "1", "measured", "measured by this study", low, high, what=what, in_interval=True, **errors.counts()
    )


@_memory_quantity(
    "ladder.training_memory_bytes",
    "B",
    ("model", "kind", "batch"),
    formulas=(WITH_BATCH, LEAST),
    reads=("models", "training"),
)
def training_memory_bytes(data: Dataset) -> DerivedEstimates:
    """Bytes to train each reference model with Adam, which are the same in mixed precision and in float32.

    kind: `published` models have a parameter count from their makers. Their activations are left out, so the result is
    a lower bound. `study` models are this study's own, at batch 32, with activations (counted, in float32). Their bytes
    are multiplied by the ratio of measured peaks to the memory model (`training.memory_model_error`), and the interval
    is that ratio's range.
    """
    ratio, works = model_ratio(data), []
    parameters, kept = counts_by_model(data, "parameters"), counts_by_model(data, "activation_bytes")
    for model in sorted(set(parameters) & set(kept), key=lambda name: (parameters[name], name)):
        inputs = {
            "s": state_bytes(),
            "N": parameters_input(model, parameters[model]),
            "a": Input(kept[model], "B", "measured", "counted by this study", what=f"Kept of a sample by {model}"),
            "b": assumed_input(float(BATCH), "1", "a batch as in the study's smallest comparisons", 1.0, 256.0),
            "e": ratio,
        }
        detail = f"{format_number(parameters[model])} parameters"
        works.append(Derivation({"model": model, "kind": "study", "batch": BATCH}, WITH_BATCH, inputs, detail))
    for models in PUBLISHED.values():
        for name, prefix in models.items():
            inputs = {"s": state_bytes(), "N": documented_input(data, f"{prefix}.parameters")}
            works.append(Derivation({"model": name, "kind": "published"}, LEAST, inputs, "its batch comes on top"))
    whole = derive(works)
    return whole.with_other_results(
        *((f"models that {size / 1e9:g} GB hold", "1", _fitting_counts(whole, size)) for size in SIZES)
    )


def _fitting_counts(whole: DerivedEstimates, size: float) -> DerivedEstimates:
    """For each kind of estimate, count the reference models that need at most `size` bytes."""
    counts = []
    for kind in whole["kind"].unique():
        models = whole.filter(kind=kind)
        fits = models.take(models["estimate"] <= size)["model"]
        inputs = {"b": assumed_input(float(len(fits)), "1", f"of {len(models)}")}
        counts.append(Derivation({"kind": kind}, _COUNT, inputs, f"of {len(models)}: {', '.join(fits) or 'none'}"))
    return derive(counts)
