"""What the page is given to judge claims again: records of `judging.client_evaluation`, and words of their forms."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report import formatting
from report.judging.client_evaluation import slug
from report.model import AWAITING, JUDGED, Threshold
from report.render import words

# Of the nodes of a whole fleet there are too many cells for a page; the claims with the fewest go first.
MOST_BYTES = 400_000
BASELINES = {**formatting.BASELINES, "node": "all cores of the node"}
# No text can end the element that holds it, or begin another.
_ESCAPED = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def can_be_tried(verdict: Mapping[str, Any]) -> bool:
    """Whether the card of a claim has a form: a rule came to it, and a threshold or a baseline has a say in it."""
    parts = verdict.get("parts") or []
    # What others measured has no form: its rule is another (see `judging.rules.by_others`).
    return verdict["verdict"] in JUDGED and all("rejudge" in part for part in parts) and any(map(_has_a_say, parts))


def as_script(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """The data of all forms as an HTML script element; '' for verdicts that were written without them."""
    told = rejudged(verdicts)
    if not told["claims"]:
        return ""
    text = json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f'<script type="application/json" id="rejudge-data">{text.translate(_ESCAPED)}</script>\n'


def rejudged(verdicts: Iterable[Mapping[str, Any]], most: int = MOST_BYTES) -> dict[str, Any]:
    """Every claim as the page's script reads it, by id; `cells` of all of them, which the parts have by number.

    Those with a form come first, and of these the small ones; a claim that would make the whole larger than `most`
    bytes is told what to type instead. Claims of a file without the records are left out.
    """
    able = [one for one in verdicts if all("rejudge" in part for part in one.get("parts") or [])]
    if not any(one.get("parts") for one in able):
        able = []
    claims: dict[str, Any] = {}
    cells: dict[tuple[Any, ...], int] = {}
    total = 0
    for one in sorted(able, key=lambda one: (not can_be_tried(one), len(one.get("cells") or []))):
        pooled = dict(cells)
        claim = _claim(one, pooled)
        size = len(json.dumps([claim, list(pooled)[len(cells) :]]))
        if total + size > most:
            claims[str(one["id"])] = {"verdict": one["verdict"], "left_out": _left_out(one)}
            continue
        claims[str(one["id"])], cells, total = claim, pooled, total + size
    classes = {name: words.verdict_class(name) for name in words.VERDICTS}
    return {"awaiting": list(AWAITING), "classes": classes, "cells": list(cells), "claims": claims}


def _has_a_say(part: Mapping[str, Any]) -> bool:
    record = part.get("rejudge") or {}
    return part.get("unit") != formatting.YES_NO and bool(record.get("cells") or record.get("baselines"))


def _claim(verdict: Mapping[str, Any], cells: dict[tuple[Any, ...], int]) -> dict[str, Any]:
    """A claim: verdict as declared; parts; baselines that can be chosen, by name with their words, '' as declared.

    cells: the numbers of all cells so far, to which those of this claim are added. Many claims compare the same.
    """
    parts, then = verdict["parts"], verdict.get("when_written") or []
    made = [_part(part, _setting(verdict, part), cells) for part in parts]
    offered = [name for name in BASELINES if any(name in part["baselines"] for part in made)]
    declared = f"as declared{_declared(parts)}"
    return {
        "verdict": verdict["verdict"],
        "held_then": bool(then) and all(one["outcome"] == "supported" for one in then),
        "parts": made,
        "baselines": [["", declared], *([name, BASELINES[name]] for name in offered)] if offered else [],
    }


def _declared(parts: Sequence[Mapping[str, Any]]) -> str:
    """' (one core or all cores of the node)'; '' where the parts do not say, or not the same."""
    named = [part["scope"].get("baseline") for part in parts if part["rejudge"]["baselines"]]
    if not named or named[0] is None or any(one != named[0] for one in named):
        return ""
    names = named[0] if isinstance(named[0], list) else [named[0]]
    return f" ({formatting.several([BASELINES.get(name, str(name)) for name in names], 'or')})"


def _setting(verdict: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """The threshold of a part as `what-if --set` names it."""
    middle = f".{slug(part['name'])}" if len(verdict["parts"]) > 1 else ""
    return f"{verdict['id']}{middle}.threshold"


def _part(part: Mapping[str, Any], setting: str, cells: dict[tuple[Any, ...], int]) -> dict[str, Any]:
    """A part: what the rule asks, what it is compared with, and the words around the field for its threshold."""
    record = part["rejudge"]

    def compared(one: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "settled": one["settled"],
            "turns": one.get("turns"),
            "cells": [cells.setdefault(tuple(cell), len(cells)) for cell in one["cells"]],
        }

    own = compared(record)
    others = {name: {"outcome": one["outcome"], **compared(one)} for name, one in record["baselines"].items()}
    told = {
        "name": part["name"],
        "rule": part["rule"],
        "how": record["how"],
        "unchecked": part.get("unchecked", False),
        "threshold": part["threshold"],
        "outcome": part["outcome"],
        **own,
        # What comes to the same as declared need not stand twice: the script falls back on it.
        "baselines": {name: one for name, one in others.items() if one != {"outcome": part["outcome"], **own}},
        "set": setting,
    }
    return {**told, **_form(part)} if _has_a_say(part) else told


def _form(part: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a part's field.

    before, after: what stands around it; power: of ten, by which the number in it is multiplied, as its unit has an SI
    prefix; needs: how many cells must support it; tries: the declared range, each threshold with its words;
    signed: whether a number below zero may be typed.
    """
    unit, bound, record = str(part["unit"] or "1"), part["threshold"], part["rejudge"]
    scale, name = formatting.prefix(max(Threshold.of(bound).ends), unit)
    counted = words.counted(part)
    after = f"{name}{record['after']}{f' ({counted})' if counted else ''}".strip()
    values = sorted({Threshold.of(one) for one in [*part["sensitivity"], bound]})
    tries = [[one.json, _told(one, scale) + (" (declared)" if one.json == bound else "")] for one in values]
    return {
        "before": words.sentence(record["before"]),
        "after": after,
        "power": round(math.log10(scale)),
        "needs": _needs(part),
        "tries": tries if len(tries) > 1 else [],
        "signed": record["negative"],
    }


def _told(threshold: Threshold, scale: float) -> str:
    """A threshold, or the two ends of a range, in the unit of the field."""
    return " to ".join(dict.fromkeys(formatting.exactly(end / scale) for end in threshold.ends))


def _needs(part: Mapping[str, Any]) -> str:
    if part["rule"] == "exists":
        return "one that supports it is enough"
    if part["rule"] == "for_share_of":
        needed = formatting.exactly(100 * part["options"]["share"])
        return f"{needed}% of the {part['options']['of']}s must reach it, with the interval of their share"
    return ""


def _left_out(verdict: Mapping[str, Any]) -> str:
    """What to do about a claim whose cells are too many for the page."""
    n = sum(len(part["rejudge"]["cells"]) + sum(part["rejudge"]["settled"]) for part in verdict["parts"])
    setting = next((_setting(verdict, part) for part in verdict["parts"] if _has_a_say(part)), "")
    typed = f" On the command line: python -m report what-if --set '{setting}=VALUE'" if setting else ""
    return f"Its {formatting.count(n, 'cell')} are too many for this page.{typed}"
