"""An article's page: its argument in our own words, every claim in its place, its verdict beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pypandoc
import pytest
from bs4 import BeautifulSoup

from contract.errors import StudyError
from report.pages import site_sources
from report.pages.articles import article_context, read_articles
from report.pages.front_statements import read_front
from report.pages.glossary import read_glossary
from tests.report.claim_mistakes import reported_line, write_yaml
from tests.report.test_claim_files import CLAIM_FILES, copied_runs, read_claim

# Claims that may be found later have no clause yet: they are listed under the text.
FIRST = {"N": 18, "G": 32, "W": 38}
HOSTILE = "<b>@word</b> $x$ | y_z (a) `c` 1. \\ ''' ~s~"
ONE: dict[str, Any] = {
    "key": "nuface", "title": "A title", "source": "A blog", "thesis": "So it is.",
    "sections": [{"heading": "First", "text": "It begins. [This is so]{N01}, and that is not."}],
}  # fmt: skip
CLAUSE = re.compile(r"\[([^\]]+)\]\{([A-Z]\d\d)\}")


def clauses() -> Iterator[tuple[str, str, str]]:
    """Article, heading of the section and claim of every clause."""
    for read_article in read_articles():
        for part in read_article["sections"]:
            for _, name in CLAUSE.findall(part["text"]):
                yield read_article["key"], part["heading"], name


def test_every_claim_has_its_clause_once() -> None:
    placed = [name for *_, name in clauses()]
    known = {read_claim(path)["id"] for path in CLAIM_FILES}
    assert len(set(placed)) == len(placed)
    assert set(placed) <= known
    assert {name for name in known if int(name[1:]) <= FIRST[name[0]]} <= set(placed)


def test_each_clause_stands_in_a_section_that_its_claim_names() -> None:
    of = {read_claim(path)["id"]: read_claim(path) for path in CLAIM_FILES}
    for key, heading, name in clauses():
        assert of[name]["article"] == key, name
        # Some come from two sections, some from a scenario within one; long headings are also named by their beginning.
        named = [re.sub(r" \(.*\)$", "", one) for one in of[name]["section"].split("; ")]
        assert any(heading.startswith(one) for one in named), (name, heading)


def test_no_words_of_ours_are_the_articles_own() -> None:
    """Headings are names; all else is ours."""
    for one in read_articles():
        texts = [CLAUSE.sub(r"\1", section["text"]) for section in one["sections"]]
        assert copied_runs([one["thesis"], *texts]) == []
    assert copied_runs(read_front()) == copied_runs([one["means"] for one in read_glossary()]) == []


def saying(text: str, **more: str) -> dict[str, Any]:
    """The article with one section of this text."""
    return {**ONE, "sections": [{"heading": "First", "text": text}], **more}


@pytest.mark.parametrize(
    ("articles", "line", "says"),
    [
        ([saying("[This is so]{N1}.")], "text: ", "has a stray '['"),
        ([saying("[This is so {N01}.")], "text: ", "has a stray '['"),
        ([saying("So]{N01}.")], "text: ", "has a stray ']'"),
        ([ONE, saying("[That is so]{N01}.", key="other")], "text: ", "duplicate claim N01, first in line"),
        ([ONE, saying("[That is so]{N02}.")], "- key: nuface", "duplicate article nuface"),
        ([{**ONE, "thesys": "?"}], "thesys:", "unknown key"),
        ([{**ONE, "address": "nuface.example"}], "address:", "is not an address that begins with https://"),
    ],
)
def test_a_mistake_is_reported_where_it_stands(
    tmp_path: Path, articles: list[dict[str, Any]], line: str, says: str
) -> None:
    path = write_yaml(tmp_path / "articles.yaml", articles)
    with pytest.raises(StudyError) as fault:
        read_articles(path)
    assert says in str(fault.value) and reported_line(fault.value, path).startswith(line)


def judged(name: str, verdict: str = "challenged", finding: str = "It is so.", key: str = "nuface") -> dict[str, Any]:
    """A verdict, as far as an article's page looks at it."""
    return {"id": name, "article": key, "verdict": verdict, "finding": finding}


def page(raw: Mapping[str, Any], *verdicts: Mapping[str, Any]) -> BeautifulSoup:
    """An article's page as pandoc makes it."""
    told = (
        site_sources.template_environment()
        .get_template("article.qmd")
        .render(a=article_context(raw, {"verdicts": list(verdicts)}))
    )
    made = pypandoc.convert_text(told, "html5", format="markdown", extra_args=["--wrap=none", "--fail-if-warnings"])
    return BeautifulSoup(made, "html.parser")


def plain(element: Any) -> str:
    return " ".join(element.get_text().split())


def test_a_clause_without_a_verdict_is_plain_text() -> None:
    shown = page(ONE)
    assert "It begins. This is so, and that is not." in plain(shown)
    assert not shown.find("a")


def test_a_claim_without_a_clause_is_listed_under_the_text() -> None:
    shown = page(ONE, judged("N01"), judged("N19", "supported", "Something was found later."))
    (entry,) = shown.select("li")
    assert entry.a["href"] == "../claims/N19.qmd"
    assert "Supported" in plain(entry) and "Something was found later." in plain(entry)
    assert not page(ONE, judged("N01")).select("li")


def test_a_clause_of_another_articles_claim_is_refused() -> None:
    with pytest.raises(StudyError, match="claim N01 is not in article 'nuface': remove it there"):
        article_context(ONE, {"verdicts": [judged("N01", key="whygpu")]})


def test_hostile_words_stay_words() -> None:
    sections = [{"heading": HOSTILE, "text": f"{HOSTILE} [{HOSTILE}]{{N01}} {HOSTILE}"}]
    hostile = {**ONE, "source": HOSTILE, "thesis": HOSTILE, "sections": sections}
    shown = page(hostile, judged("N01"), judged("N19", finding=HOSTILE))
    assert not shown.find(["b", "code", "sub", "math"]) and not shown.select(".math")
    assert plain(shown).count(" ".join(HOSTILE.split())) == 7
