"""Why a verdict came out as it did: plain sentences, every number from the cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.formatting import (
    YES_NO,
    capital,
    count,
    exactly,
    interval,
    labels_text,
    number,
    several,
    side_name,
    threshold_text,
    within,
)
from report.judging.claims import Part
from report.judging.rules import Outcome, RuleResult, Threshold, direction, side
from report.quantities import Quantity


def value_of(cells: Estimates, row: int) -> tuple[float | None, float | None, float | None]:
    """Estimate, low and high of one cell; None where unknown."""
    estimate, low, high = (known(float(cells.value(name, row))) for name in ("estimate", "low", "high"))
    return estimate, low, high


def known(value: float) -> float | None:
    """The value; None for what is no number: nan, and what is without end."""
    return value if math.isfinite(value) else None


def cell_labels(cells: Estimates, row: int) -> str:
    """A cell's labels in words: what stands behind an aggregate in place of the word best."""
    return in_words(cells.label_values(row), str(cells.value("detail", row)))


def in_words(labels: Mapping[str, Any], detail: str) -> str:
    """The labels and the detail of a cell, as `cell_labels` has them."""
    hidden = ["node", "device"]
    if "best" in (labels.get("backend"), labels.get("shape")):
        hidden += ["backend", "shape"]
        detail = f"fastest: {detail}" if detail else ""
    if "shape" in labels:
        hidden += ["m", "n", "k"]
    if "entry" in labels:
        return detail
    device = str(labels.get("device", "cpu"))
    words = labels_text(labels, hidden)
    return ", ".join(text for text in ("" if device == "cpu" else device, words, detail) if text)


def place(cells: Estimates, row: int, data: Dataset) -> str:
    """The node of a cell, in words."""
    node = cells.label_values(row).get("node")
    return data.label(str(node)) if node else ""


def comparison(
    outcome: Outcome, low: float | None, high: float | None, threshold: Threshold, how: str, unit: str, many: int
) -> str:
    """Where a cell lies: 'above the threshold of 1,000 MAC/cycle'.

    low, high: as they are told; many: cells by whose number the interval that decides is wider (see `rules.level`).
    """
    if unit == YES_NO:
        return "as the claim has it" if outcome == "supports" else "not as the claim has it"
    bound = threshold_text(threshold, unit)
    told = side(math.nan if low is None else low, math.nan if high is None else high, threshold, how)
    if outcome == "undecided" and told != "undecided":
        near = comparison(told, low, high, threshold, how, unit, many)
        return f"{near}, though not by the wider interval that one of {many:,} cells has to clear"
    if outcome == "undecided":
        what = "range" if how == "within" else "threshold"
        return (
            f"too close to the {what} of {bound} to tell" if low is not None else f"without an interval against {bound}"
        )
    if isinstance(threshold, (int, float)):
        good = {"at_least": "not below", "at_most": "not above"}[how]
        bad = {"at_least": "below", "at_most": "above"}[how]
        return f"{good if outcome == 'supports' else bad} the threshold of {bound}"
    # A range whose ends are equal is one number.
    what = bound if threshold[0] == threshold[1] else f"the range of {bound}"
    if outcome == "supports":
        return f"equal to {bound}" if what == bound else f"within {what}"
    return f"{'above' if low is not None and low > threshold[1] else 'below'} {what}"


def cell_sentence(row: int, ruling: RuleResult, part: Part, quantity: Quantity, data: Dataset) -> str:
    """One cell in a sentence: where, what, how much, and against which threshold. No full stop."""
    estimate, low, high = value_of(ruling.cells, row)
    labels, node = cell_labels(ruling.cells, row), place(ruling.cells, row, data)
    detail = str(ruling.cells.frame.iloc[row]["detail"])
    against = comparison(
        ruling.outcomes[row],
        low,
        high,
        part.threshold,
        direction(part.rule, part.options),
        ruling.unit,
        len(ruling.outcomes),
    )
    where = f"on {node}, " if node else ""
    value = interval(estimate, low, high, ruling.unit)
    if part.rule == "crossover":
        return f"{where}{detail}"
    if part.rule == "ratio":
        of_all = f" ({labels})" if labels else ""
        return f"{where}{_name(part, 'of', data)} over {_name(part, 'to', data)} is {value}{of_all}, {against}"
    if part.rule == "trend":
        return f"{where}{quantity.name} grows as {part.options['along']} to the power of {value} ({labels}), {against}"
    once = [None if number is None else number / part.scale for number in (estimate, low, high)]
    shown = value if part.scale == 1 else interval(once[0], once[1], once[2], ruling.unit)
    documented = quantity.tier == "documented"
    text = f"{detail}: {shown}" if documented else quantity.says.format(node=node, labels=labels, value=shown)
    if part.scale != 1:
        text += f"; {scaling(part.scale)} ({part.scale_why}) gives {value}"
    return f"{text}, {against}"


def scaling(by: float) -> str:
    """'multiplying by 128', or for a fraction 'dividing by 16,896'."""
    # A fraction in a claim file is rounded; five digits undo that.
    return f"multiplying by {exactly(by)}" if by > 1 else f"dividing by {exactly(float(f'{1 / by:.5g}'))}"


def _name(part: Part, which: str, data: Dataset) -> str:
    """One side of a ratio in words."""
    value = part.options[which]
    if part.options["over"] == "entry" and value in data.reference:
        entry = data.reference[str(value)]
        return f"{entry['subject']}, {within(entry['what'])} ({exactly(float(entry['value']))})"
    return side_name(value)


def reason(ruling: RuleResult, part: Part, quantity: Quantity, data: Dataset) -> str:
    """Why a part came out as it did: one sentence or two."""
    if ruling.representative is None:
        return "Nothing could be compared."
    n, outcomes = len(ruling.outcomes), ruling.outcomes
    pro, contra = outcomes.count("supports"), outcomes.count("challenges")
    representative = capital(cell_sentence(ruling.representative, ruling, part, quantity, data))
    if n == 1:
        return f"{representative}.{_one_round(ruling)}"
    if part.rule == "exists":
        return f"{count(pro, 'cell')} of {n} support it. The most favourable: {representative}."
    if part.rule == "for_share_of":
        need = exactly(100 * float(part.options["share"]))
        other = [f"{contra} challenge it"] * (contra > 0) + [f"{n - pro - contra} are too close to tell"] * (
            pro + contra < n
        )
        counts = several([f"{pro} of {n} cells ({number(100 * pro / n)}%) support it", *other])
        return f"{counts}; {need}% are needed. At that share: {representative}."
    if ruling.outcome in ("supported", "challenged"):
        return f"All {n} cells agree. The nearest to the threshold: {representative}."
    if ruling.outcome == "undecided":
        return f"None of the {n} cells decides. The nearest to the threshold: {representative}.{_one_round(ruling)}"
    # 'mlp: holds from batch 64 on, …; cnn: holds throughout' lists cases, 'holds for cnn, …' is about all of them.
    where = str(ruling.boundary)
    cases = where.replace(": ", " ")
    where = f"It {where}" if cases == where else f"It differs: {cases}"
    least, most, endless = _extreme(ruling, False), _extreme(ruling, True), _endless(ruling)
    values = f"they range from {least} to {most}" if least != most else f"all are {least}"
    values += f", but for {endless}" if endless else ""
    return f"{where}. {pro} of {n} cells support it and {contra} challenge it; {values}."


def _one_round(ruling: RuleResult) -> str:
    rounds = ruling.cells.frame["n_rounds"].astype(int)
    few = ruling.cells.frame["low"].isna() & (rounds == 1)
    return " One round gives no interval: measure at least three." if few.any() else ""


def _extreme(ruling: RuleResult, largest: bool) -> str:
    estimates = ruling.cells.frame["estimate"].to_numpy(float)
    known = np.isfinite(estimates)
    if not known.any():
        return "unknown"
    row = int(
        np.argmax(np.where(known, estimates, -np.inf)) if largest else np.argmin(np.where(known, estimates, np.inf))
    )
    return interval(*value_of(ruling.cells, row), ruling.unit)


def _endless(ruling: RuleResult) -> str:
    """The cells that no number holds, and why; '' if there are none."""
    frame = ruling.cells.frame
    why = frame["detail"][np.isinf(frame["estimate"].astype(float))].astype(str)
    return f"{len(why)} without end ({'; '.join(dict.fromkeys(why))})" if len(why) else ""


def combined(outcomes: Sequence[str]) -> str:
    """The verdict on a claim from those on its parts, none of them awaiting.

    All alike: that. Otherwise it depends, if something is shown to differ;
    parts that merely could not decide leave the whole undecided.
    """
    kinds = set(outcomes)
    if len(kinds) == 1:
        return kinds.pop()
    return "depends" if "depends" in kinds or {"supported", "challenged"} <= kinds else "undecided"


def of_parts(outcomes: Mapping[str, str]) -> str:
    """Which parts came out how: 'supported: A and B; challenged: C'."""
    groups: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        groups.setdefault(outcome, []).append(name)
    return "; ".join(f"{outcome}: {several(names)}" for outcome, names in groups.items())


def plain(value: Any) -> Any:
    """A number for JSON: None in place of nan and infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
