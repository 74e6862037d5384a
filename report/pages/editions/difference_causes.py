"""Find differences in a claim between two editions: in its rule, in published figures and in data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from contract.provenance import short_commit
from report.formatting import first_items, format_interval, threshold_text
from report.pages.quantity_words import quantity_words

Record = Mapping[str, Any]
# Causes in display order: human decisions come before measurements.
CAUSES = ("rule", "source", "data", "unknown")
# Maximum number of items to list per kind of change; further items are only counted.
_MOST = 3


@dataclass(frozen=True)
class Cause:
    """A difference between two editions' records of a claim, which may explain why the verdict changed.

    cause: one of CAUSES.
    text: the difference in words.
    part: name of the part that differs, "" for the whole claim.
    stays: True lists the difference even if the verdict did not change.
    """

    cause: str
    text: str
    part: str = ""
    stays: bool = True


def find_causes(was: Record, now: Record, old: Record, new: Record) -> list[Cause]:
    """Return all differences that may explain a changed verdict.

    was, now: the claim's records in the editions `old` and `new`.
    """
    differences = []
    if was["version"] != now["version"]:
        reasons = [each["reason"].rstrip(".") for each in now["changes"] if each["version"] > was["version"]]
        text = f"version {now['version']} of the rule, before {was['version']}"
        differences.append(Cause("rule", f"{text}: {'; '.join(reasons)}" if reasons else text))
    sources = [
        {source["title"] or source["url"]: source["status"] for source in claim["sources"]} for claim in (was, now)
    ]
    differences += [Cause("source", text) for text in _format_changes("sources", *sources)]
    before, after = ({part["name"]: part for part in claim["parts"]} for claim in (was, now))
    for name in dict.fromkeys([*after, *before]):
        if name in before and name in after:
            differences += _part_causes(before[name], after[name], old, new)
        else:
            differences.append(Cause("rule", f"this part {'is new' if name in after else 'was dropped'}", name))
    return sorted(differences, key=lambda cause: CAUSES.index(cause.cause))


def unknown_cause(old: Record, new: Record) -> Cause:
    """Return the cause to list if a verdict changed and no difference was found."""
    commits = [short_commit(edition["commit"], 7) or "not recorded" for edition in (new, old)]
    judged = f": judged by commit {commits[0]}, before by {commits[1]}" if commits[0] != commits[1] else ""
    return Cause("unknown", f"rule and evidence are the same in these files{judged}")


def _part_causes(was: Record, now: Record, old: Record, new: Record) -> Iterator[Cause]:
    name = now["name"]
    # Older editions write "cell" for "case". That does not change the rule, so "cell" is replaced first.
    rules = [record["rule"].replace(" cell", " case") for record in (now, was)]
    if was["quantity"] != now["quantity"] or was["unit"] != now["unit"]:
        values = [
            f"“{quantity_words(record['quantity']).axis}”"
            + (f" in {record['unit']}" if record["unit"] not in ("", "1") and was["unit"] != now["unit"] else "")
            for record in (now, was)
        ]
        if values[0] != values[1]:
            yield Cause("rule", f"decided by {values[0]}, before by {values[1]}", name)
    if was["threshold"] != now["threshold"]:
        values = [threshold_text(record["threshold"], record["unit"] or "1") for record in (now, was)]
        yield Cause("rule", f"the threshold is {values[0]}, before {values[1]}", name)
    elif rules[0] != rules[1]:
        yield Cause("rule", f"the rule reads “{rules[0]}”, before “{rules[1]}”", name)
    figures = [_figure_texts(was, old), _figure_texts(now, new)]
    yield from (Cause("source", text, name) for text in _format_changes("published figures", *figures))
    turned = was["outcome"] != now["outcome"]
    if turned:
        labels = {node["id"]: node["label"] for edition in (old, new) for node in edition["nodes"]}
        machines = [
            {labels[node["id"]]: str(node["ended_utc"]) for node in edition["nodes"] if node["id"] in part["nodes"]}
            for part, edition in ((was, old), (now, new))
        ]
        yield from (Cause("data", text, name, stays=False) for text in _format_changes("machines", *machines))
    results = [
        record["outcome"]
        if record["estimate"] is None
        else format_interval(record["estimate"], record["low"], record["high"], record["unit"])
        for record in (now, was)
    ]
    disjoint = was["unit"] == now["unit"] and _intervals_disjoint(was, now)
    if results[0] != results[1] and (turned or disjoint):
        yield Cause("data", f"now {results[0]}, before {results[1]}", name, stays=disjoint)


def _figure_texts(part: Record, edition: Record) -> dict[str, str]:
    """Map each published figure that the part uses to its value and status."""
    figures = [edition["figures"][name] for name in part["figures"] if name in edition["figures"]]
    return {figure["what"]: f"{figure['stated']}, {figure['status']}" for figure in figures}


def _intervals_disjoint(was: Record, now: Record) -> bool:
    """True if both intervals are known and do not overlap: the results differ by more than drift would explain."""
    ends = [record[end] for record in (was, now) for end in ("low", "high")]
    return None not in ends and (was["high"] < now["low"] or now["high"] < was["low"])


def _format_changes(kind: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Format differences: 'sources added: a (verified); b (…)', 'sources changed: …', 'sources gone: …'."""
    changes = {
        "added": [f"{name} ({value})" for name, value in now.items() if name not in was],
        "changed": [
            f"{name}: {value}, before {was[name]}" for name, value in now.items() if was.get(name, value) != value
        ],
        "gone": [f"{name} ({value})" for name, value in was.items() if name not in now],
    }
    return (f"{kind} {verb}: {first_items(items, _MOST, '; ')}" for verb, items in changes.items() if items)
