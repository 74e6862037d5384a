"""Pages of evidence: each id has an anchor, claims' cases lead to it, and hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from bs4 import BeautifulSoup

from contract.files import read_json
from report.pages import case_evidence, evidence_ids, site_sources
from report.pages.case_evidence import Cell, EvidenceLists, citation, list_cells, representative_cell
from report.pages.evidence_ids import EvidenceIds, experiment_page, source_page
from report.pages.evidence_pages import _record_page, read_evidence
from report.pages.figure_data import Evidence
from report.pages.site_content import build_content

COUNT = re.compile(r"([\d,]+) results?")


@pytest.fixture(scope="module")
def document(published_study: Path) -> Any:
    return read_json(published_study / "verdicts.json")


@pytest.fixture(scope="module")
def anchors(site: Path) -> dict[str, list[str]]:
    """Anchors of the rows on each page of evidence, by page."""
    return {
        str(path.relative_to(site).with_suffix("")): re.findall(r'<tr id="([^"]*)"', path.read_text(encoding="utf-8"))
        for path in (site / "evidence").glob("*.html")
    }


def test_every_id_has_one_anchor_on_the_page_of_its_experiment_or_source(
    anchors: dict[str, list[str]], dataset: Path
) -> None:
    results, records, reference = (
        pl.read_parquet(dataset / f"{name}.parquet") for name in ("results", "records", "reference")
    )
    wanted = {experiment_page(name): set[str]() for name in results["experiment"].unique()}
    for name, experiment in results.select("result_id", "experiment").iter_rows():
        wanted[experiment_page(experiment)].add(name)
    for name, source in records.select("record_id", "source_id").iter_rows():
        wanted.setdefault(source_page(source), set()).add(name)
    wanted[evidence_ids.REFERENCE_PAGE] = set(reference["reference_id"])
    assert {page: set(ids) for page, ids in anchors.items() if page != evidence_ids.INDEX} == wanted
    every = [name for ids in anchors.values() for name in ids]
    assert len(every) == len(set(every)) == len(results) + len(records) + len(reference)


def test_index_leads_to_every_page_and_the_sources_page_to_the_index(site: Path, anchors: dict[str, list[str]]) -> None:
    index = BeautifulSoup((site / f"{evidence_ids.INDEX}.html").read_text(encoding="utf-8"), "html.parser")
    linked = {f"evidence/{Path(str(link['href'])).stem}" for link in index.select("td a")}
    assert linked == anchors.keys() - {evidence_ids.INDEX}
    assert f'href="{evidence_ids.INDEX}.html"' in (site / "sources.html").read_text(encoding="utf-8")


def _listed_names(page: BeautifulSoup, names: Any) -> Iterator[str]:
    """Yield the names in an evidence list, and in the lists of common evidence to which it links."""
    for item in names.select("li"):
        common = item.select_one('a[href^="#evidence-in-common-"]')
        if common:
            yield from _listed_names(page, page.select_one(str(common["href"])).find_next_sibling("ul"))
        else:
            yield item.get_text()


def test_claim_pages_link_each_case_to_its_evidence(site: Path, dataset: Path) -> None:
    """Every link's target is the id that it names. `test_in_browser` tests that the targets exist."""
    cells = pl.read_parquet(dataset / "cells.parquet").filter(pl.col("estimate").is_not_null())
    pieces = pl.read_parquet(dataset / "cell_evidence.parquet").filter(pl.col("kind") != "arithmetic")
    evidence = dict(pieces.group_by("cell_id").agg("evidence_id").iter_rows())
    seen = counted = 0
    for (claim,), own in cells.group_by("claim_id"):
        page = BeautifulSoup((site / "claims" / f"{claim}.html").read_text(encoding="utf-8"), "html.parser")
        lists = {
            str(head["id"]): list(_listed_names(page, head.find_next_sibling("ul")))
            for head in page.select('p[id^="evidence-"]')
        }
        for link in page.select('a[href*="/evidence/"][href*="#"]'):
            assert str(link["href"]).endswith(f"#{link.get_text()}")
        for name in page.select(".case-id"):
            row = name.find_parent("tr")
            assert name.parent["id"] == f"cell-{name.get_text().partition('/')[2].replace('.', '-')}"
            links = [link for link in row.select("a") if "#" in str(link["href"])]
            listed = [str(link["href"]).partition("#")[2] for link in links]
            names = lists.get(listed[0], listed) if listed else []
            wanted = sorted(evidence.get(name.get_text(), []))
            counts = [item for item in names if COUNT.fullmatch(item)]
            # Very long lists count their pieces by page.
            if counts:
                counted += 1
                assert len(wanted) > case_evidence._MOST_LISTED, name.get_text()
                number = sum(int(COUNT.fullmatch(item)[1].replace(",", "")) for item in counts)
                assert number + len(names) - len(counts) == len(wanted), name.get_text()
                assert {item for item in names if item not in counts} <= set(wanted)
            else:
                assert sorted(names) == wanted, name.get_text()
            seen += 1
        assert {name.get_text() for name in page.select(".case-id")} <= set(own["cell_id"])
    assert seen > 1000 and 0 < counted < 20


def test_very_long_list_counts_its_pieces_by_page() -> None:
    pieces = tuple(
        ("result", f"node/{experiment}.{number}/time") for experiment in ("gemm", "copy") for number in range(400)
    )
    pages = {piece: experiment_page(piece[1].partition("/")[2].partition(".")[0]) for piece in pieces}
    lists = EvidenceLists(EvidenceIds((), pages))
    lists.link(Cell("W35/a", pieces))
    items = BeautifulSoup(lists.html(), "html.parser").select("li a")
    assert [(item["href"], item.get_text()) for item in items] == [
        ("../evidence/gemm.html", "400 results"),
        ("../evidence/copy.html", "400 results"),
    ]


def test_cite_line_names_the_case_that_stands_for_the_claim(site: Path, document: Any, dataset: Path) -> None:
    cells = {row["cell_id"]: row for row in pl.read_parquet(dataset / "cells.parquet").to_dicts()}
    standing = 0
    for verdict in document["verdicts"]:
        cell = representative_cell(verdict, list_cells(verdict, None))
        text = BeautifulSoup((site / "claims" / f"{verdict['id']}.html").read_text(encoding="utf-8"), "html.parser")
        (cite,) = text.select(".cite")
        parts = [cell.id] if cell else []
        assert cite.get_text() == citation(document, *parts, f"claim {verdict['id']}")
        assert document["study_version"] in cite.get_text() and document["generated_utc"][:10] in cite.get_text()
        if cell:
            standing += 1
            (name,) = (name for name in text.select(".case-id") if name.get_text() == cell.id)
            assert text.select_one(f'a[href="#{name.parent["id"]}"]')
            assert cells[cell.id]["estimate"] == verdict["estimate"]
    assert standing > 70


def test_equal_evidence_shares_a_list(document: Any) -> None:
    (verdict,) = (verdict for verdict in document["verdicts"] if verdict["id"] == "G18")
    (cell,) = list_cells(verdict, [f"node/gemm.{row}/time" for row in range(100_000)])
    lists = EvidenceLists(EvidenceIds())
    links = {lists.link(cell), lists.link(cell)}
    assert len(links) == 1 and len(cell.evidence) > 100
    html = BeautifulSoup(lists.html(), "html.parser")
    assert len(html.select("ul")) == 1 and len(html.select("li")) == len(cell.evidence)


def test_evidence_of_a_ratio_of_figures_is_both(document: Any) -> None:
    (verdict,) = (verdict for verdict in document["verdicts"] if verdict["id"] == "N14")
    cell, other = list_cells(verdict, None)
    assert {name for _, name in cell.evidence} == {"pytorch.native_cuda_functions", "pytorch.native_cpu_functions"}
    assert {name for _, name in other.evidence} == {"tensorflow.gpu_kernel_ops", "tensorflow.cpu_kernel_ops"}


def test_pages_without_data_have_no_evidence_but_records_and_figures(document: Any) -> None:
    content = build_content(Evidence(document, None))
    assert not [page.path for page in content.pages if page.path.startswith("evidence/")]
    assert content.failures.as_json == []
    templates = site_sources.template_environment()
    pages = {page.path: page for page in content.pages}
    text = site_sources.page_source(pages["claims/N05"], templates, {})
    assert "records" in text and "](../evidence/" not in text


def test_many_results_are_listed_for_shown_machines_only(
    published_study: Path, document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_ids, "MOST_RESULTS", 10)
    monkeypatch.setattr("report.pages.machine_selection.MOST", 1)
    evidence = Evidence(document, published_study / "data")
    tables = read_evidence(evidence)
    nodes = {row["result_id"].partition("/")[0] for rows in tables.results.values() for row in rows}
    assert nodes == set(evidence.shown_nodes) < {str(node["id"]) for node in document["nodes"]}
    results = {name for kind, name in tables.ids.pages if kind == "result"}
    assert results == {row["result_id"] for rows in tables.results.values() for row in rows}


HOSTILE = "``` <script>alert(1)</script> \"' {{< include x >}} <<x>> &amp; \u202e"


def test_hostile_text_in_a_record_is_escaped(document: Any) -> None:
    row = {
        "record_id": HOSTILE, "gpu_as_printed": HOSTILE, "gpus": 2, "cpu_as_printed": "", "cpus": None,
        "value": 1.0, "unit": HOSTILE, "locator": HOSTILE, "url": "javascript:alert(1)",
    }  # fmt: skip
    for rows in ([row], [row, row, row]):
        page = _record_page("evidence/records-x", HOSTILE, rows, document)
        source = str(page.context["table"])
        assert [line for line in source.splitlines() if line.startswith("```")] == ["```{=html}", "```"]
        table = BeautifulSoup(source, "html.parser")
        assert not table.select("script, a") and len(table.select("td")) == 4 * len(rows)
        assert "{{<" not in source and "\u202e" not in source
        cells = [cell.get_text() for cell in table.select("tr[id]")[0].select("td")]
        assert all("<script>alert(1)</script>" in cells[at] for at in (0, 1, 2, 3))


@pytest.mark.parametrize("name", ["index", "reference", "records-mlperf", "../secret", "a.b", "A", ""])
def test_experiments_with_other_pages_names_have_no_page(name: str) -> None:
    assert experiment_page(name) == ""
