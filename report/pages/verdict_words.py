"""How the pages speak of verdicts and of whose numbers they rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from report import formatting, statistics
from report.outcomes import DECIDED, HERE, OTHERS
from report.pages.markdown import identifier

# The level of the intervals that are shown, as captions say it.
LEVEL = f"{100 * statistics.LEVEL:g}%"
BARS = f"Bars: {LEVEL} intervals"
# What a table says where there is nothing.
NOTHING = "–"


def disturbed(share: float | None) -> str:
    """Mark behind a number, by the share of its results that are disturbed: ' (disturbed)', or ''."""
    return "" if not share else " (disturbed)" if share > 0.5 else " (partly disturbed)"


@dataclass(frozen=True)
class Word:
    """A verdict on a page: its class in style sheets, its sign, its name, what it means, and how it counts claims."""

    css: str
    sign: str
    name: str
    means: str
    one: str
    many: str


VERDICTS: dict[str, Word] = {
    "supported": Word("supported", "✓", "Supported", "the evidence lies on the article's side of the threshold",
                      "holds", "hold"),
    "challenged": Word("challenged", "✗", "Challenged", "the evidence lies on the other side of the threshold",
                       "does not", "do not"),
    "depends": Word("depends", "◐", "Depends", "true in some cases and false in others; the finding says in which",
                    "depends on the case", "depend on the case"),
    "outdated": Word("outdated", "↻", "Outdated", "true when the article was written, and no longer",
                     "no longer does", "no longer do"),
    "undecided": Word("undecided", "≈", "Too close to call", "the evidence lies on both sides of the threshold",
                      "is too close to call", "are too close to call"),
    "awaiting hardware": Word("open", "…", "Open", "the experiment is written; no machine that could run it has yet",
                              "is open", "are open"),
    "awaiting experiment": Word("open", "…", "Open", "the experiment that would decide it is not written yet",
                                "is open", "are open"),
    "awaiting source": Word("open", "…", "Open", "the source that would decide it could not be read",
                            "is open", "are open"),
    "not testable": Word("opinion", "–", "Not testable", "an opinion, advice, or words that no measurement decides",
                         "is not testable", "are not testable"),
}  # fmt: skip


@dataclass(frozen=True)
class Tier:
    """Whose number it is: its sign, a word, and what that means."""

    sign: str
    name: str
    means: str


TIERS: dict[str, Tier] = {
    "measured": Tier("●", "measured here", "measured by this study"),
    "derived": Tier("◑", "derived", "calculated from what was measured or published"),
    "published": Tier("○", "published", "measured by others, who published it"),
    "documented": Tier("□", "documented", "stated by a primary source, such as a data sheet"),
}


def verdict(name: str) -> Word:
    """How a verdict is shown; one that is not known counts as open."""
    return VERDICTS.get(name, VERDICTS["awaiting experiment"])


def claim(one: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """What a page says of another claim: its id and its verdict, and what else of verdicts.json is asked for."""
    return {
        "id": identifier(str(one["id"])),
        "word": verdict(str(one["verdict"])),
        **{key: str(one[key]) for key in more},
    }


def tier(name: str) -> Tier | None:
    """Whose numbers a claim rests on; None where there is no evidence."""
    return TIERS.get(name)


def basis(one: Mapping[str, Any]) -> str:
    """What a verdict rests on, as it stands after it: 'on published figures'; '' where it rests on nothing."""
    if one["verdict"] not in (*DECIDED, "undecided"):
        return ""
    if one.get("decided_on") == OTHERS:
        return "on others' published runs"
    return {
        "measured": "by measurement here",
        "derived": "by calculation",
        "published": "on published figures",
        "documented": "by documents",
    }.get(str(one.get("evidence_tier")), "")


def rests(one: Mapping[str, Any]) -> str:
    """Where a claim was decided: 'here', 'others' or 'open'; 'opinion' for what nothing can decide."""
    if one["verdict"] == "not testable":
        return "opinion"
    if one["verdict"] not in DECIDED:
        return "open"
    return "others" if one.get("decided_on") == OTHERS else HERE


def between(low: float | None, high: float | None, unit: str, digits: int = 3) -> str:
    """An interval in words: '27.1 to 28.7 GB/s'; '' where none is known, or where both ends look alike."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    scale, name = formatting.prefix(high, unit)
    texts = [formatting.number(one / scale, digits) for one in (low, high)]
    if texts[0] == texts[1]:
        texts = [formatting.number(one / scale, digits + 1) for one in (low, high)]
    return f"{' to '.join(texts)} {name}".strip() if texts[0] != texts[1] else ""


def fares(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """'15 hold, 11 do not and 3 depend on the case': how the decided ones do; '' if there are none."""
    told = []
    for name in DECIDED:
        count = sum(one["verdict"] == name for one in verdicts)
        if count:
            told.append(f"{count} {VERDICTS[name].one if count == 1 else VERDICTS[name].many}")
    return formatting.several(told)


# How sure a verdict of measured or derived cases is, as `robust` in verdicts.json.
ROBUST = {
    "robust": "Robust: no other fair threshold, price or base turns it, nor does leaving out any one case.",
    "sensitive": "Sensitive: another fair choice turns it.",
    "on a chosen list": "It rests on a list of cases that we chose beforehand; another list may come out otherwise.",
    "not varied": "It rests on one figure, with nothing to vary.",
}
