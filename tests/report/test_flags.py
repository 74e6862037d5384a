"""Flagged points are kept, and said to be flagged: in the summary and in the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.data.groups import Runs

from contract.errors import StudyError
from contract.flags import FLAGS
from contract.tables import validate
from report.data import flags
from report.data.flags import Seen
from report.data.gather import gather
from report.data.nodes import read_nodes
from report.data.summary import summarise
from report.render.flagged import flagged_points
from report.render.markdown import environment

from .conftest import Factory, SyntheticNode


def summary(synthetic: Factory) -> pd.DataFrame:
    return summarise(read_nodes([synthetic.root], True).samples())


def flag(node: SyntheticNode, *texts: str, **columns: Any) -> SyntheticNode:
    """Give the node's first samples these flags, and all flagged ones these values."""
    for row, words in zip(node.rows, texts, strict=False):
        row.update(flags=words, **columns)
    return node


def said(synthetic: Factory) -> str:
    (row,) = summary(synthetic).to_dict("records")
    assert row["status"] == "ok"
    assert row["n_samples"] == 15
    return str(row["flags"])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], ""),
        (["busy: 12% other load", "", "busy: 31% other load", "busy: 9% other load"],
         "busy in 3 of 15 samples (most: 31% other load)"),
        (["steal: 3%; busy: 40% other load"], "busy in 1 of 15 samples (most: 40% other load); "
         "steal in 1 of 15 samples (most: 3%)"),
        (["throttled: heat", "throttled: power limit"], "throttled in 2 of 15 samples (heat and power limit)"),
        (["memory: 1,200 pages a second from or to the disk", "memory: 900 pages a second from or to the disk"],
         "memory in 2 of 15 samples (most: 1,200 pages a second from or to the disk)"),
    ],
)  # fmt: skip
def test_a_point_says_in_how_many_samples_and_how_bad(synthetic: Factory, texts: list[str], expected: str) -> None:
    flag(synthetic().gemm(20), *texts).write()
    assert said(synthetic) == expected


def test_bare_names_of_earlier_data_get_their_figures_from_the_columns(synthetic: Factory) -> None:
    node = flag(synthetic().gemm(20), "busy steal", "busy", "throttled", other_load=0.31, steal=0.05)
    node.write()
    assert said(synthetic) == (
        "busy in 2 of 15 samples (most: 31% other load); steal in 1 of 15 samples (most: 5%); "
        "throttled in 1 of 15 samples"
    )


def test_a_flag_that_is_not_in_the_list_is_refused(synthetic: Factory) -> None:
    with pytest.raises(StudyError, match=r"column 'flags', row 0: 'buzy: 31%' names an unknown flag \(known: busy, "):
        validate(pd.DataFrame(flag(synthetic().gemm(20), "buzy: 31%").rows), "a node")


def with_rounds(node: SyntheticNode, medians: list[float], noise: float = 0.0, **more: Any) -> SyntheticNode:
    """A point whose rounds have these medians, and samples that lie evenly within `noise` of them."""
    node.point("gemm", 1.0, rounds=len(medians), samples=9, spread=0, params={"m": 1}, **more)
    for row in node.rows:
        row["value"] = medians[row["round"] - 1] * (1 + noise * (row["sample"] - 4) / 4)
    return node


@pytest.mark.parametrize(
    ("medians", "noise", "expected"),
    [
        ([1.0, 1.02, 1.14], 0.0, "unstable: rounds differ by 14%"),
        ([1.0, 1.02, 1.09], 0.0, ""),  # two medians known to 5% each
        ([1.0, 1.02, 1.14], 0.3, ""),  # noisy within the rounds as well
        ([1.0, 1.02, 2.5], 0.3, "unstable: rounds differ by 150%"),
        ([1.14], 0.0, ""),
    ],
)
def test_rounds_that_differ_more_than_their_samples_explain_are_told(
    synthetic: Factory, medians: list[float], noise: float, expected: str
) -> None:
    with_rounds(synthetic(), medians, noise).write()
    (row,) = summary(synthetic).to_dict("records")
    assert row["flags"] == expected
    assert row["estimate"] == pytest.approx(pd.Series(medians).agg(lambda m: m.prod() ** (1 / len(m))))


def test_shares_have_no_relative_spread(synthetic: Factory) -> None:
    with_rounds(synthetic(), [0.01, 0.02, 0.03], unit="1", metric="loss_share").write()
    assert summary(synthetic)["flags"].tolist() == [""]


positive = st.floats(0.1, 10)


@given(st.lists(st.lists(positive, min_size=1, max_size=20), min_size=1, max_size=4))
def test_half_widths_are_those_of_each_round_alone(rounds: list[list[float]]) -> None:
    ordered = np.concatenate([np.sort(values) for values in rounds])
    found = flags.half_widths(ordered, Runs.of(np.repeat(np.arange(len(rounds)), [len(values) for values in rounds])))
    for width, values in zip(found, rounds, strict=True):
        alone = flags.half_widths(np.sort(values), Runs.of(np.zeros(len(values))))
        assert [width] == alone.tolist()
        assert 0 <= 2 * width * np.median(values) <= np.ptp(values) * (1 + 1e-12)
        assert len(values) >= 6 or width == 0
    # The second and the last of nine values.
    assert flags.half_widths(np.arange(1.0, 10), Runs.of(np.zeros(9))) == pytest.approx((9 - 2) / 2 / 5)


def test_many_points_at_once_are_told_of_as_one_by_one() -> None:
    random = np.random.default_rng(1)
    texts = ["", "", "busy", "busy: 31% other load", "steal busy", "throttled: heat", "steal: 3%; throttled: power cap"]
    samples = pd.DataFrame(
        {
            "flags": random.choice(texts, 200),
            "other_load": random.choice([np.nan, 0.1, 0.5], 200),
            "steal": random.choice([np.nan, 0.02], 200),
        }
    )
    samples.loc[:19, "flags"] = ""
    point = np.repeat(np.arange(10), 20)
    found = flags.of_points(samples, point)
    assert sorted(found) == list(range(1, 10))
    for number in range(10):
        assert found.get(number, []) == flags.of_samples(samples[point == number])
    assert flags.of_points(samples.head(20), point[:20]) == {} == flags.of_points(samples.head(0), point[:0])


details = st.from_regex(r"[a-z0-9][a-z0-9 %,.]{0,20}", fullmatch=True).map(str.strip)
counted = st.tuples(st.integers(0, 99), st.integers(1, 99))


@given(
    st.lists(
        st.builds(
            lambda name, n, most: Seen(name, *n, most), st.sampled_from(sorted(FLAGS)), counted, st.just("") | details
        )
        | st.builds(lambda name, most: Seen(name, most=most), st.sampled_from(["unstable", "exact"]), details),
        max_size=4,
    )
)
def test_what_the_summary_says_is_read_back(seen: list[Seen]) -> None:
    assert flags.read(flags.text(seen)) == seen
    assert flags.text([Seen("busy", 1, 1)]) == "busy in 1 of 1 sample"


def test_a_summary_of_an_earlier_edition_is_read() -> None:
    assert flags.read("busy exact") == [Seen("busy"), Seen("exact")]


@pytest.fixture
def gathered(synthetic: Factory, tmp_path: Path) -> Callable[[], Path]:
    def write() -> Path:
        gather([synthetic.root], tmp_path / "out", allow_synthetic=True)
        return tmp_path / "out"

    return write


def test_the_report_counts_them_and_names_the_worst(synthetic: Factory, gathered: Callable[[], Path]) -> None:
    node = synthetic("node-a").gemm(20, spread=0.001).gemm(20, n=256, spread=0.001).gemm(20, n=128, spread=0.001)
    flag(node, "busy: 12% other load")
    for row in node.rows:
        if json.loads(row["params"])["n"] == 256 and row["sample"] < 3:
            row["flags"] = "busy: 31% other load; throttled: heat"
    node.write()
    synthetic("node-b").gemm(20, spread=0.001).write()
    (told,) = flagged_points(gathered())
    assert (told["node"], told["count"], told["of"]) == ("node-a", "2", "3")
    busy, throttled = told["rows"]
    assert (busy["flag"], busy["count"]) == ("busy", "2")
    worst, other = busy["worst"].split("; ")
    assert "n 256" in worst
    assert worst.endswith("in 9 of 15 samples (most: 31% other load)")
    assert "n 512" in other
    assert (throttled["flag"], throttled["count"]) == ("throttled", "1")


def test_the_section_on_nodes_shows_them(synthetic: Factory, gathered: Callable[[], Path]) -> None:
    flag(synthetic("node-a").gemm(20), "busy: 31% other load").write()
    templates = environment(Path(__file__).parents[2] / "report" / "templates")
    given = {"nodes": [], "left_out": [], "ran": [], "refused": []}
    shown = templates.get_template("parts/nodes.qmd").render(**given, flagged=flagged_points(gathered()))
    assert "On node-a, 1 of 1 points bear a flag." in shown
    assert "| busy | other processes took a share of all cores | 1 | gemm" in shown
    without = templates.get_template("parts/nodes.qmd").render(**given, flagged=[])
    assert "Nothing was seen" in without
