"""What is done to all groups at once is what would be done to each."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.data import groups

small = st.integers(0, 4)
rows = st.lists(st.tuples(small, small), max_size=30)


@given(st.lists(st.tuples(small, small, small), min_size=1, max_size=20), st.sampled_from([5, 2**21, 2**40, 2**57]))
def test_folded_keys_order_rows_as_their_tuples_do(keys: list[tuple[int, int, int]], bound: int) -> None:
    # Bounds may be far above what occurs; their product may be more than a whole number of 64 bits holds.
    folded, above = groups.fold((np.array(column), bound) for column in zip(*keys, strict=True))
    assert folded.min() >= 0 and folded.max() < above
    for one, key in zip(folded, keys, strict=True):
        assert [one < other for other in folded] == [key < other for other in keys]


@given(st.lists(small, max_size=20))
def test_runs_are_equal_neighbours(values: list[int]) -> None:
    runs = groups.Runs.of(np.array(values, dtype=np.int64))
    assert np.repeat(runs.value, runs.length).tolist() == values
    assert (np.cumsum(runs.length) - runs.length == runs.start).all()
    assert (runs.value[1:] != runs.value[:-1]).all()


@given(st.lists(st.tuples(small, st.sampled_from([math.nan, 1.0, 2.0, 4.0, 8.5])), max_size=30))
def test_medians_leave_out_what_is_unknown(pairs: list[tuple[int, float]]) -> None:
    pairs.sort(key=lambda pair: pair[0])
    group, values = np.array([g for g, _ in pairs], dtype=np.int64), np.array([v for _, v in pairs], dtype=float)
    found = groups.median_of_known(values, group, 5)
    for number in range(5):
        known = [value for place, value in pairs if place == number and not math.isnan(value)]
        assert found[number] == statistics.median(known) if known else math.isnan(found[number])


def test_the_median_of_samples_one_of_which_is_unknown_is_unknown() -> None:
    runs = groups.Runs.of(np.array([1, 1, 1, 2, 2]))
    assert groups.medians(np.array([1, 2, math.nan, 3, 5]), runs) == pytest.approx([math.nan, 4], nan_ok=True)


@given(rows)
def test_the_commonest_code_is_the_lowest_of_equals(pairs: list[tuple[int, int]]) -> None:
    group, codes = (np.array([pair[place] for pair in pairs], dtype=np.int64) for place in (0, 1))
    found = groups.commonest(codes, group, 5)
    for number in range(5):
        said = sorted(code for place, code in pairs if place == number and code)
        assert found[number] == (statistics.mode(said) if said else 0)
