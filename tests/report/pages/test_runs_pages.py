"""Published runs on pages: by chip, by job, by model; and prices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from report.advice.outcomes import read_outcomes
from report.advice.prices import hourly_price_lists, hourly_prices
from report.pages.runs_pages import FEWEST_BY_CHIP, runs_pages, topics
from report.pages.site_sources import Page
from tests.report.pages.test_court import read_page


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {page.path: page for page in runs_pages()}


def test_page_of_a_chip_has_all_its_runs_with_their_sources(site: Path) -> None:
    own = [outcome for outcome in read_outcomes() if outcome.situation.machine.name == "GeForce RTX 4090"]
    page = read_page(site, "runs/geforce-rtx-4090")
    rows = page.select("td[data-head=By] a")
    assert len(rows) == len(own) >= FEWEST_BY_CHIP
    assert {str(link["href"]) for link in rows} == {outcome.row["url"] for outcome in own}
    assert f"{len(own)} runs" in page.get_text()


def test_every_job_has_a_page_with_all_its_runs(pages: dict[str, Page]) -> None:
    runs = {
        path.removeprefix("runs/job-"): sum(len(table["rows"]) for table in page.context["tables"])
        for path, page in pages.items()
        if path.startswith("runs/job-")
    }
    outcomes = [outcome.situation.job.kind for outcome in read_outcomes()]
    assert runs == {kind: outcomes.count(kind) for kind in set(outcomes)}


def test_addresses_are_unique_and_in_the_index(pages: dict[str, Page]) -> None:
    paths = [topic.path for topic in topics()]
    assert len(paths) == len(set(paths)) == len(pages) - 1
    listed = [row["path"] for rows in pages["runs/index"].context["groups"].values() for row in rows]
    assert sorted(listed) == sorted(paths)


def test_rented_price_is_the_median_within_its_range(pages: dict[str, Page]) -> None:
    texts = {row["name"]: row["rent"] for row in pages["runs/index"].context["prices"]}
    middle, low, high, offers = (float(text) for text in re.findall(r"[\d.]+", texts["Tesla T4"]))
    assert low <= middle <= high
    assert middle == pytest.approx(hourly_prices()["t4"], abs=0.005) and offers == len(hourly_price_lists()["t4"])
