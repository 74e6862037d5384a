"""Quantities of energy: joules for a floating-point operation, a byte, and a training step.

Every timed point of at least half a second on a CPU, or 3 s on a GPU, has its energy counted. It is all that the
device used meanwhile, with what it draws when idle: of a GPU the whole board with its memory, of a CPU its
packages without the memory. `detail` says whether the device counted it or power was added up.
"""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import gemm, quantity, says
from report.quantities.comparing import BEST_LABELS, best_ratios

# Metric, and how the energy is known.
METHODS = {"energy": "counted by the device", "energy_from_power": "power times time"}


def joules(data: Dataset, experiment: str, per: str = "") -> Estimates:
    """Energy in J of one call of each point of an experiment, or of one of its FLOP or bytes.

    Power times time only for devices that have no counter.
    """
    counted, added = (data.summary(experiment, metric, per=per).label(detail=how) for metric, how in METHODS.items())
    devices = set(counted.rows("node", "device"))
    return concat([counted, added.at([device not in devices for device in added.rows("node", "device")])])


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


@quantity("energy.gpu_over_cpu", "1", experiments=["gemm"], device="both", labels=BEST_LABELS)
@says("On {node}, the GPU spends {value} times the CPU's energy on a floating-point operation ({labels})")
def gpu_over_cpu(data: Dataset) -> Estimates:
    """Joules per floating-point operation of a GPU over those of its host, each by the library and shape with least.

    precision: equal (the same dtype on both sides) or best (each side's dtype with least). runtime, cpu_runtime: the
    libraries of the GPU and of the CPU; `detail` says of both sides how the energy is known.
    """
    return _work_per_joule(per_flop(data)).inverse()


@quantity(
    "energy.training_ratio", "1", experiments=["training"], device="both", labels=("model", "batch", *BEST_LABELS)
)
@says("On {node}, the CPU spends {value} times the GPU's energy on a training step ({labels})")
def training_ratio(data: Dataset) -> Estimates:
    """Joules of a training step on the CPU over those on a GPU, each by the library and threads with least.

    What the host draws while its GPU works is in neither: the ratio is that of the two devices. precision, runtime,
    cpu_runtime, `detail`: as for `energy.gpu_over_cpu`.
    """
    return _work_per_joule(joules(data, "training"), "model", "batch")


def _work_per_joule(energies: Estimates, *by: str) -> Estimates:
    """Work for a joule of each GPU over that of its host's CPU, by precision."""
    work = energies.inverse().label(method=energies["detail"])
    gpu, cpu = work.only(device="gpu"), work.only(device="cpu").without("device")
    return concat(best_ratios(gpu, cpu, by, ["method"]))
