"""The course of each article's argument as a text, each clause of it beside the verdict on its claim."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import place, read_yaml
from report.render.markdown import identifier, link
from report.render.words import sentence

_REPORT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((_REPORT / "schemas" / "articles.schema.json").read_text(encoding="utf-8"))
DECLARED = _REPORT / "articles.yaml"
# [what a claim is about]{W15}
_CLAUSE = re.compile(r"\[([^\[\]{}]+)\]\{([A-Z]\d\d)\}")
_STRAY = re.compile(r"[\[\]{}]")
Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Piece:
    """A run of text: a claim's clause, or what joins clauses (no claim). apart: white space comes before it."""

    text: str
    claim: str = ""
    apart: bool = False


@dataclass(frozen=True)
class Section:
    """A section of an article: its heading, and its paragraphs in pieces."""

    heading: str
    paragraphs: tuple[tuple[Piece, ...], ...]

    @property
    def claims(self) -> list[str]:
        """The claims of its clauses, in their order."""
        return [piece.claim for paragraph in self.paragraphs for piece in paragraph if piece.claim]


@dataclass(frozen=True)
class Article:
    """An article's argument in our words. source: where and when it appeared; address: '' where none is known."""

    key: str
    title: str
    source: str
    address: str
    thesis: str
    sections: tuple[Section, ...]


def read_articles(path: Path = DECLARED) -> list[Article]:
    """The arguments that `path` declares, in its order.

    Raises StudyError with file and line for what the schema does not allow, for a bracket that is no clause's, and
    for an article or a claim that stands twice.
    """
    raw = read_yaml(path, SCHEMA)
    seen: dict[str, Steps] = {}
    for number, article in enumerate(raw):
        _once(path, seen, f"article {article['key']}", (number, "key"))
        for at, section in enumerate(article["sections"]):
            steps = (number, "sections", at, "text")
            stray = _STRAY.search(_CLAUSE.sub("", section["text"]))
            if stray:
                raise StudyError(
                    f"{place(path, *steps)}: section {section['heading']!r} has a {stray[0]!r} that is no clause's: "
                    "write [the clause]{W15}"
                )
            for _, claim in _CLAUSE.findall(section["text"]):
                _once(path, seen, f"claim {claim}", steps)
    return [_article(article) for article in raw]


def _once(path: Path, seen: dict[str, Steps], what: str, steps: Steps) -> None:
    if what in seen:
        first = place(path, *seen[what]).rpartition(", ")[2]
        raise StudyError(f"{place(path, *steps)}: {what} stands twice, first in {first}: keep one of them")
    seen[what] = steps


def _article(raw: Mapping[str, Any]) -> Article:
    sections = tuple(
        Section(one["heading"], tuple(_pieces(text) for text in one["text"].split("\n") if text.strip()))
        for one in raw["sections"]
    )
    words = {key: raw[key] for key in ("key", "title", "source", "thesis")}
    return Article(**words, address=raw.get("address", ""), sections=sections)


def _pieces(paragraph: str) -> tuple[Piece, ...]:
    """A paragraph cut at its clauses."""
    # Cut by a pattern with two groups: joint, clause, claim, joint, clause, claim, …, joint.
    cut = _CLAUSE.split(paragraph)
    runs = [(cut[at], "" if at % 3 == 0 else cut[at + 1]) for at in range(len(cut)) if at % 3 != 2]
    pieces: list[Piece] = []
    apart = False
    for text, claim in runs:
        if text.strip():
            pieces.append(Piece(text.strip(), claim, apart=bool(pieces) and (apart or text[0].isspace())))
            apart = text[-1].isspace()
        else:
            apart = apart or text != ""
    return tuple(pieces)


def with_arguments(
    articles: Sequence[Mapping[str, Any]], declared: Iterable[Article] | None = None
) -> list[dict[str, Any]]:
    """The page's articles, each with the `argument` that it prints (None without one).

    articles: with their claims as the page has them; each claim is given `argued`, the anchor of its clause ('' if
    it has none). declared: the arguments; None reads report/articles.yaml. A clause is plain text where the page has
    no verdict on its claim; a claim without a clause is listed under the text. Raises StudyError for a file of
    arguments that `read_articles` refuses, and for a clause whose claim is another article's.
    """
    known = {one.key: one for one in (read_articles() if declared is None else declared)}
    shown = []
    for article in articles:
        declaration = known.get(article["key"])
        clauses = {name for section in declaration.sections for name in section.claims} if declaration else set()
        for other in articles:
            strange = sorted(clauses & {claim["id"] for claim in other["claims"]}) if other is not article else []
            if strange:
                raise StudyError(
                    f"articles: claim {strange[0]} is one of {other['key']!r}: take it out of {article['key']!r}"
                )
        for claim in article["claims"]:
            claim["argued"] = f"said-{claim['id']}" if claim["id"] in clauses else ""
        shown.append({**article, "argument": _argument(declaration, article["claims"]) if declaration else None})
    return shown


def _argument(article: Article, claims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the template prints of one article."""
    by_id = {str(claim["id"]): claim for claim in claims}
    return {
        "thesis": article.thesis,
        "source": link(article.source, article.address),
        "sections": [
            {
                "heading": sentence(section.heading),
                "anchor": identifier(f"argument-{article.key}-{number}"),
                "paragraphs": [
                    [{"text": one.text, "apart": one.apart, "claim": by_id.get(one.claim)} for one in paragraph]
                    for paragraph in section.paragraphs
                ],
            }
            for number, section in enumerate(article.sections, start=1)
        ],
        "others": [claim for claim in claims if not claim["argued"]],
    }


__all__ = ["DECLARED", "Article", "Piece", "Section", "read_articles", "with_arguments"]
