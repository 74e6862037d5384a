"""The sentences of a verdict: its rule, why it came out as it did, what it waits for. Every number is from the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from report.data.dataset import Dataset
from report.data.machines import KINDS
from report.estimates import Estimates
from report.formatting import (
    YES_NO,
    capital,
    count,
    exactly,
    few,
    first,
    interval,
    label_value,
    labels_text,
    number,
    several,
    side_name,
    within,
)
from report.judging.boundary import Boundary, Range
from report.judging.claims import Part
from report.judging.evaluate import PartResult
from report.judging.instances import nodes_of
from report.judging.rules import RuleResult, sides_of
from report.model import OPINION, Failure, Missing, Side, Threshold, Verdict
from report.quantities import Quantity

# Values of a label that are listed.
_MOST_LISTED = 8
_HOLDS = {Side.SUPPORTS: "holds", Side.CHALLENGES: "fails", Side.UNDECIDED: "is undecided"}
_COMPARES = {"at_least": "at least", "at_most": "at most", "within": "within"}


def ends(estimates: Estimates, row: int) -> tuple[float | None, float | None, float | None]:
    """Estimate, low and high of one row; None where unknown, or without end."""
    values = (float(estimates.value(name, row)) for name in ("estimate", "low", "high"))
    estimate, low, high = (value if math.isfinite(value) else None for value in values)
    return estimate, low, high


def labels(values: Mapping[str, Any], detail: str) -> str:
    """The labels of an estimate and its detail: what an aggregate is made of in place of the word best."""
    if "family" in values:
        return of_others(values, detail)
    hidden = ["node", "device"]
    if "best" in (values.get("backend"), values.get("shape")):
        hidden += ["backend", "shape"]
        detail = f"fastest: {detail}" if detail else ""
    if "shape" in values:
        hidden += ["m", "n", "k"]
    if "entry" in values:
        return detail
    device = str(values.get("device", "cpu"))
    words = labels_text(values, hidden)
    return ", ".join(text for text in ("" if device == "cpu" else device, words, detail) if text)


# Of a published figure: what says how it was found and not what it is of.
_HIDDEN_OF_OTHERS = {
    "source", "family", "records", "measure", "task", "strength", "comparison", "variant", "baseline", "gpus",
    "software", "node", "device", "gpu", "cpu", "machine", "of", "to", "model", "precision", "transfers", "copied",
    "ceilings",
}  # fmt: skip


def of_others(values: Mapping[str, Any], detail: str) -> str:
    """What a published figure is of: work, hardware, what is held against what, its setting, and the source.

    'ResNet-50, H100 SXM over 2 x Xeon Platinum 8480+, mixed over bfloat16, MLPerf Training v3.1 (mlperf-training-3.1)'
    """
    hardware = " over ".join(str(values[name]) for name in ("gpu", "cpu") if values.get(name)) or values.get("machine")
    sides = " over ".join(str(values[name]) for name in ("of", "to") if values.get(name))
    formats = values.get("precision", "") if " over " in str(values.get("precision", "")) else ""
    others = {name: value for name, value in values.items() if name not in _HIDDEN_OF_OTHERS}
    told = [values.get("model"), hardware, sides, formats, labels_text(others).replace("setting ", ""), detail]
    text = ", ".join(str(one) for one in told if one)
    return f"{text} ({values['source']})" if values.get("source") else text


def row_labels(estimates: Estimates, row: int) -> str:
    """The labels of one row in words."""
    return labels(estimates.label_values(row), str(estimates.value("detail", row)))


def place(estimates: Estimates, row: int, data: Dataset) -> str:
    """The node of one row in words, or the machines of its kind together; '' where it has none."""
    nodes = nodes_of(estimates)[row]
    return data.name(nodes) if nodes else ""


def rule(part: Part, unit: str) -> str:
    """A rule and its threshold: 'supported if at most 1,000 MAC/cycle in every cell'."""
    before, after = around_threshold(part, unit, "exactly" if part.threshold.is_exact else _COMPARES[part.compare])
    bound = part.threshold.text("1" if part.rule in ("ratio", "trend", "crossover") else unit)
    return f"{before} {bound}{after}"


def around_threshold(part: Part, unit: str, compares: str) -> tuple[str, str]:
    """What stands before and after the threshold in the sentence of a rule. compares: at least, at most, within."""
    scaled = f", after {scaling(part.scale)} ({part.scale_why})" if part.scale != 1 else ""
    before, after = _around(part, unit, compares)
    return f"supported if {before}".rstrip(), f"{after}{scaled}"


def _around(part: Part, unit: str, compares: str) -> tuple[str, str]:
    given = part.options
    if unit == YES_NO:
        return "the answer is", ""
    if part.rule == "ratio":
        return f"the ratio {side_name(given['of'])} over {side_name(given['to'])} is {compares}", " in every cell"
    if part.rule == "trend":
        return f"it grows as {given['along']} to the power of {compares}", " in every series"
    if part.rule == "crossover":
        pair = f"{side_name(given['of'])} and {side_name(given['to'])}"
        return f"{pair} change places along {given['along']}, at a value of {compares}", ""
    if part.rule == "exists":
        return f"some cell is {compares}", ""
    if part.rule == "for_share_of":
        return f"at least {exactly(100 * part.share)}% of the {part.options['of']}s are {compares}", ""
    return compares, " in every cell"


def scaling(by: float) -> str:
    """'multiplying by 128', or for a fraction 'dividing by 16,896'."""
    # A fraction in a claim file is rounded; five digits undo that.
    return f"multiplying by {exactly(by)}" if by > 1 else f"dividing by {exactly(float(f'{1 / by:.5g}'))}"


def boundary(result: RuleResult | None) -> str | None:
    """Where a claim holds and where not; of two sides that change places, which is ahead from where on."""
    if result is None:
        return None
    return _boundary(result.boundary) if result.boundary is not None else result.crossover or None


def _boundary(found: Boundary) -> str:
    open_ = f" ({count(found.undecided, 'cell')} undecided)" if found.undecided else ""
    if found.label:
        return _separated(found) + open_
    parts = [f"{_HOLDS[side]} in {n}" for side, n in found.counts.items()]
    return f"{several(parts)} of {count(sum(found.counts.values()), 'cell')}, which no one or two labels tell apart"


def _separated(found: Boundary) -> str:
    """'holds from batch 256 on, fails up to batch 64'; 'holds for cnn, fails for mlp'; each for values of a label."""
    if found.ranges:
        texts = {side: _range(side, one, lower) for (side, one), lower in zip(found.ranges, (True, False), strict=True)}
        return ", ".join(texts[side] for side in Side if side in texts)
    if found.values:
        at = "on" if found.label == "node" else "for"
        return ", ".join(
            f"{_HOLDS[side]} {at} {several([label_value(found.label, value) for value in values])}"
            for side, values in found.values
        )
    return "; ".join(
        f"{label_value(found.label, value)}: "
        + (f"{_HOLDS[inner]} throughout" if isinstance(inner, Side) else _separated(inner))
        for value, inner in found.inner
    )


def _range(side: Side, found: Range, lower: bool) -> str:
    value = label_value(found.label, found.value)
    if found.single:
        return f"{_HOLDS[side]} at {value}"
    return f"{_HOLDS[side]} up to {value}" if lower else f"{_HOLDS[side]} from {value} on"


def missing(need: Missing) -> str:
    """What a part waits for; the sentence begins with its verdict."""
    between = " " if need.verdict is Verdict.AWAITING_EXPERIMENT else ": "
    return f"{need.verdict}{between}{lacks(need)}"


def lacks(need: Missing) -> str:
    """What is missing, by itself."""
    wanted = several(list(need.experiments))
    if need.verdict is Verdict.AWAITING_HARDWARE:
        machine = KINDS[need.machine].called if need.machine else f"node with a {need.device.upper()}"
        return f"no {machine} has measured {wanted}"
    if need.verdict is Verdict.AWAITING_SOURCE:
        return need.source + (f" ({need.why})" if need.why else "")
    return f"{wanted}: {need.why or _not_there(need)}"


def _not_there(need: Missing) -> str:
    if need.failures:
        return "; ".join(map(_failure, need.failures))
    if need.measured:
        there = first(need.measured, _MOST_LISTED)
        return f"measured, but not with {several(need.wanted, 'or')} (measured: {there})"
    if need.rule:
        return f"{count(need.estimates, 'cell')} measured, but none that the rule {need.rule} can compare"
    if need.single_rounds:
        single = f"{need.single_rounds:,} of {count(need.estimates, 'cell')}"
        return f"{single} measured in one round, which gives no interval"
    return "the points that ran do not give this quantity on any node"


def _failure(one: Failure) -> str:
    where = f"on the {one.device.upper()} of {few(one.nodes, 'node')}"
    return f"{one.status} {where}: {one.reason}" if one.status else f"not run {where}"


def comparison(side: Side, low: float | None, high: float | None, part: Part, unit: str, many: int) -> str:
    """Where an estimate lies: 'above the threshold of 1,000 MAC/cycle'.

    low, high: as they are shown; many: estimates by whose number the interval that decides is wider (`rules.level`); 0
    of what others measured (`rules.OthersEnds`).
    """
    threshold: Threshold = part.threshold
    if unit == YES_NO:
        return "as the claim has it" if side is Side.SUPPORTS else "not as the claim has it"
    bound = threshold.text(unit)
    drawn = [np.array([math.nan if end is None else end]) for end in (low, high)]
    (shown,) = sides_of(drawn[0], drawn[1], threshold, part.compare)
    if side is Side.UNDECIDED and shown is not Side.UNDECIDED:
        near = comparison(shown, low, high, part, unit, many)
        if not many:
            return f"{near}, though by less than half as much again, and no independent source agrees"
        return f"{near}, though not by the wider interval that one of {many:,} cells has to clear"
    if side is Side.UNDECIDED:
        what = "range" if part.compare == "within" else "threshold"
        return f"without an interval against {bound}" if low is None else f"too close to the {what} of {bound} to tell"
    if threshold.high is None:
        words = {"at_least": ("not below", "below"), "at_most": ("not above", "above")}[part.compare]
        return f"{words[side is not Side.SUPPORTS]} the threshold of {bound}"
    what = bound if threshold.is_exact else f"the range of {bound}"
    if side is Side.SUPPORTS:
        return f"equal to {bound}" if threshold.is_exact else f"within {what}"
    return f"{'above' if low is not None and low > threshold.high else 'below'} {what}"


def one_estimate(row: int, result: RuleResult, part: Part, quantity: Quantity, data: Dataset) -> str:
    """One estimate in a sentence: where, what, how much, and against which threshold. No full stop."""
    estimates = result.estimates
    shown = ends(estimates, row)
    words, node, detail = row_labels(estimates, row), place(estimates, row, data), str(estimates.value("detail", row))
    many = 0 if "family" in estimates.labels else len(result.sides)
    against = comparison(result.sides[row], shown[1], shown[2], part, result.unit, many)
    where = f"on {node}, " if node else ""
    value = interval(*shown, result.unit)
    if part.rule == "crossover":
        return f"{where}{detail}"
    if part.rule == "ratio":
        of_all = f" ({words})" if words else ""
        return f"{where}{_side(part, 'of', data)} over {_side(part, 'to', data)} is {value}{of_all}, {against}"
    if part.rule == "trend":
        return f"{where}{quantity.name} grows as {part.options['along']} to the power of {value} ({words}), {against}"
    estimate, low, high = (None if one is None else one / part.scale for one in shown)
    unscaled = interval(estimate, low, high, result.unit)
    if quantity.tier == "documented":
        text = f"{detail}: {unscaled}"
    else:
        text = quantity.says.format(node=node, labels=words, value=unscaled)
    if part.scale != 1:
        text += f"; {scaling(part.scale)} ({part.scale_why}) gives {value}"
    return f"{text}, {against}"


def _side(part: Part, which: str, data: Dataset) -> str:
    """One side of a ratio in words."""
    value = part.options[which]
    if part.options["over"] == "entry" and value in data.reference:
        entry = data.reference[str(value)]
        return f"{entry['subject']}, {within(entry['what'])} ({exactly(float(entry['value']))})"
    return side_name(value)


def part_reason(found: PartResult, data: Dataset) -> str:
    """Why a part came out as it did: one sentence or two."""
    if found.unchecked and found.result is not None:
        alone = replace(found, unchecked=False, outcome=found.result.outcome)
        return (
            f"Its model was checked against no measurement, so it decides nothing alone; taken at its word it would be "
            f"{found.result.outcome}. {part_reason(alone, data)}"
        )
    result, part, quantity = found.result, found.part, found.quantity
    if found.missing is not None:
        return missing(found.missing)
    if result is None or quantity is None or result.representative is None:
        return "Nothing could be compared."
    n, pro, contra = len(result.sides), result.sides.count(Side.SUPPORTS), result.sides.count(Side.CHALLENGES)
    stands_for_all = capital(one_estimate(result.representative, result, part, quantity, data))
    if n == 1:
        return f"{stands_for_all}.{_one_round(result)}"
    if part.rule == "exists":
        return f"{count(pro, 'cell')} of {n} support it. The most favourable: {stands_for_all}."
    if result.share is not None:
        share, needed = result.share, exactly(100 * part.share)
        told = [number(100 * one) for one in (share.estimate, share.low, share.high)]
        return (
            f"{told[0]}% [{told[1]}, {told[2]}] of {count(share.units, share.of)} reach the threshold; {needed}% are "
            f"needed. At that share: {stands_for_all}."
        )
    if result.outcome is Verdict.UNDECIDED:
        decided = (
            f"{count(pro + contra, 'cell')} of {n} decide, not most of them" if pro + contra else "No cell decides"
        )
        return f"{decided}. The nearest to the threshold: {stands_for_all}.{_one_round(result)}"
    if result.outcome is not Verdict.DEPENDS:
        agree = f"All {n} cells" if n == pro + contra else f"All {pro + contra} cells of {n} that decide"
        return f"{agree} agree. The nearest to the threshold: {stands_for_all}."
    where = str(boundary(result))
    # Cases are listed each by itself; one boundary is about all of them.
    cases = result.boundary is not None and bool(result.boundary.inner)
    where = f"It differs: {where.replace(': ', ' ')}" if cases else f"It {where}"
    return f"{where}. {pro} of {n} cells support it and {contra} challenge it; {_values(result)}."


def _values(result: RuleResult) -> str:
    """'they range from A to B', 'all are A', and what has no end."""
    values = result.estimates.numbers("estimate").to_numpy()
    known = np.flatnonzero(np.isfinite(values))
    rows = [known[np.argmin(values[known])], known[np.argmax(values[known])]] if len(known) else []
    least, most = [interval(*ends(result.estimates, int(row)), result.unit) for row in rows] or ["unknown"] * 2
    text = f"they range from {least} to {most}" if least != most else f"all are {least}"
    why = result.estimates["detail"][np.isinf(values)].astype(str)
    return f"{text}, but for {len(why)} without end ({'; '.join(dict.fromkeys(why))})" if len(why) else text


def _one_round(result: RuleResult) -> str:
    return " One round gives no interval: measure at least three." if result.single_round.any() else ""


def whole_reason(parts: Sequence[PartResult], verdict: Verdict, data: Dataset) -> str:
    """Why a claim came out as it did, with the reason of each part."""
    reasons = [part_reason(one, data) for one in parts]
    if len(parts) == 1:
        return reasons[0]
    pairs = list(zip(parts, reasons, strict=True))
    found = [f"{capital(one.part.name)} ({one.outcome}): {text}" for one, text in pairs if one.outcome.judged]
    head = ""
    if verdict.awaits:
        waiting = [(one.outcome != verdict, text) for one, text in pairs if one.outcome.awaits]
        head = "; ".join(dict.fromkeys(text for _, text in sorted(waiting, key=lambda one: one[0])))
        head += ". Judged already." if found else ""
    elif len({one.outcome for one in parts}) > 1:
        head = f"Its parts differ. {capital(parts_by_outcome({one.part.name: one.outcome for one in parts}))}."
    return " ".join(filter(None, [head, *found]))


def parts_by_outcome(outcomes: Mapping[str, str]) -> str:
    """Which parts came out how: 'supported: A and B; challenged: C'."""
    groups: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        groups.setdefault(outcome, []).append(name)
    return "; ".join(f"{outcome}: {several(names)}" for outcome, names in groups.items())


def whole_boundary(parts: Sequence[PartResult], verdict: Verdict) -> str | None:
    """Where a claim holds: the boundary of its only part, or which parts came out how and the boundary of each."""
    named = [(one.part.name, text) for one in parts if (text := boundary(one.result))]
    if len(parts) == 1:
        return named[0][1] if named else None
    if verdict is not Verdict.DEPENDS:
        return None
    whole = parts_by_outcome({one.part.name: one.outcome for one in parts})
    return "; ".join([whole, *(f"{name}: {text}" for name, text in named)])


def opinion(bearing: Mapping[str, str]) -> str:
    """The reason of a judgement. bearing: the verdicts on the claims that bear on it."""
    what = ", ".join(f"{name} {verdict}" for name, verdict in bearing.items())
    return f"{OPINION} What bears on it: {what or 'nothing'}."
