"""Test that the right case is replicated, and that the two results agree if they lie on one side of the threshold."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from contract.files import read_json, write_json
from studies import replication as command

AGAIN = command.Replication("N03", "one core", lambda: [28.0, 29.0, 30.0], "another library")


def make_case(part: str, dtype: str, estimate: float) -> dict[str, Any]:
    ends = {"low": 0.8 * estimate, "high": 1.2 * estimate}
    return {"part": part, "node": "a", "labels": {"dtype": dtype}, "estimate": estimate, **ends}


CASES = [
    make_case("one core", "float32", 30.0),
    make_case("one core", "float64", 15.0),
    make_case("all cores", "float32", 30.0),
]


@pytest.fixture
def replicate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command with changed cases or fields, and returns the row in its output."""

    def run(cases: list[dict[str, Any]] = CASES, **changed: Any) -> dict[str, Any]:
        monkeypatch.setattr(command, "REPLICATIONS", [dataclasses.replace(AGAIN, **changed)])
        part = {"name": "one core", "estimate": 30.0, "unit": "MAC/cycle", "threshold": 8.0}
        write_json(tmp_path / "verdicts.json", {"commit": "c", "verdicts": [
            {"id": "N03", "parts": [part], "cases": cases}]})  # fmt: skip
        code = command.main(["--verdicts", str(tmp_path / "verdicts.json"), "--out", str(tmp_path / "out.json")])
        (row,) = read_json(tmp_path / "out.json")["rows"]
        assert (code == 0) == row["agrees"]
        return dict(row)

    return run


@pytest.mark.parametrize(
    ("changed", "labels", "agrees"),
    [
        ({}, "float32", True),
        ({"labels": {"dtype": "float64"}}, "float64", True),
        # The second result's median, 6, is below the threshold, 8, so the results disagree.
        ({"measure": lambda: [30.0, 5.0, 6.0]}, "float32", False),
    ],
)
def test_labelled_case_is_replicated(
    replicate: Any, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], labels: str, agrees: bool
) -> None:
    row = replicate(**changed)
    assert (row["labels"], row["agrees"]) == (labels, agrees)
    assert row["second"]["low"] < row["second"]["median"] < row["second"]["high"]
    assert ("DISAGREES" in capsys.readouterr().out) is not agrees


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": {"dtype": "int8"}}, "0 cases match, exactly one is needed"),
        ({"cases": [*CASES, CASES[0]]}, "2 cases match, exactly one is needed"),
        ({"part": "none"}, "has no part 'none'"),
    ],
)
def test_ambiguous_case_is_refused(replicate: Any, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        replicate(**changed)
