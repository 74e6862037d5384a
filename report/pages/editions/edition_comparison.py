"""Two editions side by side: which verdicts changed and why, which claims are new or withdrawn, what stayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contract.provenance import short
from report.formatting import capital, count, several
from report.pages.editions.difference_causes import causes, unknown

Record = Mapping[str, Any]


def compare(old: Record, new: Record) -> dict[str, Any]:
    """Changes from one edition to another (records of `edition_record.edition`).

    changed: claims whose verdict did, each with `was`, `is` and `why`, a list of {cause, part, text}. revised: those
    that kept it on other grounds. added and withdrawn claims; stayed: ids of all that kept their verdict; nodes:
    labels of the machines that were added, are gone, were measured again.
    """
    before = {claim["id"]: claim for claim in old["claims"]}
    after = {claim["id"]: claim for claim in new["claims"]}
    both = [_claim(before[name], claim, old, new) for name, claim in after.items() if name in before]
    return {
        "old": _about(old),
        "new": _about(new),
        "nodes": _nodes(old, new),
        "changed": [one for one in both if one["was"] != one["is"]],
        "revised": [one for one in both if one["was"] == one["is"] and one["why"]],
        "added": [_single(claim) for name, claim in after.items() if name not in before],
        "withdrawn": [_single(claim) for name, claim in before.items() if name not in after],
        "stayed": [one["id"] for one in both if one["was"] == one["is"]],
    }


def _about(one: Record) -> dict[str, Any]:
    return {
        **{name: one[name] for name in ("generated_utc", "commit", "study_version")},
        "nodes": [node["label"] for node in one["nodes"]],
        "tally": dict(Counter(claim["verdict"] for claim in one["claims"])),
    }


def _nodes(old: Record, new: Record) -> dict[str, list[str]]:
    before, after = ({node["id"]: node for node in one["nodes"]} for one in (old, new))
    both = [(before[name], node) for name, node in after.items() if name in before]
    return {
        "added": [node["label"] for name, node in after.items() if name not in before],
        "gone": [node["label"] for name, node in before.items() if name not in after],
        "again": [
            now["label"] for was, now in both if any(was[key] != now[key] for key in ("started_utc", "ended_utc"))
        ],
    }


def _claim(was: Record, now: Record, old: Record, new: Record) -> dict[str, Any]:
    turned = was["verdict"] != now["verdict"]
    found = [cause for cause in causes(was, now, old, new) if turned or cause.stays]
    if turned and not found:
        found = [unknown(old, new)]
    why = [{"cause": cause.cause, "part": cause.part, "text": cause.text} for cause in dict.fromkeys(found)]
    return {"id": now["id"], "says": now["says"], "was": was["verdict"], "is": now["verdict"], "why": why}


def _single(claim: Record) -> dict[str, str]:
    return {name: str(claim[name]) for name in ("id", "says", "verdict")}


def day(about: Record) -> str:
    """The date of an edition."""
    return str(about["generated_utc"])[:10]


def headline(found: Record) -> str:
    """One sentence: how many verdicts changed, and of which claims there were none before."""
    changed, of = len(found["changed"]), len(found["changed"]) + len(found["stayed"])
    told = [f"{changed or 'none'} of {count(of, 'verdict')} changed" if of else "no claim is in both"]
    words = {"added": ("claim is new", "claims are new"), "withdrawn": ("was withdrawn", "were withdrawn")}
    for key, (one, many) in words.items():
        if found[key]:
            told.append(f"{len(found[key])} {one if len(found[key]) == 1 else many}")
    sentence = f"{several(told)}."
    return capital(sentence)


def machines(found: Record) -> list[str]:
    """A sentence each for the machines that were added, measured again, or are gone."""
    said = (("added", "Added"), ("again", "Measured again"), ("gone", "No longer there"))
    return [f"{word}: {several(found['nodes'][key])}." for key, word in said if found["nodes"][key]]


def reasons(why: Sequence[Record]) -> list[str]:
    """The causes of one claim in words, those of one of several parts together."""
    told: dict[str, list[str]] = {}
    for one in why:
        told.setdefault(one["part"], []).append(str(one["text"]))
    return [*told.pop("", []), *(f"{part}: {'; '.join(texts)}" for part, texts in told.items())]


def lines(found: Record) -> Iterator[str]:
    """The comparison in plain text."""
    editions = [f"{day(found[key])} (commit {short(found[key]['commit'], 7) or 'unknown'})" for key in ("new", "old")]
    yield f"The edition of {editions[0]} against that of {editions[1]}:"
    yield headline(found)
    yield from machines(found)
    for title, key in (("Changed", "changed"), ("The same verdict on other grounds", "revised")):
        if found[key]:
            yield from ("", f"{title}:")
        for one in found[key]:
            turned = f"{one['was']} -> {one['is']}" if one["was"] != one["is"] else one["is"]
            yield f"{one['id']}  {turned}"
            yield from (f"     {reason}" for reason in reasons(one["why"]))
    for title, key in (("New", "added"), ("Withdrawn", "withdrawn")):
        if found[key]:
            yield from ("", f"{title}:")
        yield from (f"{one['id']}  {one['verdict']}: {one['says']}" for one in found[key])
    if found["stayed"]:
        yield from ("", f"Stayed ({len(found['stayed'])}): {', '.join(found['stayed'])}")
