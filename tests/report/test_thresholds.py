"""Threshold sliders: the outcomes that they store for threshold ranges equal new decisions at each threshold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from report.data.gathered_files import read_dataset
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.estimates import Estimates
from report.judging import robustness, rules
from report.judging.claim_files import Claim, Part, read_claims
from report.judging.judge import CLAIMS, claim_verdict
from report.judging.part_evaluation import PartResult, QuantityCache, add_published_results, evaluate_part
from report.judging.robustness import claim_sliders, part_slider
from report.outcomes import Threshold, Verdict, combine_verdicts
from report.verdicts import Missing
from tests.golden.__main__ import verified_figures

from .made_estimates import cases, log_cases, part

Slider = Mapping[str, Any]


def look_up(slider: Slider, threshold: float) -> tuple[str, str]:
    """Look up outcome and verdict as pages do, in the last piece of the slider that starts at or before `threshold`."""
    begun = [piece for piece in slider["pieces"] if piece[0] < threshold or (piece[0] == threshold and not piece[3])]
    return begun[-1][1], begun[-1][2]


def probe_thresholds(slider: Slider) -> Iterator[tuple[float, tuple[str, str]]]:
    """Yield thresholds with their lookups.

    The thresholds are the ends of the range, and for each piece its start, the next number after it, and its middle.
    """
    low, high = slider["range"]
    starts = [piece[0] for piece in slider["pieces"]]
    middles = [(start + end) / 2 for start, end in pairwise([*starts, high])]
    for place in (low, high, *starts, *(np.nextafter(start, math.inf) for start in starts), *middles):
        if low <= place <= high:
            yield float(place), look_up(slider, float(place))


# The tests below are on measured nodes, and on synthetic nodes with GPUs.


@dataclass
class Court:
    """Claims with their verdicts, and new decisions at other thresholds."""

    claims: dict[str, Claim]
    verdicts: list[dict[str, Any]]
    cache: QuantityCache
    declared: dict[int, PartResult] = field(default_factory=dict)

    @property
    def sliders(self) -> list[tuple[dict[str, Any], Slider]]:
        """Pairs (verdict, slider)."""
        return [(verdict, slider) for verdict in self.verdicts for slider in verdict["by_threshold"]]

    def evaluate_once(self, item: Part, claim: Claim) -> PartResult:
        """Evaluate a part with its declared threshold; keep the result, because most parts are decided many times."""
        if id(item) not in self.declared:
            self.declared[id(item)] = evaluate_part(item, claim, self.cache)
        return self.declared[id(item)]

    def decide(self, name: str, thresholds: Mapping[str, Threshold]) -> tuple[dict[str, str], str]:
        """Decide a claim with other `thresholds` by part. Return the part outcomes and the verdict."""
        claim = self.claims[name]
        parts = [
            evaluate_part(item.with_threshold(thresholds[item.name]), claim, self.cache)
            if item.name in thresholds
            else self.evaluate_once(item, claim)
            for item in claim.parts
        ]
        results = [add_published_results(result, claim, self.cache) for result in parts]
        when_written = [self.evaluate_once(item, claim) for item in claim.when_written]
        return {item.part.name: str(item.outcome) for item in results}, str(claim_verdict(results, when_written))

    def check(self, verdict: Mapping[str, Any], slider: Slider, threshold: Any, lookup: Sequence[str]) -> None:
        """Compare a slider lookup at `threshold` with a new decision."""
        outcomes, final = self.decide(verdict["id"], dict.fromkeys(slider["parts"], Threshold.from_json(threshold)))
        outcome = final if len(slider["parts"]) > 1 else outcomes[slider["parts"][0]]
        assert tuple(lookup) == (outcome, final), f"{verdict['id']} {slider['parts']} at {threshold}"


@pytest.fixture(scope="module", params=["published", "fleet"])
def court(request: pytest.FixtureRequest) -> Court:
    """All claims, on the published nodes, and with added synthetic nodes (two with GPUs)."""
    if request.param == "published":
        folder: Path = request.getfixturevalue("published_study")
        reference, published_records, claims_folder = read_reference(REFERENCE), read_published(PUBLISHED), CLAIMS
    else:
        folder = request.getfixturevalue("published_with_fleet")
        reference, published_records, claims_folder = verified_figures(), None, folder / "claims"
    verdicts = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    claims = {claim.id: claim for claim in read_claims(claims_folder, reference)}
    return Court(claims, verdicts, QuantityCache(read_dataset(folder / "data", reference, published_records)))


def test_slider_lookups_match_new_decisions(court: Court) -> None:
    covered = set()
    for number, (verdict, slider) in enumerate(court.sliders):
        lookups = slider.get("choices") or [[place, *lookup] for place, lookup in probe_thresholds(slider)]
        # Every third lookup, as each takes a decision; sliders begin at different ones.
        for threshold, *lookup in lookups[number % min(3, len(lookups)) :: 3]:
            court.check(verdict, slider, threshold, lookup)
        parts = [item for item in verdict["parts"] if item["name"] in slider["parts"]]
        covered |= {item["rule"] for item in parts} | {"choices" if "choices" in slider else "pieces"}
        covered |= {"several parts"} if len(parts) > 1 else set()
    assert {"choices", "pieces", "several parts", "at_least", "at_most", "exists", "for_share_of", "within"} <= covered


def test_part_without_slider_has_one_outcome_at_all_declared_thresholds(court: Court) -> None:
    """Skip each part that is undecided because nothing checks the model behind its quantity."""
    count = 0
    for verdict in court.verdicts:
        with_slider = {name for slider in verdict["by_threshold"] for name in slider["parts"]}
        parts = {item["name"]: item for item in verdict["parts"]}
        assert with_slider <= set(parts)
        for item in court.claims[verdict["id"]].parts:
            if item.name in with_slider or len(item.thresholds) < 2:
                continue
            count += 1
            if parts[item.name]["unchecked"]:
                continue
            outcomes = {court.decide(verdict["id"], {item.name: value})[0][item.name] for value in item.thresholds}
            assert outcomes == {parts[item.name]["outcome"]}, f"{verdict['id']} {item.name}"
    assert count


# The tests below are on invented estimates.

ENDS = st.sampled_from([-4.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5]) | st.floats(-5, 5)
INTERVALS = st.tuples(ENDS, ENDS).map(sorted).map(tuple) | st.just((math.nan, math.nan))
RULES = st.sampled_from(["at_least", "at_most", "exists"])


def decide(claim_part: Part, estimates: Estimates, **more: Any) -> PartResult:
    decided = rules.apply_rule(claim_part, estimates)
    return PartResult(claim_part, decided.outcome, unit="1", estimates=estimates, result=decided, **more)


def outcome_at(claim_part: Part, estimates: Estimates, threshold: float) -> Verdict:
    """Apply the rule at another threshold."""
    return rules.apply_rule(replace(claim_part, threshold=Threshold(threshold)), estimates).outcome


def with_other_part(other: Verdict) -> Callable[[Verdict], Verdict]:
    """Return a verdict function for claims whose second part has outcome `other`."""
    return lambda outcome: combine_verdicts([outcome, other])


@st.composite
def drawn_estimates(draw: st.DrawFn) -> Estimates:
    """Draw estimates, some with published source families."""
    drawn = draw(st.lists(INTERVALS, min_size=1, max_size=6))
    labels: dict[str, Any] = {"place": [str(number) for number in range(len(drawn))]}
    if draw(st.booleans()):
        labels["family"] = [draw(st.sampled_from(["one", "two", "one and three"])) for _ in drawn]
    return cases(*drawn, **labels)


@settings(max_examples=300)
@given(estimates=drawn_estimates(), rule=RULES, data=st.data())
def test_pieces_match_the_rule_and_are_minimal(estimates: Estimates, rule: str, data: st.DataObject) -> None:
    low, declared, high = sorted(data.draw(st.lists(ENDS, min_size=3, max_size=3, unique=True)))
    claim_part = part(rule, declared, sensitivity=[low, high])
    verdict_for = with_other_part(data.draw(st.sampled_from(Verdict)))
    slider = part_slider(decide(claim_part, estimates), verdict_for)
    if slider is None:
        assert {outcome_at(claim_part, estimates, place) for place in (low, declared, high)} == {
            outcome_at(claim_part, estimates, declared)
        }
        return
    assert (slider["range"], slider["declared"]) == ([low, high], declared)
    for threshold in (*(place for place, _ in probe_thresholds(slider)), declared, data.draw(st.floats(low, high))):
        outcome = outcome_at(claim_part, estimates, threshold)
        assert look_up(slider, threshold) == (outcome, verdict_for(outcome)), threshold
    assert slider["pieces"][0][0] == low and slider["pieces"][-1][0] <= high
    for before, after in pairwise(slider["pieces"]):
        assert (before[0], before[3]) < (after[0], after[3]) and before[1] != after[1]


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(0.2, 20), min_size=3, max_size=12),
    se=st.sampled_from([0.0, 0.02, 0.3]),
    compare=st.sampled_from(["at_least", "at_most"]),
    share=st.sampled_from([0.25, 0.5, 0.9]),
    threshold=st.floats(0.5, 10),
)
def test_share_pieces_match_the_rule(
    values: list[float], se: float, compare: str, share: float, threshold: float
) -> None:
    estimates = log_cases(values, se=se, model=[str(number) for number in range(len(values))])
    options = {"of": "model", "compare": compare, "share": share}
    claim_part = part("for_share_of", 2.0, options, sensitivity=[0.5, 10.0])
    slider = part_slider(decide(claim_part, estimates), lambda outcome: outcome)
    assert slider is not None
    for place in (*(place for place, _ in probe_thresholds(slider)), threshold):
        # The share changes smoothly with the threshold, so its slider locates each change only to within 1e-9.
        if all(place >= start or start - place > 1e-9 for start, *_ in slider["pieces"]):
            assert look_up(slider, place)[0] == outcome_at(claim_part, estimates, place), place


@settings(max_examples=60)
@given(
    estimates=drawn_estimates(),
    ends=st.lists(st.tuples(ENDS, ENDS).map(sorted), min_size=2, max_size=4, unique_by=tuple),
)
def test_declared_ranges_become_choices(estimates: Estimates, ends: list[list[float]]) -> None:
    claim_part = part("within", ends[0], sensitivity=ends[1:])
    slider = part_slider(decide(claim_part, estimates), lambda outcome: outcome)
    outcomes = {
        tuple(end): rules.apply_rule(replace(claim_part, threshold=Threshold.from_json(end)), estimates).outcome
        for end in ends
    }
    if slider is None:
        assert len(set(outcomes.values())) == 1
        return
    assert slider["declared"] == ends[0]
    assert {tuple(threshold): outcome for threshold, outcome, _ in slider["choices"]} == outcomes


def test_too_many_pieces_fall_back_to_declared_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    part_result = decide(part("at_least", 2.0, sensitivity=[1.0, 9.0]), cases((3.0, 4.0)))
    slider = part_slider(part_result, lambda outcome: outcome)
    assert slider is not None and [piece[1] for piece in slider["pieces"]] == ["supported", "undecided", "challenged"]
    monkeypatch.setattr(robustness, "MOST_PIECES", 2)
    slider = part_slider(part_result, lambda outcome: outcome)
    assert slider is not None and "pieces" not in slider
    assert [choice[:2] for choice in slider["choices"]] == [[1.0, "supported"], [2.0, "supported"], [9.0, "challenged"]]


def test_undecided_published_evidence_leaves_the_part_awaiting() -> None:
    part_result = decide(part("at_least", 2.0, sensitivity=[1.0, 9.0]), cases((3.0, 4.0)))
    slider = part_slider(replace(part_result, waits=Missing(Verdict.AWAITING_HARDWARE)), lambda outcome: outcome)
    assert slider is not None
    assert [piece[1] for piece in slider["pieces"]] == ["supported", "awaiting hardware", "challenged"]


@pytest.mark.parametrize(
    "part_result",
    [
        decide(part("at_least", 2.0), cases((3.0, 4.0))),
        decide(part("at_least", 2.0, sensitivity=[1.0, 9.0]), cases((3.0, 4.0)), unchecked=True),
        PartResult(part("at_least", 2.0, sensitivity=[1.0, 9.0]), Verdict.AWAITING_HARDWARE),
    ],
    ids=["one threshold", "a model that nothing checked", "nothing compared"],
)
def test_part_without_alternatives_has_no_slider(part_result: PartResult) -> None:
    assert part_slider(part_result, lambda outcome: outcome) is None


@pytest.mark.parametrize(("most", "log"), [(8.0, False), (9.0, True)])
def test_slider_over_magnitudes_is_logarithmic(most: float, log: bool) -> None:
    slider = part_slider(decide(part("at_least", 2.0, sensitivity=[1.0, most]), cases((3.0, 4.0))), lambda word: word)
    assert slider is not None and slider["log"] == log


@settings(max_examples=100)
@given(
    estimates=st.lists(drawn_estimates(), min_size=2, max_size=3),
    declared=st.lists(st.sampled_from([0.5, 1.0]), min_size=3, max_size=3),
    threshold=st.floats(-2, 4),
)
def test_parts_with_equal_thresholds_share_a_slider(
    estimates: list[Estimates], declared: list[float], threshold: float
) -> None:
    parts = [part("at_least", item, sensitivity=[-2.0, 4.0], name=str(n)) for n, item in enumerate(declared)]
    results = [decide(*pair) for pair in zip(parts, estimates, strict=False)]

    def verdict_with(outcomes: Mapping[int, Verdict]) -> Verdict:
        return combine_verdicts([outcomes.get(place, item.outcome) for place, item in enumerate(results)])

    sliders = claim_sliders(results, verdict_with)
    names = [name for slider in sliders for name in slider["parts"]]
    assert len(names) == len(set(names))
    for slider in sliders:
        indices = [int(name) for name in slider["parts"]]
        assert {declared[place] for place in indices} == {slider["declared"]}
        for place, lookup in (*probe_thresholds(slider), (threshold, look_up(slider, threshold))):
            moved_outcomes = {index: outcome_at(parts[index], estimates[index], place) for index in indices}
            expected = verdict_with(moved_outcomes)
            assert lookup == (expected if len(indices) > 1 else moved_outcomes[indices[0]], expected), place
