"""Put numbers in headings and sentences only if they are possible and precise enough.

A `Sentence` has placeholders: `sentence("… reaches {best} of the peak", best=shares(cases))`. A number that is
impossible or too imprecise is left out, and a sentence with an empty placeholder is replaced by its alternative or
dropped. Sentences from several machines that differ only in numbers are merged into one sentence with ranges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from report import formatting
from report.findings import WIDE
from report.formatting import format_part, range_words, two_digits

# An amount or ratio is left out if its interval bounds differ by at least this factor.
TOO_WIDE = 10.0
# A share is left out if its interval covers at least this fraction of the range from 0 to the maximum.
WIDE_SHARE = 0.5
# A share that exceeds its maximum by up to this factor is shown as the maximum if its interval includes the maximum.
SLIGHTLY = 1.05
# A ratio that differs from 1 by less than this factor is regarded as equal to 1.
EQUAL = 1.05

ALL = "100%"
_ONE = re.compile(r"1(?:\.0+)?")
_PLACE = re.compile(r"\{(\w+)\}")

Case = Mapping[str, Any]
Words = Callable[[float], str]


@dataclass(frozen=True)
class Number:
    """A number with its interval. Its minimum is 0.

    low, high: interval bounds, None if unknown.
    most: maximum, such as 1 for a share.
    about: words for what was measured.
    whole: words for what a share is a share of.
    """

    value: float
    low: float | None = None
    high: float | None = None
    most: float = math.inf
    about: str = ""
    whole: str = "all that there is"

    @property
    def impossible(self) -> bool:
        """True if the number exceeds its maximum, and imprecision does not explain the excess.

        Imprecision explains an excess up to the factor SLIGHTLY if the interval reaches down to the maximum.
        """
        if not self.value > self.most:
            return False
        return self.low is None or self.low > self.most or self.value > self.most * SLIGHTLY

    @property
    def straddles_one(self) -> bool:
        """True if the interval contains 1 although the ratio itself is not close to 1."""
        if self.low is None or self.high is None:
            return False
        return self.low < 1 < self.high and not 1 / EQUAL < self.value < EQUAL

    @property
    def inverse(self) -> Number:
        """Reciprocal of the number, with the reciprocal interval."""
        low, high = (1 / end if end else None for end in (self.high, self.low))
        return Number(1 / self.value if self.value else math.nan, low, high)

    @property
    def is_narrow(self) -> bool:
        """True if the interval is known and its bounds differ by less than the factor WIDE."""
        return self.low is not None and self.high is not None and self.low > 0 and self.high < WIDE * self.low

    def shown_bounds(self, limit: float = TOO_WIDE) -> tuple[float, float] | None:
        """Return the bounds to show: the value twice if its interval is narrow or unknown, else the interval.

        Returns None if the interval is too wide or the value is impossible.
        limit: bounds that differ by this factor are too wide; with math.inf no interval is too wide.
        """
        share = math.isfinite(self.most)
        if not math.isfinite(self.value) or self.value < 0 or (self.value == 0 and not share) or self.impossible:
            return None
        value = min(self.value, self.most)
        if self.low is None or self.high is None:
            return value, value
        low, high = max(self.low, 0.0), min(self.high, self.most)
        if low > 0 and high < WIDE * low:
            return value, value
        if limit == math.inf:
            return low, high
        if share:
            return (low, high) if high - low < WIDE_SHARE * self.most else None
        return (low, high) if low > 0 and high < limit * low else None


@dataclass(frozen=True)
class Place:
    """The numbers that fill a placeholder, shown as a single number or as a range.

    groups: the numbers, grouped by machine.
    words: function to format a number.
    after: words after a ratio, such as "as fast"; '' if the numbers are no ratios.
    most: True shows only the largest number.
    limit: see `Number.shown_bounds`.
    """

    groups: tuple[tuple[Number, ...], ...]
    words: Words
    after: str = ""
    most: bool = False
    limit: float = TOO_WIDE

    @property
    def numbers(self) -> list[Number]:
        """Numbers from all machines."""
        return [number for group in self.groups for number in group]

    @property
    def text(self) -> str | None:
        """Text that fills the placeholder; None if no number can be shown."""
        ends = [end for group in self.groups for end in self._group_bounds(group)]
        if not ends or (self.most and any(number.impossible for number in self.numbers)):
            return None
        high = max(high for _, high in ends)
        low = high if self.most else min(low for low, _ in ends)
        sure = any(number.low is not None and number.high is not None for number in self.numbers)
        first, last = self.words(low), self.words(high)
        if self.after:
            return _ratio(first, last, self.after, sure)
        text = "all" if first == last == ALL else range_words(first, last)
        return text if sure or text == "all" else f"about {text}"

    def _group_bounds(self, group: Sequence[Number]) -> list[tuple[float, float]]:
        """Return the bounds to show for a machine's numbers, a pair per number.

        If any number is shown as a single value, numbers shown as ranges are left out.
        """
        if self.after and len(group) == 1 and group[0].straddles_one:
            return [(float(group[0].low or 0), float(group[0].high or 0))] if group[0].shown_bounds(self.limit) else []
        bounds = [ends for number in group if (ends := number.shown_bounds(self.limit))]
        return [(low, high) for low, high in bounds if low == high] or bounds

    @property
    def dropped_count(self) -> int:
        """Count the numbers left out because of wide intervals."""
        return sum(
            len([number for number in group if not number.impossible]) - len(self._group_bounds(group))
            for group in self.groups
        )


def _ratio(low: str, high: str, after: str, sure: bool) -> str:
    """Format a ratio without '1 times': '1.6 times as fast', 'up to 2.7 times as fast', 'about as fast'.

    sure: False adds 'about', because no interval is known.
    """
    low, high = ("1" if _ONE.fullmatch(end) else end for end in (low, high))
    about = "" if sure else "about "
    if low == high == "1":
        return f"about {after}"
    if low == high:
        return f"{about}{low} times {after}"
    if low == "1":
        return f"up to {about}{high} times {after}"
    if high == "1":
        return f"{about}{low} times to just {after}"
    return f"{about}{low} to {high} times {after}"


@dataclass(frozen=True)
class Sentence:
    """A sentence with placeholders.

    places: numbers for the placeholders, by name.
    otherwise: text to replace the sentence if a placeholder cannot be filled; '' drops the sentence.
    """

    text: str
    places: Mapping[str, Place] = field(default_factory=dict)
    otherwise: str = ""

    @property
    def is_complete(self) -> bool:
        """True if every placeholder can be filled."""
        return all(place.text is not None for place in self.places.values())

    def __str__(self) -> str:
        if not self.is_complete:
            return self.otherwise
        # str.format cannot fill the sentence, because model and machine names may contain braces.
        filled = _PLACE.sub(
            lambda match: str(self.places[match[1]].text if match[1] in self.places else match[0]), self.text
        )
        return formatting.capitalize(filled) if self.text.startswith("{") else filled

    @property
    def impossible(self) -> list[Number]:
        """Impossible numbers among those for the placeholders."""
        return [number for place in self.places.values() for number in place.numbers if number.impossible]

    @property
    def dropped_note(self) -> str:
        """Sentence that counts the numbers left out because of wide intervals; '' if there are none."""
        lost, total = (sum(each) for each in ([place.dropped_count for place in self.places.values()],
                                              [len(place.numbers) for place in self.places.values()]))  # fmt: skip
        vary = format_part(lost, total, "numbers", "varies", "vary")
        return f"{vary} too widely to stand in the title." if lost else ""


def sentence(text: str, otherwise: str = "", /, **places: Place) -> Sentence:
    return Sentence(text, places, otherwise)


def filled_texts(sentences: Iterable[Sentence]) -> list[str]:
    """Convert sentences to text; drop sentences that can be neither filled nor replaced."""
    return [text for candidate in sentences if (text := str(candidate))]


def merge_sentences(sentences: Sequence[Sentence]) -> Sentence | None:
    """Merge sentences from several machines into one sentence with ranges.

    Returns None if the sentences differ in more than numbers, or if a placeholder cannot be filled and the replacements
    differ.
    """
    first = sentences[0]
    if any(other.text != first.text or other.places.keys() != first.places.keys() for other in sentences):
        return None
    places = {
        name: replace(place, groups=sum((other.places[name].groups for other in sentences), ()))
        for name, place in first.places.items()
    }
    merged = Sentence(first.text, places, first.otherwise)
    return merged if merged.is_complete or all(other.otherwise == first.otherwise for other in sentences) else None


def impossible_results(numbers: Iterable[Number], machine: str) -> list[str]:
    """Return a sentence that reports impossible results on a machine; empty if there are none."""
    results = [
        f"{number.about or 'one result'} came to {_format_excess(number.value)} {number.whole}"
        for number in numbers
        if number.impossible
    ]
    if not results:
        return []
    return [
        f"On {machine} {formatting.first_items(results, 3, '; ')}. No more than all of it is possible: it was "
        "measured in a slow minute, so no share of it is given."
    ]


def _format_excess(excess: float) -> str:
    return "more than" if two_digits(excess) == "1" else f"{two_digits(excess)} times"


def as_number(case: Case, most: float = math.inf) -> Number:
    """Convert a case to a `Number`; a missing or NaN bound is unknown."""
    low, high = (_float_or_none(case.get(end)) for end in ("low", "high"))
    value = _float_or_none(case.get("estimate"))
    return Number(math.nan if value is None else value, low, high, most)


def as_share(case: Case, about: str = "", whole: str = "all that there is") -> Number:
    """Convert a case to a share, which is a `Number` with maximum 1."""
    return replace(as_number(case, 1.0), about=about, whole=whole)


def _float_or_none(value: object) -> float | None:
    return None if value is None or math.isnan(float(value)) else float(value)  # type: ignore[arg-type]


def divide_cases(top: Case, base: Case) -> Number:
    """Divide two independent cases; combine their uncertainties on the log scale."""
    upper, lower = as_number(top), as_number(base)
    if not (upper.value > 0 and lower.value > 0):
        return Number(math.nan)
    value = upper.value / lower.value
    if None in (upper.low, upper.high, lower.low, lower.high):
        return Number(value)
    low = math.hypot(_log_ratio(upper.value, upper.low), _log_ratio(lower.high, lower.value))
    high = math.hypot(_log_ratio(upper.high, upper.value), _log_ratio(lower.value, lower.low))
    return Number(value, value * math.exp(-min(low, 700.0)), value * math.exp(min(high, 700.0)))


def _log_ratio(above: float | None, below: float | None) -> float:
    return math.log(above / below) if above and below and above > 0 and below > 0 else math.inf


def format_share(share: float) -> str:
    """Format a fraction as a percentage with two digits: '4.1%'.

    From 0.995 up, there are three digits. From 1 up, the text is ALL; below 0.00005, it is '0%'.
    """
    if share >= 1:
        return ALL
    digits = 2 if share < 0.995 else 3
    return f"{formatting.format_number(100 * share, digits).removesuffix('.0') if share >= 5e-5 else '0'}%"


def shares(cases: Iterable[Case | Number], **how: Any) -> Place:
    """Return the `Place` for shares, which lie from 0 to 1.

    how: further fields of `Place`.
    """
    return Place((tuple(case if isinstance(case, Number) else as_share(case) for case in cases),), format_share, **how)


def ratios(cases: Iterable[Case | Number], after: str, words: Words = two_digits, **how: Any) -> Place:
    """Return the `Place` for ratios: '2.7 times as fast'.

    after: words after 'times', here 'as fast'.
    how: further fields of `Place`.
    """
    return Place((tuple(case if isinstance(case, Number) else as_number(case) for case in cases),), words, after, **how)


def amounts(cases: Iterable[Case | Number], words: Words | str = two_digits, **how: Any) -> Place:
    """Return the `Place` for positive numbers.

    words: unit, or function to format a number.
    how: further fields of `Place`.
    """
    unit = words if isinstance(words, str) else ""
    say: Words = (lambda value: formatting.with_unit(value, unit, 2)) if isinstance(words, str) else words
    return Place((tuple(case if isinstance(case, Number) else as_number(case) for case in cases),), say, **how)
