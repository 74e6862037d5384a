"""Find differences between two editions of a claim: rule, published figures and data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from contract.provenance import short_commit
from report.formatting import first_items, format_interval, threshold_text

Record = Mapping[str, Any]
# In display order: human decisions before measurements.
CAUSES = ("rule", "source", "data", "unknown")
# Most items listed per kind; the rest are counted.
_MOST = 3


@dataclass(frozen=True)
class Cause:
    """A difference, with its kind from CAUSES. part: name of the part, "" for the whole claim.

    stays: True to list it even if the verdict stayed.
    """

    cause: str
    text: str
    part: str = ""
    stays: bool = True


def find_causes(was: Record, now: Record, old: Record, new: Record) -> list[Cause]:
    """Return all differences that may explain a changed verdict.

    was, now: claim records in the editions old and new.
    """
    found = []
    if was["version"] != now["version"]:
        reasons = [each["reason"].rstrip(".") for each in now["changes"] if each["version"] > was["version"]]
        text = f"version {now['version']} of the rule, before {was['version']}"
        found.append(Cause("rule", f"{text}: {'; '.join(reasons)}" if reasons else text))
    sources = [
        {source["title"] or source["url"]: source["status"] for source in claim["sources"]} for claim in (was, now)
    ]
    found += [Cause("source", text) for text in _format_changes("sources", *sources)]
    before, after = ({part["name"]: part for part in claim["parts"]} for claim in (was, now))
    for name in dict.fromkeys([*after, *before]):
        if name in before and name in after:
            found += _part_causes(before[name], after[name], old, new)
        else:
            found.append(Cause("rule", f"this part {'is new' if name in after else 'was dropped'}", name))
    return sorted(found, key=lambda one: CAUSES.index(one.cause))


def unknown_cause(old: Record, new: Record) -> Cause:
    """Return the fallback if no difference was found."""
    commits = [short_commit(one["commit"], 7) or "not recorded" for one in (new, old)]
    judged = f": judged by commit {commits[0]}, before by {commits[1]}" if commits[0] != commits[1] else ""
    return Cause("unknown", f"rule and evidence are the same in these files{judged}")


def _part_causes(was: Record, now: Record, old: Record, new: Record) -> Iterator[Cause]:
    name = now["name"]
    # Older editions write "cell" for "case".
    rules = [one["rule"].replace(" cell", " case") for one in (now, was)]
    if was["quantity"] != now["quantity"] or was["unit"] != now["unit"]:
        values = [
            one["quantity"] + (f" in {one['unit']}" if one["unit"] not in ("", "1") else "") for one in (now, was)
        ]
        yield Cause("rule", f"decided by {values[0]}, before by {values[1]}", name)
    if was["threshold"] != now["threshold"]:
        values = [threshold_text(one["threshold"], one["unit"] or "1") for one in (now, was)]
        yield Cause("rule", f"the threshold is {values[0]}, before {values[1]}", name)
    elif rules[0] != rules[1]:
        yield Cause("rule", f"the rule reads “{rules[0]}”, before “{rules[1]}”", name)
    figures = [_figure_texts(was, old), _figure_texts(now, new)]
    yield from (Cause("source", text, name) for text in _format_changes("published figures", *figures))
    turned = was["outcome"] != now["outcome"]
    if turned:
        labels = {node["id"]: node["label"] for one in (old, new) for node in one["nodes"]}
        machines = [
            {labels[node["id"]]: str(node["ended_utc"]) for node in one["nodes"] if node["id"] in part["nodes"]}
            for part, one in ((was, old), (now, new))
        ]
        yield from (Cause("data", text, name, stays=False) for text in _format_changes("machines", *machines))
    told = [
        one["outcome"]
        if one["estimate"] is None
        else format_interval(one["estimate"], one["low"], one["high"], one["unit"])
        for one in (now, was)
    ]
    apart = was["unit"] == now["unit"] and _intervals_disjoint(was, now)
    if told[0] != told[1] and (turned or apart):
        yield Cause("data", f"now {told[0]}, before {told[1]}", name, stays=apart)


def _figure_texts(part: Record, edition: Record) -> dict[str, str]:
    """Map published figures used by a part to value and status."""
    found = [edition["figures"][name] for name in part["figures"] if name in edition["figures"]]
    return {one["what"]: f"{one['stated']}, {one['status']}" for one in found}


def _intervals_disjoint(was: Record, now: Record) -> bool:
    """True if the intervals are disjoint: more than drift between measurements."""
    ends = [one[end] for one in (was, now) for end in ("low", "high")]
    return None not in ends and (was["high"] < now["low"] or now["high"] < was["low"])


def _format_changes(kind: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Format differences: 'sources added: a (verified); b (…)', 'sources changed: …', 'sources gone: …'."""
    told = {
        "added": [f"{name} ({value})" for name, value in now.items() if name not in was],
        "changed": [
            f"{name}: {value}, before {was[name]}" for name, value in now.items() if was.get(name, value) != value
        ],
        "gone": [f"{name} ({value})" for name, value in was.items() if name not in now],
    }
    return (f"{kind} {said}: {first_items(items, _MOST, '; ')}" for said, items in told.items() if items)
