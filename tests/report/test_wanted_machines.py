"""Machines that would decide open claims, from the verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contract.machine_needs import WANTED, Machine, machine_rows, read_wanted
from report.cli import main
from report.verdicts import read_verdicts
from report.wanted_machines import wanted_machines

NODE = "node-0a1b2c.3d4e5f"


def part(**fields: Any) -> dict[str, Any]:
    """Return a part that waits for nothing, except for what the fields say."""
    empty: dict[str, Any] = {"waits": None, "missing": None, "more_rounds": None}
    return {"name": "", "quantity": "gemm.rate", "outcome": "supported", **empty, **fields}


def document(*parts: dict[str, Any], verdict: str = "undecided", decided_on: str = "", **claim: Any) -> dict[str, Any]:
    claim = {"id": "W01", "verdict": verdict, "decided_on": decided_on, "parts": parts, "cases": [], **claim}
    return {"nodes": [{"id": NODE, "label": "Node"}], "verdicts": [claim]}


def need(**fields: Any) -> dict[str, Any]:
    return {"verdict": "awaiting hardware", "experiments": ["training"], **fields}


def further(in_one_round: int = 0, **decided_by: int) -> dict[str, Any]:
    return {
        "cases": 2,
        "in_one_round": in_one_round,
        "decided_by": {k[1:]: n for k, n in decided_by.items()},
        "near": [],
    }


def test_published_list_is_current(published_study: Path) -> None:
    verdicts = read_verdicts(published_study / "verdicts.json")
    assert read_wanted(WANTED) == wanted_machines(verdicts), "python -m report wanted --verdicts FILE"


@pytest.mark.parametrize(
    ("lacking", "machine"),
    [
        (need(devices=["cpu", "gpu"]), Machine(devices=("gpu",))),
        (need(baseline="laptop"), Machine("laptop")),
        (need(baseline="server", devices=["gpu"]), Machine("server", ("gpu",))),
        (need(devices=["cpu", "gpu"], energy=["cpu"]), Machine(devices=("gpu",), energy=("cpu",))),
        (need(verdict="awaiting experiment", devices=["cpu"], single_rounds=2, estimates=2), Machine()),
        (need(verdict="awaiting source", source="a price"), None),
        (need(verdict="awaiting experiment", why="not written yet"), None),
        (need(experiments=["no-such-experiment"]), None),
    ],
)
@pytest.mark.parametrize("place", ["waits", "missing"])
def test_machine_follows_from_the_missing_evidence(
    lacking: dict[str, Any], machine: Machine | None, place: str
) -> None:
    wanted = wanted_machines(document(part(**{place: lacking}), verdict="supported", decided_on="others"))
    assert [each.machine for each in wanted.needs] == ([machine] if machine else [])
    assert not any(each.is_open for each in wanted.needs)


@pytest.mark.parametrize(
    ("rounds", "machine"),
    [
        (further(_3=0, _5=1, _8=2), Machine(like=("node-0a1b2c", "Node"), rounds=5)),
        (further(in_one_round=1), Machine()),
        (further(_3=0, _5=0), None),
        (None, None),
    ],
)
def test_machine_follows_from_the_rounds_of_undecided_cases(rounds: Any, machine: Machine | None) -> None:
    case = {"part": "", "node": NODE, "device": "cpu", "outcome": "undecided"}
    wanted = wanted_machines(document(part(outcome="undecided", more_rounds=rounds), cases=[case]))
    assert [each.machine for each in wanted.needs] == ([machine] if machine else [])
    assert all(each.is_open for each in wanted.needs)


@pytest.mark.parametrize(("verdict", "decided_on"), [("supported", "here"), ("depends", "here"), ("not testable", "")])
def test_claim_with_an_own_decision_needs_no_machine(verdict: str, decided_on: str) -> None:
    parts = part(missing=need(baseline="laptop"))
    assert not wanted_machines(document(parts, verdict=verdict, decided_on=decided_on)).needs


def test_parts_are_named_if_they_need_different_machines() -> None:
    laptop, gpu = part(name="a", missing=need(baseline="laptop")), part(name="b", missing=need(devices=["gpu"]))
    assert [each.parts for each in wanted_machines(document(laptop, gpu)).needs] == [("a",), ("b",)]
    assert [each.parts for each in wanted_machines(document(laptop, {**laptop, "name": "c"})).needs] == [()]


def test_command_writes_the_list_and_prints_it(
    published_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "wanted.json"
    assert main(["wanted", "--verdicts", str(published_study / "verdicts.json"), "--out", str(out)]) == 0
    rows, printed = machine_rows(read_wanted(out).needs), capsys.readouterr().out
    assert out.read_bytes() == WANTED.read_bytes()
    assert [line[2:] for line in printed.splitlines() if line.startswith("- ")] == [row.machine.text for row in rows]
