"""Tables for a node's fingerprint, which may have any keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

from contract.node import count_machines, kind_of_node, parse_job_name
from report.formatting import (
    capitalize,
    count_machines_and_runs,
    format_exact,
    join_words,
    node_label,
    substitutes_text,
)
from report.pages.verdict_words import NOTHING

_NAMES = {
    "cpu": "CPU", "gpus": "GPUs", "os": "operating system", "blas": "BLAS", "simd": "vector extensions",
    "matrix": "matrix extensions", "usable_cores": "cores used", "cores": "cores of the machine",
    "kinds": "kinds of core", "quota": "cores granted by a cgroup", "unknown": "not known",
    "unanswered": "not reported:", "mig": "cut into slices (MIG)", "nvml": "NVML", "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe lanes", "max_sm_clock_mhz": "highest clock", "max_memory_clock_mhz": "highest memory clock",
    "smt": "SMT", "numa_nodes": "NUMA nodes", "ecc": "ECC",
}  # fmt: skip
_UNITS = {"_mt_s": "MT/s", "_kb": "KiB", "_w": "W", "_mhz": "MHz", "_hz": "Hz", "_s": "s", "_c": "°C"}
_HIDDEN = {"family", "model_number"}


def nodes_by_kind(nodes: Sequence[Mapping[str, Any]], shown: Collection[str]) -> list[dict[str, Any]]:
    """Return an entry with these keys for each kind of node that has shown nodes.

    name: name of the kind.
    nodes: each shown node's context from `describe_node`, with a `number` that counts over all kinds.
    several: number of machines or runs in words, '' for a single machine with one run.
    runs: True if a machine was measured more than once.
    """
    nodes_of_kind: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        nodes_of_kind.setdefault(kind_of_node(str(node["id"])), []).append(node)
    rows, number = [], count(1)
    for kind in nodes_of_kind.values():
        ids = [str(node["id"]) for node in kind]
        runs = count_machines(ids) < len(ids)
        summary = count_machines_and_runs(ids) + ("" if runs else " of one kind") if len(ids) > 1 else ""
        described = [{**describe_node(node), "number": next(number)} for node in kind if node["id"] in shown]
        if described:
            rows.append({"name": node_label(kind[0]), "nodes": described, "several": summary, "runs": runs})
    return rows


def describe_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template context for a node from verdicts.json, such as its fingerprint and point counts."""
    statuses = {str(name): int(count) for name, count in (node.get("statuses") or {}).items()}
    duty = node.get("duty")
    return {
        "id": str(node["id"]),
        "label": str(node.get("label") or node["id"]),
        "devices": [
            {
                "id": str(device["id"]),
                "name": str(device.get("name") or ""),
                "memory": _format_bytes(device.get("memory_bytes")),
                "unwatched": str(device.get("unwatched") or ""),
                "substitutes": substitutes_text(device),
            }
            for device in node.get("devices") or []
        ],
        "hardware": _fingerprint_rows(node.get("hardware") or {}),
        "software": _fingerprint_rows(node.get("software") or {}),
        "when": _format_period(str(node.get("started_utc") or ""), str(node.get("ended_utc") or ""))
        + _sessions_text(node)
        + _hosts_text(node),
        "missing": _missing_rounds(node),
        "source": str(node.get("source") or NOTHING),
        "points": f"{int(node.get('n_ok') or 0):,} of {int(node.get('n_points') or 0):,}",
        "statuses": ", ".join(f"{count:,} {name}" for name, count in statuses.items()),
        "duty": f"{duty:.0%}" if isinstance(duty, int | float) else NOTHING,
        "left_out": [str(text) for text in node.get("left_out") or []],
    }


def _format_period(start: str, end: str) -> str:
    """Format a period: '2026-11-22 16:08 to 17:26 UTC', with the end date if it differs."""
    first, last = (time[:16].replace("T", " ") for time in (start, end))
    if not first or not last:
        return first or last or NOTHING
    return f"{first} to {last[11:] if first[:10] == last[:10] else last} UTC"


def _sessions_text(node: Mapping[str, Any]) -> str:
    """State the number of sessions; '' for one."""
    return f", in {node['sessions']} sessions" if int(node.get("sessions") or 1) > 1 else ""


def _hosts_text(node: Mapping[str, Any]) -> str:
    """State that a run continued on other machines of the same kind; '' if it did not."""
    return f", on {node['hosts']} machines of this kind one after another" if int(node.get("hosts") or 1) > 1 else ""


def _missing_rounds(node: Mapping[str, Any]) -> str:
    """List rounds missing after an interruption; '' if none."""
    rounds: dict[str, list[str]] = {}
    for name in node.get("missing") or []:
        job, _, number = str(name).rpartition(".")
        rounds.setdefault(job, []).append(number)
    if not rounds:
        return ""
    missing = [f"{' on '.join(parse_job_name(name))} (round {join_words(numbers)})" for name, numbers in rounds.items()]
    return f"Measuring ended early. Missing: {'; '.join(missing)}."


def _format_bytes(count: Any) -> str:
    """Format bytes with binary prefixes, as for caches and memory: 1.5 MiB."""
    if not isinstance(count, int | float) or not count:
        return NOTHING
    for name in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{format_exact(float(f'{count:.3g}'))} {name}"
        count /= 1024
    return f"{format_exact(float(f'{count:.3g}'))} TiB"


def _fingerprint_rows(record: Mapping[str, Any], before: str = "") -> list[dict[str, str]]:
    """Return a row per value: nested keys are joined to one name ('CPU, model'), and numbers get units."""
    rows = []
    for key, value in record.items():
        if key in _HIDDEN or value in (None, "", [], {}):
            continue
        if key == "caches":
            value = ", ".join(_format_cache(level, cache) for level, cache in value.items())
        if key == "kinds":
            value = [f"{kind.get('cores', 'some')} {kind['name']}" for kind in value]
        name = _NAMES.get(key, _key_words(key))
        if not before:
            name = capitalize(name)
        if key == "packages":
            value = ", ".join(f"{package} {version}" for package, version in value.items())
        if key == "backends":
            value = "; ".join(f"{backend}: {' '.join(map(str, about.values()))}" for backend, about in value.items())
        if key == "mitigations":
            value = "; ".join(f"{flaw}: {status}" for flaw, status in value.items())
        if isinstance(value, Mapping):
            rows += _fingerprint_rows(value, f"{before}{name}, ")
        else:
            rows.append({"name": f"{before}{name}", "value": _format_value(key, value)})
    return rows


def _key_words(key: str) -> str:
    for ending in ("_bytes", *_UNITS):
        key = key.removesuffix(ending)
    return key.replace("_", " ")


def _format_cache(level: str, cache: Any) -> str:
    if not isinstance(cache, Mapping):
        return f"{level} {_format_bytes(cache)}"
    count = int(cache.get("instances") or 1)
    size_per_instance = f" ({count} × {_format_bytes(cache['bytes'] / count)})" if count > 1 else ""
    return f"{level} {_format_bytes(cache.get('bytes'))}{size_per_instance}"


def _format_value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if key.endswith("_bytes"):
            return _format_bytes(value)
        unit = next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "")
        return f"{format_exact(float(value))} {unit}".rstrip()
    if isinstance(value, Mapping):
        names = {name: _NAMES.get(str(name), _key_words(str(name))) for name in value}
        return ", ".join(f"{names[name]} {_format_value(str(name), item)}" for name, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return (
            "; ".join(_format_value(key, item) for item in value)
            if any(isinstance(item, Mapping) for item in value)
            else ", ".join(str(item) for item in value)
        )
    return str(value)
