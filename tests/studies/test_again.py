"""What is measured again is the cell that is meant, and lies beside the first result on its side or the other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from contract.errors import StudyError

from .__main__ import AGAIN, Again, _cell, row, told
from .measure import _open_loop, served

PART = {"name": "one core", "estimate": 30.0, "unit": "MAC/cycle", "threshold": 8.0}


def cell(part: str, dtype: str, estimate: float) -> dict[str, Any]:
    ends = {"low": 0.8 * estimate, "high": 1.2 * estimate}
    return {"part": part, "node": "a", "label": dtype, "dtype": dtype, "estimate": estimate, **ends}


CELLS = [cell("one core", "float32", 30.0), cell("one core", "float64", 15.0), cell("all cores", "float32", 30.0)]


def again(**labels: str) -> Again:
    return Again("N03", "one core", list, "another library", labels)


def test_the_cell_is_the_one_that_stands_for_the_part_or_the_one_with_the_labels() -> None:
    assert _cell(again(), PART, CELLS)["label"] == "float32"
    assert _cell(again(dtype="float64"), PART, CELLS)["label"] == "float64"
    with pytest.raises(StudyError, match="0 cells are what is measured again"):
        _cell(again(dtype="int8"), PART, CELLS)
    with pytest.raises(StudyError, match="2 cells are what is measured again"):
        _cell(again(), PART, [*CELLS, CELLS[0]])


@pytest.mark.parametrize(("values", "agrees"), [([28.0, 29.0, 30.0], True), ([5.0, 6.0, 30.0], False)])
def test_the_middle_of_the_second_decides_on_which_side_it_lies(values: list[float], agrees: bool) -> None:
    found = row(again(), PART, CELLS[0], values)
    assert found["agrees"] is agrees
    assert found["second"]["low"] < found["second"]["median"] < found["second"]["high"]
    assert ("DISAGREES" in told(found)) is not agrees


def test_five_results_of_five_claims_are_measured_again() -> None:
    assert len({one.claim for one in AGAIN}) == len(AGAIN) == 5


def test_the_load_counts_from_when_a_request_was_due_and_refuses_wrong_answers() -> None:
    queries = np.zeros((2, 1), dtype=np.float32)
    queries[1] = 1
    slow = 0.05

    def right(body: bytes) -> int:
        time.sleep(slow)
        return int(np.frombuffer(body, dtype=np.float32)[0])

    with served(right) as port:
        assert _open_loop(port, queries, 0, rate=100.0, requests=20) >= slow
    with served(lambda _: 7) as port, pytest.raises(RuntimeError, match="not rightly"):
        _open_loop(port, queries, 0, rate=100.0, requests=4)
