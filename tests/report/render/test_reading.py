"""The reading view: each article's argument in our own words, every claim in its place, its verdict beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pypandoc
import pytest
from bs4 import BeautifulSoup
from ruamel.yaml import YAML

from contract.errors import StudyError
from report.render import TEMPLATES
from report.render.markdown import environment
from report.render.reading import Article, Piece, Section, read_articles, with_arguments
from tests.report.test_claim_files import CLAIMS, claim, copied

# Claims that may be found later have no clause yet: they are listed under the text.
FIRST = {"N": 18, "G": 32, "W": 38}
HOSTILE = "<b>@word</b> $x$ | y_z [a](b) `c` {{< d >}}"
ONE = {
    "key": "nuface",
    "title": "A title",
    "source": "A blog",
    "thesis": "So it is.",
    "sections": [{"heading": "First", "text": "It begins. [This is so]{N01}, and that is not."}],
}


@pytest.fixture(scope="module")
def declared() -> list[Article]:
    return read_articles()


def clauses(articles: list[Article]) -> Iterator[tuple[Article, Section, str]]:
    """Article, section and claim of every clause."""
    for article in articles:
        for section in article.sections:
            for name in section.claims:
                yield article, section, name


# ------------------------------------------------------------------ what is declared


def test_every_claim_has_its_clause_once(declared: list[Article]) -> None:
    placed = [name for *_, name in clauses(declared)]
    known = {claim(path)["id"] for path in CLAIMS}
    assert len(set(placed)) == len(placed)
    assert set(placed) <= known
    assert {name for name in known if int(name[1:]) <= FIRST[name[0]]} <= set(placed)


def test_each_clause_stands_in_a_section_that_its_claim_names(declared: list[Article]) -> None:
    of = {claim(path)["id"]: claim(path) for path in CLAIMS}
    for article, section, name in clauses(declared):
        assert of[name]["article"] == article.key, name
        # Some come from two sections, some from a scenario within one; long headings are also named by their beginning.
        named = [re.sub(r" \(.*\)$", "", heading) for heading in of[name]["section"].split("; ")]
        assert any(section.heading.startswith(heading) for heading in named), (name, section.heading)


def test_no_words_are_the_articles_own(declared: list[Article]) -> None:
    """Headings are names; all else is ours."""
    for article in declared:
        texts = [
            " ".join(piece.text for piece in words) for section in article.sections for words in section.paragraphs
        ]
        assert copied([article.thesis, *texts]) == []


def write(tmp_path: Path, *articles: dict[str, Any]) -> Path:
    path = tmp_path / "articles.yaml"
    with path.open("w") as file:
        YAML().dump(list(articles), file)
    return path


def section(text: str) -> list[dict[str, str]]:
    return [{"heading": "First", "text": text}]


@pytest.mark.parametrize(
    ("articles", "line", "says"),
    [
        ([{**ONE, "sections": section("[This is so]{N1}.")}], "text: ", "has a '[' that is no clause's"),
        ([{**ONE, "sections": section("[This is so {N01}.")}], "text: ", "has a '[' that is no clause's"),
        ([{**ONE, "sections": section("So]{N01}.")}], "text: ", "has a ']' that is no clause's"),
        (
            [ONE, {**ONE, "key": "other", "sections": section("[That is so]{N01}.")}],
            "text: ",
            "claim N01 stands twice, first in line",
        ),
        ([ONE, {**ONE, "sections": section("[That is so]{N02}.")}], "- key: nuface", "article nuface stands twice"),
        ([{**ONE, "thesys": "?"}], "thesys:", "unknown key"),
        ([{**ONE, "address": "nuface.example"}], "address:", "is not an address that begins with https://"),
        ([{key: ONE[key] for key in ONE if key != "source"}], "- key", "missing: source"),
    ],
)
def test_a_mistake_is_reported_where_it_stands(
    tmp_path: Path, articles: list[dict[str, Any]], line: str, says: str
) -> None:
    path = write(tmp_path, *articles)
    with pytest.raises(StudyError) as fault:
        read_articles(path)
    told = str(fault.value)
    assert says in told
    found = re.match(rf"{re.escape(str(path))}, line (\d+): ", told)
    assert found is not None, told
    assert path.read_text().splitlines()[int(found[1]) - 1].strip().startswith(line)


# ------------------------------------------------------------------ what is printed


def on_page(name: str, verdict: str = "challenged", says: str = "It is so.") -> dict[str, Any]:
    """A claim as the page has it, as far as the reading view looks at it."""
    return {"id": name, "verdict": verdict, "class": verdict, "says": says}


def printed(declared: list[Article], *claims: dict[str, Any], key: str = "nuface") -> str:
    """The markdown of an article's argument."""
    (article,) = with_arguments([{"key": key, "title": "A title", "claims": list(claims)}], declared)
    return environment(TEMPLATES).get_template("parts/reading.qmd").render(article=article)


def html(markdown: str) -> BeautifulSoup:
    made = pypandoc.convert_text(
        markdown, "html5", format="markdown", extra_args=["--section-divs", "--fail-if-warnings", "--wrap=none"]
    )
    return BeautifulSoup(made, "html.parser")


def plain(element: Any) -> str:
    return " ".join(element.get_text().split())


def test_a_clause_leads_to_its_claim_and_bears_its_verdict(tmp_path: Path) -> None:
    page = html(printed(read_articles(write(tmp_path, ONE)), on_page("N01")))
    (clause,) = page.select("a.clause")
    assert (clause["href"], clause["id"]) == ("#N01", "said-N01")
    assert plain(clause) == "This is so N01 challenged"
    assert clause.select_one(".judged.v-challenged .word").get_text() == "challenged"
    assert plain(page.select_one(".argued p")) == "It begins. This is so N01 challenged, and that is not."
    turned = html(printed(read_articles(write(tmp_path, ONE)), on_page("N01", "supported")))
    assert turned.select_one("a.clause.v-supported .judged.v-supported .word").get_text() == "supported"


def test_a_claim_without_a_clause_is_listed(tmp_path: Path) -> None:
    later = on_page("N19", "supported", "Something was found later.")
    page = html(printed(read_articles(write(tmp_path, ONE)), on_page("N01"), later))
    (entry,) = page.select("li")
    assert plain(entry) == "N19 Something was found later. supported."
    assert entry.a["href"] == "#N19"
    assert later["argued"] == ""
    assert "came after" not in printed(read_articles(write(tmp_path, ONE)), on_page("N01"))


def test_a_clause_of_another_articles_claim_is_refused(tmp_path: Path) -> None:
    page = [{"key": "nuface", "claims": []}, {"key": "whygpu", "claims": [on_page("N01")]}]
    with pytest.raises(StudyError, match="claim N01 is one of 'whygpu': take it out of 'nuface'"):
        with_arguments(page, read_articles(write(tmp_path, ONE)))


def test_in_the_pdf_the_verdicts_stand_in_a_column(declared: list[Article]) -> None:
    for article in declared:
        claims = [on_page(name, "depends" if name.endswith("5") else "challenged") for *_, name in clauses([article])]
        made = pypandoc.convert_text(
            printed(declared, *claims, key=article.key),
            "typst",
            format="markdown",
            extra_args=[f"--lua-filter={TEMPLATES / 'report.lua'}", "--wrap=none", "--fail-if-warnings"],
        )
        columns = made.split("#st-argued[")[1:]
        assert len(columns) == len(article.sections)
        for one in claims:
            # Other parts of the document lead to a clause by its label.
            assert made.count(f"<said-{one['id']}>") == 1
            (column,) = [text for text in columns if f"<said-{one['id']}>" in text]
            assert f'#st-beside("{one["verdict"]}")[{one["id"]} {one["verdict"]}]' in column.split("][", 1)[1]


@pytest.mark.parametrize("target", ["html5", "typst"])
def test_hostile_words_stay_words(target: str) -> None:
    section = Section(HOSTILE, ((Piece(HOSTILE), Piece(HOSTILE, "N01", apart=True)),))
    hostile = [Article("nuface", "A title", HOSTILE, "", HOSTILE, (section,))]
    source = printed(hostile, on_page("N01"), on_page("N19", says=HOSTILE))
    made = pypandoc.convert_text(source, target, format="markdown", extra_args=["--fail-if-warnings", "--wrap=none"])
    if target == "html5":
        page = BeautifulSoup(made, "html.parser")
        assert not page.find("b") and plain(page).count(" ".join(HOSTILE.split())) == 6


# ------------------------------------------------------------------ the whole page


def test_the_page_tells_every_claim_in_its_articles_argument(page: BeautifulSoup, make_document: Any) -> None:
    verdicts = {one["id"]: one for one in make_document()["verdicts"]}
    links = page.select("a.clause")
    assert sorted(link["href"][1:] for link in links) == sorted(verdicts)
    for link in links:
        verdict = verdicts[link["href"][1:]]
        assert link.find_parent("section", id=f"article-{verdict['article']}")
        assert plain(link).endswith(f"{verdict['id']} {verdict['verdict']}")


def test_each_card_leads_back_to_its_clause(page: BeautifulSoup) -> None:
    cards = page.select("section.claim")
    assert cards
    for card in cards:
        assert page.find(id=card.select_one("a.back")["href"][1:])["href"] == f"#{card['id']}"


def test_a_reader_goes_from_clause_to_card_and_back_by_keyboard(visit: Any) -> None:
    view, said, _ = visit()
    view.locator("#said-W15").focus()
    view.keyboard.press("Enter")
    assert view.evaluate("location.hash") == "#W15"
    view.locator("#W15 a.back").focus()
    view.keyboard.press("Enter")
    assert view.evaluate("location.hash") == "#said-W15"
    assert 0 <= view.locator("#said-W15").bounding_box()["y"] < 800
    assert said == []
