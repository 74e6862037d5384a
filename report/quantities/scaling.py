"""How work spreads over the cores of a CPU: the gain with more threads, per thread."""

from __future__ import annotations

from report.cells import Cells
from report.evidence import Data
from report.quantities import gemm, memory, quantity, training


def efficiency(rates: Cells) -> Cells:
    """Rate with several threads over (threads x rate with one); a node that measured one thread only has no cell."""
    if not len(rates):
        return rates
    rates = rates.only(device="cpu")
    many = rates.frame["threads"] > 1
    one = rates.only(threads=1).without("threads")
    shared = rates.at(many.to_numpy(bool))
    if not len(one) or not len(shared):
        return Cells.empty()
    return shared.scaled_by(1 / shared.frame["threads"].astype(float)) / one


@quantity(
    "gemm.scaling_efficiency",
    unit="1",
    needs={"experiments": ["gemm"], "device": "cpu"},
    labels=("dtype", "threads", "backend", "shape", "m", "n", "k"),
    says="On {node}, matrix products ({labels}) reach {value} of their one-core rate on each core",
)
def gemm_efficiency(data: Data) -> Cells:
    """Rate with many threads over (threads x rate with one), same dtype and library.

    For `best` the best shape and library of either side.
    """
    return efficiency(gemm.rate(data))


@quantity(
    "bandwidth.scaling_efficiency",
    unit="1",
    needs={"experiments": ["bandwidth"], "device": "cpu"},
    labels=("op", "dtype", "threads", "backend", "footprint"),
    says="On {node}, each core moves {value} of what one core alone does ({labels})",
)
def bandwidth_efficiency(data: Data) -> Cells:
    """Bytes per second from main memory with many threads over (threads x those with one)."""
    return efficiency(memory.bandwidth_rate(data))


@quantity(
    "training.scaling_efficiency",
    unit="1",
    needs={"experiments": ["training"], "device": "cpu"},
    labels=("model", "batch", "dtype", "threads", "backend"),
    says="On {node}, training ({labels}) reaches {value} of its one-core rate on each core",
)
def training_efficiency(data: Data) -> Cells:
    """Samples per second with many threads over (threads x those with one), same model, batch, dtype and library."""
    return efficiency(training.samples_per_second(data))
