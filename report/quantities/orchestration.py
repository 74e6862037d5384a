"""Quantities of training loops with their data: what a device waits for its host, and what preparing a sample takes."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.formatting import format_count
from report.quantities import quantity
from report.quantities.rate_arithmetic import complement

PRELOADED = "preloaded"
_LOOP = ("model", "batch", "source", "dtype", "threads")
_gpu_quantity = partial(quantity, device="gpu")


@quantity("orchestration.wait_share", "1", (*_LOOP, "workers"))
def wait_share(data: Dataset) -> Estimates:
    """Median time until the next batch is on the device, over that of the whole turn; both wait for the device."""
    return (data.summary("orchestration", "time.load") / data.summary("orchestration")).without("backend")


@quantity("orchestration.time_lost", "1", _LOOP)
def time_lost(data: Dataset) -> Estimates:
    """1 - time of a turn with batches already on the device / time with the best number of loader workers."""
    # On a GPU as loops are written, with the host running ahead of the device.
    on_gpus = data.summary("orchestration", "loop_time").only(device="gpu")
    turns = concat_estimates([on_gpus, data.summary("orchestration").only(device="cpu")]).inverse()
    place = ["node", "device", *_LOOP]
    ready = turns.only(source=PRELOADED).by(*(name for name in place if name != "source"))
    loaded = turns.at(turns["source"] != PRELOADED)
    workers = [format_count(int(number), "worker") for number in loaded["workers"]]
    return complement(loaded.label(workers=workers).best(place, of=["workers"]) / ready)


@_gpu_quantity("orchestration.gpu_time_lost_to_host", "1", _LOOP)
def gpu_time_lost_to_host(data: Dataset) -> Estimates:
    """The same on GPUs: 1 - time of a turn with preloaded batches / time with the best number of loader workers.

    Both are of loops whose host runs ahead of the device for some turns, as usual.
    """
    return time_lost(data).only(device="gpu")


@quantity("orchestration.decode_time", "s", ("model", "batch", "source", "workers", "dtype", "threads"))
def decode_time(data: Dataset) -> Estimates:
    """Time of one sample in one process: decoded, augmented or tokenised, and made a tensor."""
    return data.summary("orchestration", "decode_time").without("backend")


@_gpu_quantity("orchestration.gpu_idle_share", "1", ("model", "batch", "dtype", "backend"), experiments=["training"])
def gpu_idle_share(data: Dataset) -> Estimates:
    """1 - time of the step's kernels and copies / time of the step, with the batch on the device.

    Kernels are added up by the profiler, one after the other; between them the GPU waits
    until its host has launched the next one.
    """
    kernels = data.summary("training", "kernel_time").only(device="gpu")
    return complement(kernels / data.summary("training")).without("threads")
