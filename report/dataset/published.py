"""Tables of what others published: records, sources, names, reference figures and prices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from report.data.gpu_specs import FIGURES
from report.data.names import KINDS, read_names, read_subjects
from report.data.published_records import Published, date_span, with_derived
from report.data.table_rows import row_dicts
from report.dataset.declaration import dataset_unit, tables

Row = dict[str, Any]
Entries = Mapping[str, Mapping[str, Any]]
# Columns of records that data/published has under another name.
_RENAMED = {
    "record_id": "key", "source_id": "source", "gpu_as_printed": "gpu", "cpu_as_printed": "cpu",
    "model_as_printed": "model", "locator": "where", "spread_low": "low", "spread_high": "high",
}  # fmt: skip
_PRICES = {"USD/h": "hour", "USD": "purchase"}
# Columns of accelerators for verified ratings, by the attribute in data/reference.
_RATINGS = {name: f"rated_{name}" for name in FIGURES}


def record_rows(published: Published) -> list[Row]:
    """Return a row per record, in the order of its source's file."""
    whole = {column.name for column in tables()["records"].columns if column.type == "integer"}
    rows = []
    for record in row_dicts(with_derived(published.records)):
        row = {
            name: _to_plain_value(record[_RENAMED.get(name, name)], name in whole) for name in tables()["records"].names
        }
        rows.append(row)
    return rows


def _to_plain_value(value: Any, whole: bool) -> Any:
    """Return None for a missing number, an int for a whole number that is stored as float, and a date as text."""
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if whole else value
    return value.isoformat() if isinstance(value, date) else value


def source_rows(published: Published) -> list[Row]:
    """Return a row per source."""
    counts = Counter(published.records["source"])
    return [
        {
            **source,
            "source_id": name,
            "family": published.family(name),
            "date": str(source["date"]),
            "records": counts[name],
        }
        for name, source in published.sources.items()
    ]


def name_tables(published: Published, reference: Entries) -> Iterator[tuple[str, list[Row]]]:
    """Yield the tables of things and of their spellings: name and rows."""
    for kind, column in KINDS.items():
        names = read_names(kind)
        used = published.records[published.records["device"] == "cpu"] if kind == "cpu" else published.records
        counts = Counter(used[column])
        ratings = _ratings(reference) if kind == "accelerator" else {}
        yield (
            f"{kind}s",
            [
                {**_numbers(f"{kind}s", row), "records": counts[row[column]], **ratings.get(row[column], {})}
                for row in names.things
            ],
        )
        yield f"{kind}_names", [_numbers(f"{kind}_names", row) for row in names.spellings]


def _numbers(table: str, row: Mapping[str, str]) -> Row:
    """Convert the columns of a CSV row that are numbers."""
    types = {column.name: column.type for column in tables()[table].columns}
    convert = {"integer": int, "number": float}
    return {
        name: (convert[types[name]](text) if text else None) if types.get(name) in convert else text
        for name, text in row.items()
    }


def _ratings(reference: Entries) -> dict[str, Row]:
    """Return the verified ratings of each accelerator, by column."""
    ratings: dict[str, Row] = {}
    for name, entry in reference.items():
        subject, _, attribute = name.rpartition(".")
        about = read_subjects().get(subject, {})
        # A subject with a dot names who measured it, such as mamf.h100-sxm: no rating.
        rated = about.get("kind") == "accelerator" and "." not in subject and attribute in _RATINGS
        if rated and entry["status"] == "verified":
            ratings.setdefault(about["id"], {})[_RATINGS[attribute]] = entry.get("value")
    return ratings


def reference_rows(reference: Entries) -> list[Row]:
    """Return a row per reference entry."""
    rows = []
    for name, entry in reference.items():
        subject, _, attribute = name.rpartition(".")
        value, source = entry.get("value"), entry["source"]
        number = None if value is None else float(value)
        rows.append(
            {
                **_subject_ids(subject),
                "reference_id": name,
                "subject": subject,
                "attribute": attribute,
                "subject_name": entry["subject"],
                "means": entry["what"],
                "value": number,
                "low": _float(entry.get("low")),
                "high": _float(entry.get("high")),
                "unit": _reference_unit(entry, attribute),
                "date": entry["date"],
                "status": entry["status"],
                **{key: source.get(key, "") for key in ("title", "publisher", "url")},
                "locator": source.get("where", ""),
                "note": entry.get("note", ""),
            }
        )
    return rows


def _reference_unit(entry: Mapping[str, Any], attribute: str) -> str:
    """Return a figure's unit; without a dimension, what it is: yes or no, a year, a count, a share or a ratio."""
    value, unit = entry.get("value"), str(entry.get("unit") or "")
    if isinstance(value, bool):
        return "yes or no"
    if unit == "1" and str(entry["what"]).startswith("Year "):
        return "year"
    return "count" if unit == "1" and isinstance(value, int) else dataset_unit(unit, attribute)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _subject_ids(subject: str) -> Row:
    """Return the id of a reference subject under the column of its kind, and the number of devices of a system."""
    about = read_subjects().get(subject, {})
    kind, name = about.get("kind", ""), about.get("id", "")
    if kind == "system":
        kind = "accelerator" if name in {row["accelerator_id"] for row in read_names("accelerator").things} else "cpu"
    devices = int(about["count"]) if about.get("count") else None
    return {**({KINDS[kind]: name} if kind in KINDS and name else {}), "devices": devices}


def _is_card(subject: str) -> bool:
    return read_subjects().get(subject, {}).get("kind") == "accelerator"


def _date_ends(text: str) -> Row:
    """Return first and last day of a reference entry's date; none if the source states no date."""
    ends = date_span(text) if text[:1].isdecimal() else None
    return {} if ends is None else {"date_from": ends[0].isoformat(), "date_to": ends[1].isoformat()}


def price_rows(published: Published, reference: Entries) -> list[Row]:
    """Return a row per price, from records and from reference entries in USD or USD/h."""
    rows = []
    for record in record_rows(published):
        if record["unit"] in _PRICES:
            rows.append(
                {
                    "price_id": record["record_id"],
                    "kind": "record",
                    "accelerator_id": record["accelerator_id"],
                    "cpu_id": "" if record["accelerator_id"] else record["cpu_id"],
                    "devices": record["gpus"] if record["accelerator_id"] else record["cpus"],
                    "publisher": record["measured_by"],
                    "offer": record["setting"] or record["model_as_printed"],
                    "usd": record["value"],
                    "per": _PRICES[record["unit"]],
                    **{name: record[name] for name in ("date_from", "date_to", "copy_of")},
                }
            )
    for entry in reference_rows(reference):
        if entry["unit"] in _PRICES and entry["value"] is not None:
            rows.append(
                {
                    **{name: entry.get(name) for name in ("accelerator_id", "cpu_id")},
                    **_date_ends(entry["date"]),
                    "price_id": entry["reference_id"],
                    "kind": "reference",
                    "publisher": entry["publisher"],
                    "offer": entry["subject_name"],
                    "status": entry["status"],
                    # A price of a card, not of a system, is of one.
                    "devices": entry.get("devices") or (1 if _is_card(entry["subject"]) else None),
                    "usd": entry["value"],
                    "per": _PRICES[entry["unit"]],
                }
            )
    return rows
