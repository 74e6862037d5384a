"""The largest runs without GPUs: how many servers, days, watts and dollars (see `cpu_servers` for their rates)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed, computed, documented
from report.derived_estimates import DerivedEstimates, Work, derive
from report.quantities import quantity
from report.quantities.cpu_servers import BY_BERT, CORES, OWN_RATES, PRICED_RATES, SIZE, Rate, Server, Symbols, servers
from report.quantities.train_hours import DAYS, LARGE, RUNS, total_flop

LARGEST = "llama31-405b"
# The time that the third article gives the run, and that of the claim about feasibility.
SPANS = (54, DAYS)
GPU_MACHINE, OTHER_GPU_MACHINE = "aws-p5.48xlarge", "lambda-8x-h100-sxm"
_EIGHT = "mlperf-training-3.1.8xh100.bert_sequences_per_s"
_WATTS = (
    "a server with two processors, memory and fans; no maker's figure for the power of these processors or servers "
    "could be verified"
)

_RUN: Symbols = {"F": ("operations of the run", "FLOP")}
_PRICE: Symbols = {"p": ("price of the server", "USD/h")}
_GPU_COST: Symbols = {
    "G": ("GPU hours of the run", "h"),
    "q": ("price of the machine with GPUs", "USD/h"),
    "g": ("GPUs in it", "1"),
}


def _formulas(text: str, unit: str, symbols: Symbols, rates: Mapping[str, Rate]) -> dict[str, Formula]:
    """A formula by the kind of its rate, which stands for RATE in its text."""
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
# Of both kinds of machines the same job is known: no operations need to be counted.
RELATION = Formula(
    "k = H / (Q / m / c * x * v) * p / q",
    "1",
    {
        "H": ("sequences that eight GPUs trained BERT large on per second", "1/s"),
        "Q": BY_BERT["Q"], "m": BY_BERT["m"], **CORES, **SIZE, **_PRICE, "q": _GPU_COST["q"],
    },
)  # fmt: skip


def run_flop(data: Dataset, prefix: str) -> Input:
    """Operations of a published run."""
    if prefix == LARGEST:
        return documented(data, f"{prefix}.training_flop")
    run = next(run for run in RUNS if run.id == prefix)
    names = [f"{prefix}.parameters", f"{prefix}.tokens"]
    return computed(data, names, total_flop(run, data), "FLOP", f"{run.name}: 6 x parameters x tokens")


def _days(span: int) -> Input:
    return assumed(float(span), "d", "the time that is asked for")


def _largest(data: Dataset) -> dict[str, Any]:
    run = next(run for run in RUNS if run.id == LARGEST)
    return {"run": run.name, "parameters": data.figure(f"{LARGEST}.parameters")}


_NEEDS = {"experiments": ["training"], "device": "cpu"}
_LABELS = ("server", "evidence", "by", "run", "parameters")


@quantity(
    "ladder.servers_for_90_days",
    unit="servers",
    tier="derived",
    needs=_NEEDS,
    labels=_LABELS,
    says="It takes {value} to train a published model in 90 days ({labels})",
    formulas=tuple(NEEDED.values()),
)
def servers_for_90_days(data: Dataset) -> DerivedEstimates:
    """Servers that finish a published pre-training run in 90 days, by what is known of the rate of one.

    6 x parameters x tokens over rate and time. measured: servers of SERVER_CORES cores like those of a node, at the
    best rate by the core at which it trains any transformer (`train_hours.best_rates`). documented: servers with
    matrix units as MLPerf's cluster trained BERT large with. rated: those on paper. At the least: that the model does
    not fit, and what many more machines tell each other, is left out.
    """
    works, kinds = [], servers(data, priced=False)
    for run in (run for run in RUNS if run.id in LARGE):
        labels = {"run": run.name, "parameters": data.figure(f"{run.id}.parameters")}
        flop = run_flop(data, run.id)
        works += [one.work(NEEDED, labels, F=flop, d=_days(DAYS)) for one in kinds]
    return derive(works).with_beside(*table(data, servers(data, priced=True)))


def table(data: Dataset, kinds: Sequence[Server]) -> list[tuple[str, str, DerivedEstimates]]:
    """What the largest run would take on each kind of server: the numbers of the claims' other words."""
    gpus = data.figure(f"{LARGEST}.gpus")
    return [
        *((f"servers for {span} days", "servers", derive(list(_servers_for(data, kinds, span)))) for span in SPANS),
        (f"days on {gpus:,.0f} servers", "d", _time(data, kinds)),
        *((f"power of those for {span} days", "W", derive(list(_power_for(data, kinds, span)))) for span in SPANS),
        ("cost of the run", "USD", _cost(data, kinds)),
    ]


def _servers_for(data: Dataset, kinds: Sequence[Server], span: int) -> Iterator[Work]:
    flop, labels = run_flop(data, LARGEST), {**_largest(data), "days": span}
    for one in kinds:
        yield one.work(SERVERS, labels, F=flop, d=_days(span))


def _power_for(data: Dataset, kinds: Sequence[Server], span: int) -> Iterator[Work]:
    flop, labels = run_flop(data, LARGEST), {**_largest(data), "days": span}
    for one in kinds:
        yield one.work(POWER, labels, F=flop, d=_days(span), e=assumed(1000.0, "W", _WATTS, 500.0, 2000.0))


def _time(data: Dataset, kinds: Sequence[Server]) -> DerivedEstimates:
    flop, gpus = run_flop(data, LARGEST), documented(data, f"{LARGEST}.gpus")
    return derive([one.work(TIME, _largest(data), F=flop, n=gpus) for one in kinds])


def _cost(data: Dataset, kinds: Sequence[Server]) -> DerivedEstimates:
    flop = run_flop(data, LARGEST)
    return derive([one.work(COST, _largest(data), F=flop, p=one.price) for one in kinds if one.price is not None])


@quantity(
    "cluster.servers",
    unit="servers",
    tier="derived",
    needs=_NEEDS,
    labels=(*_LABELS, "days"),
    says="The largest run takes {value} ({labels})",
    formulas=tuple(SERVERS.values()),
)
def cluster_servers(data: Dataset) -> DerivedEstimates:
    """Servers that can be hired, on which Llama 3.1 405B would be trained in 54 or in 90 days."""
    kinds = servers(data, priced=True)
    return derive([work for span in SPANS for work in _servers_for(data, kinds, span)])


@quantity(
    "cluster.days",
    unit="d",
    tier="derived",
    needs=_NEEDS,
    labels=_LABELS,
    says="The largest run takes as many servers as it had GPUs {value} ({labels})",
    formulas=tuple(TIME.values()),
)
def cluster_days(data: Dataset) -> DerivedEstimates:
    """Days of training Llama 3.1 405B on as many servers as Meta had GPUs."""
    return _time(data, servers(data, priced=True))


@quantity(
    "cluster.power",
    unit="W",
    tier="derived",
    needs=_NEEDS,
    labels=(*_LABELS, "days"),
    says="The largest run takes {value} ({labels})",
    formulas=tuple(POWER.values()),
)
def cluster_power(data: Dataset) -> DerivedEstimates:
    """Power of the servers of `cluster.servers`, at an assumed power of one; cooling comes on top."""
    kinds = servers(data, priced=True)
    return derive([work for span in SPANS for work in _power_for(data, kinds, span)])


@quantity(
    "cluster.cost",
    unit="USD",
    tier="derived",
    needs=_NEEDS,
    labels=_LABELS,
    says="The largest run takes {value} ({labels})",
    formulas=tuple(COST.values()),
)
def cluster_cost(data: Dataset) -> DerivedEstimates:
    """Server hours of training Llama 3.1 405B by their hourly price, whatever their number."""
    return _cost(data, servers(data, priced=True))


@quantity(
    "ladder.cpu_cluster_cost_ratio",
    unit="1",
    tier="derived",
    needs=_NEEDS,
    labels=_LABELS,
    says="On CPU servers, the run would cost {value} times what it cost on GPUs ({labels})",
    formulas=(*RATIO.values(), RELATION),
)
def cost_ratio(data: Dataset) -> DerivedEstimates:
    """Cost of training Llama 3.1 405B on servers without GPUs over that of its GPU hours, both by the hour.

    measured, documented, rated as in `ladder.servers_for_90_days`, of servers as they are priced. documented stands
    there twice: by the operations of BERT large, and by how much longer the same job took those servers than a
    machine with eight GPUs. Prices: of one seller, on demand, by the hour, place and date beside them.
    """
    gpu = _gpu_price(data)
    cost = {"G": documented(data, f"{LARGEST}.gpu_hours"), "q": gpu, "g": documented(data, f"{GPU_MACHINE}.gpus")}
    flop, labels, kinds, works = run_flop(data, LARGEST), _largest(data), servers(data, priced=True), []
    for one in kinds:
        if one.price is None:
            continue
        works.append(one.work(RATIO, labels, F=flop, p=one.price, **cost))
        if one.evidence == "documented":
            shared = {symbol: one.inputs[symbol] for symbol in ("Q", "m", "c", "x", "v")}
            inputs = {"H": documented(data, _EIGHT), **shared, "p": one.price, "q": gpu}
            many = f"{shared['m'].value:g}"
            detail = f"as {many} of them trained BERT large in MLPerf Training 3.1, held against a machine with GPUs"
            works.append(Work({**one.labels, **labels}, RELATION, inputs, detail))
    return _told_apart(derive(works)).with_beside(*table(data, kinds))


def _gpu_price(data: Dataset) -> Input:
    entry = data.entry(f"{GPU_MACHINE}.usd_per_hour")
    what = f"{entry['subject']}, on demand, us-east-1, {entry['date']}; beside it {OTHER_GPU_MACHINE}"
    return documented(data, f"{GPU_MACHINE}.usd_per_hour", [f"{OTHER_GPU_MACHINE}.usd_per_hour"], what=what)


def _told_apart(cells: DerivedEstimates) -> DerivedEstimates:
    """Two ways to read one source are cells of their own."""
    by = ["relation to GPUs" if work.formula is RELATION else "operations" for work in cells.works]
    return cells.label(by=by)
