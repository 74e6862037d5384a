"""Article pages: arguments in our own words, with each claim and its verdict in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pypandoc
import pytest
from bs4 import BeautifulSoup

from contract.errors import StudyError
from report.judging.claim_words import missing_word
from report.pages import site_sources
from report.pages.articles import article_context, read_articles
from report.pages.front_statements import read_front
from report.pages.glossary import read_glossary
from tests.report.claim_mistakes import reported_line, write_yaml
from tests.report.test_claim_files import CLAIM_FILES, copied_runs, read_claim

# A clause marks the words in an article's text that state a claim, as in [This is so]{N01}. For each article's letter:
# the number of the last claim that needs a clause. If a later claim has no clause, the page lists it under the text.
LAST_NEEDING_CLAUSE = {"N": 18, "G": 32, "W": 38}
HOSTILE = "<b>@word</b> $x$ | y_z (a) `c` 1. \\ ''' ~s~"
ARTICLE: dict[str, Any] = {
    "key": "nuface", "title": "A title", "source": "A blog", "thesis": "So it is.",
    "sections": [{"heading": "First", "text": "It begins. [This is so]{N01}, and that is not."}],
}  # fmt: skip
CLAUSE = re.compile(r"\[([^\]]+)\]\{([A-Z]\d\d)\}")


def clauses() -> Iterator[tuple[str, str, str]]:
    """Yield the article's key, the section's heading and the claim's id for each clause."""
    for read_article in read_articles():
        for part in read_article["sections"]:
            for _, name in CLAUSE.findall(part["text"]):
                yield read_article["key"], part["heading"], name


def test_each_claim_has_one_clause() -> None:
    placed = [name for *_, name in clauses()]
    known = {read_claim(path)["id"] for path in CLAIM_FILES}
    assert len(set(placed)) == len(placed)
    assert set(placed) <= known
    assert {name for name in known if int(name[1:]) <= LAST_NEEDING_CLAUSE[name[0]]} <= set(placed)


def test_clause_keeps_the_word_of_its_claim() -> None:
    words = {path.stem: read_claim(path)["word"] for path in CLAIM_FILES}
    texts = [part["text"] for article in read_articles() for part in article["sections"]]
    lacking = [name for text in texts for says, name in CLAUSE.findall(text) if missing_word(words[name], says)]
    assert lacking == []


def test_clause_is_in_the_section_that_its_claim_names() -> None:
    claims = {read_claim(path)["id"]: read_claim(path) for path in CLAIM_FILES}
    for key, heading, name in clauses():
        assert claims[name]["article"] == key, name
        # A claim's `section` may list several sections, add a scenario in parentheses, and give only the part of a
        # heading before the colon.
        sections = [re.sub(r" \(.*\)$", "", section) for section in claims[name]["section"].split("; ")]
        assert {heading, heading.partition(":")[0]} & set(sections), (name, heading)


def test_texts_copy_no_wording_from_articles() -> None:
    """Section headings may be copied, because they quote the headings in the original articles."""
    for article in read_articles():
        texts = [CLAUSE.sub(r"\1", section["text"]) for section in article["sections"]]
        assert copied_runs([article["thesis"], *texts]) == []
    assert copied_runs(read_front()) == copied_runs([entry["means"] for entry in read_glossary()]) == []


def with_text(text: str, **more: str) -> dict[str, Any]:
    """Return `ARTICLE` with `text` as its only section."""
    return {**ARTICLE, "sections": [{"heading": "First", "text": text}], **more}


@pytest.mark.parametrize(
    ("articles", "line", "reason"),
    [
        ([with_text("[This is so]{N1}.")], "text: ", "has a stray '['"),
        ([with_text("[This is so {N01}.")], "text: ", "has a stray '['"),
        ([with_text("So]{N01}.")], "text: ", "has a stray ']'"),
        ([ARTICLE, with_text("[That is so]{N01}.", key="other")], "text: ", "duplicate claim N01, first in line"),
        ([ARTICLE, with_text("[That is so]{N02}.")], "- key: nuface", "duplicate article nuface"),
        ([{**ARTICLE, "thesys": "?"}], "thesys:", "unknown key"),
        ([{**ARTICLE, "address": "nuface.example"}], "address:", "is not an address that begins with https://"),
    ],
)
def test_mistake_is_reported_with_its_line(
    tmp_path: Path, articles: list[dict[str, Any]], line: str, reason: str
) -> None:
    path = write_yaml(tmp_path / "articles.yaml", articles)
    with pytest.raises(StudyError) as fault:
        read_articles(path)
    assert reason in str(fault.value) and reported_line(fault.value, path).startswith(line)


def make_verdict(
    name: str, verdict: str = "challenged", finding: str = "It is so.", key: str = "nuface"
) -> dict[str, Any]:
    """Return a verdict with the fields that an article page reads."""
    return {"id": name, "article": key, "verdict": verdict, "finding": finding}


def render_page(raw: Mapping[str, Any], *verdicts: Mapping[str, Any]) -> BeautifulSoup:
    """Render an article page with pandoc."""
    source = (
        site_sources.template_environment()
        .get_template("article.qmd")
        .render(a=article_context(raw, {"verdicts": list(verdicts)}))
    )
    html = pypandoc.convert_text(source, "html5", format="markdown", extra_args=["--wrap=none", "--fail-if-warnings"])
    return BeautifulSoup(html, "html.parser")


def element_text(element: Any) -> str:
    return " ".join(element.get_text().split())


def test_clause_without_verdict_is_plain_text() -> None:
    page = render_page(ARTICLE)
    assert "It begins. This is so, and that is not." in element_text(page)
    assert not page.find("a")


def test_claim_without_clause_is_listed_under_the_text() -> None:
    page = render_page(ARTICLE, make_verdict("N01"), make_verdict("N19", "supported", "Something was found later."))
    (entry,) = page.select("li")
    assert entry.a["href"] == "../claims/N19.qmd"
    assert "Supported" in element_text(entry) and "Something was found later." in element_text(entry)
    assert not render_page(ARTICLE, make_verdict("N01")).select("li")


def test_clause_for_another_articles_claim_is_refused() -> None:
    with pytest.raises(StudyError, match="claim N01 is not in article 'nuface': remove it there"):
        article_context(ARTICLE, {"verdicts": [make_verdict("N01", key="whygpu")]})


def test_hostile_text_stays_text() -> None:
    sections = [{"heading": HOSTILE, "text": f"{HOSTILE} [{HOSTILE}]{{N01}} {HOSTILE}"}]
    hostile = {**ARTICLE, "source": HOSTILE, "thesis": HOSTILE, "sections": sections}
    page = render_page(hostile, make_verdict("N01"), make_verdict("N19", finding=HOSTILE))
    assert not page.find(["b", "code", "sub", "math"]) and not page.select(".math")
    assert element_text(page).count(" ".join(HOSTILE.split())) == 7
