"""What the templates are given: verdicts grouped, numbers in words, figures to be drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from report import formatting
from report.model import JUDGED, OTHERS
from report.render import words
from report.render.arithmetic import awaited, worked_parts
from report.render.bases import bases
from report.render.calibrated import calibrated
from report.render.cells import only_place, place, shown
from report.render.central import central
from report.render.chain import chains
from report.render.claim_figure import claim_drawing
from report.render.contradictions import contradictions, counts, disputes
from report.render.counted import counted
from report.render.editions import changes
from report.render.figures import Drawing
from report.render.flagged import flagged_points
from report.render.limits import limits
from report.render.markdown import Markdown, escape, identifier
from report.render.measurements import left_out_points, sections, views
from report.render.nodes import describe
from report.render.objections import objections
from report.render.opening import in_words, opening, tally
from report.render.others import counterparts, evidence, sources_counts
from report.render.others import sources as sources_of_others
from report.render.ran import ran
from report.render.reading import with_arguments
from report.render.references import references
from report.render.rejudged import can_be_tried
from report.render.repeated import repeated
from report.render.robust import meaning, robust
from report.render.second import measured_again
from report.render.sourced import sourced, sources, stands_for, two_sides
from report.render.table import in_table
from report.render.triangulation import triangulation
from report.render.twelve import RULES

_REQUIRED = ("generated_utc", "commit", "study_version", "origin", "nodes", "refused", "tally", "verdicts")


def read_verdicts(path: Path) -> dict[str, Any]:
    """The verdicts. Raises StudyError if the file is not what `report judge` writes."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise StudyError(f"{path}: not a file of verdicts: write one with `python -m report judge`")
    missing = [key for key in _REQUIRED if key not in document]
    if missing:
        raise StudyError(f"{path}: lacks {', '.join(missing)}: write it again with `python -m report judge`")
    return document


def context(
    document: Mapping[str, Any], data: Path | None, changed: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[Drawing]]:
    """Everything that the templates print, and the figures that they show.

    `data`: the folder that `report gather` wrote, or None. `changed`: what did since the last
    edition (see `report.render.editions`). Raises StudyError if the folder is not one.
    """
    verdicts = [dict(verdict) for verdict in document["verdicts"]]
    known = {str(verdict["id"]): str(verdict["verdict"]) for verdict in verdicts}
    if len(known) != len(verdicts):
        raise StudyError("verdicts: an id occurs twice")
    machines = {str(node["id"]): str(node.get("label") or node["id"]) for node in document["nodes"]}
    drawings: list[Drawing] = []
    claims = []
    for verdict in verdicts:
        drawing = claim_drawing(verdict, machines)
        if drawing:
            drawings.append(drawing)
        claims.append(_claim(verdict, known, drawing, machines))
    contradicting = contradictions(document)
    disputed = disputes(contradicting)
    given = views(data, document["nodes"]) if data else []
    measured = sections(data, document["nodes"], given=given) if data else []
    of_all = central(given, document)
    drawings += [shown["drawing"] for shown in of_all["figures"]]
    sides, rows = two_sides(verdicts, data), in_table(verdicts, document["nodes"])
    chained = chains(verdicts, data, {section.key: section.title for section in measured})
    for claim in claims:
        claim["chain"] = chained.get(claim["id"], [])
        claim["disputed"] = disputed.get(claim["id"], [])
        claim["two_sides"] = sides.get(claim["id"], "")
        claim.update(rows[claim["id"]])
    drawings += [shown.drawing for section in measured for shown in section.exhibits if shown.drawing]
    day = re.match(r"\d{4}-\d\d-\d\d", str(document["generated_utc"]))
    articles = with_arguments(_articles(claims))
    return {
        "total": len(claims),
        "level": words.LEVEL,
        "day": day[0] if day else "",
        "generated": str(document["generated_utc"]),
        "commit": str(document["commit"] or "not recorded")[:12],
        "study_version": str(document["study_version"]),
        "synthetic": document["origin"] != "measured",
        "opening": opening(document, claims, articles),
        "claims": claims,
        "articles": articles,
        "contradictions": contradicting,
        "contradiction_counts": counts(contradicting),
        "nodes": [describe(node, machines) for node in document["nodes"]],
        "node_names": formatting.several(list(machines.values())),
        "ran": ran(data, document["nodes"]) if data else [],
        "left_out": left_out_points(data) if data else [],
        "flagged": flagged_points(data) if data else [],
        "limits": limits(document, data),
        "objections": objections(document),
        "refused": [{"file": str(one["file"]), "reason": str(one["reason"])} for one in document["refused"]],
        "central": of_all,
        "measured": measured,
        "editions": changes(changed),
        "counted": counted(data, document["nodes"]) if data else [],
        "twelve": [{"asks": rule.asks, "met": rule.met, "checks": formatting.several(rule.checks)} for rule in RULES],
        "changed": [claim for claim in claims if claim["changes"]],
        "calibration": calibrated(),
        "repeated": repeated(),
        "again": measured_again(document),
        "triangulation": triangulation(document),
        "references": references(document),
        "published": sources_of_others(document),
        "published_counts": sources_counts(document),
        "counterparts": counterparts(document),
        "robust": robust(verdicts),
        "robust_means": meaning(),
        "meaning": [
            {"name": name, "class": words.verdict_class(name), "means": words.MEANING[name]} for name in words.VERDICTS
        ],
    }, drawings


def _claim(
    verdict: Mapping[str, Any], known: Mapping[str, str], drawing: Drawing | None, machines: Mapping[str, str]
) -> dict[str, Any]:
    """A verdict as its card and its row in the table say it."""
    unit = str(verdict.get("unit") or "1")
    status = str(verdict["verdict"])
    cells = verdict.get("cells") or []
    parts = [_part(part) for part in verdict.get("parts") or []]
    if not parts and verdict.get("rule"):
        parts = [_part({**verdict, "name": "", "rule_text": verdict["rule"]})]
    named = {str(part.get("name")): part for part in verdict.get("parts") or []}
    of_parts: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        of_parts.setdefault(str(cell.get("part") or ""), []).append(cell)
    stands = stands_for(verdict)
    listed = shown(verdict)
    return {
        "id": identifier(str(verdict["id"])),
        "article": str(verdict["article"]),
        "article_title": str(verdict["article_title"]),
        "section": str(verdict.get("section") or ""),
        "says": str(verdict["says"]),
        "kind": str(verdict["kind"]),
        "verdict": status,
        "class": words.verdict_class(status),
        "open": not status.startswith("awaiting"),
        "finding": str(verdict.get("finding") or ""),
        "then": [words.sentence(str(one["reason"])) for one in verdict.get("when_written") or []],
        "refuted": formatting.several([str(name) for name in verdict.get("refuted") or []]),
        **_reasons(verdict),
        "tier": str(verdict.get("evidence_tier") or "none"),
        "tier_means": words.TIERS.get(str(verdict.get("evidence_tier") or "none"), ""),
        "key": sourced(words.with_interval(verdict, unit), sources(*stands) if stands else ""),
        "names": _names(verdict, unit, *(stands or ({}, {})), several=len(parts) > 1),
        "boundary": _ended(words.sentence(str(verdict.get("boundary") or ""))),
        "measured_on": _measured_on(cells),
        "parts": parts,
        "others": [row for part in verdict.get("parts") or [] for row in evidence(part, of_parts)],
        "on_others": verdict.get("decided_on") == OTHERS,
        "unpublished": str(verdict.get("unpublished") or ""),
        "arithmetic": worked_parts(verdict.get("parts") or [], machines),
        "formulas": awaited(verdict.get("parts") or []),
        "figure": drawing,
        "cells": [_cell(cell, named.get(str(cell.get("part")), {}), unit) for cell in listed],
        "with_parts": len(parts) > 1,
        "cells_where": only_place(listed),
        "cells_left_out": len(cells) - len(listed),
        "bases": bases(verdict),
        "flip": str(verdict.get("flip") or ""),
        "robust": str(verdict.get("robust") or ""),
        "flips": _flips(verdict),
        "rejudge": can_be_tried(verdict),
        "note": str(verdict.get("note") or ""),
        "see_also": [
            {"id": identifier(str(other)), "verdict": known[other], "class": words.verdict_class(known[other])}
            for other in _others(verdict)
            if other in known
        ],
        "sources": [_source(source) for source in verdict.get("sources") or []],
        "version": int(verdict.get("version") or 1),
        "changes": [
            {"version": int(one["version"]), "reason": str(one["reason"])} for one in verdict.get("changes") or []
        ],
    }


def _reasons(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Why a verdict is what it is: what is said of the whole, and where there are parts each of them for itself."""
    parts = verdict.get("parts") or []
    judged = [part for part in parts if part["name"] and part["outcome"] in JUDGED]
    reasons = [
        {
            "name": words.sentence(part["name"]),
            "outcome": part["outcome"],
            "class": words.verdict_class(part["outcome"]),
            "text": part["reason"],
        }
        for part in judged
    ]
    head = verdict.get("reason_of_whole") if len(parts) > 1 else verdict.get("reason")
    return {"reason": words.sentence(str(head or "")), "reasons": reasons}


def _names(
    verdict: Mapping[str, Any], unit: str, cell: Mapping[str, Any], part: Mapping[str, Any], several: bool
) -> Markdown:
    """What a number counts, to stand behind it: ' (repeat share)', ': NVIDIA H100, memory'; '' where a unit says it.

    cell, part: whose number it is; the part is named where there are several.
    """
    if verdict.get("quantity") == "reference.value":
        label = str(cell.get("label") or "")
        return Markdown(f": {escape(label)}" if label else "")
    name = words.quantity_name(str(verdict.get("quantity") or "")) if unit in ("", "1") else ""
    told = "; ".join(filter(None, (name, str(part.get("name") or "") if several else "")))
    # A plain space at the edge of a span would be lost.
    return Markdown(f"\\ ({escape(told)})" if told else "")


def _also(part: Mapping[str, Any], unit: str) -> str:
    """The other thresholds that were tried, the unit said once."""
    others = [one for one in part.get("sensitivity") or [] if one != part.get("threshold")]
    return formatting.thresholds_text(others, unit) if others else ""


def _flips(verdict: Mapping[str, Any]) -> list[str]:
    """What would change the verdict: one entry a part where there are several."""
    parts = verdict.get("parts") or []
    if len(parts) < 2:
        return [str(flip) for flip in verdict.get("flips") or []]
    told = [(words.sentence(str(part.get("name") or "")), part.get("flips") or []) for part in parts]
    return [f"{name}: {' '.join(map(str, flips))}" for name, flips in told if flips]


def _others(verdict: Mapping[str, Any]) -> list[str]:
    """Claims that ask the same, bear on this one or are worth seeing beside it, each once."""
    same = [verdict["same_as"]] if verdict.get("same_as") else []
    return list(dict.fromkeys(map(str, [*same, *(verdict.get("bears_on") or []), *(verdict.get("see_also") or [])])))


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """One rule in words."""
    unit = str(part.get("unit") or "1")
    return {
        "name": str(part.get("name") or ""),
        "rule": words.sentence(str(part.get("rule_text") or part.get("rule") or "").rstrip("."))
        + (f" ({counts})" if (counts := words.counted(part)) else ""),
        "quantity": str(part.get("quantity") or ""),
        "scope": ", ".join(
            f"{key}: {' or '.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in (part.get("scope") or {}).items()
        ),
        "threshold": formatting.threshold_text(part["threshold"], unit) if part.get("threshold") is not None else "",
        "why": _ended(words.sentence(str(part.get("threshold_why") or ""))),
        "also": _also(part, unit),
        "model": words.checked(part),
        "cases": str(part.get("cases") or ""),
    }


def _ended(text: str) -> str:
    """`text` with a full stop, if it says anything."""
    return text if not text or text[-1] in ".?!…" else f"{text}."


def _cell(cell: Mapping[str, Any], part: Mapping[str, Any], unit: str) -> dict[str, Any]:
    told = words.with_interval(cell, str(part.get("unit") or unit))
    return {
        "part": str(cell.get("part") or ""),
        "label": str(cell.get("label") or "–"),
        "where": place(cell),
        "estimate": sourced(told, sources(cell, part)) or "–",
        # A published figure has neither.
        "rounds": f"{int(cell['n_rounds'])} ({int(cell.get('n_samples') or 0):,})" if cell.get("n_rounds") else "–",
        "outcome": str(cell.get("outcome") or "–"),
    }


def _measured_on(cells: Sequence[Mapping[str, Any]]) -> str:
    """'3 to 5 rounds on NODE', or '' for what was not measured."""
    nodes = list(dict.fromkeys(str(cell["node"]) for cell in cells if cell.get("node")))
    rounds = sorted({int(cell["n_rounds"]) for cell in cells if cell.get("n_rounds")})
    if not nodes or not rounds:
        return ""
    most = formatting.count(rounds[-1], "round")
    return f"{most if len(rounds) == 1 else f'{rounds[0]} to {most}'} on {formatting.several(nodes)}"


def _source(source: Mapping[str, Any]) -> dict[str, str]:
    told = {key: str(source.get(key) or "") for key in ("title", "url", "publisher", "date", "where", "status")}
    about = [told["publisher"], told["date"], told["where"], told["status"]]
    return {"title": told["title"] or told["url"], "url": told["url"], "about": ", ".join(filter(None, about))}


def _articles(claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Articles, and their sections, in the order in which their claims come."""
    articles: dict[str, dict[str, Any]] = {}
    for claim in claims:
        article = articles.setdefault(
            claim["article"],
            {"key": identifier(claim["article"]), "title": claim["article_title"], "sections": {}, "claims": []},
        )
        article["claims"].append(claim)
        article["sections"].setdefault(claim["section"], []).append(claim)
    for article in articles.values():
        article["sections"] = [
            {"name": name or "The article as a whole", "claims": group} for name, group in article["sections"].items()
        ]
        article["tally"] = in_words(tally(article["claims"]))
    return list(articles.values())
