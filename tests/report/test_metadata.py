"""Machine-readable metadata: claim reviews, verdict tables, data packages and the citation file."""

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
    """Verdicts on the small study. Some are decided, some undecided, and some await evidence."""
    return read_verdicts(small_study / "verdicts.json")


def verdict(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in document["verdicts"] if item["id"] == name)


def schema_errors(reviews: Any) -> list[str]:
    return [fault.message for fault in SHAPES.iter_errors(reviews)]


def test_every_verdict_has_a_valid_claim_review(document: dict[str, Any]) -> None:
    reviews = claim_reviews(document, "https://example.org/report/claims/", MEANING)
    assert schema_errors(reviews) == []
    assert [item["identifier"] for item in reviews["@graph"]] == [item["id"] for item in document["verdicts"]]
    review = next(item for item in reviews["@graph"] if item["identifier"] == "W15")
    w15 = verdict(document, "W15")
    assert review["claimReviewed"] == w15["says"] and review["reviewBody"] == w15["finding"]
    assert review["url"] == "https://example.org/report/claims/W15.html"
    assert review["datePublished"] == document["generated_utc"][:10]
    assert review["itemReviewed"]["appearance"] == {"@type": "CreativeWork", "name": w15["article_title"]}
    assert review["author"]["name"] == read_study().authors


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
        here = f"{url}{page.path}.html"
        assert urljoin(here, review["url"]) == here


def test_verdict_tables_match_the_verdicts(document: dict[str, Any], tmp_path: Path) -> None:
    claims, cases = (pd.read_parquet(path) for path in write_tables(document, tmp_path / "verdicts.json"))
    assert list(claims["id"]) == [item["id"] for item in document["verdicts"]]
    w15, row = verdict(document, "W15"), claims.set_index("id").loc["W15"]
    for name in ("verdict", "finding", "estimate", "low", "high", "unit", "version", "evidence_tier", "says"):
        assert row[name] == w15[name], name
    assert list(row["threshold"]) == [w15["threshold"]] and row["turn"] == verdict_sentences.turn_text(w15)
    counts = {item["id"]: len(item["cases"]) for item in document["verdicts"] if item["cases"]}
    assert cases.groupby("claim").size().to_dict() == counts
    (case_row,) = cases[cases["claim"] == "N03"].to_dict("records")
    (case,) = verdict(document, "N03")["cases"]
    for name in ("node", "device", "estimate", "low", "high", "n_rounds", "outcome"):
        assert case_row[name] == case[name], name
    labels = json.loads(case_row["labels"])
    assert labels["dtype"] == case["labels"]["dtype"] == "float32" and not set(labels) & set(cases.columns)
    # Without cases, columns keep their types, because the types are declared and not inferred from the rows.
    none = [{**item, "cases": []} for item in document["verdicts"]]
    for path in write_tables({**document, "verdicts": none}, tmp_path / "verdicts.json"):
        schema = parquet.read_schema(path)
        assert str(schema.field("estimate").type) == "double"
        assert all(field.metadata[b"description"] for field in schema)


def test_datapackage_describes_every_gathered_file(synthetic: Factory, tmp_path: Path) -> None:
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


def test_published_datapackage_is_up_to_date(tmp_path: Path) -> None:
    """To update the package: `python -m report datapackage`."""
    for name in ("nodes", "published"):
        (tmp_path / name).symlink_to(ROOT / "data" / name)
    write_published(tmp_path)
    for name in ("datapackage.json", "samples.schema.json", "published.schema.json"):
        assert (tmp_path / name).read_text() == (ROOT / "data" / name).read_text(), "write it again: report datapackage"


def test_datapackage_command_needs_nodes(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic("node-a").clock().write()
    assert main(["datapackage", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'datapackage.json'}\n"
    paths = [resource["path"] for resource in read_json(tmp_path / "datapackage.json")["resources"]]
    assert paths == ["nodes/node-a/node.json", [f"nodes/node-a/clock.cpu.{number}.parquet" for number in (1, 2, 3)]]
    with pytest.raises(StudyError, match="publish a node first"):
        main(["datapackage", "--data", str(tmp_path / "nodes")])


def test_citation_file_matches_the_project_metadata() -> None:
    cited = read_yaml(CITATION)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["cff-version"] == "1.2.0" and {"authors", "message", "title"} <= set(cited)
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith(f"{cited['license']} License") and cited["authors"][0]["name"] in licence


def test_datapackage_refuses_other_folders(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"dictionary\.csv: no such file"):
        write_datapackage(tmp_path)
    assert not list(tmp_path.iterdir())
