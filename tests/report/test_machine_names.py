"""Test the short names: letters, the user's own, runs, and many machines."""

from __future__ import annotations

import pytest

from report.data.machine_names import own_nodes, short_names


def make_record(name: str, day: int, source: str = "data/nodes") -> dict[str, str]:
    return {"id": name, "started_utc": f"2026-11-{day:02}T00:00:00Z", "source": source}


def test_machines_are_lettered_by_first_measurement_and_runs_are_numbered() -> None:
    records = [make_record("epyc-1.b0", 20), make_record("epyc-1.b0.2", 9), make_record("xeon-2", 15)]
    assert short_names(records) == {"epyc-1.b0": "A", "epyc-1.b0.2": "A, run 2", "xeon-2": "B"}


def test_users_machines_are_yours_and_leave_the_letters_alone() -> None:
    published = [make_record("epyc-1", 20), make_record("xeon-2", 21)]
    mine = make_record("laptop.c1", 1, "results/nodes")
    assert short_names([mine, *published]) == {"laptop.c1": "yours", "epyc-1": "A", "xeon-2": "B"}
    other = make_record("server", 2, "results/nodes")
    assert short_names([other, mine, *published])["server"] == "yours 2"


@pytest.mark.parametrize("source", ["data/nodes", "results/nodes"])
def test_without_others_to_compare_with_no_machine_is_yours(source: str) -> None:
    records = [make_record("a", 1, source), make_record("b", 2, source)]
    assert own_nodes(records) == set() and short_names(records) == {"a": "A", "b": "B"}


def test_names_of_many_machines_differ() -> None:
    names = short_names([make_record(f"node{number:03}", 1) for number in range(800)])
    assert len({*names.values()}) == 800 and names["node026"] == "AA" and names["node702"] == "AAA"
