"""Reference figures, which are published figures with their sources: read, validate and format them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml, yaml_place
from report import PACKAGE, ROOT
from report.formatting import format_interval

REFERENCE = ROOT / "data" / "reference"
SCHEMA = json.loads((PACKAGE / "schemas" / "reference.schema.json").read_text(encoding="utf-8"))


def read_reference(directory: Path) -> dict[str, dict[str, Any]]:
    """Read the reference entries in the YAML files in `directory`, by id. The dict is empty if the folder is missing.

    Raises StudyError if a file breaks the schema, an id is used twice, or a value lies outside its range.
    """
    entries: dict[str, dict[str, Any]] = {}
    places: dict[str, Path] = {}
    for path in sorted(directory.glob("*.yaml")):
        for entry in read_entries(path):
            name = entry["id"]
            if name in entries:
                raise StudyError(f"{path}: the id {name!r} is used twice, first in {places[name]}")
            entries[name] = entry
            places[name] = path
    return entries


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    """Read and validate the entries in a file. Raises StudyError, like `read_reference`."""
    for number, entry in enumerate(read_yaml(path, SCHEMA) or []):
        name, value = entry["id"], entry.get("value")
        if value is not None and not entry.get("low", value) <= value <= entry.get("high", value):
            raise StudyError(f"{yaml_place(path, number)}: {name}: value {value} does not lie between low and high")
        # YAML parses 2024-07-23 as a date and 2024 as a number; convert both to text.
        date = str(entry["date"])
        if not re.fullmatch(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-[0-3]\d)?)?|not [a-z ]+", date, re.ASCII):
            where = yaml_place(path, number, "date")
            raise StudyError(f"{where}: {name}: {date!r} is no date: write 2024, 2024-07, 2024-07-23 or not stated")
        yield {**entry, "date": date}


def source_record(entry: dict[str, Any]) -> dict[str, str]:
    """Return an entry's source with its date and status, for the report's list of sources."""
    return {**entry["source"], "date": entry["date"], "status": entry["status"]}


def format_figure(entry: Mapping[str, Any]) -> str:
    """Format an entry's figure, as in '3.35 TB/s', '780 [650, 780] GB/s', 'yes', '2022' or 'no figure'."""
    value = entry.get("value")
    if value is None:
        return "no figure"
    if isinstance(value, bool):
        return "yes" if value else "no"
    # Format a year without a thousands separator.
    if str(entry["what"]).startswith("Year "):
        return f"{value:g}"
    low, high = (float(entry.get(end, value)) for end in ("low", "high"))
    return format_interval(float(value), low, high, str(entry["unit"]))
