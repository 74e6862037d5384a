"""A reader moves a threshold: what is looked up then is what judging says with that threshold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


def looked_up(slider: Slider, threshold: float) -> tuple[str, str]:
    """Outcome and verdict of the last piece that has begun, as a page finds it."""
    found = [piece for piece in slider["pieces"] if piece[0] < threshold or (piece[0] == threshold and not piece[3])]
    return found[-1][1], found[-1][2]


def told_places(slider: Slider) -> Iterator[tuple[float, tuple[str, str]]]:
    """Every piece's start, just past it and its middle, and the ends of the range, each with what is looked up."""
    low, high = slider["range"]
    starts = [piece[0] for piece in slider["pieces"]]
    middles = [(start + end) / 2 for start, end in pairwise([*starts, high])]
    for place in (low, high, *starts, *(np.nextafter(start, math.inf) for start in starts), *middles):
        if low <= place <= high:
            yield float(place), looked_up(slider, float(place))


# On measured nodes, and on made-up ones with GPUs


@dataclass
class Court:
    """Claims with their verdicts, and judging itself with other thresholds."""

    claims: dict[str, Claim]
    verdicts: list[dict[str, Any]]
    cache: QuantityCache

    @property
    def sliders(self) -> list[tuple[dict[str, Any], Slider]]:
        """Each with the verdict that it is of."""
        return [(verdict, slider) for verdict in self.verdicts for slider in verdict["by_threshold"]]

    def judged(self, name: str, moved: Mapping[str, Threshold]) -> tuple[dict[str, str], str]:
        """The outcomes of a claim's parts, and its verdict, with the thresholds of some parts replaced."""
        claim = self.claims[name]
        parts = [replace(one, threshold=moved.get(one.name, one.threshold)) for one in claim.parts]
        found = [add_published_results(evaluate_part(one, claim, self.cache), claim, self.cache) for one in parts]
        then = [evaluate_part(one, claim, self.cache) for one in claim.when_written]
        return {one.part.name: str(one.outcome) for one in found}, str(claim_verdict(found, then))

    def agrees(self, verdict: Mapping[str, Any], slider: Slider, threshold: Any, told: Sequence[str]) -> None:
        """Check what a slider tells at a threshold against judging."""
        outcomes, whole = self.judged(verdict["id"], dict.fromkeys(slider["parts"], Threshold.from_json(threshold)))
        said = whole if len(slider["parts"]) > 1 else outcomes[slider["parts"][0]]
        assert tuple(told) == (said, whole), f"{verdict['id']} {slider['parts']} at {threshold}"


@pytest.fixture(scope="module", params=["published", "fleet"])
def court(request: pytest.FixtureRequest) -> Court:
    """All claims on the published nodes; then on synthetic machines too, of which two have GPUs."""
    if request.param == "published":
        folder: Path = request.getfixturevalue("published")
        reference, others, place = read_reference(REFERENCE), read_published(PUBLISHED), CLAIMS
    else:
        folder = request.getfixturevalue("published_with_fleet")
        reference, others, place = verified_figures(), None, folder / "claims"
    verdicts = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    claims = {claim.id: claim for claim in read_claims(place, reference)}
    return Court(claims, verdicts, QuantityCache(read_dataset(folder / "data", reference, others)))


def test_wherever_a_slider_stands_it_says_what_judging_says(court: Court) -> None:
    seen = set()
    for verdict, slider in court.sliders:
        tried = slider.get("choices") or [[place, *told] for place, told in told_places(slider)]
        for threshold, *told in tried:
            court.agrees(verdict, slider, threshold, told)
        parts = [one for one in verdict["parts"] if one["name"] in slider["parts"]]
        seen |= {one["rule"] for one in parts} | {"choices" if "choices" in slider else "pieces"}
        seen |= {"several parts"} if len(parts) > 1 else set()
    assert {"choices", "pieces", "several parts", "at_least", "at_most", "exists", "for_share_of", "within"} <= seen


def test_a_part_without_a_slider_comes_out_the_same_whatever_is_declared(court: Court) -> None:
    """Or it has no evidence that may decide."""
    without = 0
    for verdict in court.verdicts:
        moved = {name for slider in verdict["by_threshold"] for name in slider["parts"]}
        told = {one["name"]: one for one in verdict["parts"]}
        assert moved <= set(told)
        for one in court.claims[verdict["id"]].parts:
            if one.name in moved or len(one.thresholds) < 2:
                continue
            without += 1
            if told[one.name]["unchecked"]:
                continue
            outcomes = {court.judged(verdict["id"], {one.name: other})[0][one.name] for other in one.thresholds}
            assert outcomes == {told[one.name]["outcome"]}, f"{verdict['id']} {one.name}"
    assert without


# On estimates that are made up

ENDS = st.sampled_from([-4.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5]) | st.floats(-5, 5)
INTERVALS = st.tuples(ENDS, ENDS).map(sorted).map(tuple) | st.just((math.nan, math.nan))
RULES = st.sampled_from(["at_least", "at_most", "exists"])


def result(one: Part, estimates: Estimates, **more: Any) -> PartResult:
    decided = rules.apply_rule(one, estimates)
    return PartResult(one, decided.outcome, unit="1", estimates=estimates, result=decided, **more)


def at(one: Part, estimates: Estimates, threshold: float) -> Verdict:
    """What the rule says with another threshold."""
    return rules.apply_rule(replace(one, threshold=Threshold(threshold)), estimates).outcome


def with_another(other: Verdict) -> Callable[[Verdict], Verdict]:
    """The verdict on a claim of two parts, of which the other came out so."""
    return lambda outcome: combine_verdicts([outcome, other])


@st.composite
def made_up(draw: st.DrawFn) -> Estimates:
    """Some estimates, perhaps published ones of a few independent sources."""
    drawn = draw(st.lists(INTERVALS, min_size=1, max_size=6))
    labels: dict[str, Any] = {"place": [str(number) for number in range(len(drawn))]}
    if draw(st.booleans()):
        labels["family"] = [draw(st.sampled_from(["one", "two", "one and three"])) for _ in drawn]
    return cases(*drawn, **labels)


@settings(max_examples=300)
@given(estimates=made_up(), rule=RULES, data=st.data())
def test_pieces_are_what_the_rule_says_and_no_more_of_them_than_needed(
    estimates: Estimates, rule: str, data: st.DataObject
) -> None:
    low, declared, high = sorted(data.draw(st.lists(ENDS, min_size=3, max_size=3, unique=True)))
    one = part(rule, declared, sensitivity=[low, high])
    whole = with_another(data.draw(st.sampled_from(Verdict)))
    slider = part_slider(result(one, estimates), whole)
    if slider is None:
        assert {at(one, estimates, place) for place in (low, declared, high)} == {at(one, estimates, declared)}
        return
    assert (slider["range"], slider["declared"]) == ([low, high], declared)
    for threshold in (*(place for place, _ in told_places(slider)), declared, data.draw(st.floats(low, high))):
        outcome = at(one, estimates, threshold)
        assert looked_up(slider, threshold) == (outcome, whole(outcome)), threshold
    assert slider["pieces"][0][0] == low and slider["pieces"][-1][0] <= high
    for before, after in pairwise(slider["pieces"]):
        assert (before[0], before[3]) < (after[0], after[3]) and before[1] != after[1]


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(0.2, 20), min_size=3, max_size=12),
    se=st.sampled_from([0.0, 0.02, 0.3]),
    compare=st.sampled_from(["at_least", "at_most"]),
    wanted=st.sampled_from([0.25, 0.5, 0.9]),
    threshold=st.floats(0.5, 10),
)
def test_a_share_turns_where_the_rule_turns_it(
    values: list[float], se: float, compare: str, wanted: float, threshold: float
) -> None:
    estimates = log_cases(values, se=se, model=[str(number) for number in range(len(values))])
    options = {"of": "model", "compare": compare, "share": wanted}
    one = part("for_share_of", 2.0, options, sensitivity=[0.5, 10.0])
    slider = part_slider(result(one, estimates), lambda outcome: outcome)
    assert slider is not None
    for place in (*(place for place, _ in told_places(slider)), threshold):
        # Where chances change smoothly a turn is found to within a hair.
        if all(place >= start or start - place > 1e-9 for start, *_ in slider["pieces"]):
            assert looked_up(slider, place)[0] == at(one, estimates, place), place


@settings(max_examples=60)
@given(estimates=made_up(), ends=st.lists(st.tuples(ENDS, ENDS).map(sorted), min_size=2, max_size=4, unique_by=tuple))
def test_ranges_are_choices_among_those_that_are_declared(estimates: Estimates, ends: list[list[float]]) -> None:
    one = part("within", ends[0], sensitivity=ends[1:])
    slider = part_slider(result(one, estimates), lambda outcome: outcome)
    tried = {
        tuple(end): rules.apply_rule(replace(one, threshold=Threshold.from_json(end)), estimates).outcome
        for end in ends
    }
    if slider is None:
        assert len(set(tried.values())) == 1
        return
    assert slider["declared"] == ends[0]
    assert {tuple(threshold): outcome for threshold, outcome, _ in slider["choices"]} == tried


def test_too_many_turns_leave_the_declared_thresholds_as_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    found = result(part("at_least", 2.0, sensitivity=[1.0, 9.0]), cases((3.0, 4.0)))
    slider = part_slider(found, lambda outcome: outcome)
    assert slider is not None and [piece[1] for piece in slider["pieces"]] == ["supported", "undecided", "challenged"]
    monkeypatch.setattr(robustness, "MOST_PIECES", 2)
    slider = part_slider(found, lambda outcome: outcome)
    assert slider is not None and "pieces" not in slider
    assert [choice[:2] for choice in slider["choices"]] == [[1.0, "supported"], [2.0, "supported"], [9.0, "challenged"]]


def test_where_published_figures_leave_it_open_a_part_waits_for_measurements_again() -> None:
    found = result(part("at_least", 2.0, sensitivity=[1.0, 9.0]), cases((3.0, 4.0)))
    slider = part_slider(replace(found, waits=Missing(Verdict.AWAITING_HARDWARE)), lambda outcome: outcome)
    assert slider is not None
    assert [piece[1] for piece in slider["pieces"]] == ["supported", "awaiting hardware", "challenged"]


@pytest.mark.parametrize(
    "found",
    [
        result(part("at_least", 2.0), cases((3.0, 4.0))),
        result(part("at_least", 2.0, sensitivity=[1.0, 9.0]), cases((3.0, 4.0)), unchecked=True),
        PartResult(part("at_least", 2.0, sensitivity=[1.0, 9.0]), Verdict.AWAITING_HARDWARE),
    ],
    ids=["one threshold", "a model that nothing checked", "nothing compared"],
)
def test_nothing_is_moved_where_no_other_threshold_would_say_anything(found: PartResult) -> None:
    assert part_slider(found, lambda outcome: outcome) is None


@pytest.mark.parametrize(("most", "log"), [(8.0, False), (9.0, True)])
def test_a_range_of_magnitudes_is_moved_by_magnitudes(most: float, log: bool) -> None:
    slider = part_slider(result(part("at_least", 2.0, sensitivity=[1.0, most]), cases((3.0, 4.0))), lambda one: one)
    assert slider is not None and slider["log"] == log


@settings(max_examples=100)
@given(
    estimates=st.lists(made_up(), min_size=2, max_size=3),
    declared=st.lists(st.sampled_from([0.5, 1.0]), min_size=3, max_size=3),
    threshold=st.floats(-2, 4),
)
def test_parts_held_against_the_same_threshold_move_at_once(
    estimates: list[Estimates], declared: list[float], threshold: float
) -> None:
    parts = [part("at_least", one, sensitivity=[-2.0, 4.0], name=str(n)) for n, one in enumerate(declared)]
    found = [result(*pair) for pair in zip(parts, estimates, strict=False)]

    def whole(other: Mapping[int, Verdict]) -> Verdict:
        return combine_verdicts([other.get(place, one.outcome) for place, one in enumerate(found)])

    made = claim_sliders(found, whole)
    names = [name for slider in made for name in slider["parts"]]
    assert len(names) == len(set(names))
    for slider in made:
        moved = [int(name) for name in slider["parts"]]
        assert {declared[place] for place in moved} == {slider["declared"]}
        for place, told in (*told_places(slider), (threshold, looked_up(slider, threshold))):
            outcomes = {at_: at(parts[at_], estimates[at_], place) for at_ in moved}
            verdict = whole(outcomes)
            assert told == (verdict if len(moved) > 1 else outcomes[moved[0]], verdict), place
