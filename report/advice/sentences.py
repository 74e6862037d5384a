"""Put advice into sentences, and numbers into words. The page's script, advice.js, says the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from report.advice.answers import Answer, Range
from report.advice.calibration import round_figures
from report.advice.choices import Advice, Wish, hourly_cost, kind_words, read_words
from report.advice.units import LONG

# Time units with their seconds, each up to the time from which the next unit is used: days above 72 hours.
TIMES = (
    ("seconds", 1.0, 60.0),
    ("minutes", 60.0, 3600.0),
    ("hours", 3600.0, 72 * 3600.0 + 1),
    ("days", 86400.0, 1000 * 86400.0),
    ("years", 365.25 * 86400.0, 1e300),
)
# Letters whose names begin with a vowel, for names that are spelled out such as RTX.
_VOWELS = "AEFHILMNORSX"


def with_article(name: str) -> str:
    """Put 'a' or 'an' before a machine's name; a name that begins with a count has none."""
    if name[0].isdigit():
        return name
    spelled = len(name) > 1 and not name[1].islower()
    return f"{'an' if name[0] in (_VOWELS if spelled else 'AEIO') else 'a'} {name}"


def two_figures(value: float) -> str:
    """Format a number to two significant digits: '6.0', '0.85', '5,100'."""
    rounded = round_figures(value, 2)
    if rounded >= 10 or rounded <= 0:
        return f"{rounded:,.0f}"
    return f"{rounded:.{1 - math.floor(math.log10(rounded))}f}"


def plain_number(value: float) -> str:
    """Format a number that a reader gave: '12', '1,000', '0.5'."""
    return f"{round_figures(value, 6):,.10g}"


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which readers tell a time, and its seconds."""
    return next((name, size) for name, size, end in TIMES if seconds < end)


def join_unit(number: str, words: str) -> str:
    """Join a number and its unit's words, whose first is singular after 1: '1 hour', '12 hours'."""
    first, space, others = words.partition(" ")
    return f"{number} {first.removesuffix('s') if number == '1' else first}{space}{others}"


def value_slots(kind: str, value: Range) -> dict[str, str]:
    """Return the slots value, low and high for a rate, or for a time in seconds."""
    words = kind_words(kind)
    unit, size = (str(words["unit_words"]), 1.0) if words["wish"] == "rate" else time_unit(value.middle)
    return {
        "value": join_unit(two_figures(value.middle / size), unit),
        "low": two_figures(value.low / size),
        "high": two_figures(value.high / size),
    }


def wish_text(wish: Wish) -> str:
    """Return a wish as words: '10 tokens a second', '7 days'."""
    if wish.is_rate:
        words = kind_words(wish.kind)
        return join_unit(plain_number(wish.amount), str(words.get("wish_unit", words["unit_words"])))
    seconds = wish.amount * LONG["hours"]
    unit, size = time_unit(seconds)
    return join_unit(plain_number(seconds / size), unit)


def gigabytes(value: float) -> str:
    """Format bytes for readers: '4.9 GB'."""
    return f"{two_figures(value / 1e9)} GB"


def cost(answered: Answer) -> float | None:
    """Return what an hour on an answer's machine costs in USD; None if no price is known."""
    if answered.situation is None:
        return None
    return hourly_cost(answered.situation.machine, answered.usd_per_hour)


def _does(answered: Answer) -> str:
    kind = answered.job.kind
    words = kind_words(kind)
    assert answered.value is not None
    text: str = read_words()["sentences"][f"does_{words['wish']}"].format(
        name=with_article(answered.job.hardware),
        verb=words["verb"],
        model=answered.job.model,
        **value_slots(kind, answered.value),
    )
    return text


def _ends(wish: Wish, answered: Answer) -> tuple[bool, bool]:
    """Tell whether the worst end and the best end meet a wish."""
    low, _, high = wish.value(answered) or (math.nan, math.nan, math.nan)
    return (low >= wish.amount, high >= wish.amount) if wish.is_rate else (high <= wish.amount, low <= wish.amount)


def _memory_slots(answered: Answer) -> dict[str, str]:
    return {"needed": gigabytes(answered.required_bytes), "room": gigabytes(answered.room)}


def say_advice(advice: Advice) -> list[str]:
    """Return sentences on the choice among several machines, the advice first."""
    return [_first_large(text) for text in _advice_sentences(advice)]


def _advice_sentences(advice: Advice) -> Iterator[str]:
    words: Mapping[str, Any] = read_words()["sentences"]
    best, wish = advice.best, advice.wish
    wants = words["wants_rate" if wish.is_rate else "wants_time"].format(wish=wish_text(wish))
    unpriced = next((each for each in advice.answers if cost(each) is None and wish.is_met(each)), None)
    if best is None or best.situation is None or not advice.met:
        if unpriced:
            yield words["unpriced_best"].format(does=_does(unpriced), wants=wants)
        if best:
            yield words["nearest_priced" if unpriced else "nearest"].format(does=_does(best), wants=wants)
        elif not unpriced:
            answered = [each for each in advice.answers if each.value]
            lacking = bool(answered) and all(each.fits == "no" for each in answered)
            needed = gigabytes(min(each.required_bytes for each in answered)) if lacking else ""
            yield words["too_large" if lacking else "unanswered"].format(needed=needed)
        return
    slots = {"does": _does(best), "wants": wants}
    best_class = best.situation.hardware_class
    yield words[{"cpu": "no_gpu", "apple": "no_card", "integrated": "no_card"}.get(best_class, "gpu")].format(**slots)
    if not _ends(wish, best)[0]:
        yield words["unsure"]
        sure = [
            each for each in advice.answers if wish.is_met(each) and _ends(wish, each)[0] and cost(each) is not None
        ]
        if sure:
            safest = min(sure, key=lambda each: cost(each) or 0.0)
            assert safest.value is not None
            slots = value_slots(wish.kind, safest.value)
            yield words["safe"].format(name=with_article(safest.job.hardware), **slots)
    if best.fits == "tight":
        yield words["tight"].format(**_memory_slots(best))
    price = cost(best) or 0.0
    if price and unpriced:
        yield words["unpriced"].format(name=with_article(unpriced.job.hardware))
    if best_class != "cpu":
        yield _processor_sentence(advice)
    cheaper = advice.cheaper
    if cheaper and cheaper.value and (cost(cheaper) or 0.0) < price:
        form = "next_memory" if cheaper.fits == "no" else "next" if wish.is_rate else "next_time"
        name = with_article(cheaper.job.hardware)
        yield words[form].format(name=name, **_memory_slots(cheaper), **value_slots(wish.kind, cheaper.value))


def _processor_sentence(advice: Advice) -> str:
    words: Mapping[str, str] = read_words()["sentences"]
    meeting = [
        each
        for each in advice.answers
        if each.situation and each.situation.hardware_class == "cpu" and advice.wish.is_met(each)
    ]
    if not meeting:
        return words["no_processor"]
    cheapest = min(meeting, key=lambda each: cost(each) or 0.0)
    return words["processor"].format(does=_does(cheapest), price=price_text(cost(cheapest)))


def price_text(usd: float | None) -> str:
    """Format a price for an hour: '0.013 USD', '0 USD'."""
    return "not known" if usd is None else f"{two_figures(usd)} USD"


def say_answer(answered: Answer, wish: Wish) -> list[str]:
    """Return sentences on one machine, the advice first."""
    return [_first_large(text) for text in _answer_sentences(answered, wish)]


def _answer_sentences(answered: Answer, wish: Wish) -> Iterator[str]:
    words = read_words()["sentences"]
    name = with_article(answered.job.hardware)
    if answered.value is None or answered.situation is None:
        classes = read_words()["classes"]
        named = classes[answered.situation.hardware_class] if answered.situation else answered.refused
        yield words["unpublished"].format(name=name, **{"class": named})
        return
    if answered.fits == "no":
        yield words["lacks"].format(name=name, **_memory_slots(answered))
        return
    worst, best = _ends(wish, answered)
    middle = wish.is_met(answered)
    form = "enough" if worst else "probably" if middle else "hardly" if best else "too_slow"
    wants = words["wants_rate" if wish.is_rate else "wants_time"].format(wish=wish_text(wish))
    yield words[form].format(does=_does(answered), wants=wants)
    if answered.fits == "tight":
        yield words["tight"].format(**_memory_slots(answered))


def _first_large(text: str) -> str:
    return text[0].upper() + text[1:]
