"""Compare published figures with the quantities measured here (triangulation)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.node import kind_of_node
from report.compared_estimates import pool_machines, row_name
from report.data.dataset import Dataset, MissingSourceError
from report.data.node_reader import Node
from report.data.reference_figures import source_record
from report.data.row_ranges import format_ranges
from report.estimates import Estimates
from report.formatting import format_count, format_exact, join_words, short_processor, uncapitalize
from report.judging.part_evaluation import QuantityCache, select
from report.judging.reference_pairs import DECLARED, Figure, Pair, Record, read_triangulation
from report.judging.verdict_records import row_interval
from report.quantities import quantities

# A measured value needs no explanation if it deviates from the published figure by at most this fraction.
TOLERATED = 0.1
AGREES, EXPLAINED, TO_EXPLAIN, UNVERIFIED = "agrees", "explained", "to explain", "not verified"
OUTCOMES = (AGREES, EXPLAINED, TO_EXPLAIN, UNVERIFIED)
# A node, and the record for one of its devices.
Place = tuple[Node, Record]
_OUTCOME_WORDS = {
    AGREES: "within a tenth of it",
    EXPLAINED: "further away for a reason that was measured",
    TO_EXPLAIN: "further away and to be explained",
    UNVERIFIED: "beside a figure that could not be verified",
}


def compare_pairs(data: Dataset, path: Path = DECLARED, evidence: QuantityCache | None = None) -> list[dict[str, Any]]:
    """Record every declared pair with its published figures and the measured cases, for `verdicts.json`.

    evidence: a cache with quantities that are computed already. `deviation` is the measured value divided by the
    published value, minus 1, with the measurement's interval. `waits` tells which measurements a figure without cases
    needs. The list is empty if the file is missing. Raises StudyError for a mistake in the file.
    """
    if not path.exists():
        return []
    declared = read_triangulation(path, data.reference)
    machines = _Machines(declared.devices, data.nodes.nodes)
    evidence = evidence or QuantityCache(data)
    return [
        {
            "id": pair.id,
            "title": pair.title,
            "quantity": pair.quantity.name,
            "scope": dict(pair.scope),
            "unit": pair.unit,
            "scaled": _scaling_text(pair),
            "differs": pair.differs,
            "figures": _PairComparison(pair, machines, evidence).figures(),
        }
        for pair in declared.pairs
    ]


def _scaling_text(pair: Pair) -> str:
    """Describe how the measured value is scaled before the comparison."""
    sentences = [f"Multiplied by {format_exact(pair.scale)}. {pair.scale_why}"] if pair.scale != 1 else []
    if pair.sockets:
        sentences.append(f"{'Divided' if pair.sockets == 'divide' else 'Multiplied'} by the processors of the machine.")
    return " ".join(sentences)


class _Machines:
    """Finder for the devices that match a published figure."""

    def __init__(self, kinds: Mapping[str, Record], nodes: Sequence[Node]) -> None:
        self.kinds = kinds
        self.places: list[Place] = [(node, device) for node in nodes for device in node.record["devices"]]
        self._found: dict[str, list[Place]] = {}

    def figure_places(self, figure: Figure) -> list[Place]:
        """Return the devices that match a figure; if the figure has a host, only on nodes that also have this host."""
        hosts = {node.id for node, _ in self._kind_places(figure.host)} if figure.host else set()
        return [place for place in self._kind_places(figure.device) if not figure.host or place[0].id in hosts]

    def _kind_places(self, kind: str) -> list[Place]:
        if kind not in self._found:
            self._found[kind] = [
                (node, device) for node, device in self.places if _is_device_kind(self.kinds[kind], device, node)
            ]
        return self._found[kind]

    def device_names(self, figure: Figure) -> str:
        return " beside ".join(str(self.kinds[name]["called"]) for name in (figure.device, figure.host) if name)


def _is_device_kind(wanted: Record, device: Record, node: Node) -> bool:
    """Return True if a node's device matches the description `wanted`."""
    if device["kind"] != wanted["kind"]:
        return False
    cpu = _processor_record(node)
    names = [str(device["name"]), *([str(cpu.get("model", ""))] if device["kind"] == "cpu" else [])]
    least, most = wanted.get("memory_bytes", (-1, math.inf))
    has = {*cpu.get("simd", []), *cpu.get("matrix", [])}
    sockets = _socket_count(node)
    return (
        least <= float(device.get("memory_bytes") or -1) <= most
        and wanted.get("family") in (None, str(cpu.get("family", "")))
        and wanted.get("sockets") in (None, sockets)
        and wanted.get("cores") in (None, int(cpu.get("usable_cores") or 0) / sockets)
        and has >= set(wanted.get("has", []))
        and not has & set(wanted.get("lacks", []))
        and any(re.search(wanted.get("name", ""), short_processor(name), re.IGNORECASE) for name in names)
    )


def _processor_record(node: Node) -> Record:
    cpu = node.record["hardware"].get("cpu") or {}
    return cpu if isinstance(cpu, Mapping) else {"model": cpu}


def _socket_count(node: Node) -> int:
    return int(_processor_record(node).get("sockets") or 1)


class _PairComparison:
    """Comparison of one pair: its figures, each with the largest measured case on each matching device."""

    def __init__(self, pair: Pair, machines: _Machines, evidence: QuantityCache) -> None:
        self.pair, self.machines, self.evidence = pair, machines, evidence
        self.lacking = ""
        self.best = Estimates.empty()
        if any(machines.figure_places(figure) for figure in pair.figures):
            try:
                self.best = _largest_cases(pool_machines(select(evidence.estimates(pair.quantity), pair.scope)))
            except MissingSourceError as missing:
                self.lacking = missing.what
        known = self.best.frame[["node", "device"]].itertuples(index=False, name=None) if len(self.best) else ()
        self.at = {place: row for row, place in enumerate(known)}

    def figures(self) -> list[dict[str, Any]]:
        return [self._figure_record(figure) for figure in self.pair.figures]

    def _figure_record(self, figure: Figure) -> dict[str, Any]:
        places = self.machines.figure_places(figure)
        cases = [self._case_record(figure, place) for place in places if (place[0].id, place[1]["id"]) in self.at]
        waits = self._waiting_text(places) if places else self.machines.device_names(figure)
        return {
            "device": figure.device,
            "called": str(self.machines.kinds[figure.device]["called"]),
            "entries": list(figure.entries),
            "value": figure.value,
            "low": figure.low,
            "high": figure.high,
            "status": "verified" if figure.verified else UNVERIFIED,
            "worked_out": figure.worked_out,
            "waits": "" if cases else waits,
            **(_figure_source(figure, self.evidence.data) if cases else {}),
            "cases": cases,
        }

    def _waiting_text(self, places: Sequence[Place]) -> str:
        """Describe what remains to be measured on a figure's devices."""
        nodes = list(dict.fromkeys(node.id for node, _ in places))
        where = self.evidence.data.label(nodes[0]) if len(nodes) == 1 else format_count(len(nodes), "node")
        return self.lacking or f"{join_words(list(self.pair.quantity.experiments))} on {where}"

    def _case_record(self, figure: Figure, place: Place) -> dict[str, Any]:
        node, device = place
        row, pair = self.at[node.id, device["id"]], self.pair
        by = {"divide": 1 / _socket_count(node), "multiply": float(_socket_count(node))}.get(
            pair.sockets, 1.0
        ) * pair.scale
        values = {name: None if end is None else end * by for name, end in row_interval(self.best, row).items()}
        counts: dict[str, Any] = {
            name: self.best.frame[name].iat[row] for name in ("n_rounds", "n_samples", "source_rows")
        }
        deviation = {name: _relative_deviation(value, figure.value) for name, value in values.items()}
        outcome, why = _deviation_outcome(pair, figure, deviation["estimate"], place, self.evidence)
        return {
            "node": node.id,
            "device": device["id"],
            "name": str(device["name"]),
            "label": row_name(self.best, row),
            **values,
            "n_rounds": int(counts["n_rounds"]),
            "n_samples": int(counts["n_samples"]),
            "behind": format_ranges(self.evidence.source_rows(pair.quantity, counts["source_rows"], [node.id])),
            "deviation": deviation,
            "outcome": outcome,
            "explained": why,
        }


def _largest_cases(cases: Estimates) -> Estimates:
    """Keep the largest estimate for each node kind and device."""
    known = cases.frame[cases.frame["estimate"].astype(float).notna()] if len(cases) else cases.frame
    if not len(known):
        return Estimates.empty()
    order = known.assign(size=known["estimate"].astype(float), kind=known["node"].map(kind_of_node))
    order = order.sort_values("size", ascending=False, kind="stable")
    return cases.take(sorted(order.drop_duplicates(["kind", "device"]).index))


def _figure_source(figure: Figure, data: Dataset) -> dict[str, Any]:
    """Return a figure's description and sources."""
    entries = [data.reference[name] for name in figure.entries]
    descriptions = [f"{entry['subject']}, {uncapitalize(entry['what'])}" for entry in entries]
    return {"what": "; over ".join(descriptions), "sources": [source_record(dict(entry)) for entry in entries]}


def _relative_deviation(value: float | None, published: float | None) -> float | None:
    return None if value is None or not published else value / published - 1


def _deviation_outcome(
    pair: Pair, figure: Figure, deviation: float | None, at: Place, evidence: QuantityCache
) -> tuple[str, str]:
    """Classify a deviation; return also the declared explanation if the class is EXPLAINED, otherwise ''."""
    least, most = _relative_deviation(figure.low, figure.value), _relative_deviation(figure.high, figure.value)
    if not figure.verified or deviation is None or least is None or most is None:
        return UNVERIFIED, ""
    if abs(deviation) <= TOLERATED or least <= deviation <= most:
        return AGREES, ""
    for explanation in pair.explained:
        least, most = explanation["between"]
        if least <= deviation <= most and _has_cases(explanation["shown_by"], at, evidence):
            return EXPLAINED, f"{explanation['says']} Shown by {explanation['shown_by']}."
    return TO_EXPLAIN, ""


def _has_cases(name: str, at: Place, evidence: QuantityCache) -> bool:
    """Return True if a quantity has cases on a device."""
    try:
        cases = evidence.estimates(quantities()[name])
    except MissingSourceError:
        return False
    return len(cases) > 0 and bool(((cases.frame["node"] == at[0].id) & (cases.frame["device"] == at[1]["id"])).any())


def comparison_sentence(pairs: Sequence[Record]) -> str:
    """Summarize the comparison: count the measured values per outcome, and the figures that wait for a machine."""
    figures = [figure for pair in pairs for figure in pair["figures"]]
    outcomes = [case["outcome"] for figure in figures for case in figure["cases"]]
    waiting = sum(bool(figure["waits"]) for figure in figures)
    sentences = []
    if outcomes:
        of_each = [f"{n} {_OUTCOME_WORDS[outcome]}" for outcome in OUTCOMES if (n := outcomes.count(outcome))]
        sentences.append(
            f"{format_count(len(outcomes), 'measured value')} beside a published one: {join_words(of_each)}."
        )
    if waiting:
        sentences.append(
            f"{format_count(waiting, 'figure')} {'waits' if waiting == 1 else 'wait'} for a machine to be measured."
        )
    return " ".join(sentences)
