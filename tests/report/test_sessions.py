"""Test the spread between sessions: rounds at least an hour apart. All data are synthetic."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report import statistics
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.sessions import number_sessions
from report.statistics import SessionSpread, log_estimates

from .conftest import Factory

START = pd.Timestamp("2026-01-01T08:00:00Z")


def rounds_at(*minutes: tuple[float, float], node: str = "a") -> pd.DataFrame:
    """Return rounds that start and end at these minutes."""
    times = [[str(START + pd.Timedelta(minutes=each)) for each in both] for both in minutes]
    return pd.DataFrame(times, columns=["started_utc", "ended_utc"]).assign(node=node)


def test_session_ends_with_an_hour_without_measuring() -> None:
    rounds = rounds_at((0, 10), (69, 80), (140, 150), (11, 12))
    assert number_sessions(rounds).tolist() == [1, 1, 2, 1]


def test_round_without_a_time_leaves_one_session() -> None:
    rounds = rounds_at((0, 10), (500, 510)).assign(ended_utc=lambda table: [table["ended_utc"][0], None])
    other = rounds_at((0, 10), (500, 510), node="b")
    assert number_sessions(pd.concat([rounds, other], ignore_index=True)).tolist() == [1, 1, 1, 2]


def estimate_sessions(y: np.ndarray, sessions: list[int], **more: object) -> statistics.PointEstimates:
    """Estimate points with logarithms `y`, shape (points, rounds), and the sessions of their rounds."""
    n = np.full(len(y), y.shape[1])
    return log_estimates(np.exp(y.ravel()), n, np.zeros(len(n), int), np.tile(sessions, len(n)), **more)  # type: ignore[arg-type]


def test_spread_between_sessions_is_that_beyond_the_rounds() -> None:
    random = np.random.default_rng(1)
    shifts = 0.3 * random.normal(size=(4000, 2))
    y = np.repeat(shifts, [3, 2], axis=1) + 0.05 * random.normal(size=(4000, 5))
    known = estimate_sessions(y, [1, 1, 1, 2, 2])
    assert known.session_variance[0] == pytest.approx(0.09, rel=0.08)
    variance = np.mean(known.variance)
    assert variance == pytest.approx(0.0025, rel=0.1), "the variance between rounds is that within sessions"
    expected = 0.0025 / 5 + 0.09 * (9 + 4) / 25
    assert np.mean(known.se**2) == pytest.approx(expected, rel=0.1)


def test_sessions_that_agree_add_nothing() -> None:
    y = np.array([[0.1, -0.1, 0.05, -0.05], [0.2, -0.2, 0.1, -0.1]])
    assert estimate_sessions(y, [1, 1, 2, 2]).session_variance.tolist() == [0.0, 0.0]


def test_spread_widens_points_of_one_session_too() -> None:
    y = np.log([1.0, 1.02, 0.99, 1.2, 1.22, 2.0, 2.02, 1.99])
    n, sessions = np.array([5, 3]), np.array([1, 1, 1, 2, 2, 1, 1, 1])
    with_sessions = log_estimates(np.exp(y), n, np.zeros(2, int), sessions)
    in_one = log_estimates(np.exp(y), n, np.zeros(2, int))
    assert np.isnan(in_one.session_variance).all()
    assert with_sessions.session_variance[1] == with_sessions.session_variance[0] > 0.01
    width = np.log(with_sessions.high / with_sessions.low)
    assert width[1] > 2 * np.log(in_one.high / in_one.low)[1]
    assert with_sessions.df[1] < 2, "one point in two sessions says little"


@given(st.floats(0, 1), st.floats(1, 50))
def test_given_spread_takes_the_place_of_the_estimated_spread(variance: float, df: float) -> None:
    y = np.array([[0.1, -0.1, 0.3], [0.2, -0.2, 0.1]])
    spreads = {0: SessionSpread(variance, df)}
    widened, plain = estimate_sessions(y, [1, 1, 1], spreads=spreads), estimate_sessions(y, [1, 1, 1])
    assert widened.se == pytest.approx(np.sqrt(plain.se**2 + variance))
    assert (widened.df <= np.maximum(plain.df, df) + 1e-9).all()


def test_single_rounds_in_two_sessions_count_as_one_session() -> None:
    y = np.array([[0.0, 1.0], [0.0, 0.5]])
    apart, together = estimate_sessions(y, [1, 2]), estimate_sessions(y, [1, 1])
    assert np.isnan(apart.session_variance).all()
    assert apart.se == pytest.approx(together.se)


def test_summary_counts_sessions_and_includes_their_spread(synthetic: Factory) -> None:
    """The two points of an experiment are measured in the first session, and one of them in a second."""
    times = {number: (f"2026-01-01T08:{number}0:00Z", f"2026-01-01T08:{number}5:00Z") for number in (1, 2, 3)}
    later = {21: ("2026-01-02T08:00:00Z", "2026-01-02T08:05:00Z"), 22: ("2026-01-02T08:10:00Z", "2026-01-02T08:15:00Z")}
    node = synthetic("kind-00aa11", times={**times, **later})
    node.gemm(8, n=256).gemm(8, n=512)
    anchor = [row for row in node.rows if json_size(row) == 256 and row["round"] < 3]
    node.rows += [
        {**row, "round": row["round"] + 20, "run": f"r{row['round']}", "value": 1.5 * row["value"]} for row in anchor
    ]
    node.clock()
    node.write()
    data = Dataset(read_nodes([node.folder.parent], allow_synthetic=True))
    table = data.table.set_index("metric")
    rows = table.loc["time"].assign(size=[json_size(row) for _, row in table.loc["time"].iterrows()]).set_index("size")
    assert rows["n_sessions"].to_dict() == {256: 2, 512: 1}
    assert rows["session_variance"].notna().all()
    assert rows.loc[512, "high"] / rows.loc[512, "low"] > 1.5
    # The data card's formula: three and two rounds in two sessions, and three rounds in one.
    for size, n, shares in ((256, 5, (9 + 4) / 25), (512, 3, 1.0)):
        row = rows.loc[size]
        df = row["prior_df"] + n - row["n_sessions"]
        within = (row["prior_df"] * row["prior_variance"] + (n - row["n_sessions"]) * row["variance"]) / df
        assert row["log_se"] == pytest.approx(math.sqrt(within / n + row["session_variance"] * shares))
    assert math.isnan(table.loc["clock", "session_variance"]), "no clock was measured in two sessions"
    assert len(data.session_rows) == 2
    assert data.session_count(node.id) == 2


def json_size(row: object) -> int:
    import json

    return int(json.loads(row["params"]).get("n", 0))  # type: ignore[index]
