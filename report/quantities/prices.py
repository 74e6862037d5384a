"""Cost of work on hired machines, and card performance per dollar, from one file with dated prices.

All prices are inputs in data/reference/prices.yaml, which readers may replace. Each case's `detail` gives machines,
place and date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset, MissingSourceError, cached_per_dataset
from report.derivations import (
    Floats,
    Formula,
    Input,
    assumed_input,
    computed_input,
    documented_input,
    is_verified,
    measured_input,
)
from report.derived_estimates import Derivation, DerivedEstimates, derive, with_derivations
from report.formatting import format_count, format_exact, join_words
from report.quantities import quantity
from report.quantities.cpu_servers import PRICED, machine_size
from report.quantities.derived import arithmetic_quantity
from report.quantities.rate_arithmetic import BEST_LABELS
from report.quantities.serving import LIMIT_S, p99_latency
from report.quantities.training import speedup

# Each row has a pattern for the GPU's name as the driver reports it, the machine to hire, and machines whose prices are
# shown as alternatives. The first row that matches counts.
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
# Requests per second in the claims about small services.
LOADS = (1.0, 5.0, 10.0)
# Machines with one GPU, for work that is too small to fill a GPU.
SINGLE = ("aws-g4dn.xlarge", "aws-g6.xlarge", "aws-g5.xlarge", "lambda-1x-h100-pcie", "lambda-1x-b200")
# NVIDIA's cards for games of 299 to 499 USD at launch, from the two generations of the cards that the article
# recommends. For each, its price entry and its name in the article.
CARDS = {
    "rtx-3060-12gb": ("rtx-3060.usd", "rtx-3060"),
    "rtx-3060-ti": ("rtx-3060-ti.usd", "rtx-3060-ti"),
    "rtx-3070": ("rtx-3070.usd", "rtx-3070"),
    "rtx-4060": ("rtx-4060.usd", "rtx-4060"),
    "rtx-4060-ti-8gb": ("rtx-4060-ti-8gb.usd", "rtx-4060-ti"),
    "rtx-4060-ti-16gb": ("rtx-4060-ti-16gb.usd", "rtx-4060-ti"),
}
# fp32 stands for 16 bits too: NVIDIA states no dense 16-bit rate for these cards, and twice the fp32 for the RTX 4090.
LIMITS = {"arithmetic": "fp32_flops", "bandwidth": "memory_bytes_per_s", "capacity": "memory_bytes"}
RECOMMENDED = ("rtx-3060", "rtx-4060-ti")
# Price entries that count as used by this module. It reads some of them only if the data include nodes with such GPUs.
ENTRIES = ("aws-*.usd_per_hour", "aws-*.gpus", "lambda-*.usd_per_hour", "lambda-*.gpus", "rtx-*.usd")

_SERVICE, _STEP = ("service", "requests_per_s", "cpu_runtime"), ("model", "batch", "baseline", *BEST_LABELS)
Priced = tuple[dict[str, Input], str]


def gpu_machine(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the machine to hire for a GPU with this name, and its alternatives. Return None if no pattern matches."""
    return next(((machine, beside) for pattern, machine, beside in MACHINES if re.search(pattern, name, re.I)), None)


def hourly_price(data: Dataset, machine: str, beside: tuple[str, ...] = ()) -> Input:
    """Return a machine's hourly price. Raises MissingSourceError."""
    entry = data.entry(f"{machine}.usd_per_hour")
    region = "us-east-1, " if "us-east-1" in entry["source"]["where"] else ""
    what = f"{entry['subject']}, on demand, {region}{entry['date']}"
    return documented_input(data, f"{machine}.usd_per_hour", [f"{other}.usd_per_hour" for other in beside], what=what)


def core_price(data: Dataset, cpu: Mapping[str, Any]) -> Priced | None:
    """Return inputs for a machine to hire whose CPU has the same vendor as `cpu`, and the machine's name.

    The inputs are the price, the virtual CPUs and the cores per virtual CPU. Return None if PRICED has no machine with
    a CPU from that vendor.
    """
    vendor = str(cpu.get("vendor"))
    if vendor not in PRICED:
        return None
    large, *others = (f"{machine.partition('.')[0]}.large" for machine in (PRICED[vendor][0], *PRICED[vendor][1]))
    price = hourly_price(data, f"aws-{large}", tuple(f"aws-{other}" for other in others))
    return {"p": price, **machine_size(data, large, vendor)}, large


_CPU = {
    "p": ("price of a machine without a GPU", "USD/h"),
    "v": ("virtual CPUs in it", "1"),
    "x": ("cores for each of them", "1"),
    "c": ("cores that the work has", "1"),
}
REQUEST = Formula(
    "k = p / (v * x) * c / (q * f)",
    "1",
    {
        **_CPU,
        "q": ("price of a machine with a GPU", "USD/h"),
        "f": ("share of the machine's price that the service pays", "1"),
    },
)


@arithmetic_quantity(
    "price.cpu_over_gpu_per_request", "1", _SERVICE, experiments=["serving"], device="cpu", formulas=(REQUEST,)
)
def cpu_over_gpu_per_request(data: Dataset) -> DerivedEstimates:
    """Price per request on the cheapest measured CPU server, relative to that on the cheapest machine with a GPU.

    Both serve the same load. Loads: 1, 5 and 10 requests per second (LOADS), and all loads offered in measurements.
    CPU: a server is fast enough for a load if it answers 99 in 100 requests within LIMIT_S (0.1 s) at that load or a
    higher load, in any runtime and format. Among these servers, the one with the fewest cores is priced, per core. If
    several have that many cores, their price is the same; `detail` and cpu_runtime, the backend, then describe the
    server that was measured at the lowest load, and among these the fastest. If the 99th percentile's interval reaches
    the limit on every server, the price has no interval. If no server is fast enough, there is no price.
    GPU: the cheapest machine is assumed to be fast enough for every load, so it need not be measured.
    """
    whole = assumed_input(1.0, "1", "the machine is hired for this service alone, as the CPU's cores are", 0.1, 1.0)
    works = []
    servers = p99_latency(data).filter(device="cpu")
    rates, cores, *ends = (servers.numbers(name).to_numpy() for name in ("requests_per_s", "cores", "high", "estimate"))
    estimate = ends[1]
    rows = servers.rows("backend", "dtype", "n_rounds", "n_samples", "source_rows")
    for (node, service), group in servers.positions("node", "service"):
        gpu, name = _cheapest_gpu_machine(data)
        cpu = data.record(node)["hardware"]["cpu"]
        priced = core_price(data, cpu)
        if priced is None:
            continue
        # A zero core count stands for all usable cores.
        core_counts = np.where(cores[group] == 0, cpu["usable_cores"], cores[group])
        order = np.lexsort((estimate[group], rates[group], core_counts))
        core_counts, group = core_counts[order], group[order]
        for load, first, sure in _smallest_servers(rates[group], *(end[group] for end in ends)):
            n_cores, row = float(core_counts[first]), group[first]
            backend, dtype, n_rounds, n_samples, source_rows = rows[row]
            outcome = "held" if sure else "too close to tell whether held"
            what = f"{dtype}, {outcome} at {format_exact(float(rates[row]))} requests/s"
            error = {"se": 0.0, "df": math.inf} if sure else {"se": math.nan, "df": 0.0}
            counts = {"n_rounds": n_rounds, "n_samples": n_samples, "source_rows": source_rows}
            used = {"what": what, "single_case": True, **error, **counts}
            measured_cores = Input(n_cores, "1", "measured", "measured by this study", **used)
            inputs = {**priced[0], "c": measured_cores, "q": gpu, "f": whole}
            detail = f"{format_count(int(n_cores), 'core')} of {priced[1]} against {name}; {what}"
            labels = {"node": node, "device": "cpu", "service": service, "requests_per_s": load, "cpu_runtime": backend}
            works.append(Derivation(labels, REQUEST, inputs, detail))
    return derive(works)


def _smallest_servers(rates: Floats, high: Floats, estimate: Floats) -> Iterator[tuple[float, int, bool]]:
    """Yield each load, the index of the first server that is fast enough for it, and True if this is certain.

    A server is certainly fast enough if, at this load or a higher load, the upper bound on its latency is below
    LIMIT_S. If no server is, the first server whose estimate is below LIMIT_S is yielded with False. A load without
    such a server is skipped. rates, high, estimate: offered load, and the latency's upper bound and estimate; each has
    shape (servers,).
    """
    for load in sorted({*LOADS, *rates.tolist()}):
        surely, perhaps = (np.flatnonzero((rates >= load) & (end < LIMIT_S)) for end in (high, estimate))
        servers, sure = (surely, True) if len(surely) else (perhaps, False)
        if len(servers):
            yield load, int(servers[0]), sure


@cached_per_dataset
def _cheapest_gpu_machine(data: Dataset) -> tuple[Input, str]:
    """Return the price and name of the cheapest machine with one GPU among SINGLE. Raises MissingSourceError.

    The cheapest on-demand price for one GPU that any seller asks in the published lists is the low end of its range,
    which the result's interval includes.
    """
    first, *others = sorted(SINGLE, key=lambda machine: (data.figure(f"{machine}.usd_per_hour"), machine))
    price = hourly_price(data, first, tuple(others))
    listed = data.published.records
    prices = listed[(listed["measure"] == "price-per-hour") & listed["setting"].str.startswith("on demand")]["value"]
    if len(prices) and prices.min() < price.value:
        price = replace(price, low=float(prices.min()), high=price.value, in_interval=True)
    return price, first.removeprefix("aws-")


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


@arithmetic_quantity(
    "price.speedup_over_price_ratio", "1", _STEP, experiments=["training"], device="both", formulas=(SAVING,)
)
def speedup_over_price_ratio(data: Dataset) -> DerivedEstimates:
    """Training speed-up, divided by the hourly price ratio: above 1 a run is cheaper on the GPU.

    The GPU's price is its share of a machine with the same GPU name. The CPU's price covers as many cores as the host
    has, at the price per core of a machine from the same vendor. The only baseline is `node`, because nobody hires one
    core.
    """
    speedups = speedup(data).filter(baseline="node")
    places = set(speedups.rows("node", "device"))
    devices = [
        (node, device) for node in data.nodes.nodes for device in node.record["devices"] if device["kind"] == "gpu"
    ]
    priced = {
        (node.id, gpu["id"]): prices
        for node, gpu in devices
        if (node.id, gpu["id"]) in places
        and (prices := _machine_prices(data, gpu["name"], node.record["hardware"]["cpu"]))
    }
    if places and not priced:
        names = sorted({gpu["name"] for _, gpu in devices})
        raise MissingSourceError(f"the price per hour of a machine with {join_words(names, 'or')}")
    speedups = speedups.take([row for row, place in enumerate(speedups.rows("node", "device")) if place in priced])
    machines = [priced[place] for place in speedups.rows("node", "device")]
    detail = [
        "; ".join(filter(None, (text, note))) for text, (_, note) in zip(speedups["detail"], machines, strict=True)
    ]
    values = pd.DataFrame([{name: gpu.value for name, gpu in inputs.items()} for inputs, _ in machines])
    values = values.reindex(columns=list("pvxcqg"))
    factors = values["p"] / (values["v"] * values["x"]) * values["c"] / (values["q"] / values["g"])

    def make(row: int) -> Derivation:
        return Derivation(
            {}, SAVING, {"S": measured_input(speedups, row, "1", "measured speed-up"), **machines[row][0]}
        )

    return with_derivations(speedups.scaled_by(factors).label(detail=detail), make)


def _machine_prices(data: Dataset, gpu: str, cpu: Mapping[str, Any]) -> Priced | None:
    """Return prices for machines with this GPU and with this vendor's CPU, and a text that names both machines.

    Return None if MACHINES lists no machine with this GPU, or PRICED none with a CPU from this vendor. Raises
    MissingSourceError if one of these machines has no price.
    """
    machine = gpu_machine(gpu)
    priced = core_price(data, cpu) if machine else None
    if machine is None or priced is None:
        return None
    inputs = {
        **priced[0],
        "c": Input(float(cpu["usable_cores"]), "1", "measured", "of the host", single_case=True),
        "q": hourly_price(data, *machine),
        "g": documented_input(data, f"{machine[0]}.gpus"),
    }
    return inputs, f"{inputs['q'].what} against {format_count(int(cpu['usable_cores']), 'core')} of {priced[1]}"


RANK = Formula("n = 1 + b", "1", {"b": ("cards of the price class that give more of it for a dollar", "1")})


@quantity(
    "price.rank_per_dollar",
    "1",
    ("card", "version", "limit"),
    tier="derived",
    formulas=(RANK,),
    checked="published.rating_error",
)
def rank_per_dollar(data: Dataset) -> DerivedEstimates:
    """Rank of each recommended graphics card in its price class, by a rated figure per dollar at launch.

    limit: the figure, which is arithmetic (rated fp32 FLOP/s), bandwidth, or memory capacity. A card is ranked if its
    price and that figure are verified. `published.rating_error` compares ratings to measured products and passes over
    memory. Raises MissingSourceError, with the entries that recommended cards lack.
    """
    recommended = {card: price for card, (price, part) in CARDS.items() if part in RECOMMENDED}
    ratings = [f"{card}.{figure}" for card in recommended for figure in LIMITS.values()]
    missing = [name for name in (*recommended.values(), *ratings) if not is_verified(data, name)]
    if missing:
        raise MissingSourceError(f"verified prices and ratings of the cards: {', '.join(missing)}")
    works = []
    for limit, figure in LIMITS.items():
        per_dollar = {
            card: data.figure(f"{card}.{figure}") / data.figure(price)
            for card, (price, _) in CARDS.items()
            if is_verified(data, price) and is_verified(data, f"{card}.{figure}")
        }
        names = [name for card in per_dollar for name in (f"{card}.{figure}", CARDS[card][0])]
        for card in filter(recommended.get, per_dollar):
            better = sorted(other for other, value in per_dollar.items() if value > per_dollar[card])
            detail = (
                f"{format_exact(float(f'{per_dollar[card]:.4g}'))} for a dollar; more by {join_words(better) or 'none'}"
            )
            inputs = {"b": computed_input(data, names, float(len(better)), "1", detail)}
            works.append(Derivation({"card": CARDS[card][1], "version": card, "limit": limit}, RANK, inputs, detail))
    return derive(works)
