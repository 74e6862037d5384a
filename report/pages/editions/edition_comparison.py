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
    """Compare two records from `edition_record.extract_edition`.

    changed: claims with a new verdict, each with `was`, `is` and `why`, a list with cause, part and text. revised: same
    verdict, different evidence. added, withdrawn: claims. stayed: claim ids with the same verdict. nodes: labels for
    added, gone and remeasured machines.
    """
    before = {claim["id"]: claim for claim in old["claims"]}
    after = {claim["id"]: claim for claim in new["claims"]}
    both = [_claim_change(before[name], claim, old, new) for name, claim in after.items() if name in before]
    return {
        "old": _edition_summary(old),
        "new": _edition_summary(new),
        "nodes": _node_changes(old, new),
        "changed": [one for one in both if one["was"] != one["is"]],
        "revised": [one for one in both if one["was"] == one["is"] and one["why"]],
        "added": [_claim_summary(claim) for name, claim in after.items() if name not in before],
        "withdrawn": [_claim_summary(claim) for name, claim in before.items() if name not in after],
        "stayed": [one["id"] for one in both if one["was"] == one["is"]],
    }


def _edition_summary(one: Record) -> dict[str, Any]:
    return {
        **{name: one[name] for name in ("generated_utc", "commit", "study_version")},
        "nodes": [node["label"] for node in one["nodes"]],
        "tally": dict(Counter(claim["verdict"] for claim in one["claims"])),
    }


def _node_changes(old: Record, new: Record) -> dict[str, list[str]]:
    before, after = ({node["id"]: node for node in one["nodes"]} for one in (old, new))
    both = [(before[name], node) for name, node in after.items() if name in before]
    return {
        "added": [node["label"] for name, node in after.items() if name not in before],
        "gone": [node["label"] for name, node in before.items() if name not in after],
        "again": [
            now["label"] for was, now in both if any(was[key] != now[key] for key in ("started_utc", "ended_utc"))
        ],
    }


def _claim_change(was: Record, now: Record, old: Record, new: Record) -> dict[str, Any]:
    turned = was["verdict"] != now["verdict"]
    found = [cause for cause in find_causes(was, now, old, new) if turned or cause.stays]
    if turned and not found:
        found = [unknown_cause(old, new)]
    why = [{"cause": cause.cause, "part": cause.part, "text": cause.text} for cause in dict.fromkeys(found)]
    return {"id": now["id"], "says": now["says"], "was": was["verdict"], "is": now["verdict"], "why": why}


def _claim_summary(claim: Record) -> dict[str, str]:
    return {name: str(claim[name]) for name in ("id", "says", "verdict")}


def edition_day(about: Record) -> str:
    """Return an edition's date."""
    return str(about["generated_utc"])[:10]


def headline(found: Record) -> str:
    """Count changed verdicts, new and withdrawn claims in a sentence."""
    changed, of = len(found["changed"]), len(found["changed"]) + len(found["stayed"])
    told = [f"{changed or 'none'} of {format_count(of, 'verdict')} changed" if of else "no claim is in both"]
    words = {"added": ("claim is new", "claims are new"), "withdrawn": ("was withdrawn", "were withdrawn")}
    for key, (one, many) in words.items():
        if found[key]:
            told.append(f"{len(found[key])} {one if len(found[key]) == 1 else many}")
    sentence = f"{join_words(told)}."
    return capitalize(sentence)


def machine_sentences(found: Record) -> list[str]:
    """List added, remeasured and gone machines, a sentence each."""
    said = (("added", "Added"), ("again", "Measured again"), ("gone", "No longer there"))
    return [f"{word}: {join_words(found['nodes'][key])}." for key, word in said if found["nodes"][key]]


def format_causes(why: Sequence[Record]) -> list[str]:
    """Format causes, grouped by part."""
    told: dict[str, list[str]] = {}
    for one in why:
        told.setdefault(one["part"], []).append(str(one["text"]))
    return [*told.pop("", []), *(f"{part}: {'; '.join(texts)}" for part, texts in told.items())]


def format_comparison(found: Record) -> Iterator[str]:
    """Format the comparison as plain text lines."""
    editions = [
        f"{edition_day(found[key])} (commit {short_commit(found[key]['commit'], 7) or 'unknown'})"
        for key in ("new", "old")
    ]
    yield f"The edition of {editions[0]} against that of {editions[1]}:"
    yield headline(found)
    yield from machine_sentences(found)
    for title, key in (("Changed", "changed"), ("The same verdict on other grounds", "revised")):
        if found[key]:
            yield from ("", f"{title}:")
        for one in found[key]:
            turned = f"{one['was']} -> {one['is']}" if one["was"] != one["is"] else one["is"]
            yield f"{one['id']}  {turned}"
            yield from (f"     {reason}" for reason in format_causes(one["why"]))
    for title, key in (("New", "added"), ("Withdrawn", "withdrawn")):
        if found[key]:
            yield from ("", f"{title}:")
        yield from (f"{one['id']}  {one['verdict']}: {one['says']}" for one in found[key])
    if found["stayed"]:
        yield from ("", f"Stayed ({len(found['stayed'])}): {', '.join(found['stayed'])}")
