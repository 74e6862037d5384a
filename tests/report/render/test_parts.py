"""Parts of the page that follow its data: what each tells of made-up verdicts and tables."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import StudyError
from contract.files import read_yaml, write_json
from report.judging.judge import CLAIMS
from report.render.bases import bases
from report.render.calibrated import RARE, calibrated
from report.render.cells import MOST_CELLS, only_place, shown
from report.render.limits import limits
from report.render.objections import DECLARED, objections
from report.render.ran import ran
from report.render.robust import robust
from report.render.second import measured_again
from report.statistics import DECIDING

A_GPU = {"id": "cuda:0", "kind": "gpu", "name": "Example GPU", "memory_bytes": 1}


# ------------------------------------------------------------------ the cells that a card lists


@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.data())
def test_few_cells_are_listed_in_order_and_the_nearest_of_each_part(sizes: list[int], data: st.DataObject) -> None:
    """The n-th cell of each part lies n + 2 times above its threshold."""
    thresholds = data.draw(st.lists(st.floats(0.1, 1e6), min_size=len(sizes), max_size=len(sizes)))
    parts = [{"name": f"part {n}", "threshold": threshold} for n, threshold in enumerate(thresholds)]
    cells = [
        {"part": part["name"], "estimate": part["threshold"] * (n + 2), "node": "a", "device": "cpu", "n": n}
        for part, size in zip(parts, sizes, strict=True)
        for n in range(size)
    ]
    listed = shown({"parts": parts, "cells": cells})
    assert len(listed) == min(MOST_CELLS, sum(sizes))
    places = [cells.index(cell) for cell in listed]
    assert places == sorted(places)
    for part, size in zip(parts, sizes, strict=True):
        of = [cell["n"] for cell in listed if cell["part"] == part["name"]]
        assert of == list(range(len(of))), "those nearest to the threshold"
        assert len(of) >= min(size, MOST_CELLS // len(sizes))


def test_one_place_is_said_once_and_several_are_said_each() -> None:
    here = {"node": "node-a", "device": "cpu"}
    assert only_place([here, here]) == "node-a, cpu"
    assert only_place([here, {**here, "device": "cuda:0"}]) == only_place([{"node": None, "device": None}]) == ""


# ------------------------------------------------------------------ bases, and how robust verdicts are


def test_a_claim_is_told_against_every_base_that_was_measured() -> None:
    core = {"outcome": "challenged", "settled": [0, 1, 0], "cells": [[40.0, "Infinity", ""]]}
    cells = [[12.0, 14.0, "mlp"], [10.5, 11.0, "cnn"]]
    part = {
        "name": "", "unit": "1", "scope": {"baseline": "node"}, "outcome": "supported",
        "rejudge": {"settled": [0, 0, 0], "cells": cells, "baselines": {"core": core}},
    }  # fmt: skip
    declared, other = bases({"parts": [part]})
    assert (declared["base"], declared["range"], declared["outcome"]) == (
        "against all cores",
        "10.5 to 14.0",
        "supported",
    )
    assert (other["base"], other["outcome"], other["cells"]) == ("against one core", "challenged", "2 cells")
    assert other["range"].startswith("40") and "inf" not in other["range"].lower()
    assert bases({"parts": [{**part, "rejudge": {**part["rejudge"], "baselines": {}}}, {"name": ""}]}) == []


def verdict(name: str, word: str | None, **record: Any) -> dict[str, Any]:
    told = {
        "outcome": "supported", "verdict": "supported", "margin_widths": 4.0, "exact": False, "thresholds": [],
        "turns_at": [], "swaps": [], "without": [], "decides": True, "fragile": False, "rank": None, "sentence": "S.",
    }  # fmt: skip
    parts = [{"name": "", "threshold": 10.0, "unit": "GB", "robustness": {**told, **record}}]
    return {"id": name, "verdict": "supported", "robust": word, "flip": f"What turns {name}.", "parts": parts}


def test_the_most_fragile_stand_first_and_what_is_open_stands_nowhere() -> None:
    verdicts = [
        verdict("W01", "robust"),
        verdict("W02", "sensitive", rank=[1, 0]),
        verdict("W03", None),
        verdict("W04", "sensitive", rank=[0, 1.5]),
        verdict("W05", "sensitive", rank=[0, 1.1]),
        verdict("W06", "not varied", exact=True, margin_widths=None),
        verdict("W07", "robust", margin_widths=1.2),
    ]
    assert [row["id"] for row in robust(verdicts)] == ["W05", "W04", "W02", "W07", "W01", "W06"]


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([(4.0, False)], "from 4 GB on"), ([(40.0, True)], "up to 40 GB"),
        ([(40.0, True), (4.0, False)], "4 GB to 40 GB"), ([], "any"),
    ],
)  # fmt: skip
def test_it_is_said_for_which_thresholds_a_verdict_holds_and_what_turns_it(turns: list[Any], said: str) -> None:
    at = [{"threshold": t, "end": None, "higher": up, "in_range": True, "factor": 2.0} for t, up in turns]
    swaps = [
        {"label": "backend", "value": value, "now": "best", "plain_loop": plain, "outcome": one, "verdict": one}
        for value, one, plain in (("torch", "challenged", False), ("numpy", "supported", False),
                                  ("python", "challenged", True))
    ]  # fmt: skip
    without = [{"kind": "cell", "what": "", "number": 4, "outcome": "challenged", "verdict": "challenged"}]
    (row,) = robust([verdict("W01", "sensitive", turns_at=at, swaps=swaps, without=without)])
    assert row["holds"] == said and row["margin"] == "4.0"
    assert row["by"] == "torch or python (plain code); any of 4 cells less"


# ------------------------------------------------------------------ how often the rules err, and a second measurement


def simulated(wrong: float) -> dict[str, Any]:
    def share(value: float) -> dict[str, float]:
        return {"share": value, "low": max(0.0, value - 0.001), "high": min(1.0, value + 0.001)}

    return {
        "question": "some point", "noise": "2% between rounds", "rounds": 3, "points": 10, "trials": 10_000,
        "nodes": 1000, "width": 0.05, "supported": share(wrong), "challenged": share(0.001), "depends": share(0.0),
        "undecided": share(0.999 - wrong), "right": [{"widths": 1, **share(0.8)}],
    }  # fmt: skip


def test_rules_that_err_more_often_than_they_may_are_counted_and_named(tmp_path: Path) -> None:
    about = {"origin": "synthetic", "level": DECIDING, "drawn": 0.95, "seed": 1, "samples_per_round": 5}
    write_json(tmp_path / "table.json", {**about, "rows": [simulated(0.006), simulated(0.0312)]})
    told = calibrated(tmp_path / "table.json")
    assert (told["kept"], told["trials"], told["rare"]) == ("1 of the 2", "20,000", f"{RARE:.0%}")
    assert told["exceeded"] == ["some point, 2% between rounds, 3 rounds, 10 points: 3.1%"]
    assert told["rows"][0]["supported"] == "0.60% [0.50, 0.70]"


SECOND = {
    "claim": "N03", "part": "one core", "labels": "float32, 1 thread", "means": "another library", "unit": "MAC/cycle",
    "threshold": 8.0, "first": {"estimate": 30.0, "low": 25.0, "high": 35.0},
    "second": {"median": 29.0, "low": 28.0, "high": 30.0, "values": [28.5, 29.5]}, "agrees": True,
}  # fmt: skip
CELL = {"part": "one core", "node": "a", "label": "float32, 1 thread", "estimate": 31.0, "low": 26.0, "high": 36.0}


@pytest.mark.parametrize(
    ("cell", "node", "row", "expected"),
    [
        ({}, "a", SECOND, (1, "")),
        ({"estimate": 5.0, "low": 4.0, "high": 6.0}, "a", SECOND, (0, "N03")),  # on the other side now
        ({"label": "float64, 1 thread"}, "a", SECOND, None),
        ({"estimate": None}, "a", SECOND, None),
        ({}, "elsewhere", SECOND, None),
        ({}, "a", {**SECOND, "agrees": "yes"}, StudyError),
    ],
)
def test_a_second_measurement_stands_beside_what_the_page_says_now(
    tmp_path: Path, cell: dict[str, Any], node: str, row: dict[str, Any], expected: Any
) -> None:
    parts = [{"name": "one core", "unit": "MAC/cycle", "threshold": 8.0}]
    verdicts = [{"id": "N03", "parts": parts, "cells": [{**CELL, **cell}]}]
    document = {"nodes": [{"id": "a", "label": "A CPU, 2 cores"}], "verdicts": verdicts}
    path = tmp_path / "second.json"
    write_json(path, {"origin": "measured", "commit": "c", "node": node, "rows": [row]})
    if expected is StudyError:
        with pytest.raises(StudyError, match=r"second\.json"):
            measured_again(document, path)
        return
    told = measured_again(document, path)
    assert (told and (told["agree"], told["sunk"])) == expected
    if expected == (1, ""):
        assert told["rows"][0]["first"] == "31.0 [26.0, 36.0] MAC/cycle"
        assert told["rows"][0]["second"] == "29.0 [28.0, 30.0] MAC/cycle"


# ------------------------------------------------------------------ what ran, what the study cannot say, objections


def test_each_device_has_its_experiments_with_results_and_those_without(tmp_path: Path) -> None:
    devices = [{"id": "cpu", "name": "a CPU"}, {"id": "cuda:0", "name": "a GPU", "maker": "NVIDIA"}]
    same = {"node": "n", "backend": "torch", "dtype": "float32", "threads": 1}
    rows = [
        {**same, "experiment": experiment, "device": device, "status": status, "params": params, "metric": metric}
        for experiment, device, status, params, metric in (
            ("gemm", "cpu", "ok", "{}", "time"), ("gemm", "cuda:0", "ok", "{}", "time"),
            # One point with two metrics, of which one failed, gave a result.
            ("gemm", "cuda:0", "unsupported", "{}", "graph_time"), ("gemm", "cuda:0", "oom", '{"n":9}', "time"),
            ("transfer", "cuda:0", "ok", "{}", "time"), ("batched", "cuda:0", "unsupported", "{}", "time"),
        )
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(tmp_path / "summary.parquet")
    cpu, gpu = ran(tmp_path, [{"id": "n", "label": "A node", "devices": devices}])
    assert (cpu["through"], cpu["without"]) == ("gemm 1/1", "batched and transfer")
    assert (gpu["maker"], gpu["through"], gpu["without"]) == ("NVIDIA", "gemm 1/2 and transfer 1/1", "batched")


def test_the_limits_follow_the_nodes_and_their_data(make_document: Any, tmp_path: Path) -> None:
    def told(document: dict[str, Any], data: Path | None = None) -> dict[str, str]:
        return {one["name"]: one["text"] for one in limits(document, data)}

    document = make_document()
    waiting = sum(one["verdict"] == "awaiting hardware" for one in document["verdicts"])
    assert told(document)["Hardware"].startswith(f"No GPU has been measured. {waiting} claims wait")
    assert "Virtual machines" in told(document)
    other = copy.deepcopy(document)
    other["nodes"][0]["devices"].append(A_GPU)
    other["nodes"][0]["hardware"]["cpu"]["virtual"] = False
    assert told(other)["Hardware"].startswith("GPUs measured: Example GPU.") and "Virtual machines" not in told(other)
    samples = pd.DataFrame({"status": ["ok"] * 3, "clock_mhz": [4000.0] * 3, "power_w": None, "temperature_c": None})
    samples.to_parquet(tmp_path / "samples.parquet")
    summary = pd.DataFrame({"status": ["ok", "ok", "skipped"], "n_rounds": [3, 1, 0]})
    summary.to_parquet(tmp_path / "summary.parquet")
    said = told(document, tmp_path)
    assert "power and temperature" in said["Counters"] and "clock" not in said["Counters"]
    assert said["Rounds"].startswith("1 of 2 results come from fewer than 3 rounds")


def test_objections_have_their_verdicts_and_go_with_what_they_are_about(make_document: Any) -> None:
    without = make_document()
    told = objections(without)
    known = {one["id"]: one["verdict"] for one in without["verdicts"]}
    assert len(told) >= 10
    assert all(claim["verdict"] == known[claim["id"]] for one in told for claim in one["claims"])
    with_one = copy.deepcopy(without)
    with_one["nodes"][0]["devices"].append(A_GPU)
    (gone,) = {one["says"] for one in told} - {one["says"] for one in objections(with_one)}
    assert "GPU" in gone
    for one in read_yaml(DECLARED):
        assert all((CLAIMS / f"{claim}.yaml").is_file() for claim in one.get("claims", [])), one["says"]
        assert not re.search(r"\d", one["says"] + one["answer"]), "no figure is typed"
