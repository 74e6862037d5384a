"""Pages in a browser: on phones and wide screens, in dark mode, by keyboard and by screen reader."""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pypdfium2 as pdfium
import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from report.judging.robustness import MOST_PIECES
from report.pages.threshold_slider import sliders
from report.pages.verdict_words import verdict_word
from tests.report.built_once import loaded_bytes
from tests.report.pages.conftest import ADDRESS, Visit

# An example page for each kind of page.
KINDS = (
    "index", "claims", "claims/W04", "claims/G15", "claims/N11", "articles/whygpu", "advice", "do-i-need-one",
    "measurements/index", "measurements/memory", "machines", "method", "sources", "objections", "glossary", "editions",
    "gpu", "evidence/index", "evidence/peak", "evidence/records-gbm-perf", "pictures/index", "pictures/time-ladder",
)  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
BELOW = urlsplit(ADDRESS).path
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true })"
# WIDTHS: screen widths in pixels at which the pages in KINDS are tested.
# EVERY: screen widths in pixels at which all other pages are tested.
WIDTHS, EVERY = (320, 360, 390, 768, 1280, 1920), (320, 768)
# This script sets a field to one text after another, as repeated calls to Playwright's `fill` would, and reads the
# output after each text. It saves time, because it needs only one round trip to the browser.
TYPE = """(field, [output, texts]) => texts.map((text) => {
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  return output.innerText;
})"""


def find_violations(page: Any) -> list[str]:
    """List the violations that axe-core finds: rule, element, failure."""
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    violations = Axe().run(page, options=options).response["violations"]
    return [
        f"{violation['id']}: {node['target']}: {node['html'][:160]} {node.get('failureSummary', '')}"
        for violation in violations
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_pass_axe_and_controls_fit_a_thumb(site: Path, visit: Visit, kind: str) -> None:
    """Controls are at least 40 pixels high on a phone; links in sentences are exempt, as in WCAG 2.5.8."""
    for width, scheme in ((1280, "light"), (390, "dark")):
        page = visit(site / f"{kind}.html", width, color_scheme=scheme)
        page.evaluate(OPEN)
        violations = find_violations(page)
        assert violations == [], "\n".join(violations[:10])
    small = page.evaluate(
        """() => [...document.querySelectorAll(
            "summary, button, select, input, .menu a, footer a, .step, .squares a, .squares-key a")]
           .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height < 39.5)
           .map((one) => `${one.getBoundingClientRect().height}: ${one.outerHTML.slice(0, 120)}`)"""
    )
    assert small == []


def test_axe_finds_planted_faults(site: Path, visit: Visit) -> None:
    page = visit(site / "claims" / "W04.html")
    page.evaluate("document.querySelector('img').removeAttribute('alt')")
    page.evaluate("document.querySelector('.finding').style.color = '#ccc'")
    assert {"image-alt", "color-contrast"} <= {violation.partition(":")[0] for violation in find_violations(page)}


def test_pages_log_nothing_stay_offline_and_fit_the_screen(site: Path, visit: Visit) -> None:
    """Each page is loaded only once, on the narrowest screen, because loading takes longest. Then the screen widens."""
    page = visit(site / "index.html")
    kinds = {site / f"{kind}.html" for kind in KINDS}
    for path in sorted(site.rglob("*.html")):
        # The page for unknown addresses has absolute links, so it needs a server.
        if path.name in ("page.html", "404.html"):
            continue
        page.set_viewport_size({"width": WIDTHS[0], "height": 800})
        page.goto(path.as_uri())
        assert page.console_lines == [], path
        page.evaluate(OPEN)
        for width in WIDTHS if path in kinds else EVERY:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        assert page.console_lines == [], path
        assert [url for url in page.requested_urls if not url.startswith("file:")] == [], path
        # Remove the content, which would be laid out once more when the screen becomes narrow for the next page.
        page.evaluate("document.body.remove()")


class Addresses(HTMLParser):
    """Ids of a page, and the addresses to which it leads. It is faster than BeautifulSoup, for pages of many ids.

    `inline` lists styles and scripts inside the page, which a strict policy forbids. Data in JSON are allowed.
    """

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.inline: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in names and "json" not in (names.get("type") or "")):
            self.inline.append(tag)
        for name, value in attrs:
            if name == "style" or name.startswith("on") or (value or "").startswith(("data:", "javascript:")):
                self.inline.append(f"{tag} {name}")
            if name == "id":
                self.ids.add(value or "")
            elif name in ("href", "src", "srcset"):
                self.links.add(value or "")


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Addresses]:
    return {path: Addresses(path) for path in site.rglob("*.html") if path.name != "page.html"}


def test_no_page_has_styles_or_scripts_inside(pages: dict[Path, Addresses]) -> None:
    assert len(pages) > 100
    assert {path: page.inline for path, page in pages.items() if page.inline} == {}


def test_every_internal_link_and_anchor_resolves(site: Path, pages: dict[Path, Addresses]) -> None:
    # `report site` adds these files after rendering, so links may lead to them although they do not exist yet.
    later = {site / name for name in ("verdicts.json", "verdicts.csv")} | {site / "data"}
    files: dict[tuple[Path, str], Path] = {}
    broken = []
    for path, page in pages.items():
        for address in page.links:
            parts = urlsplit(re.sub(f"^({re.escape(ADDRESS)}|{re.escape(BELOW)})", f"{site}/", address))
            if parts.scheme or parts.netloc:
                continue
            place = path.parent, unquote(parts.path)
            target = files[place] if place in files else (path.parent / place[1]).resolve() if place[1] else path
            if place[1]:
                files[place] = target
            if target in later or later & set(target.parents):
                continue
            known = pages[target].ids if target in pages else set()
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {address}")
            elif parts.fragment and not parts.fragment.startswith("?") and unquote(parts.fragment) not in known:
                broken.append(f"{path.relative_to(site)}: {address}: no such anchor")
    assert broken == []
    assert sum(len(page.ids) for page in pages.values()) > 20_000


@pytest.mark.parametrize("width", [360, 1280])
def test_figure_labels_are_large_enough(site: Path, visit: Visit, width: int) -> None:
    """The browser picks a drawing for its width and scales it. The labels are then at least 12 pixels high."""
    page = visit(site / "claims" / "N11.html", width)
    # The picture is loaded lazily: the browser picks a drawing only when the picture comes near the viewport.
    page.locator("img.chart").first.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('img.chart').complete")
    scale = page.evaluate(
        "() => { const one = document.querySelector('img.chart'); return [one.currentSrc, one.clientWidth] }"
    )
    drawn = Path(unquote(urlsplit(scale[0]).path)).read_text(encoding="utf-8")
    pixels_per_unit = scale[1] / float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])  # type: ignore[index]
    sizes = [float(size) * pixels_per_unit for size in re.findall(r'font-size="([\d.]+)px', drawn)]
    assert sizes and min(sizes) >= 12
    assert scale[0].endswith(".phone.svg") == (width == 360)


def test_menu_stays_fully_visible(site: Path, visit: Visit) -> None:
    for width in (360, 768, 1280):
        page = visit(site / "claims.html", width)
        page.evaluate("window.scrollTo(0, 2000)")
        boxes = [link.bounding_box() for link in page.locator(".menu a").all()]
        assert len(boxes) == 6
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width and 0 <= box["y"] < 130 for box in boxes)


def test_first_tab_stop_skips_the_menu(site: Path, visit: Visit) -> None:
    page = visit(site / "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.url.endswith("#content")


def printed_text(page: Any) -> str:
    """Print a page, and return its text without spaces and line ends."""
    sheets = pdfium.PdfDocument(page.pdf(format="A4"))
    return "".join("".join(sheet.get_textpage().get_text_bounded().split()) for sheet in sheets)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_print_shows_all_but_menu_and_slider(site: Path, visit: Visit, scripts: bool) -> None:
    page = visit(site / "claims" / "W04.html", java_script_enabled=scripts, color_scheme="dark")
    text = printed_text(page)
    for shown in ("Whythisthreshold", "Historyoftherule", "https://arxiv.org/abs/2407.21783", f"{ADDRESS}claims/W04"):
        assert shown in text
    assert "Thesliderneeds" not in text.replace("ThesliderneedsJavaScript.", "") and "Copylink" not in text
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator(".menu").is_visible()
    assert not page.locator(".threshold").is_visible()
    assert page.locator(".badge").first.evaluate("(one) => getComputedStyle(one).backgroundColor") == "rgb(184, 74, 0)"


def test_printed_advice_tells_the_job_and_addresses(site: Path, visit: Visit) -> None:
    page = visit(site / "advice.html")
    text = printed_text(page)
    assert "Chatwithan8Bmodel" in text and "Memory,inGB" in text and text.count("(https://") > 3
    assert page.locator("#advice-all").get_attribute("open") is None, "folded again after printing"
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 672, "height": 800})  # A4 paper within its margins
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= 672


class Server(SimpleHTTPRequestHandler):
    """Server for the site below the path of ADDRESS, with a strict policy, and with 404.html for unknown addresses."""

    def translate_path(self, path: str) -> str:
        below = path.removeprefix(BELOW)
        return super().translate_path("/nothing" if below == path else f"/{below}")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", "default-src 'self'")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def server_url(site: Path) -> Iterator[str]:
    """Address at which a server shows the site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{BELOW}"
        server.shutdown()


def test_pages_work_below_a_path_under_a_strict_policy(site: Path, visit: Visit, server_url: str) -> None:
    page = visit(site / "glossary.html")
    for kind in ("claims", "measurements/memory", "evidence/peak", "sources", "machines", "advice"):
        page.goto(f"{server_url}{kind}.html")
    page.select_option("#advice-what", index=2)
    assert page.locator("#advice-text").inner_text()
    number = page.locator("#advice-all td.right, #advice-arithmetic td.right").first
    assert number.evaluate("(one) => getComputedStyle(one).textAlign") == "right"
    page.goto(f"{server_url}claims/W04.html")
    page.fill(".threshold input[type=number]", "79")
    assert "The claim would be: supported" in page.locator(".threshold output").inner_text()
    page.goto(f"{server_url}index.html")
    faces = page.locator(".squares a").evaluate_all("(all) => all.map((one) => getComputedStyle(one).backgroundColor)")
    assert len(faces) == 88 and len(set(faces)) > 3
    assert page.console_lines == []
    assert page.requested_urls and all(url.startswith(("file:", server_url)) for url in page.requested_urls)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("RTX 4090", "runs/geforce-rtx-4090"), ("laptop", "runs/laptops"), ("llama 8b", "runs/model-llama-3-1-8b"),
        ("fine-tuning", "runs/job-fine-tune"), ("how much to rent", "runs/index"),
        ("roofline", "measurements/roofline"), ("transfer overhead", "measurements/transfers"),
    ],
)  # fmt: skip
def test_search_finds_what_visitors_look_for(site: Path, visit: Visit, query: str, wanted: str) -> None:
    """Visitors' five searches, and a page's name, from a page below the root that was opened from disk."""
    page = visit(site / "claims" / "G09.html", 390)
    page.fill("#search", query)
    results = page.locator("#search-results a")
    expect(results.first).to_be_visible()
    paths = []
    for link in results.all():
        path = Path(unquote(urlsplit(str(link.evaluate("(one) => one.href"))).path))
        assert path.is_file() and path.is_relative_to(site), path
        paths.append(str(path.relative_to(site)))
    assert f"{wanted}.html" in paths
    results.first.click()
    expect(page.locator("h1").first).to_be_visible()
    assert page.console_lines == []


def test_search_says_that_it_found_nothing_and_closes(site: Path, visit: Visit) -> None:
    page = visit(site / "index.html")
    page.fill("#search", "zebra crossing")
    expect(page.locator("#search-results")).to_contain_text("Nothing")
    page.press("#search", "Escape")
    expect(page.locator("#search-results")).to_be_hidden()
    assert (site / "site" / "search-data.js").stat().st_size < 300_000


def test_claims_can_be_sorted_by_each_column_and_back(site: Path, visit: Visit) -> None:
    page = visit(site / "claims.html")
    rows = "(all) => all.map((row) => row.cells[1].innerText)"
    before = page.locator("tbody tr").evaluate_all(rows)
    for turn, order in ((1, "ascending"), (-1, "descending")):
        page.click("th:has-text('Verdict') button")
        assert page.locator("th[aria-sort]").get_attribute("aria-sort") == order
        words = [text.split(maxsplit=1)[-1] for text in page.locator("tbody tr").evaluate_all(rows)]
        names = list(dict.fromkeys(words))
        assert len(words) == len(before) and names == [name for name, _ in itertools.groupby(words)]
        assert (words == sorted(words)) == (turn == 1) or len(names) == 1


def test_word_of_the_glossary_opens_beside_it(site: Path, visit: Visit) -> None:
    page = visit(site / "claims" / "G09.html")
    address, term = page.url, page.locator("a.term").first
    term.click()
    meaning = page.locator(".meaning")
    expect(meaning).to_be_visible()
    assert page.url == address and len(meaning.locator("p").inner_text()) > 20
    box = meaning.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1280
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()


def test_unknown_address_leads_to_the_site(site: Path, visit: Visit, server_url: str) -> None:
    page = visit(site / "glossary.html")
    assert page.goto(f"{server_url}no/such/page").status == 404
    assert len(page.console_lines) == 1, "the page's own status, and no other file"
    violations = find_violations(page)
    assert violations == [], "\n".join(violations[:10])
    page.click("main a:has-text('All claims')")
    expect(page).to_have_url(f"{server_url}claims.html")
    assert page.title().startswith("All 88 claims")


def test_search_engines_get_every_page_but_the_missing(site: Path) -> None:
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")} - {"page.html", "404.html"}
    listed = BeautifulSoup((site / "sitemap.xml").read_text(encoding="utf-8"), "xml")
    assert {loc.get_text() for loc in listed.find_all("loc")} == {f"{ADDRESS}{page}" for page in pages}
    assert f"Sitemap: {ADDRESS}sitemap.xml" in (site / "robots.txt").read_text(encoding="utf-8")
    for page in ("index", "claims/W04", "404"):
        head = BeautifulSoup((site / f"{page}.html").read_text(encoding="utf-8"), "html.parser").head
        canonical = [link["href"] for link in head.select("link[rel=canonical]")]
        assert canonical == ([f"{ADDRESS}{page}.html"] if page != "404" else [])
        assert bool(head.select("meta[content=noindex]")) == (page == "404")
        assert head.select_one("link[rel=icon]")["href"].endswith("site/icon.svg")


def test_claim_filters_match_their_count_and_survive_in_a_link(site: Path, visit: Visit) -> None:
    page = visit(site / "claims.html")
    page.select_option("#filter-verdict", "Challenged")
    page.select_option("#filter-evidence", "published")
    rows = page.locator("tbody tr:visible")
    count_text = page.locator(".filters output").inner_text()
    assert 0 < rows.count() < 88 and count_text.startswith(f"{rows.count()} of 88")
    assert all("Challenged" in row.inner_text() for row in rows.all())
    reopened = visit(site / f"claims.html#{page.url.partition('#')[2]}")
    assert reopened.locator("tbody tr:visible").count() == rows.count()


def test_copied_link_keeps_the_slider_state(site: Path, visit: Visit) -> None:
    page = visit(site / "claims" / "W04.html", permissions=["clipboard-read", "clipboard-write"])
    page.fill(".threshold input[type=number]", "79")
    assert "The claim would be: supported" in page.locator(".threshold output").inner_text()
    page.click("button.copy")
    expect(page.locator("button.copy")).to_have_text("Copied")  # This waits for the clipboard's answer.
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url
    reopened = visit(site / "claims" / f"W04.html#{copied.partition('#')[2]}")
    assert "supported" in reopened.locator(".threshold output").inner_text()


@pytest.mark.parametrize("width", [1280, 360])
def test_slider_moves_a_line_in_the_figure(site: Path, visit: Visit, width: int) -> None:
    """Lines at two thresholds lie as far apart as the axis, whose ends the page knows, says."""
    page = visit(site / "claims" / "W04.html", width)
    line, picture = page.locator(".moved-line"), page.locator(".figure picture img")
    assert line.is_hidden()
    plot = page.evaluate("JSON.parse(document.getElementById('plots').textContent)")
    left, right, top, bottom, low, high, scale = plot["wide" if width > 700 else "phone"]
    places = []
    for threshold in ("62", "79"):
        page.fill(".threshold input[type=number]", threshold)
        expect(line).to_be_visible()
        box, frame = line.bounding_box(), picture.bounding_box()
        assert box is not None and frame is not None
        places.append((box["x"] - frame["x"]) / frame["width"])
        assert (box["y"] - frame["y"]) / frame["height"] == pytest.approx(top, abs=0.01)
        assert box["height"] / frame["height"] == pytest.approx(bottom - top, abs=0.01)
    share = math.log(79 / 62) / math.log(high / low) if scale == "log" else 17 / (high - low)
    assert places[1] - places[0] == pytest.approx(share * (right - left), abs=0.01)
    page.fill(".threshold input[type=number]", f"{page.evaluate('JSON.parse(thresholds.textContent)[0].declared')}")
    expect(line).to_be_hidden()


@pytest.mark.parametrize("wrong", ["20", "1000", "-3", "1e400", ""])
def test_impossible_thresholds_show_the_allowed_range(site: Path, visit: Visit, wrong: str) -> None:
    page = visit(site / "claims" / "W04.html")
    page.fill(".threshold input[type=number]", wrong)
    assert page.locator(".threshold output").inner_text().startswith("The slider covers thresholds from 54 to 80.")
    assert page.locator(".threshold output").get_attribute("class") == "refused"


def test_slider_agrees_with_python_on_every_claim(site: Path, published_study: Path, visit: Visit) -> None:
    """Page and Python agree at both ends of each slider, on both sides of each change, and at random thresholds."""
    document = json.loads((published_study / "verdicts.json").read_text(encoding="utf-8"))
    rng = random.Random(1)
    compared = 0
    page = visit(site / "index.html")
    for verdict in document["verdicts"]:
        if not sliders(verdict):
            continue
        page.goto((site / "claims" / f"{verdict['id']}.html").as_uri())
        outputs = page.locator(".threshold output").all()
        fields = iter(page.locator(".threshold input[type=number]").all())
        selects = iter(page.locator(".threshold select").all())
        for part, slider, output in zip(verdict["by_threshold"], sliders(verdict), outputs, strict=True):
            if "choices" in part:
                select = next(selects)
                for place, (_, _, word) in enumerate(part["choices"]):
                    select.select_option(str(place))
                    assert output.inner_text().lower().endswith(f": {verdict_word(word).name.lower()}.")
                    compared += 1
                continue
            field = next(fields)
            low, high = part["range"]
            scale = high / slider["range"][1] if high else low / slider["range"][0]
            starts = [piece[0] for piece in part["pieces"][1:]][:MOST_PIECES]
            places = [low, high, *(rng.uniform(low, high) for _ in range(4))]
            places += [near for start in starts for near in (start * 0.9999, start * 1.0001) if low <= near <= high]
            field.fill(repr(low / scale))
            filled_text = output.inner_text()
            texts = field.evaluate(TYPE, [output.element_handle(), [repr(place / scale) for place in places]])
            assert texts[0] == filled_text
            for place, text in zip(places, map(str.lower, texts), strict=True):
                started = [
                    piece for piece in part["pieces"] if piece[0] < place or (piece[0] == place and not piece[3])
                ]
                wanted = verdict_word((started or part["pieces"])[-1][2]).name.lower()
                assert text.endswith(f": {wanted}."), (verdict["id"], place, text)
                compared += 1
    assert compared > 400


def test_pages_are_light(site: Path) -> None:
    """The front page and all files that it loads take at most 400 kB, and a claim page at most 250 kB."""
    assert loaded_bytes(site / "index.html") <= 400_000
    assert max(map(loaded_bytes, (site / "claims").glob("*.html"))) <= 250_000


def test_front_page_is_short(site: Path, visit: Visit) -> None:
    page = visit(site / "index.html")
    screens = page.evaluate("document.documentElement.scrollHeight") / 800
    # The squares are a picture: their numbers are not read.
    page.evaluate("document.querySelectorAll('.squares').forEach((one) => one.remove())")
    words = page.evaluate("document.querySelector('main').innerText.split(/\\s+/).length")
    assert words <= 1200 and screens <= 5.5
    answer = page.locator(".answer").inner_text()
    assert len(answer.split()) <= 40 and "[" not in answer


def test_claim_pages_have_titles_descriptions_and_reviews(site: Path) -> None:
    titles = set()
    for path in (site / "claims").glob("*.html"):
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        titles.add(page.title.get_text())
        assert page.select_one('meta[name="description"]')["content"]
        (review,) = json.loads(page.select_one('script[type="application/ld+json"]').string)["@graph"]
        assert review["@type"] == "ClaimReview" and review["identifier"] == path.stem
        assert review["url"] == f"{ADDRESS}claims/{path.name}"
    assert len(titles) == 88
