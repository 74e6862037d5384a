"""Tests for hours on one GPU and on makers' machines, and for a training's price, on the shipped figures."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.estimates import Estimates
from report.quantities import quantities

from ..made_estimates import NO_DATA


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset(NO_DATA.nodes, read_reference(REFERENCE), NO_DATA.table, read_published(PUBLISHED))


def index_rows(estimates: Estimates, label: str) -> dict[str, dict[str, Any]]:
    return {str(row[label]): row for row in estimates.frame.to_dict("records")}


def test_gpu_takes_the_hours_of_a_server_over_its_speed_over_that_server(data: Dataset) -> None:
    servers = index_rows(quantities()["ladder.server_hours"].estimates(data).filter(list="published"), "run")
    gpus = index_rows(quantities()["ladder.gpu_hours"].estimates(data), "run")
    assert set(gpus) == set(servers)
    # MLPerf 3.1: eight H100 took 814.68 s for ResNet-50, and 16 servers 5,313.63 s.
    speed = 5313.63 * 16 / (814.68 * 8)
    run = "ResNet-50 on ImageNet"
    assert gpus[run]["estimate"] == pytest.approx(servers[run]["estimate"] / speed, rel=1e-4)
    # Eight H100 trained BERT large on 7,760 sequences per second, and 16 servers on 1,017.
    run = "Llama 2 70B"
    assert gpus[run]["estimate"] == pytest.approx(servers[run]["estimate"] * (1017.0 / 16) / (7760.0 / 8), rel=1e-3)


def test_makers_hours_are_those_that_they_tell(data: Dataset) -> None:
    hours = index_rows(quantities()["ladder.makers_hours"].estimates(data), "run")
    assert hours["nanoGPT on Shakespeare"]["estimate"] == pytest.approx(3 / 60)
    assert hours["BERT base"]["estimate"] == pytest.approx(96)
    alexnet = hours["AlexNet on ImageNet"]
    assert (alexnet["low"], alexnet["high"], alexnet["machine"]) == (120, 144, "two GTX 580")
    largest = hours["Llama 3.1 405B"]
    assert largest["estimate"] == pytest.approx(30_840_000 / 16_384) and largest["machine"] == "16,384 H100"


def test_price_of_a_training_is_its_hours_alone_at_the_price_of_an_hour(data: Dataset) -> None:
    costs = index_rows(quantities()["published.training_cost"].estimates(data), "machine")
    assert next(iter(costs)) == "server" and {"H100 SXM", "A100 SXM", "L4"} <= set(costs)
    # Eight servers took 5,154.42 s in MLPerf 2.1, the fastest entry with the fewest; an hour costs 8.568 USD.
    server = costs["server"]
    assert server["hours"] == pytest.approx(8 * 5154.42 / 3600)
    assert server["estimate"] == pytest.approx(server["hours"] * 8.568)
    assert server["low"] <= server["estimate"] <= server["high"]
    # A machine with eight H100 costs 55.04 USD an hour.
    gpu = costs["H100 SXM"]
    assert gpu["estimate"] == pytest.approx(gpu["hours"] * 55.04 / 8)
