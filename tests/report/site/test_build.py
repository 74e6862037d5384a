"""The whole site: what lies in it, that its links lead somewhere, and that it can be built again."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from bs4 import BeautifulSoup

from contract.errors import StudyError
from report.cli import main
from report.data.ranges import parse_ranges
from report.model import JUDGED
from report.site.build import build
from report.site.sitemap import address
from tests.report.render.pdf_words import text_of

from .conftest import URL, Judged


@pytest.fixture(scope="module")
def page(site: Path) -> BeautifulSoup:
    return BeautifulSoup((site / "index.html").read_text(encoding="utf-8"), "html.parser")


@pytest.fixture
def copy(site: Path, tmp_path: Path) -> Path:
    """A copy of the site, to be changed."""
    return Path(shutil.copytree(site, tmp_path / "report"))


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The site on a static host of its own, under a path as a project's pages are."""
    root = site.parent
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{site.name}/"
        server.shutdown()


def test_every_relative_link_leads_to_a_file_or_a_place(site: Path, page: BeautifulSoup) -> None:
    places = {tag["id"] for tag in page.find_all(id=True)}
    files = set()
    for tag in page.find_all(["a", "link", "img", "script"]):
        target = tag.get("href") or tag.get("src") or ""
        parts = urlsplit(target)
        if parts.scheme or not target:
            continue
        assert not target.startswith("/"), f"{target}: leads elsewhere under a project's address"
        if parts.path:
            files.add(parts.path)
            assert (site / parts.path).is_file(), target
        else:
            assert parts.fragment in places, target
    assert "feed.xml" in files


def test_every_verdict_is_three_clicks_from_its_samples(site: Path, page: BeautifulSoup, second: Judged) -> None:
    """Table, card, samples; and the samples hold the rows that the verdict names."""
    decided = [one for one in second.document["verdicts"] if one["verdict"] in JUDGED]
    measured = [one for one in decided if any(cell["node"] for cell in one["cells"])]
    assert measured
    for verdict in measured:
        assert page.select_one(f'table.claims a[href="#{verdict["id"]}"]')
        card = page.find(id=verdict["id"])
        linked = {link["href"] for link in card.find_all("a", href=True) if link["href"].startswith("data/node-")}
        rows = set()
        for name in linked:
            lines = (site / name).read_text(encoding="utf-8").splitlines()[1:]
            rows |= {int(line.split(",", 1)[0]) for line in lines}
        named = {number for cell in verdict["cells"] for number in parse_ranges(cell["behind"])}
        assert linked and named <= rows, verdict["id"]


def test_the_page_tells_what_changed(page: BeautifulSoup, site: Path) -> None:
    section = page.find(id="editions")
    text = " ".join(section.get_text().split())
    assert "Compared with the edition of 2026-01-01" in text
    item = next(item for item in section.find_all("li") if item.a and item.a["href"] == "#N03")
    told = " ".join(item.get_text().split())
    assert "N03 supported before challenged" in told and "moved across the threshold of 8 MAC/cycle" in told
    words = " ".join(text_of(site / "report.pdf").split())
    assert "Changes since the last edition" in words and "moved across the threshold" in words.replace("- ", "")


def test_a_static_host_serves_it(chromium: Any, served: str, page: BeautifulSoup) -> None:
    context = chromium.new_context()
    tab = context.new_page()
    said: list[str] = []
    failed: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(served)
    tab.wait_for_load_state("load")
    assert said == [] and failed == []
    assert [url for url in asked if not url.startswith(("data:", served))] == []
    for name in ("feed.xml", "verdicts.csv", "data/node-a/gemm.cpu.csv", "robots.txt", "og.png"):
        assert context.request.get(served + name).status == 200
    context.close()


def test_built_again_it_is_the_same(copy: Path, site: Path, first: Judged, second: Judged) -> None:
    build(copy, second.verdicts, second.data, URL, first.verdicts)
    for path in sorted(site.rglob("*")):
        if path.is_file():
            assert (copy / path.relative_to(site)).read_bytes() == path.read_bytes(), path.name
    # The site as it was tells of the editions as well as the verdicts did.
    build(copy, second.verdicts, second.data, URL, site / "editions.json")
    assert (copy / "feed.xml").read_bytes() == (site / "feed.xml").read_bytes()


def test_without_an_address_what_needs_one_is_left_out_and_removed(
    copy: Path, second: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "data" / "mine.csv").write_text("not made by the site", encoding="utf-8")
    gone = copy / "data" / "node-z" / "gemm.cpu.csv"
    gone.parent.mkdir()
    gone.write_text("of an earlier edition", encoding="utf-8")
    listed = json.loads((copy / "site.json").read_text(encoding="utf-8"))
    listed["files"] += ["data/node-z/gemm.cpu.csv", "../outside"]
    (copy / "site.json").write_text(json.dumps(listed), encoding="utf-8")
    outside = copy.parent / "outside"
    outside.write_text("not of the site", encoding="utf-8")
    words = ["--verdicts", str(second.verdicts), "--data", str(second.data), "--report", str(copy)]
    assert main(["site", *words]) == 0
    assert "note: no address is known" in capsys.readouterr().err
    assert not (copy / "feed.xml").exists() and not (copy / "sitemap.xml").exists()
    assert "Sitemap" not in (copy / "robots.txt").read_text(encoding="utf-8")
    assert (copy / "og.png").is_file() and (copy / "index.html").is_file() and (copy / "claims.jsonld").is_file()
    assert not gone.parent.exists() and (copy / "data" / "mine.csv").is_file() and outside.is_file()


@pytest.mark.parametrize("name", ["index.html", "report.pdf"])
def test_a_folder_without_a_report_is_refused(copy: Path, second: Judged, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(StudyError, match=f"holds no {name}: render first"):
        build(copy, second.verdicts, second.data)


def test_a_report_of_other_verdicts_is_refused(copy: Path, first: Judged) -> None:
    with pytest.raises(StudyError, match=r"rendered from the verdicts of 2026-02-01.*render again"):
        build(copy, first.verdicts, first.data)


@pytest.mark.parametrize(
    "url",
    [
        "example.org", "ftp://example.org/", "https:///x", "https://example.org/index.html", "javascript:alert(1)",
        "https://example.org/?a=1", "https://example.org/#x", "https://exa mple.org/", "https://[::1", "/study/",
        "https://example.org:99999/",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_a_sentence(url: str) -> None:
    with pytest.raises(StudyError, match="write the address of the folder") as refused:
        address(url)
    assert "\n" not in str(refused.value)
