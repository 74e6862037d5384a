"""Data-parallel training on several devices: time per step, with and without communication between the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any, Literal

from experiments import hardware
from experiments.devices import Device
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.workload import Dtype, Observed, Threads, Unsupported, Workload


def memory(model: str, ranks: int, threads: int = 0, **_: Any) -> float:
    """Estimate the bytes for weights, gradients, Adam's two moments and the check's copies.

    Ranks on a CPU share one memory, so their bytes add up; on GPUs, each rank has its own memory.
    """
    from experiments.models.zoo import ZOO

    return ZOO[model].parameters() * 8 * 4.0 * (ranks if threads else 1)


def lacks(devices: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> str:
    """Return an error message if the node has too few devices for the ranks, else ''. Ranks on a CPU share the CPU."""
    if params["ranks"] < 1:
        return "ranks must be at least 1"
    if params["threads"]:
        return ""
    # A single rank serves as the baseline for two ranks, so run it only on nodes that have GPUs for two.
    required = max(2, params["ranks"])
    makers = Counter(str(device.get("maker")) for device in devices if device["kind"] == "gpu")
    alike = max(makers.values(), default=0)
    return f"{required} devices are needed to train on several, this node has {alike}" if alike < required else ""


@experiment("several-devices", memory=memory, lacks=lacks, observed=True)
def several_devices(
    device: Device,
    model: Model,
    batch: int,
    ranks: int,
    interconnect: Literal["nccl", "gloo"],
    dtype: Dtype,
    backend: Literal["torch"],
    threads: Threads,
) -> Workload:
    """Train with Adam in `ranks` processes that average their gradients by DistributedDataParallel.

    Each process has its own device and its own batch with `batch` samples, so the work grows with the ranks. Ranks on a
    CPU have `threads` threads each and share the CPU: they test the method but show no speed-up from more devices.
    Observed: samples_per_s (all ranks), and communication_share, the share of a step spent on averaging.
    Checked: all ranks hold the same weights, which equal those that one process computes from all batches.
    """
    from experiments.models import ranks as processes
    from experiments.models import zoo

    devices = _rank_devices(device, ranks, interconnect, threads)
    tolerance = largest_gradient_error(model, dtype)
    device.torch_dtype(dtype)
    if zoo.ZOO[model].family == "convolutional":
        # Batch norm uses each rank's own batch, so one process on all batches would compute something else.
        raise Unsupported("the check compares with one process on the whole batch: take a model without batch norm")

    order = {
        "model": model, "batch": batch, "dtype": str(dtype), "interconnect": interconnect, "devices": devices,
        "threads": threads,
    }  # fmt: skip
    results = cache(lambda: processes.train_ranks(ranks, order))

    def observe() -> dict[str, Observed]:
        step_s, compute_s = results()["step_time"], results()["step_time_alone"]
        metrics: dict[str, Observed] = {"samples_per_s": (batch * ranks / median(step_s), "samples/s")}
        if ranks > 1:
            shares = [max(0.0, 1 - alone / total) for alone, total in zip(compute_s, step_s, strict=True)]
            metrics["communication_share"] = (shares, "1")
        return metrics

    return Workload(observe=observe, check=lambda: float(results()["error"]), tolerance=tolerance)


def _rank_devices(device: Device, ranks: int, interconnect: str, threads: int) -> list[str]:
    """Return a device name for each rank.

    Raises Unsupported if there are too few devices or cores, or if the interconnect does not join the devices.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise Unsupported("this build of torch has no torch.distributed: install one that has")
    names = [device.name] if device.kind == "cpu" else [device.name, *device.peers(device.name)]
    entries = [{"id": name, "kind": device.kind, "maker": device.maker} for name in names]
    if reason := lacks(entries, {"ranks": ranks, "threads": threads if device.kind == "cpu" else 0}):
        raise Unsupported(reason)
    if interconnect == "nccl" and not (device.name.startswith("cuda") and dist.is_nccl_available()):
        raise Unsupported(f"NCCL, or AMD's RCCL, does not join {device.name}: take gloo")
    if device.kind == "cpu":
        required, cores = ranks * max(threads, 1), hardware.usable_cores()
        if required > cores:
            raise Unsupported(f"{ranks} ranks of {max(threads, 1)} threads need {required} cores, {cores} can be used")
        return names * ranks
    return names[:ranks]
