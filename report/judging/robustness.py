"""Test robustness: judge a part again with one assumption changed at a time.

Assumptions are the threshold, a label value in the scope, and the presence of one case or machine (`verdicts.Trial`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from msgspec import structs
from numpy.typing import NDArray

from contract.node import kind_of_node
from report.compared_estimates import nodes_by_kind, row_machine, row_name
from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging.claim_files import Part
from report.judging.part_evaluation import DIRECT, PartResult, select
from report.judging.rules import (
    CLEAR,
    RuleResult,
    deciding_ends,
    outcome_from_counts,
    outcome_from_sides,
    rule_outcome,
    share_population,
    side_finder,
)
from report.outcomes import LISTED, ROBUST, SENSITIVE, UNTRIED, Side, Threshold, Verdict, combine_verdicts
from report.quantities.ladder import LOOPS
from report.statistics import Floats
from report.verdicts import Part as PartRecord
from report.verdicts import Robustness, Trial, Turn

# A robust outcome lies at least CLEAR_WIDTHS interval widths from the threshold, and no threshold of the declared range
# that differs by at most the factor NEAR_FACTOR turns it.
CLEAR_WIDTHS, NEAR_FACTOR = 1.0, 2.0
# Scope labels whose value can be swapped without changing the question.
_SWAPPED = ("dtype", "threads", "backend", "baseline", "precision", "op")
# Most cases or machines to name; if there are more, only their number is given.
MOST_NAMED = 3
# A range whose ends differ by more than this factor is drawn on a logarithmic scale.
LOGARITHMIC = 8.0
# Bisection steps to find the threshold at which a share's outcome turns; a share varies smoothly with the threshold.
_HALVINGS = 40
# Most pieces on a slider; if there are more, the slider offers the declared thresholds only.
MOST_PIECES = 60


class Retrial:
    """A part's compared estimates, to be judged again.

    verdict_for: returns the claim's verdict for an outcome of this part. open_: the outcome to give at thresholds that
    leave the part undecided.
    """

    def __init__(
        self,
        part: Part,
        result: RuleResult,
        verdict_for: Callable[[Verdict], Verdict],
        open_: Verdict = Verdict.UNDECIDED,
    ) -> None:
        self.part, self.result, self.verdict_for, self.outcome = part, result, verdict_for, result.outcome
        self.undecided_outcome = open_
        # Trials that leave out estimates keep the interval level for all estimates, which is slightly conservative.
        self.low, self.high = deciding_ends(part, result.estimates)
        self.sides_at = side_finder(part, result.estimates, (self.low, self.high))
        self.sides = np.array(result.sides)
        # An estimate without an interval stays on its side at every threshold.
        self.known = ~(np.isnan(self.low) | np.isnan(self.high))
        self.population = share_population(part, result.estimates)
        self.decides = any(verdict_for(other) != verdict_for(self.outcome) for other in Verdict if other.is_judged)

    def turns(self, outcome: Verdict) -> bool:
        """Return True if an outcome turns the verdict.

        If no outcome of this part can turn the verdict, return True if the outcome differs from the part's own.
        """
        return self.verdict_for(outcome) != self.verdict_for(self.outcome) if self.decides else outcome != self.outcome

    def trial(self, kind: str, outcome: Verdict, **changed: Any) -> Trial:
        """Record one trial."""
        return Trial(kind=kind, outcome=outcome, verdict=self.verdict_for(outcome), **changed)  # type: ignore[arg-type]

    def outcome_at(self, threshold: Threshold) -> Verdict:
        """Return the outcome at another threshold."""
        outcome = self._outcome_at(threshold)
        return outcome if outcome.is_decided else self.undecided_outcome

    def _outcome_at(self, threshold: Threshold) -> Verdict:
        if self.population:
            return self.population.share_at(threshold.low).outcome(self.part.share)
        sides = zip(self.sides_at(threshold), self.known, self.result.sides, strict=True)
        return outcome_from_sides(self.part.rule, [new if known else old for new, known, old in sides])

    @property
    def is_settled(self) -> bool:
        """True if no estimate depends on the threshold, as when two series never change places."""
        return not self.known.any() and self.outcome in (Verdict.SUPPORTED, Verdict.CHALLENGED)


def part_robustness(
    part: Part,
    estimates: Estimates,
    result: RuleResult,
    unit: str,
    data: Dataset,
    verdict_for: Callable[[Verdict], Verdict],
) -> Robustness:
    """Run all trials on a part, to tell how near its outcome is to turning.

    estimates: all for the quantity, before scope and scale. margin_widths: see `margin`; None without an interval or
    for exact figures. verdict: the verdict on the claim. decides: True if another outcome of this part alone would turn
    the claim. fragile: True if the margin is below CLEAR_WIDTHS or any trial turns the verdict, except thresholds
    beyond NEAR_FACTOR and loops in plain code, which measure a language, not a machine.
    """
    retrial = Retrial(part, result, verdict_for)
    distance = margin(result, part.threshold, part.share)
    trials = [
        *threshold_trials(retrial),
        *_scope_trials(part, estimates, unit, retrial),
        *_omission_trials(retrial, data),
    ]
    unclear = not math.isinf(distance) and not (distance >= CLEAR_WIDTHS) and not retrial.is_settled
    return Robustness(
        margin_widths=distance if math.isfinite(distance) else None,
        exact=math.isinf(distance),
        verdict=verdict_for(result.outcome),
        decides=retrial.decides,
        fragile=unclear or any(trial.outcome and retrial.turns(trial.outcome) for trial in trials if _is_near(trial)),
        trials=trials,
    )


def _is_near(trial: Trial) -> bool:
    """Return True if a trial's change is small enough to make the part fragile."""
    if trial.kind == "threshold":
        return trial.side is not None and (trial.factor or 0) <= NEAR_FACTOR
    return not trial.plain_loop


def margin(result: RuleResult, threshold: Threshold, wanted: float = 1.0) -> float:
    """Return the deciding estimate's distance from the threshold, in interval widths; infinite for exact figures.

    The deciding estimate is the representative one. For DEPENDS, take the clearest estimate on each side, then the less
    clear of these two, since the outcome holds while both sides exist. Distances use logarithms if all values are
    positive. For a share, return its distance from `wanted`. The result is nan without an interval.
    """
    if result.share is not None and result.share.units:
        # A share always has an interval width, because its units are a sample from others like them.
        return abs(result.share.estimate - wanted) / (result.share.high - result.share.low)
    widths = _distances_in_widths(result.estimates, threshold.ends)
    if result.outcome is not Verdict.DEPENDS:
        return float(widths[result.representative or 0])
    sides = [side for side in Side if side in result.sides][:2]
    clearest = [widths[np.array(result.sides) == side] for side in sides]
    return float(
        np.min([np.nanmax(side_widths) if not np.isnan(side_widths).all() else np.nan for side_widths in clearest])
    )


def _distances_in_widths(estimates: Estimates, ends: Sequence[float]) -> Floats:
    """Return each estimate's distance from the nearest end of the threshold, in interval widths."""
    estimate, low, high = (estimates[name].to_numpy(float) for name in ("estimate", "low", "high"))
    logs = (estimate > 0) & (low > 0) & all(end > 0 for end in ends)
    with np.errstate(invalid="ignore", divide="ignore"):
        straight = [np.abs(estimate - end) for end in ends]
        by_logs = [np.abs(np.log(estimate / end)) for end in ends if end > 0] or straight
        gap = np.where(logs, np.min(by_logs, axis=0), np.min(straight, axis=0))
        distances: Floats = gap / np.where(logs, np.log(high / low), high - low)
    # Exact figures have no width, so the distance is infinite, even on the threshold.
    return np.where(low == high, np.inf, distances)


# Thresholds


def threshold_trials(retrial: Retrial) -> Iterator[Trial]:
    """Yield trials for all other declared thresholds, and for the nearest in their range that turn the verdict."""
    part = retrial.part
    for threshold in part.thresholds:
        if threshold != part.threshold:
            yield retrial.trial("threshold", retrial.outcome_at(threshold), threshold=threshold.json)
    if len(part.thresholds) > 1 and not retrial.is_settled:
        yield from _turning_ranges(retrial) if part.threshold.is_range else _turning_thresholds(retrial)


def _turning_ranges(retrial: Retrial) -> Iterator[Trial]:
    """Yield a trial for each declared range that turns the verdict.

    factor: the larger of the two ratios between an end of this range and the same end of the part's own range.
    """
    for threshold in retrial.part.thresholds:
        outcome = retrial.outcome_at(threshold)
        if retrial.turns(outcome):
            factors = [_larger_ratio(*ends) for ends in zip(threshold.ends, retrial.part.threshold.ends, strict=True)]
            factor = None if None in factors else max(factor for factor in factors if factor is not None)
            yield retrial.trial("threshold", outcome, threshold=threshold.json, side="range", factor=factor)


def _turning_thresholds(retrial: Retrial) -> Iterator[Trial]:
    """Yield the nearest thresholds below and above the declared one that turn the verdict."""
    declared, tried = retrial.part.threshold.low, retrial.part.thresholds
    stretches = list(outcome_pieces(retrial, tried[0].low, tried[-1].low))
    now = sum(start < declared or (start == declared and not later) for start, _, _, later in stretches) - 1
    for ahead in (range(now + 1, len(stretches)), range(now - 1, -1, -1)):
        at = next((at for at in ahead if retrial.turns(stretches[at][1])), None)
        if at is not None:
            # A piece's start may still belong to the previous piece.
            start, _, _, later = stretches[at] if at > now else stretches[at + 1]
            side = ("above" if later else "from") if at > now else ("to" if later else "below")
            yield retrial.trial(
                "threshold", stretches[at][1], threshold=start, side=side, factor=_larger_ratio(start, declared)
            )


def _larger_ratio(at: float, value: float) -> float | None:
    """Return the ratio of the larger number to the smaller; None if either is not positive."""
    return max(at / value, value / at) if at > 0 and value > 0 else None


def outcome_pieces(retrial: Retrial, low: float, high: float) -> Iterator[tuple[float, Verdict, Verdict, int]]:
    """Split a threshold range into pieces with one outcome each, ascending.

    Yields start, outcome, verdict, and 1 if the start itself still belongs to the previous piece, else 0.
    """
    points = _candidate_thresholds(retrial, low, high)
    outcome = retrial.outcome_at(Threshold(points[0]))
    yield points[0], outcome, retrial.verdict_for(outcome), 0
    for start, end in pairwise(points):
        middle = retrial.outcome_at(Threshold((start + end) / 2))
        last = retrial.outcome_at(Threshold(end))
        if middle != outcome:
            place, later = (_turning_place(retrial, start, (start + end) / 2), 0) if retrial.population else (start, 1)
            yield place, middle, retrial.verdict_for(middle), later
        if last != middle:
            place = _turning_place(retrial, (start + end) / 2, end) if retrial.population else end
            yield place, last, retrial.verdict_for(last), 0
        outcome = last


def _candidate_thresholds(retrial: Retrial, low: float, high: float) -> list[float]:
    """Return the range's ends and all thresholds between them where an estimate may change sides."""
    ends = np.concatenate([retrial.low[retrial.known], retrial.high[retrial.known]])
    if "family" in retrial.result.estimates.labels:
        stated = [retrial.result.estimates.numbers(name).to_numpy(float) for name in ("low", "high")]
        ends = np.concatenate([ends, *stated, *(end * CLEAR for end in stated), *(end / CLEAR for end in stated)])
    if retrial.population:
        ends = np.concatenate([ends, np.linspace(low, high, 33)])
    inside = np.unique(ends[np.isfinite(ends) & (ends > low) & (ends < high)])
    return [low, *inside.tolist(), high]


def _turning_place(retrial: Retrial, start: float, end: float) -> float:
    """Bisect for the threshold where the outcome at `end` begins."""
    wanted = retrial.outcome_at(Threshold(end))
    for _ in range(_HALVINGS):
        middle = (start + end) / 2
        if not start < middle < end:
            break
        start, end = (start, middle) if retrial.outcome_at(Threshold(middle)) == wanted else (middle, end)
    return end


# Scope, cases and machines


def _scope_trials(part: Part, estimates: Estimates, unit: str, retrial: Retrial) -> Iterator[Trial]:
    """Yield a trial for each other value of a scope label, if there are estimates with this value."""
    for name in _SWAPPED:
        now = part.scope.get(name)
        if now is None or isinstance(now, list) or name not in estimates.labels:
            continue
        best_shape = {"shape": "best"} if name == "backend" and "shape" in estimates.labels else {}
        for value in _other_values(estimates, name, now, part, best_shape):
            swapped = replace(part, scope={**part.scope, name: value, **best_shape})
            outcome = rule_outcome(swapped, select(estimates, swapped.scope) * part.scale, unit)
            if outcome is not None:
                python_value = value.item() if isinstance(value, np.generic) else value
                yield retrial.trial(
                    "scope", outcome, label=name, value=python_value, now=now, plain_loop=python_value in LOOPS
                )


def _other_values(estimates: Estimates, name: str, now: Any, part: Part, more: Mapping[str, Any]) -> list[Any]:
    """Return the label's other values among the estimates that match all other labels of the scope."""
    scope = {**{key: value for key, value in part.scope.items() if key != name}, **more}
    if name == "backend":
        scope[name] = [value for value in estimates[name].dropna().unique() if value != "best"]
    beside, own = select(estimates, scope), select(estimates, part.scope)
    used = {now, *own[name].dropna().unique()}
    return [value for value in sorted(beside[name].dropna().unique(), key=str) if value not in used]


def _omission_trials(retrial: Retrial, data: Dataset) -> Iterator[Trial]:
    """Yield a trial for each case, machine, or unit of a share whose omission alone changes the outcome.

    All machines of a kind are left out together. one_case: True if the machine has one case only. If a case is left
    out, the outcome follows from the counts on each side; a share is computed again.
    """
    estimates, n = retrial.result.estimates, len(retrial.sides)
    pro, contra = (int((retrial.sides == side).sum()) for side in (Side.SUPPORTS, Side.CHALLENGES))
    population = retrial.population

    def outcome_without(rows: NDArray[np.bool_], n_omitted: int, supporting: int, challenging: int) -> Verdict:
        """Return the outcome without `rows`. The numbers count these rows, and those that support and challenge."""
        if population:
            return population.share_at(retrial.part.threshold.low, ~rows).outcome(retrial.part.share)
        return outcome_from_counts(retrial.part.rule, n - n_omitted, pro - supporting, contra - challenging)

    def named_trials(of: str, named: Sequence[Mapping[str, str]], number: int, outcome: Verdict, **more: Any) -> Any:
        """Yield a trial per name, or one trial without a name if there are more than MOST_NAMED."""
        if number > MOST_NAMED:
            named = [{"what": ""}]
        shared = {"of": of, "number": number if number > MOST_NAMED else 1, **more}
        return (retrial.trial("without", outcome, **shared, **name_fields) for name_fields in named)

    if population and len(population.names) > 1:
        for unit, name in enumerate(population.names):
            outcome = outcome_without(population.units == unit, 0, 0, 0)
            if outcome != retrial.outcome:
                yield from named_trials(population.of, [{"what": name}], 1, outcome)
    for side in Side if n > 1 and not population else ():
        at = np.flatnonzero(retrial.sides == side)
        outcome = outcome_without(retrial.sides == side, 1, side is Side.SUPPORTS, side is Side.CHALLENGES)
        if len(at) and outcome != retrial.outcome:
            named_cases = [{"what": _case_text(estimates, int(row), data)} for row in at[:MOST_NAMED]]
            yield from named_trials("case", named_cases, len(at), outcome)
    if "node" not in estimates.labels:
        return
    codes, kinds = pd.factorize(estimates["node"].map(kind_of_node, na_action="ignore"))
    kind_nodes = nodes_by_kind(estimates)
    here = [codes >= 0, *((codes >= 0) & (retrial.sides == side) for side in (Side.SUPPORTS, Side.CHALLENGES))]
    each = np.array([np.bincount(codes[of], minlength=len(kinds)) for of in here])
    hang: dict[tuple[Verdict, bool], list[list[str]]] = {}
    for code, (kind, counts) in enumerate(zip(kinds, each.T.tolist(), strict=True)):
        outcome = outcome_without(codes == code, *counts)
        if n > counts[0] and outcome != retrial.outcome:
            hang.setdefault((outcome, counts[0] == 1), []).append(kind_nodes[kind])
    for (turned, alone), node_groups in hang.items():
        named = [{"what": data.group_label(nodes), "id": nodes[0]} for nodes in node_groups[:MOST_NAMED]]
        yield from named_trials("machine", named, len(node_groups), turned, one_case=alone)


def _case_text(estimates: Estimates, row: int, data: Dataset) -> str:
    return "; ".join(filter(None, (row_machine(estimates, row, data), row_name(estimates, row))))


# Claims


def claim_robustness(parts: Sequence[PartRecord], verdict: str) -> tuple[str | None, Turn | None]:
    """Classify a claim's robustness and find the nearest change that turns its verdict.

    ROBUST, SENSITIVE, LISTED (robust, but the cases are a chosen list), UNTRIED (exact figures are not varied); None
    for an undecided claim. The turn has kind margin if the result is close to the threshold, though no trial turns the
    verdict, and kind nothing if it is not close either; None for UNTRIED and for a claim without a judged part.
    """
    judged = [part for part in parts if part.robustness]
    if not Verdict(verdict).is_judged or not judged:
        return None, None
    inputs = list(_turning_inputs(judged, verdict))
    if all(part.robustness.fact for part in judged) and not inputs:  # type: ignore[union-attr]
        return UNTRIED, None
    judged = [part for part in judged if not part.robustness.fact] or judged  # type: ignore[union-attr]
    ranked = [item for part in judged for item in _ranked_turns(part)]
    joint = [((1, 1.0), item) for item in (*inputs, *joint_turns(judged, verdict))]
    decisive = [part for part in judged if part.robustness and part.robustness.decides]
    sensitive = bool(joint) or any(part.robustness.fragile for part in decisive if part.robustness)
    word = SENSITIVE if sensitive else LISTED if any(part.cases_why for part in judged) else ROBUST
    nothing = Turn(kind="nothing", part=decisive[0].name if len(parts) == 1 and decisive else None)
    _, turn = min([*ranked, *joint], key=lambda item: item[0], default=(None, nothing))
    return None if verdict == Verdict.UNDECIDED else word, turn


def _ranked_turns(part: PartRecord) -> Iterator[tuple[tuple[int, float], Turn]]:
    """Yield changes to a part that turn the verdict, each with its rank: the lower, the nearer."""
    record = part.robustness
    if record is None or not record.decides:
        return
    for trial in record.trials:
        rank = _trial_rank(trial)
        if rank and trial.verdict != record.verdict:
            yield rank, _turn_from_trial(trial, part.name)
    if record.fragile:
        yield (3, 0.0), Turn(kind="margin", part=part.name)


def _trial_rank(trial: Trial) -> tuple[int, float] | None:
    """Return a change's rank, the nearest change first; None if the change does not count."""
    if trial.kind == "threshold":
        # Thresholds whose factor is unknown rank before all others.
        factor = trial.factor or 0.0
        return (0 if factor <= NEAR_FACTOR else 4, factor) if trial.side else None
    if trial.kind == "scope":
        return None if trial.plain_loop else (1, 0.0)
    return 2, 0.0


def _turn_from_trial(trial: Trial, part: str | None, **changed: Any) -> Turn:
    return Turn(**{**structs.asdict(trial), "part": part, **changed})


def _turning_inputs(parts: Sequence[PartRecord], verdict: str) -> Iterator[Turn]:
    """Yield inputs to the arithmetic that turn the verdict at an end of their range."""
    for part in parts:
        record = part.arithmetic or {}
        for work in (record, *record.get("also", [])):
            known = {input_record["symbol"]: input_record for input_record in work.get("inputs", [])}
            for tried in work.get("sensitivity", []):
                if tried["verdict"] != verdict:
                    input_record = known[tried["symbol"]]
                    yield Turn(
                        kind="input", symbol=input_record["symbol"], means=input_record["means"],
                        value=tried["input"], now=input_record["value"], unit=tried["unit"],
                        outcome=tried["outcome"], verdict=tried["verdict"],
                    )  # fmt: skip


def joint_turns(parts: Sequence[PartRecord], verdict: str) -> list[Turn]:
    """Find changes (another label value, or a machine left out) that turn the verdict if made in several parts at once.

    parts: all judged parts. Machines of one kind count as the same. Each turn copies the trial of the first part with
    this change, and has the claim's new verdict.
    """
    by_change: dict[tuple[Any, ...], dict[int, Trial]] = {}
    for at, part in enumerate(parts):
        for trial in part.robustness.trials if part.robustness else []:
            if trial.kind == "scope" and not trial.plain_loop:
                by_change.setdefault((trial.label, trial.now, trial.value), {})[at] = trial
            elif trial.kind == "without" and trial.id:
                by_change.setdefault((kind_of_node(trial.id),), {})[at] = trial
    turns = []
    for changed in by_change.values():
        outcomes = [changed[at].outcome if at in changed else part.outcome for at, part in enumerate(parts)]
        turned = combine_verdicts([str(outcome) for outcome in outcomes])
        if len(changed) > 1 and turned != verdict:
            turns.append(_turn_from_trial(next(iter(changed.values())), None, verdict=turned))
    return sorted(turns, key=lambda trial: trial.kind == "without")


# Sliders: pages have no rules of their own, so all outcomes on a slider are computed here


def part_slider(part_result: PartResult, verdict_for: Callable[[Verdict], Verdict]) -> dict[str, Any] | None:
    """Return a part's outcomes and the claim's verdicts at other thresholds, with the other parts fixed.

    None if no other threshold is declared, nothing was compared, or no estimate depends on the threshold. `range`: the
    least and the greatest declared threshold; `log`: True if their ratio exceeds LOGARITHMIC; `pieces`: see
    `outcome_pieces`. For a threshold with two ends, and for more than MOST_PIECES, the record has `choices` instead of
    `range`, `log` and `pieces`: a list of threshold, outcome and verdict.
    """
    part_result = _with_published_result(part_result)
    declared = part_result.part.thresholds
    if part_result.result is None or part_result.unchecked or len(declared) < 2:
        return None
    # At thresholds where published measurements do not decide, the part still waits for ours.
    open_ = part_result.waits.verdict if part_result.waits else Verdict.UNDECIDED
    retrial = Retrial(part_result.part, part_result.result, verdict_for, open_)
    if retrial.is_settled:
        return None
    low, high = declared[0].low, declared[-1].low
    stretches = [] if part_result.part.threshold.is_range else list(map(list, outcome_pieces(retrial, low, high)))
    if stretches and len(stretches) <= MOST_PIECES:
        log = bool(low > 0 and high / low > LOGARITHMIC)
        return {"declared": part_result.part.threshold.low, "range": [low, high], "log": log, "pieces": stretches}
    outcomes = [(threshold, retrial.outcome_at(threshold)) for threshold in declared]
    choices = [[threshold.json, outcome, verdict_for(outcome)] for threshold, outcome in outcomes]
    return {"declared": part_result.part.threshold.json, "choices": choices}


def _with_published_result(part_result: PartResult) -> PartResult:
    """Let a waiting part take its published result, which may decide the part at another threshold."""
    direct_results = [other for other in part_result.others if other.strength == DIRECT and other.result is not None]
    if part_result.missing is None or len(direct_results) != 1:
        return part_result
    return replace(part_result, part=direct_results[0].part, result=direct_results[0].result, waits=part_result.missing)


def claim_sliders(
    part_results: Sequence[PartResult], verdict_for: Callable[[Mapping[int, Verdict]], Verdict]
) -> list[dict[str, Any]]:
    """Return the `part_slider` records; parts with the same thresholds share one slider.

    verdict_for: the claim's verdict if the parts at these positions had other outcomes. Each record also has `parts`
    (names) and `unit`; for several parts, the outcome in a piece is the claim's verdict.
    """
    records = {}
    for at, part_result in enumerate(part_results):
        record = part_slider(part_result, lambda outcome, at=at: verdict_for({at: outcome}))  # type: ignore[misc]
        if record:
            records[at] = record
    groups: dict[Any, list[int]] = {}
    for at, record in records.items():
        same = "pieces" in record and (part_results[at].part.threshold, part_results[at].unit, *record["range"])
        groups.setdefault(same or at, []).append(at)
    return [
        {
            "parts": [part_results[at].part.name for at in group],
            "unit": part_results[group[0]].unit,
            **(records[group[0]] if len(group) == 1 else _joint_slider(group, records, verdict_for)),
        }
        for group in groups.values()
    ]


def _joint_slider(
    group: Sequence[int],
    records: Mapping[int, Mapping[str, Any]],
    verdict_for: Callable[[Mapping[int, Verdict]], Verdict],
) -> dict[str, Any]:
    """Merge several parts' sliders into one."""
    starts = sorted({(piece[0], piece[3]) for at in group for piece in records[at]["pieces"]})
    stretches: list[list[Any]] = []
    for start in starts:
        # Take the piece of each part that holds this start.
        now = {at: [piece for piece in records[at]["pieces"] if (piece[0], piece[3]) <= start][-1][1] for at in group}
        verdict = verdict_for({at: Verdict(outcome) for at, outcome in now.items()})
        if not stretches or stretches[-1][1] != verdict:
            stretches.append([start[0], verdict, verdict, start[1]])
    return {**records[group[0]], "pieces": stretches}
