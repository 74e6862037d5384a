"""What work costs by the hour of hired machines, and what cards give for their price: dated prices, one file.

All prices are inputs of data/reference/prices.yaml, which a reader may replace; each cell's `detail` names the
machines, the place and the date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset, MissingSourceError
from report.derivations import Formula, Input, assumed, computed, documented, measured, verified
from report.derived_estimates import DerivedEstimates, Work, derive, worked
from report.estimates import Estimates
from report.formatting import count, exactly, several
from report.quantities import quantity
from report.quantities.cpu_servers import PRICED, size_of
from report.quantities.serving import LIMIT_S, p99_latency
from report.quantities.training import speedup

# Machines to hire by what their driver calls the GPU: the first that fits, with others that could stand in its place.
MACHINES = (
    (r"gh200", "lambda-1x-gh200", ()),
    (r"h100.*pcie", "lambda-1x-h100-pcie", ()),
    (r"h100", "aws-p5.48xlarge", ("lambda-8x-h100-sxm",)),
    (r"h200", "aws-p5en.48xlarge", ()),
    (r"\bb200", "aws-p6-b200.48xlarge", ("lambda-8x-b200",)),
    (r"a100.*80 ?gb", "aws-p4de.24xlarge", ()),
    (r"a100", "aws-p4d.24xlarge", ()),
    (r"\ba10g", "aws-g5.xlarge", ()),
    (r"\bl4\b", "aws-g6.xlarge", ()),
    (r"\bt4\b", "aws-g4dn.xlarge", ()),
)
# Requests per second of the claims about small services.
LOADS = (1.0, 5.0, 10.0)
# Machines with one GPU, for work that does not fill it.
SINGLE = ("aws-g4dn.xlarge", "aws-g6.xlarge", "aws-g5.xlarge", "lambda-1x-h100-pcie", "lambda-1x-b200")
# A card's price, the figures that its work is limited by, and which of the article's cards it is.
CARDS = {
    "rtx-3060-12gb": ("rtx-3060.usd", "rtx-3060"),
    "rtx-4060": ("rtx-4060.usd", "rtx-4060"),
    "rtx-4060-ti-8gb": ("rtx-4060-ti-8gb.usd", "rtx-4060-ti"),
    "rtx-4060-ti-16gb": ("rtx-4060-ti-16gb.usd", "rtx-4060-ti"),
}
LIMITS = {"arithmetic": "bf16_flops", "bandwidth": "memory_bytes_per_s", "capacity": "memory_bytes"}
RECOMMENDED = ("rtx-3060", "rtx-4060-ti")
# What is asked for only where a node has a processor of that maker.
ENTRIES = ("aws-c7i.large.*", "aws-m7i.large.usd_per_hour")


def gpu_machine(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The machine in which a GPU of this name can be hired, and others in its place."""
    return next(((machine, beside) for pattern, machine, beside in MACHINES if re.search(pattern, name, re.I)), None)


def hourly(data: Dataset, machine: str, beside: tuple[str, ...] = ()) -> Input:
    """Hourly price of a machine. Raises MissingSourceError."""
    entry = data.entry(f"{machine}.usd_per_hour")
    others = [f"{other}.usd_per_hour" for other in beside]
    return documented(data, f"{machine}.usd_per_hour", others, what=f"{entry['subject']}, {_place(entry)}")


def _place(entry: Mapping[str, Any]) -> str:
    region = "us-east-1, " if "us-east-1" in entry["source"]["where"] else ""
    return f"on demand, {region}{entry['date']}"


def core_price(data: Dataset, vendor: str) -> tuple[dict[str, Input], str] | None:
    """Price, virtual CPUs and cores of each of a machine of a maker, and its name; None if none is priced."""
    if vendor not in PRICED:
        return None
    large = PRICED[vendor][0].partition(".")[0] + ".large"
    price = hourly(data, f"aws-{large}", tuple(f"aws-{one.partition('.')[0]}.large" for one in PRICED[vendor][1]))
    return {"p": price, **size_of(data, large, vendor)}, large


_CPU = {
    "p": ("price of a machine without a GPU", "USD/h"),
    "v": ("virtual CPUs in it", "1"),
    "x": ("cores for each of them", "1"),
    "c": ("cores that the work has", "1"),
}
REQUEST = Formula(
    "k = p / (v * x) * c / (q * f)",
    "1",
    {**_CPU, "q": ("price of a machine with a GPU", "USD/h"), "f": ("share of it that the service pays", "1")},
)


@quantity(
    "price.cpu_over_gpu_per_request",
    unit="1",
    tier="derived",
    needs={"experiments": ["serving"], "device": "cpu"},
    labels=("service", "requests_per_s"),
    says="On CPU cores such as those of {node}, a request costs {value} times what it costs on a GPU ({labels})",
    formulas=(REQUEST,),
)
def cpu_over_gpu_per_request(data: Dataset) -> DerivedEstimates:
    """Price of a request on the cheapest measured CPU server over that on the cheapest machine with a GPU, same load.

    CPU: of the servers that answer 99 of 100 requests within LIMIT_S at that load or at a higher one, the one of the
    fewest cores, by the core. Where the percentile's interval does not tell whether any does, the price has no
    interval. What no CPU server answers in time is limited by its arithmetic, and has no price here. GPU: at the least
    one machine, whatever it can do: it is taken as fast enough for every load, so that it need not have been measured.
    Loads: LOADS, and those that were offered.
    """
    found = p99_latency(data)
    found = found.only(device="cpu") if len(found) else found
    if not len(found):
        return derive([])
    processors = {node.id: node.record["hardware"]["cpu"] for node in data.nodes.nodes}
    gpu, name = _cheapest(data)
    works = []
    for key, part in found.frame.groupby(["node", "service"], sort=True):
        node, service = map(str, key if isinstance(key, tuple) else (key,))
        cpu = processors[node]
        priced = core_price(data, str(cpu.get("vendor")))
        if priced is None:
            continue
        cores = part["cores"].astype(float).replace(0.0, float(cpu["usable_cores"]))
        offered = part.assign(cores=cores).to_dict("records")
        for load in sorted({*LOADS, *part["requests_per_s"]}):
            server, sure = _server(offered, float(load))
            if server is None:
                continue
            held = "held" if sure else "too close to tell whether held"
            told = f"{server['dtype']}, {held} at {exactly(float(server['requests_per_s']))} requests/s"
            inputs = {**priced[0], "c": _cores(server, sure, told), "q": gpu, "f": _whole()}
            detail = f"{count(int(server['cores']), 'core')} of {priced[1]} against {name}; {told}"
            labels = {"node": node, "device": "cpu", "service": service, "requests_per_s": float(load)}
            works.append(Work(labels, REQUEST, inputs, detail))
    return derive(works)


def _server(offered: Sequence[Mapping[Any, Any]], load: float) -> tuple[Any, bool]:
    """The server of the fewest cores that keeps the limit at a load or a higher one, and whether that is sure."""
    enough = [one for one in offered if one["requests_per_s"] >= load]
    for end, sure in (("high", True), ("estimate", False)):
        held = [one for one in enough if one[end] < LIMIT_S]
        if held:
            return min(held, key=lambda one: (one["cores"], one["requests_per_s"])), sure
    return None, False


def _cores(server: Any, sure: bool, what: str) -> Input:
    return Input(
        float(server["cores"]), "1", "measured", "measured by this study", what=what, source_rows=tuple(server["source_rows"]),
        n_rounds=int(server["n_rounds"]), n_samples=int(server["n_samples"]), each=True,
        se=0.0 if sure else np.nan, df=np.inf if sure else 0.0,
    )  # fmt: skip


def _whole() -> Input:
    return assumed(1.0, "1", "the machine is hired for this service alone, as the CPU's cores are", 0.1, 1.0)


def _cheapest(data: Dataset) -> tuple[Input, str]:
    """The cheapest machine with one GPU, with the others as its range, and its name. Raises MissingSourceError."""
    prices = sorted((data.figure(f"{machine}.usd_per_hour"), machine) for machine in SINGLE)
    first = prices[0][1]
    return hourly(data, first, tuple(machine for _, machine in prices[1:])), first.removeprefix("aws-")


SAVING = Formula(
    "k = S * p / (v * x) * c / (q / g)",
    "1",
    {
        "S": ("how many times as fast the GPU trains as the CPU of its host", "1"),
        **_CPU,
        "q": ("price of the machine with GPUs", "USD/h"),
        "g": ("GPUs in it", "1"),
    },
)


@quantity(
    "price.speedup_over_price_ratio",
    unit="1",
    tier="derived",
    needs={"experiments": ["training"], "device": "both"},
    labels=("model", "batch", "baseline", "precision", "dtype"),
    says="On {node}, the GPU's speed-up is {value} times what its hour costs in hours of the CPU ({labels})",
    formulas=(SAVING,),
)
def speedup_over_price_ratio(data: Dataset) -> DerivedEstimates:
    """Speed-up of training over the ratio of prices by the hour: above 1 a run is cheaper on the GPU.

    GPU: its share of a machine with GPUs of that name. CPU: as many cores as the host has, by the core of a machine
    of the same maker. Baseline node alone: one core is not what one would hire.
    """
    cells = speedup(data)
    cells = cells.only(baseline="node") if len(cells) else cells
    if not len(cells):
        return derive([])
    machines = _machines_of(data, cells)
    priced = np.array([key in machines for key in zip(cells.frame["node"], cells.frame["device"], strict=True)])
    if not priced.any():
        names = sorted({device["name"] for node in data.nodes.nodes for device in node.record["devices"]
                        if device["kind"] == "gpu"})  # fmt: skip
        raise MissingSourceError(f"the price per hour of a machine with {several(names, 'or')}")
    kept = cells.at(priced)
    keys = list(zip(kept.frame["node"], kept.frame["device"], strict=True))
    factors = {key: _price_factor(inputs) for key, (inputs, _) in machines.items()}
    detail = [
        "; ".join(filter(None, (str(text), machines[key][1])))
        for key, text in zip(keys, kept.frame["detail"], strict=True)
    ]
    scaled = kept.scaled_by(pd.Series([factors[key] for key in keys]))

    def make(row: int) -> Work:
        return Work({}, SAVING, {"S": measured(kept, row, "1", "measured speed-up"), **machines[keys[row]][0]})

    return worked(scaled.label(detail=detail), make)


def _price_factor(inputs: Mapping[str, Input]) -> float:
    """Price of the CPU's cores over that of the GPU."""
    values = {name: one.value for name, one in inputs.items()}
    return values["p"] / (values["v"] * values["x"]) * values["c"] / (values["q"] / values["g"])


def _machines_of(data: Dataset, cells: Estimates) -> dict[tuple[str, str], tuple[dict[str, Input], str]]:
    """Prices by node and device, and which machines they are of, where both sides have one."""
    found = {}
    wanted = set(zip(cells.frame["node"], cells.frame["device"], strict=True))
    for node in data.nodes.nodes:
        cpu = node.record["hardware"]["cpu"]
        for device in node.record["devices"]:
            machine = gpu_machine(str(device["name"]))
            if (node.id, device["id"]) not in wanted or machine is None:
                continue
            priced = core_price(data, str(cpu.get("vendor")))
            if priced is None:
                continue
            gpu, beside = machine
            inputs = {
                **priced[0],
                "c": Input(float(cpu["usable_cores"]), "1", "measured", "of the host", each=True),
                "q": hourly(data, gpu, beside),
                "g": documented(data, f"{gpu}.gpus"),
            }
            told = f"{inputs['q'].what} against {count(int(cpu['usable_cores']), 'core')} of {priced[1]}"
            found[node.id, str(device["id"])] = (inputs, told)
    return found


RANK = Formula("n = 1 + b", "1", {"b": ("cards of the price class that give more of it for a dollar", "1")})


@quantity(
    "price.rank_per_dollar",
    unit="1",
    tier="derived",
    labels=("card", "version", "limit"),
    says="For its price, {labels} takes rank {value}",
    formulas=(RANK,),
)
def rank_per_dollar(data: Dataset) -> DerivedEstimates:
    """Rank of each recommended card among those of its price class, by what limits the work over the price at launch.

    limit: arithmetic (rated dense bf16 FLOP/s), bandwidth or capacity of memory. A card of the class counts where both
    figures were verified. Raises MissingSourceError naming the entries that the recommended cards lack.
    """
    lacking = [name for name in _needed() if not verified(data, name)]
    if lacking:
        raise MissingSourceError(f"verified prices and ratings of the cards: {', '.join(lacking)}")
    works = []
    for by, figure in LIMITS.items():
        per_dollar = {
            card: data.figure(f"{card}.{figure}") / data.figure(price)
            for card, (price, _) in CARDS.items()
            if verified(data, price) and verified(data, f"{card}.{figure}")
        }
        for card, value in per_dollar.items():
            part = CARDS[card][1]
            if part in RECOMMENDED:
                better = sorted(other for other, one in per_dollar.items() if one > value)
                names = [name for other in per_dollar for name in (f"{other}.{figure}", CARDS[other][0])]
                told = f"{exactly(float(f'{value:.4g}'))} for a dollar; more by {several(better) or 'none'}"
                inputs = {"b": computed(data, names, float(len(better)), "1", told)}
                works.append(Work({"card": part, "version": card, "limit": by}, RANK, inputs, told))
    return derive(works)


def _needed() -> list[str]:
    cards = [card for card, (_, part) in CARDS.items() if part in RECOMMENDED]
    ratings = [f"{card}.{figure}" for card in cards for figure in LIMITS.values()]
    return [*(CARDS[card][0] for card in cards), *ratings]
