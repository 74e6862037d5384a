"""The published rates of error are the engine's, can tell a wrong one, and rest on data that only tests may use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.errors import StudyError, run_command
from contract.tables import write_samples
from report import statistics
from report.cli import main
from report.data.gather import gather
from report.render.calibrated import TABLE, read_calibration
from report.statistics import DECIDING
from studies.calibration.__main__ import EVERYTHING, SETTINGS, USUAL, row, table
from studies.calibration.machines import Machines, Noise, disturbance, samples
from studies.calibration.trials import ANSWERS, WIDTHS, Setting, run
from tests.report.conftest import Factory

SMALL = [
    Setting(USUAL, 3, 40, 100),
    Setting(USUAL, 3, 2, 1500),
    Setting(Noise(unequal=3, heavy=True), 5, 10, 400),
    Setting(EVERYTHING, 5, 10, 400),
]
SEED = 7


def strays(setting: Setting) -> float:
    """By how much a fresh, small simulation strays from the published row: in standard errors, the worst answer."""
    wanted = (setting.question.says, setting.noise.describe(), setting.rounds, setting.points)
    names = ("question", "noise", "rounds", "points")
    (told,) = [one for one in read_calibration()["rows"] if tuple(one[name] for name in names) == wanted]
    seen = row(setting, run(setting, [SEED]))
    apart = []
    for answer in ("supported", "challenged", "undecided"):
        errors = [(share["high"] - share["low"]) / (2 * 1.96) for share in (seen[answer], told[answer])]
        apart.append(abs(seen[answer]["share"] - told[answer]["share"]) / float(np.hypot(*errors)))
    return max(apart)


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


def test_the_published_table_has_every_setting_and_wrong_verdicts_are_rare_in_it() -> None:
    rows = read_calibration()["rows"]
    told = [(one["question"], one["noise"], one["rounds"], one["points"]) for one in rows]
    assert told == [(one.question.says, one.noise.describe(), one.rounds, one.points) for one in SETTINGS]
    for one in rows:
        assert max(one[how]["share"] for how in ANSWERS[:2]) <= 1 - DECIDING
        assert one["trials"] >= 10_000 or one["rounds"] == 1, "too few to resolve one in a hundred"
        # One round decides nothing; away from the threshold the verdict is right.
        assert one["rounds"] > 1 or (one["undecided"]["share"] == 1 and one["width"] is None)
        shares = [right["share"] for right in one["right"]]
        if one["rounds"] > 2 and shares:
            assert [right["widths"] for right in one["right"]] == list(WIDTHS)
            assert shares == sorted(shares) and shares[-1] > 0.98


@pytest.mark.parametrize("noise", [Noise(between=0.02), Noise(heavy=True), Noise(shared=0.5), Noise(unequal=1)])
def test_the_noise_has_the_spread_it_says(noise: Noise) -> None:
    log = np.log(disturbance(noise, Machines(4000, 2, 5), np.random.default_rng(1)))
    medians = np.median(log, axis=-1)
    within = noise.within * 1.2 / np.sqrt(5)
    assert medians.std() == pytest.approx(np.hypot(noise.between, within), rel=0.05)
    assert np.mean(medians) == pytest.approx(0, abs=0.001)
    correlation = np.corrcoef(medians[:, 0, 0].ravel(), medians[:, 0, 1].ravel())[0, 1]
    assert correlation == pytest.approx(noise.shared * (noise.between / medians.std()) ** 2, abs=0.03)


def test_the_engine_refuses_to_gather_or_judge_simulated_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = Factory(tmp_path)("synthetic-000000").write(), tmp_path / "data"
    machines = Machines(1, 10, 3)
    simulated = samples(disturbance(USUAL, machines, np.random.default_rng(1)), machines)
    for number, part in simulated.groupby("round"):
        write_samples(folder / f"synthetic.cpu.{number}.parquet", part.reset_index(drop=True), {"seed": 1})

    def refused(*command: str) -> None:
        capsys.readouterr()
        assert run_command(main, command) == StudyError.exit_code
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and "synthetic" in line and "tests only" in line

    refused("gather", "--nodes", str(folder), "--out", str(data))
    assert not data.exists()
    gather([folder], data, allow_synthetic=True)
    refused("judge", "--data", str(data), "--out", str(tmp_path / "verdicts.json"))
    assert not (tmp_path / "verdicts.json").exists()


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (["origin"], "measured", "origin"),
        (["level"], 0.5, "decide by"),
        (["rows", 0, "trails"], 1, "Did you mean 'trials'"),
        (["rows", 0, "supported", "share"], 0.9, "add up to"),
        (["rows", 2, "supported", "low"], 1.0, "outside of its interval"),
        (["rows", 2, "right", 0, "high"], 0.0, "right at 1 widths"),
        ([], None, "no such file"),
    ],
)
def test_a_faulty_table_is_refused_in_one_sentence(tmp_path: Path, place: list[Any], value: Any, says: str) -> None:
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    inside = document
    for step in place[:-1]:
        inside = inside[step]
    if place:
        inside[place[-1]] = value
        (tmp_path / "calibration.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StudyError, match=rf"calibration\.json.*{says}"):
        read_calibration(tmp_path / "calibration.json")
