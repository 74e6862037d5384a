"""The page in a browser: quiet, alone, filtered, narrow, without scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect


@pytest.fixture
def visit(chromium, report: Path):
    """Opens the page; returns it, what the console said and what was requested."""
    contexts = []

    def opened(fragment: str = "", width: int = 1280, height: int = 800, **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((report / "index.html").as_uri() + fragment)
        return page, said, asked

    yield opened
    for context in contexts:
        context.close()


def shown(page) -> list[str]:
    return page.locator("table.claims tbody tr:visible td:first-child").all_inner_texts()


def test_the_console_is_quiet_and_no_request_leaves(visit, report: Path) -> None:
    page, said, asked = visit()
    page.wait_for_load_state("load")
    assert said == []
    outside = [url for url in asked if not url.startswith(("data:", (report / "index.html").as_uri()))]
    assert outside == []


def test_the_filter_narrows_the_table_and_the_address_remembers(visit, make_document) -> None:
    page, said, _ = visit("#table")
    document = make_document()
    assert len(shown(page)) == len(document["verdicts"])
    page.get_by_label("Verdict", exact=True).select_option("challenged")
    page.get_by_label("Article", exact=True).select_option("whygpu")
    wanted = [v["id"] for v in document["verdicts"] if v["verdict"] == "challenged" and v["article"] == "whygpu"]
    assert shown(page) == wanted
    assert f"{len(wanted)} of {len(document['verdicts'])}" in page.locator("#filter-count").inner_text()
    address = page.url
    page.reload()
    assert page.url == address
    assert shown(page) == wanted
    page.get_by_label("Find", exact=True).fill(wanted[0])
    assert shown(page) == [wanted[0]]
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("table.claims tbody tr:visible")).to_have_count(len(document["verdicts"]))
    assert said == []


def test_the_filter_works_by_keyboard(visit) -> None:
    page, _, _ = visit("#table")
    page.get_by_label("Find", exact=True).focus()
    page.keyboard.type("W15")
    assert shown(page) == ["W15"]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "filter-article"


def test_a_deep_link_leads_to_its_claim(visit) -> None:
    page, _, _ = visit("#W15")
    assert page.locator("#W15").is_visible()
    assert page.evaluate("document.getElementById('W15').getBoundingClientRect().top") < 200


@pytest.mark.parametrize("width", [360, 390, 768, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_scrolls_sideways(visit, width: int, scheme: str) -> None:
    page, _, _ = visit(width=width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_answer_needs_no_scrolling(visit, width: int, height: int) -> None:
    page, _, _ = visit(width=width, height=height)
    box = page.locator(".answer").bounding_box()
    assert box["y"] + box["height"] <= height


def test_dark_mode_darkens_the_page(visit) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page, _, _ = visit(color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        colours.append(sum(int(part) for part in colour.strip("rgb()").split(",")))
    assert colours[1] < 200 < colours[0]


def test_without_scripts_the_table_is_whole_and_the_filter_absent(visit, make_document) -> None:
    page, _, _ = visit("#table", java_script_enabled=False)
    assert page.locator("table.claims tbody tr:visible").count() == len(make_document()["verdicts"])
    assert not page.locator("#filter").is_visible()


def test_print_unfolds_and_hides_what_paper_cannot_use(visit) -> None:
    page, _, _ = visit()
    page.emulate_media(media="print")
    assert not page.locator("#filter").is_visible()
    assert not page.locator("nav.contents").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every((one) => one.open)")
