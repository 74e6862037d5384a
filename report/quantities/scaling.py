"""Scaling: rate per core with more cores, and GPU throughput with larger batches."""

from __future__ import annotations

import json
from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import gemm, memory, quantity, training

# Share of the highest rate from which a batch counts as large enough.
SATURATED = 0.9
# Outcomes that show that a point's batch was too large for the memory.
_TOO_LARGE = ("oom", "skipped: memory")
_SERIES = ["node", "device", "model", "dtype", "backend"]
_cpu_quantity, _gpu_quantity = partial(quantity, device="cpu"), partial(quantity, device="gpu")


def scaling_efficiency(rates: Estimates) -> Estimates:
    """Divide each rate with several threads by the thread count and by the rate with one thread.

    A node that was measured with one thread only has no case.
    """
    rates = rates.filter(device="cpu")
    shared = rates.take(rates["threads"] > 1)
    return shared.scaled_by(1 / shared.numbers("threads")) / rates.filter(threads=1).drop_labels("threads")


@_cpu_quantity("gemm.scaling_efficiency", "1", ("dtype", "threads", "backend", "shape", "m", "n", "k"))
def gemm_efficiency(data: Dataset) -> Estimates:
    """Product rate with many threads, divided by (threads x rate with one thread), for the same dtype and library.

    For `best`, each side uses its own best shape and library.
    """
    return scaling_efficiency(gemm.product_rate(data))


@_cpu_quantity("bandwidth.scaling_efficiency", "1", ("op", "dtype", "threads", "backend", "footprint"))
def bandwidth_efficiency(data: Dataset) -> Estimates:
    """Bytes per second from main memory with many threads, divided by (threads x bytes per second with one thread)."""
    return scaling_efficiency(memory.bandwidth_rate(data))


@_cpu_quantity("training.scaling_efficiency", "1", ("model", "batch", "dtype", "threads", "backend"))
def training_efficiency(data: Dataset) -> Estimates:
    """Samples per second in training with many threads, divided by (threads x samples per second with one thread).

    Model, batch, dtype and library are the same.
    """
    return scaling_efficiency(training.samples_per_second(data))


@_gpu_quantity("scaling.throughput_over_eighth", "1", ("model", "dtype", "backend", "batch"), experiments=["training"])
def throughput_over_eighth(data: Dataset) -> Estimates:
    """Samples per second at the largest batch that fits into GPU memory, relative to those at an eighth of that batch.

    There is a case only for models and formats with a larger batch that did not fit; otherwise the largest batch is
    unknown. `detail` gives the batch that did not fit, and the smallest batch to reach nine tenths of the highest rate.
    """
    too_large = _too_large_batches(data)
    gains = []
    for series, rates in training.samples_per_second(data).filter(device="gpu").groups(*_SERIES):
        batches = rates["batch"].astype(int)
        largest = batches.max()
        refused = [batch for batch in too_large.get(series, ()) if batch > largest]
        above, below = (rates.take(batches == batch).keep_labels(*_SERIES) for batch in (largest, largest / 8))
        if refused:
            enough = batches[rates["estimate"] >= SATURATED * rates["estimate"].max()].min()
            detail = f"{min(refused):,} does not fit; from {enough:,} on within a tenth of the highest rate"
            gains.append((above / below).label(batch=largest, detail=detail))
    return concat_estimates(gains)


def _too_large_batches(data: Dataset) -> dict[tuple[str, ...], list[int]]:
    """Return the batches that did not fit, by node, device, model, format and library."""
    rows = data.statuses("training", "gpu")
    outcomes = rows["status"].astype(str) + ": " + rows["reason"].astype(str)
    batches: dict[tuple[str, ...], list[int]] = {}
    for row in rows[outcomes.str.startswith(_TOO_LARGE)].to_dict("records"):
        labels = {**row, **json.loads(row["params"])}
        batches.setdefault(tuple(labels[name] for name in _SERIES), []).append(int(labels["batch"]))
    return batches
