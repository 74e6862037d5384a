"""Quantities of training steps of the study's models."""

from __future__ import annotations

from report.cells import Cells, concat
from report.evidence import Data
from report.formula import Formula
from report.machines import of_kind
from report.quantities import energy, gemm, quantity
from report.worked import Derived, join, quotient

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


def fleet(data: Data, rates: Cells) -> Cells:
    """Of every model, batch and format the fastest CPU with all its threads, of all nodes; `detail` is its node.

    None where CPUs of one node only were measured: that is the baseline `node`.
    """
    cpu = baselines(rates)
    whole = cpu.only(baseline="node") if len(cpu) else cpu
    if not len(whole) or whole.frame["node"].nunique() < 2:
        return Cells.empty()
    best = whole.label(of=[data.label(node) for node in whole.frame["node"]])
    return best.best(["model", "batch", "dtype"], of=["of"]).label(baseline="fleet")


SPEEDUP = Formula(
    "S = g / c",
    "1",
    {"g": ("training rate of the GPU", "samples/s"), "c": ("training rate of the CPU", "samples/s")},
)


@quantity(
    "training.speedup",
    unit="1",
    needs={"experiments": ["training"], "device": "both"},
    labels=("model", "batch", "baseline", "precision", "dtype"),
    says="On {node}, the GPU trains {value} times as fast as a CPU ({labels})",
    formulas=(SPEEDUP,),
)
def speedup(data: Data) -> Cells:
    """Training rate of one GPU over that of a CPU, same model and batch.

    baseline: core or node of the GPU's own host; or fleet: the fastest CPU of all nodes,
    with all its threads, which `detail` names; or server: that host where it has at least
    `machines.SERVER_CORES` cores, all of them. precision: equal (the same dtype on both
    sides) or best (each side's fastest dtype). The fastest library on each side.
    """
    rates = samples_per_second(data)
    if not len(rates):
        return rates
    gpu, cpu = rates.only(device="gpu"), baselines(rates)
    if not len(gpu) or not len(cpu):
        return Cells.empty()
    servers = cpu.only(baseline="node", node=of_kind(data, "server"))
    cpu = concat([cpu, servers.label(baseline="server")])
    by = [*_JOB, "device"]
    equal = quotient(SPEEDUP, gpu.best([*by, "dtype"]), cpu.best([*_JOB, "baseline", "dtype"]))
    best = quotient(SPEEDUP, gpu.best(by, of=["dtype"]), cpu.best([*_JOB, "baseline"], of=["dtype"]))
    found = [equal.label(precision="equal"), best.label(precision="best")]
    others = fleet(data, rates)
    if len(others):
        found.append(_against(gpu.best([*by, "dtype"]), others).label(precision="equal"))
        fastest = others.best(["model", "batch", "baseline"], of=["dtype"])
        named = others.frame.set_index(["model", "batch", "dtype"])["detail"]
        keys = fastest.frame[["model", "batch", "detail"]].itertuples(index=False, name=None)
        fastest = fastest.label(detail=[f"{named[key]} in {key[2]}" for key in keys])
        found.append(_against(gpu.best(by, of=["dtype"]), fastest).label(precision="best"))
    return join(found)


def _against(above: Cells, below: Cells) -> Derived:
    """The ratio; `detail` says what is below."""
    cells = quotient(SPEEDUP, above, below.label(against=below.frame["detail"]))
    return cells.label(detail="over " + cells.frame["against"].astype(str)).without("against") if len(cells) else cells


@quantity(
    "training.default_over_best",
    unit="1",
    needs={"experiments": ["training"], "device": "cpu"},
    labels=("model", "batch", "precision"),
    says="On {node}, training as PyTorch comes runs at {value} of the best that the same CPU does ({labels})",
)
def default_over_best(data: Data) -> Cells:
    """Rate of PyTorch as it comes (float32, all threads) over the best of the same CPU, same model and batch.

    The best is of all libraries and numbers of threads; precision: equal (in float32) or best
    (in any format); `detail` names it. Exactly 1 where nothing is faster than the default.
    """
    rates = samples_per_second(data)
    cpu = baselines(rates) if len(rates) else rates
    if not len(cpu):
        return cpu
    node = cpu.only(baseline="node", backend="torch", dtype="float32").by(*_JOB)
    cpu = rates.only(device="cpu")
    found = []
    for precision, cells in (("equal", cpu.only(dtype="float32")), ("best", cpu)):
        best = cells.best(_JOB, of=["backend", "dtype", "threads"])
        share = _against(node, best).frame
        itself = share["estimate"].astype(float) == 1.0
        share = share.assign(se=share["se"].mask(itself, 0.0), df=share["df"].mask(itself, float("inf")))
        if len(share):
            found.append(Cells.from_estimates(share).label(precision=precision))
    return concat(found) if found else Cells.empty()


@quantity(
    "training.energy_per_sample",
    unit="J",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, training takes {value} for a sample ({labels})",
)
def energy_per_sample(data: Data) -> Cells:
    """Energy of a training step over its batch; `detail` says how the energy is known (see `energy.METHODS`)."""
    cells = energy.joules(data, "training")
    return cells.scaled_by(1 / cells.frame["batch"].astype(float)) if len(cells) else cells


@quantity(
    "training.peak_memory_bytes",
    unit="B",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, training ({labels}) holds {value} of memory at its peak",
)
def peak_memory(data: Data) -> Cells:
    """Most bytes held during a step: weights, gradients, Adam's moments, the batch, and what is kept for backward.

    On a GPU as PyTorch's allocator counts; on a CPU resident memory (see `experiments.models.usage`).
    """
    return data.summary("training", "peak_memory")


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
