"""The study for programs: claim reviews, tables of verdicts, data packages and the citation file."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pandas as pd
import pyarrow.parquet as parquet
import pytest
from bs4 import BeautifulSoup
from jsonschema import Draft202012Validator

from contract.errors import StudyError
from contract.files import read_json, read_yaml
from report import verdict_sentences
from report.cli import main
from report.data.gather import gather
from report.outcomes import Verdict
from report.pages import verdict_words
from report.pages.figure_data import Evidence
from report.pages.site_content import build_content
from report.publish import claim_reviews, script_element, write_datapackage, write_published, write_tables
from report.publish.claimreview import RATINGS
from report.publish.study_metadata import CITATION, read_study
from report.verdicts import read_verdicts

from .conftest import Factory

ROOT = Path(__file__).parents[2]
SHAPES = Draft202012Validator(read_json(ROOT / "report" / "schemas" / "claimreview.schema.json"))
MEANING = {str(name): word.means for name, word in verdict_words.VERDICTS.items()}
HOSTILE = '</script><script>alert(1)</script><!-- & \u2028 "quoted" \\ é'


@pytest.fixture(scope="module")
def document(small_study: Path) -> dict[str, Any]:
    """Verdicts of every kind: decided and undecided ones, and those that wait."""
    return read_verdicts(small_study / "verdicts.json")


def verdict(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in document["verdicts"] if one["id"] == name)


def faults(reviews: Any) -> list[str]:
    return [fault.message for fault in SHAPES.iter_errors(reviews)]


def test_every_verdict_has_a_review_of_the_vocabularys_shape(document: dict[str, Any]) -> None:
    reviews = claim_reviews(document, "https://example.org/report/claims/", MEANING)
    assert faults(reviews) == []
    assert [one["identifier"] for one in reviews["@graph"]] == [one["id"] for one in document["verdicts"]]
    review = next(one for one in reviews["@graph"] if one["identifier"] == "W15")
    told = verdict(document, "W15")
    assert review["claimReviewed"] == told["says"] and review["reviewBody"] == told["finding"]
    assert review["url"] == "https://example.org/report/claims/W15.html"
    assert review["datePublished"] == document["generated_utc"][:10]
    assert review["itemReviewed"]["appearance"] == {"@type": "CreativeWork", "name": told["article_title"]}
    assert review["author"]["name"] == read_study().authors


def test_only_what_was_decided_is_rated_with_a_number(document: dict[str, Any]) -> None:
    one = verdict(document, "W15")
    for name in Verdict:
        (review,) = claim_reviews({**document, "verdicts": [{**one, "verdict": name}]}, "", MEANING)["@graph"]
        rating = review["reviewRating"]
        assert rating["alternateName"].lower() == name and rating["ratingExplanation"] == MEANING[name]
        assert rating.get("ratingValue") == RATINGS.get(name)
        assert ("bestRating" in rating) == ("worstRating" in rating) == (name in RATINGS)
    assert sorted(RATINGS, key=RATINGS.__getitem__) == ["challenged", "outdated", "depends", "supported"]


def test_articles_and_sources_are_cited_with_what_they_tell_of_themselves(document: dict[str, Any]) -> None:
    reviews = claim_reviews(document)["@graph"]
    works = {one["article"]: review["itemReviewed"]["appearance"]
             for one, review in zip(document["verdicts"], reviews, strict=True)}  # fmt: skip
    assert works["nuface"]["author"]["@type"] == "Person" and works["nuface"]["datePublished"] == "2026-01-08"
    for article in ("gpuserver", "whygpu"):
        assert set(works[article]) == {"@type", "name"}
    assert any(one["sources"] for one in document["verdicts"])
    for one, review in zip(document["verdicts"], reviews, strict=True):
        assert [source["url"] for source in review.get("citation", [])] == [source["url"] for source in one["sources"]]
    assert all("Synthetic" in review["creativeWorkStatus"] for review in reviews)
    measured = claim_reviews({**document, "origin": "measured"})["@graph"]
    assert not any("creativeWorkStatus" in review for review in measured)


def test_no_text_can_end_the_script_element(document: dict[str, Any]) -> None:
    reviews = claim_reviews({**document, "verdicts": [{**verdict(document, "W15"), "finding": HOSTILE}]})
    script = script_element(reviews)
    assert script.count("</script>") == 1 and script.count("<") == 2 and "\u2028" not in script
    page = BeautifulSoup(f"<p>{script}</p>", "html.parser")
    assert json.loads(page.script.get_text()) == reviews


@pytest.mark.parametrize("url", ["", "https://example.org/report/"])
def test_each_claims_page_carries_its_own_review(document: dict[str, Any], url: str) -> None:
    few = [{**one, "finding": HOSTILE} for one in document["verdicts"][:2]]
    pages = [page for page in build_content(Evidence({**document, "verdicts": few}, None), url).pages if page.script]
    assert [page.path for page in pages] == [f"claims/{one['id']}" for one in few]
    for page, one in zip(pages, few, strict=True):
        script: Any = BeautifulSoup(page.script, "html.parser").script
        (review,) = json.loads(script.get_text())["@graph"]
        assert review["identifier"] == one["id"] and review["reviewBody"] == HOSTILE
        # Its address leads from the page to itself.
        here = f"{url}{page.path}.html"
        assert urljoin(here, review["url"]) == here


def test_the_tables_hold_what_the_verdicts_say(document: dict[str, Any], tmp_path: Path) -> None:
    claims, cases = (pd.read_parquet(path) for path in write_tables(document, tmp_path / "verdicts.json"))
    assert list(claims["id"]) == [one["id"] for one in document["verdicts"]]
    told, row = verdict(document, "W15"), claims.set_index("id").loc["W15"]
    for name in ("verdict", "finding", "estimate", "low", "high", "unit", "version", "evidence_tier", "says"):
        assert row[name] == told[name], name
    assert list(row["threshold"]) == [told["threshold"]] and row["turn"] == verdict_sentences.turn_text(told)
    counts = {one["id"]: len(one["cases"]) for one in document["verdicts"] if one["cases"]}
    assert cases.groupby("claim").size().to_dict() == counts
    (one,) = cases[cases["claim"] == "N03"].to_dict("records")
    (case,) = verdict(document, "N03")["cases"]
    for name in ("node", "device", "estimate", "low", "high", "n_rounds", "outcome"):
        assert one[name] == case[name], name
    labels = json.loads(one["labels"])
    assert labels["dtype"] == case["labels"]["dtype"] == "float32" and not set(labels) & set(cases.columns)
    # Even where nothing was compared: the types do not come from the values.
    none = [{**one, "cases": []} for one in document["verdicts"]]
    for path in write_tables({**document, "verdicts": none}, tmp_path / "verdicts.json"):
        schema = parquet.read_schema(path)
        assert str(schema.field("estimate").type) == "double"
        assert all(field.metadata[b"description"] for field in schema)


def test_every_gathered_file_is_described_with_its_size_and_hash(synthetic: Factory, tmp_path: Path) -> None:
    synthetic("node-a").gemm(20).clock().write()
    gathered = tmp_path / "data"
    gather([synthetic.root], gathered, allow_synthetic=True)
    package = read_json(write_datapackage(gathered))
    assert package["$schema"] == "https://datapackage.org/profiles/2.0/datapackage.json" and package["licenses"]
    listed = {resource["path"]: resource for resource in package["resources"]}
    assert set(listed) == {path.name for path in gathered.iterdir()} - {"datapackage.json"}
    assert len({resource["name"] for resource in package["resources"]}) == len(listed)
    for name, resource in listed.items():
        content = (gathered / name).read_bytes()
        assert resource["bytes"] == len(content)
        assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_the_published_package_is_that_of_the_published_nodes(tmp_path: Path) -> None:
    """If this fails: `python -m report datapackage`."""
    for name in ("nodes", "published"):
        (tmp_path / name).symlink_to(ROOT / "data" / name)
    write_published(tmp_path)
    for name in ("datapackage.json", "samples.schema.json", "published.schema.json"):
        assert (tmp_path / name).read_text() == (ROOT / "data" / name).read_text(), "write it again: report datapackage"


def test_the_command_describes_a_folder_and_refuses_one_without_nodes(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic("node-a").clock().write()
    assert main(["datapackage", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'datapackage.json'}\n"
    paths = [resource["path"] for resource in read_json(tmp_path / "datapackage.json")["resources"]]
    assert paths == ["nodes/node-a/node.json", [f"nodes/node-a/clock.cpu.{number}.parquet" for number in (1, 2, 3)]]
    with pytest.raises(StudyError, match="publish a node first"):
        main(["datapackage", "--data", str(tmp_path / "nodes")])


def test_the_citation_file_says_what_the_project_says() -> None:
    cited = read_yaml(CITATION)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["cff-version"] == "1.2.0" and {"authors", "message", "title"} <= set(cited)
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith(f"{cited['license']} License") and cited["authors"][0]["name"] in licence


def test_a_folder_that_gather_did_not_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"dictionary\.csv: no such file"):
        write_datapackage(tmp_path)
    assert not list(tmp_path.iterdir())
