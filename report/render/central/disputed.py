"""The map of contradictions: what is said differently, by which article, on which claims, and what stands of it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from report.formatting import capital, count, several
from report.judging.contradictions import OUTCOMES, STANDINGS
from report.render.central import sides
from report.render.central.base import Central, Shown
from report.render.contradictions import ONLY_WORDS, contradictions, counts
from report.render.figures import Drawing
from report.render.measurements.base import View

# Outcomes that nothing still to come could change.
_SETTLED = tuple(kind for kind in OUTCOMES if kind not in ("open", "undecided"))
_OUTCOMES = {
    "one stands": "One side alone stands",
    "some stand": "Some sides stand",
    "all stand": "All sides stand",
    "in part": "A side stands in part",
    "none stands": "No side stands",
    "opinion": "No side can be tested",
}
_STANDS = {"holds": "stands", "in part": "in part", "fails": "does not", "undecided": "too close", "open": "open",
           "opinion": "not testable"}  # fmt: skip
# Where all sides fare alike.
_ALL = {"holds": "all stand", "in part": "all in part", "fails": "none stands", "undecided": "too close to call",
        "open": "all open", "opinion": "none testable"}  # fmt: skip
_STANDING = {"supported": "holds", "challenged": "fails", "depends": "in part", "outdated": "fails",
             "undecided": "undecided", "awaiting": "open", "opinion": "opinion"}  # fmt: skip
_LABEL = 36  # characters of a line of a row's label


def show(_: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """A row for each contradiction, a column for each article; None of verdicts without contradictions."""
    found = contradictions(document)
    if not found:
        return None
    real = [one for one in found if one["conflict"] != ONLY_WORDS]
    settled = [one for one in real if one["outcome"] in _SETTLED]
    title = (
        f"The articles contradict one another, or themselves, {_times(len(real))}; "
        f"{len(settled)} of these {'is' if len(settled) == 1 else 'are'} settled by now"
    )
    told = [
        f"{text}: {several([one['title'] for one in settled if one['outcome'] == kind])}"
        for kind, text in _OUTCOMES.items()
        if any(one["outcome"] == kind for one in settled)
    ]
    return Shown(title, [f"{'. '.join(told)}." if told else counts(found)], _drawing(document, found))


def _times(n: int) -> str:
    return {0: "never", 1: "once"}.get(n, f"{n} times")


def _drawing(document: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Drawing:
    articles = {str(one["id"]): str(one["article_title"]) for one in document["verdicts"]}
    taking = {title for one in found for side in one["sides"] for title in side["articles"]}
    columns = [title for title in dict.fromkeys(articles.values()) if title in taking]
    groups: dict[str, list[dict[str, Any]]] = {}
    for one, raw in zip(found, document["contradictions"], strict=True):
        standing = [str(side["standing"]) for side in raw["sides"]]
        groups.setdefault(one["kind"], []).append(_row(one, standing, articles, columns))
    shows = {
        "columns": columns,
        "groups": [{"title": f"{capital(kind)}", "rows": rows} for kind, rows in groups.items()],
    }
    caption = (
        "Contradictions between the articles and inside them, by whether both sides can be true. A large mark is a "
        "side of the contradiction in the column of the article that takes it, with the claims that carry it; small "
        "marks under these are the claims' own verdicts, where they are several or differ "
        "from the side's. At the right what stands"
    )
    return sides.drawing(FIGURE.name, shows, f"{caption}.", f"Map of {count(len(found), 'contradiction')}.")


def _row(
    one: Mapping[str, Any], standing: Sequence[str], articles: Mapping[str, str], columns: Sequence[str]
) -> dict[str, Any]:
    """A contradiction: its label in lines, what stands, and for each article the sides that it takes."""
    cells: list[list[dict[str, Any]]] = [[] for _ in columns]
    for side, stood in zip(one["sides"], standing, strict=True):
        for place, article in enumerate(columns):
            claims = [claim for claim in side["claims"] if articles[str(claim["id"])] == article]
            if claims:
                cells[place].append(_side(side, stood, claims))
    label = textwrap.wrap(one["title"], _LABEL, break_on_hyphens=False)
    return {"label": label, "told": _told(one["sides"], standing), "cells": cells}


def _side(side: Mapping[str, Any], stood: str, claims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A side in the column of an article: its mark's words, and those of its claims that are the article's."""
    told = [
        f"{claim['id']} {claim['verdict']}" + (f" ({claim['part']}: {claim['outcome']})" if claim["part"] else "")
        for claim in claims
    ]
    stand = [_STANDING[claim["class"]] for claim in claims]
    return {
        "name": side["name"],
        "standing": stood,
        "words": f"{side['name']}, {_STANDS[stood]}: {side['says']} {several(told)}.",
        # A lone claim whose verdict is that of its side needs no mark of its own.
        "marked": len(side["claims"]) > 1 or stand != [stood],
        "claims": [
            {
                "id": str(claim["id"]),
                "standing": own,
                "words": text,
            }
            for claim, own, text in zip(claims, stand, told, strict=True)
        ],
    }


def _told(named: Sequence[Mapping[str, Any]], standing: Sequence[str]) -> str:
    """'B stands; A in part', 'all open'."""
    if len(set(standing)) == 1:
        return _ALL[standing[0]]
    groups = {kind: [side["name"] for side, stood in zip(named, standing, strict=True) if stood == kind]
              for kind in STANDINGS}  # fmt: skip
    return "; ".join(
        f"{', '.join(names)} {_STANDS[kind]}" if kind != "holds" or len(names) == 1 else f"{', '.join(names)} stand"
        for kind, names in groups.items()
        if names
    )


FIGURE = Central("contradictions", show)
