"""Two runs of one machine: they agree as often as their intervals say, and a drift is seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from contract.errors import StudyError
from contract.files import write_json
from report import statistics
from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.render.repeated import repeated
from studies import repeatability as repeat
from tests.report.conftest import Factory


def run(root: Path, seed: int, factor: float = 1.0, points: int = 400) -> Path:
    """A run of the same node: each point's rounds about the same value, or about `factor` times it."""
    node = Factory(root / str(seed))("node-a", seed=seed)
    for n in range(points):
        node.point("gemm", factor * 1e-3 * (n + 1), params={"m": n, "n": 8, "k": 8}, spread=0.03, rounds=4)
    node.point("numerics", {"repeat_share": 1.0}, params={"m": 1}, spread=0.0)
    return node.write()


def table_of(folder: Path):
    return Dataset(read_nodes([folder], True)).table


def test_runs_that_differ_by_chance_agree_as_often_as_their_intervals_say(tmp_path: Path) -> None:
    points = repeat.compared(table_of(run(tmp_path, 1)), table_of(run(tmp_path, 2)))
    products = points[points["experiment"] == "gemm"]
    # 400 points at 95%: the share lies within 92% and 98% in all but one case of a thousand.
    assert 0.92 <= products["agrees"].mean() <= 0.98
    assert np.allclose(np.sqrt(products["low"] * products["high"]), products["ratio"])


def test_a_drift_between_runs_is_seen(tmp_path: Path) -> None:
    points = repeat.compared(table_of(run(tmp_path, 1)), table_of(run(tmp_path, 2, factor=1.5)))
    products = points[points["experiment"] == "gemm"]
    assert products["agrees"].mean() < 0.05
    assert products["ratio"].median() == pytest.approx(1.5, rel=0.02)


def test_a_drift_that_all_share_is_told_apart_and_one_points_is_not_taken_out(tmp_path: Path) -> None:
    first, second = table_of(run(tmp_path, 1)), table_of(run(tmp_path, 2, factor=1.5))
    second.loc[second["params"].str.contains('"m": 7,'), ["estimate", "low", "high"]] *= 3
    products = repeat.compared(first, second).loc[lambda t: t["experiment"] == "gemm"]
    assert 0.92 <= products["agrees_beside"].mean() <= 0.98
    alone = products["params"].str.contains('"m": 7,')
    assert alone.sum() == 1
    assert not products.loc[alone, "agrees_beside"].any()
    told = repeat._experiment("gemm", products)
    assert told["shift"] == pytest.approx(1.5, rel=0.02)
    assert told["agree"] < 40 < 360 < told["agree_beside"]


def test_the_clocks_of_both_runs_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "read_nodes", lambda folders: read_nodes(folders, True))
    runs = [Factory(tmp_path / name)("node-a").clock(hertz, spread=0.001).write()
            for name, hertz in (("one", 3.0e9), ("two", 3.3e9))]  # fmt: skip
    table = repeat.compare_runs(*runs)
    assert table["clock"] == pytest.approx(1.1, rel=1e-3)
    assert "x1.100" in "\n".join(repeat.lines(table))


def test_how_often_chance_makes_so_few_agree() -> None:
    assert repeat.by_chance({"agree": 95, "points": 100}) == pytest.approx(0.56, abs=0.02)
    assert repeat.by_chance({"agree": 80, "points": 100}) < 1e-6
    assert repeat.by_chance({"agree": 100, "points": 100}) == 1


def test_numbers_are_compared_by_what_they_were_and_shares_by_their_difference(tmp_path: Path) -> None:
    def counted(root: Path, values: dict[str, float], seed: int) -> Path:
        node = Factory(root)("node-a", seed=seed)
        return node.point("time-to-train", values, params={"job": "j"}, unit="1", spread=0.02).write()

    first = table_of(counted(tmp_path / "a", {"steps": 60.0, "repeat_share": 0.5}, 1))
    second = table_of(counted(tmp_path / "b", {"steps": 90.0, "repeat_share": 0.75}, 2))
    ratios = repeat.compared(first, second).set_index("metric")["ratio"]
    assert ratios["repeat_share"] == pytest.approx(1.25, abs=0.03)
    assert ratios["steps"] == pytest.approx(1.5, abs=0.05)


def test_what_is_exact_agrees_only_if_it_is_equal(tmp_path: Path) -> None:
    first = table_of(run(tmp_path, 1, points=1))
    second = first.copy()
    exact = second["experiment"] == "numerics"
    assert repeat.compared(first, second).loc[lambda t: t["experiment"] == "numerics", "agrees"].tolist() == [True]
    second.loc[exact, ["estimate", "low", "high"]] = 0.5
    assert repeat.compared(first, second).loc[lambda t: t["experiment"] == "numerics", "agrees"].tolist() == [False]


def test_the_table_is_written_and_read_and_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command reads measured data alone; these are not, and pass for once.
    monkeypatch.setattr(repeat, "read_nodes", lambda folders: read_nodes(folders, True))
    table = repeat.compare_runs(run(tmp_path, 1), run(tmp_path, 2))
    write_json(tmp_path / "repeat.json", table)
    assert repeat.read_repeat(tmp_path / "repeat.json") == table
    told = repeated(tmp_path / "repeat.json")
    assert told is not None
    assert {row["experiment"] for row in told["rows"]} == {"gemm", "numerics"}
    assert f"of {table['all']['points']}" in told["all"]
    text = "\n".join(repeat.lines(table))
    assert "gemm" in text and text.endswith("below 90%: none")


def test_synthetic_data_and_other_machines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StudyError, match="synthetic"):
        repeat.compare_runs(run(tmp_path, 1, points=2), run(tmp_path, 2, points=2))
    monkeypatch.setattr(repeat, "read_nodes", lambda folders: read_nodes(folders, True))
    other = Factory(tmp_path / "other")("node-b").point("gemm", 1e-3, params={"m": 0, "n": 8, "k": 8}).write()
    with pytest.raises(StudyError, match=r"node-a.*node-b.*the same machine"):
        repeat.compare_runs(run(tmp_path, 3, points=2), other)


def test_a_table_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "repeat.json"
    path.write_text(json.dumps({"origin": "synthetic"}), encoding="utf-8")
    with pytest.raises(StudyError, match=r"repeat\.json"):
        repeat.read_repeat(path)
    assert repeat.read_repeat(tmp_path / "none.json") is None


def test_the_level_is_the_customary_one_and_not_the_deciding_one() -> None:
    assert repeat.LEVEL < statistics.DECIDING
