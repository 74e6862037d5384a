"""Test that new simulations agree with the published error rates, and that simulated data stays out of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.errors import StudyError, run_command
from contract.files import read_checked_json
from contract.sample_table import write_samples
from report import PACKAGE, ROOT, statistics
from report.cli import main
from report.data.gather import gather
from report.pages.families import checks
from report.pages.figure_data import Evidence
from report.statistics import DECIDING
from studies.calibration.__main__ import (
    ANSWERS,
    EVERYTHING,
    SETTINGS,
    USUAL,
    WIDTHS,
    Setting,
    calibration_table,
    simulate_setting,
)
from studies.calibration.simulated_machines import Machines, Noise, make_samples, noise_factors
from tests.report.conftest import Factory

SMALL = [
    Setting(USUAL, 3, 40, 100),
    Setting(USUAL, 3, 2, 1500),
    Setting(Noise(unequal=3, heavy=True), 5, 10, 400),
    Setting(EVERYTHING, 5, 10, 400),
]
SEED = 7


def published_table() -> Any:
    """Read the published error rates."""
    return read_checked_json(ROOT / "data" / "calibration.json", PACKAGE / "schemas" / "calibration.schema.json")


def deviation(setting: Setting) -> float:
    """Return the largest deviation between a small new simulation and the published row, in standard errors."""
    wanted = (setting.question.says, setting.noise.describe(), setting.rounds, setting.points)
    names = ("question", "noise", "rounds", "points")
    (published_row,) = [row for row in published_table()["rows"] if tuple(row[name] for name in names) == wanted]
    seen = simulate_setting(setting, [SEED])
    apart = []
    for answer in ("supported", "challenged", "undecided"):
        errors = [(share["high"] - share["low"]) / (2 * 1.96) for share in (seen[answer], published_row[answer])]
        apart.append(abs(seen[answer]["share"] - published_row[answer]["share"]) / float(np.hypot(*errors)))
    return max(apart)


@pytest.mark.parametrize("setting", SMALL, ids=lambda setting: f"{setting.rounds} rounds, {setting.points} points")
def test_small_run_agrees_with_published_table(setting: Setting) -> None:
    assert deviation(setting) < 4


def test_too_narrow_intervals_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = statistics.half_width
    monkeypatch.setattr(statistics, "half_width", lambda *args, **kwargs: 0.8 * whole(*args, **kwargs))
    assert min(deviation(setting) for setting in (SMALL[0], SMALL[2])) > 5


def test_table_is_deterministic() -> None:
    settings = [Setting(USUAL, 3, 10, 20), Setting(USUAL, 5, 4, 20, "exists")]
    rows = [calibration_table(settings, seed)["rows"] for seed in (3, 3, 4)]
    assert rows[0] == rows[1] != rows[2]


def test_published_table_is_complete_with_few_wrong_verdicts() -> None:
    table = published_table()
    assert (table["origin"], table["level"]) == ("synthetic", DECIDING)
    rows = table["rows"]
    settings = [(row["question"], row["noise"], row["rounds"], row["points"]) for row in rows]
    assert settings == [
        (setting.question.says, setting.noise.describe(), setting.rounds, setting.points) for setting in SETTINGS
    ]
    for row in rows:
        assert sum(row[answer]["share"] for answer in ANSWERS) == pytest.approx(1)
        assert all(share["low"] <= share["share"] <= share["high"] for share in (row[answer] for answer in ANSWERS))
        assert max(row[how]["share"] for how in ANSWERS[:2]) <= 1 - DECIDING
        assert row["trials"] >= 10_000 or row["rounds"] == 1, "too few to resolve one in a hundred"
        # With one round, every verdict is undecided. With more than two rounds, verdicts far from the threshold are
        # right.
        assert row["rounds"] > 1 or (row["undecided"]["share"] == 1 and row["width"] is None)
        shares = [right["share"] for right in row["right"]]
        if row["rounds"] > 2 and shares:
            assert [right["widths"] for right in row["right"]] == list(WIDTHS)
            assert shares == sorted(shares) and shares[-1] > 0.98


@pytest.mark.parametrize("noise", [Noise(between=0.02), Noise(heavy=True), Noise(shared=0.5), Noise(unequal=1)])
def test_noise_has_its_spread(noise: Noise) -> None:
    log = np.log(noise_factors(noise, Machines(4000, 2, 5), np.random.default_rng(1)))
    medians = np.median(log, axis=-1)
    within = noise.within * 1.2 / np.sqrt(5)
    assert medians.std() == pytest.approx(np.hypot(noise.between, within), rel=0.05)
    assert np.mean(medians) == pytest.approx(0, abs=0.001)
    correlation = np.corrcoef(medians[:, 0, 0].ravel(), medians[:, 0, 1].ravel())[0, 1]
    assert correlation == pytest.approx(noise.shared * (noise.between / medians.std()) ** 2, abs=0.03)


def test_engine_refuses_simulated_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = Factory(tmp_path)("synthetic-000000").write(), tmp_path / "data"
    machines = Machines(1, 10, 3)
    simulated = make_samples(noise_factors(USUAL, machines, np.random.default_rng(1)), machines)
    for number, part in simulated.groupby("round"):
        write_samples(folder / f"synthetic.cpu.{number}.parquet", part.reset_index(drop=True), {"seed": 1})

    def assert_refused(*command: str) -> None:
        capsys.readouterr()
        assert run_command(main, command) == StudyError.exit_code
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and "synthetic" in line and "tests only" in line

    assert_refused("gather", "--nodes", str(folder), "--out", str(data))
    assert not data.exists()
    gather([folder], data, allow_synthetic=True)
    assert_refused("judge", "--data", str(data), "--out", str(tmp_path / "verdicts.json"))
    assert not (tmp_path / "verdicts.json").exists()


def test_table_with_other_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "read_table", lambda name: {**published_table(), "level": 0.5} if name == "calibration" else None
    )
    with pytest.raises(StudyError, match=r"calibration\.json.*make it again"):
        list(checks.show(Evidence({"nodes": [], "verdicts": []}, None)))
