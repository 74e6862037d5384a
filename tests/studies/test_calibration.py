"""Test that new simulations agree with the published error rates, and that simulated data stays out of reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import StudyError, run_command
from contract.files import read_checked_json
from contract.sample_table import write_samples
from report import PACKAGE, ROOT, statistics
from report.cli import main
from report.data.gather import gather
from report.pages.families import checks
from report.pages.figure_data import Evidence
from report.statistics import DECIDING
from studies.calibration.__main__ import EVERYTHING, ROUNDS, SETTINGS, SYMMETRIC, calibration_table
from studies.calibration.coverage import coverage_rows
from studies.calibration.looks import SCHEMES, Scheme, judge_at_looks, look_rows
from studies.calibration.node_rounds import noise_figures, noise_rows, simulated_logs
from studies.calibration.questions import ANSWERS, QUESTIONS, WIDTHS, Setting, simulate_setting
from studies.calibration.rates import rate
from studies.calibration.simulated_machines import (
    NODE_NOISES,
    USUAL,
    Machines,
    Noise,
    make_samples,
    noise_factors,
)
from tests.report.conftest import Factory

SMALL = [
    Setting(SYMMETRIC, 3, 40, 100),
    Setting(SYMMETRIC, 3, 2, 1500),
    Setting(Noise(unequal=3, heavy=True), 5, 10, 400),
    Setting(EVERYTHING, 5, 10, 400),
    Setting(USUAL, 3, 40, 100),
    Setting(replace(USUAL, session=0.5), 5, 40, 100),
    Setting(USUAL, 3, 40, 100, "share of time"),
    Setting(SYMMETRIC, 3, 10, 200, "every 0.5"),
    Setting(SYMMETRIC, 3, 40, 100, "most, half at"),
    Setting(SYMMETRIC, 3, 13, 200, "near list 13 1 6"),
]
SEED = 7


def published_table() -> Any:
    """Read the published error rates."""
    return read_checked_json(ROOT / "data" / "calibration.json", PACKAGE / "schemas" / "calibration.schema.json")


def deviation(setting: Setting) -> float:
    """Return the largest deviation between a small new simulation and the published row, in standard errors."""
    wanted = (setting.question_name, setting.noise.describe(), setting.rounds, setting.points)
    names = ("key", "noise", "rounds", "points")
    (published_row,) = [row for row in published_table()["rows"] if tuple(row[name] for name in names) == wanted]
    seen = simulate_setting(setting, [SEED])
    apart = []
    for answer in ANSWERS:
        errors = [(share["high"] - share["low"]) / (2 * 1.96) for share in (seen[answer], published_row[answer])]
        apart.append(abs(seen[answer]["share"] - published_row[answer]["share"]) / float(np.hypot(*errors)))
    return max(apart)


@pytest.mark.parametrize(
    "setting", SMALL, ids=lambda s: f"{s.question_name}, {s.noise.describe()[:8]}, {s.points} points"
)
def test_small_run_agrees_with_published_table(setting: Setting) -> None:
    assert deviation(setting) < 4


def test_too_narrow_intervals_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = statistics.half_width
    monkeypatch.setattr(statistics, "half_width", lambda *args, **kwargs: 0.8 * whole(*args, **kwargs))
    assert min(deviation(setting) for setting in (SMALL[0], SMALL[2])) > 5


def test_table_is_deterministic() -> None:
    settings = [Setting(SYMMETRIC, 3, 10, 20), Setting(SYMMETRIC, 5, 4, 20, "exists")]
    rows = [calibration_table(settings, seed)["rows"] for seed in (3, 3, 4)]
    assert rows[0] == rows[1] != rows[2]


def test_published_table_is_complete_with_few_wrong_verdicts() -> None:
    table = published_table()
    assert (table["origin"], table["level"]) == ("synthetic", DECIDING)
    rows = table["rows"]
    settings = [(row["key"], row["question"], row["noise"], row["rounds"], row["points"]) for row in rows]
    assert settings == [
        (setting.question_name, setting.question.says, setting.noise.describe(), setting.rounds, setting.points)
        for setting in SETTINGS
    ]
    for row in rows:
        assert sum(row[answer]["share"] for answer in ANSWERS) == pytest.approx(1)
        assert all(share["low"] <= share["share"] <= share["high"] for share in (row[answer] for answer in ANSWERS))
        # Errors are more frequent if sessions differ, or if most units on a list lie at the threshold. All other rates
        # are 1% or less, as far as the simulation can tell.
        if not row["session"] and not row["key"].startswith("near list"):
            assert max(row[answer]["low"] for answer in row["wrong"]) <= 1 - DECIDING
            assert max(row[answer]["share"] for answer in row["wrong"]) <= 1.2 * (1 - DECIDING)
        assert row["trials"] >= (3_000 if row["many"] else 10_000) or row["rounds"] == 1
        # With one round, every verdict is undecided. With more than two rounds, verdicts far from the threshold are
        # right.
        assert row["rounds"] > 1 or (row["undecided"]["share"] == 1 and row["width"] is None)
        shares = [right["share"] for right in row["right"]]
        if row["rounds"] > 2 and shares:
            assert [right["widths"] for right in row["right"]] == list(WIDTHS)
            assert shares == sorted(shares) and shares[-1] > 0.98
    assert {(row["noise"], row["rounds"]) for row in table["coverage"]} == {
        (noise.describe(), rounds) for noise in (SYMMETRIC, *NODE_NOISES) for rounds in ROUNDS
    }
    for row in table["coverage"]:
        # One-sided outliers shift the mean, so that with many rounds, coverage at lower levels is worse.
        assert row["covered"][-1]["level"] == DECIDING and row["covered"][-1]["share"] > DECIDING - 0.005
        assert all(covered["width"] > 0 for covered in row["covered"])
    for row in table["looks"]:
        assert max(row["above"]["share"], row["below"]["share"]) <= 1 - DECIDING
    for row in table["sessions"]:
        errors = [row["included"][side] for side in ("above", "below")]
        assert max(error["low"] for error in errors) <= 1 - DECIDING
        assert max(error["share"] for error in errors) <= 1.2 * (1 - DECIDING)
        assert row["included"]["width"] > row["without"]["width"]
    assert max(row["without"]["above"]["share"] for row in table["sessions"]) > 2 * (1 - DECIDING)


@pytest.mark.parametrize("noise", [Noise(between=0.02), Noise(heavy=True), Noise(shared=0.5), Noise(unequal=1)])
def test_noise_has_its_spread(noise: Noise) -> None:
    log = np.log(noise_factors(noise, Machines(4000, 2, 5), np.random.default_rng(1)))
    medians = np.median(log, axis=-1)
    within = noise.within * 1.2 / np.sqrt(5)
    assert medians.std() == pytest.approx(np.hypot(noise.between, within), rel=0.05)
    assert np.mean(medians) == pytest.approx(0, abs=0.001)
    correlation = np.corrcoef(medians[:, 0, 0].ravel(), medians[:, 0, 1].ravel())[0, 1]
    assert correlation == pytest.approx(noise.shared * (noise.between / medians.std()) ** 2, abs=0.03)


@settings(max_examples=40, deadline=None)
@given(
    between=st.floats(0.01, 0.1),
    unevenness=st.floats(0, 0.8),
    shared=st.floats(0, 0.8),
    late=st.tuples(st.floats(0, 0.3), st.floats(0, 0.3)),
    lateness=st.floats(0.02, 0.5),
    session=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_noise_has_its_declared_moments(
    between: float, unevenness: float, shared: float, late: tuple[float, float], lateness: float, session: float,
    seed: int,
) -> None:  # fmt: skip
    noise = Noise(
        between, 0.0, unevenness=unevenness, shared=shared, late_points=late[0], late_rounds=late[1], lateness=lateness,
        session=session,
    )  # fmt: skip
    nodes, points, rounds = 4000, 3, 4
    logs = np.log(noise_factors(noise, Machines(nodes, points, rounds), np.random.default_rng(seed)))[..., 0]
    logs = logs.reshape(nodes, points, rounds)
    # The mean of an exponential variable is `lateness`, and its second moment twice the square.
    late_variance = sum(share * (2 - share) for share in late) * lateness**2
    square = between**2 * np.exp(2 * unevenness**2)
    variance = square * (1 + session**2) + late_variance
    # Nodes are independent, so their means and squares give the standard errors.
    means, squares = logs.mean(axis=(1, 2)), ((logs - logs.mean()) ** 2).mean(axis=(1, 2))
    assert abs(means.mean() - sum(late) * lateness) < 5.5 * means.std() / np.sqrt(nodes)
    # With uneven spreads, squares have heavy tails, and their spread is estimated too low now and then.
    assert abs(squares.mean() - variance) < 8 * squares.std() / np.sqrt(nodes) + 0.02 * variance
    # Two points have a round's part in common; their spreads are independent.
    products = (logs[:, 0] - logs[:, 0].mean()) * (logs[:, 1] - logs[:, 1].mean())
    common = shared * between**2 * np.exp(unevenness**2) + late[1] * (2 - late[1]) * lateness**2
    each = products.mean(axis=1)
    assert abs(each.mean() - common) < 8 * each.std() / np.sqrt(nodes) + 0.02 * common


def test_intervals_are_right_for_symmetric_noise_and_logit_shares_are_narrower() -> None:
    rows = {row["quantity"]: row["covered"] for row in coverage_rows(SYMMETRIC, 3, [1], nodes=100)}
    for covered in rows.values():
        for entry in covered:
            assert entry["share"] == pytest.approx(entry["level"], abs=0.025)
    logit, linear = (rows[f"share of time, {how}"][1]["width"] for how in ("by its log odds", "on the linear scale"))
    assert logit < 0.5 * linear


def test_looks_decide_nearly_as_much_as_all_rounds_in_fewer() -> None:
    rows = {tuple(row["looks"]): row for row in look_rows(SYMMETRIC, [1], nodes=100)}
    demand, every, few = rows[3, 5, 8], rows[8,], rows[3,]
    assert len(rows) == len(SCHEMES)
    assert few["decided"]["share"] + 0.05 < demand["decided"]["share"] < every["decided"]["share"] + 0.02
    assert 3 < demand["rounds"] < 6
    assert max(demand[side]["share"] for side in ("above", "below")) < 0.015


def test_decided_case_stays_decided() -> None:
    # Two points: the first is decided after three rounds, and its later rounds would say the contrary.
    logs = np.array([[0.9, 1.0, 1.1, -9.0, -9.0], [-1.0, 1.0, 0.0, 0.1, -0.1]])
    sides, rounds = judge_at_looks(np.exp(logs)[None, None], np.array([[0.0, 0.0]]), Scheme((3, 5), 0.9))
    assert sides.tolist() == [[1, 0]] and rounds.tolist() == [[3, 5]]


def test_usual_noise_is_like_that_of_published_nodes() -> None:
    rows = {row["of"]: row for row in noise_rows(ROOT / "data" / "nodes", 1)}
    measured = [row for row in rows.values() if row["origin"] == "measured" and row["points"] > 500]
    usual = rows[USUAL.name]
    assert measured
    for row in measured:
        assert usual["spread"] == pytest.approx(row["spread"], rel=0.25)
        assert usual["unevenness"] == pytest.approx(row["unevenness"], rel=0.15)
        assert usual["late"] == pytest.approx(row["late"], abs=0.06)
        assert usual["slow"] == pytest.approx(row["slow"], abs=0.03)


def test_noise_figures_of_known_noise() -> None:
    even = noise_figures(simulated_logs(Noise(0.05, 0.0), [1]))
    # The median standard deviation of three normal values is sqrt(ln 2) times their own.
    assert even["spread"] == pytest.approx(0.05 * np.sqrt(np.log(2)), rel=0.03)
    assert even["late"] == pytest.approx(0.5, abs=0.02) and even["slow"] < 0.03
    together = noise_figures(simulated_logs(Noise(0.05, 0.0, shared=0.9), [1]))
    assert even["correlation"] < 0.05 and 0.7 < together["correlation"] <= 1


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=50))
def test_rate_lies_in_its_interval(trials: list[tuple[int, int]]) -> None:
    hits, misses = np.array(trials).T
    if (hits + misses).sum():
        result = rate(hits, hits + misses)
        assert 0 <= result["low"] <= result["share"] <= result["high"] <= 1
        assert result["share"] == pytest.approx(hits.sum() / (hits + misses).sum())


def test_minority_is_no_part_of_a_single_result() -> None:
    """Both sides err as often as intervals miss, because each result is judged alone."""
    row = simulate_setting(Setting(SYMMETRIC, 3, 40, 250), [3])
    assert row["supported"]["share"] > 0.002 and row["challenged"]["share"] > 0.002


def test_every_question_is_in_a_setting() -> None:
    assert {setting.question_name for setting in SETTINGS} == set(QUESTIONS)


def test_engine_refuses_simulated_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = Factory(tmp_path)("synthetic-000000").write(), tmp_path / "data"
    machines = Machines(1, 10, 3)
    simulated = make_samples(noise_factors(SYMMETRIC, machines, np.random.default_rng(1)), machines)
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
