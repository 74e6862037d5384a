"""What others measured, as the page tells it: whose runs decide, what a GPU replaces, and the sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from report import formatting
from report.model import HERE, OTHERS
from report.render import words
from report.render.markdown import Markdown, identifier

# Claims whose factor of how much faster a GPU is stands beside what was published.
FACTORS = ("G09", "W02", "N12", "N11")
_CLAIM = re.compile(r"[A-Z]\d\d")
_STRENGTH = {"direct": "Direct evidence", "indirect": "Indirect evidence, which decides nothing"}


def decided(document: Mapping[str, Any]) -> str:
    """The three numbers: claims decided here, on others' published runs, and open; '' for files without them."""
    numbers = document.get("decided")
    if not numbers or not numbers.get(OTHERS):
        return ""
    never = numbers["not testable"]
    told = f"{numbers[HERE]} are decided on this study's own measurements and on documents, {numbers[OTHERS]} on runs "
    told += f"that others measured and published; {numbers['open']} are open"
    return f"{told}, {never} of them beyond any measurement." if never else f"{told}."


def replaced(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """How many server processors one GPU replaces, by job: the slowest and the fastest GPU of the newest round."""
    return [
        {
            "job": formatting.capital(str(row["job"])),
            "round": str(row["setting"]).removeprefix("MLPerf "),
            "source": _anchor(row["source"]),
            "server": str(row["server"]),
            **{end: formatting.two_digits(row[end]["estimate"]) for end in ("least", "most")},
            **{f"{end}_gpu": str(row[end]["gpu"]) for end in ("least", "most")},
        }
        for row in document.get("replaced") or []
    ]


def in_words(document: Mapping[str, Any]) -> str:
    """The same in a sentence, for training and for inference in bulk; '' without such rows."""
    rows = document.get("replaced") or []
    told = []
    for training, kind in ((True, "training"), (False, "answering in bulk")):
        ends = [row["most"]["estimate"] for row in rows if row["training"] is training]
        if ends:
            least, most = (formatting.two_digits(pick(ends)) for pick in (min, max))
            told.append(f"{least} to {most} server processors at {kind}" if least != most else f"{most} at {kind}")
    return f"By the published runs of both, the best GPU replaces {formatting.several(told)}." if told else ""


def factors(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """The articles' own factors of how much faster a GPU trains, each with its verdict."""
    known = {str(one["id"]): one for one in document["verdicts"]}
    rows = []
    for name in FACTORS:
        verdict = known.get(name)
        part = (verdict["parts"] or [None])[-1] if verdict else None
        if verdict and part:
            rows.append(
                {
                    "id": identifier(name),
                    "says": str(verdict["says"]),
                    "asks": formatting.threshold_text(part["threshold"], "1"),
                    "verdict": str(verdict["verdict"]),
                    "class": words.verdict_class(str(verdict["verdict"])),
                }
            )
    return rows


def evidence(part: Mapping[str, Any], known: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """What others measured of a part: how strong it is, from where to where, what it comes to, and its sources.

    known: the cells of a part that is decided on them, by its name; of the rest, the evidence has its own.
    """
    rows = []
    for one in part.get("others") or []:
        cells = known.get(str(part.get("name") or ""), []) if one["decides"] else one["cells"]
        if not cells:
            continue
        unit = str(one["unit"] or "1")
        named = dict.fromkeys(
            source for cell in cells for source in str(cell.get("source") or "").split(" and ") if source
        )
        rows.append(
            {
                "part": words.sentence(str(part.get("name") or "")),
                "strength": _STRENGTH[one["strength"]],
                "why": str(one["why"]),
                "range": _range(one["least"], one["most"], unit),
                "cases": formatting.count(len(cells), "case"),
                "outcome": str(one["outcome"]),
                "class": words.verdict_class(str(one["outcome"])),
                "decides": bool(one["decides"]),
                "beside": _beside(one.get("beside")),
                "at": _at(one, unit),
                "sources": [{"name": name, "anchor": _anchor(name)} for name in named],
            }
        )
    return rows


def _range(least: float | None, most: float | None, unit: str) -> str:
    if least is None or most is None:
        return ""
    return " to ".join(dict.fromkeys(formatting.with_unit(one, unit) for one in (least, most)))


def _beside(ratio: float | None) -> str:
    """How many times what others found is found here."""
    return f"Found here: {formatting.number(ratio, 3)} times that." if ratio else ""


def _at(one: Mapping[str, Any], unit: str) -> str:
    """What it comes to at the other thresholds of the declared range."""
    told = [
        f"{outcome} at {formatting.threshold_text(limit, unit)}"
        for limit, outcome in one["at"]
        if outcome and outcome != one["outcome"]
    ]
    return f"With other thresholds: {formatting.several(told)}." if told else ""


def _anchor(source: Any) -> Markdown:
    return identifier(f"published-{str(source).replace('.', '-')}")


def sources(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every source of published measurements with its records, its terms and the claims that rest on it."""
    return [
        {
            "name": str(one["id"]),
            "anchor": _anchor(one["id"]),
            "title": str(one["title"]),
            "url": str(one["url"]),
            "about": f"{one['publisher']}, {one['date']}",
            "kind": str(one["kind"]),
            "records": f"{one['records']:,}",
            "named": f"{one['named']:,}",
            "note": str(one["note"]),
            "terms": str(one["terms"]),
            "how": "parsed by a program" if one["how"] == "parsed" else "read by a person",
            "claims": [identifier(str(user)) for user in one["used_by"] if _CLAIM.fullmatch(str(user))],
            "also": formatting.several([str(user) for user in one["used_by"] if not _CLAIM.fullmatch(str(user))]),
        }
        for one in document.get("published") or []
    ]


def counterparts(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """This study's own CPU figures beside published ones: what was published, what was found, and how many times."""
    rows = []
    for one in document.get("counterparts") or []:
        unit = str(one["unit"] or "1")
        here = [
            f"{formatting.with_unit(row['estimate'], unit)} on {row['label']}, "
            f"{formatting.number(row['ratio'], 2)} times that"
            for row in one["here"]
        ]
        told = formatting.with_unit(one["published"], unit)
        rows.append(
            {
                "title": str(one["title"]),
                "published": f"{told} on {one['machine']}",
                "source": str(one["source"]),
                "anchor": _anchor(one["source"]),
                "here": formatting.several(here) or "not measured here yet",
                "differs": str(one["differs"]),
            }
        )
    return rows


def sources_counts(document: Mapping[str, Any]) -> str:
    """'11,000 records from 83 sources'."""
    rows = document.get("published") or []
    return f"{sum(one['records'] for one in rows):,} records from {formatting.count(len(rows), 'source')}"
