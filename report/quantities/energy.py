"""Quantities of energy: joules for a floating-point operation, a byte, and a training step.

Every timed point of at least half a second has its energy counted. It is all that the device used
meanwhile, with what it draws when idle: of a GPU the whole board with its memory, of a CPU its
packages without the memory. `detail` says whether the device counted it or power was added up.
"""

from __future__ import annotations

from collections.abc import Sequence

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity
from report.quantities.memory import CACHE_MULTIPLE, last_level_cache

# Mean nothing where nothing is done.
_IDLE = ("load", "extent", "dtype", "backend", "threads")
# Metric, and how the energy is known.
METHODS = {"energy": "counted by the device", "energy_from_power": "power times time"}


def joules(data: Dataset, experiment: str, per: str = "") -> Estimates:
    """Energy in J of one call of each point of an experiment, or of one of its FLOP or bytes.

    Power times time only for devices that have no counter.
    """
    counted, added = (data.summary(experiment, metric, per=per).label(detail=how) for metric, how in METHODS.items())
    if len(counted) and len(added):
        devices = set(zip(counted.frame["node"], counted.frame["device"], strict=True))
        places = zip(added.frame["node"], added.frame["device"], strict=True)
        added = added.at([i for i, place in enumerate(places) if place not in devices])
    return concat([counted, added])


def least(cells: Estimates, by: Sequence[str]) -> Estimates:
    """The cell of each group that takes least; among near ties the choice biases the estimate downward a little."""
    if not len(cells):
        return cells
    order = cells.frame.sort_values("estimate", kind="stable")
    return cells.at(sorted(order.groupby(list(by), dropna=False).head(1).index))


@quantity(
    "energy.per_flop",
    unit="J/FLOP",
    needs={"experiments": ["gemm"], "device": "any"},
    labels=("experiment", "load", "shape", "dtype", "backend", "threads"),
    says="On {node}, a floating-point operation of a matrix product takes {value} ({labels})",
)
def per_flop(data: Dataset) -> Estimates:
    """Joules over floating-point operations of matrix products: those of `gemm`, and those under sustained load."""
    short, long = joules(data, "gemm", "flop"), joules(data, "sustained", "flop")
    if len(short):
        shape = [f"{m}x{n}x{k}" for m, n, k in short.frame[["m", "n", "k"]].itertuples(index=False)]
        short = short.label(shape=shape, experiment="gemm").without("m", "n", "k")
    if len(long):
        shape = ["x".join([str(extent)] * 3) for extent in long.frame["extent"]]
        long = long.label(shape=shape, experiment="sustained").without("extent")
    return concat([short, long])


@quantity(
    "energy.per_byte",
    unit="J/B",
    needs={"experiments": ["bandwidth"], "device": "any"},
    labels=("experiment", "op", "footprint", "dtype", "backend", "threads"),
    says="On {node}, a byte moved to or from memory takes {value} ({labels})",
)
def per_byte(data: Dataset) -> Estimates:
    """Joules over bytes as STREAM counts them, at footprints of at least four times the last-level cache.

    Those of `bandwidth`, and those of its triad under sustained load.
    """
    short, long = joules(data, "bandwidth", "bytes"), joules(data, "sustained", "bytes")
    if len(long):
        long = long.only(load="triad")
        long = long.label(op="triad", footprint=long.frame["extent"], experiment="sustained").without("load", "extent")
    cells = concat([short.label(experiment="bandwidth"), long])
    if not len(cells):
        return cells
    places = zip(cells.frame["node"], cells.frame["device"], cells.frame["footprint"], strict=True)
    return cells.at([i for i, (n, d, f) in enumerate(places) if f >= CACHE_MULTIPLE * last_level_cache(data, n, d)])


@quantity(
    "energy.idle_power",
    unit="W",
    needs={"experiments": ["sustained"], "device": "any"},
    says="On {node}, the device draws {value} with nothing to do",
)
def idle_power(data: Dataset) -> Estimates:
    """Median power of a device that is held open and does nothing, a second or two after work."""
    cells = data.readings("sustained", "power_w")
    return cells.only(load="idle").without(*_IDLE) if len(cells) else cells


@quantity(
    "energy.gpu_over_cpu",
    unit="1",
    needs={"experiments": ["gemm"], "device": "both"},
    labels=("dtype",),
    says="On {node}, the GPU spends {value} times the CPU's energy on a floating-point operation ({labels})",
)
def gpu_over_cpu(data: Dataset) -> Estimates:
    """Joules per floating-point operation of a GPU over those of its host, each by the library and shape with least."""
    cells = least(per_flop(data), ["node", "device", "dtype"])
    return _over(cells, "gpu", "cpu", "dtype")


@quantity(
    "energy.training_ratio",
    unit="1",
    needs={"experiments": ["training"], "device": "both"},
    labels=("model", "batch"),
    says="On {node}, the CPU spends {value} times the GPU's energy on a training step ({labels})",
)
def training_ratio(data: Dataset) -> Estimates:
    """Joules of a training step on the CPU over those on a GPU, each by the library, format and threads with least.

    What the host draws while its GPU works is in neither: the ratio is that of the two devices.
    """
    cells = least(joules(data, "training"), ["node", "device", "model", "batch"])
    return _over(cells, "cpu", "gpu", "model", "batch")


def _over(cells: Estimates, above: str, below: str, *labels: str) -> Estimates:
    """Cells of one kind of device over those of another; the label `device` is the GPU's, `detail` has both methods."""
    if not len(cells):
        return cells
    sides = {kind: cells.only(device=kind) for kind in ("cpu", "gpu")}
    if not all(map(len, sides.values())):
        return Estimates.empty()
    how = "; ".join(f"{kind.upper()}: {', '.join(sorted(set(side.frame['detail'])))}" for kind, side in sides.items())
    sides = {"cpu": sides["cpu"].by("node", *labels), "gpu": sides["gpu"].by("node", "device", *labels)}
    return (sides[above] / sides[below]).label(detail=how)
