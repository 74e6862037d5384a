"""The published rates of error are the engine's, can tell a wrong one, and rest on data that only tests may use."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.errors import StudyError, run_command
from contract.tables import validate, write_samples
from report import statistics
from report.cli import main
from report.data.gather import gather
from report.render.calibrated import TABLE, read_calibration
from report.statistics import DECIDING
from studies.calibration.__main__ import EVERYTHING, SETTINGS, USUAL, row, table
from studies.calibration.machines import Machines, Noise, disturbance, samples
from studies.calibration.trials import ANSWERS, WIDTHS, Setting, run

from .conftest import Factory

# Twice what the level leaves to each side: what moderation and odd noise may cost.
ALLOWED = 1 - DECIDING
SMALL = [
    Setting(USUAL, 3, 40, 100),
    Setting(USUAL, 3, 2, 1500),
    Setting(Noise(unequal=3, heavy=True), 5, 10, 400),
    Setting(EVERYTHING, 5, 10, 400),
]
SEED = 7


def published(setting: Setting) -> dict[str, Any]:
    """The table's row of a setting."""
    wanted = (setting.question.says, setting.noise.describe(), setting.rounds, setting.points)
    names = ("question", "noise", "rounds", "points")
    (found,) = [one for one in read_calibration()["rows"] if tuple(one[name] for name in names) == wanted]
    return dict(found)


def differ(one: dict[str, float], other: dict[str, float]) -> float:
    """By how many standard errors of the difference two shares differ, from their 95% intervals."""
    errors = [(share["high"] - share["low"]) / (2 * 1.96) for share in (one, other)]
    return abs(one["share"] - other["share"]) / float(np.hypot(*errors))


def strays(setting: Setting) -> float:
    """By how much a fresh, small simulation strays from the published row: in standard errors, the worst answer."""
    seen, told = row(setting, run(setting, [SEED])), published(setting)
    return max(differ(seen[answer], told[answer]) for answer in ("supported", "challenged", "undecided"))


# ------------------------------------------------------------------ the table is the engine's


@pytest.mark.parametrize("setting", SMALL, ids=lambda one: f"{one.rounds} rounds, {one.points} points")
def test_a_small_run_agrees_with_the_published_table(setting: Setting) -> None:
    assert strays(setting) < 4


def test_intervals_a_fifth_too_narrow_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = statistics.half_width
    monkeypatch.setattr(statistics, "half_width", lambda *given, **named: 0.8 * whole(*given, **named))
    assert min(strays(setting) for setting in (SMALL[0], SMALL[2])) > 5


def test_the_table_is_the_same_for_the_same_seed() -> None:
    settings = [Setting(USUAL, 3, 10, 20), Setting(USUAL, 5, 4, 20, "exists")]
    assert table(settings, 3) == table(settings, 3) != table(settings, 4)


def test_every_setting_is_in_the_table_in_order() -> None:
    told = [(one["question"], one["noise"], one["rounds"], one["points"]) for one in read_calibration()["rows"]]
    wanted = [(one.question.says, one.noise.describe(), one.rounds, one.points) for one in SETTINGS]
    assert told == wanted and len(set(told)) == len(told)


def test_wrong_verdicts_are_rare() -> None:
    rows = read_calibration()["rows"]
    often = {(one["question"], one["noise"]) for one in rows if max(one[how]["share"] for how in ANSWERS[:2]) > ALLOWED}
    assert not often
    assert all(one["trials"] >= 10_000 for one in rows if one["rounds"] > 1), "too few to resolve one in a hundred"


def test_one_round_decides_nothing() -> None:
    (one,) = [one for one in read_calibration()["rows"] if one["rounds"] == 1]
    assert one["undecided"]["share"] == 1 and one["width"] is None


def test_away_from_the_threshold_the_verdict_is_right() -> None:
    for one in read_calibration()["rows"]:
        shares = [right["share"] for right in one["right"]]
        if one["rounds"] > 2 and shares:
            assert [right["widths"] for right in one["right"]] == list(WIDTHS)
            assert shares == sorted(shares) and shares[-1] > 0.98


# ------------------------------------------------------------------ the simulation is what it says


def test_the_samples_conform_to_the_contract() -> None:
    machines = Machines(1, 3, 2, ("cpu", "cuda:0"))
    made = samples(disturbance(EVERYTHING, machines, np.random.default_rng(1)), machines)
    assert len(validate(made, "simulated")) == 3 * 2 * 2 * 5
    assert set(made["origin"]) == {"synthetic"}


@pytest.mark.parametrize("noise", [Noise(between=0.02), Noise(heavy=True), Noise(shared=0.5), Noise(unequal=1)])
def test_the_noise_has_the_spread_it_says(noise: Noise) -> None:
    log = np.log(disturbance(noise, Machines(4000, 2, 5), np.random.default_rng(1)))
    medians = np.median(log, axis=-1)
    within = noise.within * 1.2 / np.sqrt(5)
    assert medians.std() == pytest.approx(np.hypot(noise.between, within), rel=0.05)
    assert np.mean(medians) == pytest.approx(0, abs=0.001)
    correlation = np.corrcoef(medians[:, 0, 0].ravel(), medians[:, 0, 1].ravel())[0, 1]
    assert correlation == pytest.approx(noise.shared * (noise.between / medians.std()) ** 2, abs=0.03)


def test_outliers_slow_rounds_and_drift_are_there() -> None:
    log = np.log(disturbance(Noise(1e-6, 1e-6, outliers=0.05), Machines(400, 10, 5), np.random.default_rng(1)))
    assert np.mean(log > 0.4) == pytest.approx(0.05, abs=0.005) and log.max() < np.log(10.1)
    log = np.log(disturbance(Noise(1e-6, 1e-6, disturbed=0.1), Machines(400, 10, 5), np.random.default_rng(1)))
    assert np.mean(np.isclose(log, np.log(1.2), atol=1e-4)) == pytest.approx(0.1, abs=0.01)
    log = np.log(disturbance(Noise(1e-6, 1e-6, drift=0.05), Machines(2, 2, 5), np.random.default_rng(1)))
    rounds = log.mean(axis=(0, 1, 2, 4))
    assert rounds[-1] - rounds[0] == pytest.approx(np.log(1.05), rel=1e-3) and rounds[2] == pytest.approx(0, abs=1e-5)


# ------------------------------------------------------------------ only tests may use it


@pytest.fixture
def node(synthetic: Factory) -> Path:
    """A simulated node as a folder, written through the contract."""
    made = synthetic("synthetic-000000")
    folder = made.write()
    machines = Machines(1, 10, 3)
    simulated = samples(disturbance(USUAL, machines, np.random.default_rng(1)), machines)
    for number, part in simulated.groupby("round"):
        write_samples(folder / f"synthetic.cpu.{number}.parquet", part.reset_index(drop=True), {"seed": 1})
    return folder


def refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that fails says: one line."""
    capsys.readouterr()
    assert run_command(main, command) == StudyError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "synthetic" in line
    return line


def test_the_engine_refuses_to_gather_simulated_nodes(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(["gather", "--nodes", str(node), "--out", str(tmp_path / "data")], capsys)
    assert str(node) in line and "tests only" in line
    assert not (tmp_path / "data").exists()


def test_the_engine_refuses_to_judge_simulated_data(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gather([node], tmp_path / "data", allow_synthetic=True)
    out = tmp_path / "verdicts.json"
    assert "tests only" in refused(["judge", "--data", str(tmp_path / "data"), "--out", str(out)], capsys)
    assert not out.exists()


# ------------------------------------------------------------------ a faulty table


def _set(document: dict[str, Any], place: list[Any], value: Any) -> None:
    for step in place[:-1]:
        document = document[step]
    document[place[-1]] = value


@pytest.mark.parametrize(
    ("break_", "says"),
    [
        (partial(_set, place=["origin"], value="measured"), "origin"),
        (partial(_set, place=["level"], value=0.5), "decide by"),
        (partial(_set, place=["rows", 0, "trails"], value=1), "Did you mean 'trials'"),
        (partial(_set, place=["rows", 0, "supported", "share"], value=0.9), "add up to"),
        (partial(_set, place=["rows", 2, "supported", "low"], value=1.0), "outside of its interval"),
        (partial(_set, place=["rows", 2, "right", 0, "high"], value=0.0), "right at 1 widths"),
    ],
    ids=["origin", "level", "key", "sum", "interval", "right"],
)
def test_a_faulty_table_is_refused_in_one_sentence(
    tmp_path: Path, break_: Callable[[dict[str, Any]], None], says: str
) -> None:
    document = copy.deepcopy(json.loads(TABLE.read_text(encoding="utf-8")))
    break_(document)
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StudyError, match=r"calibration\.json") as fault:
        read_calibration(path)
    assert says in str(fault.value)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such file"):
        read_calibration(tmp_path / "calibration.json")
