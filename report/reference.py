"""Published figures: read, checked, and given as sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "reference.schema.json").read_text(encoding="utf-8"))


def read_reference(directory: Path) -> dict[str, dict[str, Any]]:
    """All reference entries under `directory` (*.yaml), by id; none if there is no such folder.

    Raises StudyError for a file that breaks the schema, an id that is used
    twice, or a range that does not hold its value.
    """
    entries: dict[str, dict[str, Any]] = {}
    places: dict[str, Path] = {}
    for path in sorted(directory.glob("*.yaml")):
        for entry in read_yaml(path, SCHEMA) or []:
            name = entry["id"]
            if name in entries:
                raise StudyError(f"{path}: the id {name!r} is used twice, first in {places[name]}")
            value = entry.get("value")
            if value is not None and not entry.get("low", value) <= value <= entry.get("high", value):
                raise StudyError(f"{path}: {name}: value {value} does not lie between low and high")
            # YAML reads 2024-07-23 as a date and 2024 as a number; a source's date is text.
            entries[name] = {**entry, "date": str(entry["date"])}
            places[name] = path
    return entries


def source(entry: dict[str, Any]) -> dict[str, str]:
    """An entry's source as the report lists it."""
    return {**entry["source"], "date": entry["date"], "status": entry["status"]}
