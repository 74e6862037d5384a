"""Meanings of the samples' metrics and parameters, from `dictionary.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from contract.files import read_yaml

# Python types of the values that a parameter with a type may have.
TYPES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool, type(None)),
    "integer": (int, type(None)),
    "number": (int, float, type(None)),
    "text": (str, int, float, bool, type(None)),
}


@cache
def dictionary() -> Mapping[str, Any]:
    """Return the dictionary: `parameters` and `metrics` by name or pattern, and `items` by experiment."""
    document: Mapping[str, Any] = read_yaml(Path(__file__).with_name("dictionary.yaml"))
    return document


def parameter_entry(name: str) -> Mapping[str, Any]:
    """Return a parameter's type, unit and meaning; empty for a parameter that is not in the dictionary."""
    entry: Mapping[str, Any] = dictionary()["parameters"].get(name, {})
    return entry


@cache
def metric_entry(name: str) -> Mapping[str, Any]:
    """Return a metric's unit, meaning and better direction; empty for a metric that matches no entry."""
    metrics: Mapping[str, Mapping[str, Any]] = dictionary()["metrics"]
    if name in metrics:
        return metrics[name]
    return next((entry for pattern, entry in metrics.items() if fnmatchcase(name, pattern)), {})


def count_items(experiment: str, params: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return the name of the items that one call of a point processes, and their number; ('', None) if it has none."""
    entry: Mapping[str, Any] = dictionary()["items"].get(experiment, {})
    count = params.get(entry.get("parameter", ""))
    if any(params.get(name) != value for name, value in entry.get("when", {}).items()):
        count = entry["otherwise"]
    if isinstance(count, bool) or not isinstance(count, (int, float)):
        return "", None
    return str(entry["item"]), float(count)
