"""What each GPU that no node has measured would do beside the CPUs that were: one record a GPU, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from report.data.dataset import Dataset, MissingSourceError
from report.estimates import Estimates
from report.predicted import TIER
from report.predicted.chips import Chip, chips, measured
from report.predicted.evidence import BOUND, Predicted, foretell
from report.predicted.roofline import Reached, reached
from report.quantities import quantities
from report.quantities.several_devices import PUBLISHED, STATE_BYTES
from report.transforms import crossings

# A weight in bfloat16, as large models are served.
SERVED_BYTES = 2


def overview(data: Dataset) -> dict[str, Any]:
    """Predictions for every GPU of the reference that no node has: rates, speed-ups, crossovers, text and memory.

    measured: chips that nodes have, from which predictions are scaled. errors: by experiment, the typical factor by
    which leaving a chip out and foretelling it misses, and from how many chips.
    """
    known = chips(data.reference)
    shares = reached(data, known)
    have = {chip.id for chip in measured(data, known).values()}
    return {
        "tier": TIER,
        "measured": shares.chips,
        "errors": shares.factors,
        "gpus": [record(data, chip, shares) for chip in known if chip.id not in have],
    }


def record(data: Dataset, chip: Chip, shares: Reached) -> dict[str, Any]:
    """One GPU: its verified figures, and what follows from them."""
    by = foretell(data, chip, shares)
    return {
        "tier": TIER,
        "id": chip.id,
        "name": chip.name,
        "figures": dict(chip.figures),
        "entries": chip.entries,
        "not_verified": list(chip.lacking),
        "how": {name: by.how(name) for name in sorted(set(by.points["experiment"]))},
        "training": _values(by, "training.rate"),
        "speedup": _values(by, "training.speedup", baseline="node", precision="best"),
        "decode": _values(by, "generation.tokens_per_s", phase="decode"),
        "crossover": crossovers(by),
        "published": _published(data, chip),
    }


def _values(by: Predicted, quantity: str, **wanted: Any) -> list[dict[str, Any]]:
    """Predicted cells of a quantity: labels, how each is made, and its value, or only the most that it can be."""
    cells = by.cells(quantities()[quantity])
    if not len(cells) or not {"device", *wanted} <= set(cells.labels):
        return []
    cells = cells.only(device=by.chip.device, **wanted)
    found = []
    for row, how in enumerate(by.made(cells)):
        labels = {name: value for name, value in cells.label_values(row).items() if name not in ("device", "backend")}
        values = {name: _known(cells.frame[name].iloc[row]) for name in ("estimate", "low", "high")}
        if how == BOUND:
            values = {"estimate": None, "low": None, "high": None, "at_most": values["estimate"]}
        found.append({**labels, "how": how, **values})
    return found


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def crossovers(by: Predicted) -> list[dict[str, Any]]:
    """From which batch on the GPU trains a model faster than all cores of a node, each at its best format.

    None from bounds: they know nothing of what it costs to launch a kernel, which decides small batches.
    """
    rates = by.cells(quantities()["training.rate"])
    if not len(rates) or by.how("training") in ("", BOUND):
        return []
    most = rates.frame["threads"].astype(int).groupby(rates.frame["node"]).transform("max")
    gpu = (rates.frame["device"] == by.chip.device).to_numpy(bool)
    whole = rates.at(gpu | (rates.frame["threads"].astype(int) == most).to_numpy(bool))
    best = whole.best(["node", "device", "model", "batch"], of=["dtype"])
    best = by.known_best(Estimates(best.frame.assign(detail="")))
    found = crossings(best, {"over": "device", "of": "gpu", "to": "cpu", "along": "batch"}).cells
    names = ("estimate", "low", "high")
    return [
        {**found.label_values(row), "says": str(cell["detail"]), **{name: _known(cell[name]) for name in names}}
        for row, cell in enumerate(found.frame.to_dict("records"))
    ]


def _published(data: Dataset, chip: Chip) -> list[dict[str, Any]]:
    """Published models on one such GPU: whether they fit it, and the most text that its bandwidth can write.

    To answer, at least SERVED_BYTES for each weight; to train, at least STATE_BYTES. Writing a token for one text
    reads every weight once: at most bandwidth over their bytes.
    """
    found = []
    for name, owner in (pair for models in PUBLISHED.values() for pair in models.items()):
        try:
            weights = data.figure(f"{owner}.parameters")
        except MissingSourceError:
            continue
        room, speed = chip.figures.get("memory_bytes"), chip.figures.get("memory_bytes_per_s")
        served = SERVED_BYTES * weights
        found.append(
            {
                "model": name,
                "parameters": weights,
                "answers": None if room is None else served <= room,
                "trains": None if room is None else STATE_BYTES * weights <= room,
                "tokens_per_s_at_most": speed / served
                if speed and served > chip.cache and _fits(served, room)
                else None,
            }
        )
    return found


def _fits(size: float, room: float | None) -> bool:
    return room is not None and size <= room


def told_error(errors: Mapping[str, Any], experiments: Sequence[str] = ("training",)) -> str:
    """How far predictions miss, in words; that it is not known where it is not."""
    for name in experiments:
        if name in errors:
            factor, chips_left_out = errors[name]["factor"], errors[name]["chips"]
            return f"typically within a factor of {factor:.2f}, by leaving out one of {chips_left_out} measured chips"
    return "how far they miss is not known: that takes two measured GPUs"
