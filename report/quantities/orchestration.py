"""Quantities of training loops with their data: what a device waits for its host, and what preparing a sample takes."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity

_LOOP = ("model", "batch", "source", "dtype", "threads")
_NEEDS = {"experiments": ["orchestration"], "device": "any"}
_GPU = {"experiments": ["orchestration"], "device": "gpu"}
PRELOADED = "preloaded"


def complement(ratios: Estimates) -> Estimates:
    """1 less each ratio, none below zero: a share of time that is lost cannot be gained."""
    frame = ratios.frame
    ends = {"estimate": "estimate", "low": "high", "high": "low"}
    values = {name: (1 - frame[end].astype(float)).clip(lower=0.0) for name, end in ends.items()}
    return Estimates(frame.assign(**values, se=frame["estimate"].astype(float) * frame["se"].astype(float)), log=False)


def turns(data: Dataset) -> Estimates:
    """Turns of the loop per second: on a GPU as loops are written, with the host running ahead of the device."""
    times = [data.summary("orchestration", "loop_time"), data.summary("orchestration")]
    parts = [cells.only(device=kind) for cells, kind in zip(times, ("gpu", "cpu"), strict=True) if len(cells)]
    found = concat(parts) if parts else Estimates.empty()
    return Estimates.from_estimates(found.frame.assign(estimate=1 / found.frame["estimate"])) if len(found) else found


def time_lost(data: Dataset) -> Estimates:
    """Share of a turn that preparing and moving the data costs, with as many workers as do it best (`detail`)."""
    rates = turns(data)
    if not len(rates):
        return rates
    place = ["node", "device", *_LOOP]
    ready = rates.only(source=PRELOADED).by(*[name for name in place if name != "source"])
    loaded = rates.at((rates.frame["source"] != PRELOADED).to_numpy(bool))
    if not len(ready) or not len(loaded):
        return Estimates.empty()
    workers = [f"{int(number)} worker{'s' * (number != 1)}" for number in loaded.frame["workers"]]
    best = loaded.label(workers=workers).best(place, of=["workers"])
    return complement(best / ready)


@quantity(
    "orchestration.wait_share",
    unit="1",
    needs=_NEEDS,
    labels=(*_LOOP, "workers"),
    says="On {node}, waiting for the next batch is {value} of a training loop's time ({labels})",
)
def wait_share(data: Dataset) -> Estimates:
    """Median time until the next batch is on the device, over that of the whole turn; both wait for the device."""
    load, whole = data.summary("orchestration", "time.load"), data.summary("orchestration")
    return (load / whole).without("backend") if len(load) and len(whole) else Estimates.empty()


@quantity(
    "orchestration.time_lost",
    unit="1",
    needs=_NEEDS,
    labels=_LOOP,
    says="On {node}, a training loop ({labels}) loses {value} of its time to preparing its data",
)
def lost(data: Dataset) -> Estimates:
    """1 - time of a turn with batches already on the device / time with the best number of loader workers."""
    return time_lost(data)


@quantity(
    "orchestration.gpu_time_lost_to_host",
    unit="1",
    needs=_GPU,
    labels=_LOOP,
    says="On {node}, the GPU loses {value} of its time to a host that prepares its data ({labels})",
)
def gpu_time_lost_to_host(data: Dataset) -> Estimates:
    """The same on GPUs: 1 - time of a turn with preloaded batches / time with the best number of loader workers.

    Both are of loops whose host runs ahead of the device for some turns, as usual.
    """
    cells = time_lost(data)
    return cells.only(device="gpu") if len(cells) else cells


@quantity(
    "orchestration.decode_time",
    unit="s",
    needs=_NEEDS,
    labels=("model", "batch", "source", "workers", "dtype", "threads"),
    says="On {node}, one process prepares a sample in {value} ({labels})",
)
def decode_time(data: Dataset) -> Estimates:
    """Time of one sample in one process: decoded, augmented or tokenised, and made a tensor."""
    cells = data.summary("orchestration", "decode_time")
    return cells.without("backend") if len(cells) else cells


@quantity(
    "orchestration.gpu_idle_share",
    unit="1",
    needs={"experiments": ["training"], "device": "gpu"},
    labels=("model", "batch", "dtype", "backend"),
    says="On {node}, the GPU has nothing to do for {value} of a training step ({labels})",
)
def gpu_idle_share(data: Dataset) -> Estimates:
    """1 - time of the step's kernels and copies / time of the step, with the batch on the device.

    Kernels are added up by the profiler, one after the other; between them the GPU waits
    until its host has launched the next one.
    """
    kernels, whole = data.summary("training", "kernel_time"), data.summary("training")
    if not len(kernels) or not len(whole):
        return Estimates.empty()
    kernels = kernels.only(device="gpu")
    return complement(kernels / whole).without("threads") if len(kernels) else kernels
