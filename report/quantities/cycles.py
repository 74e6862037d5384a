"""Quantities of one core by the clock cycle: what datasheets of processors and instructions state."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import gemm, quantity


@quantity(
    "clock.rate",
    "Hz",
    "On {node}, one busy core runs at {value}",
    needs={"experiments": ["clock"], "device": "cpu"},
)
def clock_rate(data: Dataset) -> Estimates:
    """Cycles per second of one busy core, by a chain of operations of one cycle each; the fastest chain.

    No counter is read: those of virtual machines show a nominal clock or none.
    """
    return data.summary("clock", metric="clock").only(device="cpu").best(["node", "device"])


@quantity(
    "peak.mac_per_cycle",
    "MAC/cycle",
    "On {node}, multiply-adds of vectors in registers ({labels}) retire at {value} per core",
    needs={"experiments": ["peak", "clock"], "device": "cpu"},
    labels=("dtype", "threads"),
)
def mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds per clock cycle and core by the widest vectors, from registers: rate / 2 / threads / clock.

    The clock is that of one busy core; with several at work it may be lower, and the quantity then counts too few.
    """
    return gemm.per_cycle_per_core(data, gemm.peak(data, "fma"))
