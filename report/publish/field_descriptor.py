"""Describe a column as a Data Package does: https://datapackage.org/standard/table-schema/."""

from __future__ import annotations

from typing import Any

PROFILE = "https://datapackage.org/profiles/2.0"


def field_descriptor(name: str, kind: str, meaning: str, unit: str = "", required: bool = False) -> dict[str, Any]:
    """Return a field. kind: string, integer, number or boolean. The property `unit` is our extension."""
    field: dict[str, Any] = {"name": name, "type": kind, "description": meaning, **({"unit": unit} if unit else {})}
    if kind == "string":
        # An empty text means "not applicable", so readers must not take it for a missing value.
        field["missingValues"] = []
    elif required:
        field["constraints"] = {"required": True}
    return field
