"""The page in a browser: quiet, alone, filtered, narrow, without scripts."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_the_console_is_quiet_and_no_request_leaves(visit, report: Path) -> None:
    page, said, asked = visit()
    page.wait_for_load_state("load")
    assert said == []
    outside = [url for url in asked if not url.startswith(("data:", (report / "index.html").as_uri()))]
    assert outside == []


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
