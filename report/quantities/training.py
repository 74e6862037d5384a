"""Quantities of training steps of the study's models."""

from __future__ import annotations

from report.cells import Cells, concat
from report.evidence import Data
from report.quantities import gemm, quantity

_LABELS = ("model", "batch", "dtype", "threads", "backend")
_NEEDS = {"experiments": ["training"], "device": "any"}
_JOB = ["node", "model", "batch"]
PHASES = ("forward", "backward", "update")


def steps_per_second(data: Data) -> Cells:
    """One over the median time of a step; the interval's ends swap places."""
    cells = data.summary("training")
    if not len(cells):
        return cells
    return Cells.from_estimates(cells.frame.assign(estimate=1 / cells.frame["estimate"]))


def samples_per_second(data: Data) -> Cells:
    steps = steps_per_second(data)
    return steps.scaled_by(steps.frame["batch"].astype(float)) if len(steps) else steps


@quantity(
    "training.rate",
    unit="samples/s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, training ({labels}) runs at {value}",
)
def training_rate(data: Data) -> Cells:
    """Samples per second: batch over the median time of one step."""
    return samples_per_second(data)


def baselines(rates: Cells) -> Cells:
    """CPU rates by baseline: core (one thread) and node (the most threads measured there)."""
    cpu = rates.only(device="cpu")
    if not len(cpu):
        return cpu
    most = cpu.frame.groupby("node")["threads"].transform("max")
    core = cpu.only(threads=1).label(baseline="core")
    node = cpu.at((cpu.frame["threads"] == most).to_numpy(bool)).label(baseline="node")
    return concat([core, node])


@quantity(
    "training.speedup",
    unit="1",
    needs={"experiments": ["training"], "device": "both"},
    labels=("model", "batch", "baseline", "precision", "dtype"),
    says="On {node}, the GPU trains {value} times as fast as its host's CPU ({labels})",
)
def speedup(data: Data) -> Cells:
    """Training rate of one GPU over that of its host, same model and batch.

    baseline: core or node. precision: equal (the same dtype on both sides) or
    best (each side's fastest dtype). The fastest library on each side.
    """
    rates = samples_per_second(data)
    if not len(rates):
        return rates
    gpu, cpu = rates.only(device="gpu"), baselines(rates)
    if not len(gpu) or not len(cpu):
        return Cells.empty()
    equal = gpu.best([*_JOB, "device", "dtype"]) / cpu.best([*_JOB, "baseline", "dtype"])
    best = gpu.best([*_JOB, "device"], of=["dtype"]) / cpu.best([*_JOB, "baseline"], of=["dtype"])
    return concat([equal.label(precision="equal"), best.label(precision="best")])


@quantity(
    "training.mfu",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, training ({labels}) uses {value} of the device's measured peak",
    ceiling=1.0,
)
def mfu(data: Data) -> Cells:
    """Model FLOP utilisation: the step's analytic FLOP over its time, over the measured peak.

    Peak: FMA rate of the same dtype and threads on a CPU; the best matrix product
    of that dtype on a GPU, where no kernel of ours reaches the matrix units.
    Source: Chowdhery et al. 2022 (PaLM), appendix B.
    """
    cells = data.summary("training", value="flop_per_s")
    if not len(cells):
        return cells
    parts = []
    cpu, gpu = cells.only(device="cpu"), cells.only(device="gpu")
    ceiling = gemm.peak(data, "fma")
    if len(cpu) and len(ceiling):
        parts.append(cpu / ceiling)
    products = gemm.rate(data)
    if len(gpu) and len(products):
        best = products.only(device="gpu", backend="best")
        if len(best):
            parts.append(gpu / best.by("node", "device", "dtype"))
    return concat(parts) if parts else Cells.empty()


@quantity(
    "training.split",
    unit="1",
    needs=_NEEDS,
    labels=(*_LABELS, "phase"),
    says="On {node}, {labels} takes {value} of a training step",
)
def split(data: Data) -> Cells:
    """Share of a step's median time in each phase: forward, backward, update.

    Phases and whole share their rounds; the interval takes them as independent
    and is therefore rather too wide.
    """
    whole = data.summary("training")
    parts = [data.summary("training", f"time.{phase}") for phase in PHASES]
    shares = [
        (part / whole).label(phase=phase) for part, phase in zip(parts, PHASES, strict=True) if len(part) and len(whole)
    ]
    return concat(shares) if shares else Cells.empty()


@quantity(
    "training.repeat_share",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the share of training steps that repeat the operators of the step before is {value} ({labels})",
)
def repeat_share(data: Data) -> Cells:
    """Share of consecutive steps with equal operator sequences; counted, so that equal rounds are exact."""
    return data.summary("training", "repeat_share")


@quantity(
    "training.matmul_flop_share",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, matrix products and convolutions are {value} of the operations of a step ({labels})",
)
def matmul_flop_share(data: Data) -> Cells:
    """Share of a step's FLOP in matrix products, convolutions and attention; counted."""
    return data.summary("training", "matmul_flop_share")


@quantity(
    "training.matmul_time_share",
    unit="1",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, matrix products and convolutions take {value} of the time of a step ({labels})",
)
def matmul_time_share(data: Data) -> Cells:
    """Share of a step's operator time in matrix products, convolutions and attention; timed by the profiler."""
    return data.summary("training", "matmul_time_share")
