"""Pictures to pass on: messages, previews, and figures that agree with the evidence behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from contract.files import read_json
from report.advice.outcomes import read_outcomes
from report.pages.charts import NARROW, WIDE, theme
from report.pages.exhibit_types import Exhibit
from report.pages.figure_data import Evidence
from report.pages.pictures import PICTURES, drawing, memory_fit, tokens_bandwidth
from report.pages.pictures.drawing import Point
from report.pages.site_content import pictures
from tests.report.pages.test_court import read_page


@pytest.fixture(scope="module")
def exhibits(published_study: Path) -> dict[str, Exhibit]:
    evidence = Evidence(read_json(published_study / "verdicts.json"), published_study / "data")
    return {picture.key: exhibit for picture in pictures() for exhibit in picture.show(evidence)}


def test_every_picture_is_shown_on_the_published_evidence(exhibits: dict[str, Exhibit]) -> None:
    assert list(exhibits) == [name.replace("_", "-") for name in PICTURES]


@pytest.mark.parametrize("key", [name.replace("_", "-") for name in PICTURES])
def test_picture_page_has_its_message_and_a_preview_of_the_usual_size(
    site: Path, exhibits: dict[str, Exhibit], key: str
) -> None:
    page, chart = read_page(site, f"pictures/{key}"), exhibits[key].chart
    heading = page.select_one("h1")
    assert heading is not None and heading.get_text() == chart.title
    image = page.select_one("meta[property='og:image']")
    assert image is not None and str(image["content"]).endswith(f"previews/{chart.name}.png")
    with Image.open(site / "previews" / f"{chart.name}.png") as preview:
        assert preview.size == (1200, 630)
    assert chart.title in page.select("title")[0].get_text() and chart.alt and chart.note


def test_ladder_tells_hours_of_the_largest_training_on_all_machines(exhibits: dict[str, Exhibit]) -> None:
    table = exhibits["time-ladder"].table
    assert table is not None
    last = table.rows[-1]
    assert last[0] == "Llama 3.1 405B" and last[-1] == "16,384 H100"
    # 30.84 million GPU hours on 16,384 GPUs are 78 days.
    assert last[-2] == "78 days"
    assert [row[0] for row in table.rows].index("nanoGPT on Shakespeare") < len(table.rows) - 1


def test_job_that_fits_a_card_fits_all_larger_ones(exhibits: dict[str, Exhibit]) -> None:
    table = exhibits["memory-fit"].table
    assert table is not None and len(table.rows) == len(memory_fit.JOBS)
    order = {"✗": 0, "≈": 1, "✓": 2}
    for row in table.rows:
        states = [order[sign] for sign in row[2:]]
        assert states == sorted(states), row[0]
    needs = [float(row[1].split()[0]) for row in table.rows]
    assert needs == sorted(needs)


def test_rate_of_the_same_model_is_shown_as_published(exhibits: dict[str, Exhibit]) -> None:
    size = tokens_bandwidth.model_bytes()
    outcomes = [
        outcome
        for outcome in read_outcomes()
        if outcome.row["hardware"] == "RTX 3080 10GB" or outcome.situation.machine.name == "GeForce RTX 3080 10 GB"
    ]
    (rate,) = tokens_bandwidth.best_rates(outcomes, size, "published")
    direct = max(
        1 / outcome.time for outcome in outcomes
        if outcome.situation.job.kind == "decode" and outcome.situation.model
        and outcome.situation.model.name == "Llama 3.1 8B" and outcome.situation.format.name == "Q4_K_M"
    )  # fmt: skip
    assert rate.tier == "published" and rate.rate == pytest.approx(direct)
    assert rate.share == pytest.approx(direct * size / rate.bandwidth)


def test_labels_cover_neither_each_other_nor_marks() -> None:
    points = [Point(10.0 ** (n / 7), 10.0 ** (n % 5), 1, 1, f"chip number {n}", rank=n) for n in range(40)]
    limits = ((0.5, 10.0**6), (0.5, 10.0**5))
    placed = list(drawing._label_places(points, limits, WIDE))
    assert 0 < len(placed) < len(points)
    assert all(0 <= x <= 1.1 and 0 <= y <= 1 for _, (x, y), _ in placed)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axis_of_times_has_ticks_that_people_use(exhibits: dict[str, Exhibit], width: float) -> None:
    with theme():
        figure = exhibits["time-ladder"].chart.draw(width)
        figure.canvas.draw()
    ticks: list[Any] = [label.get_text().replace("\n", " ") for label in figure.axes[0].get_xticklabels()]
    assert 3 <= len(ticks) <= 8 and set(ticks) <= {name.replace("\n", " ") for _, name in drawing.TIMES}
