"""Results measured again stand beside what the page says of the same cell now, and on which side each lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.files import write_json
from report.render.second import TABLE, measured_again

ROW = {
    "claim": "N03", "part": "one core", "labels": "float32, 1 thread", "means": "another library", "unit": "MAC/cycle",
    "threshold": 8.0, "first": {"estimate": 30.0, "low": 25.0, "high": 35.0},
    "second": {"median": 29.0, "low": 28.0, "high": 30.0, "values": [28.5, 29.5]}, "agrees": True,
}  # fmt: skip
CELL = {"part": "one core", "node": "a", "label": "float32, 1 thread", "estimate": 31.0, "low": 26.0, "high": 36.0}
PART = {"name": "one core", "unit": "MAC/cycle", "threshold": 8.0}


def document(**cell: Any) -> dict[str, Any]:
    verdict = {"id": "N03", "parts": [PART], "cells": [{**CELL, **cell}]}
    return {"nodes": [{"id": "a", "label": "A CPU, 2 cores"}], "verdicts": [verdict]}


@pytest.fixture
def table(tmp_path: Path) -> Any:
    def write(*rows: dict[str, Any], node: str = "a") -> Path:
        path = tmp_path / "second.json"
        write_json(path, {"origin": "measured", "commit": "c", "node": node, "rows": list(rows)})
        return path

    return write


def test_what_the_page_says_now_stands_beside_the_second_measurement(table: Any) -> None:
    told = measured_again(document(), table(ROW))
    assert told is not None
    (row,) = told["rows"]
    assert (row["first"], row["second"]) == ("31.0 [26.0, 36.0] MAC/cycle", "29.0 [28.0, 30.0] MAC/cycle")
    assert row["what"] == "One core; float32, 1 thread"
    assert (told["node"], told["agree"], told["sunk"]) == ("A CPU, 2 cores", 1, "")


def test_one_that_lies_on_the_other_side_is_named(table: Any) -> None:
    told = measured_again(document(estimate=5.0, low=4.0, high=6.0), table(ROW))
    assert told is not None
    assert (told["agree"], told["sunk"]) == (0, "N03")


@pytest.mark.parametrize("change", [{"label": "float64, 1 thread"}, {"node": "b"}, {"estimate": None}])
def test_a_cell_that_is_no_longer_there_is_left_out(table: Any, change: dict[str, Any]) -> None:
    assert measured_again(document(**change), table(ROW)) is None


def test_another_nodes_results_and_none_are_not_told(table: Any, tmp_path: Path) -> None:
    assert measured_again(document(), table(ROW, node="elsewhere")) is None
    assert measured_again(document(), tmp_path / "none.json") is None


def test_a_table_of_another_shape_is_refused(table: Any) -> None:
    with pytest.raises(StudyError, match=r"second\.json"):
        measured_again(document(), table({**ROW, "agrees": "yes"}))


def test_the_published_table_is_of_a_published_node() -> None:
    assert (TABLE.parent / "nodes").is_dir()
    from contract.files import read_json

    assert (TABLE.parent / "nodes" / read_json(TABLE)["node"] / "node.json").is_file()
