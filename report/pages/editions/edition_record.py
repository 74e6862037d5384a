"""Read and write edition records, which keep the part of a verdicts file that later comparisons need.

A record counts cases instead of listing them, so it is much smaller than a verdicts file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, write_json
from contract.schema import check_document
from report import verdict_sentences
from report.data.reference_figures import format_figure
from report.formatting import case_nodes
from report.verdicts import upgrade_cells

Record = Mapping[str, Any]
SCHEMA: dict[str, Any] = read_json(Path(__file__).parents[2] / "schemas" / "editions.schema.json")
_SAID = ("generated_utc", "commit", "study_version")
_CLAIM = ("id", "says", "verdict", "version")
_PART = ("name", "quantity", "unit", "threshold", "outcome", "estimate", "low", "high")


def extract_edition(document: Record, path: Path | str) -> dict[str, Any]:
    """Extract an edition record from a verdicts document. path: file name for error messages.

    Raises StudyError if a field needed to compare editions is missing.
    """
    document = upgrade_cells(document)
    _check_schema(document, "verdicts", path)
    claims = [_claim_record(verdict) for verdict in document["verdicts"]]
    if len({claim["id"] for claim in claims}) != len(claims):
        raise StudyError(f"{path}: a claim occurs twice: write the file again with `python -m report judge`")
    used = {name for claim in claims for part in claim["parts"] for name in part["figures"]}
    nodes = [{name: node[name] for name in ("id", "label", "started_utc", "ended_utc")} for node in document["nodes"]]
    return {
        **{name: document[name] for name in _SAID},
        "nodes": nodes,
        "figures": {entry["id"]: _figure_record(entry) for entry in document["references"] if entry["id"] in used},
        "claims": claims,
    }


def _check_schema(document: Any, kind: str, path: Path | str) -> None:
    """Raise StudyError with advice if the document violates its schema.

    kind: name of a definition in the schema.
    """
    try:
        check_document(document, {"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]}, path)
    except StudyError as fault:
        raise StudyError(
            f"{fault}. Not comparable with other editions: write the verdicts again with `python -m report judge`"
        ) from None


def _claim_record(verdict: Record) -> dict[str, Any]:
    cells: dict[str, list[Record]] = {}
    for cell in verdict["cases"]:
        cells.setdefault(cell["part"], []).append(cell)
    return {
        **{name: verdict[name] for name in _CLAIM},
        "changes": [{name: change[name] for name in ("version", "reason")} for change in verdict["changes"]],
        "sources": [
            {name: source[name] for name in ("title", "where", "url", "status")} for source in verdict["sources"]
        ],
        "parts": [_part_record(part, cells.get(part["name"], [])) for part in verdict["parts"]],
    }


def _rule_text(part: Record) -> str:
    """Return a part's rule in words. Older verdicts files store the finished text, newer ones the data for it."""
    return str(part["rule_text"]) if "rule_text" in part else verdict_sentences.rule_text(part)


def _part_record(part: Record, cells: Sequence[Record]) -> dict[str, Any]:
    return {
        **{name: part[name] for name in _PART},
        "rule": _rule_text(part),
        "cells": dict(sorted(Counter(str(cell["outcome"]) for cell in cells).items())),
        "nodes": sorted({node for cell in cells for node in case_nodes(cell)}),
        "figures": sorted(part["entries"]),
    }


def _figure_record(entry: Record) -> dict[str, str]:
    return {"what": f"{entry['subject']}, {entry['what']}", "stated": format_figure(entry), "status": entry["status"]}


def read_editions(path: Path) -> list[dict[str, Any]]:
    """Read editions, sorted from the oldest to the newest.

    A verdicts.json gives one edition, and an editions.json gives all editions in it. Raises StudyError for any
    other file.
    """
    document = read_json(path)
    if not isinstance(document, dict) or not {"verdicts", "editions"} & set(document):
        raise StudyError(f"{path}: holds neither verdicts (verdicts.json) nor the editions of a site (editions.json)")
    if "editions" not in document:
        return [extract_edition(document, path)]
    _check_schema(document, "editions", path)
    return _sort_by_time(document["editions"])


def write_editions(path: Path, editions: Iterable[Record]) -> None:
    """Write a file for `read_editions`. Raises OSError."""
    write_json(path, {"editions": list(editions)}, in_lines=True)


def earlier_editions(editions: Iterable[Record], current: Record) -> list[dict[str, Any]]:
    """Return the editions before the current edition, sorted from the oldest to the newest.

    The latest of them are left out if they differ from the current edition only in time, commit and version.
    """
    earlier = [record for record in _sort_by_time(editions) if record["generated_utc"] < current["generated_utc"]]
    while earlier and edition_digest(earlier[-1]) == edition_digest(current):
        earlier.pop()
    return earlier


def _sort_by_time(editions: Iterable[Record]) -> list[dict[str, Any]]:
    return sorted(map(dict, editions), key=lambda record: str(record["generated_utc"]))


def edition_digest(record: Record) -> str:
    """Hash an edition without its time, commit and version, to 12 hexadecimal digits."""
    text = json.dumps({name: value for name, value in record.items() if name not in _SAID}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
