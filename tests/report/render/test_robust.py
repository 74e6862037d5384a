"""The table of how robust the verdicts are."""

from __future__ import annotations

from typing import Any

import pytest

from report.render.robust import meaning, robust


def record(**more: Any) -> dict[str, Any]:
    return {
        "outcome": "supported", "verdict": "supported", "margin_widths": 4.0, "exact": False, "thresholds": [],
        "turns_at": [], "swaps": [], "without": [], "decides": True, "fragile": False, "rank": None, "sentence": "S.",
        **more,
    }  # fmt: skip


def verdict(name: str, word: str | None, *records: dict[str, Any]) -> dict[str, Any]:
    parts = [
        {"name": f"part {place}", "threshold": 10.0, "unit": "GB", "robustness": one}
        for place, one in enumerate(records)
    ]
    return {"id": name, "verdict": "supported", "robust": word, "flip": f"What turns {name}.", "parts": parts}


def turn(threshold: float, higher: bool) -> dict[str, Any]:
    return {"threshold": threshold, "end": None, "higher": higher, "in_range": True, "factor": 2.0}


def test_the_most_fragile_stand_first_and_what_is_open_stands_nowhere() -> None:
    verdicts = [
        verdict("W01", "robust", record()),
        verdict("W02", "sensitive", record(rank=[1, 0])),
        verdict("W03", None, record()),
        verdict("W04", "sensitive", record(rank=[0, 1.5])),
        verdict("W05", "sensitive", record(rank=[0, 1.1])),
        verdict("W06", "not varied", record(exact=True, margin_widths=None)),
        verdict("W07", "robust", record(margin_widths=1.2)),
    ]
    assert [row["id"] for row in robust(verdicts)] == ["W05", "W04", "W02", "W07", "W01", "W06"]
    assert robust([{"id": "W01", "verdict": "supported", "parts": []}]) == []


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([turn(4.0, False)], "from 4 GB on"),
        ([turn(40.0, True)], "up to 40 GB"),
        ([turn(40.0, True), turn(4.0, False)], "4 GB to 40 GB"),
        ([], "any"),
    ],
)
def test_it_is_said_for_which_thresholds_a_verdict_holds(turns: list[dict[str, Any]], said: str) -> None:
    ((row),) = robust([verdict("W01", "robust", record(turns_at=turns))])
    assert row["holds"] == said and row["margin"] == "4.0"


def test_what_turns_it_is_listed_and_what_does_not_is_left_out() -> None:
    def swap(value: str, outcome: str, plain: bool = False) -> dict[str, Any]:
        return {
            "label": "backend",
            "value": value,
            "now": "best",
            "plain_loop": plain,
            "outcome": outcome,
            "verdict": outcome,
        }

    swaps = [swap("torch", "challenged"), swap("numpy", "supported"), swap("python", "challenged", plain=True)]
    without = [
        {"kind": "cell", "what": "", "number": 4, "outcome": "challenged", "verdict": "challenged"},
        {"kind": "node", "what": "n", "number": 1, "one_cell": True, "outcome": "challenged", "verdict": "challenged"},
    ]
    (row,) = robust([verdict("W01", "sensitive", record(swaps=swaps, without=without))])
    assert row["by"] == "torch or python (plain code); any of 4 cells less"
    assert row["sentence"] == "What turns W01."


def test_parts_that_cannot_turn_it_say_nothing_of_its_margin() -> None:
    (row,) = robust([verdict("W01", "robust", record(margin_widths=0.1, decides=False), record(exact=True))])
    assert row["margin"] == "exact"
    assert meaning() == {"widths": "1", "factor": "2"}
