"""Wording for verdicts and evidence tiers on pages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from report import formatting, statistics
from report.outcomes import DECIDED, OTHERS, verdict_name
from report.pages.markdown import identifier

# Confidence level of intervals, as text for captions.
LEVEL = f"{100 * statistics.LEVEL:g}%"
LOOK_LEVEL = f"{100 * statistics.LOOK_LEVEL:g}%"
# Header for a table's column with the ends that its numbers have, by `Part.ends`.
ENDS = {
    "interval": f"{LEVEL} interval",
    "interval and assumptions": f"{LEVEL} interval, with the range of assumptions",
    "assumptions": "Range of assumptions",
    "source": "Range that the source states",
    "bound": "Bound",
    "none": "Range",
}
BARS = f"Bars: {LEVEL} intervals"
# Meaning of a figure's bars, by `Part.ends`; without an entry there are no bars.
BARS_BY_ENDS = {
    "interval": f"{LEVEL} intervals",
    "interval and assumptions": f"{LEVEL} intervals, with the range of assumptions",
    "assumptions": "the range of the assumptions",
    "source": "the range that the source states",
    "bound": "the number is a bound, and the truth lies on the bar",
}
# Mark for an empty table cell.
NOTHING = "–"


def disturbed_suffix(share: float | None) -> str:
    """Return a suffix for a case by the disturbed share of its data: ' (disturbed)', ' (partly disturbed)' or ''."""
    return "" if not share else " (disturbed)" if share > 0.5 else " (partly disturbed)"


@dataclass(frozen=True)
class Word:
    """The display of a verdict: CSS class, sign, name, meaning, and verb forms for one claim and for many."""

    css: str
    sign: str
    name: str
    means: str
    singular: str
    plural: str


_OPEN = ("open", "…"), ("is open", "are open")
VERDICTS: dict[str, Word] = {
    name: Word(*sign, verdict_name(name), means, *verbs)
    for name, sign, means, verbs in (
        ("supported", ("supported", "✓"), "the evidence lies on the article's side of the threshold",
         ("holds", "hold")),
        ("challenged", ("challenged", "✗"), "the evidence lies on the other side of the threshold",
         ("does not", "do not")),
        ("depends", ("depends", "◐"), "true for some results and false for others; the finding says for which",
         ("depends", "depend")),
        ("outdated", ("outdated", "↻"), "true when the article was written, and no longer",
         ("no longer does", "no longer do")),
        ("undecided", ("undecided", "≈"), "the evidence is too uncertain to choose a side",
         ("is too close to call", "are too close to call")),
        ("awaiting hardware", _OPEN[0], "the experiment is written; no machine that could run it has yet", _OPEN[1]),
        ("awaiting experiment", _OPEN[0], "the experiment that would decide it is not written yet", _OPEN[1]),
        ("awaiting source", _OPEN[0], "the source that would decide it could not be read", _OPEN[1]),
        ("not testable", ("opinion", "–"), "an opinion, advice, or words that no measurement decides",
         ("is not testable", "are not testable")),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Tier:
    """The display of an evidence tier: sign, name and meaning."""

    sign: str
    name: str
    means: str


TIERS: dict[str, Tier] = {
    "measured": Tier("●", "measured here", "measured by this study"),
    "derived": Tier("◑", "derived", "calculated from what was measured or published"),
    "published": Tier("○", "published", "measured by others, who published it"),
    "documented": Tier("□", "documented", "stated by a primary source, such as a data sheet"),
}


# The adviser's answers. They are no evidence for claims, so they have a sign of their own.
PREDICTED = Tier("◇", "predicted", "calculated from published runs for another machine or job, with an 80% range")


def verdict_word(name: str) -> Word:
    """Return the `Word` for a verdict; an unknown verdict counts as open."""
    return VERDICTS.get(name, VERDICTS["awaiting experiment"])


def claim_entry(verdict: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Return the id and the `Word` for a claim, and the fields named in `more`."""
    return {
        "id": identifier(str(verdict["id"])),
        "word": verdict_word(str(verdict["verdict"])),
        **{key: str(verdict[key]) for key in more},
    }


def tier(name: str) -> Tier | None:
    """Return the evidence tier; None if there is no evidence."""
    return TIERS.get(name)


def stands_phrase(word: Word) -> str:
    """Return a phrase for a claim with this verdict: 'holds', 'does not hold', 'is open'."""
    return {"challenged": "does not hold", "outdated": "no longer holds"}.get(word.css, word.singular)


def basis_phrase(verdict: Mapping[str, Any]) -> str:
    """Return a phrase for the evidence that a verdict rests on: 'on published figures'; '' if there is none."""
    if verdict["verdict"] not in (*DECIDED, "undecided"):
        return ""
    if verdict.get("decided_on") == OTHERS:
        return "on published runs"
    return {
        "measured": "by measurement here",
        "derived": "by calculation",
        "published": "on published figures",
        "documented": "by documents",
    }.get(str(verdict.get("evidence_tier")), "")


def format_interval(low: float | None, high: float | None, unit: str, digits: int = 3) -> str:
    """Format an interval: '27.1 to 28.7 GB/s'; '' if unknown, or if both ends read the same."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    scale, name = formatting.si_prefix(high, unit)
    texts = [formatting.format_number(end / scale, digits) for end in (low, high)]
    if texts[0] == texts[1]:
        texts = [formatting.format_number(end / scale, digits + 1) for end in (low, high)]
    return f"{' to '.join(texts)} {name}".strip() if texts[0] != texts[1] else ""


def format_tally(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Count verdicts: '15 hold, 11 do not, 3 depend and 2 are open'; '' without a verdict."""
    counts = Counter(verdict_word(str(verdict["verdict"])).name for verdict in verdicts)
    words = {word.name: word for word in VERDICTS.values()}
    return formatting.join_words(
        [f"{counts[name]} {word.singular if counts[name] == 1 else word.plural}" for name, word in words.items()
         if counts[name]]
    )  # fmt: skip


# A sentence for each value that `robust` has in verdicts.json; a chosen list has its own sentences.
ROBUST = {
    "robust": "Robust: no threshold within a factor of 2, no other price or base, and no single result left out "
    "changes it.",
    "sensitive": "Sensitive: another fair choice changes it.",
    "on a chosen list": "We chose the list of what counts; another list may come out otherwise.",
    "not varied": "The figure is exact, with nothing to vary.",
}
# The same if no other choice changes a verdict whose result lies close to the threshold.
CLOSE = "Close: no other choice changes it, but the result lies near the threshold."


def robust_sentence(verdict: Mapping[str, Any]) -> str:
    """Return a sentence on how robust a verdict is; '' if it was not tried."""
    close = (verdict.get("turn") or {}).get("kind") == "margin"
    return CLOSE if close and verdict.get("robust") == "sensitive" else ROBUST.get(str(verdict.get("robust")), "")
