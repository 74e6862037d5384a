"""What more of something gives: more cores per core, and more of a GPU's memory in larger batches."""

from __future__ import annotations

import json

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import gemm, memory, quantity, training


def efficiency(rates: Estimates) -> Estimates:
    """Rate with several threads over (threads x rate with one); a node that measured one thread only has no cell."""
    if not len(rates):
        return rates
    rates = rates.only(device="cpu")
    many = rates.frame["threads"] > 1
    one = rates.only(threads=1).without("threads")
    shared = rates.at(many.to_numpy(bool))
    if not len(one) or not len(shared):
        return Estimates.empty()
    return shared.scaled_by(1 / shared.frame["threads"].astype(float)) / one


@quantity(
    "gemm.scaling_efficiency",
    unit="1",
    needs={"experiments": ["gemm"], "device": "cpu"},
    labels=("dtype", "threads", "backend", "shape", "m", "n", "k"),
    says="On {node}, matrix products ({labels}) reach {value} of their one-core rate on each core",
)
def gemm_efficiency(data: Dataset) -> Estimates:
    """Rate with many threads over (threads x rate with one), same dtype and library.

    For `best` the best shape and library of either side.
    """
    return efficiency(gemm.rate(data))


@quantity(
    "bandwidth.scaling_efficiency",
    unit="1",
    needs={"experiments": ["bandwidth"], "device": "cpu"},
    labels=("op", "dtype", "threads", "backend", "footprint"),
    says="On {node}, each core moves {value} of what one core alone does ({labels})",
)
def bandwidth_efficiency(data: Dataset) -> Estimates:
    """Bytes per second from main memory with many threads over (threads x those with one)."""
    return efficiency(memory.bandwidth_rate(data))


@quantity(
    "training.scaling_efficiency",
    unit="1",
    needs={"experiments": ["training"], "device": "cpu"},
    labels=("model", "batch", "dtype", "threads", "backend"),
    says="On {node}, training ({labels}) reaches {value} of its one-core rate on each core",
)
def training_efficiency(data: Dataset) -> Estimates:
    """Samples per second with many threads over (threads x those with one), same model, batch, dtype and library."""
    return efficiency(training.samples_per_second(data))


# What says that a batch was too large.
_TOO_LARGE = ("oom", "skipped: memory")
_SERIES = ["node", "device", "model", "dtype", "backend"]
# Of the highest rate, what counts as having reached it.
SATURATED = 0.9


@quantity(
    "scaling.throughput_over_eighth",
    unit="1",
    needs={"experiments": ["training"], "device": "gpu"},
    labels=("model", "dtype", "backend", "batch"),
    says="On {node}, the largest batch that fits trains {value} times the samples per second of an eighth ({labels})",
)
def throughput_over_eighth(data: Dataset) -> Estimates:
    """Samples per second at the largest batch that fits over those at an eighth of it.

    Of models and formats for which a larger batch was tried and did not fit the device's
    memory; where none was, the largest that fits is not known. `detail` names the batch
    that did not fit, and the smallest one at nine tenths of the highest rate.
    """
    rates = training.samples_per_second(data)
    too_large = _too_large(data)
    if not len(rates) or not too_large:
        return Estimates.empty()
    found = []
    for key, group in rates.frame.groupby(_SERIES, sort=True):
        batches = dict(zip(group["batch"].astype(int), group.index, strict=True))
        largest = max(batches)
        refused = [batch for batch in too_large.get(tuple(map(str, key)), ()) if batch > largest]
        if not refused or largest % 8 or largest // 8 not in batches:
            continue
        above, below = (rates.at([batches[batch]]).by(*_SERIES) for batch in (largest, largest // 8))
        enough = group.loc[group["estimate"] >= SATURATED * group["estimate"].max(), "batch"].astype(int).min()
        said = f"{min(refused):,} does not fit; from {enough:,} on within a tenth of the highest rate"
        found.append((above / below).label(batch=largest, detail=said))
    return concat(found) if found else Estimates.empty()


def _too_large(data: Dataset) -> dict[tuple[str, ...], list[int]]:
    """The batches that did not fit, by node, device, model, format and library."""
    rows = data.statuses("training", "gpu")
    said = rows["status"].astype(str) + ": " + rows["reason"].astype(str)
    found: dict[tuple[str, ...], list[int]] = {}
    for _, row in rows[said.str.startswith(_TOO_LARGE)].iterrows():
        params = json.loads(row["params"])
        key = tuple(str(one) for one in (row["node"], row["device"], params["model"], row["dtype"], row["backend"]))
        found.setdefault(key, []).append(int(params["batch"]))
    return found
