"""Training runs are shown from the data: error and spread by batch and rule, their trends, and what batches take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.report.conftest import SyntheticNode
from tests.report.quantities.builders import runs


@pytest.fixture
def show(shown: Any) -> Any:
    """Gathers a synthetic node and gives what the family shows of it."""
    return lambda *nodes: shown(*nodes).get("convergence", [])


def falling(node: SyntheticNode, **more: Any) -> SyntheticNode:
    """Accuracy that falls by 0.02 from batch to batch, spread that falls by half; the best rate is batch / 16."""
    random = np.random.default_rng(1)
    for place, batch in enumerate((16, 64, 256, 1024)):
        for rate in sorted({1.0, batch / 32, batch / 16, batch / 8}):
            centre = 0.97 - 0.02 * place - 0.02 * abs(np.log2(rate * 16 / batch))
            test = centre + 0.008 / 2**place * random.standard_normal(8)
            gone = {"time_to_target": [2.0] * 8, "gradient_variance": [20.0] * 8, "gradient_square": [0.5] * 8}
            runs(node, batch, rate, test, centre, **(gone if batch < 1024 else {"reached": 0.5}), **more)
    return node


def test_error_and_spread_are_drawn_over_the_batch_for_each_rule(show, synthetic) -> None:
    error, spread = show(falling(synthetic()))
    for exhibit in (error, spread):
        assert exhibit.drawing
        (panel,) = exhibit.drawing.shows["panels"]
        assert panel["title"] == "digits, mlp"
        assert [line["label"] for line in panel["series"]] == ["fixed", "linear", "tuned"]
        assert all(line["xs"] == [16, 64, 256, 1024] for line in panel["series"])
        assert exhibit.drawing.draw(exhibit.drawing.shows)
    tuned = error.drawing.shows["panels"][0]["series"][2]
    assert tuned["y"] == pytest.approx([0.03, 0.05, 0.07, 0.09], abs=0.01)
    assert all(low < y < high for low, y, high in zip(tuned["low"], tuned["y"], tuned["high"], strict=True))
    assert error.drawing.shows["narrow"]


def test_trends_are_told_with_their_intervals_and_in_a_table(show, synthetic) -> None:
    error, spread = show(falling(synthetic()))
    assert "the test accuracy falls with the batch: every doubling changes it by -0.00999 [" in error.reading[0]
    assert "batches of 16 to 1,024, 8 seeds" in error.reading[0]
    assert "the spread of the test accuracy falls" in spread.reading[0]
    assert error.table
    assert [row[:2] for row in error.table.rows] == [["digits, mlp", rule] for rule in ("fixed", "linear", "tuned")]
    assert all("[" in cell for row in error.table.rows for cell in row[2:])


def test_what_each_tuned_batch_takes(show, synthetic) -> None:
    _, spread = show(falling(synthetic()))
    assert spread.table
    first, *_, last = spread.table.rows
    assert first[:3] == ["digits, mlp", "16", "1"]
    assert first[4:] == ["2.00 s", "40.0 samples"]
    assert last[1:3] == ["1,024", "64"]
    assert last[4:] == ["–", "–"]


def test_two_sets_are_two_panels_and_a_trend_that_is_none_is_said_to_be_none(show, synthetic) -> None:
    node, random = falling(synthetic()), np.random.default_rng(2)
    for batch in (16, 64, 256):
        for rate in (1.0, 2.0, 4.0):
            runs(node, batch, rate, 0.9 + 0.01 * random.standard_normal(8), 0.9 - 0.01 * rate, data="mnist")
    error, spread = show(node)
    assert [panel["title"] for panel in error.drawing.shows["panels"]] == ["digits, mlp", "mnist, mlp"]
    assert not error.drawing.shows["narrow"]
    assert "shows no trend" in error.reading[1]
    assert "(edge)" in spread.table.rows[-1][2]


def test_what_holds_at_equal_updates_is_told_beside_it_and_has_no_panel_of_single_points(show, synthetic) -> None:
    node, random = falling(synthetic()), np.random.default_rng(5)
    for place, batch in enumerate((16, 64, 256)):
        for rate in (1.0, 2.0, 4.0):
            test = 0.9 + 0.02 * place + 0.001 * random.standard_normal(4)
            runs(node, batch, rate, test, 0.9 - 0.01 * rate, epochs=15 * 4**place, updates=[960])
    error, _ = show(node)
    assert [panel["title"] for panel in error.drawing.shows["panels"]] == ["digits, mlp, epochs 30"]
    (told,) = [line for line in error.reading if "after as many updates" in line]
    assert "the test accuracy rises with the batch: every doubling changes it by 0.0" in told
    assert "(digits, mlp, 960 updates; batches of 16 to 256, 4 seeds)" in told
    assert "digits, mlp, 960 updates" in [row[0] for row in error.table.rows]


def test_a_gpus_runs_have_a_figure_of_their_own(show, synthetic) -> None:
    exhibits = show(falling(falling(synthetic(gpus=1)), device="cuda:0"))
    assert [exhibit.drawing.name for exhibit in exhibits] == [
        "error-1-cpu", "spread-1-cpu", "error-1-cuda-0", "spread-1-cuda-0",
    ]  # fmt: skip


def test_runs_that_tell_every_image_rightly_have_no_place_on_a_logarithm(show, synthetic) -> None:
    node = synthetic()
    for batch in (16, 64, 256):
        runs(node, batch, 1.0, [1.0] * 4 if batch == 64 else [0.9, 0.91, 0.92, 0.93])
    error, spread = show(node)
    assert error.drawing.shows["panels"][0]["series"][0]["xs"] == [16, 256]
    assert spread.drawing.shows["panels"][0]["series"][0]["xs"] == [16, 256]
    assert error.drawing.draw(error.drawing.shows)


def test_without_runs_there_is_no_section(show, synthetic) -> None:
    assert show(synthetic().gemm(10)) == []
