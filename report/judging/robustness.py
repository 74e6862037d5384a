"""Test how robust verdicts are: judge a part again with one assumption changed at a time (a trial).

The assumptions are the threshold, a label value in the scope, and the cases, machines and units to include. A trial
turns the verdict if it leads to a different verdict. `verdicts.Trial` is its record.
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
    CaseSides,
    RuleResult,
    outcome_from_counts,
    rule_outcome,
)
from report.judging.shares import share_population
from report.outcomes import (
    LISTED,
    ROBUST,
    SENSITIVE,
    UNTRIED,
    Side,
    Threshold,
    Verdict,
    combine_verdicts,
    is_sensitive_to_list,
)
from report.quantities.ladder import LOOPS
from report.statistics import Floats
from report.verdicts import Part as PartRecord
from report.verdicts import Robustness, Trial, Turn

# Conditions for a robust outcome. CLEAR_WIDTHS: its estimate lies at least this many widths of its interval from the
# threshold. NEAR_FACTOR: the outcome stays the same at all thresholds in the declared range that differ from the
# declared threshold by at most this factor.
CLEAR_WIDTHS, NEAR_FACTOR = 1.0, 2.0
# Scope labels for which trials take other values. With these values, the claim's question stays the same.
_SWAPPED = ("dtype", "threads", "backend", "baseline", "precision", "op")
# Trials name at most this many cases or machines. If there are more, only their number is given.
MOST_NAMED = 3
# If a slider's range spans more than this factor, it is drawn on a logarithmic scale.
LOGARITHMIC = 8.0
# Number of bisection steps to find the threshold at which a share's outcome changes. Other outcomes change only at a
# threshold from `_candidate_thresholds`, but a share varies smoothly with the threshold.
_HALVINGS = 40
# A slider with more pieces than this offers the declared thresholds only.
MOST_PIECES = 60


class Retrial:
    """A part's compared estimates, with methods to judge them again.

    verdict_for: maps an outcome of this part to the claim's verdict.
    open_: the outcome to return for thresholds at which the part is undecided.
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
        # A trial that leaves out estimates keeps the interval level for the full number of estimates. Its intervals may
        # thus be slightly too wide, which is conservative.
        low, high = (result.estimates.numbers(name).to_numpy() for name in ("low", "high"))
        # True for each estimate with an interval. An estimate without one keeps its side at every threshold.
        self.known = ~(np.isnan(low) | np.isnan(high))
        settled = [None if known else side for known, side in zip(self.known, result.sides, strict=True)]
        self.case_sides = CaseSides(part, result.estimates, settled)
        self.sides = np.array(result.sides)
        self.population = share_population(part, result.estimates)
        self.decides = any(verdict_for(other) != verdict_for(self.outcome) for other in Verdict if other.is_judged)

    def turns(self, outcome: Verdict) -> bool:
        """Return True if this outcome of the part turns the claim's verdict.

        If no outcome can turn the verdict, return True if this outcome differs from the part's own.
        """
        return self.verdict_for(outcome) != self.verdict_for(self.outcome) if self.decides else outcome != self.outcome

    def trial(self, kind: str, outcome: Verdict, **changed: Any) -> Trial:
        """Record a trial with this outcome and the resulting verdict."""
        return Trial(kind=kind, outcome=outcome, verdict=self.verdict_for(outcome), **changed)  # type: ignore[arg-type]

    def outcome_at(self, threshold: Threshold) -> Verdict:
        """Judge the part at another threshold; return `open_` if it is undecided there."""
        outcome = self._outcome_at(threshold)
        return outcome if outcome.is_decided else self.undecided_outcome

    def _outcome_at(self, threshold: Threshold) -> Verdict:
        if self.population:
            return self.population.share_at(threshold.low).outcome(self.part.share)
        return self.case_sides.outcome(threshold)

    @property
    def is_settled(self) -> bool:
        """True if the part is decided and no threshold can change its outcome, as for two series that never cross."""
        return not self.known.any() and self.outcome in (Verdict.SUPPORTED, Verdict.CHALLENGED)


def part_robustness(
    part: Part,
    estimates: Estimates,
    result: RuleResult,
    unit: str,
    data: Dataset,
    verdict_for: Callable[[Verdict], Verdict],
) -> Robustness:
    """Run all trials on a part and record how near its outcome is to turning.

    estimates: all estimates of the part's quantity, before scope and scale.

    The record has these fields:
    margin_widths: see `margin`; None for exact figures, chosen lists and without an interval.
    verdict: the verdict on the claim.
    decides: True if another outcome of this part alone would turn the verdict.
    fragile: True if the margin is below CLEAR_WIDTHS, a chosen list is sensitive, or a trial turns the verdict.
    Thresholds beyond NEAR_FACTOR do not count, nor do loops in plain code, which measure a language, not a machine.
    """
    retrial = Retrial(part, result, verdict_for)
    distance = margin(result, part.threshold, part.share)
    trials = [
        *threshold_trials(retrial),
        *_scope_trials(part, estimates, unit, retrial),
        *_omission_trials(retrial, data),
    ]
    if result.share is not None and result.share.listed:
        unclear = is_sensitive_to_list(result.share.turning_units(part.share), result.share.units)
    else:
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
    """Return True if a trial's change is so small that the part is fragile if the trial turns the verdict."""
    if trial.kind == "threshold":
        return trial.side is not None and (trial.factor or 0) <= NEAR_FACTOR
    return not trial.plain_loop


def margin(result: RuleResult, threshold: Threshold, wanted: float = 1.0) -> float:
    """Return how far the deciding estimate lies from the threshold, in widths of the estimate's interval.

    The deciding estimate is the representative estimate, except for DEPENDS. Then each side's distance is that of its
    farthest estimate, and the smaller one is returned, because the outcome holds as long as each side has an estimate.
    Distances are computed on logarithms if all values are positive. For a share of units, the distance is that between
    the share and the required share `wanted`, in widths of the share's interval. The distance is infinite for exact
    figures, and nan without an interval and for a share of a chosen list.
    """
    if result.share is not None and result.share.units:
        if result.share.listed:
            return math.nan
        # A sampled share's interval always has a width, because the units are only a sample.
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
    # An exact figure has no interval width, so its distance is infinite, even if it equals the threshold.
    return np.where(low == high, np.inf, distances)


# The following functions try other thresholds.


def threshold_trials(retrial: Retrial) -> Iterator[Trial]:
    """Yield a trial for each other declared threshold, and for the nearest thresholds that turn the verdict.

    The nearest thresholds are searched for between the smallest and the largest declared threshold.
    """
    part = retrial.part
    for threshold in part.thresholds:
        if threshold != part.threshold:
            yield retrial.trial("threshold", retrial.outcome_at(threshold), threshold=threshold.json)
    if len(part.thresholds) > 1 and not retrial.is_settled:
        yield from _turning_ranges(retrial) if part.threshold.is_range else _turning_thresholds(retrial)


def _turning_ranges(retrial: Retrial) -> Iterator[Trial]:
    """Yield a trial for each declared range that turns the verdict.

    The trial's `factor` compares this range with the part's own range: it is the ratio between their lower ends or
    between their upper ends, whichever is larger.
    """
    for threshold in retrial.part.thresholds:
        outcome = retrial.outcome_at(threshold)
        if retrial.turns(outcome):
            factors = [_larger_ratio(*ends) for ends in zip(threshold.ends, retrial.part.threshold.ends, strict=True)]
            factor = None if None in factors else max(factor for factor in factors if factor is not None)
            yield retrial.trial("threshold", outcome, threshold=threshold.json, side="range", factor=factor)


def _turning_thresholds(retrial: Retrial) -> Iterator[Trial]:
    """Yield a trial for the nearest threshold that turns the verdict, on each side of the declared threshold."""
    declared, tried = retrial.part.threshold.low, retrial.part.thresholds
    stretches = list(outcome_pieces(retrial, tried[0].low, tried[-1].low))
    now = sum(start < declared or (start == declared and not later) for start, _, _, later in stretches) - 1
    for ahead in (range(now + 1, len(stretches)), range(now - 1, -1, -1)):
        at = next((at for at in ahead if retrial.turns(stretches[at][1])), None)
        if at is not None:
            # The trial's threshold is the boundary between two pieces, which is the start of the upper piece. `later`
            # is 1 if the boundary itself still belongs to the lower piece.
            start, _, _, later = stretches[at] if at > now else stretches[at + 1]
            side = ("above" if later else "from") if at > now else ("to" if later else "below")
            yield retrial.trial(
                "threshold", stretches[at][1], threshold=start, side=side, factor=_larger_ratio(start, declared)
            )


def _larger_ratio(at: float, value: float) -> float | None:
    """Divide the larger number by the smaller; return None if either is not positive."""
    return max(at / value, value / at) if at > 0 and value > 0 else None


def outcome_pieces(retrial: Retrial, low: float, high: float) -> Iterator[tuple[float, Verdict, Verdict, int]]:
    """Split a threshold range into pieces with one outcome each, in ascending order.

    Yields for each piece: its start, the part's outcome, the claim's verdict, and a number. The number is 1 if the
    start itself still belongs to the previous piece, otherwise 0.
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
    """List the ends of the range and all thresholds between them at which an estimate may change sides.

    For a share of units, add evenly spaced thresholds, because the share's outcome may change anywhere.
    """
    sides = retrial.case_sides
    minority = retrial.part.rule not in ("exists", "for_share_of")
    ends = np.concatenate([end[retrial.known] for end in (*sides.ends, *(sides.sure_ends if minority else ()))])
    if sides.published:
        margins = (1.0, sides.margin, *((sides.sure_margin,) if minority else ()))
        ends = np.concatenate([end for margin in margins for end in sides.published.ends(margin)])
    if retrial.population:
        ends = np.concatenate([ends, np.linspace(low, high, 33)])
    inside = np.unique(ends[np.isfinite(ends) & (ends > low) & (ends < high)])
    return [low, *inside.tolist(), high]


def _turning_place(retrial: Retrial, start: float, end: float) -> float:
    """Bisect between `start` and `end` for the lowest threshold with the outcome that holds at `end`."""
    wanted = retrial.outcome_at(Threshold(end))
    for _ in range(_HALVINGS):
        middle = (start + end) / 2
        if not start < middle < end:
            break
        start, end = (start, middle) if retrial.outcome_at(Threshold(middle)) == wanted else (middle, end)
    return end


# The following functions try other scopes, and leave out cases and machines.


def _scope_trials(part: Part, estimates: Estimates, unit: str, retrial: Retrial) -> Iterator[Trial]:
    """Yield a trial for each other value that the estimates have for a scope label in _SWAPPED."""
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
    """List a scope label's other values among the estimates that match the scope's other labels.

    more: labels and values to add to the scope.
    """
    scope = {**{key: value for key, value in part.scope.items() if key != name}, **more}
    if name == "backend":
        scope[name] = [value for value in estimates[name].dropna().unique() if value != "best"]
    beside, own = select(estimates, scope), select(estimates, part.scope)
    used = {now, *own[name].dropna().unique()}
    return [value for value in sorted(beside[name].dropna().unique(), key=str) if value not in used]


def _omission_trials(retrial: Retrial, data: Dataset) -> Iterator[Trial]:
    """Yield a trial for each case, machine kind, or unit in a share whose omission changes the outcome.

    All machines of a kind are left out together; `one_case` is True if they have one case only. The outcome follows
    from the numbers of remaining supporting and challenging cases, but a share is computed again.
    """
    estimates, n = retrial.result.estimates, len(retrial.sides)
    pro, contra = (int((retrial.sides == side).sum()) for side in (Side.SUPPORTS, Side.CHALLENGES))
    population = retrial.population

    def outcome_without(rows: NDArray[np.bool_], n_omitted: int, supporting: int, challenging: int) -> Verdict:
        """Return the outcome if cases are left out.

        rows: mask for the omitted cases, used for shares only.
        n_omitted: how many cases are omitted.
        supporting, challenging: how many omitted cases support or challenge the claim.
        """
        if population:
            return population.share_at(retrial.part.threshold.low, ~rows).outcome(retrial.part.share)
        return outcome_from_counts(retrial.part, n - n_omitted, pro - supporting, contra - challenging)

    def named_trials(of: str, named: Sequence[Mapping[str, str]], number: int, outcome: Verdict, **more: Any) -> Any:
        """Yield a trial for each name, or a single trial without a name if `number` exceeds MOST_NAMED."""
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


# The following functions combine the trials on all parts in a claim.


def claim_robustness(parts: Sequence[PartRecord], verdict: str) -> tuple[str | None, Turn | None]:
    """Rate how robust a claim's verdict is, and find the nearest change that turns it.

    The robustness is:
    SENSITIVE: a small change turns the verdict, or the result is close to the threshold.
    ROBUST: the claim is not sensitive.
    LISTED: the claim is not sensitive, but its cases are a chosen list.
    UNTRIED: the claim rests on exact figures, which are not varied.
    None: the claim is undecided or not judged.

    The change has the kind `margin` if no trial turns the verdict but the result is close to the threshold, and the
    kind `nothing` if the result is not close either. The change is None for UNTRIED and for a claim without a judged
    part.
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
    """Yield each change to a part that turns the verdict, with its rank: the nearest change has the lowest rank."""
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
    """Rank a trial's change: the smaller the change from what the part declares, the lower the rank.

    Thresholds within NEAR_FACTOR come first, then other label values, then omissions, then more distant thresholds; two
    thresholds are ranked by their `factor`. Returns None for trials without a rank: thresholds without `side` (declared
    ones), and loops in plain code.
    """
    if trial.kind == "threshold":
        # If a threshold is not positive, its factor is unknown, and it ranks before all other changes.
        factor = trial.factor or 0.0
        return (0 if factor <= NEAR_FACTOR else 4, factor) if trial.side else None
    if trial.kind == "scope":
        return None if trial.plain_loop else (1, 0.0)
    return 2, 0.0


def _turn_from_trial(trial: Trial, part: str | None, **changed: Any) -> Turn:
    return Turn(**{**structs.asdict(trial), "part": part, **changed})


def _turning_inputs(parts: Sequence[PartRecord], verdict: str) -> Iterator[Turn]:
    """Yield the formula inputs that turn the verdict if they move to an end of their range."""
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
    """Find changes that turn the verdict if they are made in all parts that allow them.

    A change takes another label value, or leaves out a machine kind. Changes that only one part allows are skipped.
    Each turn copies the trial on the first part that allows the change, except for the verdict, which is the claim's
    verdict after the change. parts: all judged parts.
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


# The following functions compute the sliders. The web pages know no rules, so all outcomes on a slider are computed
# here.


def part_slider(part_result: PartResult, verdict_for: Callable[[Verdict], Verdict]) -> dict[str, Any] | None:
    """Judge a part and its claim at other thresholds, with the other parts unchanged.

    Returns None if no other threshold is declared, nothing was compared, or no estimate depends on the threshold. The
    record has these fields:
    declared: the declared threshold.
    range: the smallest and the largest declared threshold.
    log: True if the largest exceeds the smallest by more than the factor LOGARITHMIC.
    pieces: the pieces from `outcome_pieces`.
    choices: each declared threshold with its outcome and verdict. They replace range, log and pieces if the threshold
    is a range or if there are more than MOST_PIECES pieces.
    """
    part_result = _with_published_result(part_result)
    declared = part_result.part.thresholds
    if part_result.result is None or part_result.unchecked or len(declared) < 2:
        return None
    # At a threshold where published measurements do not decide, the part still awaits this study's measurements, or is
    # undecided by those of single rounds.
    waits = part_result.waits
    open_ = waits.verdict if waits and not waits.single_rounds else Verdict.UNDECIDED
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
    """Replace a waiting part's result by its direct published result, if there is exactly one.

    This result may decide the part at another threshold.
    """
    direct_results = [other for other in part_result.others if other.strength == DIRECT and other.result is not None]
    if part_result.missing is None or len(direct_results) != 1:
        return part_result
    return replace(part_result, part=direct_results[0].part, result=direct_results[0].result, waits=part_result.missing)


def claim_sliders(
    part_results: Sequence[PartResult], verdict_for: Callable[[Mapping[int, Verdict]], Verdict]
) -> list[dict[str, Any]]:
    """Record a claim's sliders; parts with the same thresholds and unit use one slider together.

    verdict_for: maps supposed outcomes, by the part's position in `part_results`, to the claim's verdict.

    `parts` (their names) and `unit` are added to each record from `part_slider`. If several parts use a slider, each
    piece has the claim's verdict as its outcome.
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
    """Merge several parts' sliders; each piece has the claim's verdict as its outcome."""
    starts = sorted({(piece[0], piece[3]) for at in group for piece in records[at]["pieces"]})
    stretches: list[list[Any]] = []
    for start in starts:
        # For each part, take the outcome of the piece that contains this start.
        now = {at: [piece for piece in records[at]["pieces"] if (piece[0], piece[3]) <= start][-1][1] for at in group}
        verdict = verdict_for({at: Verdict(outcome) for at, outcome in now.items()})
        if not stretches or stretches[-1][1] != verdict:
            stretches.append([start[0], verdict, verdict, start[1]])
    return {**records[group[0]], "pieces": stretches}
