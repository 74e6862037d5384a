"""The pages as readers meet them: on phones and wide screens, in the dark, without a mouse, by screen reader."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from report.judging.robustness import MOST_PIECES
from report.pages.threshold_slider import sliders
from report.pages.verdict_words import verdict_word as named
from tests.report.built_once import loaded_bytes
from tests.report.pages.conftest import Visit

# One page of each kind.
KINDS = (
    "index", "claims", "claims/W04", "claims/G15", "claims/N11", "articles/whygpu", "do-i-need-one",
    "measurements/index", "measurements/memory", "machines", "method", "sources", "objections", "glossary", "editions",
)  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true })"
# For one page of each kind, and for every page.
WIDTHS, EVERY = (320, 360, 390, 768, 1280, 1920), (320, 768)
# Types texts one after the other, as `fill` does, and reads what is said of each, without asking for each anew.
TYPE = """(field, [output, texts]) => texts.map((text) => {
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  return output.innerText;
})"""


def faults(page: Any) -> list[str]:
    """Every violation that axe-core finds: rule, element, what is wrong."""
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['id']}: {node['target']}: {node['html'][:160]} {node.get('failureSummary', '')}"
        for one in found
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_in_the_light_and_in_the_dark_and_a_thumb_hits_what_is_pressed(
    site: Path, visit: Visit, kind: str
) -> None:
    """40 pixels high on a phone; links within sentences are exempt, as in WCAG 2.5.8."""
    for width, scheme in ((1280, "light"), (390, "dark")):
        page = visit(site / f"{kind}.html", width, color_scheme=scheme)
        page.evaluate(OPEN)
        found = faults(page)
        assert found == [], "\n".join(found[:10])
    small = page.evaluate(
        """() => [...document.querySelectorAll("summary, button, select, input, .menu a, footer a, .step, .bar a")]
           .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height < 39.5)
           .map((one) => `${one.getBoundingClientRect().height}: ${one.outerHTML.slice(0, 120)}`)"""
    )
    assert small == []


def test_axe_would_find_a_fault(site: Path, visit: Visit) -> None:
    page = visit(site / "claims" / "W04.html")
    page.evaluate("document.querySelector('img').removeAttribute('alt')")
    page.evaluate("document.querySelector('.finding').style.color = '#ccc'")
    assert {"image-alt", "color-contrast"} <= {fault.partition(":")[0] for fault in faults(page)}


def test_no_page_speaks_to_the_console_asks_other_hosts_for_anything_or_scrolls_sideways(
    site: Path, visit: Visit
) -> None:
    """Each page is loaded once, on the narrowest screen, and widened: a load takes longer than all widths."""
    page = visit(site / "index.html")
    kinds = {site / f"{kind}.html" for kind in KINDS}
    for path in sorted(site.rglob("*.html")):
        if path.name == "page.html":
            continue
        page.set_viewport_size({"width": WIDTHS[0], "height": 800})
        page.goto(path.as_uri())
        assert page.said == [], path
        page.evaluate(OPEN)
        for width in WIDTHS if path in kinds else EVERY:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        assert page.said == [], path
        assert [url for url in page.asked if not url.startswith("file:")] == [], path


def test_every_internal_link_and_anchor_resolves(site: Path) -> None:
    pages = {path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in site.rglob("*.html")}
    pages.pop(site / "page.html")
    # What `report site` adds.
    later = {site / name for name in ("verdicts.json", "verdicts.csv")} | {site / "data"}
    ids = {path: {one["id"] for one in page.select("[id]")} for path, page in pages.items()}
    broken = []
    for path, page in pages.items():
        for element in page.select("[href], [src], [srcset]"):
            address = element.get("href") or element.get("src") or element.get("srcset")
            parts = urlsplit(str(address))
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target in later or later & set(target.parents):
                continue
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {address}")
            elif parts.fragment and not parts.fragment.startswith("?") and parts.fragment not in ids.get(target, set()):
                broken.append(f"{path.relative_to(site)}: {address}: no such anchor")
    assert broken == []


@pytest.mark.parametrize("width", [360, 1280])
def test_labels_of_figures_are_large_enough_to_read(site: Path, visit: Visit, width: int) -> None:
    """At least 12 pixels, as the browser scales the picture that it chose."""
    page = visit(site / "claims" / "N11.html", width)
    # A picture below the fold is chosen when it comes near.
    page.locator("img.chart").first.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('img.chart').complete")
    scale = page.evaluate(
        "() => { const one = document.querySelector('img.chart'); return [one.currentSrc, one.clientWidth] }"
    )
    drawn = Path(unquote(urlsplit(scale[0]).path)).read_text(encoding="utf-8")
    shown = scale[1] / float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])  # type: ignore[index]
    sizes = [float(size) * shown for size in re.findall(r"font(?:-size)?: (?:\w+ )?([\d.]+)px", drawn)]
    assert sizes and min(sizes) >= 12
    assert scale[0].endswith(".phone.svg") == (width == 360)


def test_the_menu_stays_in_sight_whole(site: Path, visit: Visit) -> None:
    for width in (360, 768, 1280):
        page = visit(site / "claims.html", width)
        page.evaluate("window.scrollTo(0, 2000)")
        boxes = [one.bounding_box() for one in page.locator(".menu a").all()]
        assert len(boxes) == 6
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width and 0 <= box["y"] < 130 for box in boxes)


def test_the_first_stop_leads_past_the_menu(site: Path, visit: Visit) -> None:
    page = visit(site / "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.url.endswith("#content")


def test_printing_opens_no_gap_and_leaves_the_menu_out(site: Path, visit: Visit) -> None:
    page = visit(site / "claims" / "W04.html")
    page.emulate_media(media="print")
    assert not page.locator(".menu").is_visible()
    assert not page.locator(".threshold").is_visible()
    assert page.locator(".finding").is_visible()
    assert len(page.pdf()) > 10_000


def test_filters_of_the_claims_show_what_they_say_and_can_be_sent(site: Path, visit: Visit) -> None:
    page = visit(site / "claims.html")
    page.select_option("#filter-verdict", "Challenged")
    page.select_option("#filter-evidence", "others")
    rows = page.locator("tbody tr:visible")
    told = page.locator(".filters output").inner_text()
    assert 0 < rows.count() < 88 and told.startswith(f"{rows.count()} of 88")
    assert all("Challenged" in row.inner_text() for row in rows.all())
    again = visit(site / f"claims.html#{page.url.partition('#')[2]}")
    assert again.locator("tbody tr:visible").count() == rows.count()


def test_a_link_is_copied_with_the_state_of_the_slider(site: Path, visit: Visit) -> None:
    page = visit(site / "claims" / "W04.html", permissions=["clipboard-read", "clipboard-write"])
    page.fill(".threshold input[type=number]", "79")
    assert "The claim would be: supported" in page.locator(".threshold output").inner_text()
    page.click("button.copy")
    expect(page.locator("button.copy")).to_have_text("Copied")  # The browser's clipboard answers in its own time.
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url
    again = visit(site / "claims" / f"W04.html#{copied.partition('#')[2]}")
    assert "supported" in again.locator(".threshold output").inner_text()


@pytest.mark.parametrize("wrong", ["20", "1000", "-3", "1e400", ""])
def test_impossible_thresholds_are_refused_in_words(site: Path, visit: Visit, wrong: str) -> None:
    page = visit(site / "claims" / "W04.html")
    page.fill(".threshold input[type=number]", wrong)
    assert page.locator(".threshold output").inner_text().startswith("Only thresholds from 54 to 80")
    assert page.locator(".threshold output").get_attribute("class") == "refused"


def test_the_slider_says_what_python_says_on_every_claim(site: Path, published: Path, visit: Visit) -> None:
    """At the declared threshold, at both ends, at every turn and on both sides of it, and at places drawn by lot."""
    document = json.loads((published / "verdicts.json").read_text(encoding="utf-8"))
    lot = random.Random(1)
    asked = 0
    page = visit(site / "index.html")
    for verdict in document["verdicts"]:
        if not verdict["by_threshold"]:
            continue
        page.goto((site / "claims" / f"{verdict['id']}.html").as_uri())
        outputs = page.locator(".threshold output").all()
        fields = iter(page.locator(".threshold input[type=number]").all())
        selects = iter(page.locator(".threshold select").all())
        for one, told_of, output in zip(verdict["by_threshold"], sliders(verdict), outputs, strict=True):
            if "choices" in one:
                select = next(selects)
                for place, (_, _, whole) in enumerate(one["choices"]):
                    select.select_option(str(place))
                    assert output.inner_text().lower().endswith(f": {named(whole).name.lower()}.")
                    asked += 1
                continue
            field = next(fields)
            low, high = one["range"]
            scale = high / told_of["range"][1] if high else low / told_of["range"][0]
            starts = [piece[0] for piece in one["pieces"][1:]][:MOST_PIECES]
            places = [low, high, *(lot.uniform(low, high) for _ in range(4))]
            places += [near for start in starts for near in (start * 0.9999, start * 1.0001) if low <= near <= high]
            field.fill(repr(low / scale))
            filled = output.inner_text()
            said = field.evaluate(TYPE, [output.element_handle(), [repr(place / scale) for place in places]])
            assert said[0] == filled
            for place, told in zip(places, map(str.lower, said), strict=True):
                begun = [piece for piece in one["pieces"] if piece[0] < place or (piece[0] == place and not piece[3])]
                wanted = named((begun or one["pieces"])[-1][2]).name.lower()
                assert told.endswith(f": {wanted}."), (verdict["id"], place, told)
                asked += 1
    assert asked > 400


def test_weight(site: Path) -> None:
    """A page with all that it loads: the front page at most 400 kB, a claim 250."""
    assert loaded_bytes(site / "index.html") <= 400_000
    assert max(map(loaded_bytes, (site / "claims").glob("*.html"))) <= 250_000


def test_the_front_page_is_short(site: Path, visit: Visit) -> None:
    page = visit(site / "index.html")
    words = page.evaluate("document.querySelector('main').innerText.split(/\\s+/).length")
    screens = page.evaluate("document.documentElement.scrollHeight") / 800
    assert words <= 1200 and screens <= 5.3
    answer = page.locator(".answer").inner_text()
    assert len(answer.split()) <= 40 and "[" not in answer


def test_programs_are_told_title_description_picture_and_review(site: Path) -> None:
    titles = set()
    for path in (site / "claims").glob("*.html"):
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        titles.add(page.title.get_text())
        assert page.select_one('meta[name="description"]')["content"]
        (review,) = json.loads(page.select_one('script[type="application/ld+json"]').string)["@graph"]
        assert review["@type"] == "ClaimReview" and review["identifier"] == path.stem
        assert review["url"] == path.name
    assert len(titles) == 88
