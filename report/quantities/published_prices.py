"""GPU prices to buy and to hire, from published lists, and ratings of cards, compared to published speeds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.data.table_rows import row_dicts
from report.derivations import is_verified
from report.estimates import Estimates, exact_estimates
from report.formatting import format_count
from report.quantities.published import extreme_record, gpu_kind, published_quantity, with_speeds, without_copies
from report.quantities.published_speeds import SPEEDUP_LABELS, speedup

# HIRED: for each GPU kind, the machine whose hourly price stands for it. HIRED_CPU: the machine whose hourly price
# stands for a server with two 56-core processors.
HIRED = {"H100 SXM": "aws-p5.48xlarge", "A100 SXM": "aws-p4d.24xlarge"}
HIRED_CPU = "aws-c7i.48xlarge"
# ALONE: GPU kinds for which both a price and a training of BERT_LARGE in MLPerf are published.
BERT_LARGE, ALONE = "BERT-large", {**HIRED, "L4": "aws-g6.xlarge"}
# CARDS: for each card with a rating, its ids in the published records, which seldom tell the memory of an RTX 4060 Ti.
# MEASURED: for each rated figure, the task, measure and format of the records that test it.
CARDS = {
    "rtx-3060-12gb": ("rtx-3060-12gb",),
    "rtx-3060-ti": ("rtx-3060-ti",),
    "rtx-3070": ("rtx-3070",),
    "rtx-4060": ("rtx-4060",),
    "rtx-4060-ti-16gb": ("rtx-4060-ti", "rtx-4060-ti-16gb"),
}
MEASURED = {"fp32_flops": ("product", "flops", "bfloat16"), "memory_bytes_per_s": ("triad", "bandwidth", "float32")}
_SELLERS = [f"on demand, {seller}" for seller in ("AWS", "Azure", "GCP", "Lambda")]


@published_quantity("published.speedup_over_price_ratio", "1", SPEEDUP_LABELS)
def speedup_over_price_ratio(data: Dataset) -> Estimates:
    """Speed-up over a two-processor server, divided by the hourly price ratio: above 1 the GPU is cheaper.

    The GPU's price is its share of AWS's machine with eight such GPUs. The CPU's price is that of AWS's largest machine
    with processors from the server's generation (96 cores), as a stand-in for the server's 112 cores. Prices are from
    data/reference/prices.yaml. Raises MissingSourceError.
    """
    speedups = speedup(data).filter(baseline="server", task=["train-to-target"])
    parts = []
    for kind, machine in HIRED.items():
        hour = data.figure(f"{machine}.usd_per_hour") / data.figure(f"{machine}.gpus")
        ratio = hour / data.figure(f"{HIRED_CPU}.usd_per_hour")
        rows = speedups.filter(gpu=kind)
        parts += row_dicts((rows * (1 / ratio)).frame)
    return exact_estimates(parts)


@published_quantity("published.training_cost", "USD", ("machine", "price", "hours", "source", "family", "records"))
def training_cost(data: Dataset) -> Estimates:
    """Price of training BERT-large as MLPerf does, on one GPU or one server: its hours x AWS's price for an hour.

    machine: a GPU kind, or `server` for two processors without GPUs. price: the machine in data/reference/prices.yaml.
    hours: the time of the fastest entry with the fewest GPUs or servers, times their number, as if each worked as well
    alone. low, high: by the spread of the entry's runs. Raises MissingSourceError.
    """
    records = without_copies(data.published.records)
    runs = with_speeds(records[(records["task"] == "train-to-target") & (records["model"] == BERT_LARGE)])
    runs = runs.assign(kind=runs["gpu"].map(gpu_kind).where(runs["device"] == "gpu", "server"))
    rows = []
    for kind, machine in {"server": HIRED_CPU, **ALONE}.items():
        mine = runs[runs["kind"] == kind]
        if not len(mine):
            continue
        count = mine["nodes" if kind == "server" else "gpus"].fillna(1)
        entry = extreme_record(mine[count == count.min()], "speed")
        gpus = 1.0 if kind == "server" else data.figure(f"{machine}.gpus")
        hourly = data.figure(f"{machine}.usd_per_hour") / gpus
        hours = {end: 1 / float(entry[speed]) / 3600 for end, speed in _ENDS.items()}
        rows.append(
            {
                "machine": kind,
                "price": machine,
                "hours": hours["estimate"],
                "source": entry["source"],
                "family": data.published.family(str(entry["source"])),
                "records": entry["key"],
                **{end: hourly * time for end, time in hours.items()},
            }
        )
    return exact_estimates(rows)


# The speed that gives each end of a time.
_ENDS = {"estimate": "speed", "low": "fastest", "high": "slowest"}


@published_quantity("published.break_even_hours", "h", ("gpu", "source", "family", "records"))
def break_even_hours(data: Dataset) -> Estimates:
    """Hours after which buying a GPU costs as much as hiring it: purchase price / hourly price for the same GPU kind.

    Two lists have purchase prices. Those of a seller are divided by the hourly prices that AWS, Azure, GCP and Lambda
    ask, and those of a collection by AWS's prices in data/reference. low: cheapest purchase and dearest hour; high: the
    reverse. Two costs are left out: power, which the buyer pays too, and the rest of the machine, which only the hourly
    price includes. Raises MissingSourceError.
    """
    records = without_copies(data.published.records)
    # Ignore the form factor, because price lists seldom report it.
    records = records.assign(kind=records["gpu"].map(gpu_kind).str.replace(r" (SXM|PCIe|NVL)$", "", regex=True))
    hired = records[(records["measure"] == "price-per-hour") & records["setting"].isin(_SELLERS)]
    hours = {str(kind): list(hire / many) for kind, hire, many in _prices_by_kind(hired)}
    aws_hours = {
        kind.split()[0]: [data.figure(f"{machine}.usd_per_hour") / data.figure(f"{machine}.gpus")]
        for kind, machine in HIRED.items()
    }
    rows = []
    for source, hourly in (("lambda-prices", hours), ("epoch-ml-hardware", aws_hours)):
        bought = records[(records["source"] == source) & (records["measure"] == "price")]
        for kind, prices in bought.groupby("kind", observed=True):
            hire = hourly.get(str(kind))
            if hire:
                rows.append(
                    {
                        "gpu": kind,
                        "source": source,
                        "family": data.published.family(source),
                        "records": " ".join(
                            [*prices["key"], *(hired.loc[hired["kind"] == kind, "key"] if hourly is hours else ())]
                        ),
                        "estimate": float(prices["value"].median() / np.median(hire)),
                        "low": float(prices["value"].min() / max(hire)),
                        "high": float(prices["value"].max() / min(hire)),
                        "detail": f"{format_count(len(prices), 'price')} and {format_count(len(hire), 'hourly price')}",
                    }
                )
    return exact_estimates(rows)


def _prices_by_kind(hired: pd.DataFrame) -> Iterator[tuple[str, Any, Any]]:
    for kind, alike in hired.groupby("kind", observed=True):
        yield str(kind), alike["value"].to_numpy(float), alike["gpus"].fillna(1).to_numpy(float)


@published_quantity("published.rating_error", "1", ("rating", "of", "to", "source", "family", "records"))
def rating_error(data: Dataset) -> Estimates:
    """Error of two cards' ratio by their ratings, relative to their ratio as one source measured it; 0 without error.

    rating: fp32_flops, tested by the fastest bfloat16 product, because the makers' fp32 rates stand for matrix units
    too; or memory_bytes_per_s, tested by the fastest pass over arrays in memory. Only verified ratings are compared.
    """
    records = data.published.records
    rows = []
    for rating, (task, measure, dtype) in MEASURED.items():
        alike = records[(records["task"] == task) & (records["measure"] == measure) & (records["dtype"] == dtype)]
        for source, same in without_copies(alike).groupby("source", observed=True):
            best = {}
            for card, ids in CARDS.items():
                measured = same[same["accelerator_id"].isin(ids)]
                if len(measured) and is_verified(data, f"{card}.{rating}"):
                    best[card] = extreme_record(measured, "value")
            for of, to in combinations(best, 2):
                rated = data.figure(f"{of}.{rating}") / data.figure(f"{to}.{rating}")
                rows.append(
                    {
                        "rating": rating,
                        "of": of,
                        "to": to,
                        "source": source,
                        "family": data.published.family(str(source)),
                        "records": f"{best[of]['key']} {best[to]['key']}",
                        "estimate": rated / (best[of]["value"] / best[to]["value"]) - 1,
                    }
                )
    return exact_estimates(rows)
