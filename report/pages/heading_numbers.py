"""Numbers in headings and sentences: only those that can be true and that the measurement tells apart.

A `Sentence` has places for numbers, `sentence("… reaches {best} of the peak", best=shares(cases))`. A number that
exceeds what is possible, or whose interval is too wide, is left out of its place; a sentence with an empty place is
not told. Sentences of several machines that differ in their numbers alone merge into one with the ranges over machines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from report import formatting
from report.findings import WIDE
from report.formatting import span_words, two_digits

# An interval whose ends differ by this factor is not told at all.
TOO_WIDE = 10.0
# A share of which the interval covers this much of all is not told.
WIDE_SHARE = 0.5
# A share this much above its limit, which its interval reaches, counts as all.
SLIGHTLY = 1.05
# A ratio this near to 1 counts as equal.
EQUAL = 1.05

ALL = "100%"
_ONE = re.compile(r"1(?:\.0+)?")
_PLACE = re.compile(r"\{(\w+)\}")

Case = Mapping[str, Any]
Words = Callable[[float], str]


@dataclass(frozen=True)
class Number:
    """A number with its interval (None: unknown) and the most that is possible; the least is 0.

    about: what it is of. whole: of what it is a share.
    """

    value: float
    low: float | None = None
    high: float | None = None
    most: float = math.inf
    about: str = ""
    whole: str = "all that there is"

    @property
    def impossible(self) -> bool:
        """The number exceeds the most that is possible by more than its own uncertainty."""
        if not self.value > self.most:
            return False
        return self.low is None or self.low > self.most or self.value > self.most * SLIGHTLY

    @property
    def either(self) -> bool:
        """The ratio may be above or below 1, and is not nearly 1."""
        if self.low is None or self.high is None:
            return False
        return self.low < 1 < self.high and not 1 / EQUAL < self.value < EQUAL

    @property
    def inverse(self) -> Number:
        """1 over it, its interval turned with it."""
        low, high = (1 / end if end else None for end in (self.high, self.low))
        return Number(1 / self.value if self.value else math.nan, low, high)

    @property
    def narrow(self) -> bool:
        """The interval is known and spans less than WIDE."""
        return self.low is not None and self.high is not None and self.low > 0 and self.high < WIDE * self.low

    def ends(self, limit: float = TOO_WIDE) -> tuple[float, float] | None:
        """The number twice, its interval if that is wide, or None if it is not to be told: wider than a factor."""
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
    """Content of one place of a sentence: a number, or the range over several.

    groups: the numbers of each machine. words: of one end. after: what follows a ratio, "as fast", '' for other
    numbers. most: only the largest counts. limit: factor from which on an interval is too wide to be told.
    """

    groups: tuple[tuple[Number, ...], ...]
    words: Words
    after: str = ""
    most: bool = False
    limit: float = TOO_WIDE

    @property
    def numbers(self) -> list[Number]:
        """Those of all machines."""
        return [one for group in self.groups for one in group]

    @property
    def text(self) -> str | None:
        """The numbers in words; None where none can be told."""
        ends = [end for group in self.groups for end in self._ends(group)]
        if not ends or (self.most and any(number.impossible for number in self.numbers)):
            return None
        high = max(high for _, high in ends)
        low = high if self.most else min(low for low, _ in ends)
        sure = any(number.low is not None and number.high is not None for number in self.numbers)
        first, last = self.words(low), self.words(high)
        if self.after:
            return _ratio(first, last, self.after, sure)
        told = "all" if first == last == ALL else span_words(first, last)
        return told if sure or told == "all" else f"about {told}"

    def _ends(self, group: Sequence[Number]) -> list[tuple[float, float]]:
        """Ends of a machine's numbers that are told: of the narrow ones, or of the intervals if none is narrow."""
        if self.after and len(group) == 1 and group[0].either:
            return [(float(group[0].low or 0), float(group[0].high or 0))] if group[0].ends(self.limit) else []
        known = [ends for one in group if (ends := one.ends(self.limit))]
        return [(low, high) for low, high in known if low == high] or known

    @property
    def left_out(self) -> int:
        """Count of numbers that are not told because their interval is too wide."""
        return sum(len([one for one in group if not one.impossible]) - len(self._ends(group)) for group in self.groups)


def _ratio(low: str, high: str, after: str, sure: bool) -> str:
    """'1.6 times as fast', 'up to 2.7 times as fast', 'about as fast': never 1 times."""
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
    """A sentence with places. otherwise: the text in its stead where a place stays empty; '' for nothing."""

    text: str
    places: Mapping[str, Place] = field(default_factory=dict)
    otherwise: str = ""

    @property
    def able(self) -> bool:
        """All places can be filled."""
        return all(place.text is not None for place in self.places.values())

    def __str__(self) -> str:
        if not self.able:
            return self.otherwise
        # Not str.format: names of models and machines may hold braces.
        filled = _PLACE.sub(
            lambda found: str(self.places[found[1]].text if found[1] in self.places else found[0]), self.text
        )
        return formatting.capital(filled) if self.text.startswith("{") else filled

    @property
    def impossible(self) -> list[Number]:
        """The numbers that cannot be true."""
        return [number for place in self.places.values() for number in place.numbers if number.impossible]

    @property
    def left_out(self) -> str:
        """Sentence about the numbers whose intervals are too wide to be told; '' where there are none."""
        lost, total = (sum(each) for each in ([place.left_out for place in self.places.values()],
                                              [len(place.numbers) for place in self.places.values()]))  # fmt: skip
        return f"{lost} of {total} numbers vary too widely between rounds to be told in the title." if lost else ""


def sentence(text: str, otherwise: str = "", /, **places: Place) -> Sentence:
    """A sentence with these places."""
    return Sentence(text, places, otherwise)


def texts(sentences: Iterable[Sentence]) -> list[str]:
    """The sentences that can be told."""
    return [text for one in sentences if (text := str(one))]


def merge(sentences: Sequence[Sentence]) -> Sentence | None:
    """One sentence for several machines, its places the ranges over them; None where more than numbers differs.

    None as well where no place can be filled and the machines have different sentences to tell instead.
    """
    first = sentences[0]
    if any(one.text != first.text or one.places.keys() != first.places.keys() for one in sentences):
        return None
    places = {
        name: replace(place, groups=sum((one.places[name].groups for one in sentences), ()))
        for name, place in first.places.items()
    }
    together = Sentence(first.text, places, first.otherwise)
    return together if together.able or all(one.otherwise == first.otherwise for one in sentences) else None


def excess(numbers: Iterable[Number], machine: str) -> list[str]:
    """Sentences that name the machine and the results that cannot be true; none where all can."""
    found = [
        f"{number.about or 'one result'} came to {_times(number.value)} {number.whole}"
        for number in numbers
        if number.impossible
    ]
    if not found:
        return []
    return [
        f"On {machine} something disturbed a measurement: {formatting.first(found, 3, '; ')}. No more than all of it "
        "is possible: it was measured too low, and no share of it is told."
    ]


def _times(excess: float) -> str:
    return "more than" if two_digits(excess) == "1" else f"{two_digits(excess)} times"


def as_number(case: Case, most: float = math.inf) -> Number:
    """The number of a case: estimate, low and high; an interval that is missing or not a number is unknown."""
    low, high = (_known(case.get(end)) for end in ("low", "high"))
    value = _known(case.get("estimate"))
    return Number(math.nan if value is None else value, low, high, most)


def as_share(case: Case, about: str = "", whole: str = "all that there is") -> Number:
    """The number of a case that is a share of a whole: no more than all of it is possible."""
    return replace(as_number(case, 1.0), about=about, whole=whole)


def _known(value: object) -> float | None:
    return None if value is None or math.isnan(float(value)) else float(value)  # type: ignore[arg-type]


def quotient(top: Case, base: Case) -> Number:
    """A ratio of two cases that were measured apart; its interval by adding their errors on the log scale."""
    one, other = as_number(top), as_number(base)
    if not (one.value > 0 and other.value > 0):
        return Number(math.nan)
    value = one.value / other.value
    if None in (one.low, one.high, other.low, other.high):
        return Number(value)
    low = math.hypot(_log(one.value, one.low), _log(other.high, other.value))
    high = math.hypot(_log(one.high, one.value), _log(other.value, other.low))
    return Number(value, value * math.exp(-min(low, 700.0)), value * math.exp(min(high, 700.0)))


def _log(above: float | None, below: float | None) -> float:
    return math.log(above / below) if above and below and above > 0 and below > 0 else math.inf


def percent(share: float) -> str:
    """A share in words of two digits: '4.1%'; no less than all is told as ALL."""
    if share >= 1:
        return ALL
    return f"{formatting.number(100 * share, 2 if share < 0.995 else 3).removesuffix('.0') if share >= 5e-5 else '0'}%"


def shares(cases: Iterable[Case | Number], **how: Any) -> Place:
    """A place for shares of a whole, from 0 to 1."""
    return Place((tuple(case if isinstance(case, Number) else as_share(case) for case in cases),), percent, **how)


def ratios(cases: Iterable[Case | Number], after: str, words: Words = two_digits, **how: Any) -> Place:
    """A place for ratios, as '2.7 times as fast'. after: 'as fast'."""
    return Place((tuple(case if isinstance(case, Number) else as_number(case) for case in cases),), words, after, **how)


def amounts(cases: Iterable[Case | Number], words: Words | str = two_digits, **how: Any) -> Place:
    """A place for numbers above 0. words: of one number, or a unit."""
    unit = words if isinstance(words, str) else ""
    say: Words = (lambda value: formatting.with_unit(value, unit, 2)) if isinstance(words, str) else words
    return Place((tuple(case if isinstance(case, Number) else as_number(case) for case in cases),), say, **how)
