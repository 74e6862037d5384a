"""How much it matters which GPU one takes: training rates predicted from makers' ratings, of every rated GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from report.data.dataset import Dataset
from report.data.gpu_specs import GpuSpecs, gpu_specs
from report.derivations import Formula, Input, assumed, documented
from report.derived_estimates import DerivedEstimates, Work, derive
from report.formatting import several
from report.quantities import quantity
from report.quantities.several_devices import BATCH, by_model, needed_bytes

# Seconds that a kernel takes to begin on any GPU, however fast; and kernels of a step for each operator of a forward
# pass: one forward, about two backward.
LAUNCH_S, LAUNCHES = 3e-6, 3.0
# Adam reads the weight and two moments of each parameter and writes them, in float32 whatever the products are in.
STATE_TRAFFIC = 6 * 4
_LABELS = ("model", "parameters")
_NEEDED = ("bf16_flops", "memory_bytes_per_s", "memory_bytes")

_STEP = {
    "F": ("operations of a step", "FLOP"),
    "M": ("bytes that a step moves", "B"),
    "k": ("kernels of a step", "1"),
    "l": ("time that a kernel takes to begin", "s"),
}
_RATED = {
    "arithmetic": ("F / P{side}", "P{side}", "bf16_flops", "rated arithmetic in bfloat16", "FLOP/s"),
    "memory": ("M / W{side}", "W{side}", "memory_bytes_per_s", "rated bandwidth of memory", "B/s"),
}
_SIDES = {"1": "of the slowest GPU", "2": "of the fastest one"}


def _spread(slow: str, fast: str) -> Formula:
    """Time on the slowest over that on the fastest, each limited by arithmetic or by memory."""
    terms, symbols = [], dict(_STEP)
    for side, limit in (("1", slow), ("2", fast)):
        term, symbol, _, means, unit = _RATED[limit]
        terms.append(f"({term.format(side=side)} + k * l)")
        symbols[symbol.format(side=side)] = (f"{means} {_SIDES[side]}", unit)
    used = {name for name in ("F", "M") if any(f"{name} /" in term for term in terms)}
    return Formula(
        f"S = {terms[0]} / {terms[1]}", "1", {n: s for n, s in symbols.items() if n not in {"F", "M"} - used}
    )


SPREAD = {(slow, fast): _spread(slow, fast) for slow in _RATED for fast in _RATED}
# A GPU that cannot hold the model never trains it: beyond every threshold.
CANNOT = Formula("S = h", "1", {"h": ("without end, for a GPU cannot hold the model", "1")})


@dataclass(frozen=True)
class Step:
    """A training step: its operations, the bytes it moves, its kernels, and the memory that it needs."""

    model: str
    parameters: float
    flop: float
    moved: float
    kernels: float
    memory: float

    def seconds(self, chip: GpuSpecs, launch: float = LAUNCH_S) -> tuple[float, str]:
        """Time on a GPU by the roofline and its kernels' beginnings, and which ceiling limits it.

        Source: Williams, Waterman & Patterson 2009, "Roofline", Communications of the ACM 52(4):65.
        """
        arithmetic = self.flop / chip.figures["bf16_flops"]
        memory = self.moved / chip.figures["memory_bytes_per_s"]
        limit = "arithmetic" if arithmetic >= memory else "memory"
        return max(arithmetic, memory) + self.kernels * launch, limit


def rated(data: Dataset) -> list[GpuSpecs]:
    """GPUs whose arithmetic, bandwidth and memory are all verified."""
    return [chip for chip in gpu_specs(data.reference) if all(name in chip.figures for name in _NEEDED)]


def steps(data: Dataset) -> list[Step]:
    """A step of every model of the study at the same batch, from what is counted of them.

    Bytes: what Adam reads and writes of each parameter, and what samples keep for the backward pass, in bfloat16,
    written once and read once.
    """
    metrics = ("step_flop", "parameters", "activation_bytes", "levels")
    flop, parameters, kept, levels = (by_model(data, metric) for metric in metrics)
    names = set(flop) & set(parameters) & set(kept) & set(levels)
    return [
        Step(
            name,
            parameters[name],
            flop[name] * BATCH,
            STATE_TRAFFIC * parameters[name] + kept[name] * BATCH,
            LAUNCHES * levels[name],
            needed_bytes(parameters[name], kept[name], BATCH),
        )
        for name in sorted(names, key=lambda name: (parameters[name], name))
    ]


@quantity(
    "roofline.spread_over_gpus", "1", _LABELS, tier="derived", formulas=(*SPREAD.values(), CANNOT), reads=("models",)
)
def spread_over_gpus(data: Dataset) -> DerivedEstimates:
    """Predicted time of a training step on the slowest GPU over that on the fastest, of all with verified ratings.

    A step of each of the study's models at a batch of 32 in bfloat16: the greater of operations over rated arithmetic
    and bytes over rated bandwidth, and for every kernel the time that it takes to begin, which is the same on all. A
    model that some GPU cannot hold, by `training.memory_model_error`'s model, is trained infinitely many times as fast
    on the others. Every rating is taken as reached; what GPUs do reach differs less than their ratings do.
    """
    known = rated(data)
    if len(known) < 2:
        return derive([])
    works = []
    for step in steps(data):
        labels: dict[str, Any] = {"model": step.model, "parameters": step.parameters}
        small = [chip.name for chip in known if chip.figures["memory_bytes"] < step.memory]
        if small:
            what = f"{several(small)} cannot hold it"
            works.append(Work(labels, CANNOT, {"h": assumed(math.inf, "1", what)}, what))
            continue
        by_time = sorted(known, key=lambda chip: step.seconds(chip)[0])
        fast, slow = by_time[0], by_time[-1]
        works.append(_work(labels, step, slow, fast, data))
    return derive(works)


def _work(labels: dict[str, Any], step: Step, slow: GpuSpecs, fast: GpuSpecs, data: Dataset) -> Work:
    limits = (step.seconds(slow)[1], step.seconds(fast)[1])
    formula = SPREAD[limits]
    counted = "counted by this study"
    inputs = {
        "F": Input(step.flop, "FLOP", "measured", counted, what=f"Step of {step.model}, batch {BATCH}"),
        "M": Input(step.moved, "B", "measured", counted, what="Adam's state and what samples keep"),
        "k": Input(step.kernels, "1", "measured", counted, what="Operators in the longest chain, forward and backward"),
        "l": assumed(LAUNCH_S, "s", "no GPU has told it; with whole steps captured as graphs it is less", 0.0, 1e-5),
    }
    for side, chip, limit in (("1", slow, limits[0]), ("2", fast, limits[1])):
        _, symbol, figure, _, _ = _RATED[limit]
        inputs[symbol.format(side=side)] = documented(data, f"{chip.id}.{figure}")
    told = f"{slow.name} and {fast.name}, limited by {' and '.join(dict.fromkeys(limits))}"
    return Work(labels, formula, {name: inputs[name] for name in formula.symbols}, told)
