"""Numbers, intervals, labels and nodes in words: one place for how the report speaks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

ALLOWED_PREFIX = {"FLOP/s", "B/s", "B", "Hz", "FLOP", "W", "s"}
_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_NOT_SHOWN = {"1", ""}
_DEVICE = {"cpu": "CPU", "gpu": "GPU"}


def prefix(value: float, unit: str) -> tuple[float, str]:
    """Divisor and unit with its SI prefix: (1e9, 'GFLOP/s'). Counts and shares get none."""
    if unit not in ALLOWED_PREFIX or not value or not math.isfinite(value):
        return 1.0, "" if unit in _NOT_SHOWN else unit
    power = 3 * math.floor(math.log10(abs(value)) / 3 + 1e-12)
    low, high = (-12, 0) if unit == "s" else (0, 18)
    power = max(low, min(high, power))
    return 10.0**power, f"{_PREFIXES[power]}{unit}"


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits, whole numbers in full with thousands separated: 27.9, 3,571, 0.0123."""
    if value is None or math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinity"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size >= 15 or size < -5:
        return f"{value:.{digits - 1}e}".replace("e+", "e")
    if size >= digits - 1:
        return f"{value:,.0f}"
    text = f"{value:.{digits - 1 - size}f}"
    return text.rstrip("0").rstrip(".") if float(text) == int(float(text)) else text


def with_unit(value: float | None, unit: str) -> str:
    """A number and its unit: '412 GFLOP/s', '0.93', '67.2 d'."""
    if value is None:
        return "unknown"
    scale, name = prefix(value, unit)
    return f"{number(value / scale)} {name}".strip()


def interval(estimate: float | None, low: float | None, high: float | None, unit: str) -> str:
    """'27.9 [27.1, 28.7] MAC/cycle'; an exact value without brackets; one round says so."""
    if estimate is None:
        return "unknown"
    if low is None or high is None:
        return f"{with_unit(estimate, unit)} (no interval: too few rounds)"
    if low == high:
        return with_unit(estimate, unit)
    scale, name = prefix(estimate, unit)
    digits = 3
    # Digits enough that the bounds differ from the estimate, where the interval is narrow.
    while digits < 6 and len({number(v / scale, digits) for v in (low, estimate, high)}) < 3:
        digits += 1
    shown = [number(v / scale, digits) for v in (estimate, low, high)]
    return f"{shown[0]} [{shown[1]}, {shown[2]}] {name}".strip()


def threshold_text(value: float | Sequence[float], unit: str) -> str:
    """A threshold, or a pair of them, with its unit."""
    if isinstance(value, (int, float)):
        return with_unit(float(value), unit)
    return f"{with_unit(value[0], unit)} to {with_unit(value[1], unit)}"


def several(items: Sequence[str], last: str = "and") -> str:
    """'a', 'a and b', 'a, b and c'."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def count(n: int, noun: str) -> str:
    """'1 cell', '3 cells'."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def label_value(name: str, value: Any) -> str:
    """One label in words: 'float32', '2 threads', 'batch 64', 'footprint 268 MB'."""
    if name in ("device", "kind"):
        return _DEVICE.get(str(value), str(value))
    if name == "threads":
        return "no CPU threads" if value == 0 else count(int(value), "thread")
    if name == "shape":
        return "best shape" if value == "best" else f"shape {value}"
    if name == "backend":
        return "best library" if value == "best" else str(value)
    if name == "precision":
        return f"{value} precision"
    if name == "baseline":
        return {"core": "against one core", "node": "against all cores"}.get(str(value), f"against {value}")
    if name in ("footprint", "size"):
        return f"{name} {with_unit(float(value), 'B')}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{name} {number(float(value))}"
    if name in ("dtype", "model", "op", "phase", "entry"):
        return str(value)
    return f"{name.replace('_', ' ')} {value}"


def labels_text(labels: Mapping[str, Any], leave_out: Sequence[str] = ()) -> str:
    """A cell's labels in words, those that are the same everywhere left out."""
    return ", ".join(
        label_value(name, value)
        for name, value in labels.items()
        if name not in leave_out and not (name == "threads" and value == 0)
    )


def short_processor(name: str) -> str:
    """A processor's name without trademark signs and filler."""
    name = re.sub(r"\((r|tm|c)\)|®|™", "", name, flags=re.IGNORECASE)
    name = re.sub(r"@.*|\b\d+-Core\b|\b(CPU|Processor)\b", "", name)
    return " ".join(name.split())


def node_label(record: Mapping[str, Any]) -> str:
    """A short name of a node: 'AMD EPYC 9654, 2 cores', 'Intel Xeon, 64 cores + 2 × NVIDIA H100'."""
    cpu = record["hardware"].get("cpu") or {}
    about = cpu if isinstance(cpu, Mapping) else {"model": str(cpu)}
    first = next((device["name"] for device in record["devices"] if device["kind"] == "cpu"), "")
    label = short_processor(str(about.get("model") or first or record["id"]))
    cores = about.get("usable_cores") or about.get("cores")
    if cores:
        label += f", {count(int(cores), 'core')}"
    cards = [short_processor(device["name"]) for device in record["devices"] if device["kind"] == "gpu"]
    for card in sorted(set(cards)):
        many = cards.count(card)
        label += f" + {f'{many} × ' if many > 1 else ''}{card}"
    return label
