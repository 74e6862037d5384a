"""Judges every claim on the data of all nodes and writes the verdicts."""

from __future__ import annotations

import csv
import gc
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import atomic, write_json
from report import PACKAGE
from report.data.dataset import Dataset
from report.data.nodes import Node
from report.data.reference import source
from report.formatting import capital
from report.judging.claims import ARTICLES, Claim, read_claims
from report.judging.client_evaluation import again
from report.judging.contradictions import decide, read_contradictions
from report.judging.counterfactuals import of_claim
from report.judging.evaluate import AWAITING, PartResult, QuantityCache, cell_records, evaluate, part_record
from report.judging.reasons import combined, of_parts
from report.judging.reference_comparison import compare
from report.judging.reference_pairs import read_triangulation
from report.judging.reference_use import listed, uses
from report.publish import write_tables
from report.verdicts import VERDICTS, deciding

CLAIMS = PACKAGE / "claims"
# The weakest tier that a verdict rests on is the one it bears.
_TIERS = ("measured", "derived", "documented")
_CSV = (
    "id", "article", "section", "kind", "verdict", "quantity", "estimate", "low", "high", "unit", "threshold",
    "boundary", "reason", "evidence_tier", "version",
)  # fmt: skip


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cycles meanwhile: of many nodes there are millions of records, which all live to the end."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_uncollected()
def judge(
    data: Dataset,
    out: Path,
    claims: Path = CLAIMS,
    allow_synthetic: bool = False,
    digest: str | None = None,
) -> dict[str, Any]:
    """Judge all claims on `data`, write `out` (JSON) and the tables beside it (CSV, Parquet), and return the document.

    digest: of what the verdicts are made from (`report.judging.provenance`), to tell later whether they are still of that.
    Raises StudyError for a fault in a claim file, and for synthetic data unless
    `allow_synthetic`, which tests alone may set; OSError if the place cannot be written.
    """
    refuse_synthetic(data, allow_synthetic)
    wanted = read_claims(claims, data.reference)
    declared = read_contradictions(claims.parent / "contradictions.yaml", wanted, data.reference)
    beside = claims.parent / "triangulation.yaml"
    pairs = read_triangulation(beside, data.reference) if beside.exists() else None
    evidence = QuantityCache(data)
    verdicts = [_verdict(claim, evidence) for claim in wanted]
    _judgements(verdicts, wanted)
    document = {
        "generated_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _commit(),
        "study_version": _study_version(),
        "made_from": digest,
        "origin": "synthetic" if any(node.record["origin"] == "synthetic" for node in data.nodes.nodes) else "measured",
        "nodes": _nodes(data),
        "refused": data.nodes.refused,
        "tally": {name: sum(one["verdict"] == name for one in verdicts) for name in VERDICTS},
        "verdicts": verdicts,
        "contradictions": decide({one["id"]: one for one in verdicts}, declared),
        "triangulation": compare(data, beside, evidence),
        "references": listed(data.reference, uses(evidence, wanted, declared, pairs)),
    }
    write_json(out, document, in_lines="cells")
    _write_csv(out.with_suffix(".csv"), verdicts)
    write_tables(document, out)
    return document


def refuse_synthetic(data: Dataset, allow: bool = False) -> None:
    """Raise StudyError if a node's data were not measured, unless `allow`, which tests alone may set."""
    made_up = next((node.id for node in data.nodes.nodes if node.record["origin"] == "synthetic"), None)
    if made_up and not allow:
        raise StudyError(f"{made_up}: its data are synthetic, which are for tests only. Remove it or measure the node")


def _verdict(claim: Claim, evidence: QuantityCache) -> dict[str, Any]:
    weighed = [evaluate(part, claim, evidence) for part in claim.parts]
    verdict, reason = ("not testable", "") if claim.kind == "judgement" else whole_verdict(weighed)
    parts = []
    for place, one in enumerate(weighed):

        def whole(outcome: str, place: int = place) -> str:
            outcomes = [outcome if i == place else other.outcome for i, other in enumerate(weighed)]
            awaited = [name for name in outcomes if name.startswith("awaiting")]
            return min(awaited, key=AWAITING.index) if awaited else combined(outcomes)

        parts.append({**part_record(one, evidence, whole), "rejudge": again(one, claim, evidence)})
    first = deciding(parts, verdict)
    several = len(parts) > 1
    tiers = [one.quantity.tier for one in weighed if one.ruling is not None and one.quantity is not None]
    return {
        "id": claim.id,
        "article": claim.article,
        "article_title": ARTICLES[claim.article],
        "section": claim.section,
        "says": claim.says,
        "kind": claim.kind,
        "verdict": verdict,
        "reason": reason,
        "rule": "; ".join(f"{part['name']}: {part['rule_text']}" if several else part["rule_text"] for part in parts),
        **{name: first.get(name) for name in ("quantity", "unit", "estimate", "low", "high")},
        "threshold": first.get("threshold"),
        "threshold_why": first.get("threshold_why"),
        "boundary": _boundary(verdict, weighed),
        "cells": [cell for one in weighed for cell in cell_records(one, evidence)],
        "parts": parts,
        "flips": [f"{part['name']}: {flip}" if several else flip for part in parts for flip in part["flips"]],
        **of_claim(parts, verdict),
        "evidence_tier": max(tiers, key=_TIERS.index) if tiers else "none",
        "see_also": list(claim.see_also),
        "same_as": claim.same_as,
        "bears_on": list(claim.bears_on),
        "note": claim.note,
        "sources": _sources(claim, evidence.data),
        "version": claim.version,
        "changes": list(claim.changes),
    }


def whole_verdict(weighed: Sequence[PartResult]) -> tuple[str, str]:
    """The verdict on a claim and its reason, from those on its parts."""
    if len(weighed) == 1:
        return weighed[0].outcome, weighed[0].reason
    outcomes = {one.part.name: one.outcome for one in weighed}
    said = [f"{capital(one.part.name)} ({one.outcome}): {one.reason}" for one in weighed if one.judged]
    waiting = [one for one in weighed if not one.judged]
    if waiting:
        verdict = min((one.outcome for one in waiting), key=AWAITING.index)
        texts = list(dict.fromkeys(one.reason for one in sorted(waiting, key=lambda one: one.outcome != verdict)))
        return verdict, ". ".join(["; ".join(texts), *(["Judged already", " ".join(said)] if said else [])])
    verdict = combined(list(outcomes.values()))
    head = [] if len(set(outcomes.values())) == 1 else [f"Its parts differ. {capital(of_parts(outcomes))}."]
    return verdict, " ".join([*head, *said])


def _boundary(verdict: str, weighed: Sequence[PartResult]) -> str | None:
    named = [(one.part.name, one.ruling.boundary) for one in weighed if one.ruling and one.ruling.boundary]
    if len(weighed) == 1:
        return named[0][1] if named else None
    if verdict != "depends":
        return None
    whole = of_parts({one.part.name: one.outcome for one in weighed})
    return "; ".join([whole, *(f"{name}: {text}" for name, text in named)])


def _judgements(verdicts: Sequence[dict[str, Any]], claims: Sequence[Claim]) -> None:
    """Give judgements the verdicts of the claims that bear on them as their reason."""
    found = {one["id"]: one["verdict"] for one in verdicts}
    for one, claim in zip(verdicts, claims, strict=True):
        if claim.kind == "judgement":
            bearing = ", ".join(f"{other} {found[other]}" for other in claim.bears_on)
            one["reason"] = (
                f"An opinion or advice: no measurement decides it. What bears on it: {bearing or 'nothing'}."
            )
            one["rule"] = "not decided by a rule"


def _sources(claim: Claim, data: Dataset) -> list[dict[str, str]]:
    """The sources that a claim names, and those of its published figures, each once."""
    names = list(claim.sources)
    for part in claim.parts:
        entry = part.scope.get("entry", []) if part.quantity == "reference.value" else []
        names += [name for name in (entry if isinstance(entry, list) else [entry]) if name in data.reference]
    listed = [source(dict(data.reference[name])) for name in dict.fromkeys(names)]
    return [one for place, one in enumerate(listed) if one not in listed[:place]]


def _nodes(data: Dataset) -> list[dict[str, Any]]:
    statuses: dict[str, dict[str, int]] = {}
    numbers = data.table.groupby(["node", "status"], observed=True).size().reset_index()
    for node, status, n in numbers.itertuples(index=False, name=None):
        statuses.setdefault(str(node), {})[str(status)] = int(n)
    return [_node(node, data, dict(sorted(statuses.get(node.id, {}).items()))) for node in data.nodes.nodes]


def _node(node: Node, data: Dataset, statuses: dict[str, int]) -> dict[str, Any]:
    record = node.record
    return {
        "id": node.id,
        "label": data.label(node.id),
        **{name: record[name] for name in ("devices", "hardware", "software", "started_utc")},
        "ended_utc": record.get("ended_utc"),
        "left_out": record["left_out"],
        "hosts": len(record.get("hosts") or [""]),
        "missing": node.missing(),
        "n_points": sum(statuses.values()),
        "n_ok": statuses.get("ok", 0),
        "statuses": statuses,
        "source": node.source,
        "duty": node.duty(),
    }


def _write_csv(path: Path, verdicts: Sequence[dict[str, Any]]) -> None:
    with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, _CSV, extrasaction="ignore")
        table.writeheader()
        table.writerows(verdicts)


def _commit() -> str:
    """The commit of the project that judges; unknown outside a git checkout."""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=PACKAGE, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return asked.stdout.strip()


def _study_version() -> str:
    try:
        return str(tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    except OSError:
        return metadata.version("does-ai-need-a-gpu")
