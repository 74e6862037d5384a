"""Test that the synthetic fleet has the requested nodes and series, and that every step runs with it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from report.data.node_reader import read_nodes
from report.data.summary import POINT, summarise
from studies import scale


def test_fleet_has_requested_nodes_and_series(tmp_path: Path) -> None:
    scale.write_fleet(tmp_path / "fleet", 3, 400)
    nodes = read_nodes([tmp_path / "fleet"], allow_synthetic=True)
    assert not nodes.refused
    table = summarise(nodes.samples())
    sizes = table.groupby("node").size()
    assert sizes.index.tolist() == [f"synthetic-{number:04d}" for number in range(3)]
    assert sizes.nunique() == 1 and 380 <= sizes.iloc[0] <= 400
    assert set(table["origin"]) == {"synthetic"}
    ok = table[(table["status"] == "ok") & (table["unit"] == "s")]
    assert (ok["n_rounds"] == scale.ROUNDS).all()
    # A node has one speed for all its times, so the ratio of two nodes' times is nearly equal at all points.
    times = ok.pivot_table(index=[*POINT[1:], "metric"], columns="node", values="estimate")
    spread = pd.DataFrame({name: times[name] / times["synthetic-0000"] for name in times.columns[1:]})
    assert (spread.std() / spread.mean() < 0.1).all()
    assert (spread.median() - 1).abs().min() > 0.01


@pytest.mark.parametrize(("seconds", "code"), [(240.0, 0), (0.1, 1)])
def test_fleet_over_limit_fails(
    seconds: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "SECONDS", seconds)
    # Lift the memory limit, because Linux counts the parent's memory at the fork in the child's peak, and the parent
    # pytest uses much memory.
    monkeypatch.setattr(scale, "MEGABYTES", 1e6)
    monkeypatch.setattr(scale, "judge_fleet", scale.gather_fleet)
    assert scale.main(["--nodes", "2", "--series", "100"]) == code
    assert ("within" if code == 0 else "over") in capsys.readouterr().out.splitlines()[-1]
