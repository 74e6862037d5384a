"""Answers in words for the terminal; the sentences are in advice.yaml, the layout in templates/advice.txt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jinja2

from report import PACKAGE
from report.advice.answers import Answer, Range, answer
from report.advice.choices import Advice, OwnResult, kind_words, read_words
from report.advice.nearest import nearest_outcomes
from report.advice.outcomes import Outcome, read_outcomes
from report.advice.sentences import cost, gigabytes, say_advice, value_slots
from report.advice.this_machine import MeasuredPoint
from report.formatting import duration_words, format_exact, range_words, two_digits

# A time this close to the middle is near it, as a logarithm.
NEAR = 0.2
# An assumption that changes the answer by less than this, in logarithms, moves it hardly.
LITTLE = 0.02


def format_answers(
    kind: str,
    answers: Sequence[Answer],
    advice: Advice | None,
    calibration: Mapping[str, Any],
    own: OwnResult | None = None,
    measured: MeasuredPoint | None = None,
) -> str:
    """Return what the terminal shows: answers for machines that were named, or advice on all listed machines.

    own: the reader's own result. measured: a point measured on this machine.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PACKAGE / "advice" / "templates"), undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"bytes": gigabytes, "words": lambda name: name.replace("_", " ")}
    record = calibration["kinds"][kind]["held_out"]
    text = environment.get_template("advice.txt").render(
        answers=[_answer_context(each, calibration, own) for each in answers],
        advice=_advice_context(advice) if advice else None,
        measured=_measured_context(measured) if measured else None,
        error=f"{record['median_error']:.0%}",
        sources=record["sources"],
        share=f"{calibration['share']:.0%}",
        date=calibration["date"],
        flag="chat" if kind == "decode" else kind,
        measurable=kind in read_words()["measure"],
    )
    return text.strip()


def machine_name(each: Answer) -> str:
    """Return an answer's machine by the name that the adviser recognised."""
    return each.situation.machine.label if each.situation else each.job.hardware


def model_name(each: Answer) -> str:
    """Return an answer's model by the name that the adviser recognised."""
    return each.situation.model.name if each.situation and each.situation.model else each.job.model


def _given_sentence(each: Answer) -> str:
    assert each.value is not None
    words = kind_words(each.job.kind)
    text: str = read_words()["sentences"][f"does_{words['wish']}"]
    slots = value_slots(each.job.kind, each.value)
    return f"{text.format(name=machine_name(each), model=model_name(each), verb=words['verb'], **slots)}."


def _answer_context(each: Answer, calibration: Mapping[str, Any], own: OwnResult | None) -> dict[str, Any]:
    bound = ""
    if each.value is None and each.bound:
        bound = value_slots(each.job.kind, Range(each.bound, each.bound, each.bound))["value"]
    changes = _assumption_changes(each, calibration)
    return {
        "answer": each,
        "name": machine_name(each),
        "bound": bound,
        "sentence": _given_sentence(each) if each.value else "",
        "cost": _cost_context(each),
        "own": _own_context(each, own) if own else None,
        "assumed": _assumed_words(each, changes),
        "most": _heaviest_assumption(changes),
        "nearest": _nearest_context(each) if each.value else [],
    }


def _cost_context(each: Answer) -> dict[str, str]:
    """Return the costs that are known, each in words."""
    costs = {}
    hour, seconds, watts = each.usd_per_hour, each.seconds, each.watts
    if hour and seconds:
        ends = [f"{two_digits(end / 3600 * hour)} USD" for end in (seconds.low, seconds.high)]
        costs["rented"] = range_words(*ends)
    elif hour:
        costs["hour"] = f"{two_digits(hour)} USD"
    if each.usd:
        costs["bought"] = f"{format_exact(each.usd)} USD"
    if each.usd and hour:
        costs["break_even"] = two_digits(each.usd / hour)
    if seconds and watts:
        costs["energy"] = range_words(
            *(f"{two_digits(end / 3.6e6 * watts)} kWh" for end in (seconds.low, seconds.high))
        )
    return costs


def _own_context(each: Answer, own: OwnResult) -> dict[str, Any] | None:
    """Return where a reader's own result lies: slower or faster than the range, or near, above or below its middle."""
    seconds = own.item_seconds(each)
    if seconds is None or each.time is None:
        return None
    apart = math.log(seconds / each.time.middle)
    place = "near" if abs(apart) < NEAR else "above" if apart > 0 else "below"
    if not each.time.low <= seconds <= each.time.high:
        place = "slower" if apart > 0 else "faster"
    return {
        "text": own.text,
        "place": place,
        "times": two_digits(math.exp(apart)),
        "causes": read_words()["causes"].get(each.job.kind, []),
    }


def _assumed_words(each: Answer, changes: Mapping[str, float]) -> list[str]:
    assumed = each.situation.assumed if each.situation else {}
    return [
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else format_exact(value)}"
        for name, value in assumed.items()
        if isinstance(value, str) or name in changes
    ]


def _assumption_changes(each: Answer, calibration: Mapping[str, Any]) -> dict[str, float]:
    """Return how much doubling each assumed size changes the answer, as a logarithm, without sizes that hardly do."""
    changes = {}
    for name, value in each.situation.assumed.items() if each.situation and each.value else ():
        if isinstance(value, str) or not value:
            continue
        other = answer(replace(each.job, work={**each.job.work, name: value * 2}), calibration)
        if other.value and each.value and abs(change := math.log(other.value.middle / each.value.middle)) >= LITTLE:
            changes[name] = change
    return changes


def _heaviest_assumption(changes: Mapping[str, float]) -> dict[str, str] | None:
    """Find the assumed size that moves the answer most; None if none moves it."""
    most = max(changes, key=lambda name: abs(changes[name]), default=None)
    return None if most is None else {"name": most.replace("_", " "), "times": two_digits(math.exp(changes[most]))}


def _nearest_context(each: Answer) -> list[dict[str, Any]]:
    assert each.situation is not None
    return [outcome_context(outcome) for outcome in nearest_outcomes(each.situation, read_outcomes())]


def outcome_context(outcome: Outcome) -> dict[str, Any]:
    """Return a published outcome as readers see it."""
    value, unit = float(outcome.row["value"]), outcome.row["unit"]
    shown = duration_words(value) if unit == "s" else f"{two_digits(value)} {unit}"
    return {**outcome.row, "shown": shown, "month": outcome.row["date"][:7]}


def _measured_context(point: MeasuredPoint) -> dict[str, Any]:
    expected = point.expected
    assert expected.situation is not None and expected.time is not None
    shown = [duration_words(end) for end in (point.seconds, expected.time.low, expected.time.high)]
    return {
        "model": model_name(expected),
        "format": expected.situation.format.name,
        "seconds": shown[0],
        "low": shown[1],
        "high": shown[2],
        "inside": point.is_inside,
        "factor": two_digits(point.factor),
    }


def _advice_context(advice: Advice) -> dict[str, Any]:
    rows = []
    for each in advice.answers:
        value = "no answer"
        if each.value:
            slots = value_slots(each.job.kind, each.value)
            value = f"{slots['value'].removesuffix(' over all users')} ({slots['low']} to {slots['high']})"
        price = cost(each)
        rows.append(
            {
                "name": machine_name(each),
                "value": value,
                "fits": each.fits,
                "cost": "not known" if price is None else two_digits(price),
            }
        )
    return {"sentences": say_advice(advice), "rows": rows}
