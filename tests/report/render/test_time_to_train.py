"""What is shown of whole jobs and of the ladder of training runs is what the nodes were built to have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from report.render.figures import keep
from report.render.measurements import Exhibit, time_to_train
from tests.report.conftest import Factory
from tests.report.priced import trained
from tests.report.quantities.builders import PREDICTED, TASKS, job, listed

Show = Callable[..., list[Exhibit]]


@pytest.fixture
def show(shown: Any) -> Show:
    return lambda *nodes: shown(*nodes).get("time-to-train", [])


def rows(exhibit: Exhibit) -> list[dict[str, Any]]:
    assert exhibit.drawing is not None
    return [row for group in exhibit.drawing.shows["groups"] for row in group["rows"]]


def test_jobs_stand_beside_their_prediction(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    whole, _ = show(listed(synthetic))
    told = {(row["label"], row["below"]): row["told"] for row in rows(whole)}
    assert len(told) == len(TASKS) + 1
    assert (
        told.items()
        >= {
            ("table-boosting", "float64, sklearn"): "0.50 s",
            ("bytes-gpt", "bfloat16, torch"): "1.6 s / 2.3 s",
            ("bytes-gpt", "float32, torch"): "2.0 s / 2.3 s",
            ("digits-mlp", "float32, torch"): "2.5 s / 2.3 s",
        }.items()
    )
    marks = next(row["marks"] for row in rows(whole) if row["label"] == "digits-mlp")
    assert [mark["estimate"] for mark in marks] == pytest.approx([2.5, PREDICTED])
    text = " ".join(whole.reading)
    parts = r"0\.92\S* \[.+?\] times \(.+?\) to 1\.4\S* \[.+?\] times \(.+?\)"
    assert re.search(
        rf"9 jobs should have taken {parts} the measured time; farthest off is bytes-gpt in bfloat16", text
    )
    rate = r"0\.0040\S* \[.+?\] times \(digits-cnn\) to 0\.31\S* \[.+?\] times \(bytes-gpt\)"
    assert re.search(rf"bytes-gpt, digits-cnn and mnist-resnet should have taken {rate} the measured time", text)
    assert whole.drawing is not None and keep(whole.drawing, tmp_path, None)
    assert "time of the job (s), log scale" in (tmp_path / f"{whole.drawing.name}.svg").read_text()


def test_the_ladder_goes_from_measured_jobs_to_derived_runs(show: Show, synthetic: Factory, tmp_path: Path) -> None:
    _, ladder = show(listed(synthetic))
    labels = [row["label"] for row in rows(ladder)]
    assert labels[0] == "table-boosting" and labels[-1] == "Llama 3.1 405B"
    assert labels.count("bytes-gpt") == 1
    hollow = {row["label"]: row["marks"][0]["hollow"] for row in rows(ladder)}
    assert not hollow["bytes-gpt"] and hollow["Llama 2 70B"]
    text = " ".join(ladder.reading)
    assert "The largest published run here that would be done within a day is nanoGPT on Shakespeare." in text
    # 6 x 70 billion x 2 trillion operations at 200 GFLOP/s for 90 days.
    assert "540,000 (Llama 2 70B)" in text and "machines like this one" in text
    assert ladder.drawing is not None
    groups = {group["title"]: group for group in ladder.drawing.shows["groups"]}
    assert [line["x"] for line in groups["up to a day"]["lines"]] == [86400]
    assert {row["label"]: row["told"] for row in groups["up to a day"]["rows"]}["nanoGPT on Shakespeare"] == "7.2 h"
    assert groups["more than a year"]["lines"] == []
    assert keep(ladder.drawing, tmp_path, None)


def test_a_gpu_has_its_own(show: Show, synthetic: Factory) -> None:
    node = trained(synthetic("node-a", gpus=1), 9000, dtype="bfloat16", device="cuda:0")
    job(node, "bytes-gpt", 0.8, flop=1e11, device="cuda:0", dtype="bfloat16")
    whole, ladder = show(node)
    assert [row["told"] for row in rows(whole)] == ["0.80 s / 2.3 s"]
    assert all(sentence.startswith("On cuda:0, ") for sentence in [*whole.reading, *ladder.reading])
    assert "such GPUs" in " ".join(ladder.reading)
    assert {"bytes-gpt", "GPT-2 (124M) on FineWeb"} <= {row["label"] for row in rows(ladder)}
    assert "ResNet-50 on ImageNet" not in {row["label"] for row in rows(ladder)}


def test_without_jobs_the_ladder_stands_alone(show: Show, synthetic: Factory) -> None:
    (ladder,) = show(trained(synthetic("node-a"), 200, dtype="bfloat16"))
    assert all(row["marks"][0]["hollow"] for row in rows(ladder))
    assert ladder.drawing is not None and [one["label"] for one in ladder.drawing.shows["legend"]] == ["derived"]


def test_without_training_there_is_nothing(show: Show, synthetic: Factory) -> None:
    assert show(synthetic("node-a").clock()) == []


def test_a_figure_that_was_not_read_leaves_the_ladder_out(
    show: Show, synthetic: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("report.render.measurements.base.read_reference", lambda _: {})
    assert len(show(listed(synthetic))) == 1


@pytest.mark.parametrize(
    ("hours", "told"),
    [
        (0.5 / 3600, "0.50 s"),
        (0.2, "12 min"),
        (3.14, "3.1 h"),
        (240, "10 days"),
        (8766 * 25, "25 years"),
        (8766 * 81710, "82,000 years"),
        (8766 * 3.7e6, "3.7 million years"),
    ],
)
def test_times_are_told_as_people_say_them(hours: float, told: str) -> None:
    assert time_to_train.spoken(hours) == told
