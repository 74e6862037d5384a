"""The study for programs: claim reviews, tables of verdicts, data packages and the citation file."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import pytest
from bs4 import BeautifulSoup
from jsonschema import Draft202012Validator

from contract.errors import StudyError
from contract.files import read_json, read_yaml
from contract.tables import SAMPLES
from report.cli import main
from report.data.dataset import Dataset
from report.data.gather import gather
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.judging.judge import judge
from report.model import Verdict
from report.publish import as_script, claim_reviews, write_datapackage, write_published, write_tables
from report.publish.claimreview import RATINGS
from report.publish.study import CITATION, study
from report.render import render
from report.render.words import MEANING

from .conftest import Factory

ROOT = Path(__file__).parents[2]
SHAPES = Draft202012Validator(read_json(ROOT / "report" / "schemas" / "claimreview.schema.json"))
HOSTILE = '</script><script>alert(1)</script><!-- & \u2028 "quoted" \\ é'


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Verdicts on a synthetic node, as `judge` gives them: decided and undecided ones, and those that wait."""
    folder = tmp_path_factory.mktemp("judged")
    factory = Factory(folder / "nodes")
    factory("node-a").gemm(27.9).gemm(14, n=256).gemm(14, dtype="float64").clock().write()
    data = Dataset(read_nodes([factory.root], True), read_reference(REFERENCE))
    return judge(data, folder / "verdicts.json", allow_synthetic=True)


def verdict(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in document["verdicts"] if one["id"] == name)


def faults(reviews: Any) -> list[str]:
    return [fault.message for fault in SHAPES.iter_errors(reviews)]


# ------------------------------------------------------------------ claim reviews


def test_every_verdict_has_a_review_of_the_vocabularys_shape(document: dict[str, Any]) -> None:
    reviews = claim_reviews(document, "https://example.org/report/", MEANING)
    assert faults(reviews) == []
    assert [one["identifier"] for one in reviews["@graph"]] == [one["id"] for one in document["verdicts"]]
    review = next(one for one in reviews["@graph"] if one["identifier"] == "W15")
    told = verdict(document, "W15")
    assert review["claimReviewed"] == told["says"] and review["reviewBody"] == told["reason"]
    assert review["url"] == "https://example.org/report/#W15"
    assert review["datePublished"] == document["generated_utc"][:10]
    assert review["itemReviewed"]["appearance"] == {"@type": "CreativeWork", "name": told["article_title"]}
    assert review["author"]["name"] == study().authors


def test_only_what_was_decided_is_rated_with_a_number(document: dict[str, Any]) -> None:
    one = verdict(document, "W15")
    for name in Verdict:
        (review,) = claim_reviews({**document, "verdicts": [{**one, "verdict": name}]}, "", MEANING)["@graph"]
        rating = review["reviewRating"]
        assert rating["alternateName"].lower() == name and rating["ratingExplanation"] == MEANING[name]
        assert rating.get("ratingValue") == RATINGS.get(name)
        assert ("bestRating" in rating) == ("worstRating" in rating) == (name in RATINGS)
    assert RATINGS["supported"] > RATINGS["depends"] > RATINGS["challenged"]
    assert not {"undecided", "not testable", "awaiting hardware"} & set(RATINGS)


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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["@type"], "Review"),
        (["url"], 15),
        (["claimReviewed"], ""),
        (["author"], "The authors"),
        (["datePublished"], "2026"),
        (["reviewRating", "ratingValue"], "five"),
        (["reviewRating", "rating"], 5),
        (["reviewRating", "bestRating"], None),
        (["itemReviewed", "appearance", "author"], "Rico"),
    ],
)
def test_the_shapes_refuse_what_the_vocabulary_does_not_have(
    document: dict[str, Any], path: list[str], value: Any
) -> None:
    reviews = copy.deepcopy(claim_reviews({**document, "verdicts": [verdict(document, "W15")]}))
    place = reviews["@graph"][0]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    if value is None:
        del place[path[-1]]
    assert faults(reviews)


def test_no_text_can_end_the_script_element(document: dict[str, Any]) -> None:
    reviews = claim_reviews({**document, "verdicts": [{**verdict(document, "W15"), "reason": HOSTILE}]})
    script = as_script(reviews)
    assert script.count("</script>") == 1 and script.count("<") == 2 and "\u2028" not in script
    page = BeautifulSoup(f"<p>{script}</p>", "html.parser")
    assert json.loads(page.script.get_text()) == reviews


def test_the_page_carries_its_reviews_and_a_file_beside_it(document: dict[str, Any], tmp_path: Path) -> None:
    few = [{**one, "see_also": []} for one in copy.deepcopy(document["verdicts"][:2])]
    few[0]["reason"] = HOSTILE
    told = {**document, "verdicts": few, "contradictions": []}
    (tmp_path / "verdicts.json").write_text(json.dumps(told), encoding="utf-8")
    render(tmp_path / "verdicts.json", tmp_path / "out", renderer="pandoc")
    page = BeautifulSoup((tmp_path / "out" / "index.html").read_text(encoding="utf-8"), "html.parser")
    (script,) = page.find_all("script", type="application/ld+json")
    embedded, beside = json.loads(script.get_text()), read_json(tmp_path / "out" / "claims.jsonld")
    assert faults(beside) == [] and beside["@graph"][0]["reviewBody"] == HOSTILE
    # Each address leads to the claim from where it stands.
    inside = embedded["@graph"][0]["url"]
    assert page.find(id=inside.removeprefix("#")) and beside["@graph"][0]["url"] == f"index.html{inside}"


# ------------------------------------------------------------------ tables


def test_the_tables_hold_what_the_verdicts_say(document: dict[str, Any], tmp_path: Path) -> None:
    claims_path, cells_path = write_tables(document, tmp_path / "verdicts.json")
    assert (claims_path.name, cells_path.name) == ("verdicts.parquet", "verdict_cells.parquet")
    claims = pd.read_parquet(claims_path).set_index("id")
    assert list(claims.index) == [one["id"] for one in document["verdicts"]]
    told = verdict(document, "W15")
    row = claims.loc["W15"]
    for name in ("verdict", "reason", "estimate", "low", "high", "unit", "version", "evidence_tier", "says"):
        assert row[name] == told[name], name
    assert list(row["threshold"]) == [told["threshold"]] and list(row["flips"]) == told["flips"]
    ranges = next(one for one in document["verdicts"] if isinstance(one["threshold"], list))
    assert list(claims.loc[ranges["id"], "threshold"]) == ranges["threshold"]
    waiting = next(one for one in document["verdicts"] if one["estimate"] is None)
    assert math.isnan(claims.loc[waiting["id"], "estimate"]) and claims.loc[waiting["id"], "cells"] == 0

    cells = pd.read_parquet(cells_path)
    assert len(cells) == sum(len(one["cells"]) for one in document["verdicts"]) > 0
    assert cells.groupby("claim").size().to_dict() == claims["cells"][claims["cells"] > 0].to_dict()
    (one,) = cells[cells["claim"] == "W15"].to_dict("records")
    (cell,) = told["cells"]
    for name in ("node", "device", "label", "estimate", "low", "high", "n_rounds", "outcome", "behind"):
        assert one[name] == cell[name], name
    labels = json.loads(one["labels"])
    assert labels["dtype"] == cell["dtype"] == "float32" and not set(labels) & set(cells.columns)
    assert (one["quantity"], one["unit"]) == (told["quantity"], told["unit"])


def test_the_tables_columns_are_typed_and_explained(document: dict[str, Any], tmp_path: Path) -> None:
    # Even where nothing was compared: the types do not come from the values.
    none = [{**one, "cells": []} for one in document["verdicts"]]
    for path in write_tables({**document, "verdicts": none}, tmp_path / "verdicts.json"):
        schema = parquet.read_schema(path)
        types = {field.name: str(field.type) for field in schema}
        assert types["estimate"] == types["low"] == "double"
        assert types.get("threshold", "list<element: double>") == "list<element: double>"
        assert types.get("version", "int64") == types.get("n_rounds", "int64") == "int64"
        assert all(field.metadata[b"description"] for field in schema)
        about = json.loads(schema.metadata[b"study"])
        assert about["commit"] == document["commit"] and about["origin"] == "synthetic"


# ------------------------------------------------------------------ data packages


@pytest.fixture
def gathered(synthetic: Factory, tmp_path: Path) -> Path:
    node = synthetic("node-a").gemm(20).gemm(10, n=256).clock()
    node.point("gemm", 0, params={"m": 1, "n": 1, "k": 1}, status="oom", reason="too large").write()
    gather([synthetic.root], tmp_path / "data", allow_synthetic=True)
    return tmp_path / "data"


def test_every_gathered_file_is_described_with_its_size_and_hash(gathered: Path) -> None:
    package = read_json(write_datapackage(gathered))
    assert package["$schema"] == "https://datapackage.org/profiles/2.0/datapackage.json" and package["licenses"]
    listed = {resource["path"]: resource for resource in package["resources"]}
    assert set(listed) == {path.name for path in gathered.iterdir()} - {"datapackage.json"}
    assert len({resource["name"] for resource in package["resources"]}) == len(listed)
    for name, resource in listed.items():
        content = (gathered / name).read_bytes()
        assert resource["bytes"] == len(content)
        assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize("table", ["samples", "summary"])
def test_the_columns_are_as_described(gathered: Path, table: str) -> None:
    package = read_json(write_datapackage(gathered))
    schemas = [one["schema"] for one in package["resources"] if one["path"].startswith(f"{table}.")]
    assert len(schemas) == 2 and schemas[0] == schemas[1]
    fields = {field["name"]: field for field in schemas[0]["fields"]}
    read = pd.read_csv(gathered / f"{table}.csv", dtype=str, keep_default_na=False)
    assert list(fields) == list(read.columns) == list(pd.read_parquet(gathered / f"{table}.parquet").columns)
    assert all(field["description"] for field in fields.values())
    for name, field in fields.items():
        gaps = read[name].isin(field.get("missingValues", [""]))
        if field.get("constraints", {}).get("required"):
            assert not gaps.any(), name
        if field["type"] == "integer":
            assert read[name][~gaps].map(lambda text: int(text) == float(text)).all(), name
        if field["type"] == "number":
            assert read[name][~gaps].map(float).notna().all(), name
    assert not read.duplicated(schemas[0]["primaryKey"]).any()
    assert fields["flop"]["unit"] == "FLOP" and fields["threads"]["type"] == "integer"
    # A row that failed has no value: the column may not be called complete.
    assert "constraints" not in fields["value" if table == "samples" else "estimate"]


def test_a_folder_that_gather_did_not_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"dictionary\.csv: no such file"):
        write_datapackage(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_published_package_is_that_of_the_published_nodes(tmp_path: Path) -> None:
    """If this fails: `python -m report datapackage`."""
    (tmp_path / "nodes").symlink_to(ROOT / "data" / "nodes")
    write_published(tmp_path)
    for name in ("datapackage.json", "samples.schema.json"):
        assert (tmp_path / name).read_text() == (ROOT / "data" / name).read_text(), "write it again: report datapackage"


def test_every_published_file_is_listed_once() -> None:
    package = read_json(ROOT / "data" / "datapackage.json")
    listed = [path for one in package["resources"] for path in (one["path"] if "schema" in one else [one["path"]])]
    there = [path.relative_to(ROOT / "data").as_posix() for path in (ROOT / "data" / "nodes").glob("*/*")]
    assert sorted(listed) == sorted(path for path in there if path.endswith((".json", ".parquet")))
    schema = read_json(ROOT / "data" / "samples.schema.json")
    assert [field["name"] for field in schema["fields"]] == list(SAMPLES.columns)
    assert {one["schema"] for one in package["resources"] if "schema" in one} == {"samples.schema.json"}


def test_the_command_describes_a_folder_and_refuses_one_without_nodes(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic("node-a").clock().write()
    assert main(["datapackage", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'datapackage.json'}\n"
    paths = [one["path"] for one in read_json(tmp_path / "datapackage.json")["resources"]]
    assert paths == ["nodes/node-a/node.json", [f"nodes/node-a/clock.cpu.{number}.parquet" for number in (1, 2, 3)]]
    with pytest.raises(StudyError, match="no node has been published"):
        main(["datapackage", "--data", str(tmp_path / "nodes")])


# ------------------------------------------------------------------ citation


def test_the_citation_file_says_what_the_project_says() -> None:
    cited = read_yaml(CITATION)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["cff-version"] == "1.2.0" and {"authors", "message", "title"} <= set(cited)
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith(f"{cited['license']} License") and cited["authors"][0]["name"] in licence


def test_every_method_paper_of_the_report_is_cited() -> None:
    cited = read_yaml(CITATION)["references"]
    method = (ROOT / "report" / "templates" / "parts" / "method.qmd").read_text(encoding="utf-8")
    listed = method.split("{#references}")[1].split("\n## ")[0]
    dois = set(re.findall(r"\[doi\.org/([^\]]+)\]", listed))
    assert dois and dois == {one["doi"] for one in cited if "doi" in one}
    assert len(re.findall(r"^- ", listed, flags=re.MULTILINE)) == len(cited)
    assert all(one["title"].lower() in listed.lower() and f"({one['year']})" in listed for one in cited)


def test_a_citation_file_that_lacks_something_is_named(tmp_path: Path) -> None:
    (tmp_path / "CITATION.cff").write_text("title: A study\n")
    with pytest.raises(StudyError, match=r"CITATION\.cff: lacks 'version'"):
        study(tmp_path / "CITATION.cff")
