"""Tests for a server's training hours, on the shipped figures and records."""

from __future__ import annotations

from typing import Any

import pytest

from report.data.dataset import Dataset
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.quantities import quantities
from report.quantities.server_hours import TRAINED

from ..made_estimates import NO_DATA


@pytest.fixture(scope="module")
def hours() -> dict[str, dict[str, Any]]:
    data = Dataset(NO_DATA.nodes, read_reference(REFERENCE), NO_DATA.table, read_published(PUBLISHED))
    rows = quantities()["ladder.server_hours"].estimates(data).frame.to_dict("records")
    return {str(row["run"]): row for row in rows}


def test_run_of_servers_takes_their_time_times_their_number(hours: dict[str, dict[str, Any]]) -> None:
    records = read_published(PUBLISHED).records_by_key
    for key, name in TRAINED.items():
        row, record = hours[name], records[key]
        assert row["list"] == "MLPerf"
        assert row["estimate"] == pytest.approx(record["value"] * record["nodes"] / 3600)
        assert row["detail"].startswith("at most") == (record["nodes"] > 1)


def test_part_of_a_cluster_has_a_range_and_a_server_alone_has_the_range_of_its_runs(
    hours: dict[str, dict[str, Any]],
) -> None:
    """In MLPerf 2.1, four servers took 1,603.9 s for DLRM and one took 3,579.61 s: each kept 56% to itself."""
    kept = 3579.61 / (4 * 1603.9)
    alone, shared = hours["DLRM to MLPerf's target"], hours["Llama 2 70B"]
    assert shared["low"] == pytest.approx(kept * shared["estimate"]) and shared["high"] == shared["estimate"]
    assert alone["low"] > 0.99 * alone["estimate"] and alone["high"] < 1.01 * alone["estimate"]


def test_published_run_takes_its_operations_over_the_rate_of_its_family(hours: dict[str, dict[str, Any]]) -> None:
    """ResNet-50: 600,000 steps with 256 images each, at the 8,571.2 images per second that 16 servers reach."""
    assert hours["ResNet-50 on ImageNet"]["estimate"] == pytest.approx(600_000 * 256 / (8571.2 / 16) / 3600)
    layers, width = 24, 1024
    rate = 1017.0 / 16 * 6 * 12 * layers * width**2 * _tokens()
    assert hours["Pythia-1.4B"]["estimate"] == pytest.approx(
        6 * _figure("parameters") * _figure("tokens") / rate / 3600
    )


def _figure(name: str) -> float:
    return float(read_reference(REFERENCE)[f"pythia-1.4b.{name}"]["value"])


def _tokens() -> float:
    return float(read_reference(REFERENCE)["bert-wikipedia.tokens"]["value"])
