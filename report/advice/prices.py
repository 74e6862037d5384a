"""Prices for the adviser: by the hour from published records, and chips at launch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from report.advice.chips import Machine, UnknownNameError, find_machine
from report.data.names import read_rows
from report.data.published_records import PUBLISHED
from report.data.reference_figures import REFERENCE, read_reference

# Records with prices for one GPU and hour, on demand.
RENTED = PUBLISHED / "cloud-gpus.csv"
# A rented machine with processors alone, whose price is shared out among its cores.
_CPU_HOUR, _CPU_CORES = "aws-m7a.48xlarge.usd_per_hour", "aws-m7a.48xlarge.cores"


@cache
def hourly_price_lists(path: Path = RENTED) -> Mapping[str, list[float]]:
    """Return all prices for one GPU and hour in USD, by chip."""
    prices: dict[str, list[float]] = {}
    for row in read_rows(path):
        if row["measure"] != "price-per-hour" or not row["gpu"]:
            continue
        try:
            chip = find_machine(row["gpu"]).chip
        except UnknownNameError:
            continue
        prices.setdefault(chip, []).append(float(row["value"]))
    return prices


@cache
def hourly_prices(path: Path = RENTED) -> Mapping[str, float]:
    """Return the median price for one GPU and hour in USD, by chip."""
    return {chip: statistics.median(values) for chip, values in hourly_price_lists(path).items()}


@cache
def core_price(reference: Path = REFERENCE) -> float:
    """Return the price for a server's core and hour in USD."""
    figures = read_reference(reference)
    return float(figures[_CPU_HOUR]["value"]) / float(figures[_CPU_CORES]["value"])


def rent(machine: Machine) -> float | None:
    """Return a machine's price for an hour in USD; None if no price is known."""
    if machine.kind == "cpu-server":
        return core_price() * (machine.threads or machine.cores * machine.count)
    hour = hourly_prices().get(machine.chip)
    return None if hour is None else hour * machine.count


def purchase(machine: Machine) -> float | None:
    """Return the price in USD to buy a machine's chips at launch; None if it is not known."""
    return None if machine.usd is None else machine.usd * machine.count
