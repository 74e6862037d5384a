"""A rate and a clock that a node measured beside each other are divided in each round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.sample_table import SAMPLES
from report.data.dataset import Dataset
from report.data.node_reader import Node, Nodes
from report.estimates import Estimates
from report.quantities.shared_rounds import pair_rounds
from tests.report.conftest import CPU, SyntheticNode

from .made_cases import select_row

# Start and end for the clock's process and for the next process; the hour is the round's number.
BESIDE = (("00:00", "00:02"), ("00:03", "00:12"))
Periods = Sequence[Sequence[str]]


def made_node(
    clocks: Sequence[float], *times: Sequence[float], name: str = "node-a", periods: Periods = BESIDE
) -> Node:
    """Make a node with a clock and scalar kernels that do a million multiply-adds, with a value for each round."""
    node = SyntheticNode(Path(name), [CPU])
    for values, kernel in ((clocks, 0), *((each, number) for number, each in enumerate(times, 1))):
        first = len(node.rows)
        about: dict[str, Any] = {"rounds": len(values), "samples": 2, "spread": 0.0, "backend": "llvm"}
        if kernel:
            params = {"kernel": "scalar_fma", "loops": kernel}
            node.point("peak", 1.0, params=params, flop=2e6, dtype=f"float{32 * kernel}", **about)
        else:
            node.point("clock", 1.0, metric="clock", unit="Hz", dtype="", params={"chain": 1000}, **about)
        for row in node.rows[first:]:
            row["value"] = values[row["round"] - 1]
    table = pd.DataFrame(node.rows)[list(SAMPLES.columns)]
    rounds = [
        {"file": f"{experiment}.cpu.{number}.parquet"}
        | {
            key: f"2026-01-01T{number:02}:{at}Z"
            for key, at in zip(("started_utc", "ended_utc"), periods[experiment == "peak"], strict=True)
        }
        for experiment, number in table[["experiment", "round"]].drop_duplicates().itertuples(index=False)
    ]
    return Node(node.record(), "synthetic", table, rounds)


def made_ratios(*nodes: Node) -> tuple[Estimates, Estimates]:
    """Divide rates by clocks to get multiply-adds per cycle: in each round, and as two independent estimates."""
    data = Dataset(Nodes(list(nodes), []))
    clocks = data.summary("clock", metric="clock").keep_labels("node")
    independent = data.summary("peak", value="flop_per_s") / 2 / clocks
    return pair_rounds(data, independent, (-1, -1)), independent


def widths(estimates: Estimates) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.log(estimates.numbers("high") / estimates.numbers("low")).to_numpy()


_TIMES = st.lists(st.floats(1e-4, 1e-2), min_size=4, max_size=4, unique=True).filter(
    lambda times: np.std(np.log(times)) > 1e-2
)


@settings(max_examples=40)
@given(st.lists(_TIMES, min_size=1, max_size=3))
def test_with_a_constant_clock_the_interval_is_that_of_two_estimates(times: list[list[float]]) -> None:
    paired, independent = made_ratios(made_node([3e9] * 4, *times))
    for name in ("estimate", "low", "high", "n_samples"):
        assert paired.numbers(name).tolist() == pytest.approx(independent.numbers(name).tolist(), rel=1e-4)
    assert list(paired["source_rows"]) == list(independent["source_rows"])


@settings(max_examples=40)
@given(_TIMES, st.lists(st.floats(1e9, 4e9), min_size=4, max_size=4))
def test_pairing_keeps_the_estimate(times: list[float], clocks: list[float]) -> None:
    paired, independent = made_ratios(made_node(clocks, times))
    assert paired.numbers("estimate").tolist() == pytest.approx(independent.numbers("estimate").tolist())
    exact = np.exp(np.mean(np.log(1e6 / np.array(times) / np.array(clocks))))
    assert paired.numbers("estimate").tolist() == pytest.approx([exact])


def test_intervals_cover_the_truth_if_the_clock_moves_from_round_to_round() -> None:
    random = np.random.default_rng(0)
    nodes = []
    for number in range(400):
        factor = np.exp(random.normal(0, 0.03, 3))
        clocks = 3e9 * factor * np.exp(random.normal(0, 0.003, 3))
        # Two multiply-adds per cycle.
        times = 1e6 / (2 * 3e9 * factor) * np.exp(random.normal(0, 0.003, (2, 3)))
        nodes.append(made_node(clocks.tolist(), *times.tolist(), name=f"node-{number}"))
    paired, independent = made_ratios(*nodes)
    covered = (paired["low"] < 2) & (paired["high"] > 2)
    assert 0.97 < covered.mean() < 0.999
    assert np.median(widths(paired) / widths(independent)) < 0.3


MOVING = [3e9, 2.9e9, 2.7e9, 3.1e9]
STEADY = (1e6 / (2 * np.array(MOVING)) * [1.001, 0.999, 1, 1]).tolist()
BEFORE = (("00:30", "00:40"), ("00:00", "00:25"))


@pytest.mark.parametrize("periods", [BESIDE, BEFORE])
def test_clock_that_slows_a_loop_down_does_not_widen_the_ratio(periods: Periods) -> None:
    data = Dataset(Nodes([made_node(MOVING, STEADY, periods=periods)], []))
    row = select_row("peak.scalar_mac_per_cycle", data, dtype="float32")
    assert 1.99 < row["low"] < row["estimate"] < row["high"] < 2.01


@pytest.mark.parametrize(
    ("clocks", "times", "periods"),
    [
        (MOVING[:3], STEADY, BESIDE),
        (MOVING, STEADY[:3], BESIDE),
        (MOVING, STEADY, (("00:00", "00:02"), ("10:00", "10:05"))),
        (MOVING, STEADY, (("00:00", "00:02"), ("00:03", "05:00"))),
        (MOVING, STEADY, (("00:00", "00:02"), ("00:03", "00:99"))),
    ],
    ids=["clock lacks a round", "rate lacks a round", "minutes apart", "one lasts for minutes", "no such time"],
)  # fmt: skip
def test_results_that_share_no_rounds_are_taken_as_independent(
    clocks: list[float], times: list[float], periods: Periods
) -> None:
    paired, independent = made_ratios(made_node(clocks, times, periods=periods))
    pd.testing.assert_frame_equal(paired.frame, independent.frame)
    assert widths(paired)[0] > 0.05


def test_round_that_failed_at_a_point_leaves_only_that_point_as_it_is() -> None:
    node = made_node(MOVING, STEADY, STEADY)
    failed = (node.samples["dtype"] == "float64") & (node.samples["round"] == 4)
    node.samples.loc[failed, ["status", "reason"]] = "failed", "synthetic"
    paired, independent = (ratios.sort_by("dtype") for ratios in made_ratios(node))
    narrower = widths(paired) / widths(independent)
    assert narrower[0] < 0.1 and narrower[1] == 1


def test_interval_widened_for_a_choice_stays() -> None:
    data = Dataset(Nodes([made_node(MOVING, STEADY, [1.001 * time for time in STEADY])], []))
    clocks = data.summary("clock", metric="clock").keep_labels("node")
    best = data.summary("peak", value="flop_per_s").best_per_group(["node"]) / 2 / clocks
    pd.testing.assert_frame_equal(pair_rounds(data, best, (-1, -1)).frame, best.frame)
