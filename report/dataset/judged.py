"""Tables of verdicts: claims, their cells (the cases of `verdicts.json`), and the evidence of each cell by id."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contract.node import count_machines
from report import verdict_sentences
from report.data.row_ranges import parse_ranges
from report.dataset.declaration import dataset_unit
from report.formatting import case_nodes, verdict_case_name
from report.verdicts import threshold_ends

Row = dict[str, Any]
# Labels that name evidence. The id of a cell leaves them out, so that it stays when evidence is added.
_EVIDENCE_LABELS = ("records", "entry")
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


def claim_rows(document: Mapping[str, Any]) -> list[Row]:
    """Return a row per claim."""
    return [_claim_row(verdict) for verdict in document["verdicts"]]


def _claim_row(verdict: Mapping[str, Any]) -> Row:
    outcomes = [case["outcome"] for case in verdict["cases"]]
    return {
        **verdict,
        "claim_id": verdict["id"],
        "tier": verdict["evidence_tier"],
        "unit": dataset_unit(verdict["unit"] or "", verdict["quantity"] or ""),
        **threshold_ends(verdict),
        "rule": verdict_sentences.rules_text(verdict["parts"]),
        "cells": len(outcomes),
        "cells_supporting": outcomes.count("supports"),
        "cells_challenging": outcomes.count("challenges"),
        "turn": verdict_sentences.turn_text(verdict),
        "page": f"claims/{verdict['id']}.html",
    }


def cell_rows(document: Mapping[str, Any], results: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Return a row per cell, and a row per piece of evidence. results: the result id of each summary row."""
    cells, evidence = [], []
    for verdict in document["verdicts"]:
        for cell, pieces in claim_cells(verdict, results):
            cells.append(cell)
            evidence += pieces
    return cells, evidence


def claim_cells(verdict: Mapping[str, Any], results: Sequence[str] | None) -> Iterator[tuple[Row, list[Row]]]:
    """Yield each case of a claim as a row, with a row per piece of its evidence.

    results: the result id of each summary row; None leaves results out.
    """
    parts = {part["name"]: part for part in verdict["parts"]}
    for name, case in zip(_cell_ids(verdict), verdict["cases"], strict=True):
        part = parts[case["part"]]
        cell = {
            **case,
            "cell_id": name,
            "claim_id": verdict["id"],
            "quantity": part["quantity"],
            "machines": count_machines(case_nodes(case)),
            "label": verdict_case_name(case),
            "labels": _encode(case["labels"]),
            "unit": dataset_unit(part["unit"], part["quantity"]),
            "tier": part["tier"],
        }
        yield (
            cell,
            [
                {"cell_id": name, "kind": kind, "evidence_id": evidence_id, "role": role}
                for kind, evidence_id, role in _cell_evidence(case, part, results)
            ],
        )


def _cell_ids(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the id of each case of a claim. Cases that differ in their evidence alone are numbered."""
    seen: Counter[str] = Counter()
    for case in verdict["cases"]:
        labels = {name: value for name, value in case["labels"].items() if name not in _EVIDENCE_LABELS}
        text = _encode([case["part"], case.get("node"), case.get("device"), labels, case["labels"].get("entry")])
        name = f"{verdict['id']}/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}.{seen[name]}"


def _cell_evidence(
    case: Mapping[str, Any], part: Mapping[str, Any], results: Sequence[str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield kind, id and role of each piece of evidence, each once."""
    own = [] if results is None else [("result", results[row]) for row in parse_ranges(case.get("behind") or "")]
    own += [("record", key) for key in str(case["labels"].get("records") or "").split()]
    own += [("reference", str(case["labels"]["entry"]))] if case["labels"].get("entry") else []
    shared = [("reference", name) for name in part["entries"] if ("reference", name) not in own]
    # A documented part compares its entries one by one, unless it divides them: each is its own cell's evidence alone.
    if part["tier"] == "documented" and own and part["rule"] != "ratio":
        shared = []
    if not own and not shared:
        own = [("arithmetic", part["quantity"])]
    yield from ((kind, evidence_id, "case") for kind, evidence_id in dict.fromkeys(own))
    yield from ((kind, evidence_id, "part") for kind, evidence_id in shared)
