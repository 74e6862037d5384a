"""Pages on the judging: changed rules, evidence tiers, bases of comparison, and claims that a GPU would decide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

from contract.files import read_json
from report.outcomes import count_bases, verdict_basis
from report.pages.front_page import _most_wrong_article
from report.pages.verdict_words import verdict_word
from report.verdict_sentences import count_rule_changes, replaced_verdicts


def read_page(site: Path, name: str) -> BeautifulSoup:
    return BeautifulSoup((site / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="module")
def document(published_study: Path) -> dict[str, Any]:
    return dict(read_json(published_study / "verdicts.json"))


def page_text(site: Path, name: str) -> str:
    return " ".join(read_page(site, name).get_text(" ").split())


def test_claim_page_marks_a_change_after_data_that_turns_the_verdict(site: Path, document: dict[str, Any]) -> None:
    turned = {verdict["id"]: list(replaced_verdicts(verdict)) for verdict in document["verdicts"]}
    assert any(turned.values()) and not all(turned.values())
    for claim, versions in turned.items():
        text = page_text(site, f"claims/{claim}")
        assert ("The rule changed after data had been seen." in text) == bool(versions), claim
        for version, _ in versions:
            assert f"Version {version} gives" in text, claim


def test_claim_page_tells_each_version_with_its_date(site: Path, document: dict[str, Any]) -> None:
    for verdict in document["verdicts"]:
        text = page_text(site, f"claims/{verdict['id']}")
        for change in verdict["changes"]:
            when = "after data had been seen" if change["data_seen"] else "before there were data for it"
            assert f"Version {change['version']}, {change['date']}, {when}:" in text, verdict["id"]


def test_front_page_counts_tiers_and_changed_rules(site: Path, document: dict[str, Any]) -> None:
    page, text = read_page(site, "index"), page_text(site, "index")
    counts = {name: count for name, count in count_bases(document["verdicts"]).items() if name != "not testable"}
    key = page.select(".squares-key a")
    assert [int(str(link.get_text()).split()[0]) for link in key] == [n for n in counts.values() if n]
    rules = count_rule_changes(document["verdicts"])
    assert rules["rules"] == rules["unchanged"] + rules["before"] + rules["after"]
    for name in ("unchanged", "before", "after", "turned"):
        assert re.search(rf"\b{rules[name]}\b", text)
    assert "before the data came in" not in text


def test_front_page_has_a_square_per_claim_with_its_verdict_and_evidence(site: Path, document: dict[str, Any]) -> None:
    squares = {link.get_text(): link for link in read_page(site, "index").select(".squares a")}
    assert set(squares) == {verdict["id"] for verdict in document["verdicts"]}
    for verdict in document["verdicts"]:
        link, word = squares[verdict["id"]], verdict_word(verdict["verdict"])
        basis = verdict_basis(verdict).replace(" ", "-")
        assert {f"v-{word.css}", f"on-{basis}"} <= set(link["class"]), verdict["id"]
        assert link["href"] == f"claims/{verdict['id']}.html"
        assert link["title"] == f"{word.name}: {verdict['finding']}"


def test_filters_know_the_tiers_that_the_front_page_links_to(site: Path) -> None:
    rows = {str(row["data-evidence"]) for row in read_page(site, "claims").select("[data-evidence]")}
    links = [str(link["href"]) for link in read_page(site, "index").select(".squares-key a")]
    assert links and {link.partition("evidence=")[2] for link in links} <= rows


def make_claims(**verdicts: list[str]) -> list[dict[str, str]]:
    return [
        {"article": article, "article_title": f"On {article}", "verdict": verdict}
        for article, own in verdicts.items()
        for verdict in own
    ]


def test_most_wrong_article_has_the_largest_share_of_decided_claims_that_fail() -> None:
    """Open claims do not count; an article with more claims may fail more often and still be right more often."""
    claims = make_claims(
        few=["challenged", "supported", "undecided", "undecided"], many=["challenged"] * 2 + ["supported"] * 4
    )
    assert _most_wrong_article(claims) == {"key": "few", "title": "On few", "challenged": 1, "decided": 2}
    assert _most_wrong_article(make_claims(right=["supported", "undecided"])) is None


def test_gpu_page_lists_the_claims_that_rest_on_others_or_wait(site: Path, document: dict[str, Any]) -> None:
    page = read_page(site, "gpu")
    listed = [str(link.get_text()) for link in page.select("td:first-child a")]
    assert len(listed) == len(set(listed)) > 5
    others = {verdict["id"] for verdict in document["verdicts"] if verdict["decided_on"] == "others"}
    waits = {
        verdict["id"]
        for verdict in document["verdicts"]
        if any((part["waits"] or {}).get("device") == "gpu" for part in verdict["parts"])
    }
    assert waits <= set(listed) and others & set(listed)
    never = {verdict["id"] for verdict in document["verdicts"] if verdict["evidence_tier"] == "documented"}
    assert not never & set(listed) - waits - {"G03", "W10"}


def test_sources_mark_figures_that_were_not_read(site: Path, document: dict[str, Any]) -> None:
    marked = read_page(site, "sources").select("td .unread")
    unread = [entry for entry in document["references"] if entry["status"] != "verified"]
    assert len(marked) == len(unread) > 10
    assert all("not read at its source" in mark.get_text() for mark in marked)


def test_tables_name_what_their_ranges_are(site: Path, document: dict[str, Any]) -> None:
    headers = {
        verdict["id"]: {header.get_text() for header in read_page(site, f"claims/{verdict['id']}").select("th")}
        for verdict in document["verdicts"]
        if verdict["id"] in ("G09", "N02", "W06", "N04")
    }
    assert "Range that the source states" in headers["G09"] and "99% interval" in headers["N02"]
    assert "Bound" in headers["W06"] and "Range of assumptions" in headers["N04"]
    assert all("99% interval" not in headers[claim] for claim in ("G09", "W06", "N04"))
