"""How robust a verdict is: margins, other thresholds and scopes, one estimate or node less. Linear in the estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contract.node import kind_of_node
from report.data.dataset import Dataset
from report.estimates import Estimates
from report.judging import describe
from report.judging.claims import Part
from report.judging.filters import select
from report.judging.instances import by_kind
from report.judging.rules import (
    RuleResult,
    deciding_ends,
    of_counts,
    outcome_alone,
    outcome_of,
    population,
    side_finder,
)
from report.model import Side, Threshold, Verdict, combined
from report.quantities.ladder import LOOPS
from report.statistics import Floats

# A verdict is robust if what decides it lies an interval's width from the threshold, and no threshold so near turns it.
CLEAR_WIDTHS, NEAR_FACTOR = 1.0, 2.0
# Scope labels that may be swapped for another value without leaving the question.
_SWAPPED = ("dtype", "threads", "backend", "baseline", "precision", "op")
# Estimates or nodes that are named; of more it is said how many they are.
MOST_NAMED = 3


class Trial:
    """A part's compared estimates as numbers, and what another outcome of it would do to the verdict on its claim."""

    def __init__(
        self,
        part: Part,
        result: RuleResult,
        whole: Callable[[Verdict], Verdict],
        open_: Verdict = Verdict.UNDECIDED,
    ) -> None:
        """open_: what the part comes to at a threshold that leaves it undecided."""
        self.part, self.result, self.whole, self.now = part, result, whole, result.outcome
        self.open = open_
        # The level is that of all estimates also where some are left out: slightly conservative there.
        self.low, self.high = deciding_ends(part, result.estimates)
        self.sides_at = side_finder(part, result.estimates, (self.low, self.high))
        self.sides = np.array(result.sides)
        # An estimate without an interval stays on its side, whatever the threshold.
        self.known = ~(np.isnan(self.low) | np.isnan(self.high))
        self.population = population(part, result.estimates)
        self.decides = any(whole(other) != whole(self.now) for other in Verdict if other.judged)

    def turned(self, outcome: Verdict) -> bool:
        """Whether that outcome of the part would turn the verdict, or where none can, its own."""
        return self.whole(outcome) != self.whole(self.now) if self.decides else outcome != self.now

    def record(self, outcome: Verdict) -> dict[str, str]:
        """An outcome and the verdict that it makes."""
        return {"outcome": outcome, "verdict": self.whole(outcome)}

    def at(self, threshold: Threshold) -> Verdict:
        """The outcome at another threshold."""
        outcome = self._decided(threshold)
        return outcome if outcome.decided else self.open

    def _decided(self, threshold: Threshold) -> Verdict:
        if self.population:
            return self.population.at(threshold.low).outcome(self.part.share)
        kept = zip(self.sides_at(threshold), self.known, self.result.sides, strict=True)
        return outcome_of(self.part.rule, [new if known else old for new, known, old in kept])

    def counts(self) -> tuple[int, int, int]:
        """How many estimates there are, and how many of them support and challenge."""
        return len(self.sides), *(int((self.sides == side).sum()) for side in (Side.SUPPORTS, Side.CHALLENGES))  # type: ignore[return-value]

    @property
    def settled(self) -> bool:
        """Whether no threshold has a say in any estimate, as where two series never change places."""
        return not self.known.any() and self.now in (Verdict.SUPPORTED, Verdict.CHALLENGED)


def robustness(
    part: Part,
    estimates: Estimates,
    result: RuleResult,
    unit: str,
    data: Dataset,
    whole: Callable[[Verdict], Verdict],
) -> dict[str, Any]:
    """What was tried to turn the outcome of a part, of which some estimates were compared, and what came of it.

    estimates: all of the quantity, before scope and scale. whole: the claim's verdict if
    this part came out as given. The record, as `verdicts.json` has it:

    outcome, verdict: as they are. margin_widths: see `margin`; None where it is unknown, or where figures
    are exact (`exact`). thresholds: of the declared range, each with the outcome of the part and the verdict on
    the claim. turns_at: see `breakpoints`, those in range and the nearest first. swaps: scopes with another value
    of one label; `plain_loop` where that is code without a library. without: see `_without`. decides: whether another
    outcome of this part alone would turn the verdict on the claim; if not, what turns its own outcome is recorded.
    fragile: whether anything near does (see `_fragile`).
    """
    trial = Trial(part, result, whole)
    distance = margin(result, part.threshold, part.share)
    record: dict[str, Any] = {
        **trial.record(trial.now),
        "margin_widths": distance if math.isfinite(distance) else None,
        "exact": math.isinf(distance),
        "thresholds": [{"threshold": one.json, **trial.record(trial.at(one))} for one in part.thresholds],
        "turns_at": sorted(breakpoints(trial), key=lambda turn: (not turn["in_range"], turn["factor"] or math.inf)),
        "swaps": list(_swaps(part, estimates, unit, trial)),
        "without": list(_without(trial, data)),
        "decides": trial.decides,
    }
    return {**record, "fragile": _fragile(record, trial)}


def margin(result: RuleResult, threshold: Threshold, wanted: float = 1.0) -> float:
    """Distance of what decides from the threshold, in widths of its interval; infinite for an exact figure.

    What decides is the estimate that stands for all. Of a verdict that depends it is the clearest one of each
    side, and of these the one that is less clear: the verdict depends as long as there are both. Widths are in
    logarithms where all is positive. Of a share, it is the distance from the share that is wanted. nan: no interval.
    """
    if result.share is not None and result.share.units:
        # A share always has a width: its population is sampled.
        return abs(result.share.estimate - wanted) / (result.share.high - result.share.low)
    widths = _widths(result.estimates, threshold.ends)
    if result.outcome is not Verdict.DEPENDS:
        return float(widths[result.representative or 0])
    there = [side for side in Side if side in result.sides][:2]
    clearest = [widths[np.array(result.sides) == side] for side in there]
    return float(np.min([np.nanmax(one) if not np.isnan(one).all() else np.nan for one in clearest]))


def _widths(estimates: Estimates, ends: Sequence[float]) -> Floats:
    """Distance of each estimate from the nearest end of the threshold, in widths of its interval."""
    estimate, low, high = (estimates[name].to_numpy(float) for name in ("estimate", "low", "high"))
    logs = (estimate > 0) & (low > 0) & all(end > 0 for end in ends)
    with np.errstate(invalid="ignore", divide="ignore"):
        straight = [np.abs(estimate - end) for end in ends]
        by_logs = [np.abs(np.log(estimate / end)) for end in ends if end > 0] or straight
        gap = np.where(logs, np.min(by_logs, axis=0), np.min(straight, axis=0))
        found: Floats = gap / np.where(logs, np.log(high / low), high - low)
    # A figure that is exact is not nearer to a threshold that it equals.
    return np.where(low == high, np.inf, found)


def breakpoints(trial: Trial) -> Iterator[dict[str, Any]]:
    """The nearest thresholds on either side at which the verdict turns.

    Each with its threshold, `end`, whether it is `higher`, whether it turns only `past` it, its factor to the
    declared one (None where either is not positive), whether it lies in the declared range, and the outcome
    there. Of a threshold with two ends each is moved by itself (`end` 0 or 1); the range then is the ranges that
    were declared, each a turn of its own (`end` None). Without a declared range the threshold is not varied.
    """
    bound, low, high, known = trial.part.threshold, trial.low, trial.high, trial.known
    always = tuple(int((trial.sides[~known] == side).sum()) for side in (Side.SUPPORTS, Side.CHALLENGES))
    declared = trial.part.thresholds
    if bound.high is None:
        least, most = declared[0].low, declared[-1].low
        upper = trial.part.compare == "at_most"
        end = _End(None, bound.low, upper, low[known], high[known], always)
        nearest = _nearest_of_share(trial) if trial.population else _nearest(trial, end)
        for turn in nearest:
            at = turn["threshold"]
            inside = least < at < most if turn["past"] else least <= at <= most
            yield {**turn, "factor": _factor(at, bound.low), "in_range": inside and len(declared) > 1}
        return
    for one in declared:
        outcome = trial.at(one)
        if trial.turned(outcome):
            factors = [_factor(moved, end) for moved, end in zip(one.ends, bound.ends, strict=True)]
            factor = None if None in factors else max(one for one in factors if one is not None)
            yield {
                "threshold": one.json, **trial.record(outcome), "end": None, "higher": None, "past": False,
                "factor": factor, "in_range": True,
            }  # fmt: skip
    # With one end held, the other is a threshold for the estimates that the held end leaves open.
    under, over = known & (high <= bound.high), known & (low >= bound.low)
    meets, reaches = known & (low <= bound.high), known & (high >= bound.low)
    above, below = ((always[0], always[1] + int((known & ~open_).sum())) for open_ in (meets, reaches))
    for end in (
        _End(0, bound.low, False, low[under], high[meets], above, bound.high),
        _End(1, bound.high, True, low[reaches], high[over], below, bound.low),
    ):
        for turn in _nearest(trial, end):
            yield {**turn, "factor": _factor(turn["threshold"], end.value), "in_range": False}


def _factor(at: float, value: float) -> float | None:
    """How many times as large the larger is; None where one is not positive."""
    return max(at / value, value / at) if at > 0 and value > 0 else None


@dataclass(frozen=True)
class _End:
    """An end of the threshold that moves: which (None: there is one), from where, whether estimates lie below it.

    low, high: ends of the intervals of the estimates that it may make support and challenge. always: how many
    others support and challenge wherever it is. other: the end that it does not pass, if there is one.
    """

    number: int | None
    value: float
    upper: bool
    low: Floats
    high: Floats
    always: Sequence[int]
    other: float | None = None


def _nearest(trial: Trial, end: _End) -> Iterator[dict[str, Any]]:
    """The nearest places above and below where it is at which an end of the threshold turns the verdict."""
    # An upper end is a lower one seen in a mirror: an estimate supports up to its low and challenges past its high.
    sign = -1.0 if end.upper else 1.0
    lows, highs = (np.sort(sign * side) for side in ((end.high, end.low) if end.upper else (end.low, end.high)))
    # The outcome is the same from just past one of these up to the next, and from past the last on.
    breaks = np.unique(np.concatenate([lows, highs]))
    supporting = end.always[0] + len(lows) - np.searchsorted(lows, np.append(breaks, np.inf))
    challenging = end.always[1] + np.searchsorted(highs, np.append(breaks, np.inf))
    here, n = int(np.searchsorted(breaks, sign * end.value)), len(trial.sides)
    for past, places in ((True, range(here + 1, len(breaks) + 1)), (False, range(here - 1, -1, -1))):
        for at in places:
            outcome = of_counts(trial.part.rule, n, int(supporting[at]), int(challenging[at]))
            if trial.turned(outcome):
                turn = float(breaks[at - 1] if past else breaks[at])
                limit = math.inf if end.other is None else sign * end.other
                # Past the other end there would be no range.
                if math.isfinite(turn) and (turn < limit or (turn == limit and not past)):
                    at_end = {"threshold": sign * turn, "end": end.number, "higher": past != end.upper, "past": past}
                    yield {**at_end, **trial.record(outcome)}
                break


def _nearest_of_share(trial: Trial) -> Iterator[dict[str, Any]]:
    """The nearest thresholds at which a share turns the verdict: where it stops to support, and begins to challenge."""
    assert trial.population is not None
    upper, now = trial.population.upper, trial.part.threshold.low
    supported, challenged = trial.population.turns(trial.part.share)
    # Seen in the direction in which fewer and fewer reach the threshold; in the other one the same in reverse.
    onward = [(supported, True, Verdict.UNDECIDED), (challenged, False, Verdict.CHALLENGED)]
    back = [(challenged, True, Verdict.UNDECIDED), (supported, False, Verdict.SUPPORTED)]
    for further, turns in ((True, onward), (False, back)):
        higher = further != upper
        for at, past, outcome in turns:
            ahead = at is not None and (at > now if higher else at < now)
            if at is not None and math.isfinite(at) and (ahead or (at == now and past)) and trial.turned(outcome):
                yield {"threshold": at, "end": None, "higher": higher, "past": past, **trial.record(outcome)}
                break


def _swaps(part: Part, estimates: Estimates, unit: str, trial: Trial) -> Iterator[dict[str, Any]]:
    """Other values of the scope's labels, where such estimates exist: what they would make of it."""
    for name in _SWAPPED:
        now = part.scope.get(name)
        if now is None or isinstance(now, list) or name not in estimates.labels:
            continue
        best_shape = {"shape": "best"} if name == "backend" and "shape" in estimates.labels else {}
        for value in _others(estimates, name, now, part, best_shape):
            swapped = replace(part, scope={**part.scope, name: value, **best_shape})
            outcome = outcome_alone(swapped, select(estimates, swapped.scope) * part.scale, unit)
            if outcome is not None:
                given = value.item() if isinstance(value, np.generic) else value
                swap = {"label": name, "value": given, "now": now, "plain_loop": given in LOOPS}
                yield {**swap, **trial.record(outcome)}


def _others(estimates: Estimates, name: str, now: Any, part: Part, more: Mapping[str, Any]) -> list[Any]:
    """Values of a label that stand beside the scope's own, everything else in scope."""
    scope = {**{key: value for key, value in part.scope.items() if key != name}, **more}
    if name == "backend":
        scope[name] = [value for value in estimates[name].dropna().unique() if value != "best"]
    beside, own = select(estimates, scope), select(estimates, part.scope)
    used = {now, *own[name].dropna().unique()}
    return [value for value in sorted(beside[name].dropna().unique(), key=str) if value not in used]


def _without(trial: Trial, data: Dataset) -> Iterator[dict[str, Any]]:
    """The estimates and the nodes without any one of which the outcome would be another.

    kind: cell or node, or what a share is of. what: each by itself in words, a node also by its `id`; or `number` of
    them, where there are more than MOST_NAMED. All machines of a kind are left out together. one_cell: of a node that
    has no other, so that the estimate says the same. What is left without one follows from how many support and
    challenge; a share is worked out again.
    """
    estimates, (n, pro, contra) = trial.result.estimates, trial.counts()
    whole = trial.population

    def left(rows: NDArray[np.bool_], some: int, supporting: int, challenging: int) -> Verdict:
        """The outcome of all but these rows, which are some, so many of them supporting and challenging."""
        if whole:
            return whole.at(trial.part.threshold.low, ~rows).outcome(trial.part.share)
        return of_counts(trial.part.rule, n - some, pro - supporting, contra - challenging)

    if whole and len(whole.names) > 1:
        for unit, name in enumerate(whole.names):
            outcome = left(whole.units == unit, 0, 0, 0)
            if outcome != trial.now:
                yield from _listed(whole.of, [{"what": name}], 1, trial.record(outcome))
    for side in Side if n > 1 and not whole else ():
        at = np.flatnonzero(trial.sides == side)
        outcome = left(trial.sides == side, 1, side is Side.SUPPORTS, side is Side.CHALLENGES)
        if len(at) and outcome != trial.now:
            found = [{"what": _named(estimates, int(row), data)} for row in at[:MOST_NAMED]]
            yield from _listed("cell", found, len(at), trial.record(outcome))
    if "node" not in estimates.labels:
        return
    codes, kinds = pd.factorize(estimates["node"].map(kind_of_node, na_action="ignore"))
    alike = by_kind(estimates)
    here = [codes >= 0, *((codes >= 0) & (trial.sides == side) for side in (Side.SUPPORTS, Side.CHALLENGES))]
    each = np.array([np.bincount(codes[of], minlength=len(kinds)) for of in here])
    hang: dict[tuple[Verdict, bool], list[list[str]]] = {}
    for code, (kind, counts) in enumerate(zip(kinds, each.T.tolist(), strict=True)):
        outcome = left(codes == code, *counts)
        if n > counts[0] and outcome != trial.now:
            hang.setdefault((outcome, counts[0] == 1), []).append(alike[kind])
    for (turned, alone), some in hang.items():
        named = [{"what": data.name(nodes), "id": nodes[0]} for nodes in some[:MOST_NAMED]]
        yield from _listed("node", named, len(some), {**trial.record(turned), "one_cell": alone})


def _named(estimates: Estimates, row: int, data: Dataset) -> str:
    return "; ".join(filter(None, (describe.place(estimates, row, data), describe.row_labels(estimates, row))))


def _listed(
    kind: str, found: Sequence[Mapping[str, str]], number: int, turned: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    if number > MOST_NAMED:
        yield {"kind": kind, "what": "", "number": number, **turned}
        return
    for one in found:
        yield {"kind": kind, **one, "number": 1, **turned}


def _fragile(record: Mapping[str, Any], trial: Trial) -> bool:
    """Whether something near turns the verdict (of a part that cannot turn it, its own outcome).

    Near is: less than CLEAR_WIDTHS between what decides and the threshold, or no interval; a threshold of
    the declared range within NEAR_FACTOR; any swap but for plain loops, which show what a language costs
    and not what a machine can do; any single estimate or node.
    """
    clear = record["exact"] or (record["margin_widths"] is not None and record["margin_widths"] >= CLEAR_WIDTHS)
    if not clear and not trial.settled:
        return True
    near = [turn for turn in record["turns_at"] if turn["in_range"] and (turn["factor"] or 0) <= NEAR_FACTOR]
    swaps = [swap for swap in record["swaps"] if not swap["plain_loop"]]
    return bool(near) or any(trial.turned(one["outcome"]) for one in (*swaps, *record["without"]))


def changed_together(parts: Sequence[Mapping[str, Any]], verdict: str) -> list[dict[str, Any]]:
    """Changes of several parts at once that turn the verdict on a claim: the same swap, or the same node left out.

    parts: as `verdicts.json` has them, all decided. Nodes of one kind are the same. Each with `swap` or `node`, the
    entry of the first part that has it, and the verdict that it makes.
    """
    found = []
    for kind, key in (("swap", ("label", "now", "value")), ("node", ("id",))):
        made: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
        for at, part in enumerate(parts):
            tried = part["robustness"] or {}
            for one in tried.get("swaps" if kind == "swap" else "without", []):
                if not one.get("plain_loop") and (kind == "swap" or one.get("id")):
                    same = tuple(one[name] for name in key) if kind == "swap" else (kind_of_node(one["id"]),)
                    made.setdefault(same, {})[at] = one
        for changed in made.values():
            turned = combined([changed.get(at, part)["outcome"] for at, part in enumerate(parts)])
            if len(changed) > 1 and turned != verdict:
                found.append({kind: next(iter(changed.values())), "verdict": turned})
    return found
