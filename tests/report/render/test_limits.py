"""What the study cannot say follows its data: another node, another list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from report.render.limits import limits


def told(document: dict[str, Any], data: Path | None = None) -> dict[str, str]:
    return {one["name"]: one["text"] for one in limits(document, data)}


def test_without_a_gpu_it_says_so_and_counts_who_waits(make_document) -> None:
    document = make_document()
    waiting = sum(one["verdict"] == "awaiting hardware" for one in document["verdicts"])
    assert told(document)["Hardware"].startswith(f"No GPU has been measured. {waiting} claims wait")
    assert "Example CPU (2 cores)" in told(document)["Hardware"]


def test_a_gpu_that_was_measured_is_named(make_document) -> None:
    document = make_document()
    document["nodes"][0]["devices"].append({"id": "cuda:0", "kind": "gpu", "name": "Example GPU", "memory_bytes": 1})
    assert told(document)["Hardware"].startswith("GPUs measured: Example GPU.")


@pytest.mark.parametrize("virtual", [True, False])
def test_a_virtual_machine_is_told_as_one(make_document, virtual: bool) -> None:
    document = make_document()
    document["nodes"][0]["hardware"]["cpu"]["virtual"] = virtual
    assert ("Virtual machines" in told(document)) == virtual


def test_counters_that_never_spoke_are_named(make_document, tmp_path: Path) -> None:
    samples = pd.DataFrame({"status": ["ok"] * 3, "clock_mhz": [4000.0] * 3, "power_w": None, "temperature_c": None})
    samples.to_parquet(tmp_path / "samples.parquet")
    summary = pd.DataFrame({"status": ["ok", "ok", "skipped"], "n_rounds": [3, 1, 0]})
    summary.to_parquet(tmp_path / "summary.parquet")
    said = told(make_document(), tmp_path)
    assert "power and temperature" in said["Counters"]
    assert "clock" not in said["Counters"]
    assert said["Rounds"].startswith("1 of 2 results come from fewer than 3 rounds")
    assert "1 point gave no result" in said["Rounds"]


def test_figures_that_nobody_could_read_are_counted(make_document) -> None:
    document = make_document()
    assert "Sources" not in told(document)
    document["references"] = [{"status": "verified"}, {"status": "not verified"}]
    assert told(document)["Sources"].startswith("1 of 2 published figures")


def test_claims_that_count_a_list_are_named(make_document) -> None:
    document = make_document()
    assert "Lists of cases" not in told(document)
    document["verdicts"][3]["parts"] = [{"rule": "for_share_of"}]
    assert f"are counted: {document['verdicts'][3]['id']}." in told(document)["Lists of cases"]
