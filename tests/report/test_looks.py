"""Test judging look by look, if undecided results were measured in further rounds. All data are synthetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.files import read_json, write_json
from contract.looks import further_stages, look_rounds, read_open_cases
from report import statistics
from report.commands.undecided import write_undecided
from report.data.dataset import Dataset
from report.data.gathered_files import read_dataset
from report.data.looks import datasets_at_looks
from report.data.node_reader import read_nodes
from report.estimates import Estimates
from report.judging.looks import transform_at_looks
from report.judging.rules import decide
from report.outcomes import Side, Threshold
from report.pages.claim_page import _look_sentences, _session_sentences

from .conftest import Factory
from .made_estimates import log_cases, part

LOOKS = [{"rounds": number} for number in (3, 5, 8)]


def judge_looks(*looks: Estimates, threshold: float = 1.0, rule: str = "at_least") -> Any:
    """Judge estimates as of each look, all of node `a` unless they say so."""
    given = [look if "node" in look.labels else look.label(node="a") for look in looks]
    claim_part = part(rule, threshold)
    return decide(claim_part, transform_at_looks(claim_part, given, ["a"], "1"), ", ".join)


def test_decided_case_stays_decided_with_the_interval_of_its_look() -> None:
    result = judge_looks(
        log_cases([2.0, 1.01], case=["x", "y"]),
        log_cases([0.5, 1.2], n_rounds=5, case=["x", "y"]),
        log_cases([0.4, 0.1], n_rounds=8, case=["x", "y"]),
    )
    assert result.sides == [Side.SUPPORTS, Side.SUPPORTS]
    assert result.estimates.rows("case", "estimate", "n_rounds") == [("x", 2.0, 3), ("y", 1.2, 5)]


def test_case_without_a_decision_has_the_interval_of_the_last_look() -> None:
    result = judge_looks(*(log_cases([1.0], n_rounds=rounds) for rounds in (3, 5, 8)))
    assert result.sides == [Side.UNDECIDED]
    assert result.estimates["n_rounds"].tolist() == [8]


def test_other_thresholds_are_tried_on_the_same_intervals() -> None:
    looks = [log_cases([value], n_rounds=rounds, node=["a"]) for value, rounds in ((2.0, 3), (2.3, 5))]
    tried = part("at_least", 1.0).with_threshold(Threshold(2.2)).with_threshold(Threshold(2.25))
    compared = transform_at_looks(tried, looks, ["a"], "1")
    assert compared.estimates["n_rounds"].tolist() == [3]
    assert decide(tried, compared, ", ".join).sides == [Side.CHALLENGES]


def test_looks_decide_at_their_own_level() -> None:
    """A case that is clear of the threshold at the usual level, but not at the level of a look, stays undecided."""
    half = statistics.half_width(0.01, 10.0)
    between = np.exp((half + statistics.half_width(0.01, 10.0, statistics.LOOK_LEVEL)) / 2)
    look = log_cases([float(between)])
    assert judge_looks(look).sides == [Side.UNDECIDED]
    assert judge_looks(look.label(node="b")).sides == [Side.SUPPORTS], "a node without looks keeps the usual level"
    drawn = judge_looks(look).estimates
    assert np.log(drawn["high"] / drawn["estimate"])[0] == pytest.approx(
        float(statistics.half_width(0.01, 10.0, statistics.LOOK_LEVEL))
    )


@pytest.fixture
def data(synthetic: Factory) -> Dataset:
    """Return a node with looks, whose times change from round 4 on, and another node, with a time per round."""
    node = synthetic("kind-00aa11", more={"looks": LOOKS})
    node.gemm(8, n=256, rounds=8, spread=0).gemm(8, n=512, spread=0).clock(rounds=22, spread=0)
    for row in node.rows:
        row["value"] *= row["round"]
    other = synthetic("other-00aa11").gemm(8, n=256, rounds=8, spread=0)
    for row in other.rows:
        row["value"] *= row["round"]
    synthetic.write([node, other])
    return Dataset(read_nodes([synthetic.root], allow_synthetic=True))


def test_look_counts_the_rounds_up_to_its_number(data: Dataset) -> None:
    looks = [look for look, _ in datasets_at_looks(data)]
    for rounds, look in zip((3, 5, 8), looks, strict=True):
        for name in ("node", "metric", "params"):
            assert look.table[name].astype(str).tolist() == data.table[name].astype(str).tolist(), "rows keep numbers"
        counted = dict(
            zip(zip(look.table["node"], look.table["params"], strict=True), look.table["n_rounds"], strict=True)
        )
        own = {key: number for key, number in counted.items() if key[0].startswith("kind")}
        assert sorted(own.values()) == sorted([rounds, 3, rounds])
        assert {number for key, number in counted.items() if key[0].startswith("other")} == {8}
        assert look.samples("clock")["round"].max() == rounds
    values = [float(look.table.loc[look.table["n_rounds"] == 5, "estimate"].max()) for look in looks[1:2]]
    assert values == [pytest.approx(3e9 * np.prod(range(1, 6)) ** 0.2)]


def test_series_that_appears_after_a_look_has_no_result_there(synthetic: Factory) -> None:
    node = synthetic("kind-00aa11", more={"looks": LOOKS}).gemm(8, n=256).clock(rounds=8)
    node.rows = [row for row in node.rows if row["metric"] != "clock" or row["round"] > 3]
    node.write()
    looks = datasets_at_looks(Dataset(read_nodes([synthetic.root], allow_synthetic=True)))
    first, second, _ = (look for look, _ in looks)
    assert [new for _, new in looks] == [{"gemm"}, {"clock"}, {"clock"}]
    assert [len(look.summary("clock", "clock")) for look in (first, second)] == [0, 1]
    assert first.table["status"].tolist() == ["skipped", "ok"]


def test_nodes_without_looks_have_none(synthetic: Factory) -> None:
    synthetic("kind-00aa11").clock().write()
    assert datasets_at_looks(Dataset(read_nodes([synthetic.root], allow_synthetic=True))) == []


@pytest.mark.parametrize(("planned", "looks"), [(1, [1, 3, 5, 8]), (3, [3, 5, 8]), (4, [4, 5, 8]), (9, [9])])
def test_looks_follow_the_planned_rounds(planned: int, looks: list[int]) -> None:
    assert look_rounds(planned) == looks
    stages = [rounds for name, rounds in further_stages(planned).items() if name.startswith("look")]
    assert [number for rounds in stages for number in rounds] == list(range(planned + 1, looks[-1] + 1))


def test_undecided_cases_are_listed_by_the_rounds_that_they_need(small_study: Path, tmp_path: Path) -> None:
    data = small_study / "data"
    table = read_dataset(data).table.astype({"params": str, "experiment": str, "node": str})
    rows = table[table["experiment"] == "gemm"].index[:2].tolist()
    near = [
        {"rounds": None, "behind": f"{rows[0]}"},
        {"rounds": 7, "behind": f"{rows[1]}"},
        {"rounds": 5, "behind": " ".join(map(str, rows))},
    ]
    document = read_json(small_study / "verdicts.json")
    parts = [each for claim in document["verdicts"] for each in claim["parts"]]
    for each in parts:
        each["more_rounds"] = None
    parts[0]["more_rounds"] = {"cases": 1, "in_one_round": 1, "decided_by": {}, "near": near[:1]}
    parts[1]["more_rounds"] = {"cases": 2, "in_one_round": 0, "decided_by": {}, "near": near[1:]}
    verdicts, out = tmp_path / "verdicts.json", tmp_path / "cases.json"
    write_json(verdicts, document)
    assert write_undecided(verdicts, data, "some other node", out) == 0
    assert write_undecided(verdicts, data, table["node"][rows[0]], out) == 3
    listed = read_open_cases(out)
    params = [table["params"][row] for row in rows]
    assert [(case["rounds"], [point["params"] for point in case["points"]]) for case in listed] == [
        (5, params), (7, params[1:]), (None, params[:1]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ([False, False], "Each result comes from one session"),
        ([True, True], "The intervals include the spread between sessions"),
        ([True, False], "1 of 2 intervals include the spread between sessions"),
    ],
)
def test_page_tells_which_intervals_include_the_spread_between_sessions(known: list[bool], text: str) -> None:
    cases = [{"n_rounds": 3, "low": 1.0, **({"session_spread": True} if each else {})} for each in known]
    (sentence,) = _session_sentences(cases)
    assert sentence.startswith(text)
    assert list(_session_sentences([{"n_rounds": 1, "low": None}])) == []


def test_page_tells_the_looks_of_each_machine() -> None:
    cases = [{"node": "a"}, {"instances": ["b", "c"], "node": "b"}]
    texts = list(_look_sentences(cases, {"a": "one machine", "b": "another"}, {"a": [3, 5, 8], "b": [3, 5, 8]}))
    assert len(texts) == 1
    assert "another" in texts[0] and "one machine" in texts[0] and "3, 5 and 8 measurements, at 99.4% each" in texts[0]
    assert list(_look_sentences(cases, {}, {})) == []
