"""The page on many nodes says what its data say; the fleet is what it is told to be; a smoke run writes both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from report.data.nodes import read_nodes
from report.data.summary import POINT, summarise
from studies.bench import __main__ as command
from studies.bench import fleet, scale

ROOT = Path(__file__).parents[2]


def document(ms_a_node: float = 150.0, last: float = 1.0, peak: float = 500.0, **site: float) -> dict[str, Any]:
    """A run in which each node takes so long, the last ones `last` times that; peak: MB of each process.

    site: what making it took, and what its pages weigh.
    """

    def row(nodes: int, cpu: float) -> dict[str, Any]:
        step = {"wall_s": cpu / 4, "cpu_s": cpu / 2, "peak_mb": {"parent": peak, "worker": peak}}
        made = {"claims": 88, "cells": 100 * nodes, "megabytes_written": 1.0}
        return {"nodes": nodes, "others": 0.01, "gather": step, "judge": {**step, **made}}

    each = ms_a_node / 1e3
    costs = (5 + 100 * each, 5 + 300 * each, 5 + 300 * each + 700 * each * last)
    return {
        "smoke": False,
        "anyway": False,
        "started_utc": "then",
        "ended_utc": "now",
        "series": scale.SERIES,
        "machine": {"hardware": {"cpu": {"model": "Some CPU", "usable_cores": 2}}, "study": {"commit": "abc"}},
        "rows": [row(nodes, cost) for nodes, cost in zip((100, 300, 1000), costs, strict=True)],
        "site": {"wall_s": 90.0, "cpu_s": 120.0, "front_kb": 90.0, "heaviest_kb": 200.0, **site},
    }


def test_time_in_proportion_is_told_without_what_a_start_takes() -> None:
    assert scale.each_more_s(document()["rows"]) == pytest.approx([0.15, 0.15])
    assert "each node more takes 1.00 times the CPU time" in scale.text(document())
    assert "each node more takes 3.00 times the CPU time" in scale.text(document(last=3.0))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (document(), "met"),
        (document(ms_a_node=300.0), "missed"),
        (document(peak=1400.0), "missed"),
        ({**document(), "series": 400}, "not tried"),
        ({**document(), "rows": [*document()["rows"][:2], {**document()["rows"][2], "nodes": 500}]}, "not tried"),
    ],
)
def test_the_target_is_met_in_time_and_memory_or_missed(data: dict[str, Any], told: str) -> None:
    assert f": {told}" in scale.text(data).split("\n\n")[-2]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (document(), "met"),
        (document(wall_s=200.0), "missed"),
        (document(front_kb=500.0), "missed"),
        (document(heaviest_kb=2000.0), "missed"),
        ({**document(wall_s=200.0), "series": 400}, "not tried"),
    ],
)
def test_the_site_is_made_in_time_and_light_or_not(data: dict[str, Any], told: str) -> None:
    assert f": {told}" in scale.text(data).split("\n\n")[-1]


def test_a_fleet_has_the_nodes_and_series_that_are_asked_for(tmp_path: Path) -> None:
    source = ROOT / "data" / "nodes" / "amd-epyc-2c-789dcf"
    fleet.write(tmp_path / "fleet", source, 3, 400)
    found = read_nodes([tmp_path / "fleet"], allow_synthetic=True)
    assert not found.refused
    table = summarise(found.samples())
    sizes = table.groupby("node").size()
    assert sizes.index.tolist() == [f"synthetic-{number:04d}" for number in range(3)]
    assert sizes.nunique() == 1 and 380 <= sizes.iloc[0] <= 400
    assert set(table["origin"]) == {"synthetic"}
    ok = table[(table["status"] == "ok") & (table["unit"] == "s")]
    assert (ok["n_rounds"] == fleet.ROUNDS).all()
    # Each node has a speed of its own, for all of its times.
    times = ok.pivot_table(index=[*POINT[1:], "metric"], columns="node", values="estimate")
    spread = pd.DataFrame({name: times[name] / times["synthetic-0000"] for name in times.columns[1:]})
    assert (spread.std() / spread.mean() < 0.1).all()
    assert (spread.median() - 1).abs().min() > 0.01


@pytest.mark.slow
def test_a_smoke_run_writes_the_page_and_its_data(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = subprocess.run(
        [sys.executable, "-m", "studies.bench.scale", "--quick", "--out", str(out)],
        cwd=ROOT, env={**os.environ, command.ANYWAY: "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert {path.name for path in out.iterdir()} == {"scale.json", "scale.md"}
    data = json.loads((out / "scale.json").read_text(encoding="utf-8"))
    assert [row["nodes"] for row in data["rows"]] == [1, 2, 5]
    assert all(row["judge"]["claims"] > 80 and row["judge"]["cells"] > 50 * row["nodes"] for row in data["rows"])
    assert all(row[step]["peak_mb"]["parent"] > 50 for row in data["rows"] for step in scale.STEPS)
    assert data["site"]["front_kb"] > 10 and data["site"]["peak_mb"]["parent"] > 50
    assert "A smoke run" in (out / "scale.md").read_text(encoding="utf-8")
