"""What the study says of known nodes stays what it was.

A change that is meant is kept by `python -m tests.golden --write`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from report.data.gathered import read_dataset
from report.quantities import quantities
from tests.golden.__main__ import differences, every_figure, judged, read, said


def changes(name: str, now: dict[str, Any]) -> list[str]:
    """The first places at which it says something else."""
    return [line for part, contents in now.items() for line in differences(read(name, part), contents, part)][:20]


def test_the_published_node_says_what_it_said(published: Path) -> None:
    assert changes("published", said(published)) == []


def test_a_fleet_with_gpus_says_what_it_said(tmp_path: Path) -> None:
    judged("fleet", tmp_path)
    assert changes("fleet", said(tmp_path)) == []
    data = read_dataset(tmp_path / "data", every_figure())
    for name, quantity in quantities().items():
        undeclared = {*quantity.estimates(data).labels} - {*quantity.labels, "node", "device"}
        assert not undeclared, f"{name} bears labels that no claim may name: {undeclared}"


def test_what_differs_is_found_wherever_it_lies() -> None:
    kept = {"a": [{"b": 1.0, "c": "x"}, {"d": None}], "gone": 1}
    now = {"a": [{"b": 1.0 + 1e-12, "c": "y"}, {"d": 0.5}, 3], "new": 2}
    places = [line.partition(":")[0] for line in differences(kept, now)]
    assert places == [".a[0].c", ".a[1].d", ".a[2]", ".gone", ".new"]


def test_numbers_in_words_may_be_rounded_the_other_way_and_no_more() -> None:
    told = "takes 18.75 [1,170, 2\\.05] ms of 3 cores"
    assert not list(differences(told, "takes 18.8 [1,180, 2\\.06] ms of 3 cores"))
    for other in ("takes 18.75 [1,170, 2\\.05] s of 3 cores", told.replace("3", "4"), told.replace("18.75", "19")):
        assert list(differences(told, other))
