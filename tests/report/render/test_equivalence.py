"""Equivalence is shown from the data: differences beside what is allowed, and in words what does not agree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report.conftest import SyntheticNode
from tests.report.quantities.builders import CURVES as MODELS
from tests.report.quantities.builders import curve as point


@pytest.fixture
def show(shown: Any) -> Any:
    """Gathers a synthetic node and gives what the family shows of it."""
    return lambda *nodes: shown(*nodes).get("equivalence", [])


def both(node: SyntheticNode) -> SyntheticNode:
    """A GPU on which one model differs and one does not run, and a CPU on which all agree."""
    for model in MODELS:
        point(node, model, device="cpu", backend="onednn", apart=0.0)
        if model == "cnn":
            point(node, model, (0.0,) * 3, dtype="bfloat16", apart=0.1)
        elif model == "gpt-1m":
            point(node, model, dtype="bfloat16", status="oom", reason="out of memory")
        else:
            point(node, model, dtype="bfloat16")
    return node


def test_every_model_is_a_row_with_its_difference_and_its_tolerance(show, synthetic) -> None:
    cpu, gpu = show(both(synthetic(gpus=1)))
    (group,) = gpu.drawing.shows["groups"]
    assert group["title"] == "bfloat16, torch"
    assert {row["label"]: row["told"] for row in group["rows"]} == {
        "cnn": "differs", "gpt-1m": "out of memory", "mlp": "agrees", "tabular": "agrees",
    }  # fmt: skip
    rows = {row["label"]: [mark["estimate"] for mark in row["marks"]] for row in group["rows"]}
    assert rows.pop("cnn") == pytest.approx([0.1, 1e-3])
    assert rows.pop("gpt-1m") == []
    assert all(marks == pytest.approx([1e-4, 1e-3]) for marks in rows.values())
    assert [mark["hollow"] for mark in group["rows"][0]["marks"]] == [False, True]
    assert [mark["estimate"] for mark in cpu.drawing.shows["groups"][0]["rows"][0]["marks"]] == [0, 1e-3]
    for exhibit in (cpu, gpu):
        assert exhibit.drawing.draw(exhibit.drawing.shows)


def test_what_agrees_is_told_and_what_does_not_is_named(show, synthetic) -> None:
    cpu, gpu = show(both(synthetic(gpus=1)))
    assert cpu.reading == ["In float32 through onednn, all of 4 models train as the CPU does as it comes (3 rounds)."]
    assert gpu.reading == [
        "On cuda:0, in bfloat16 through torch, 50.0% of 4 models train as the CPU does as it comes "
        "(3 rounds; differing: cnn, not running: gpt-1m)."
    ]


def test_without_curves_there_is_no_section(show, synthetic) -> None:
    assert show(synthetic().gemm(10)) == []
