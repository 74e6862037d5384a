"""The feed: whole, well-formed, the same when it is built again; what is in the data stays text."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

from report.site.editions import edition
from report.site.feed import feed
from report.site.sitemap import address, robots, sitemap

from .conftest import URL, Judged

ATOM = "{http://www.w3.org/2005/Atom}"
HOSTILE = '</content><script>alert(1)</script> & "quoted" \x00\x0b ]]> \u202eabc <b>'


@pytest.fixture
def editions(first: Judged, second: Judged) -> list[dict[str, Any]]:
    made = [edition(one.document, one.verdicts) for one in (first, second)]
    third = {**copy.deepcopy(made[1]), "generated_utc": "2026-03-01T00:00:00Z"}
    third["claims"] = third["claims"][1:]
    third["claims"][0].update(verdict="challenged", says=HOSTILE, version=9)
    third["nodes"][0]["label"] = HOSTILE
    third["nodes"][0]["ended_utc"] = "later"
    return [*made, third]


def entries(text: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(text).findall(f"{ATOM}entry")


def said(entry: ElementTree.Element, tag: str) -> str:
    return entry.findtext(f"{ATOM}{tag}") or ""


def test_there_is_an_entry_for_each_edition_the_newest_first(editions: list[dict[str, Any]]) -> None:
    root = ElementTree.fromstring(feed(editions, URL, "A title"))
    assert root.findtext(f"{ATOM}id") == URL and root.findtext(f"{ATOM}title") == "A title"
    assert root.findtext(f"{ATOM}author/{ATOM}name")
    links = {link.get("rel"): link.get("href") for link in root.findall(f"{ATOM}link")}
    assert links == {"self": f"{URL}feed.xml", "alternate": URL}
    found = root.findall(f"{ATOM}entry")
    assert [said(entry, "updated") for entry in found] == [one["generated_utc"] for one in reversed(editions)]
    assert root.findtext(f"{ATOM}updated") == said(found[0], "updated")
    for entry in found:
        for tag in ("id", "title", "updated", "summary", "content"):
            assert said(entry, tag), tag
        assert all(link.get("href", "").startswith(URL) for link in entry.findall(f"{ATOM}link"))
    assert len({said(entry, "id") for entry in found}) == len(found)


def test_an_entry_says_which_verdicts_changed_and_why(editions: list[dict[str, Any]]) -> None:
    _, second, first = entries(feed(editions, URL, "A title"))
    content = BeautifulSoup(said(second, "content"), "html.parser")
    item = next(item for item in content.find_all("li") if item.a["href"] == f"{URL}#N03")
    assert "supported, before challenged" in item.get_text()
    assert "moved across the threshold of 8 MAC/cycle" in item.get_text()
    assert said(second, "summary").split(" verdicts")[0].endswith("of 88")
    assert "88 claims: " in said(first, "summary")


def test_what_stands_in_the_data_stays_text(editions: list[dict[str, Any]]) -> None:
    newest, *_ = entries(feed(editions, URL, HOSTILE))
    content = BeautifulSoup(said(newest, "content"), "html.parser")
    assert "<script>alert(1)</script>" in content.get_text()
    assert {tag.name for tag in content.find_all(True)} <= {"p", "ul", "li", "a", "br"}
    assert "Withdrawn" in content.get_text()


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("https://example.org", "https://example.org/"),
        ("https://example.org/study/", "https://example.org/study/"),
        ("http://example.org:8080/a//", "http://example.org:8080/a/"),
        ("", ""),
    ],
)
def test_an_address_is_that_of_the_folder(given: str, made: str) -> None:
    assert address(given) == made


def test_the_sitemap_names_the_page_by_its_folder() -> None:
    root = ElementTree.fromstring(sitemap(URL, "2026-01-31", ["index.html", "report.pdf"]))
    space = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
    assert [one.text for one in root.iter(f"{space}loc")] == [URL, f"{URL}report.pdf"]
    assert {one.text for one in root.iter(f"{space}lastmod")} == {"2026-01-31"}
    assert f"Sitemap: {URL}sitemap.xml" in robots(URL) and "Sitemap" not in robots("")
    assert "Disallow" not in robots(URL)
