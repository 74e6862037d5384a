"""Rows in groups, without a loop over the groups: keys, equal neighbours, medians and the commonest words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contract.errors import StudyError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Keys below this are exact as 64-bit whole numbers.
_LARGEST_KEY = 2**62


@dataclass(frozen=True)
class Text:
    """A column of text: its words in alphabetical order, the empty one always first, and each row's number of them."""

    codes: Ints
    words: NDArray[Any]

    @property
    def coded(self) -> tuple[Ints, int]:
        """The column as `fold` takes it."""
        return self.codes, len(self.words)

    def only(self, rows: NDArray[np.intp]) -> tuple[Ints, int]:
        """The same of some rows."""
        return self.codes[rows], len(self.words)


def text(column: pd.Series) -> Text:
    """A column of text, whether it holds objects, strings or categories. Raises StudyError if a text is missing."""
    codes, found = pd.factorize(column)
    if len(codes) and codes.min() < 0:
        row = int(np.argmin(codes))
        raise StudyError(f"column {column.name!r}, row {row}: there is no text. Write '' where nothing is to be said")
    seen = list(found)
    words = sorted({"", *seen})
    place = {word: number for number, word in enumerate(words)}
    numbers = np.array([place[word] for word in seen], dtype=np.int64)
    return Text(numbers[codes], np.array(words, dtype=object))


def ranks(values: pd.Series | NDArray[Any]) -> tuple[Ints, int]:
    """Each value's place among the distinct ones, in ascending order, and how many those are."""
    codes, distinct = pd.factorize(values, sort=True)
    return codes, len(distinct)


def fold(columns: Iterable[tuple[Ints, int]]) -> tuple[Ints, int]:
    """One whole number a row that orders rows as their tuples of codes do, and a bound above it.

    columns: per column its codes, of shape (rows,) and not negative, and a bound above them, such as how many words
    it has. Codes are renumbered on the way where the keys would outgrow 64 bits.
    """
    key, size = np.zeros(1, dtype=np.int64), 1
    for codes, bound in columns:
        if size * bound > _LARGEST_KEY:
            key, size = ranks(key)
        key = key * bound + codes
        size *= bound
    return key, size


@dataclass(frozen=True)
class Runs:
    """Equal neighbours of an array: what each run holds, where it starts and how long it is, of shape (runs,)."""

    value: NDArray[Any]
    start: NDArray[np.intp]
    length: NDArray[np.intp]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Runs:
        begins = np.ones(len(values), dtype=bool)
        np.not_equal(values[1:], values[:-1], out=begins[1:])
        start = np.flatnonzero(begins)
        return cls(values[start], start, np.diff(start, append=len(values)))


def medians(ordered: Floats, runs: Runs) -> Floats:
    """The median of each run of values, which ascend within it; nan if one of them is nan (they lie last)."""
    middle = (ordered[runs.start + (runs.length - 1) // 2] + ordered[runs.start + runs.length // 2]) / 2
    return np.where(np.isnan(ordered[runs.start + runs.length - 1]), np.nan, middle)


def median_of_known(values: Floats, group: Ints, count: int) -> Floats:
    """The median of each group's values that are not nan, of shape (count,); nan for a group without any.

    values, group: shape (rows,); the groups' numbers, from 0, ascend.
    """
    known = ~np.isnan(values)
    values, group = values[known], group[known]
    runs = Runs.of(group)
    # Most groups hold one value many times over: there is nothing to sort.
    if (np.maximum.reduceat(values, runs.start) != np.minimum.reduceat(values, runs.start)).any():
        values = values[np.lexsort((values, group))]
    found = np.full(count, np.nan)
    found[runs.value] = medians(values, runs)
    return found


def commonest(codes: Ints, group: Ints, count: int) -> Ints:
    """The commonest code of each group, of shape (count,); of equally common ones the lowest, 0 counting for nothing.

    codes, group: shape (rows,); the groups are numbered from 0. 0 for a group that has no other code.
    """
    found = np.zeros(count, dtype=np.int64)
    said = codes > 0
    codes, group = codes[said], group[said]
    if not len(codes):
        return found
    width = int(codes.max()) + 1
    pairs = Runs.of(np.sort(group * width + codes))
    owner, code = np.divmod(pairs.value, width)
    best = np.lexsort((code, -pairs.length, owner))
    first = best[Runs.of(owner[best]).start]
    found[owner[first]] = code[first]
    return found


def keys(one: pd.DataFrame, other: pd.DataFrame, columns: list[str]) -> tuple[Ints, Ints]:
    """A number for each row of two tables: equal where rows agree in these columns."""
    both = (pd.concat([one[name], other[name]], ignore_index=True) for name in columns)
    found, _ = fold(ranks(column) for column in both)
    return found[: len(one)], found[len(one) :]
