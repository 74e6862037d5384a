"""What the section on contradictions prints: a row and a card for each, and what each claim's card says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.formatting import count, several, threshold_text, with_unit
from report.judging.contradictions import OUTCOMES
from report.render import words
from report.render.markdown import identifier

# A side that stands bears the sign and the colour of a claim that is supported, and so on.
_CLASSES = {
    "holds": "supported",
    "fails": "challenged",
    "in part": "depends",
    "undecided": "undecided",
    "open": "awaiting",
    "opinion": "not testable",
}
_STANDS = {
    "holds": "stands",
    "fails": "does not stand",
    "in part": "in part",
    "undecided": "undecided",
    "open": "open",
    "opinion": "not testable",
}
# The kind of those that are no contradictions.
ONLY_WORDS = "wording"
_KINDS = {
    "real": "both cannot be true of the same case",
    "in part": "they collide where they overlap",
    "wording": "both can be true",
    "awaiting source": "the published figures that would show it could not be read and checked",
}
_TOLD = {
    "one stands": "one side alone stands",
    "some stand": "several sides stand and others do not",
    "all stand": "all sides stand",
    "in part": "a side stands only in part",
    "none stands": "no side stands",
    "undecided": "the evidence is too close to call",
    "open": "a side is still open",
    "opinion": "no side can be tested",
}


def contradictions(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The contradictions of `verdicts.json` in words; none of a file that was written before there were any."""
    found = document.get("contradictions") or []
    verdicts = {str(one["id"]): str(one["verdict"]) for one in document["verdicts"]} if found else {}
    return [_one(one, verdicts) for one in found]


def counts(told: Sequence[Mapping[str, Any]]) -> str:
    """What became of them: '3 contradictions …: one side alone stands in 1 and no side stands in 2.'

    Those of words alone, both sides of which can be true, are counted apart.
    """
    real = [one for one in told if one["conflict"] != ONLY_WORDS]
    n = {kind: sum(one["outcome"] == kind for one in real) for kind in OUTCOMES}
    whole = f"{count(len(real), 'contradiction')} between the articles or within one of them"
    became = several([f"{_TOLD[kind]} in {n[kind]}" for kind in OUTCOMES if n[kind]])
    apart = len(told) - len(real)
    seem = f" {apart} more only {'seems' if apart == 1 else 'seem'} to be one: both sides can be true." if apart else ""
    return f"{whole}{f': {became}' if became else ''}.{seem}"


def disputes(told: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Claim -> the contradictions that it is on a side of."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in told:
        for side in one["sides"]:
            for claim in side["claims"]:
                entry = {"anchor": one["anchor"], "title": one["title"], "side": side["name"]}
                found.setdefault(claim["id"], []).append(entry)
    return found


def _one(one: Mapping[str, Any], verdicts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "anchor": identifier(f"contradiction-{one['id']}"),
        "title": str(one["title"]),
        "question": str(one["question"]),
        "between": _between(one),
        "conflict": str(one["conflict"]),
        "kind": _KINDS[one["conflict"]],
        "why": str(one["conflict_why"]),
        "excludes": [str(text) for text in one["excludes"]],
        "sides": [_side(side, verdicts) for side in one["sides"]],
        "outcome": str(one["outcome"]),
        "sentence": str(one["sentence"]),
        "boundary": str(one["boundary"]),
        "figures": _figures(one["figures"]) if one["figures"] else None,
    }


def _between(one: Mapping[str, Any]) -> str:
    """'between two articles', 'inside one article', 'between three articles and inside one'."""
    number = {1: "one", 2: "two", 3: "three"}
    articles, inside = len(one["articles"]), len(one["inside"])
    if articles == 1:
        return "inside one article"
    return f"between {number[articles]} articles" + (f" and inside {number[inside]} of them" if inside else "")


def _side(side: Mapping[str, Any], verdicts: Mapping[str, str]) -> dict[str, Any]:
    """A side with its claims; a claim bears its own verdict, as everywhere, and beside it the outcome of the part that
    the side rests on, where it is one part alone."""
    return {
        "name": str(side["name"]),
        "articles": [str(title) for title in side["articles"]],
        "says": str(side["says"]),
        "stands": _STANDS[side["standing"]],
        "class": _CLASSES[side["standing"]],
        "claims": [
            {
                "id": identifier(str(claim["id"])),
                "part": str(claim["part"]),
                "outcome": str(claim["verdict"]),
                "verdict": verdicts[str(claim["id"])],
                "class": words.verdict_class(verdicts[str(claim["id"])]),
                "evidence": _ended(str(claim["evidence"])),
            }
            for claim in side["claims"]
        ],
    }


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    reached = {True: "enough", False: "too little", None: "not verified"}
    unit = str(figures["entries"][0]["unit"])
    return {
        "asked": threshold_text(float(figures["at_least"]), unit),
        "why": str(figures["why"]),
        "entries": [
            {
                "subject": str(entry["subject"]),
                "value": with_unit(None if entry["value"] is None else float(entry["value"]), unit),
                "reached": reached[entry["met"]],
                "title": str(entry["source"]["title"]),
                "url": str(entry["source"]["url"]),
            }
            for entry in figures["entries"]
        ],
    }


def _ended(text: str) -> str:
    """`text` with a capital letter and a full stop."""
    return f"{words.sentence(text)}{'' if text[-1:] in ('.', '?', '!', '…', '') else '.'}"
