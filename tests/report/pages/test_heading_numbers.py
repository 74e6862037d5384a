"""Numbers in headings: each number is possible, and the interval of the estimate supports it."""

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
    """Draw an estimate with or without an interval."""
    value, spread = draw(sizes), draw(spreads)
    return {
        "estimate": value,
        "low": None if spread is None else value / spread,
        "high": None if spread is None else value * spread,
    }


@given(st.lists(cases(), min_size=1, max_size=5))
def test_no_share_exceeds_100_percent_and_no_ratio_is_1(estimates: list[dict[str, float | None]]) -> None:
    share, ratio = shares(estimates).text, ratios(estimates, "as fast").text
    for percent in re.findall(r"([\d.,]+)%", share or ""):
        assert float(percent.replace(",", "")) <= 100
    assert re.search(r"(?<![\d.,])1(\.0+)? times", ratio or "") is None
    ends = re.match(r"(?:about )?([\d.,]+) to ([\d.,]+)", ratio or "")
    assert ends is None or ends[1] != ends[2]


@given(cases(), cases())
def test_ratio_has_an_interval_if_both_numbers_have(top: dict[str, float], base: dict[str, float]) -> None:
    ratio = divide_cases(top, base)
    assert ratio.value == pytest.approx(top["estimate"] / base["estimate"])
    if ratio.low is None:
        assert top["low"] is None or base["low"] is None
    else:
        assert ratio.low <= ratio.value * (1 + 1e-9) and ratio.value <= (ratio.high or 0) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("number", "text"),
    [(Number(0.88, 0.86, 0.9, 1.0), "88%"), (Number(0.88, None, None, 1.0), "about 88%"),
     (Number(1.02, 0.99, 1.05, 1.0), "all"), (Number(1.02, 1.01, 1.03, 1.0), None),
     (Number(1.45, None, None, 1.0), None), (Number(math.nan, None, None, 1.0), None),
     (Number(0.1, 0.04, 0.25, 1.0), "4% to 25%"), (Number(0.5, 0.0, 1.0, 1.0), None)],
)  # fmt: skip
def test_share_text(number: Number, text: str | None) -> None:
    assert shares([number]).text == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(Number(2.7, 2.5, 2.9), "2.7 times as fast"), (Number(1.01, 1.0, 1.02), "about as fast"),
     (Number(1.3, 0.9, 1.9), "0.90 to 1.9 times as fast"), (Number(147.0, 0.05, 21000.0), None),
     (Number(0.0, 0.0, 0.0), None)],
)  # fmt: skip
def test_ratio_text(number: Number, text: str | None) -> None:
    assert ratios([number], "as fast").text == text


def test_different_sentences_do_not_merge() -> None:
    rate = amounts([{"estimate": 33e9, "low": 33e9, "high": 33e9}], "B/s")
    assert merge_sentences([sentence(f"{what} {{rate}}", rate=rate) for what in ("Memory moves", "Another")]) is None


def test_fallback_sentences_of_several_machines_do_not_merge() -> None:
    unknown = shares([Number(math.nan)])
    each = [
        sentence("It reaches {share} of the peak", f"It runs at {rate} GFLOP/s", share=unknown) for rate in (33, 56)
    ]
    assert merge_sentences(each) is None
    assert str(merge_sentences(each[:1])) == "It runs at 33 GFLOP/s"


def test_impossible_number_is_reported_with_its_machine() -> None:
    low_peak = as_share({"estimate": 1.45, "low": 1.3, "high": 1.6}, "products in float32", "the measured peak")
    title = sentence("The best library reaches {share} of the peak", "No share can be told", share=shares([low_peak]))
    assert str(title) == "No share can be told"
    (message,) = impossible_results(title.impossible, "machine A")
    assert "On machine A" in message and "products in float32 came to 1.4 times the measured peak" in message
