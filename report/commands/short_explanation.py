"""Explain a verdict in at most twelve lines, from the claim to what would change it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from report import verdict_sentences
from report.commands.explain import SIDES, WIDTH, find_verdict
from report.formatting import (
    case_machine,
    format_count,
    format_interval,
    shorten_names,
    verdict_case_name,
)
from report.outcomes import BASES, OTHERS, Threshold, Verdict, verdict_basis, verdict_name
from report.verdicts import FORMAT

Record = Mapping[str, Any]
# Most lines for each field; longer texts are cut.
_LINES = {"claim": 2, "finding": 2, "why": 2, "number": 2, "waits for": 2, "would change": 2}
_COLUMN = 14
# A case's name in editions before format 3.
_CELLS = re.compile(r"\bcell")


def explain_shortly(document: Record, claim: str, verdicts: Path) -> str:
    """Format a verdict for a terminal, as the file `verdicts` holds it. Raises StudyError if the claim is unknown."""
    verdict = find_verdict(document, claim)
    basis = f", {BASES[verdict_basis(verdict)]}" if Verdict(verdict["verdict"]).is_decided else ""
    head = f"{verdict['id']}: {verdict_name(verdict['verdict'], reason=True).upper()}{basis}. "
    lines = _cut(head, f'{verdict["article_title"]}, "{verdict["section"]}"', 1)
    for name, text in _fields(verdict, {node["id"]: node["label"] for node in document["nodes"]}):
        lines += _cut(f"  {name:{_COLUMN}}", text, _LINES.get(name, 1))
    folders = (verdicts.parent / "report", verdicts.parent)
    pages = [page for folder in folders if (page := folder / "claims" / f"{verdict['id']}.html").exists()]
    more = ["(--all prints every case, source and trial)"] if document.get("format") == FORMAT else []
    # Paths are not cut, so that they can be copied.
    if last := " ".join([*map(str, pages[:1]), *more]):
        lines += [f"  {'page' if pages else 'more':{_COLUMN}}{last}"]
    return "\n".join(lines)


def _fields(verdict: Record, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each field. labels: names of the nodes by id."""
    yield "claim", verdict["says"]
    yield "finding", verdict["finding"]
    if verdict["verdict"] == Verdict.NOT_TESTABLE:
        reason, claims = verdict.get("untestable"), ", ".join(verdict["bears_on"])
        yield ("why", reason) if reason else ("bears on it", claims)
        return
    part = _standing_part(verdict)
    cases = [case for case in verdict["cases"] if case["part"] == part["name"] and case["estimate"] is not None]
    if verdict["estimate"] is not None:
        yield "number", _number_text(verdict, part)
    if cases:
        yield "rests on", _evidence_text(verdict, cases, labels)
        yield "nearest case", _nearest_text(part, cases, labels)
    missing = [each["missing"] for each in verdict["parts"] if each["missing"]]
    if missing and not Verdict(verdict["verdict"]).is_decided:
        yield "waits for", "; ".join(dict.fromkeys(map(verdict_sentences.missing_text, missing)))
    # Editions before format 3 hold the finished sentence.
    elif change := verdict["flip"] if "flip" in verdict else verdict_sentences.turn_text(verdict):
        yield "would change", _CELLS.sub("case", change)
    elif verdict["decided_on"] == OTHERS:
        yield "would change", "A GPU that this study measures: its results replace those of others."


def _standing_part(verdict: Record) -> Record:
    """Return the part whose number is the claim's number."""
    ends = ("quantity", "estimate", "low", "high")
    return next(
        (part for part in verdict["parts"] if all(part[end] == verdict[end] for end in ends)), verdict["parts"][0]
    )


def _number_text(verdict: Record, part: Record) -> str:
    number = format_interval(verdict["estimate"], verdict["low"], verdict["high"], verdict["unit"])
    rule = _CELLS.sub("case", part["rule_text"]) if "rule_text" in part else verdict_sentences.rule_text(part)
    if len(verdict["parts"]) == 1:
        return f"{number}; {rule}"
    others = "; ".join(f"{each['name']}: {each['outcome']}" for each in verdict["parts"] if each is not part)
    return f"{part['name']}: {number}; {rule}. {others}"


def _evidence_text(verdict: Record, cases: Sequence[Record], labels: Mapping[str, str]) -> str:
    """Format the machines, published sources and figures behind a part's cases."""
    machines = list(dict.fromkeys(filter(None, (case_machine(case, labels) for case in cases))))
    names = {name for case in cases for name in str(case["labels"].get("source") or "").split(" and ") if name}
    entries = {entry for part in verdict["parts"] for entry in part["entries"]}
    texts = [format_count(len(cases), "case")]
    texts += [f"on {shorten_names(machines, 'machine')}"] if machines else []
    texts += [f"from {format_count(len(names), 'published source')}"] if names else []
    texts += [f"with {format_count(len(entries), 'published figure')}"] if entries else []
    return "; ".join(filter(None, [" ".join(texts), verdict["robust"]]))


def _nearest_text(part: Record, cases: Sequence[Record], labels: Mapping[str, str]) -> str:
    """Format the case that is nearest to the threshold."""
    threshold = Threshold.from_json(part["threshold"])
    case = min(cases, key=lambda case: threshold.distance(case["estimate"]))
    number = format_interval(case["estimate"], case["low"], case["high"], part["unit"])
    where = ", ".join(filter(None, (case_machine(case, labels), verdict_case_name(case))))
    return f"{number}, {SIDES[case['outcome']]}{f': {where}' if where else ''}"


def _cut(head: str, text: str, lines: int) -> list[str]:
    """Wrap a text after its head, and cut it to this many lines."""
    return textwrap.wrap(
        " ".join(str(text).split()), WIDTH, initial_indent=head, subsequent_indent=" " * (_COLUMN + 2), max_lines=lines,
        placeholder=" …", break_on_hyphens=False,
    )  # fmt: skip
