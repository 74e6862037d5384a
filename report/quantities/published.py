"""Quantities from published measurements, as reported, which a claim may name under `published`.

Every estimate names its source and its `family`; sources in one family are not independent. The study has no rounds
behind these figures, so low and high are the spread that the source reports, or the range over entries with the same
hardware. `report.judging.rules.PublishedEnds` describes when these figures can decide a claim. The modules
`report.quantities.published_speeds`, `report.quantities.published_chips` and `report.quantities.published_prices`
derive further quantities.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report.data.dataset import Dataset
from report.data.published_records import LESS_IS_BETTER, QUANTITY_UNITS
from report.data.table_rows import row_dicts
from report.estimates import Estimates, exact_estimates
from report.formatting import short_processor
from report.quantities import Compute, quantity

_KINDS = re.compile(
    r"\b(G[BH]\d{2,3}|[BH]\d{2,3}|A\d{1,3}[GX]?|L\d{1,2}S?|T4|V100|P100|P4|P40|K\d{2,3}[cm]?|M\d{2})\b"
    r"|(?:RTX|GTX|TITAN|Quadro|Arc|Jetson|MI)[ -]?\w+(?: (?:Ti|SUPER|Ada|D|Orin|AGX|NX|Nano|A?\d{4}|B\d\d)\b)*",
    re.I,
)
published_quantity = partial(quantity, tier="published")
LABELS = ("source", "family", "task", "model", "setting", "batch", "measure", "records")


def gpu_kind(name: str) -> str:
    """Shorten a GPU's name to its kind: 'NVIDIA H100-SXM-80GB' to 'H100 SXM'."""
    text = re.sub(r"\((?:R|TM)\)|[-_/]", lambda match: "" if "(" in match[0] else " ", name)
    match = _KINDS.search(text)
    if match is None:
        return " ".join(text.split())[:40]
    form = next((form for form in ("SXM", "PCIe", "NVL") if re.search(form, text, re.I)), "")
    mobile = "laptop" if re.search(r"laptop|mobile|max q|\d{3,4}m\b", text, re.I) else ""
    return " ".join(filter(None, (match[0], form if match[1] else "", mobile)))


def cpu_kind(name: str) -> str:
    """Shorten a processor's name: 'Intel(R) Xeon(R) Platinum 8480+' to 'Xeon Platinum 8480+'."""
    short = re.sub(r"\b(intel|amd)\b", "", short_processor(name), flags=re.I)
    readable = re.sub(r"\(code named ([^)]+)\)|code named (.+)", r"\1\2", short)
    return " ".join(word.capitalize() if word in ("XEON", "PLATINUM", "GOLD") else word for word in readable.split())


def machine_name(record: Mapping[str, Any]) -> str:
    """Return a record's GPU, or the processors in one machine for a CPU record: '2 x Xeon Platinum 8480+'."""
    if record["device"] == "gpu":
        return gpu_kind(str(record["gpu"]))
    nodes = record["nodes"] if record["nodes"] == record["nodes"] else 1
    sockets = record["cpus"] / nodes if record["cpus"] == record["cpus"] else 1
    name = cpu_kind(str(record["cpu"]))
    return f"{int(sockets)} x {name}" if sockets > 1 else name


def with_speeds(records: pd.DataFrame) -> pd.DataFrame:
    """Add the columns slowest, speed and fastest: each record's speed with bounds, per GPU or CPU machine.

    A speed is a rate, or the reciprocal of a time.
    """
    turned = records["measure"].isin(LESS_IS_BETTER).to_numpy()
    # The GPUs or machines in one entry share the load, so divide by their number, unless the source did so. A latency
    # is not divided: a single request runs on one device.
    single = ((records["measure"] == "latency") | (records["per"] == "device")).to_numpy()
    shared = np.where(records["device"] == "gpu", records["gpus"].fillna(1), records["nodes"].fillna(1))
    shared = np.where(single, 1.0, shared)
    value = records["value"].to_numpy(float)
    low, high = (records[name].fillna(records["value"]).to_numpy(float) for name in ("low", "high"))
    with np.errstate(divide="ignore"):
        ends = np.where(turned, 1 / high, low), np.where(turned, 1 / value, value), np.where(turned, 1 / low, high)
    names = ("slowest", "speed", "fastest")
    return records.assign(**{name: end / shared for name, end in zip(names, ends, strict=True)})


def without_copies(records: pd.DataFrame) -> pd.DataFrame:
    """Return the records without those that repeat an earlier result, so that each result counts once."""
    return records[records["copy_of"] == ""]


def value_or_default(value: float, other: float) -> float:
    """Return a figure, or a default if the source does not report it."""
    return other if math.isnan(value) else float(value)


def extreme_record(records: pd.DataFrame, by: str, least: bool = False) -> dict[str, Any]:
    """Return the record with the largest (or least) value in a column."""
    values = records[by].to_numpy(float)
    record = records.iloc[int(values.argmin() if least else values.argmax())]
    return {str(name): value for name, value in record.items()}


def estimate_bounds(record: Mapping[str, Any], times: float = 1.0) -> dict[str, float]:
    """Return a record's figure and bounds, multiplied by `times`. A missing bound equals the figure."""
    ends = (("estimate", "value"), ("low", "low"), ("high", "high"))
    return {name: times * value_or_default(record[column], record["value"]) for name, column in ends}


def groups_varying(records: pd.DataFrame, same: Sequence[str], differ: str) -> Iterator[pd.DataFrame]:
    """Yield groups of records that agree in the columns `same` and have several values in the column `differ`."""
    for positions in _group_positions(records, same, differ):
        yield records.iloc[positions]


def row_groups_varying(records: pd.DataFrame, same: Sequence[str], differ: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the same groups as `groups_varying`, as lists of dictionaries, which are faster for few records."""
    rows = row_dicts(records)
    for positions in _group_positions(records, same, differ):
        yield [rows[number] for number in positions]


def _group_positions(records: pd.DataFrame, same: Sequence[str], differ: str) -> Iterator[NDArray[np.intp]]:
    """Yield row positions for each group in `groups_varying`."""
    work = records.groupby(
        [records[name].astype(str) for name in same], sort=False, dropna=False, observed=True
    ).ngroup()
    several = (records.groupby(work, observed=True)[differ].transform("nunique") > 1).to_numpy()
    where = np.flatnonzero(several)
    for positions in records[several].groupby(work[several], observed=True).indices.values():
        yield where[positions]


def record_labels(data: Dataset, record: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Return an estimate's labels for one record: LABELS, and the columns in `more`, which may include `machine`."""
    columns = {
        **record,
        "batch": None if math.isnan(record["batch"]) else record["batch"],
        "family": data.published.family(str(record["source"])),
        "records": record["key"],
        "machine": machine_name(record),
        "counted": str(record["unit"]).removesuffix("/s"),
    }
    return {name: columns[name] for name in (*LABELS, *more)}


@published_quantity("published.compared", "1", ("comparison", "source", "family", "of", "to", "strength", "records"))
def declared_comparisons(data: Dataset) -> Estimates:
    """Comparisons declared in data/published/comparisons.yaml: one record's figure, divided by another's.

    The figures are as reported, not scaled to one GPU or machine. Each comparison declares a reason why the figures may
    be compared as they are.
    """
    rows = []
    for comparison in data.published.comparisons:
        above, below = (data.published.records_by_key[key] for key in (comparison.of, comparison.over))
        of, over = estimate_bounds(above), estimate_bounds(below)
        families = sorted({data.published.family(str(side["source"])) for side in (above, below)})
        rows.append(
            {
                "comparison": comparison.id,
                "source": " and ".join(dict.fromkeys((str(above["source"]), str(below["source"])))),
                "family": " and ".join(families),
                "of": _side_name(above),
                "to": _side_name(below),
                "strength": comparison.strength,
                "records": f"{comparison.of} {comparison.over}",
                "estimate": of["estimate"] / over["estimate"],
                "low": of["low"] / over["high"],
                "high": of["high"] / over["low"],
                "detail": comparison.why,
            }
        )
    return exact_estimates(rows)


def _side_name(record: Mapping[str, Any]) -> str:
    return f"{machine_name(record)}, {record['task'].replace('-', ' ')}, {record['model']}"


_MORE = ("device", "machine", "dtype", "variant", "gpus")


def _value_labels(measure: str) -> tuple[str, ...]:
    """Return the labels of a measure's figures; for a rate also `counted`: 'tokens', 'samples', …"""
    return (*LABELS, *_MORE, *(("counted",) if measure == "rate" else ()))


def _measure_values(measure: str) -> Callable[[Dataset], Estimates]:
    def values(data: Dataset) -> Estimates:
        records = data.published.records
        rows = []
        for row in row_dicts(without_copies(records[records["measure"] == measure])):
            gpus = None if math.isnan(row["gpus"]) else row["gpus"]
            rows.append(
                {
                    **record_labels(data, row, *_value_labels(measure)[len(LABELS) :]),
                    "gpus": gpus,
                    **estimate_bounds(row),
                    "detail": row["note"],
                }
            )
        return exact_estimates(rows)

    values.__doc__ = f"Published {measure} figures, as reported, each with its work."
    return values


# One quantity per measure: published.rate, published.price, …
VALUES: dict[str, Compute] = {
    measure: published_quantity(f"published.{measure.replace('-', '_')}", unit, _value_labels(measure))(
        _measure_values(measure)
    )
    for measure, unit in QUANTITY_UNITS.items()
}
