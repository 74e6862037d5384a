"""Servers, days, watts and dollars that the largest training runs take without GPUs, at the rates in `cpu_servers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed_input, computed_input, documented_input
from report.derived_estimates import Derivation, DerivedEstimates, derive
from report.quantities import cpu_servers, quantity
from report.quantities.cpu_servers import (
    BERT_SYMBOLS,
    CORES,
    OWN_RATES,
    PRICED_RATES,
    SIZE,
    Rate,
    Server,
    Symbols,
    all_servers,
    price_per_hour,
)
from report.quantities.derived import arithmetic_quantity
from report.quantities.train_hours import DAYS, LARGE, RUNS, total_flop
from report.quantities.whole_runs import CHECK

LARGEST = "llama31-405b"
# Days in which the run must finish: first as in the third article that the study checks, then as in claim N13.
SPANS = (54, DAYS)
GPU_MACHINE, OTHER_GPU_MACHINE = "aws-p5.48xlarge", "lambda-8x-h100-sxm"
_EIGHT = "mlperf-training-3.1.8xh100.bert_sequences_per_s"
_WATTS = (
    "a server with two processors, memory and fans; no maker's figure for the power of these processors or servers "
    "could be verified"
)
_LABELS = ("server", "evidence", "by", "run", "parameters")
_cluster_quantity = partial(
    quantity,
    tier="derived",
    experiments=["training", "time-to-train"],
    device="cpu",
    labels=_LABELS,
    checked=CHECK,
    common_error=True,
)

_RUN: Symbols = {"F": ("operations of the run", "FLOP")}
_PRICE: Symbols = {"p": ("price of the server", "USD/h")}
_GPU_COST: Symbols = {
    "G": ("GPU hours of the run", "h"),
    "q": ("price of the machine with GPUs", "USD/h"),
    "g": ("GPUs in it", "1"),
}


def _formulas(text: str, unit: str, symbols: Symbols, rates: Mapping[str, Rate]) -> dict[str, Formula]:
    """Build one formula per rate: the rate's own formula replaces RATE in `text`."""
    return {
        name: Formula(text.replace("RATE", f"({rate.text})"), unit, {**rate.symbols, **symbols})
        for name, rate in rates.items()
    }


_DAYS: Symbols = {"d": ("time", "d")}
NEEDED = _formulas("n = F / (RATE * d)", "servers", {**_RUN, **_DAYS}, OWN_RATES)
SERVERS = _formulas("n = F / (RATE * d)", "servers", {**_RUN, **_DAYS}, PRICED_RATES)
TIME = _formulas("T = F / (RATE * n)", "d", {**_RUN, "n": ("servers", "1")}, PRICED_RATES)
POWER = _formulas("W = F / (RATE * d) * e", "W", {**_RUN, **_DAYS, "e": ("power of a server", "W")}, PRICED_RATES)
COST = _formulas("C = F / RATE * p", "USD", {**_RUN, **_PRICE}, PRICED_RATES)
RATIO = _formulas("k = F / RATE * p / (G * q / g)", "1", {**_RUN, **_PRICE, **_GPU_COST}, PRICED_RATES)
# This formula compares two machine kinds that ran the same job, so it needs no operation count.
RELATION = Formula(
    "k = H / (Q / m / c * x * v) * p / q",
    "1",
    {
        "H": ("sequences that eight GPUs trained BERT large on per second", "1/s"),
        "Q": BERT_SYMBOLS["Q"], "m": BERT_SYMBOLS["m"], **CORES, **SIZE, **_PRICE, "q": _GPU_COST["q"],
    },
)  # fmt: skip


MACS = Formula(
    "M = Q / m * w * B * L / o / f",
    "MAC/cycle",
    {**BERT_SYMBOLS, "o": ("operations of a multiply-add", "FLOP/MAC"), "f": ("clock", "cycle/s")},
)


@arithmetic_quantity("servers.mac_per_cycle", "MAC/cycle", ("server",), formulas=(MACS,))
def mac_per_cycle(data: Dataset) -> DerivedEstimates:
    """Multiply-adds per clock cycle in a server, while its cluster trained BERT large in MLPerf.

    The sequences per second that one server trains on are multiplied by the FLOP per sequence, and divided by two and
    by the clock. The estimate uses the base clock; low uses twice the base clock, which no such processor exceeds with
    all cores busy.
    """
    names = ["xeon-8480plus-2s.bf16_flops", "xeon-8480plus.cores", "amx.bf16_flop_per_cycle"]
    rated, cores, operations = map(data.figure, names)
    base = rated / (2 * cores * operations)
    what = "Base clock; at the most twice that, which no such processor runs at with all cores at work"
    bert = cpu_servers.bert_inputs(data)
    inputs = {
        **{symbol: bert[symbol] for symbol in BERT_SYMBOLS},
        "o": assumed_input(2.0, "FLOP/MAC", "one multiplication and one addition"),
        "f": computed_input(data, names, base, "cycle/s", what, low=base, high=2 * base, in_interval=True),
    }
    cores_of = f"two processors with {2 * cores:g} cores in all, as they trained BERT large in MLPerf Training 3.1"
    return derive([Derivation({"server": "two Xeon Platinum 8480+ with AMX"}, MACS, inputs, cores_of)])


def run_flop(data: Dataset, prefix: str) -> Input:
    """Return the operation count for a published run."""
    if prefix == LARGEST:
        return documented_input(data, f"{prefix}.training_flop")
    run = next(run for run in RUNS if run.id == prefix)
    names = [f"{prefix}.parameters", f"{prefix}.tokens"]
    return computed_input(data, names, total_flop(run, data), "FLOP", f"{run.name}: 6 x parameters x tokens")


def _days_input(days: int) -> Input:
    return assumed_input(float(days), "d", "the time that is asked for")


def _run_labels(data: Dataset, prefix: str) -> dict[str, Any]:
    name = next(run.name for run in RUNS if run.id == prefix)
    return {"run": name, "parameters": data.figure(f"{prefix}.parameters")}


@_cluster_quantity("ladder.servers_for_90_days", "servers", formulas=tuple(NEEDED.values()))
def servers_for_90_days(data: Dataset) -> DerivedEstimates:
    """Servers that finish a published pre-training run in 90 days, by the evidence for their training rate.

    The run takes 6 x parameters x tokens operations, which are divided by the time and by one server's rate. The label
    `evidence` tells where that rate comes from:
    measured: a node that is itself a server trains transformers. Its best rate per core, corrected by whole runs (see
    `whole_runs`), is multiplied by 128 cores (SERVER_CORES).
    scaled: the same calculation, from a node that is no server.
    documented: the rate at which MLPerf's cluster of servers with matrix units trained BERT large.
    rated: the same servers' rate, if they reached the share of the rated peak that GPUs reached.
    The result is a lower bound, because it ignores memory limits and communication between machines.
    """
    kinds, days = all_servers(data, priced=False), _days_input(DAYS)
    works = [
        kind.work(NEEDED, _run_labels(data, run.id), F=run_flop(data, run.id), d=days)
        for run in RUNS
        if run.id in LARGE
        for kind in kinds
    ]
    return derive(works).with_other_results(*run_requirements(data, all_servers(data, priced=True)))


def run_requirements(data: Dataset, kinds: Sequence[Server]) -> list[tuple[str, str, DerivedEstimates]]:
    """Compute the servers, days, power and cost that the largest run takes on each server kind.

    Return a tuple (name, unit, estimates) for each result.
    """
    gpus = data.figure(f"{LARGEST}.gpus")
    return [
        *((f"servers for {days} days", "servers", derive(_server_counts(data, kinds, days))) for days in SPANS),
        (f"days on {gpus:,.0f} servers", "d", derive(_run_days(data, kinds))),
        *((f"power of those for {days} days", "W", derive(_run_power(data, kinds, days))) for days in SPANS),
        ("cost of the run", "USD", derive(_run_costs(data, kinds))),
    ]


def _server_counts(data: Dataset, kinds: Sequence[Server], days: int) -> list[Derivation]:
    labels = {**_run_labels(data, LARGEST), "days": days}
    return [kind.work(SERVERS, labels, F=run_flop(data, LARGEST), d=_days_input(days)) for kind in kinds]


def _run_power(data: Dataset, kinds: Sequence[Server], days: int) -> list[Derivation]:
    labels, watts = {**_run_labels(data, LARGEST), "days": days}, assumed_input(1000.0, "W", _WATTS, 500.0, 2000.0)
    return [kind.work(POWER, labels, F=run_flop(data, LARGEST), d=_days_input(days), e=watts) for kind in kinds]


def _run_days(data: Dataset, kinds: Sequence[Server]) -> list[Derivation]:
    labels, gpus = _run_labels(data, LARGEST), documented_input(data, f"{LARGEST}.gpus")
    return [kind.work(TIME, labels, F=run_flop(data, LARGEST), n=gpus) for kind in kinds]


def _run_costs(data: Dataset, kinds: Sequence[Server]) -> list[Derivation]:
    labels = _run_labels(data, LARGEST)
    return [kind.work(COST, labels, F=run_flop(data, LARGEST), p=kind.price) for kind in kinds if kind.price]


@_cluster_quantity("ladder.cpu_cluster_cost_ratio", "1", formulas=(*RATIO.values(), RELATION))
def cost_ratio(data: Dataset) -> DerivedEstimates:
    """Cost to train Llama 3.1 405B on servers without GPUs, relative to the cost for its GPU hours.

    The label `evidence` has the same meaning as in `ladder.servers_for_90_days`, here for servers that have a price.
    The documented evidence gives two cases, which the label `by` tells apart: one uses the operations for BERT large,
    the other the time that the same job took on those servers, relative to a machine with eight GPUs. Prices are one
    seller's, on demand, per hour; their descriptions give place and date.
    """
    price, other_price = f"{GPU_MACHINE}.usd_per_hour", f"{OTHER_GPU_MACHINE}.usd_per_hour"
    gpu = price_per_hour(data, price, [other_price], f"; beside it {OTHER_GPU_MACHINE}")
    cost = {
        "G": documented_input(data, f"{LARGEST}.gpu_hours"),
        "q": gpu,
        "g": documented_input(data, f"{GPU_MACHINE}.gpus"),
    }
    flop, labels, kinds, works = run_flop(data, LARGEST), _run_labels(data, LARGEST), all_servers(data, priced=True), []
    for kind in kinds:
        if kind.price is None:
            continue
        works.append(kind.work(RATIO, {**labels, "by": "operations"}, F=flop, p=kind.price, **cost))
        if kind.evidence == "documented":
            shared = {symbol: kind.inputs[symbol] for symbol in ("Q", "m", "c", "x", "v")}
            inputs = {"H": documented_input(data, _EIGHT), **shared, "p": kind.price, "q": gpu}
            detail = f"{kind.detail}, held against a machine with GPUs"
            works.append(Derivation({**kind.labels, **labels, "by": "relation to GPUs"}, RELATION, inputs, detail))
    return derive(works).with_other_results(*run_requirements(data, kinds))
