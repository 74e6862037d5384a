"""Verdicts as text: the tally, and one claim's chain from article to outcome. Quick to start: no data libraries."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import did_you_mean, read_json
from report.wording import interval, threshold_text

VERDICTS = (
    "supported",
    "challenged",
    "depends",
    "undecided",
    "awaiting hardware",
    "awaiting experiment",
    "awaiting source",
    "not testable",
)
_WIDTH = 100


def read_verdicts(path: Path) -> dict[str, Any]:
    """Read `verdicts.json`. Raises StudyError if it is missing or something else."""
    document = read_json(path)
    if not isinstance(document, dict) or "verdicts" not in document:
        raise StudyError(f"{path}: holds no verdicts. Make it with: python -m report judge --nodes DIR --out {path}")
    return document


def summary(document: dict[str, Any]) -> str:
    """A table of verdict counts by article, and which nodes they rest on."""
    articles = list(dict.fromkeys(one["article"] for one in document["verdicts"]))
    width = max(map(len, VERDICTS))
    head = "verdict".ljust(width) + "".join(name.rjust(11) for name in [*articles, "all"])
    lines = [head, "-" * len(head)]
    for verdict in VERDICTS:
        counts = [
            sum(one["verdict"] == verdict and one["article"] == article for one in document["verdicts"])
            for article in articles
        ]
        lines.append(verdict.ljust(width) + "".join(str(n).rjust(11) for n in [*counts, sum(counts)]))
    per_article = [sum(one["article"] == article for one in document["verdicts"]) for article in articles]
    totals = "".join(str(n).rjust(11) for n in [*per_article, sum(per_article)])
    lines += ["-" * len(head), "claims".ljust(width) + totals]
    lines.append("")
    lines += [f"node: {node['label']} ({node['n_ok']} of {node['n_points']} series ok)" for node in document["nodes"]]
    lines += [f"left out: {one['file']}: {one['reason']}" for one in document["refused"]]
    return "\n".join(lines)


def explain(document: dict[str, Any], claim: str) -> str:
    """One claim's chain in plain text: article, paraphrase, rule, threshold, cells, verdict, what would flip it.

    Raises StudyError if there is no such claim.
    """
    found = {one["id"]: one for one in document["verdicts"]}
    one = found.get(claim.upper())
    if one is None:
        raise StudyError(f"there is no claim {claim!r}.{did_you_mean(claim.upper(), list(found))}")
    labels = {node["id"]: node["label"] for node in document["nodes"]}
    lines = [f"{one['id']}: {one['verdict'].upper()}", "", f'{one["article_title"]}, "{one["section"]}"']
    lines += _wrap("says: ", one["says"]) + _wrap("why: ", one["reason"])
    if one["boundary"]:
        lines += _wrap("boundary: ", one["boundary"])
    for part in one["parts"]:
        lines += ["", *_part(part, [cell for cell in one["cells"] if cell["part"] == part["name"]], labels)]
    if one["flips"]:
        lines += ["", "What would change it:"]
        lines += [line for flip in one["flips"] for line in _wrap("  - ", flip)]
    lines += ["", f"evidence: {one['evidence_tier']}; kind: {one['kind']}; version of the rule: {one['version']}"]
    lines += [line for change in one["changes"] for line in _wrap(f"  version {change['version']}: ", change["reason"])]
    for source in one["sources"]:
        text = f"{source['title']}, {source['publisher']}, {source['date']}: {source['where']} ({source['status']})"
        lines += _wrap("source: ", text)
    if one["note"]:
        lines += _wrap("note: ", one["note"])
    if one["see_also"]:
        lines.append(f"see also: {', '.join(one['see_also'])}")
    return "\n".join(lines)


def _part(part: dict[str, Any], cells: list[dict[str, Any]], labels: dict[str, str]) -> list[str]:
    title = f"{part['name']} ({part['outcome']})" if part["name"] else part["outcome"]
    scope = ", ".join(f"{key} = {value}" for key, value in part["scope"].items())
    lines = [f"{title}: {part['quantity']}{f' [{scope}]' if scope else ''}"]
    lines += _wrap("  rule: ", part["rule_text"])
    why = f"{threshold_text(part['threshold'], part['unit'])}, because: {part['threshold_why']}"
    lines += _wrap("  threshold: ", why)
    for cell in cells:
        where = labels.get(cell["node"], cell["node"])
        what = ", ".join(text for text in (where, cell["label"]) if text)
        value = interval(cell["estimate"], cell["low"], cell["high"], part["unit"])
        lines += _wrap(f"  {cell['outcome']:<11}", f"{value}  ({what})")
    return lines


def _wrap(head: str, text: str) -> list[str]:
    return textwrap.wrap(head + text, _WIDTH, subsequent_indent=" " * min(len(head), 13)) or [head]
