"""Test that the results for known nodes have not changed from the golden files.

To accept an intended change, run `python -m tests.golden --write`.
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
    estimate_statistics,
    judge_set,
    judged_dataset,
    kept_pages,
    line_differences,
    lines_of_pages,
    nodeless_differences,
    read,
    read_results,
)


def changes(name: str, now: dict[str, Any]) -> list[str]:
    """Return the first differences from the golden files."""
    return [line for part, contents in now.items() for line in differences(read(name, part), contents, part)][:20]


def test_results_for_the_published_nodes_are_unchanged(published_study: Path) -> None:
    cache = QuantityCache(judged_dataset("published", published_study))
    assert changes("published", {**read_results(published_study), "quantities": estimate_statistics(cache)}) == []


def test_results_for_the_fleet_are_unchanged(published_with_fleet: Path) -> None:
    cache = QuantityCache(judged_dataset("fleet", published_with_fleet))
    assert changes("fleet", {**read_results(published_with_fleet), "quantities": estimate_statistics(cache)}) == []
    for name, quantity in quantities().items():
        undeclared = {*cache.estimates(quantity).labels} - {*quantity.labels, "node", "device"}
        assert not undeclared, f"{name} has undeclared labels: {undeclared}"
        assert not cache.undeclared_experiments(quantity), f"{name} reads undeclared experiments"


def test_pages_for_the_fleet_are_unchanged(published_with_fleet: Path) -> None:
    assert list(line_differences(kept_pages("fleet"), lines_of_pages("fleet", published_with_fleet)))[:20] == []


def test_pages_on_published_measurements_are_unchanged(published_study: Path) -> None:
    assert list(line_differences(kept_pages("published"), lines_of_pages("published", published_study)))[:20] == []


def test_predictions_for_all_presets_are_unchanged() -> None:
    assert nodeless_differences("plans")[:20] == []


def test_numbers_in_constants_of_experiments_are_unchanged() -> None:
    """Measurements with different constants cannot be compared."""
    assert nodeless_differences("settings")[:20] == []


def write_twin(node: Path, to: Path) -> None:
    """Write a node's data again as a second machine of the same kind.

    The values are equal, but the run ids differ, as if other processes had measured them.
    """
    record = read_node(record_path(node))
    # `instance` tells machines of one kind apart. Derive it from the node's id, so that all runs on one machine get the
    # same twin.
    instance = sha256(record["id"].encode()).hexdigest()[:6]
    name = node_id(record["kind"], instance)
    write_node(to / node.name / record_path(node).name, {**record, "id": name, "instance": instance})
    for path in node.glob("*.parquet"):
        table, about = load_samples(path)
        table = to_data_frame(table).assign(node=name, run=lambda rows: rows["run"] + ".twin")
        write_unchecked(to / node.name / path.name, table, about)


def summarise(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a verdict that twins must not change, with case counts by part, outcome and node kind."""
    parts = [{name: part[name] for name in ("name", "outcome", "share", "sensitivity")} for part in verdict["parts"]]
    # Leave out cases that are compared to the fleet's fastest CPU. Among more machines, it is less certain which CPU is
    # the fastest, so the intervals of these cases widen.
    cases = [case for case in verdict["cases"] if case["labels"].get("baseline") != "fleet"]
    counts = Counter(f"{case['part']}: {case['outcome']}, {kind_of_node(case['node'] or '')}" for case in cases)
    by_threshold = verdict["by_threshold"] if len(cases) == len(verdict["cases"]) else []
    return {
        "verdict": verdict["verdict"],
        "parts": parts,
        "cases": counts,
        "number": len(verdict["cases"]),
        "by_threshold": by_threshold,
    }


def test_twins_for_all_machines_change_no_verdict_and_no_case_count(tmp_path: Path) -> None:
    for folder in SETS["published"]:
        for node in folder.iterdir():
            if record_path(node).exists():
                write_twin(node, tmp_path / "twins")
    judge_set("published", tmp_path, [tmp_path / "twins"])
    alone, now = read("published", "verdicts"), read_results(tmp_path)["verdicts"]
    assert len(now["nodes"]) == 2 * len(alone["nodes"])
    for whole in ("tally", "decided", "questions"):
        assert now[whole] == alone[whole]
    assert [len(counterpart["here"]) for counterpart in now["counterparts"]] == [
        len(counterpart["here"]) for counterpart in alone["counterparts"]
    ]
    for before, after in zip(alone["verdicts"], now["verdicts"], strict=True):
        assert list(differences(summarise(before), summarise(after), before["id"])) == []


def test_differences_are_found_at_any_depth() -> None:
    kept = {"a": [{"b": 1.0, "c": "x"}, {"d": None}], "gone": 1}
    now = {"a": [{"b": 1.0 + 1e-12, "c": "y"}, {"d": 0.5}, 3], "new": 2}
    places = [line.partition(":")[0] for line in differences(kept, now)]
    assert places == [".a[0].c", ".a[1].d", ".a[2]", ".gone", ".new"]


def test_printed_numbers_may_differ_by_their_rounding_only() -> None:
    kept = "takes 18.75 [1,170, 2\\.05] ms of 3 cores"
    assert not list(differences(kept, "takes 18.8 [1,180, 2\\.06] ms of 3 cores"))
    for other in ("takes 18.75 [1,170, 2\\.05] s of 3 cores", kept.replace("3", "4"), kept.replace("18.75", "19")):
        assert list(differences(kept, other))
