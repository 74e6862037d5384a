"""Render an article's argument in our words, each claim underlined and followed by its verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_yaml, yaml_place
from report.formatting import capitalize, format_count
from report.pages import verdict_words
from report.pages.markdown import Markdown, escape, link

_REPORT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((_REPORT / "schemas" / "articles.schema.json").read_text(encoding="utf-8"))
DECLARED = _REPORT / "articles.yaml"
# In an article, a clause is written `[words]{W15}`. The words state the claim with the id W15.
_CLAUSE = re.compile(r"\[([^\[\]{}]+)\]\{([A-Z]\d\d)\}")
_STRAY = re.compile(r"[\[\]{}]")
Steps = tuple[str | int, ...]


def read_articles(path: Path = DECLARED) -> list[dict[str, Any]]:
    """Read the arguments declared in `path`, in file order.

    Raises StudyError with file and line for a schema violation, a stray bracket, or a duplicate article or claim.
    """
    raw: list[dict[str, Any]] = read_yaml(path, SCHEMA)
    positions: dict[str, Steps] = {}
    for number, article in enumerate(raw):
        _check_unique(path, positions, f"article {article['key']}", (number, "key"))
        for index, section in enumerate(article["sections"]):
            steps = (number, "sections", index, "text")
            stray = _STRAY.search(_CLAUSE.sub("", section["text"]))
            if stray:
                raise StudyError(
                    f"{yaml_place(path, *steps)}: section {section['heading']!r} has a stray {stray[0]!r}"
                    ": write [the clause]{W15}"
                )
            for _, claim in _CLAUSE.findall(section["text"]):
                _check_unique(path, positions, f"claim {claim}", steps)
    return raw


def _check_unique(path: Path, positions: dict[str, Steps], what: str, steps: Steps) -> None:
    if what in positions:
        first = yaml_place(path, *positions[what]).rpartition(", ")[2]
        raise StudyError(f"{yaml_place(path, *steps)}: duplicate {what}, first in {first}: keep one of them")
    positions[what] = steps


def article_context(raw: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Build the template context for an article's page. raw: an item from `read_articles`.

    A clause whose claim has no verdict becomes plain text. Claims that no clause states are listed below the text.
    Raises StudyError if a clause names a claim from another article.
    """
    article_verdicts = {
        str(verdict["id"]): verdict for verdict in document["verdicts"] if verdict["article"] == raw["key"]
    }
    claim_ids = {str(verdict["id"]) for verdict in document["verdicts"]}
    placed = {claim for section in raw["sections"] for _, claim in _CLAUSE.findall(section["text"])}
    strange = sorted((placed & claim_ids) - set(article_verdicts))
    if strange:
        raise StudyError(f"articles: claim {strange[0]} is not in article {raw['key']!r}: remove it there")
    fares = verdict_words.format_tally(list(article_verdicts.values()))
    return {
        "source": link(capitalize(str(raw["source"])), str(raw.get("address") or "")),
        "thesis": str(raw["thesis"]),
        "fares": f"Of its {format_count(len(article_verdicts), 'claim')}, {fares}." if fares else "",
        "sections": [
            {
                "heading": capitalize(str(section["heading"])),
                "text": _section_markdown(str(section["text"]), article_verdicts),
            }
            for section in raw["sections"]
        ],
        "unplaced": [
            verdict_words.claim_entry(verdict, "finding")
            for name, verdict in article_verdicts.items()
            if name not in placed
        ],
    }


def _section_markdown(text: str, verdicts: Mapping[str, Mapping[str, Any]]) -> Markdown:
    """Render a section as markdown: underline each clause, and add its claim's number and the verdict's sign."""
    # The pattern has two groups, so `split` returns: text, clause, claim, text, clause, claim, …, text.
    cut = _CLAUSE.split(text)
    pieces = []
    for index in range(0, len(cut), 3):
        pieces.append(_escape_joint(cut[index]))
        if index + 1 < len(cut):
            pieces.append(_format_clause(cut[index + 1], cut[index + 2], verdicts.get(cut[index + 2])))
    return Markdown("".join(pieces))


def _escape_joint(text: str) -> str:
    if not text.strip():
        return " " if text else ""
    before, after = (" " if edge.isspace() else "" for edge in (text[0], text[-1]))
    return f"{before}{escape(text)}{after}"


def _format_clause(text: str, claim: str, verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return escape(text)
    word = verdict_words.verdict_word(str(verdict["verdict"]))
    return (
        f"[{escape(text)}]{{.clause .v-{word.css} #{claim}}} "
        f'[[{claim} {word.sign}](../claims/{claim}.qmd){{title="{word.name}"}}]{{.sign .v-{word.css}}}'
    )
