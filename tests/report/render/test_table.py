"""The table of claims: filters, search, sorting, its state in the address, at every width and without scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from tests.report.render.conftest import VERDICTS
from tests.report.rendering import render_beside

NODES = [
    {"id": "a-cpu-1", "label": "A CPU"},
    {"id": "b-gpu-2", "label": "B <b>GPU</b>"},
    {"id": "c-cpu-3", "label": "C CPU"},
]


def ids(page: Any) -> list[str]:
    return page.locator("table.claims tbody tr:visible td:first-child").all_inner_texts()


def counted(page: Any) -> str:
    return page.locator("#filter-count").inner_text()


def fragment(page: Any) -> str:
    """The page's own view of its address: the browser's is told to the test a moment later."""
    return str(page.evaluate("location.hash"))


def head(page: Any, name: str) -> Any:
    return page.locator("table.claims").get_by_role("columnheader", name=re.compile(f"^{name}"))


@pytest.fixture(scope="module")
def all_ids(make_document: Any) -> list[str]:
    return [one["id"] for one in make_document()["verdicts"]]


# ------------------------------------------------------------------ what a row carries


def test_a_bare_number_says_what_it_counts(report: Path, make_document: Any) -> None:
    page = BeautifulSoup((report / "index.html").read_text(encoding="utf-8"), "html.parser")
    bare = [one for one in make_document()["verdicts"] if one["quantity"] == "training.split" and one["estimate"]]
    assert bare
    for one in bare:
        row = page.select_one(f"table.claims a[href='#{one['id']}']").find_parent("tr")
        of = f"(split; {one['parts'][0]['name']})" if len(one["parts"]) > 1 else "(split)"
        assert f"]\u00a0{of}" in row.get_text()
        assert of in page.find(id=one["id"]).find_parent("section").get_text()


# ------------------------------------------------------------------ filters and search


def test_the_filter_narrows_the_table_and_the_address_remembers(visit: Any, make_document: Any) -> None:
    page, said, _ = visit("#table")
    document = make_document()
    assert len(ids(page)) == len(document["verdicts"])
    page.get_by_label("Verdict", exact=True).select_option("challenged")
    page.get_by_label("Article", exact=True).select_option("whygpu")
    wanted = [v["id"] for v in document["verdicts"] if v["verdict"] == "challenged" and v["article"] == "whygpu"]
    assert ids(page) == wanted
    assert counted(page) == f"{len(wanted)} of {len(document['verdicts'])} claims"
    address = fragment(page)
    page.reload()
    assert fragment(page) == address
    assert ids(page) == wanted
    page.get_by_label("Find", exact=True).fill(wanted[0])
    assert ids(page) == [wanted[0]]
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("table.claims tbody tr:visible")).to_have_count(len(document["verdicts"]))
    assert fragment(page) == "#table"
    assert said == []


@pytest.mark.parametrize(
    ("label", "key"), [("Article", "article"), ("Verdict", "verdict"), ("Kind", "kind"), ("Evidence", "evidence_tier")]
)
def test_every_filter_offers_what_there_is_and_shows_what_it_says(
    visit: Any, make_document: Any, label: str, key: str
) -> None:
    page, _, _ = visit("#table")
    select = page.get_by_label(label, exact=True)
    values = select.locator("option").evaluate_all("(all) => all.map((one) => one.value)")
    of = {one["id"]: one[key] for one in make_document()["verdicts"]}
    assert sorted(values) == sorted({"", *of.values()})
    for value in values[1:]:
        select.select_option(value)
        assert ids(page) == [claim for claim, its in of.items() if its == value]


def test_a_filter_that_nothing_fits_says_so(visit: Any, all_ids: list[str]) -> None:
    page, _, _ = visit("#table")
    page.get_by_label("Find", exact=True).fill("no such words anywhere")
    assert ids(page) == []
    assert counted(page).startswith(f"None of the {len(all_ids)} claims fits.")
    assert page.locator("#filter-count").get_attribute("aria-live") == "polite"
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#filter-count")).to_have_text(f"{len(all_ids)} claims")


@pytest.fixture(scope="module")
def fleet(make_document: Any, report: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small report on three nodes, one of them with a GPU and a hostile name."""
    document = make_document()
    on = [("a-cpu-1",), ("b-gpu-2", "a-cpu-1"), ("a-cpu-1", "b-gpu-2", "c-cpu-3"), ()]
    verdicts = [one | {"see_also": []} for one in document["verdicts"] if one["verdict"] in VERDICTS[:3]][:4]
    for one, names in zip(verdicts, on, strict=True):
        kept = [{**one["cells"][0], "node": name} for name in names] or [{**one["cells"][0], "node": None}]
        one["cells"] = kept
    nodes = [{**document["nodes"][0], **node} for node in NODES]
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "verdicts.json").write_text(json.dumps(document | {"verdicts": verdicts, "nodes": nodes}))
    return render_beside(report, folder / "verdicts.json", folder / "out")


def test_the_node_filter_shows_what_each_node_decided(visit: Any, fleet: Path) -> None:
    page, said, _ = visit("#table", report=fleet)
    first, second, third, _ = ids(page)
    select = page.get_by_label("Node", exact=True)
    assert select.locator("option").all_inner_texts() == ["all", *[node["label"] for node in NODES]]
    for node, wanted in {
        "a-cpu-1": [first, second, third],
        "b-gpu-2": [second, third],
        "c-cpu-3": [third],
    }.items():
        select.select_option(node)
        assert ids(page) == wanted
        assert fragment(page) == f"#table?node={node}"
    assert "3 nodes" in page.locator("table.claims tbody tr:visible").inner_text()
    assert said == []


# ------------------------------------------------------------------ sorting


def test_numbers_sort_as_numbers_and_what_has_none_comes_last(visit: Any, make_document: Any) -> None:
    page, _, _ = visit("#table")
    verdicts = make_document()["verdicts"]
    told = [one for one in verdicts if one["estimate"] is not None]
    without = [one["id"] for one in verdicts if one["estimate"] is None]
    assert len(told) > 10 and len(without) > 10
    for reverse in (False, True):
        page.get_by_role("button", name="Key number").click()
        wanted = sorted(told, key=lambda one: (one["unit"], one["estimate"]), reverse=reverse)
        assert ids(page) == [one["id"] for one in wanted] + without


def test_every_head_sorts_by_keyboard_and_keeps_the_focus(visit: Any, all_ids: list[str]) -> None:
    page, _, _ = visit("#table")
    buttons = page.locator("table.claims th button")
    assert buttons.count() == 7
    for place in range(buttons.count()):
        buttons.nth(place).focus()
        page.keyboard.press("Enter")
        assert page.locator("table.claims th[aria-sort='ascending']").count() == 1
        assert page.evaluate("document.activeElement.closest('th').ariaSort") == "ascending"
        assert sorted(ids(page)) == sorted(all_ids)


# ------------------------------------------------------------------ the address and the way back


def test_a_step_back_undoes_a_choice(visit: Any, all_ids: list[str], make_document: Any) -> None:
    page, said, _ = visit()
    challenged = [v["id"] for v in make_document()["verdicts"] if v["verdict"] == "challenged"]
    page.get_by_label("Verdict", exact=True).select_option("challenged")
    page.get_by_label("Find", exact=True).press_sequentially(challenged[0])
    page.get_by_role("button", name="Id", exact=True).click()
    page.get_by_role("button", name="Id", exact=True).click()
    rows = page.locator("table.claims tbody tr:visible")
    page.go_back()
    expect(head(page, "Id")).to_have_attribute("aria-sort", "ascending")
    page.go_back()
    expect(page.locator("table.claims th[aria-sort]")).to_have_count(0)
    assert ids(page) == [challenged[0]]
    page.go_back()
    expect(rows).to_have_count(len(challenged))
    assert page.get_by_label("Find", exact=True).input_value() == ""
    page.go_back()
    expect(rows).to_have_count(len(all_ids))
    page.go_forward()
    expect(rows).to_have_count(len(challenged))
    assert page.get_by_label("Verdict", exact=True).input_value() == "challenged"
    assert said == []


def test_who_comes_back_from_a_card_finds_the_table_as_it_was(visit: Any) -> None:
    page, _, _ = visit("#table?verdict=challenged")
    wanted = ids(page)
    page.locator("table.claims tbody tr:visible td:first-child a").nth(2).click()
    assert fragment(page) == f"#{wanted[2]}"
    assert ids(page) == wanted
    page.go_back()
    expect(page.locator("table.claims tbody tr:visible")).to_have_count(len(wanted))
    assert fragment(page) == "#table?verdict=challenged"


@pytest.mark.parametrize(
    "address",
    ["#table?verdict=nonsense&node=gone&sort=colour&what=ever", "#table?", "#%E0%A4%A", "#nowhere", "#table?%%"],
)
def test_an_address_that_names_nothing_shows_everything(visit: Any, all_ids: list[str], address: str) -> None:
    page, said, _ = visit(address)
    assert ids(page) == all_ids
    assert page.locator("table.claims th[aria-sort]").count() == 0
    assert said == []


# ------------------------------------------------------------------ narrow, spoken, plain


@pytest.mark.parametrize("width", [360, 390])
def test_narrow_each_row_is_a_card_and_the_heads_still_sort(visit: Any, all_ids: list[str], width: int) -> None:
    page, _, _ = visit("#table", width=width)
    button = page.get_by_role("button", name="Verdict")
    box = button.bounding_box()
    assert box["height"] >= 24 and box["x"] >= 0 and box["x"] + box["width"] <= width
    button.click()
    assert ids(page) != all_ids and sorted(ids(page)) == sorted(all_ids)
    first = page.locator("table.claims tbody tr").first
    assert first.evaluate("(row) => row.scrollWidth <= row.clientWidth")
    assert first.locator("td").nth(1).bounding_box()["width"] > 0.8 * width
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_the_table_is_whole_and_plain(visit: Any, all_ids: list[str]) -> None:
    page, _, _ = visit("#table", java_script_enabled=False)
    assert ids(page) == all_ids
    assert not page.locator("#filter").is_visible()
    assert page.locator("table.claims button").count() == 0


# ------------------------------------------------------------------ what links and printers unfold


def test_a_link_opens_what_it_leads_into(visit: Any) -> None:
    page, said, _ = visit()
    page.evaluate(
        """() => {
          const around = document.createElement('details');
          around.innerHTML = '<summary>More</summary><p id="inside">There.</p>';
          document.querySelector('main').append(around);
          location.hash = '#inside';
        }"""
    )
    expect(page.locator("#inside")).to_be_visible()
    assert 0 <= page.locator("#inside").bounding_box()["y"] < 800
    assert said == []
