"""Test that two runs agree at as many points as the confidence level says, and that drift is detected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contract.errors import StudyError
from contract.files import read_checked_json
from report import PACKAGE
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.statistics import DECIDING
from studies import repeatability as repeat
from tests.report.conftest import Factory


def make_run(root: Path, seed: int, factor: float = 1.0, points: int = 400, name: str = "node-a") -> Path:
    """Make a folder with one run on one node.

    Each point's times scatter around a mean, which depends on `factor` but not on the seed.
    """
    node = Factory(root / str(seed))(name, seed=seed)
    for n in range(points):
        node.point("gemm", factor * 1e-3 * (n + 1), params={"m": n, "n": 8, "k": 8}, spread=0.03, rounds=4)
    node.point("numerics", {"repeat_share": 1.0}, params={"m": 1}, spread=0.0)
    return node.write()


def make_summary(folder: Path) -> pd.DataFrame:
    return Dataset(read_nodes([folder], True)).table


def products(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    points = repeat.compare_points(first, second)
    return points[points["experiment"] == "gemm"]


@pytest.fixture
def accept_synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the command to accept synthetic data."""
    monkeypatch.setattr(repeat, "read_nodes", lambda folders: read_nodes(folders, True))


def test_random_differences_agree_at_the_level(tmp_path: Path) -> None:
    comparison = products(make_summary(make_run(tmp_path, 1)), make_summary(make_run(tmp_path, 2)))
    # If 400 points each agree with probability 95%, the share that agrees is in this range with probability 0.995.
    assert 0.92 <= comparison["agrees"].mean() <= 0.98 and repeat.LEVEL < DECIDING
    assert np.allclose(np.sqrt(comparison["low"] * comparison["high"]), comparison["ratio"])


def test_common_drift_is_removed_and_single_drift_is_not(tmp_path: Path) -> None:
    first, second = make_summary(make_run(tmp_path, 1)), make_summary(make_run(tmp_path, 2, factor=1.5))
    alone = second["params"].str.contains('"m": 7,')
    second.loc[alone, ["estimate", "low", "high"]] *= 3
    comparison = products(first, second)
    assert comparison["agrees"].mean() < 0.05 and 0.92 <= comparison["agrees_beside"].mean() <= 0.98
    assert not comparison.loc[comparison["params"].str.contains('"m": 7,'), "agrees_beside"].any() and alone.sum() == 1
    assert comparison["ratio"].median() == pytest.approx(1.5, rel=0.02)
    assert '"m": 7,' in repeat._summarise_experiment("gemm", comparison)["worst"]["params"]


def test_clock_ratio_is_reported(tmp_path: Path, accept_synthetic: None) -> None:
    runs = [Factory(tmp_path / name)("node-a").clock(hertz, spread=0.001).write()
            for name, hertz in (("one", 3.0e9), ("two", 3.3e9))]  # fmt: skip
    assert repeat.compare_runs(*runs)["clock"] == pytest.approx(1.1, rel=1e-3)


def test_counts_are_compared_relatively_and_shares_absolutely(tmp_path: Path) -> None:
    def make_counts(seed: int, **values: float) -> pd.DataFrame:
        node = Factory(tmp_path / str(seed))("node-a", seed=seed)
        return make_summary(node.point("time-to-train", values, params={"job": "j"}, unit="1", spread=0.02).write())

    comparison = repeat.compare_points(
        make_counts(1, steps=60.0, repeat_share=0.5), make_counts(2, steps=90.0, repeat_share=0.75)
    )
    ratios = comparison.set_index("metric")["ratio"].to_dict()
    assert ratios == {"repeat_share": pytest.approx(1.25, abs=0.03), "steps": pytest.approx(1.5, abs=0.05)}


@pytest.mark.parametrize(("value", "agrees"), [(1.0, True), (0.5, False)])
def test_exact_values_agree_only_if_equal(tmp_path: Path, value: float, agrees: bool) -> None:
    first = make_summary(make_run(tmp_path, 1, points=1))
    second = first.copy()
    second.loc[second["experiment"] == "numerics", ["estimate", "low", "high"]] = value
    comparison = repeat.compare_points(first, second)
    assert comparison.loc[comparison["experiment"] == "numerics", "agrees"].tolist() == [agrees]


def test_table_is_printed_and_written_for_the_report(
    tmp_path: Path, accept_synthetic: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "repeat.json"
    repeat.main([str(make_run(tmp_path, 1)), str(make_run(tmp_path, 2)), "--out", str(out)])
    assert "gemm" in (printed := capsys.readouterr().out) and printed.endswith("below 90%: none\n")
    table = read_checked_json(out, PACKAGE / "schemas" / "repeat.schema.json")
    assert table is not None and {experiment["experiment"] for experiment in table["experiments"]} == {
        "gemm",
        "numerics",
    }


def test_synthetic_data_and_other_machines_are_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first, second = make_run(tmp_path, 1, points=2), make_run(tmp_path, 2, points=2, name="node-b")
    with pytest.raises(StudyError, match="synthetic"):
        repeat.compare_runs(first, first)
    request.getfixturevalue("accept_synthetic")
    with pytest.raises(StudyError, match=r"node-a.*node-b.*the same machine"):
        repeat.compare_runs(first, second)
