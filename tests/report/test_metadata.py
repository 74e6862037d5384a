"""Machine-readable metadata: claim reviews, verdict tables, data packages and the citation file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from jsonschema import Draft202012Validator

from contract.errors import StudyError
from contract.files import read_json, read_yaml
from report.cli import main
from report.outcomes import Verdict
from report.pages import verdict_words
from report.pages.figure_data import Evidence
from report.pages.site_content import build_content
from report.publish import claim_reviews, script_element, write_published
from report.publish.claimreview import RATINGS
from report.publish.datapackage import FOLDERS
from report.publish.study_metadata import CITATION, read_study
from report.verdicts import read_verdicts

from .conftest import Factory

ROOT = Path(__file__).parents[2]
SHAPES = Draft202012Validator(read_json(ROOT / "report" / "schemas" / "claimreview.schema.json"))
MEANING = {str(name): word.means for name, word in verdict_words.VERDICTS.items()}
HOSTILE = '</script><script>alert(1)</script><!-- & \u2028 "quoted" \\ é'


@pytest.fixture(scope="module")
def document(small_study: Path) -> dict[str, Any]:
    """Verdicts on the small study. Some are decided, some undecided, and some await evidence."""
    return read_verdicts(small_study / "verdicts.json")


def verdict(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in document["verdicts"] if item["id"] == name)


def schema_errors(reviews: Any) -> list[str]:
    return [fault.message for fault in SHAPES.iter_errors(reviews)]


def test_every_verdict_has_a_valid_claim_review(document: dict[str, Any]) -> None:
    reviews = claim_reviews(document, "https://example.org/report/", MEANING)
    assert schema_errors(reviews) == []
    assert [item["identifier"] for item in reviews["@graph"]] == [item["id"] for item in document["verdicts"]]
    review = next(item for item in reviews["@graph"] if item["identifier"] == "W15")
    w15 = verdict(document, "W15")
    assert review["itemReviewed"]["text"] == w15["says"] and review["reviewBody"] == w15["finding"]
    assert review["author"]["url"] == "https://example.org/report/"
    assert review["url"] == "https://example.org/report/claims/W15.html"
    assert review["datePublished"] == document["generated_utc"][:10]
    assert review["itemReviewed"]["appearance"] == {"@type": "CreativeWork", "name": w15["article_title"]}
    assert review["author"]["name"] == read_study().authors


def test_reviewed_claim_is_whole_or_shortened_between_words(document: dict[str, Any]) -> None:
    reviews = claim_reviews(document)["@graph"]
    assert schema_errors({"@context": "https://schema.org", "@graph": reviews}) == []
    whole = {review["claimReviewed"] == review["itemReviewed"]["text"] for review in reviews}
    assert whole == {True, False}
    for review in reviews:
        start = review["claimReviewed"].removesuffix(" …")
        assert len(review["claimReviewed"]) < 75 and f"{review['itemReviewed']['text']} ".startswith(f"{start} ")
        assert "url" not in review and "url" not in review["author"], "an address that is not known"


def test_only_decided_verdicts_have_numeric_ratings(document: dict[str, Any]) -> None:
    w15 = verdict(document, "W15")
    for name in Verdict:
        (review,) = claim_reviews({**document, "verdicts": [{**w15, "verdict": name}]}, "", MEANING)["@graph"]
        rating = review["reviewRating"]
        assert rating["alternateName"].lower() == name and rating["ratingExplanation"] == MEANING[name]
        assert rating.get("ratingValue") == RATINGS.get(name)
        assert ("bestRating" in rating) == ("worstRating" in rating) == (name in RATINGS)
    assert sorted(RATINGS, key=RATINGS.__getitem__) == ["challenged", "outdated", "depends", "supported"]


def test_reviews_cite_articles_and_sources(document: dict[str, Any]) -> None:
    reviews = claim_reviews(document)["@graph"]
    works = {item["article"]: review["itemReviewed"]["appearance"]
             for item, review in zip(document["verdicts"], reviews, strict=True)}  # fmt: skip
    assert works["nuface"]["author"]["@type"] == "Person" and works["nuface"]["datePublished"] == "2026-01-08"
    for article in ("gpuserver", "whygpu"):
        assert set(works[article]) == {"@type", "name"}
    whygpu = next(item for item in document["verdicts"] if item["article"] == "whygpu")
    (review,) = claim_reviews({**document, "verdicts": [whygpu]}, addresses={"whygpu": "https://example.org/w"})[
        "@graph"
    ]
    assert review["itemReviewed"]["appearance"]["url"] == "https://example.org/w"
    assert any(item["sources"] for item in document["verdicts"])
    for item, review in zip(document["verdicts"], reviews, strict=True):
        assert [source["url"] for source in review.get("citation", [])] == [source["url"] for source in item["sources"]]
    assert all("Synthetic" in review["creativeWorkStatus"] for review in reviews)
    measured = claim_reviews({**document, "origin": "measured"})["@graph"]
    assert not any("creativeWorkStatus" in review for review in measured)


def test_script_element_escapes_hostile_text(document: dict[str, Any]) -> None:
    reviews = claim_reviews({**document, "verdicts": [{**verdict(document, "W15"), "finding": HOSTILE}]})
    script = script_element(reviews)
    assert script.count("</script>") == 1 and script.count("<") == 2 and "\u2028" not in script
    page = BeautifulSoup(f"<p>{script}</p>", "html.parser")
    assert json.loads(page.script.get_text()) == reviews


@pytest.mark.parametrize("url", ["", "https://example.org/report/"])
def test_claim_pages_embed_their_own_review(document: dict[str, Any], url: str) -> None:
    few = [{**item, "finding": HOSTILE} for item in document["verdicts"][:2]]
    pages = [page for page in build_content(Evidence({**document, "verdicts": few}, None), url).pages if page.script]
    assert [page.path for page in pages] == [f"claims/{item['id']}" for item in few]
    for page, item in zip(pages, few, strict=True):
        script: Any = BeautifulSoup(page.script, "html.parser").script
        (review,) = json.loads(script.get_text())["@graph"]
        assert review["identifier"] == item["id"] and review["reviewBody"] == HOSTILE
        # The review's URL leads to the page that contains the review.
        assert review.get("url", "") == (f"{url}{page.path}.html" if url else "")


def test_published_datapackage_is_up_to_date(tmp_path: Path) -> None:
    """To update the package: `python -m report datapackage`."""
    for name in FOLDERS:
        (tmp_path / name).symlink_to(ROOT / "data" / name)
    write_published(tmp_path)
    for name in ("datapackage.json", "samples.schema.json", "published.schema.json", "SHA256SUMS"):
        assert (tmp_path / name).read_text() == (ROOT / "data" / name).read_text(), "write it again: report datapackage"


def test_datapackage_command_needs_nodes(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic("node-a").clock().write()
    assert main(["datapackage", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'datapackage.json'}\n"
    paths = [resource["path"] for resource in read_json(tmp_path / "datapackage.json")["resources"]]
    assert paths == [*(f"nodes/node-a/clock.cpu.{number}.parquet" for number in (1, 2, 3)), "nodes/node-a/node.json"]
    with pytest.raises(StudyError, match="publish a node first"):
        main(["datapackage", "--data", str(tmp_path / "nodes")])


def test_citation_file_matches_the_project_metadata() -> None:
    cited = read_yaml(CITATION)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["cff-version"] == "1.2.0" and {"authors", "message", "title"} <= set(cited)
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith(f"{cited['license']} License") and cited["authors"][0]["name"] in licence
