"""What the study says of known nodes stays what it was.

A change that is meant is kept by `python -m tests.golden --write`.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from contract.node import kind_of_node, node_id, read_node, record_path, write_node
from contract.sample_table import load_samples, to_data_frame, write_unchecked
from report.judging.part_evaluation import QuantityCache
from report.quantities import quantities
from tests.golden.__main__ import (
    SETS,
    differences,
    estimated,
    evidence,
    judged,
    kept_pages,
    line_differences,
    lines_of_pages,
    nodeless_differences,
    read,
    said,
)


def changes(name: str, now: dict[str, Any]) -> list[str]:
    """The first places at which it says something else."""
    return [line for part, contents in now.items() for line in differences(read(name, part), contents, part)][:20]


def test_the_published_node_says_what_it_said(published: Path) -> None:
    cache = QuantityCache(evidence("published", published))
    assert changes("published", {**said(published), "quantities": estimated(cache)}) == []


def test_a_fleet_with_gpus_says_what_it_said(published_with_fleet: Path) -> None:
    cache = QuantityCache(evidence("fleet", published_with_fleet))
    assert changes("fleet", {**said(published_with_fleet), "quantities": estimated(cache)}) == []
    for name, quantity in quantities().items():
        undeclared = {*cache.estimates(quantity).labels} - {*quantity.labels, "node", "device"}
        assert not undeclared, f"{name} bears labels that no claim may name: {undeclared}"
        assert not cache.undeclared_experiments(quantity), f"{name} reads experiments that it does not declare"


def test_the_pages_of_a_fleet_show_what_they_showed(published_with_fleet: Path) -> None:
    assert list(line_differences(kept_pages("fleet"), lines_of_pages("fleet", published_with_fleet)))[:20] == []


def test_pages_on_measurements_of_others_show_what_they_showed(published: Path) -> None:
    assert list(line_differences(kept_pages("published"), lines_of_pages("published", published)))[:20] == []


def test_the_plans_of_all_presets_predict_what_they_predicted() -> None:
    assert nodeless_differences("plans")[:20] == []


def test_experiments_are_set_to_the_numbers_that_they_were_set_to() -> None:
    """Two machines that were measured with different numbers cannot be compared."""
    assert nodeless_differences("settings")[:20] == []


def twin(node: Path, to: Path) -> None:
    """Another machine of a node's kind that measured the same to the last digit, in processes of its own."""
    record = read_node(record_path(node))
    # Runs of one machine have one twin.
    instance = sha256(record["id"].encode()).hexdigest()[:6]
    name = node_id(record["kind"], instance)
    write_node(to / node.name / record_path(node).name, {**record, "id": name, "instance": instance})
    for path in node.glob("*.parquet"):
        table, about = load_samples(path)
        table = to_data_frame(table).assign(node=name, run=lambda rows: rows["run"] + ".twin")
        write_unchecked(to / node.name / path.name, table, about)


def on(verdict: dict[str, Any]) -> dict[str, Any]:
    """What a verdict rests on: its parts with their shares and thresholds, and its cases by what is said of them."""
    parts = [{name: part[name] for name in ("name", "outcome", "share", "sensitivity")} for part in verdict["parts"]]
    # The fastest CPU of more machines is less surely the fastest: its interval alone is wider.
    cases = [case for case in verdict["cases"] if case["labels"].get("baseline") != "fleet"]
    said = Counter(f"{case['part']}: {case['outcome']}, {kind_of_node(case['node'] or '')}" for case in cases)
    moved = verdict["by_threshold"] if len(cases) == len(verdict["cases"]) else []
    return {"verdict": verdict["verdict"], "parts": parts, "cases": said, "number": len(verdict["cases"]), "at": moved}


def test_a_twin_of_every_machine_changes_no_verdict_and_no_number_of_cases(tmp_path: Path) -> None:
    for folder in SETS["fleet"]:
        for node in folder.iterdir():
            if record_path(node).exists():
                twin(node, tmp_path / "twins")
    judged("fleet", tmp_path, [tmp_path / "twins"])
    alone, now = read("fleet", "verdicts"), said(tmp_path)["verdicts"]
    assert len(now["nodes"]) == 2 * len(alone["nodes"])
    for whole in ("tally", "decided", "questions"):
        assert now[whole] == alone[whole]
    assert [len(counterpart["here"]) for counterpart in now["counterparts"]] == [
        len(counterpart["here"]) for counterpart in alone["counterparts"]
    ]
    for before, after in zip(alone["verdicts"], now["verdicts"], strict=True):
        assert list(differences(on(before), on(after), before["id"])) == []


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
