"""A heading tells no number that cannot be, and none that its interval does not bear out."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.pages.heading_numbers import (
    Number,
    amounts,
    as_share,
    divide_cases,
    impossible_results,
    merge_sentences,
    ratios,
    sentence,
    shares,
)

sizes = st.floats(1e-6, 1e6)
spreads = st.one_of(st.none(), st.floats(1.0, 1e4))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, float | None]:
    """A made-up estimate with an interval, or without one."""
    value, spread = draw(sizes), draw(spreads)
    return {
        "estimate": value,
        "low": None if spread is None else value / spread,
        "high": None if spread is None else value * spread,
    }


@given(st.lists(cases(), min_size=1, max_size=5))
def test_no_share_exceeds_all_and_no_ratio_is_one_time(made: list[dict[str, float | None]]) -> None:
    share, ratio = shares(made).text, ratios(made, "as fast").text
    for found in re.findall(r"([\d.,]+)%", share or ""):
        assert float(found.replace(",", "")) <= 100
    assert re.search(r"(?<![\d.,])1(\.0+)? times", ratio or "") is None
    ends = re.match(r"(?:about )?([\d.,]+) to ([\d.,]+)", ratio or "")
    assert ends is None or ends[1] != ends[2]


@given(cases(), cases())
def test_a_ratio_is_known_as_far_as_both_of_its_numbers_are(top: dict[str, float], base: dict[str, float]) -> None:
    ratio = divide_cases(top, base)
    assert ratio.value == pytest.approx(top["estimate"] / base["estimate"])
    if ratio.low is None:
        assert top["low"] is None or base["low"] is None
    else:
        assert ratio.low <= ratio.value * (1 + 1e-9) and ratio.value <= (ratio.high or 0) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("number", "told"),
    [(Number(0.88, 0.86, 0.9, 1.0), "88%"), (Number(0.88, None, None, 1.0), "about 88%"),
     (Number(1.02, 0.99, 1.05, 1.0), "all"), (Number(1.02, 1.01, 1.03, 1.0), None),
     (Number(1.45, None, None, 1.0), None), (Number(math.nan, None, None, 1.0), None),
     (Number(0.1, 0.04, 0.25, 1.0), "4% to 25%"), (Number(0.5, 0.0, 1.0, 1.0), None)],
)  # fmt: skip
def test_a_share(number: Number, told: str | None) -> None:
    assert shares([number]).text == told


@pytest.mark.parametrize(
    ("number", "told"),
    [(Number(2.7, 2.5, 2.9), "2.7 times as fast"), (Number(1.01, 1.0, 1.02), "about as fast"),
     (Number(1.3, 0.9, 1.9), "0.90 to 1.9 times as fast"), (Number(147.0, 0.05, 21000.0), None),
     (Number(0.0, 0.0, 0.0), None)],
)  # fmt: skip
def test_a_ratio(number: Number, told: str | None) -> None:
    assert ratios([number], "as fast").text == told


def test_sentences_of_several_machines_are_one_only_where_they_say_the_same() -> None:
    rate = amounts([{"estimate": 33e9, "low": 33e9, "high": 33e9}], "B/s")
    assert merge_sentences([sentence(f"{what} {{rate}}", rate=rate) for what in ("Memory moves", "Another")]) is None


def test_a_machine_does_not_speak_for_others_where_no_number_can_be_told() -> None:
    unknown = shares([Number(math.nan)])
    each = [
        sentence("It reaches {share} of the peak", f"It runs at {rate} GFLOP/s", share=unknown) for rate in (33, 56)
    ]
    assert merge_sentences(each) is None
    assert str(merge_sentences(each[:1])) == "It runs at 33 GFLOP/s"


def test_a_sentence_whose_number_cannot_be_says_so_and_names_the_machine() -> None:
    low_peak = as_share({"estimate": 1.45, "low": 1.3, "high": 1.6}, "products in float32", "the measured peak")
    title = sentence("The best library reaches {share} of the peak", "No share can be told", share=shares([low_peak]))
    assert str(title) == "No share can be told"
    (said,) = impossible_results(title.impossible, "machine A")
    assert "On machine A" in said and "products in float32 came to 1.4 times the measured peak" in said
