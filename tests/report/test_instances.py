"""Machines of one kind share one case, in any number and order. If they disagree, its interval is wider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from report.commands.explain import Sources, explain
from report.commands.lint import Study, find_faults
from report.compared_estimates import PooledEstimates, instance_ranges, nodes_by_kind, pool_machines, row_nodes
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.reference_figures import REFERENCE, read_reference
from report.estimates import Estimates, concat_estimates
from report.judging import rules
from report.judging.judge import judge
from report.judging.part_evaluation import PartResult
from report.judging.robustness import part_robustness, part_slider
from report.judging.shares import clopper_pearson
from report.pages.case_evidence import EvidenceLists, list_cells
from report.pages.claim_page import _case_tables, _confidence_sentences
from report.pages.evidence_ids import EvidenceIds

from .conftest import Factory
from .made_estimates import NO_DATA, cases, log_cases, part
from .test_judge import PER_CYCLE, Court

MODELS = ("a", "b", "c")
BATCHES = (8, 64, 512)
# Rules with the options they need.
RULES: dict[str, dict[str, Any]] = {
    "at_least": {},
    "at_most": {},
    "exists": {},
    "for_share_of": {"of": "model", "share": 0.5, "compare": "at_least"},
    "ratio": {"over": "device", "of": "gpu", "to": "cpu"},
    "trend": {"along": "batch"},
    "crossover": {"over": "device", "of": "gpu", "to": "cpu", "along": "batch"},
}
values = st.lists(st.floats(0.5, 20), min_size=18, max_size=18)
errors = st.lists(st.floats(0.001, 0.3), min_size=18, max_size=18)


def machine(node: str, estimates: list[float], se: list[float]) -> Estimates:
    """Build one machine's estimates for three models, both devices and three batch sizes."""
    labels = [(model, device, batch) for model in MODELS for device in ("cpu", "cuda:0") for batch in BATCHES]
    model, device, batch = zip(*labels, strict=True)
    result = log_cases(estimates, np.array(se), model=model, device=device, batch=batch, node=node)
    return result.label(source_rows=[(row,) for row in range(len(result))])


def part_outputs(rule: str, estimates: Estimates, bound: float) -> tuple[Any, ...]:
    """Collect everything that a part reports: its rule result, its robustness and its threshold slider."""
    claim_part = part(rule, bound, RULES[rule], (bound / 4, bound / 2, bound * 2))
    result = rules.apply_rule(claim_part, estimates)
    robustness = (
        part_robustness(claim_part, estimates, result, "1", NO_DATA, lambda outcome: outcome)
        if len(result.estimates)
        else None
    )
    slider = part_slider(PartResult(claim_part, result.outcome, result=result), lambda outcome: outcome)
    if robustness:
        robustness.trials = [trial for trial in robustness.trials if trial.kind != "without"]
    ends = [tuple(np.round(result.estimates.numbers(name), 9)) for name in ("estimate", "low", "high")]
    return result.outcome, result.sides, result.representative, result.share, str(ends), str(robustness), slider


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(RULES)), values, errors, st.floats(0.3, 20), st.integers(2, 12))
def test_identical_machines_give_the_same_result_as_one(
    rule: str, estimates: list[float], se: list[float], bound: float, copies: int
) -> None:
    single = machine("kind.000001", estimates, se)
    twins = concat_estimates([machine(f"kind.{number:06}", estimates, se) for number in range(1, copies + 1)])
    assert part_outputs(rule, twins, bound) == part_outputs(rule, single, bound)


@settings(max_examples=60, deadline=None)
@given(
    st.data(), st.sampled_from(sorted(RULES)), st.floats(0.3, 20), st.lists(st.integers(1, 4), min_size=3, max_size=14)
)
def test_repeated_runs_of_a_machine_count_once(data: st.DataObject, rule: str, bound: float, runs: list[int]) -> None:
    once, often = [], []
    for number, count in enumerate(runs):
        numbers = data.draw(values), data.draw(errors)
        names = [f"kind.{number:06}" + (f".{run}" if run > 1 else "") for run in range(1, count + 1)]
        once.append(machine(names[0], *numbers))
        often += [machine(name, *numbers) for name in names]
    assert part_outputs(rule, concat_estimates(often), bound) == part_outputs(rule, concat_estimates(once), bound)


def test_runs_of_one_machine_keep_the_widest_interval() -> None:
    ends = [(5.0, 6.0)] * 29 + [(1.0, 2.0)]
    nodes = ["kind.aaaaaa", *(f"kind.aaaaaa.{run}" for run in range(2, 31))]
    result = rules.apply_rule(part("at_least", 4), cases(*ends, node=nodes))
    assert result.sides == ["undecided"]
    assert tuple(result.estimates.numbers(name).item() for name in ("low", "high")) == (1.0, 6.0)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(RULES)), st.floats(0.3, 20), st.permutations(range(4)))
def test_machine_order_does_not_matter(data: st.DataObject, rule: str, bound: float, order: list[int]) -> None:
    nodes = ("kind.aaaaaa", "kind.bbbbbb", "kind.cccccc.2", "kind")
    machines = [machine(node, data.draw(values), data.draw(errors)) for node in nodes]
    reordered = concat_estimates([machines[place] for place in order])
    assert part_outputs(rule, reordered, bound) == part_outputs(rule, concat_estimates(machines), bound)


@given(st.lists(st.tuples(st.floats(0.5, 20), st.floats(0, 3)), min_size=2, max_size=7), st.floats(0.5, 20))
def test_few_machines_decide_only_if_they_agree(intervals: list[tuple[float, float]], bound: float) -> None:
    ends = [(least, least + width) for least, width in intervals]
    nodes = [f"kind.{number:06}" for number in range(len(ends))]
    (side,) = rules.apply_rule(part("at_least", bound), cases(*ends, node=nodes)).sides
    own = {rules.apply_rule(part("at_least", bound), cases(end, node=["kind"])).sides[0] for end in ends}
    assert side == (own.pop() if len(own) == 1 else "undecided")


def test_one_outlier_among_many_machines_does_not_decide() -> None:
    ends = [(5.0, 6.0)] * 29 + [(1.0, 2.0)]
    nodes = [f"kind.{number:06}" for number in range(30)]
    result = rules.apply_rule(part("at_least", 4), cases(*ends, node=nodes))
    assert (result.outcome, result.sides) == ("supported", ["supports"])
    assert instance_ranges(result.estimates) == {0: (1.5, 5.5)}
    half = [(5.0, 6.0)] * 15 + [(1.0, 2.0)] * 15
    assert rules.apply_rule(part("at_least", 4), cases(*half, node=nodes)).outcome == "undecided"


def test_share_interval_includes_models_on_which_machines_disagree() -> None:
    """Model a is above the threshold on one machine and below it on the other, and model b is above it on both."""
    nodes = ["kind.aaaaaa", "kind.bbbbbb"] * 2
    estimates = log_cases([1.0, 9.0, 9.0, 9.0], node=nodes, model=[*"aabb"])
    share = rules.apply_rule(part("for_share_of", 4, RULES["for_share_of"]), estimates).share
    assert share is not None
    ends = [clopper_pearson(least, most, 2)[end] for end, (least, most) in enumerate([(1, 1), (2, 2)])]
    assert (share.units, share.estimate, share.low, share.high) == (2, pytest.approx(0.75), *map(pytest.approx, ends))


@pytest.mark.parametrize(
    ("second", "outcome"),
    [([9.0, 9.0, 9.0], "challenged"), ([0.1, 0.1, 0.1], "challenged"), ([0.1, 1, 9], "undecided")],
)
def test_crossover_without_any_crossing_is_decided_over_machines(second: list[float], outcome: str) -> None:
    """The GPU leads at every batch on the first machine; on the second it leads, trails, or both."""
    speeds = [9.0, 9.0, 9.0, 1.0, 1.0, 1.0], [*second, 1.0, 1.0, 1.0]
    device, batch = ["cuda:0"] * 3 + ["cpu"] * 3, [*BATCHES] * 2
    machines = [
        log_cases(rates, node=node, device=device, batch=batch)
        for rates, node in zip(speeds, ("kind.aaaaaa", "kind.bbbbbb"), strict=True)
    ]
    assert rules.apply_rule(part("crossover", 64, RULES["crossover"]), concat_estimates(machines)).outcome == outcome


@pytest.mark.parametrize("n", [3, 8, 30])
def test_pooled_interval_covers_the_median_machine(n: int) -> None:
    """Simulate machines that differ by 20% around a true median of 1, each measured to 1%.

    The distribution of the machines is skewed.
    """
    random, runs = np.random.default_rng(n), 2000
    true = np.exp(0.2 * (random.standard_exponential((runs, n)) - np.log(2)))
    noisy = true * np.exp(0.01 * random.standard_t(10, (runs, n)))
    nodes = np.tile([f"kind.{number:06}" for number in range(n)], runs)
    run = np.repeat(np.arange(runs), n)
    pooled = pool_machines(log_cases(noisy.ravel(), 0.01, node=nodes, run=run))
    covered = (pooled.numbers("low") <= 1) & (pooled.numbers("high") >= 1)
    # With probability 2 * 0.5**n, all machines lie on the same side of the true median, so no interval covers it. With
    # n = 3, at most 75% of the intervals can cover the median.
    nominal = min(0.99, 1 - 2 * 0.5**n)
    assert len(pooled) == runs
    assert covered.mean() >= nominal - 3 * np.sqrt(nominal * (1 - nominal) / runs)


def test_machine_without_an_interval_does_not_narrow_the_pool() -> None:
    nan = float("nan")
    two = cases((4.0, 6.0), (nan, nan), node=["kind.aaaaaa", "kind.bbbbbb"]).label(estimate=[5.0, 5.2])
    pooled = pool_machines(two)
    assert np.isnan(pooled.numbers("low")).all() and np.isnan(pooled.numbers("high")).all()
    many = cases(*[(4.0, 6.0)] * 29, (nan, nan), node=[f"kind.{number:06}" for number in range(30)])
    assert pool_machines(many).rows("estimate", "low", "high") == [(5.0, 4.0, 6.0)]


def test_pooled_median_uses_logarithms_and_interpolates() -> None:
    nodes = ["kind.aaaaaa", "kind.bbbbbb"]
    assert pool_machines(log_cases([1.0, 4.0], node=nodes)).rows("estimate") == [(pytest.approx(2.0),)]
    assert pool_machines(cases((0.2, 0.2), (0.6, 0.6), node=nodes)).rows("estimate") == [(pytest.approx(0.4),)]


def test_pooled_interval_at_another_level_spans_the_machines() -> None:
    pooled = pool_machines(log_cases([1.0, 1.1], [0.01, 0.02], node=["kind.aaaaaa", "kind.bbbbbb"]))
    single = [log_cases([value], [se]).ends(0.999) for value, se in ((1.0, 0.01), (1.1, 0.02))]
    low, high = pooled.ends(0.999)
    assert (low[0], high[0]) == (min(ends[0][0] for ends in single), max(ends[1][0] for ends in single))
    assert low[0] < pooled.numbers("low")[0]


def test_single_machines_are_not_pooled() -> None:
    machines = log_cases([1.0, 2.0, 3.0], node=["one.aaaaaa", "two.aaaaaa", None])
    assert pool_machines(machines) is machines
    apart = log_cases([1.0, 2.0], node=["one.aaaaaa", "one.bbbbbb"], model=["a", "b"])
    assert pool_machines(apart) is apart


def test_published_figures_are_not_pooled() -> None:
    estimates = log_cases([1.0, 2.0, 3.0, 4.0], node=["one.aaaaaa", "one.bbbbbb", None, None])
    pooled = pool_machines(estimates)
    assert isinstance(pooled, PooledEstimates)
    assert row_nodes(pooled) == [["one.aaaaaa", "one.bbbbbb"], [], []]
    assert nodes_by_kind(pooled) == {"one": ["one.aaaaaa", "one.bbbbbb"]}


# The tests below judge nodes, and check verdicts and pages.


@pytest.fixture
def court(synthetic: Factory, tmp_path: Path) -> Court:
    court = Court(synthetic, tmp_path)
    court.claim("W15", **PER_CYCLE)
    return court


def measured_node(synthetic: Factory, name: str, rate: float) -> Any:
    return synthetic(name, seed=int(rate)).gemm(rate).clock()


def test_verdict_gives_machine_count_and_range_per_case(synthetic: Factory, court: Court, tmp_path: Path) -> None:
    nodes = [
        measured_node(synthetic, name, rate) for name, rate in (("kind.aaaaaa", 20), ("kind.bbbbbb", 30), ("other", 9))
    ]
    document = court.judge(*nodes)
    (verdict,) = document["verdicts"]
    twins, single = verdict["cases"]
    assert twins["instances"] == ["kind.aaaaaa", "kind.bbbbbb"]
    assert twins["node"] == "kind.aaaaaa"
    assert "2 machines" in twins["machines"]
    assert (twins["instance_low"], twins["instance_high"]) == (pytest.approx(20, 0.05), pytest.approx(30, 0.05))
    assert not single.keys() & {"instances", "machines", "instance_low", "instance_high"}

    names = {node["id"]: node["label"] for node in document["nodes"]}
    (table,) = _case_tables(verdict, names, None, list_cells(verdict, None), EvidenceLists(EvidenceIds()))
    places = [row["where"] for row in table["rows"]]
    assert places[0].startswith(twins["machines"]) and places[0].endswith("MAC/cycle from machine to machine)")
    assert places[1] == names["other"]
    assert any("count as one" in text for text in _confidence_sentences(verdict, names, {}))


def test_case_with_several_runs_of_one_machine_is_labelled(synthetic: Factory, court: Court) -> None:
    document = court.judge(
        *(measured_node(synthetic, name, rate) for name, rate in (("kind.aaaaaa", 20), ("kind.aaaaaa.2", 30)))
    )
    (verdict,) = document["verdicts"]
    (case,) = verdict["cases"]
    assert "2 runs of one machine" in case["machines"]
    names = {node["id"]: node["label"] for node in document["nodes"]}
    (table,) = _case_tables(verdict, names, None, list_cells(verdict, None), EvidenceLists(EvidenceIds()))
    assert table["rows"][0]["where"].endswith("MAC/cycle from run to run)")
    assert any("counts once" in text for text in _confidence_sentences(verdict, names, {}))


def test_explain_lists_rows_for_every_pooled_machine(synthetic: Factory, tmp_path: Path) -> None:
    synthetic.write([measured_node(synthetic, name, rate) for name, rate in (("kind.aaaaaa", 20), ("kind.bbbbbb", 30))])
    gather([synthetic.root], tmp_path / "data", allow_synthetic=True)
    data = read_dataset(tmp_path / "data", read_reference(REFERENCE))
    document = judge(data, tmp_path / "verdicts.json", allow_synthetic=True)
    text = " ".join(explain(document, "N03", Sources(tmp_path / "data", most=None)).split())
    assert "2 machines, float32, 1 thread" in text
    assert all(f"gemm.cpu.<round>.parquet of {node}" in text for node in ("kind.aaaaaa", "kind.bbbbbb"))
    assert not find_faults(Study(tmp_path / "verdicts.json", tmp_path / "data"))
