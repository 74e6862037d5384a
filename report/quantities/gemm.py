"""Quantities of dense matrix products, and of the peak they are held against."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from report.data.dataset import SETTLED, Dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat, device_kind
from report.quantities import quantity

_LABELS = ("dtype", "threads", "backend", "shape", "m", "n", "k")
_POINT = ["node", "device", "dtype", "threads"]
# What a library is called by how it was measured: called by the host, or captured in a graph, without the host.
METRICS = {"time": "{}", "graph_time": "{} graph"}
# What tells one search from another.
_SEARCH = ["node", "device", "backend", "dtype", "m", "n", "k", "span"]


def with_best(cells: Estimates) -> Estimates:
    """Cells per shape and library, and beside them the best shape of each library and the best of all.

    An aggregate bears the label `best`, which a scope has to ask for.
    """
    cells = _shaped(cells)
    per_library = cells.best([*_POINT, "backend"], of=["backend", "shape"]).label(shape="best")
    of_all = cells.best(_POINT, of=["backend", "shape"]).label(backend="best", shape="best")
    return concat([cells, per_library, of_all])


def rate(data: Dataset) -> Estimates:
    """Product rates in FLOP/s (2*m*n*k over the time of one product), with the best of each point.

    A product in a graph has a cell of its own, under its library's name and `graph`; the
    best is the best of both. Shapes that were searched for (`gemm-search`) are not among them:
    the best of a declared list of shapes can be compared between formats and devices.
    """
    return with_best(each_rate(data, "gemm"))


def each_rate(data: Dataset, experiment: str) -> Estimates:
    """FLOP/s of every point of an experiment, called one by one and, where that was measured, in a graph."""
    return _each([data.summary(experiment, metric, "flop_per_s") for metric in METRICS])


def _each(found: Sequence[Estimates]) -> Estimates:
    """Cells by metric, in the order of METRICS, with the library's name as it is there."""
    named = zip(found, METRICS.values(), strict=True)
    return concat([cells.label(backend=[name.format(one) for one in cells["backend"]]) for cells, name in named])


def clock(data: Dataset) -> Estimates:
    """Cycles per second of one core by node: the fastest chain, for slower ones were disturbed or throttled."""
    return data.summary("clock", metric="clock").only(device="cpu").best(["node"])


def peak(data: Dataset, kernel: str) -> Estimates:
    """Peak FMA rate in FLOP/s by node, device, dtype and threads, measured by the project's own kernel."""
    return data.summary("peak", value="flop_per_s").only(kernel=kernel).best(_POINT)


@quantity(
    "gemm.rate",
    unit="FLOP/s",
    needs={"experiments": ["gemm"], "device": "any"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) runs at {value}",
)
def gemm_rate(data: Dataset) -> Estimates:
    """Rate of a matrix product. Source: 2*m*n*k FLOP over the median time."""
    return rate(data)


@quantity(
    "gemm.mac_per_cycle_per_core",
    unit="MAC/cycle",
    needs={"experiments": ["gemm", "clock"], "device": "cpu"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) retires {value} per core",
)
def mac_per_cycle_per_core(data: Dataset) -> Estimates:
    """Multiply-adds retired per clock cycle and core: rate / 2 / threads / clock.

    The clock is that of one busy core; with all cores busy it may be lower, and
    the quantity then counts too few. Needs gemm on the CPU and clock on the same node.
    """
    rates = rate(data).only(device="cpu")
    return rates.scaled_by(1 / rates.numbers("threads")) / 2 / clock(data)


@quantity(
    "gemm.mac_per_cycle",
    unit="MAC/cycle",
    needs={"experiments": ["gemm"], "device": "any"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) retires {value} on the whole device",
)
def mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds retired per clock cycle by all of a device's cores at work together.

    On a CPU rate / 2 / clock, the clock as measured on the same node. On a GPU
    m*n*k / (time * clock) sample by sample, the clock as its counter showed it beside the
    sample: what lowers the clock in a round lowers the rate with it, and not their ratio.
    """
    on_gpus = with_best(_each([_by_counter(data, metric) for metric in METRICS]))
    clocks = data.summary("clock", metric="clock").best(["node", "device"])
    return concat([on_gpus, rate(data).only(device="cpu") / 2 / clocks])


def _by_counter(data: Dataset, metric: str) -> Estimates:
    """Multiply-adds per cycle of products on GPUs; the later half of each round's samples, when the load was on."""
    samples = data.samples("gemm")
    read = samples[
        (samples["experiment"] == "gemm")
        & (samples["metric"] == metric)
        & (samples["status"] == "ok")
        & (samples["device"].map(device_kind) == "gpu")
        & (samples["clock_mhz"] > 0)
    ]
    read = read[read.groupby([*POINT, "round"])["elapsed_s"].rank(pct=True) > SETTLED]
    counted = read["flop"] / 2 / (read["value"] * read["clock_mhz"] * 1e6)
    return data.of_samples(read.assign(value=counted, unit="MAC/cycle"))


@quantity(
    "gemm.graph_gain",
    unit="1",
    needs={"experiments": ["gemm"], "device": "gpu"},
    labels=("dtype", "backend", "shape", "m", "n", "k"),
    says="On {node}, a matrix product ({labels}) takes {value} times as long when the host starts each as in a graph",
)
def graph_gain(data: Dataset) -> Estimates:
    """Time of a product that the host starts, one after the other, over its time in a captured graph.

    What is above 1 is the host's: PyTorch's own work and the launch of the kernel. Measured
    where a product takes less than 50 microseconds.
    """
    return _shaped(data.summary("gemm") / data.summary("gemm", "graph_time"))


@quantity(
    "gemm.batched_rate",
    unit="FLOP/s",
    needs={"experiments": ["batched"], "device": "any"},
    labels=("dtype", "threads", "backend", "shape", "batch", "m", "n", "k"),
    says="On {node}, a batch of matrix products ({labels}) runs at {value}",
)
def batched_rate(data: Dataset) -> Estimates:
    """Rate of batch*2*m*n*k FLOP in one call, and in a graph."""
    return _shaped(each_rate(data, "batched"))


@quantity(
    "gemm.achievable_rate",
    unit="FLOP/s",
    needs={"experiments": ["gemm-search"], "device": "gpu"},
    labels=("dtype", "backend", "m", "n", "k", "span"),
    says="On {node}, the fastest matrix product that a search found ({labels}) runs at {value}",
)
def achievable_rate(data: Dataset) -> Estimates:
    """Rate of the product whose shape a search around (m, n, k) found, anew in every round; `detail` names it.

    The samples are others than those by which the shape was chosen.
    """
    rates, ended = data.summary("gemm-search", "rate"), _found(data)
    return rates.label(detail=[" or ".join(ended[place]) for place in rates.rows(*_SEARCH)])


def _found(data: Dataset) -> dict[tuple[Any, ...], list[str]]:
    """The shapes that the rounds of each search ended at."""
    samples = data.samples("gemm-search")
    sides = {f"best_{name}": name for name in ("m", "n", "k")}
    read = samples[
        (samples["experiment"] == "gemm-search") & samples["metric"].isin(sides) & (samples["status"] == "ok")
    ]
    found: dict[tuple[Any, ...], set[str]] = {}
    place = [name for name in POINT if name != "params"]
    for (params, *_), part in read.groupby(["params", *place, "round"]):
        labels = {**part.iloc[0][place].to_dict(), **json.loads(str(params))}
        size = dict(zip(part["metric"].map(sides), part["value"], strict=True))
        shape = "x".join(f"{size[name]:.0f}" for name in ("m", "n", "k"))
        found.setdefault(tuple(labels[name] for name in _SEARCH), set()).add(shape)
    return {key: sorted(shapes) for key, shapes in found.items()}


def _shaped(cells: Estimates) -> Estimates:
    """The cells with their m, n and k as one label."""
    return cells.label(shape=[f"{m}x{n}x{k}" for m, n, k in cells.rows("m", "n", "k")])


@quantity(
    "gemm.peak_share",
    unit="1",
    needs={"experiments": ["gemm", "peak"], "device": "cpu"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) reaches {value} of the measured peak of its multiply-add units",
    ceiling=1.0,
)
def peak_share(data: Dataset) -> Estimates:
    """Product rate over the measured peak FMA rate of the same node, dtype and threads."""
    return rate(data).only(device="cpu") / peak(data, "fma")


@quantity(
    "peak.scalar_mac_per_cycle",
    unit="MAC/cycle",
    needs={"experiments": ["peak", "clock"], "device": "cpu"},
    labels=("dtype", "threads"),
    says="On {node}, plain scalar code without vector instructions ({labels}) retires {value} on one core",
)
def scalar_mac_per_cycle(data: Dataset) -> Estimates:
    """Multiply-adds per cycle of one core by scalar instructions alone: what no vector unit helps."""
    return peak(data, "scalar_fma").only(threads=1) / 2 / clock(data)
