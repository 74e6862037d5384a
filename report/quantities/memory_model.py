"""Memory that training takes, by a model of it that is held against measured peaks."""

from __future__ import annotations

import numpy as np

from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed, documented
from report.derived_estimates import DerivedEstimates, Work, derive
from report.formatting import number
from report.quantities import quantity, says
from report.quantities.several_devices import (
    BATCH,
    PUBLISHED,
    by_model,
    memory_model_errors,
    parameters_of,
    state_bytes,
)
from report.quantities.training import peak_memory

# Common sizes of a GPU's memory, in bytes.
SIZES = (8e9, 12e9, 16e9, 24e9, 80e9)
# Below, what libraries hold for themselves counts as much as the model that is trained.
LEAST_PEAK = 2e8
# How far off the model may be where no such peak was measured.
_UNCHECKED = (0.5, 2.0)

_STATE = {"s": ("bytes for each parameter: weight, gradient, moments", "B"), "N": ("parameters", "1")}
_BATCH = {"a": ("bytes that a sample keeps for the backward pass", "B"), "b": ("samples in a batch", "1")}
_OFF = {"e": ("measured peak over what the model of memory says", "1")}
OWN = Formula("B = (s * N + a * b) * e", "B", {**_STATE, **_BATCH, **_OFF})
LEAST = Formula("B = s * N", "B", _STATE)
_COUNT = Formula("n = b", "1", {"b": ("models that take no more", "1")})


def model_ratio(data: Dataset) -> Input:
    """Measured peak of a training step over what the model says: the median of the large ones, and their range."""
    peaks = peak_memory(data)
    errors = memory_model_errors(data, peaks.at(peaks.numbers("estimate") >= LEAST_PEAK))
    if not len(errors):
        why = f"no peak of {LEAST_PEAK / 1e6:g} MB or more was measured"
        return Input(1.0, "1", "assumed", why, *_UNCHECKED, spans=True)
    ratio = 1 / (1 + errors.numbers("estimate").to_numpy())
    what = f"Median and range of {len(ratio)} measured steps of {LEAST_PEAK / 1e6:g} MB and more"
    middle, low, high = float(np.median(ratio)), float(ratio.min()), float(ratio.max())
    return Input(middle, "1", "measured", "measured by this study", low, high, what=what, spans=True, **errors.counts())


@quantity(
    "ladder.training_memory_bytes", "B", ("model", "kind", "batch"), tier="derived", formulas=(OWN, LEAST),
    checked="training.memory_model_error",
)  # fmt: skip
@says("Training a model with Adam takes {value} ({labels})")
def training_memory_bytes(data: Dataset) -> DerivedEstimates:
    """Bytes to train each reference model with Adam in mixed precision or in float32, which take the same.

    kind: published, models whose parameters their makers state, without what a batch keeps: the least there is; study,
    the models of this study at a batch of 32, with what their samples keep (counted, in float32), scaled by what
    measured peaks are of the model's result (`training.memory_model_error`), whose range is the interval.
    """
    ratio, works = model_ratio(data), []
    parameters, kept = by_model(data, "parameters"), by_model(data, "activation_bytes")
    for model in sorted(set(parameters) & set(kept), key=lambda name: (parameters[name], name)):
        inputs = {
            "s": state_bytes(),
            "N": parameters_of(model, parameters[model]),
            "a": Input(kept[model], "B", "measured", "counted by this study", what=f"Kept of a sample by {model}"),
            "b": assumed(float(BATCH), "1", "a batch as in the study's smallest comparisons", 1.0, 256.0),
            "e": ratio,
        }
        detail = f"{number(parameters[model])} parameters"
        works.append(Work({"model": model, "kind": "study", "batch": BATCH}, OWN, inputs, detail))
    for models in PUBLISHED.values():
        for name, prefix in models.items():
            inputs = {"s": state_bytes(), "N": documented(data, f"{prefix}.parameters")}
            works.append(Work({"model": name, "kind": "published"}, LEAST, inputs, "its batch comes on top"))
    whole = derive(works)
    return whole.with_beside(*((f"models that {size / 1e9:g} GB hold", "1", _fitting(whole, size)) for size in SIZES))


def _fitting(whole: DerivedEstimates, size: float) -> DerivedEstimates:
    """How many of each kind of reference model fit a size of memory, at the estimates."""
    counts = []
    for kind in whole["kind"].unique():
        models = whole.only(kind=kind)
        fits = models.at(models["estimate"] <= size)["model"]
        inputs = {"b": assumed(float(len(fits)), "1", f"of {len(models)}")}
        counts.append(Work({"kind": kind}, _COUNT, inputs, f"of {len(models)}: {', '.join(fits) or 'none'}"))
    return derive(counts)
