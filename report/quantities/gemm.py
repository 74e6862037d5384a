"""Quantities of dense matrix products, and of the peak they are held against."""

from __future__ import annotations

from report.cells import Cells, concat
from report.evidence import Data
from report.quantities import quantity

_LABELS = ("dtype", "threads", "backend", "shape", "m", "n", "k")
_POINT = ["node", "device", "dtype", "threads"]


def with_best(cells: Cells) -> Cells:
    """Cells per shape and library, and beside them the best shape of each library and the best of all.

    An aggregate bears the label `best`, which a scope has to ask for.
    """
    if not len(cells):
        return cells
    shape = [f"{m}x{n}x{k}" for m, n, k in cells.frame[["m", "n", "k"]].itertuples(index=False)]
    cells = cells.label(shape=shape)
    per_library = cells.best([*_POINT, "backend"], of=["backend", "shape"]).label(shape="best")
    of_all = cells.best(_POINT, of=["backend", "shape"]).label(backend="best", shape="best")
    return concat([cells, per_library, of_all])


def rate(data: Data) -> Cells:
    """Product rates in FLOP/s (2*m*n*k over the time of one product), with the best of each point."""
    return with_best(data.summary("gemm", value="flop_per_s"))


def clock(data: Data) -> Cells:
    """Cycles per second of one core by node: the fastest chain, for slower ones were disturbed or throttled."""
    cells = data.summary("clock", metric="clock")
    return cells.only(device="cpu").best(["node"]) if len(cells) else cells


def peak(data: Data, kernel: str) -> Cells:
    """Peak FMA rate in FLOP/s by node, device, dtype and threads, measured by the project's own kernel."""
    cells = data.summary("peak", value="flop_per_s")
    return cells.only(kernel=kernel).best(_POINT) if len(cells) else cells


@quantity(
    "gemm.rate",
    unit="FLOP/s",
    needs={"experiments": ["gemm"], "device": "any"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) runs at {value}",
)
def gemm_rate(data: Data) -> Cells:
    """Rate of a matrix product. Source: 2*m*n*k FLOP over the median time."""
    return rate(data)


@quantity(
    "gemm.mac_per_cycle_per_core",
    unit="MAC/cycle",
    needs={"experiments": ["gemm", "clock"], "device": "cpu"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) retires {value} per core",
)
def mac_per_cycle_per_core(data: Data) -> Cells:
    """Multiply-adds retired per clock cycle and core: rate / 2 / threads / clock.

    The clock is that of one busy core; with all cores busy it may be lower, and
    the quantity then counts too few. Needs gemm on the CPU and clock on the same node.
    """
    rates, clocks = rate(data), clock(data)
    if not len(rates) or not len(clocks):
        return Cells.empty()
    rates = rates.only(device="cpu")
    per_core = rates.scaled_by(1 / rates.frame["threads"].astype(float))
    return per_core / 2 / clocks


@quantity(
    "gemm.mac_per_cycle",
    unit="MAC/cycle",
    needs={"experiments": ["gemm", "clock"], "device": "any"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) retires {value} on the whole device",
)
def mac_per_cycle(data: Data) -> Cells:
    """Multiply-adds retired per clock cycle by all cores at work together: rate / 2 / clock of that device."""
    rates, clocks = rate(data), data.summary("clock", metric="clock")
    if not len(rates) or not len(clocks):
        return Cells.empty()
    return rates / 2 / clocks.best(["node", "device"])


@quantity(
    "gemm.peak_share",
    unit="1",
    needs={"experiments": ["gemm", "peak"], "device": "cpu"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) reaches {value} of the measured peak of its multiply-add units",
    ceiling=1.0,
)
def peak_share(data: Data) -> Cells:
    """Product rate over the measured peak FMA rate of the same node, dtype and threads."""
    rates, ceiling = rate(data), peak(data, "fma")
    return rates / ceiling if len(rates) and len(ceiling) else Cells.empty()


@quantity(
    "peak.scalar_mac_per_cycle",
    unit="MAC/cycle",
    needs={"experiments": ["peak", "clock"], "device": "cpu"},
    labels=("dtype", "threads"),
    says="On {node}, plain scalar code without vector instructions ({labels}) retires {value} on one core",
)
def scalar_mac_per_cycle(data: Data) -> Cells:
    """Multiply-adds per cycle of one core by scalar instructions alone: what no vector unit helps."""
    rates, clocks = peak(data, "scalar_fma"), clock(data)
    if not len(rates) or not len(clocks):
        return Cells.empty()
    return rates.only(threads=1) / 2 / clocks
