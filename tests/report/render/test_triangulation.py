"""The section on published figures and the appendix that lists them: words, markdown, the page and the PDF."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypandoc
import pytest
from bs4 import BeautifulSoup

from report.judging.reference_comparison import OUTCOMES
from report.render import TEMPLATES, words
from report.render.markdown import environment
from report.render.references import references
from report.render.triangulation import triangulation
from tests.report.render.pdf_words import text_of
from tests.report.rendering import render_beside

HOSTILE = "<b>@word</b> $x$ | y_z [a](b) `c` {{< d >}}"
SOURCE = {
    "title": f"A title {HOSTILE}", "publisher": "P", "url": "https://example.org/?a=1&b=2", "where": "page 1",
    "date": "2024", "status": "verified",
}  # fmt: skip


def cell(outcome: str, deviation: float | None = -0.05, **more: Any) -> dict[str, Any]:
    ends = (
        {"estimate": None, "low": None, "high": None}
        if deviation is None
        else {"estimate": deviation, "low": deviation - 0.01, "high": deviation + 0.01}
    )
    held = {"node": "node-a", "device": "cuda:0", "name": f"GPU {HOSTILE}", "label": f"triad {HOSTILE}"}
    values = {"estimate": 3.8e12, "low": 3.7e12, "high": 3.9e12, "n_rounds": 3, "n_samples": 15, "behind": "4"}
    return {**held, **values, "deviation": ends, "outcome": outcome, "explained": "", **more}


def figure(*cells: dict[str, Any], waits: str = "", **more: Any) -> dict[str, Any]:
    about = {
        "device": "big", "called": "Big", "entries": ["big.x"], "value": 4e12, "low": 4e12, "high": 4e12,
        "status": "verified", "worked_out": "", "waits": waits, "cells": list(cells),
    }  # fmt: skip
    shown = {"what": f"A chip {HOSTILE}, rate", "sources": [SOURCE]} if cells else {}
    return {**about, **shown, **more}


def pair(name: str, *figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    words = {"title": f"{name} {HOSTILE}", "differs": f"It differs {HOSTILE}.", "scaled": "", "quantity": "q"}
    return {"id": name, "scope": {}, "unit": "B/s", **words, "figures": list(figures), **more}


def compared() -> list[dict[str, Any]]:
    """Every outcome, a pair that waits, one that does both, and one without a figure."""
    return [
        pair("each", figure(*(cell(outcome) for outcome in OUTCOMES))),
        pair("waits", figure(waits="NVIDIA X beside Y"), figure(waits="NVIDIA X beside Y"), figure(waits="AMD Z")),
        pair("both", figure(cell("explained", -0.3, explained="Because.")), figure(waits="Q"), scaled="Halved."),
        pair("blank", figure(cell("not verified", None), value=None, low=None, high=None, status="not verified")),
    ]


def listed() -> list[dict[str, Any]]:
    about = {"what": f"Rate {HOSTILE}", "value": 4e12, "unit": "B/s", "status": "verified", "source": SOURCE}
    other = {**SOURCE, "title": "Another", "status": "not verified"}
    return [
        {**about, "id": "a.x", "subject": "A", "used_by": ["W01", "gemm.rate", "roofline.balance"]},
        {**about, "id": "a.y", "subject": "A", "used_by": ["comparison one", "W02", "W01"]},
        {**about, "id": "b.x", "subject": "B", "used_by": ["comparison one", "comparison two"]},
        {**about, "id": "c.x", "subject": "C", "value": None, "status": "not verified", "source": other,
         "used_by": ["contradiction three", "Z99"]},
    ]  # fmt: skip


@pytest.fixture
def document(make_document: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Synthetic verdicts with comparisons and figures."""
    found = make_document()
    found["nodes"][0] |= {"id": "node-a", "label": "A node"}
    return found | {"triangulation": compared(), "references": listed()}


def test_every_value_stands_beside_its_figure(document: dict[str, Any]) -> None:
    told = triangulation(document)
    assert told is not None
    rows = told["rows"]
    assert [row["outcome"] for row in rows] == [*OUTCOMES, "explained", "not verified"]
    assert rows[0]["measured"] == "3.80 [3.70, 3.90] TB/s"
    assert rows[0]["published"] == "4 TB/s"
    assert rows[0]["deviation"] == "−5.0% [−6.0%, −4.0%]"
    assert rows[0]["where"].startswith("A node, GPU")
    assert rows[0]["url"] == SOURCE["url"]
    assert rows[-1]["published"] == "no figure verified"
    assert rows[-1]["deviation"] == "–"
    assert rows[-2]["explained"] == "Because."
    assert len({row["class"] for row in rows}) == len(OUTCOMES)


def test_figures_of_one_source_share_a_row_and_name_their_users(document: dict[str, Any]) -> None:
    told = references(document)
    assert told is not None
    assert told["counts"].startswith("4 figures from published sources: 3 were read in their primary source, 1 could")
    unread, read = told["parts"]
    assert [part["title"] for part in told["parts"]] == [
        "Not verified: 1 figure",
        "Read in their primary source: 3 figures",
    ]
    (row,) = read["rows"]
    assert [subject["name"] for subject in row["subjects"]] == ["A", "B"]
    assert row["subjects"][0]["figures"].count("4 TB/s") == 2
    assert row["claims"] == ["W01", "W02"]
    assert row["others"] == "2 comparisons and 2 quantities"
    assert "no figure" in unread["rows"][0]["subjects"][0]["figures"]
    # A claim that the document does not have is no link.
    assert unread["rows"][0]["claims"] == []


@pytest.mark.parametrize("part", ["triangulation", "references"])
@pytest.mark.parametrize("target", ["html", "typst"])
def test_no_text_becomes_markup(document: dict[str, Any], part: str, target: str) -> None:
    told = {
        "triangulation": triangulation(document),
        "references": references(document),
        "level": words.LEVEL,
    }
    text = environment(TEMPLATES).get_template(f"parts/{part}.qmd").render(**told)
    assert text.count("<details>") == text.count("</details>")
    made = pypandoc.convert_text(text, target, format="markdown", extra_args=["--wrap=none"])
    if target == "html":
        page = BeautifulSoup(made, "html.parser")
        assert not page.find_all(["b", "code"])
        assert HOSTILE.split()[0].replace("<b>", "").replace("</b>", "")[1:5] in page.get_text()
        assert all(link["href"].startswith(("https://example.org/", "#")) for link in page.find_all("a"))
        tables = page.find_all("table")
        columns = {len(row.find_all(["td", "th"])) for table in tables for row in table.find_all("tr")}
        assert columns == ({6} if part == "triangulation" else {3}), "no bar of the data makes a column"


def test_the_page_and_the_pdf_hold_both(document: dict[str, Any], report: Path, tmp_path: Path) -> None:
    # Of the claims, those that the figures name.
    document["verdicts"] = [one | {"see_also": []} for one in document["verdicts"] if one["id"] in ("W01", "W02")]
    verdicts = tmp_path / "verdicts.json"
    verdicts.write_text(json.dumps(document), encoding="utf-8")
    render_beside(report, verdicts, tmp_path / "out")
    page = BeautifulSoup((tmp_path / "out" / "index.html").read_text(encoding="utf-8"), "html.parser")
    section = page.find(id="triangulation")
    assert section is not None
    assert len(section.select("table tbody tr")) == len(OUTCOMES) + 2
    waiting = section.find("details")
    assert waiting is not None
    assert "4 published figures without a measured counterpart" in waiting.get_text()
    assert not waiting.has_attr("open"), "what waits is folded away"
    appendix = page.find(id="published-figures")
    assert appendix is not None
    assert [one.get_text() for one in appendix.select("summary")] == [
        "Not verified",
        "Read in their primary source",
    ]
    assert appendix.select_one('a[href="#W01"]') is not None
    text = " ".join(text_of(tmp_path / "out" / "report.pdf").split())
    assert "Published figures beside ours" in text
    assert "NVIDIA X beside Y" in text
