"""Training loops with data loading: device wait time, and time to prepare a sample."""

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
    """Median time until the next batch is on the device, divided by the time for the whole training iteration.

    Both times end when the device has finished.
    """
    return (data.summary("orchestration", "time.load") / data.summary("orchestration")).drop_labels("backend")


@quantity("orchestration.time_lost", "1", _LOOP)
def time_lost(data: Dataset) -> Estimates:
    """Share of the training time that data loading costs.

    The formula is 1 - iteration time with batches already on the device / iteration time with the best number of loader
    workers.
    """
    # On a GPU, use the loops that let the host run ahead, as is usual in training.
    on_gpus = data.summary("orchestration", "loop_time").filter(device="gpu")
    turns = concat_estimates([on_gpus, data.summary("orchestration").filter(device="cpu")]).inverse()
    place = ["node", "device", *_LOOP]
    ready = turns.filter(source=PRELOADED).keep_labels(*(name for name in place if name != "source"))
    loaded = turns.take(turns["source"] != PRELOADED)
    workers = [format_count(int(number), "worker") for number in loaded["workers"]]
    return complement(loaded.label(workers=workers).best_per_group(place, detail=["workers"]) / ready)


@_gpu_quantity("orchestration.gpu_time_lost_to_host", "1", _LOOP)
def gpu_time_lost_to_host(data: Dataset) -> Estimates:
    """Share of a GPU's training time that data loading on the host costs.

    The formula is 1 - iteration time with preloaded batches / iteration time with the best number of loader workers.
    Both loops let the host run a few iterations ahead, as is usual.
    """
    return time_lost(data).filter(device="gpu")


@quantity("orchestration.decode_time", "s", ("model", "batch", "source", "workers", "dtype", "threads"))
def decode_time(data: Dataset) -> Estimates:
    """Time per sample in one process to decode, augment or tokenise it, and convert it to a tensor."""
    return data.summary("orchestration", "decode_time").drop_labels("backend")


@_gpu_quantity("orchestration.gpu_idle_share", "1", ("model", "batch", "dtype", "backend"), experiments=["training"])
def gpu_idle_share(data: Dataset) -> Estimates:
    """Share of a training step in which the GPU is idle: 1 - time in the step's kernels and copies / step time.

    The batch is on the device already. The profiler adds up the times of consecutive kernels; between them, the GPU
    waits for the host to launch the next kernel.
    """
    kernels = data.summary("training", "kernel_time").filter(device="gpu")
    return complement(kernels / data.summary("training")).drop_labels("threads")
