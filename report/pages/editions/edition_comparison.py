"""Compare two editions: changed verdicts with reasons, new and withdrawn claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contract.provenance import short_commit
from report.formatting import capitalize, format_count, join_words
from report.pages.editions.difference_causes import find_causes, unknown_cause

Record = Mapping[str, Any]


def compare_editions(old: Record, new: Record) -> dict[str, Any]:
    """Compare two records from `edition_record.extract_edition`; return a mapping with these keys.

    old, new: edition summaries.
    nodes: labels of machines that were added, are gone, or were measured again.
    changed: claims with another verdict. Each has `was` and `is` (verdicts) and `why`, a list of causes with cause,
    part and text.
    revised: like `changed`, for claims with the same verdict although rule, sources or data differ.
    added: claims in the new edition only.
    withdrawn: claims in the old edition only.
    stayed: ids of all claims with the same verdict.
    """
    before = {claim["id"]: claim for claim in old["claims"]}
    after = {claim["id"]: claim for claim in new["claims"]}
    changes = [_claim_change(before[name], claim, old, new) for name, claim in after.items() if name in before]
    return {
        "old": _edition_summary(old),
        "new": _edition_summary(new),
        "nodes": _node_changes(old, new),
        "changed": [change for change in changes if change["was"] != change["is"]],
        "revised": [change for change in changes if change["was"] == change["is"] and change["why"]],
        "added": [_claim_summary(claim) for name, claim in after.items() if name not in before],
        "withdrawn": [_claim_summary(claim) for name, claim in before.items() if name not in after],
        "stayed": [change["id"] for change in changes if change["was"] == change["is"]],
    }


def _edition_summary(edition: Record) -> dict[str, Any]:
    return {
        **{name: edition[name] for name in ("generated_utc", "commit", "study_version")},
        "nodes": [node["label"] for node in edition["nodes"]],
        "tally": dict(Counter(claim["verdict"] for claim in edition["claims"])),
    }


def _node_changes(old: Record, new: Record) -> dict[str, list[str]]:
    before, after = ({node["id"]: node for node in edition["nodes"]} for edition in (old, new))
    pairs = [(before[name], node) for name, node in after.items() if name in before]
    return {
        "added": [node["label"] for name, node in after.items() if name not in before],
        "gone": [node["label"] for name, node in before.items() if name not in after],
        "again": [
            now["label"] for was, now in pairs if any(was[key] != now[key] for key in ("started_utc", "ended_utc"))
        ],
    }


def _claim_change(was: Record, now: Record, old: Record, new: Record) -> dict[str, Any]:
    turned = was["verdict"] != now["verdict"]
    reasons = [cause for cause in find_causes(was, now, old, new) if turned or cause.stays]
    if turned and not reasons:
        reasons = [unknown_cause(old, new)]
    why = [{"cause": cause.cause, "part": cause.part, "text": cause.text} for cause in dict.fromkeys(reasons)]
    return {"id": now["id"], "says": now["says"], "was": was["verdict"], "is": now["verdict"], "why": why}


def _claim_summary(claim: Record) -> dict[str, str]:
    return {name: str(claim[name]) for name in ("id", "says", "verdict")}


def edition_day(about: Record) -> str:
    """Return the date of an edition: '2026-11-22'."""
    return str(about["generated_utc"])[:10]


def headline(comparison: Record) -> str:
    """Count changed verdicts, new and withdrawn claims in a sentence."""
    changed, total = len(comparison["changed"]), len(comparison["changed"]) + len(comparison["stayed"])
    parts = [f"{changed or 'none'} of {format_count(total, 'verdict')} changed" if total else "no claim is in both"]
    words = {"added": ("claim is new", "claims are new"), "withdrawn": ("was withdrawn", "were withdrawn")}
    for key, (singular, plural) in words.items():
        if comparison[key]:
            parts.append(f"{len(comparison[key])} {singular if len(comparison[key]) == 1 else plural}")
    sentence = f"{join_words(parts)}."
    return capitalize(sentence)


def machine_sentences(comparison: Record) -> list[str]:
    """Return up to three sentences: on machines that were added, on those measured again, and on those now gone."""
    headings = (("added", "Added"), ("again", "Measured again"), ("gone", "No longer there"))
    return [f"{word}: {join_words(comparison['nodes'][key])}." for key, word in headings if comparison["nodes"][key]]


def format_causes(why: Sequence[Record]) -> list[str]:
    """Format causes as texts, grouped by part."""
    by_part: dict[str, list[str]] = {}
    for cause in why:
        by_part.setdefault(cause["part"], []).append(str(cause["text"]))
    return [*by_part.pop("", []), *(f"{part}: {'; '.join(texts)}" for part, texts in by_part.items())]


def format_comparison(comparison: Record) -> Iterator[str]:
    """Format the comparison as plain text lines."""
    editions = [
        f"{edition_day(comparison[key])} (commit {short_commit(comparison[key]['commit'], 7) or 'unknown'})"
        for key in ("new", "old")
    ]
    yield f"The edition of {editions[0]} against that of {editions[1]}:"
    yield headline(comparison)
    yield from machine_sentences(comparison)
    for title, key in (("Changed", "changed"), ("The same verdict on other grounds", "revised")):
        if comparison[key]:
            yield from ("", f"{title}:")
        for change in comparison[key]:
            turned = f"{change['was']} -> {change['is']}" if change["was"] != change["is"] else change["is"]
            yield f"{change['id']}  {turned}"
            yield from (f"     {reason}" for reason in format_causes(change["why"]))
    for title, key in (("New", "added"), ("Withdrawn", "withdrawn")):
        if comparison[key]:
            yield from ("", f"{title}:")
        yield from (f"{claim['id']}  {claim['verdict']}: {claim['says']}" for claim in comparison[key])
    if comparison["stayed"]:
        yield from ("", f"Stayed ({len(comparison['stayed'])}): {', '.join(comparison['stayed'])}")
