"""Training steps with the study's models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from contract.node import kind_of_node
from report.data.dataset import Dataset
from report.data.machine_kinds import nodes_of_kind
from report.derivations import Formula
from report.derived_estimates import concat_derived, quotient
from report.estimates import Estimates, concat_estimates
from report.quantities import gemm, quantity, summary_quantity
from report.quantities.ladder import LOOPS
from report.quantities.rate_arithmetic import BEST_LABELS, best_over_host, best_ratios, most_threads

_LABELS = ("model", "batch", "dtype", "threads", "backend")
PHASES = ("forward", "backward", "update")
_speedup_quantity = partial(quantity, experiments=["training"], device="both")
_summary = partial(summary_quantity, labels=_LABELS)


@quantity("training.rate", "samples/s", _LABELS)
def samples_per_second(data: Dataset) -> Estimates:
    """Samples per second: batch divided by the median step time."""
    steps = data.summary("training").inverse()
    return steps.scaled_by(steps.numbers("batch"))


def baseline_rates(rates: Estimates) -> Estimates:
    """Return CPU rates by baseline: `core` is one thread, and `node` is the most threads measured on that node."""
    cpu = rates.filter(device="cpu")
    most = cpu["threads"].groupby(cpu["node"], observed=True).transform("max")
    return concat_estimates(
        [cpu.filter(threads=1).label(baseline="core"), cpu.take(cpu["threads"] == most).label(baseline="node")]
    )


def fleet_rates(data: Dataset, rates: Estimates) -> Estimates:
    """Join the rates for all nodes' CPUs, with all threads, into one baseline `fleet`; the label `of` names the node.

    rates: CPU rates by baseline, as `baseline_rates` returns them. The result is empty if only one node kind was
    measured, because `fleet` would then equal the baseline `node`.
    """
    whole = rates.filter(baseline="node")
    if whole["node"].map(kind_of_node).nunique() < 2:
        return Estimates.empty()
    labelled = whole.label(baseline="fleet", of=[data.label(node) for node in whole["node"]])
    return labelled.drop_labels("node", "device")


# The study's models that represent each family.
FAMILIES = {
    "convolutional": ["cnn", "resnet", "resnet-50", "resnet-18", "airbench94", "alexnet"],
    "transformer": [
        "gpt", "gpt2", "gpt-1m", "gpt-10m", "gpt-85m", "gpt-350m", "gpt-1.3b", "gpt-7b", "vit", "vit-b-16",
        "nanogpt", "nanogpt-cpu", "bert-base-classifier", "minilm-l6", "gpt2-124m", "gpt2-124m-1024",
    ],
}  # fmt: skip


def whole_device_rates(rates: Estimates) -> Estimates:
    """Select training rates on GPUs and on CPUs with all threads, without plain loops."""
    rates = rates.take(~rates["backend"].isin(LOOPS))
    rates = concat_estimates(
        [baseline_rates(rates).filter(baseline="node"), rates.filter(device="gpu").label(baseline=None)]
    )
    return rates.label(samples=rates["batch"], batch=[f"batch {size}" for size in rates["batch"]])


def family_rates(data: Dataset) -> Estimates:
    """Return training FLOP/s by model family, on GPUs and on CPUs with all threads, without plain loops."""
    rates = whole_device_rates(data.summary("training", value="flop_per_s")).drop_labels("samples")
    return concat_estimates([rates.filter(model=models).label(family=family) for family, models in FAMILIES.items()])


_WHERE = ["node", "device", "threads", "baseline"]
_STEP = ["model", "batch", "dtype", "backend"]


def best_rates(data: Dataset) -> Estimates:
    """Return FLOP/s in the fastest training step by model family and device; CPUs use all threads.

    The step is the fastest over models in the family, batch sizes, number formats and libraries; `detail` names them.
    """
    return family_rates(data).best_per_group([*_WHERE, "family"], detail=_STEP)


def own_step_rates(data: Dataset, model: str, most: int) -> Estimates:
    """Return samples/s in the fastest training step of one model by device; CPUs use all threads.

    The step is the fastest over batches of up to `most` samples, number formats and libraries; `detail` names them.
    Steps from a single round are left out, because they have no interval.
    """
    rates = whole_device_rates(samples_per_second(data)).filter(model=model)
    return rates.take((rates["samples"] <= most) & rates["se"].notna()).best_per_group(_WHERE, detail=_STEP)


SPEEDUP = Formula(
    "S = g / c",
    "1",
    {"g": ("training rate of the GPU", "samples/s"), "c": ("training rate of the CPU", "samples/s")},
)


@_speedup_quantity("training.speedup", "1", ("model", "batch", "baseline", *BEST_LABELS), formulas=(SPEEDUP,))
def speedup(data: Dataset) -> Estimates:
    """Training rate on one GPU, relative to that on a CPU, for the same model and batch.

    baseline: `core` is one thread on the GPU's own host, and `node` the most threads measured there; `server` is the
    host if it has at least 64 cores (`machine_kinds.SERVER_CORES`), all in use; `fleet` is the fastest CPU on any node,
    with all its threads, which `detail` names. precision: equal (the same dtype on both sides) or best (each side's
    fastest dtype). Each side uses its fastest library: runtime on the GPU, cpu_runtime on the CPU.
    """
    rates = samples_per_second(data)
    gpu, cpu = rates.filter(device="gpu"), baseline_rates(rates)
    servers = cpu.filter(baseline="node", node=nodes_of_kind(data, "server"))
    hosts = concat_estimates([cpu, servers.label(baseline="server")]).drop_labels("device")
    by, divide = ["model", "batch", "baseline"], partial(quotient, SPEEDUP)
    return concat_derived(
        [*best_ratios(gpu, hosts, by, divide=divide), *best_ratios(gpu, fleet_rates(data, cpu), by, ["of"], divide)]
    )


@quantity("training.capture_gain", "1", ("model", "batch", "dtype", "threads"), device="gpu")
def capture_gain(data: Dataset) -> Estimates:
    """Median time for a GPU training step in default PyTorch, divided by that with the step captured in one graph."""
    return data.summary("training").filter(device="gpu").ratio("backend", "torch", "graph")


peak_memory = _summary(
    "training.peak_memory_bytes",
    "B",
    """Peak bytes during a step: weights, gradients, Adam's moments, the batch, and activations kept for backward.

On a GPU by PyTorch's allocator; on a CPU resident memory (see `experiments.models.peak_memory`).""",
    metric="peak_memory",
)


@quantity("training.mfu", "1", _LABELS, ceiling=1.0, reads=("gemm", "peak"))
def mfu(data: Dataset) -> Estimates:
    """Model FLOP utilisation: the step's analytic FLOP divided by its time, relative to the measured peak.

    On a CPU, the peak is the FMA rate for the same dtype and threads. On a GPU, it is the best matrix product in that
    dtype, because our own kernels use no matrix units.

    Source: Chowdhery et al. 2022 (PaLM), appendix B.
    """
    return gemm.share_of_peak(data, data.summary("training", value="flop_per_s"))


_summary(
    "training.repeat_share",
    "1",
    "Share of consecutive steps with equal operator sequences; counted, so equal rounds are exact.",
)
_summary(
    "training.matmul_flop_share",
    "1",
    "Share of a step's FLOP in matrix products, convolutions and attention; counted.",
)
_summary(
    "training.matmul_time_share",
    "1",
    "Share of a step's operator time in matrix products, convolutions and attention; timed by the profiler.",
)


# Rungs from bottom to top. Each has the labels that its points must have; a label that is not named may have any value.
# A rung shows its fastest point. The last field is True for rungs that use all cores.
RUNGS: tuple[tuple[str, Mapping[str, Any], bool], ...] = (
    ("one core, plain PyTorch", {"device": "cpu", "threads": 1, "backend": "torch", "dtype": "float32"}, False),
    ("one core, tuned", {"device": "cpu", "threads": 1}, False),
    ("all cores, plain PyTorch", {"device": "cpu", "backend": "torch", "dtype": "float32"}, True),
    ("all cores, best library", {"device": "cpu", "dtype": "float32"}, True),
    ("all cores, tuned", {"device": "cpu"}, True),
    ("GPU, float32", {"device": "gpu", "dtype": "float32"}, False),
    ("GPU, tuned", {"device": "gpu"}, False),
)
BASE, ALONE, DEFAULT, LIBRARY, WHOLE, EQUAL, TOP = (name for name, *_ in RUNGS)


@quantity("training.ladder", "samples/s", ("model", "batch", "rung", "place"))
def training_ladder(data: Dataset) -> Estimates:
    """Samples per second on each rung of the training ladder, for every model and batch, without plain loops.

    place: the rung's number, from the bottom. `detail` names library and format: the fastest that were measured, unless
    the rung sets them. A rung with all cores uses the most threads measured on that node, which must be more than one.
    """
    rates = samples_per_second(data)
    rates = rates.take(~rates["backend"].isin(LOOPS))
    on_all = most_threads(rates.take(rates["threads"] > 1))
    steps = [
        (on_all if whole else rates)
        .filter(**limits)
        .best_per_group(["node", "device", "model", "batch"], detail=["backend", "dtype"])
        .label(rung=rung, place=place)
        for place, (rung, limits, whole) in enumerate(RUNGS, start=1)
    ]
    return concat_estimates(steps)


# Energy metrics, each with its method. Energy is counted only for points timed for at least half a second on a CPU, or
# 3 s on a GPU. It includes idle power, and covers a GPU's whole board with its memory, or a CPU's packages without the
# memory.
METHODS = {"energy": "counted by the device", "energy_from_power": "power times time"}


def joules(data: Dataset, experiment: str) -> Estimates:
    """Return the energy per call in J at each point. Power times time serves only devices without an energy counter."""
    counted, added = (data.summary(experiment, metric).label(detail=how) for metric, how in METHODS.items())
    devices = set(counted.rows("node", "device"))
    return concat_estimates([counted, added.take([device not in devices for device in added.rows("node", "device")])])


@_speedup_quantity("energy.training_ratio", "1", ("model", "batch", *BEST_LABELS))
def training_ratio(data: Dataset) -> Estimates:
    """Joules per training step on the CPU, divided by those on a GPU, each with its most efficient library and threads.

    The host's power while its GPU works is left out, because this compares the two devices only. precision: equal (the
    same dtype on both sides) or best (each side's most efficient dtype). runtime, cpu_runtime: libraries on the GPU and
    on the CPU. `detail` gives the energy method on both sides.
    """
    energies = joules(data, "training")
    return best_over_host(energies.inverse().label(method=energies["detail"]), ["model", "batch"], ["method"])
