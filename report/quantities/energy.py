"""Quantities of energy: joules for a floating-point operation, a byte, and a training step.

Every timed point of at least half a second on a CPU, or 3 s on a GPU, has its energy counted. It is all that the
device used meanwhile, with what it draws when idle: of a GPU the whole board with its memory, of a CPU its
packages without the memory. `detail` says whether the device counted it or power was added up.
"""

from __future__ import annotations

from collections.abc import Sequence

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import gemm, quantity, says
from report.quantities.memory import CACHE_MULTIPLE, last_level_cache

# Metric, and how the energy is known.
METHODS = {"energy": "counted by the device", "energy_from_power": "power times time"}


def joules(data: Dataset, experiment: str, per: str = "") -> Estimates:
    """Energy in J of one call of each point of an experiment, or of one of its FLOP or bytes.

    Power times time only for devices that have no counter.
    """
    counted, added = (data.summary(experiment, metric, per=per).label(detail=how) for metric, how in METHODS.items())
    devices = set(counted.rows("node", "device"))
    return concat([counted, added.at([device not in devices for device in added.rows("node", "device")])])


def least(energies: Estimates, by: Sequence[str]) -> Estimates:
    """The row of each group that takes least; among near ties the choice biases the estimate downward a little."""
    groups = energies.numbers("estimate").groupby([energies[name] for name in by], dropna=False)
    return energies.at(sorted(groups.idxmin()))


@quantity(
    "energy.per_flop",
    "J/FLOP",
    experiments=["gemm"],
    labels=("experiment", "load", "shape", "dtype", "backend", "threads"),
)
@says("On {node}, a floating-point operation of a matrix product takes {value} ({labels})")
def per_flop(data: Dataset) -> Estimates:
    """Joules over floating-point operations of matrix products: those of `gemm`, and those under sustained load."""
    short = gemm.shaped(joules(data, "gemm", "flop")).label(experiment="gemm").without("m", "n", "k")
    long = joules(data, "sustained", "flop")
    shapes = [f"{extent}x{extent}x{extent}" for extent in long["extent"]]
    return concat([short, long.label(shape=shapes, experiment="sustained").without("extent")])


@quantity(
    "energy.per_byte",
    "J/B",
    experiments=["bandwidth"],
    labels=("experiment", "op", "footprint", "dtype", "backend", "threads"),
)
@says("On {node}, a byte moved to or from memory takes {value} ({labels})")
def per_byte(data: Dataset) -> Estimates:
    """Joules over bytes as STREAM counts them, at footprints of at least four times the last-level cache.

    Those of `bandwidth`, and those of its triad under sustained load.
    """
    short, long = joules(data, "bandwidth", "bytes"), joules(data, "sustained", "bytes").only(load="triad")
    long = long.label(op="triad", footprint=long["extent"], experiment="sustained").without("load", "extent")
    passes = concat([short.label(experiment="bandwidth"), long])
    places = passes.rows("node", "device", "footprint")
    return passes.at([footprint >= CACHE_MULTIPLE * last_level_cache(data, *place) for *place, footprint in places])


@quantity("energy.idle_power", "W", experiments=["sustained"])
@says("On {node}, the device draws {value} with nothing to do")
def idle_power(data: Dataset) -> Estimates:
    """Median power of a device that is held open and does nothing, a second or two after work."""
    idle = data.readings("sustained", "power_w").only(load="idle")
    return idle.without("load", "extent", "dtype", "backend", "threads")  # of nothing that is done


@quantity("energy.gpu_over_cpu", "1", experiments=["gemm"], device="both", labels=("dtype",))
@says("On {node}, the GPU spends {value} times the CPU's energy on a floating-point operation ({labels})")
def gpu_over_cpu(data: Dataset) -> Estimates:
    """Joules per floating-point operation of a GPU over those of its host, each by the library and shape with least."""
    return _over(least(per_flop(data), ["node", "device", "dtype"]), "gpu", "cpu", "dtype")


@quantity("energy.training_ratio", "1", experiments=["training"], device="both", labels=("model", "batch"))
@says("On {node}, the CPU spends {value} times the GPU's energy on a training step ({labels})")
def training_ratio(data: Dataset) -> Estimates:
    """Joules of a training step on the CPU over those on a GPU, each by the library, format and threads with least.

    What the host draws while its GPU works is in neither: the ratio is that of the two devices.
    """
    energies = least(joules(data, "training"), ["node", "device", "model", "batch"])
    return _over(energies, "cpu", "gpu", "model", "batch")


def _over(energies: Estimates, above: str, below: str, *labels: str) -> Estimates:
    """Of one kind of device over those of another; the label `device` is the GPU's, `detail` has both methods."""
    cpu, gpu = energies.only(device="cpu"), energies.only(device="gpu")
    methods = [f"{kind}: {', '.join(sorted(set(side['detail'])))}" for kind, side in (("CPU", cpu), ("GPU", gpu))]
    sides = {"cpu": cpu.by("node", *labels), "gpu": gpu.by("node", "device", *labels)}
    return (sides[above] / sides[below]).label(detail="; ".join(methods))
