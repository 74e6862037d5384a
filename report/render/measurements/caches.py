"""Sizes of caches: as the system tells them, and as the latency of loads shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from report.render.measurements.base import View
from report.render.measurements.marks import known, records


def caches(record: Mapping[str, Any]) -> list[tuple[str, float, int]]:
    """Level, bytes of one instance, and instances, of the caches that hold data."""
    cpu = (record.get("hardware") or {}).get("cpu")
    told = cpu.get("caches") if isinstance(cpu, Mapping) else None
    found = []
    for level, cache in (told or {}).items():
        if level != "L1i" and isinstance(cache, Mapping) and cache.get("bytes"):
            instances = int(cache.get("instances") or 1)
            found.append((str(level), cache["bytes"] / instances, instances))
    return found


def within_reach(told: Iterable[tuple[str, float, int]], threads: int) -> list[dict[str, Any]]:
    """Told sizes as marks: one thread has one core's caches; all threads have as many as there are instances."""
    return [{"x": each * min(instances, max(1, int(threads))), "label": level} for level, each, instances in told]


def steps(view: View, device: str) -> list[dict[str, float | None]]:
    """Where the latency rises from one plateau to the next, in bytes (estimate, low, high), smallest first."""
    found = records(view.quantity("sequential.cache_level", device=device))
    made = [{name: known(step[name]) for name in ("estimate", "low", "high")} for step in found]
    return sorted(made, key=lambda step: step["estimate"] or 0.0)


def bands(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Such steps as marks."""
    return [{"x": step["estimate"], "low": step["low"], "high": step["high"], "label": ""} for step in found]
