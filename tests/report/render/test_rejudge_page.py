"""The form in a claim's card: thresholds typed, pressed and taken back, by mouse and keyboard, on any width."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from report.render import render
from report.render.rejudged import can_be_tried
from tests.report.conftest import Factory
from tests.report.test_whatif import CLAIMS, PRODUCT, Study, machine

FORMS = {
    **CLAIMS,
    "W01": {**CLAIMS["W01"], "sensitivity": [5, 10, 40]},
    "W08": {
        "quantity": "gemm.rate", "scope": PRODUCT["scope"], "rule": "at_least",
        "threshold": {"value": 100_000_000_000, "why": "fast"}, "sensitivity": [100_000_000_000, 500_000_000_000],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A few claims on one node with a GPU, judged and rendered."""
    folder = tmp_path_factory.mktemp("study")
    machine(Factory(folder / "nodes")).write()
    made = Study(folder, folder / "nodes", dict(FORMS))
    made.judged(FORMS)
    render(folder / "v.json", folder / "report", renderer="pandoc")
    return made


@pytest.fixture
def visit(chromium: Any, study: Study) -> Iterator[Callable[..., Page]]:
    contexts: list[Any] = []
    faults: list[str] = []

    def opened(claim: str = "", width: int = 1280, height: int = 800, **options: Any) -> Page:
        """The page, and the form of a claim open."""
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page: Page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto((study.root / "report" / "index.html").as_uri() + (f"#{claim}" if claim else ""))
        if claim:
            page.locator(f"#{claim} details.rejudge > summary").click()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def badge(page: Page, claim: str) -> Any:
    return page.locator(f"#{claim} details.rejudge output .badge")


def card(page: Page, claim: str) -> Any:
    return page.locator(f"#{claim} .badge").first


def test_a_threshold_that_is_typed_moves_the_verdict_and_not_the_cards(visit: Any, study: Study) -> None:
    page = visit("W01")
    field = page.get_by_label("Supported if at most")
    expect(field).to_have_value("10")
    expect(badge(page, "W01")).to_have_text("challenged")
    expect(page.locator("#W01 output")).to_contain_text("as declared")
    field.fill("40")
    said = study.ask("W01.threshold=40")["W01"].after
    assert said == "supported"
    expect(badge(page, "W01")).to_have_text(said)
    expect(badge(page, "W01")).to_have_class("badge v-supported")
    expect(page.locator("#W01 output")).to_contain_text("in place of challenged")
    expect(page.locator("#W01 output")).to_have_attribute("aria-live", "polite")
    expect(page.locator("#W01 output")).to_contain_text("The one cell would support it.")
    expect(page.locator("#W01 .rejudge-command code")).to_have_text("python -m report what-if --set 'W01.threshold=40'")
    expect(card(page, "W01")).to_have_text("challenged")
    # W04 took over the rule, and its own form is its own.
    page.locator("#W04 details.rejudge > summary").click()
    expect(badge(page, "W04")).to_have_text("challenged")


def test_a_range_has_two_fields_and_a_claim_about_gpus_a_baseline(visit: Any, study: Study) -> None:
    page = visit("W02")
    fields = page.locator("#W02 details.rejudge input")
    expect(fields).to_have_count(2)
    fields.first.fill("30")
    expect(badge(page, "W02")).to_have_text(study.ask("W02.threshold=[30,100]")["W02"].after)
    against = page.get_by_label("Against", exact=True)
    assert against.locator("option").all_inner_texts()[0] == "as declared (one core)"
    against.select_option("all cores of the node")
    swapped = study.ask("W02.threshold=[30,100]", "W02.baseline=node")["W02"].after
    assert swapped == "challenged"
    expect(badge(page, "W02")).to_have_text(swapped)
    expect(page.locator("#W02 .rejudge-command code")).to_have_text(
        "python -m report what-if --set 'W02.threshold=[30,100]' 'W02.baseline=node'"
    )


@pytest.mark.parametrize(
    ("claim", "typed", "said"),
    [
        ("W01", [""], "Type a number."),
        ("W01", ["many"], "is not a number"),
        ("W01", ["1e999"], "is not a number"),
        ("W01", ["0,5"], "is not a number"),
        ("W01", ["-3"], "is below zero"),
        ("W02", ["-1"], "is below zero"),
        ("W02", ["6000"], "ends before it begins"),
        ("W02", ["10", "9"], "ends before it begins"),
    ],
)
def test_what_makes_no_sense_is_said_and_the_published_verdict_stands(
    visit: Any, claim: str, typed: list[str], said: str
) -> None:
    page = visit(claim)
    fields = page.locator(f"#{claim} details.rejudge input")
    # Of what was typed before nothing is left.
    fields.last.fill("5000")
    expect(page.locator(f"#{claim} .rejudge-command")).to_be_visible()
    for place, text in enumerate(typed):
        fields.nth(place).fill(text)
    expect(page.locator(f"#{claim} .rejudge-fault")).to_contain_text(said)
    expect(fields.nth(len(typed) - 1)).to_have_attribute("aria-invalid", "true")
    expect(badge(page, claim)).to_have_text(card(page, claim).inner_text())
    expect(page.locator(f"#{claim} output")).to_contain_text("is the published verdict, which stands")
    expect(page.locator(f"#{claim} .rejudge-command")).to_be_hidden()
    page.get_by_role("button", name="As declared", exact=True).click()
    expect(page.locator(f"#{claim} .rejudge-fault")).to_be_empty()
    expect(page.locator(f"#{claim} [aria-invalid]")).to_have_count(0)


def test_the_keyboard_is_enough(visit: Any) -> None:
    page = visit()
    page.locator("#W01 details.rejudge > summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#W01 details.rejudge form")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Supported if at most")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("40")
    expect(badge(page, "W01")).to_have_text("supported")
    page.keyboard.press("Enter")
    expect(badge(page, "W01")).to_have_text("supported")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.get_by_label("Supported if at most")).to_have_value("5")
    expect(badge(page, "W01")).to_have_text("challenged")
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="As declared", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Supported if at most")).to_have_value("10")


def test_forms_are_made_when_they_are_opened_and_only_for_what_is_decided(visit: Any, study: Study) -> None:
    page = visit()
    assert page.locator("details.rejudge form").count() == 0
    verdicts = json.loads((study.root / "v.json").read_text(encoding="utf-8"))["verdicts"]
    wanted = [verdict["id"] for verdict in verdicts if can_be_tried(verdict)]
    have = page.evaluate("[...document.querySelectorAll('details.rejudge')].map((one) => one.closest('section').id)")
    assert have == wanted
    assert {"W05", "W07"}.isdisjoint(have) and {"W01", "W02", "W03"} <= set(have)
    summary = page.locator("#W01 details.rejudge > summary")
    for _ in range(3):
        summary.click()
    expect(page.locator("#W01 details.rejudge form")).to_have_count(1)


@pytest.mark.parametrize("width", [360, 1280])
def test_no_form_widens_the_page(visit: Any, width: int) -> None:
    page = visit(width=width)
    page.evaluate("document.querySelectorAll('details.rejudge').forEach((one) => { one.open = true })")
    expect(page.locator("details.rejudge form").last).to_be_visible()
    page.locator("#W08 details.rejudge input").fill("123456789012345678901234567890")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_paper_and_pages_without_scripts_show_none(visit: Any) -> None:
    page = visit("W01")
    page.emulate_media(media="print")
    assert not page.locator("#W01 details.rejudge").is_visible()
    without = visit(java_script_enabled=False)
    assert without.locator("details.rejudge").count() > 0
    assert not any(one.is_visible() for one in without.locator("details.rejudge").all())
