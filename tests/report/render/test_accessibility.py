"""The page for those who do not see it, use no mouse, or have their own colours: axe-core, and what it cannot ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# One view is of every card; the other is of every kind of card: axe asks everything of every element.
VIEWS = [(1280, "light", False, True), (390, "dark", True, False)]
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true })"
# Takes away each card in which no element is of a kind that none before it has: a kind is what decides how an element
# looks and what it is to those who do not see it, with the same of what it stands in.
THIN = """() => {
  const seen = new Set();
  const is = (one) => ["class", "style", "role", "fill", "stroke"].map((name) => one.getAttribute(name)).join(" ");
  for (const card of document.querySelectorAll("section.claim")) {
    const all = [...card.querySelectorAll("*")];
    const kinds = all.map((one) => [one, one.parentElement].map((each) => `${each.tagName} ${is(each)}`).join(" in "));
    if (kinds.every((kind) => seen.has(kind))) card.remove();
    kinds.forEach((kind) => seen.add(kind));
  }
}"""


@pytest.fixture
def visit(chromium, report: Path):
    """Opens the page."""
    contexts = []

    def opened(width: int = 1280, height: int = 800, **options):
        contexts.append(chromium.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.goto((report / "index.html").as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def thin(page) -> None:
    """Leaves one card of each kind, so that there are cards of every verdict still."""
    classes = "(all) => [...new Set(all.map((one) => one.className))].sort()"
    cards = page.locator("section.claim")
    before, every = cards.count(), cards.evaluate_all(classes)
    page.evaluate(THIN)
    assert cards.evaluate_all(classes) == every
    assert 5 < cards.count() < before / 2


def faults(page) -> list[str]:
    """Every violation that axe-core finds: rule, element, what is wrong."""
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']}: {node['target']}: {node['html'][:160]} {node.get('failureSummary', '')}"
        for one in found
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(("width", "scheme", "unfolded", "every"), VIEWS)
def test_axe_finds_nothing(visit, width: int, scheme: str, unfolded: bool, every: bool) -> None:
    page = visit(width, color_scheme=scheme)
    if not every:
        thin(page)
    if unfolded:
        page.evaluate(OPEN)
    found = faults(page)
    assert found == [], "\n".join(found[:20])


def test_axe_would_find_a_fault(visit) -> None:
    page = visit()
    page.evaluate("document.querySelectorAll('main > section:not(#answer, #method)').forEach((one) => one.remove())")
    page.evaluate("document.querySelector('main').append(document.createElement('figure'))")
    page.evaluate("document.querySelector('figure').innerHTML = '<svg role=img aria-label=words></svg>'")
    page.evaluate("document.querySelector('figure svg[role=img]').removeAttribute('aria-label')")
    page.evaluate("document.querySelector('h2').outerHTML = '<h5>out of order</h5>'")
    page.evaluate("document.querySelector('.answer p').style.color = '#bbb'")
    rules = {fault.partition(":")[0] for fault in faults(page)}
    assert {"svg-img-alt", "heading-order", "color-contrast"} <= rules


@pytest.mark.parametrize("width", [390, 1280])
def test_what_is_pressed_is_large_enough_to_hit(visit, width: int) -> None:
    """24 by 24 CSS pixels, or as far from its neighbours (WCAG 2.2, 2.5.8); links within sentences are exempt."""
    page = visit(width)
    page.evaluate(OPEN)
    small = page.evaluate(
        """() => [...document.querySelectorAll(
             ".tile, summary, button, select, input, .contents a, th button, .skip:focus")]
           .filter((one) => one.checkVisibility())
           .map((one) => [one.getBoundingClientRect(), one.outerHTML.slice(0, 120)])
           .filter(([box]) => box.height < 23.5 || box.width < 23.5)
           .map(([box, what]) => `${box.width.toFixed(1)} x ${box.height.toFixed(1)}: ${what}`)"""
    )
    assert small == []


def test_what_has_the_focus_can_be_seen(visit) -> None:
    page = visit()
    seen = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        look = page.evaluate(
            """() => { const one = document.activeElement, style = getComputedStyle(one);
               return [one.tagName, parseFloat(style.outlineWidth), style.outlineStyle] }"""
        )
        seen.add(look[0])
        assert look[1] >= 2 and look[2] != "none", look
    assert "A" in seen


def test_the_first_stop_leads_past_the_contents(visit) -> None:
    page = visit()
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    assert skip.evaluate("(one) => one === document.activeElement")
    box = skip.bounding_box()
    assert box["x"] >= 0 and box["y"] >= 0, "it is seen when it has the focus"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_nothing_moves_for_those_who_asked_for_rest(visit) -> None:
    page = visit(reduced_motion="reduce")
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((one) => {
             const style = getComputedStyle(one);
             return parseFloat(style.transitionDuration) > 0 || style.animationName !== "none"
               || style.scrollBehavior === "smooth" }).map((one) => one.tagName)"""
    )
    assert moving == []


def test_verdicts_can_be_told_apart_in_colours_of_the_readers_own(visit) -> None:
    """In forced colours a verdict is its word and its sign, which no colour carries, and figures keep their own."""
    page = visit(forced_colors="active")
    for badge in page.locator("table.claims .badge").all()[:12]:
        kind = re.search(r"v-(\w+)", badge.get_attribute("class"))[1]
        assert badge.inner_text().strip()
        sign = badge.evaluate("(one) => getComputedStyle(one, '::before').content")
        assert sign not in ("none", '""'), kind
    plate = page.locator("figure svg.plot").first.evaluate("(one) => getComputedStyle(one).forcedColorAdjust")
    assert plate == "none"


def test_text_can_be_twice_as_large(visit) -> None:
    """At 200% of text size on a desktop screen nothing scrolls sideways (WCAG 1.4.4, and 1.4.10 at 320 px)."""
    page = visit(640)
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
    page = visit(320)
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
