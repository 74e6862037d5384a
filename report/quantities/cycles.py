"""Quantities of one core by the clock cycle: what datasheets of processors and instructions state."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import gemm, quantity


@quantity(
    "clock.rate",
    unit="Hz",
    needs={"experiments": ["clock"], "device": "cpu"},
    says="On {node}, one busy core runs at {value}",
)
def clock_rate(data: Dataset) -> Estimates:
    """Cycles per second of one busy core, by a chain of operations of one cycle each; the fastest chain.

    No counter is read: those of virtual machines show a nominal clock or none.
    """
    cells = data.summary("clock", metric="clock")
    return cells.only(device="cpu").best(["node", "device"]) if len(cells) else cells


@quantity(
    "peak.mac_per_cycle",
    unit="MAC/cycle",
    needs={"experiments": ["peak", "clock"], "device": "cpu"},
    labels=("dtype", "threads"),
    says="On {node}, multiply-adds of vectors in registers ({labels}) retire at {value} per core",
)
def mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds per clock cycle and core by the widest vectors, from registers: rate / 2 / threads / clock.

    The clock is that of one busy core; with several at work it may be lower, and the quantity then counts too few.
    """
    rates, clocks = gemm.peak(data, "fma"), gemm.clock(data)
    if not len(rates) or not len(clocks):
        return Estimates.empty()
    return rates.scaled_by(1 / rates.frame["threads"].astype(float)) / 2 / clocks
