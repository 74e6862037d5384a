"""What would turn a verdict: sentences from the record of what was tried (`report.judging.sensitivity`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report.formatting import (
    capital,
    count,
    interval,
    label_value,
    number,
    several,
    threshold_text,
    thresholds_text,
    with_unit,
)
from report.judging.claims import Part
from report.judging.rules import RuleResult
from report.judging.sensitivity import NEAR_FACTOR, changed_together
from report.model import Verdict

_LABELS = {"dtype": "number format", "threads": "number of threads", "backend": "library", "op": "operation"}
ROBUST, SENSITIVE, LISTED, UNTRIED = "robust", "sensitive", "on a chosen list", "not varied"
_FACT = "It rests on exact figures, which are not varied; only another reading of the words would turn it."
# After every rank; a change that three digits would not show.
_LAST, _HARDLY = [9, 0], 0.005


def sentences(part: Part, result: RuleResult, record: Mapping[str, Any]) -> list[str]:
    """Sentences on all that was tried to turn the outcome of a part."""
    return [
        *_thresholds(part, result, record),
        *_needed(part, result),
        *_margin(result, record),
        *_swaps(result, record),
        *_without(record),
    ]


def nearest(part: Part, result: RuleResult, record: Mapping[str, Any]) -> dict[str, Any]:
    """The nearest change that turns the verdict: `sentence`, and `rank`, the lower the nearer; None for none.

    First the smallest change of the threshold within its range, by NEAR_FACTOR at the most; then a swap, then a cell
    or a node less, then a result that is not clear of the threshold, then a larger change of the threshold; else
    what was tried in vain.
    """
    turning = [turn for turn in record["turns_at"] if turn["in_range"]]
    turning.sort(key=lambda turn: turn["factor"] is None)
    near = [turn for turn in turning if (turn["factor"] or 0) <= NEAR_FACTOR]
    for rank, turns in ((0, near), (4, turning)):
        if rank and record["fragile"]:
            found = _fragile(result, record)
            if found:
                return found
        for turn in turns:
            where = f"{_turn(turn, result.unit)} in place of {part.threshold.text(result.unit)}"
            text = f"With {where}{_times(turn, part)}, {effect(turn, record)}."
            return {"rank": [rank, turn["factor"] or NEAR_FACTOR], "sentence": text}
    return {"rank": None, "sentence": _nothing(part, result, record)}


def _fragile(result: RuleResult, record: Mapping[str, Any]) -> dict[str, Any] | None:
    """What makes it fragile besides the threshold's value."""
    swaps = [one for one in record["swaps"] if not one["plain_loop"] and _turns(one, record)]
    if swaps:
        return {"rank": [1, 0], "sentence": f"With {_swap(swaps[0])}, {effect(swaps[0], record)}."}
    without = [one for one in record["without"] if _turns(one, record)]
    if without:
        return {"rank": [2, 0], "sentence": f"Without {_one(without[0])}, {effect(without[0], record)}."}
    found = next(_margin(result, record), "")
    return {"rank": [3, 0], "sentence": f"Nothing that was tried turns it, but it is close. {found}".strip()}


def of_claim(parts: Sequence[Mapping[str, Any]], verdict: str) -> dict[str, str | None]:
    """`flip`, the plain sentence on what turns the verdict on a claim, and `robust`: ROBUST, SENSITIVE, LISTED (robust,
    but the cases are a list that was chosen) or UNTRIED (exact figures are not varied).

    parts: as `verdicts.json` has them. A claim is as sensitive as the parts that can turn it. Neither is
    said of a claim that is not decided, and only the first of one that is undecided.
    """
    tried = [part for part in parts if part["robustness"]]
    if not Verdict(verdict).judged or not tried:
        return {"flip": None, "robust": None}
    if all(part["robustness"]["fact"] for part in tried) and not list(_inputs(tried, verdict)):
        return {"flip": _FACT, "robust": UNTRIED}
    tried = [part for part in tried if not part["robustness"]["fact"]] or tried
    able = [part for part in tried if part["robustness"]["decides"]]
    at_once = [*_inputs(tried, verdict), *changed_together(tried, verdict)]
    sensitive = bool(at_once) or any(part["robustness"]["fragile"] for part in able)
    word = SENSITIVE if sensitive else LISTED if any(part["cases"] for part in tried) else ROBUST
    return {"flip": _first(able, at_once, len(parts)), "robust": None if verdict == Verdict.UNDECIDED else word}


def _inputs(parts: Sequence[Mapping[str, Any]], verdict: str) -> Iterator[dict[str, str]]:
    """What goes into the arithmetic of a part and, at an end of its range, turns the verdict."""
    for part in parts:
        record = part.get("arithmetic") or {}
        for work in (record, *record.get("also", [])):
            known = {one["symbol"]: one for one in work.get("inputs", [])}
            for tried in work.get("sensitivity", []):
                if tried["verdict"] != verdict:
                    one = known[tried["symbol"]]
                    values = [with_unit(value, tried["unit"]) for value in (tried["input"], one["value"])]
                    named = f"{one['means']} ({one['symbol']}) at {values[0]} in place of {values[1]}"
                    yield {"input": named, "verdict": tried["verdict"]}


def _first(able: Sequence[Mapping[str, Any]], at_once: Sequence[Mapping[str, Any]], n_parts: int) -> str:
    """The sentence on the nearest change of any part, or of several at once."""
    first = min(able, key=lambda part: part["robustness"]["rank"] or _LAST, default=None)
    rank = (first["robustness"]["rank"] if first else None) or _LAST
    if at_once and rank > [1, 0]:
        tried = at_once[0]
        if "input" in tried:
            return f"With {tried['input']}, the verdict would be {_quoted(tried['verdict'])}."
        what = f"With {_swap(tried['swap'])}" if "swap" in tried else f"Without the node {tried['node']['what']}"
        return f"{what} in every part that has it, the verdict would be {_quoted(tried['verdict'])}."
    if first is None or (n_parts > 1 and rank == _LAST):
        return "Nothing that was tried on any part turns it."
    sentence = str(first["robustness"]["sentence"])
    return f"{capital(first['name'])}: {sentence}" if n_parts > 1 else sentence


def effect(tried: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """'the verdict would be supported'; for a part of several, what that does to the whole."""
    stays = tried["verdict"] == record["verdict"]
    if not stays and tried["verdict"] == tried["outcome"]:
        return f"the verdict would be {_quoted(tried['verdict'])}"
    outcome, verdict = _quoted(tried["outcome"]), _quoted(tried["verdict"])
    return f"this part would be {outcome} and the verdict would {'stay' if stays else 'be'} {verdict}"


def _quoted(verdict: str) -> str:
    return "'depends'" if verdict == Verdict.DEPENDS else verdict


def _turns(tried: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether it turns the verdict, or of a part that cannot, its own outcome."""
    what = "verdict" if record["decides"] else "outcome"
    return bool(tried[what] != record[what])


def given(value: float, unit: str) -> str:
    """A threshold as it stands where it is short, else to three digits."""
    return interval(value, value, value, unit)


def _turn(turn: Mapping[str, Any], unit: str) -> str:
    """'a threshold above about 4,137 MAC/cycle'."""
    at = turn["threshold"]
    if isinstance(at, list):
        return f"a range of {threshold_text(at, unit)}"
    what = {None: "a threshold", 0: "a lower end", 1: "an upper end"}[turn["end"]]
    value = ("" if float(f"{at:.5g}") == at else "about ") + given(at, unit)
    if turn["past"]:
        return f"{what} {'above' if turn['higher'] else 'below'} {value}"
    return f"{what} of {value} or {'more' if turn['higher'] else 'less'}"


def _times(turn: Mapping[str, Any], part: Part) -> str:
    if turn["factor"] is None or isinstance(turn["threshold"], list):
        return ""
    ratio = turn["threshold"] / part.threshold.ends[turn["end"] or 0]
    if abs(ratio - 1) < _HARDLY:
        return "" if ratio == 1 else f" (hardly {'more' if ratio > 1 else 'less'})"
    return f" ({number(ratio)} times as much)"


def _thresholds(part: Part, result: RuleResult, record: Mapping[str, Any]) -> Iterator[str]:
    """The declared sensitivity range, and where in it the outcome changes."""
    if result.estimates["low"].isna().all() and part.rule != "crossover":
        return
    found: dict[str, list[Mapping[str, Any]]] = {}
    for tried in record["thresholds"]:
        if tried["threshold"] != part.threshold.json:
            found.setdefault(tried["outcome"], []).append(tried)
    same = [tried["threshold"] for tried in found.pop(result.outcome, [])]
    now = part.threshold.text(result.unit)
    for some in found.values():
        bounds = thresholds_text([tried["threshold"] for tried in some], result.unit, "or")
        yield f"With a threshold of {bounds} in place of {now}, {effect(some[0], record)}."
    if same and found:
        yield f"With {thresholds_text(same, result.unit, 'or')} it stays {_quoted(result.outcome)}."
    elif same:
        yield f"No threshold of the declared range changes it: {thresholds_text(same, result.unit)} give the same."


def _needed(part: Part, result: RuleResult) -> Iterator[str]:
    """The threshold at which the outcome would turn into its opposite, where one number says it."""
    lows, highs = result.estimates["low"], result.estimates["high"]
    plain = part.rule in ("at_least", "at_most", "ratio") and part.options.get("compare") is None
    if not plain or lows.isna().any() or highs.isna().any():
        return
    low, high = float(lows.min()), float(highs.max())
    at_most = part.rule == "at_most"
    if result.outcome is Verdict.CHALLENGED:
        word, value = ("at least", high) if at_most else ("at most", low)
        yield f"It would be supported with a threshold of {word} about {with_unit(value, result.unit)}."
    elif result.outcome is Verdict.SUPPORTED:
        word, value = ("below", low) if at_most else ("above", high)
        yield f"It would be challenged with a threshold {word} about {with_unit(value, result.unit)}."


def _margin(result: RuleResult, record: Mapping[str, Any]) -> Iterator[str]:
    """How far what decides is from the threshold, in widths of its interval."""
    widths = record["margin_widths"]
    if widths is None:
        return
    many = "widths" if round(widths, 1) != 1 else "width"
    if result.outcome is Verdict.DEPENDS:
        yield (
            "Of the sides that the results fall on, the less clear one lies "
            f"{number(widths, 2)} interval {many} from the threshold."
        )
    else:
        yield f"The nearest result lies {number(widths, 2)} interval {many} from the threshold."


def _swap(tried: Mapping[str, Any]) -> str:
    """'float64 in place of float32'."""
    now = "all threads" if tried["now"] == "all" else label_value(tried["label"], tried["now"])
    return f"{label_value(tried['label'], tried['value'])} in place of {now}"


def _swaps(result: RuleResult, record: Mapping[str, Any]) -> Iterator[str]:
    """Other values of the scope's labels, those together that come to the same."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for tried in record["swaps"]:
        found.setdefault((tried["label"], tried["outcome"]), []).append(tried)
    same = []
    for (label, outcome), some in found.items():
        values = several([label_value(label, tried["value"]) for tried in some[:-1]] + [_swap(some[-1])], "or")
        if outcome == result.outcome:
            same.append(values)
        else:
            yield f"With {values}, {effect(some[0], record)}."
    if same:
        yield f"It stays {_quoted(result.outcome)} with {'; with '.join(same)}."


def _one(tried: Mapping[str, Any], named: bool = True) -> str:
    """'the cell (…)', 'the node …', 'any one of 12 cells'; named: whether it says which of these it is."""
    if tried["number"] > 1:
        return f"any one of {count(tried['number'], tried['kind'])}"
    what = f"({tried['what']})" if tried["kind"] == "cell" else tried["what"]
    return f"the {tried['kind']} {what}" if named else what


def _without(record: Mapping[str, Any]) -> Iterator[str]:
    """Single cells and nodes on which the outcome hangs."""
    hang: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for tried in record["without"]:
        if tried.get("one_cell"):
            continue
        hang.setdefault((tried["kind"], tried["outcome"]), []).append(tried)
    for some in hang.values():
        names = [_one(tried, named=at == 0) for at, tried in enumerate(some)]
        yield f"Without {several(names, 'or')}, {effect(some[0], record)}."


def _nothing(part: Part, result: RuleResult, record: Mapping[str, Any]) -> str:
    """What was tried in vain, and what it would take."""
    tried = []
    values = [one["threshold"] for one in record["thresholds"]]
    if part.threshold.is_range and len(values) > 1:
        others = [value for value in values if value != part.threshold.json]
        tried.append(f"no other declared range ({thresholds_text(others, result.unit)})")
    elif len(values) > 1:
        tried.append(f"no threshold from {thresholds_text([values[0], values[-1]], result.unit, 'to')}")
    swaps = [one for one in record["swaps"] if not one["plain_loop"]]
    if swaps:
        labels = dict.fromkeys(one["label"] for one in swaps)
        tried.append(f"no other {several([_LABELS.get(label, label) for label in labels], 'or')} that was measured")
    if len(result.sides) > 1:
        tried.append("no single cell left out")
    if not tried:
        return "Nothing was there to vary: no range of thresholds is declared, and it rests on one cell."
    far = next((turn for turn in record["turns_at"] if not turn["in_range"]), None)
    takes = f" It would take {_turn(far, result.unit)}{_times(far, part)}." if far else ""
    return f"Nothing that was tried turns it: {several(tried)}.{takes}"
