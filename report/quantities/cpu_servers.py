"""Servers without GPUs, and the evidence for their training rate.

There are four kinds of evidence:
measured: a node that is itself a server trains a transformer. Its rate per core, corrected by whole runs (see
`whole_runs`), is scaled to a server's cores.
scaled: the same calculation, from a smaller machine. It says little about servers, and enters no verdict.
documented: in MLPerf Training 3.1, a cluster of 16 servers without GPUs trained BERT large on matrix units.
rated: the servers in that cluster, if they reached the share of the rated peak that GPUs reached. This figure is
theoretical, and enters no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.machine_kinds import KINDS
from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed_input, computed_input, documented_input, measured_input
from report.derived_estimates import Derivation
from report.quantities.derived import six_flop, utilisation
from report.quantities.training import best_rates
from report.quantities.whole_runs import correct_estimates

# Cores in the server that the third article describes (claim W15).
SERVER_CORES = 128
# For each CPU vendor, the machine to hire by the hour, and the machines whose prices are shown as alternatives.
PRICED = {
    "AuthenticAMD": ("c7a.48xlarge", ("m7a.48xlarge", "c8a.48xlarge", "m8a.48xlarge")),
    "GenuineIntel": ("c7i.48xlarge", ("m7i.48xlarge",)),
}
_WHOLE_CORES = "a virtual CPU of these machines is a whole core (see aws-m7a.48xlarge.cores)"
_HALF_CORES = "a virtual CPU of these machines is one of the two threads of a core"
Symbols = Mapping[str, tuple[str, str]]
SIZE: Symbols = {"v": ("virtual CPUs of the priced server", "1"), "x": ("cores for each of them", "1")}
_CORE_SYMBOLS: Symbols = {
    "R": ("rate at which the node trains a transformer, as whole runs keep it", "FLOP/s"),
    "t": ("cores that it took", "1"),
}
_KEPT: Symbols = {"s": ("share of a core's rate that is kept when all cores and servers work together", "1")}
BERT_SYMBOLS: Symbols = {
    "Q": ("sequences that the cluster trained BERT large on per second", "1/s"),
    "m": ("its servers", "1"),
    "w": ("operations for each parameter and token", "FLOP"),
    "B": ("parameters of BERT large's blocks", "1"),
    "L": ("tokens of a sequence", "1"),
}
_RATING_SYMBOLS: Symbols = {
    "P": ("rated peak of a server in bfloat16", "FLOP/s"),
    "u": ("share of the peak that training keeps", "1"),
}
CORES: Symbols = {"c": ("cores of that server", "1")}


@dataclass(frozen=True)
class Rate:
    """A server's rate: its formula as text, and the symbols in that formula."""

    text: str
    symbols: Symbols


# Formulas for one server's rate, by evidence. PRICED_RATES: for a server that has a price, and as many cores as the
# machine to hire. OWN_RATES: for a server without a price, with SERVER_CORES cores or as in MLPerf's cluster.
PRICED_RATES = {
    "measured": Rate("R / t * x * v * s", {**_CORE_SYMBOLS, **SIZE, **_KEPT}),
    "documented": Rate("Q / m * w * B * L / c * x * v", {**BERT_SYMBOLS, **CORES, **SIZE}),
    "rated": Rate("P * u / c * x * v", {**_RATING_SYMBOLS, **CORES, **SIZE}),
}
OWN_RATES = {
    "measured": Rate("R / t * c * s", {**_CORE_SYMBOLS, "c": ("cores of a server", "1"), **_KEPT}),
    "documented": Rate("Q / m * w * B * L", BERT_SYMBOLS),
    "rated": Rate("P * u", _RATING_SYMBOLS),
}


@dataclass(frozen=True)
class Server:
    """A server kind.

    labels: labels for its estimates. evidence: key for its rate's formula in PRICED_RATES or OWN_RATES. inputs: inputs
    for that formula. price: hourly price, or None.
    """

    labels: Mapping[str, Any]
    evidence: str
    inputs: Mapping[str, Input]
    price: Input | None
    detail: str

    def work(self, formulas: Mapping[str, Formula], more: Mapping[str, Any], **inputs: Input) -> Derivation:
        return Derivation({**self.labels, **more}, formulas[self.evidence], {**self.inputs, **inputs}, self.detail)


def price_per_hour(data: Dataset, entry: str, beside: Sequence[str] = (), note: str = "") -> Input:
    """Return a machine's hourly price, with place and date.

    beside: price entries for machines that could replace it. note: text to add to the description.
    """
    price = data.entry(entry)
    what = f"{price['subject']}, on demand, us-east-1, {price['date']}{note}"
    return documented_input(data, entry, beside, what=what)


def machine_size(data: Dataset, machine: str, vendor: str) -> dict[str, Input]:
    """Return a machine's virtual CPU count, and the cores per virtual CPU."""
    whole = vendor == "AuthenticAMD"
    cores = assumed_input(1.0 if whole else 0.5, "1", _WHOLE_CORES if whole else _HALF_CORES)
    return {"v": documented_input(data, f"aws-{machine}.vcpus"), "x": cores}


def bert_inputs(data: Dataset) -> dict[str, Input]:
    """Return the inputs in BERT_SYMBOLS for the cluster that trained BERT large. Raises MissingSourceError."""
    names = ["bert-large.layers", "bert-large.width"]
    layers, width = map(data.figure, names)
    return {
        "Q": documented_input(data, "mlperf-training-3.1.16x2x8480plus.bert_sequences_per_s"),
        "m": assumed_input(16.0, "1", "the submission's name and system description (16-nodes-SPR)"),
        "w": six_flop(),
        "B": computed_input(data, names, 12 * layers * width**2, "1", "12 x layers x width^2"),
        # The upper bound is twice the documented number of tokens, in case padding is computed and counted too.
        "L": documented_input(data, "bert-wikipedia.tokens", high=512.0),
    }


def _instructions(cpu: Mapping[str, Any]) -> str:
    """Name the widest multiply instructions that a node's CPU record lists."""
    flags = {*(cpu.get("simd") or ()), *(cpu.get("matrix") or ())}
    names = {"amx_bf16": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}
    return next((name for flag, name in names.items() if flag in flags), "its own instructions")


def _priced_machine(data: Dataset, vendor: str) -> tuple[dict[str, Input], Input, str]:
    """Return the size, price and name of the machine to hire for a CPU vendor.

    The name contains `{}`, which stands for the instructions' name.
    """
    machine, beside = PRICED[vendor]
    size = machine_size(data, machine, vendor)
    price = price_per_hour(data, f"aws-{machine}.usd_per_hour", [f"aws-{other}.usd_per_hour" for other in beside])
    return size, price, f"{size['v'].value * size['x'].value:g} cores {{}}, priced as {machine}"


def measured_servers(data: Dataset, priced: bool) -> Iterator[Server]:
    """Yield a server for each node that trained a transformer, at the node's rate per core.

    priced: if True, each server is as large as the machine to hire for the node's CPU vendor, and nodes from vendors
    without such a machine are skipped; if False, each server has SERVER_CORES cores.
    """
    rates = best_rates(data).filter(family="transformer", device="cpu")
    rates = correct_estimates(data, rates, math.inf, inverse=True)
    nodes = {node.id: node for node in data.nodes.nodes}
    kept_share = assumed_input(
        1.0, "1", "as if cores and servers did not slow each other: the most favourable to CPUs", 0.25, 1.0
    )
    for row, (node, device, threads, detail) in enumerate(rates.rows("node", "device", "threads", "detail")):
        cpu = nodes[node].record["hardware"]["cpu"]
        inputs = {
            "R": measured_input(rates, row, "FLOP/s", detail),
            "t": Input(float(threads), "1", "measured", "of this measurement", single_case=True),
            "s": kept_share,
        }
        if not priced:
            why = "the server that the third article speaks of (W15)"
            size, price = {"c": assumed_input(float(SERVER_CORES), "1", why, 64.0, 192.0)}, None
            name = f"{SERVER_CORES} cores {{}}"
        elif str(cpu.get("vendor")) in PRICED:
            size, price, name = _priced_machine(data, str(cpu["vendor"]))
        else:
            continue
        server = name.format(f"with {_instructions(cpu)} as in {nodes[node].label}")
        evidence = "measured" if KINDS["many-core"].matches(nodes[node].record) else "scaled"
        labels = {"node": node, "device": device, "evidence": evidence, "server": server}
        yield Server(labels, "measured", {**inputs, **size}, price, detail)


def documented_servers(data: Dataset, priced: bool) -> Iterator[Server]:
    """Yield two servers like those in MLPerf's cluster, which differ only in their rate.

    The first server's rate follows from the cluster's speed in training BERT, the second's from the rated FLOP/s.
    priced: if True, both are as large as the machine to hire for Intel CPUs. Raises MissingSourceError if a published
    figure is missing.
    """
    size: dict[str, Input] = {}
    price, server = None, "two Xeon Platinum 8480+ with AMX"
    if priced:
        size, price, name = _priced_machine(data, "GenuineIntel")
        server = name.format(f"as of {server}")
        cores = 2 * data.figure("xeon-8480plus.cores")
        size["c"] = computed_input(data, ["xeon-8480plus.cores"], cores, "1", "Two processors")
    trained = bert_inputs(data)
    rated = {"P": documented_input(data, "xeon-8480plus-2s.bf16_flops"), "u": utilisation(data, spans=False)}
    for evidence, inputs, detail in (
        ("documented", trained, f"as {trained['m'].value:g} of them trained BERT large in MLPerf Training 3.1"),
        ("rated", rated, "if they kept the share of their rated peak that the GPUs kept"),
    ):
        labels = {"device": "cpu", "evidence": evidence, "server": server}
        yield Server(labels, evidence, {**inputs, **size}, price, detail)


def all_servers(data: Dataset, priced: bool) -> list[Server]:
    return [*measured_servers(data, priced), *documented_servers(data, priced)]
