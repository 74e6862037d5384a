"""Why a verdict is another one than it was: only what two editions show, each cause in a sentence of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contract.provenance import short
from report.formatting import count, first, interval, threshold_text

Record = Mapping[str, Any]
# In the order in which they are told: what people decided comes before what was measured.
CAUSES = ("rule", "threshold", "quantity", "source", "figure", "node", "again", "evidence", "estimate", "cells",
          "unknown")  # fmt: skip
# Of more than so many of a kind the others are told by their number.
_MOST = 3


@dataclass(frozen=True)
class Cause:
    """One of CAUSES in words. part: the claim's part, '' for all of it.

    stays: worth telling of a claim that kept its verdict, too: another ground for it, not the drift of measurements.
    """

    cause: str
    text: str
    part: str = ""
    stays: bool = True


def causes(was: Record, now: Record, old: Record, new: Record) -> list[Cause]:
    """All that two editions, old and new, show of why a claim's verdict may have changed; none if nothing did.

    was, now: the claim in each of them.
    """
    found = [*_versions(was, now)]
    before, after = ({part["name"]: part for part in claim["parts"]} for claim in (was, now))
    for name in dict.fromkeys([*after, *before]):
        if name not in before or name not in after:
            found.append(Cause("rule", "this part is new" if name in after else "this part was dropped", name))
            continue
        found += _declared(before[name], after[name])
        found += _figures(before[name], after[name], old, new)
        found += _measured(before[name], after[name], old, new)
    if not any(one.cause == "source" for one in found):
        found += _sources(was, now)
    return sorted(found, key=lambda one: CAUSES.index(one.cause))


def unknown(old: Record, new: Record) -> Cause:
    """What is said where the files show no cause."""
    shown = "neither its rule nor its evidence is another in these files"
    if old["commit"] == new["commit"]:
        return Cause("unknown", shown)
    commits = [short(one["commit"], 7) or "not recorded" for one in (new, old)]
    return Cause("unknown", f"{shown}: the program that judges is (commit {commits[0]}, before {commits[1]})")


def _versions(was: Record, now: Record) -> Iterator[Cause]:
    before, after = was["version"], now["version"]
    if after > before:
        reasons = [change["reason"].rstrip(".") for change in now["changes"] if before < change["version"] <= after]
        yield Cause("rule", f"version {after} of the rule, before {before}: {'; '.join(reasons) or 'no reason given'}")
    elif after < before:
        yield Cause("rule", f"version {after} of the rule, before {before}: revisions were taken back")


def _declared(was: Record, now: Record) -> Iterator[Cause]:
    """What a part's file declares: quantity, unit, threshold, rule."""
    name = now["name"]
    if was["quantity"] != now["quantity"]:
        yield Cause("quantity", f"decided by {now['quantity']}, before by {was['quantity']}", name)
    elif was["unit"] and now["unit"] and was["unit"] != now["unit"]:
        yield Cause("quantity", f"counted in {now['unit']}, before in {was['unit']}", name)
    if was["threshold"] != now["threshold"]:
        values = [threshold_text(one["threshold"], one["unit"] or "1") for one in (now, was)]
        yield Cause("threshold", f"the threshold is {values[0]}, before {values[1]}", name)
        return
    # Older editions call a case a cell.
    rules = [one["rule"].replace(" cell", " case") for one in (now, was)]
    if rules[0] != rules[1]:
        yield Cause("rule", f"the rule reads “{rules[0]}”, before “{rules[1]}”", name)


def _figures(was: Record, now: Record, old: Record, new: Record) -> Iterator[Cause]:
    """Published figures that a part rests on: verified, changed, asked for since, asked for no more."""
    before = {name: old["figures"][name] for name in was["figures"] if name in old["figures"]}
    after = {name: new["figures"][name] for name in now["figures"] if name in new["figures"]}
    both = [(before[name], figure) for name, figure in after.items() if name in before]
    turned = [(one, other) for one, other in both if one["status"] != other["status"]]
    changed = [(one, other) for one, other in both if one["stated"] != other["stated"]]
    told = {
        "source verified": ("source", [f"{b['what']} ({b['stated']})" for _, b in turned if _verified(b)]),
        "source no longer verified": ("source", [b["what"] for _, b in turned if not _verified(b)]),
        "published figure changed": (
            "figure",
            [f"{b['what']}: {b['stated']}, before {a['stated']}" for a, b in changed],
        ),
        "published figure used since": (
            "figure",
            [f"{one['what']} ({one['stated']})" for name, one in after.items() if name not in before],
        ),
        "published figure used no more": (
            "figure",
            [f"{one['what']} ({one['stated']})" for name, one in before.items() if name not in after],
        ),
    }
    for said, (cause, items) in told.items():
        if items:
            yield Cause(cause, f"{said}: {_some(items)}", now["name"])


def _sources(was: Record, now: Record) -> Iterator[Cause]:
    """Sources that the claim itself names."""
    before, after = ({(s["title"], s["where"], s["url"]): s for s in claim["sources"]} for claim in (was, now))
    new = [_titled(one) for key, one in after.items() if key not in before]
    gone = [_titled(one) for key, one in before.items() if key not in after]
    turned = [one for key, one in after.items() if key in before and before[key]["status"] != one["status"]]
    told = {
        "source verified": [_titled(one) for one in turned if _verified(one)],
        "source no longer verified": [_titled(one) for one in turned if not _verified(one)],
        "source added": new,
        "source dropped": gone,
    }
    for said, items in told.items():
        if items:
            yield Cause("source", f"{said}: {_some(items)}")


def _titled(source: Record) -> str:
    return str(source["title"] or source["url"])


def _verified(figure: Record) -> bool:
    return bool(figure["status"] == "verified")


def _some(items: Sequence[str]) -> str:
    return first(list(dict.fromkeys(items)), _MOST, "; ")


def _measured(was: Record, now: Record, old: Record, new: Record) -> Iterator[Cause]:
    """Machines, estimates and cells of a part. Small shifts are told only where the part came out otherwise."""
    turned = was["outcome"] != now["outcome"]
    if turned:
        yield from _machines(was, now, old, new)
    yield from _estimate(was, now, turned)
    numbers = [(one["cells"].get("supports", 0), sum(one["cells"].values())) for one in (now, was)]
    if turned and numbers[0] != numbers[1] and all(of for _, of in numbers) and max(of for _, of in numbers) > 1:
        (pro, of), (pro_before, of_before) = numbers
        text = f"{pro} of {count(of, 'case')} {'supports' if pro == 1 else 'support'} it"
        yield Cause("cells", f"{text}, before {pro_before} of {of_before}", now["name"], stays=False)


def _machines(was: Record, now: Record, old: Record, new: Record) -> Iterator[Cause]:
    before, after = ({node["id"]: node for node in one["nodes"]} for one in (old, new))
    added = [_label(after, name) for name in now["nodes"] if name not in was["nodes"]]
    gone = [_label(before, name) for name in was["nodes"] if name not in now["nodes"]]
    again = [
        _label(after, name)
        for name in now["nodes"]
        if name in was["nodes"] and name in before and name in after and measured_again(before[name], after[name])
    ]
    for cause, said, labels in (
        ("node", "new evidence from", added),
        ("node", "no more evidence from", gone),
        ("again", "measured again:", again),
    ):
        if labels:
            yield Cause(cause, f"{said} {_some(labels)}", now["name"], stays=False)


def measured_again(before: Record, after: Record) -> bool:
    """Whether a machine's record is of another run."""
    return any(before[name] != after[name] for name in ("started_utc", "ended_utc"))


def _label(nodes: Mapping[str, Record], name: str) -> str:
    return str(nodes[name]["label"]) if name in nodes else name


def _estimate(was: Record, now: Record, turned: bool) -> Iterator[Cause]:
    name = now["name"]
    values = [interval(one["estimate"], one["low"], one["high"], one["unit"]) for one in (was, now)]
    if was["estimate"] is None or now["estimate"] is None:
        if not turned:
            return
        if now["estimate"] is not None:
            yield Cause("evidence", f"no longer {was['outcome']}: {values[1]}", name, stays=False)
        elif was["estimate"] is not None:
            yield Cause("evidence", f"{now['outcome']}, where there was {values[0]}", name, stays=False)
        else:
            yield Cause("evidence", f"{now['outcome']}, before {was['outcome']}", name, stays=False)
    elif any(was[key] != now[key] for key in ("estimate", "low", "high", "unit")):
        apart = was["unit"] == now["unit"] and _apart(was, now)
        if turned or apart:
            yield Cause("estimate", _moved(was, now, values), name, stays=apart)


def _apart(was: Record, now: Record) -> bool:
    """Whether the intervals share nothing: then it is not the drift from one measurement to the next."""
    ends = [one[end] for one in (was, now) for end in ("low", "high")]
    return None not in ends and (was["high"] < now["low"] or now["high"] < was["low"])


def _moved(was: Record, now: Record, values: Sequence[str]) -> str:
    """From where to where an estimate moved, and what that has to do with the threshold."""
    told = f"from {values[0]} to {values[1]}"
    if was["threshold"] != now["threshold"] or was["unit"] != now["unit"]:
        return f"the estimate moved {told}"
    threshold = threshold_text(now["threshold"], now["unit"] or "1")
    if _side(was) != _side(now):
        return f"the estimate moved across the threshold of {threshold}: {told}"
    if now["outcome"] == "undecided" != was["outcome"]:
        return f"the estimate moved {told}: too close to the threshold of {threshold} now"
    if was["outcome"] == "undecided" != now["outcome"]:
        return f"the estimate moved {told}: clear of the threshold of {threshold} now"
    return f"the estimate moved {told}"


def _side(part: Record) -> int:
    """How many of the threshold's ends an estimate has passed."""
    ends = part["threshold"] if isinstance(part["threshold"], list) else [part["threshold"]]
    return sum(part["estimate"] >= end for end in ends)
