"""Quantities of energy: joules of a training step.

Every timed point of at least half a second on a CPU, or 3 s on a GPU, has its energy counted. It is all that the
device used meanwhile, with what it draws when idle: of a GPU the whole board with its memory, of a CPU its
packages without the memory. `detail` says whether the device counted it or power was added up.
"""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity, says
from report.quantities.comparing import BEST_LABELS, best_ratios

# Metric, and how the energy is known.
METHODS = {"energy": "counted by the device", "energy_from_power": "power times time"}


def joules(data: Dataset, experiment: str) -> Estimates:
    """Energy in J of one call of each point; power times time only for devices that have no counter."""
    counted, added = (data.summary(experiment, metric).label(detail=how) for metric, how in METHODS.items())
    devices = set(counted.rows("node", "device"))
    return concat([counted, added.at([device not in devices for device in added.rows("node", "device")])])


@quantity(
    "energy.training_ratio", "1", experiments=["training"], device="both", labels=("model", "batch", *BEST_LABELS)
)
@says("On {node}, the CPU spends {value} times the GPU's energy on a training step ({labels})")
def training_ratio(data: Dataset) -> Estimates:
    """Joules of a training step on the CPU over those on a GPU, each by the library and threads with least.

    What the host draws while its GPU works is in neither: the ratio is that of the two devices. precision: equal (the
    same dtype on both sides) or best (each side's dtype with least). runtime, cpu_runtime: the libraries of the GPU and
    of the CPU; `detail` says of both sides how the energy is known.
    """
    energies = joules(data, "training")
    work = energies.inverse().label(method=energies["detail"])
    gpu, cpu = work.only(device="gpu"), work.only(device="cpu").without("device")
    return concat(best_ratios(gpu, cpu, ["model", "batch"], ["method"]))
