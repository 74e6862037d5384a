"""The projection of rounds that would decide a case ends with the first number that does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.looks import LOOKS
from report import statistics, verdict_sentences
from report.judging.more_rounds import MOST_ROUNDS, projected_rounds
from report.outcomes import Threshold
from report.statistics import LOOK_LEVEL

from .made_estimates import log_cases


@given(st.floats(0.5, 2), st.floats(0.01, 0.5), st.integers(2, 8), st.floats(1, 20))
def test_projection_is_the_first_number_of_rounds_that_decides(
    estimate: float, se: float, rounds: int, df: float
) -> None:
    needed = projected_rounds(log_cases([estimate], se=[se], df=df, n_rounds=rounds), Threshold(1.0))[0]

    def decides(number: int) -> bool:
        error = se * math.sqrt(rounds / number)
        return bool(statistics.half_width(error, df + number - rounds, LOOK_LEVEL) < abs(math.log(estimate)))

    numbers = range(max(rounds, LOOKS[0]), MOST_ROUNDS + 1)
    assert needed == next((number for number in numbers if decides(number)), math.inf)


def test_case_without_an_interval_has_no_projection() -> None:
    estimates = log_cases([3.0, 3.0], se=[math.nan, 0.1], n_rounds=[1, 1])
    assert np.isnan(projected_rounds(estimates, Threshold(1.0))).all()


def test_case_at_the_threshold_is_never_decided() -> None:
    assert projected_rounds(log_cases([10.0, 60.0], n_rounds=3), Threshold(10.0, 60.0)).tolist() == [math.inf] * 2


@pytest.mark.parametrize(
    ("in_one_round", "text"),
    [
        (0, "Of 4 open results, measuring again would decide 1 after 5 measurements and 3 after 8 measurements, if "
            "numbers and spreads stay as they are."),
        (4, "4 results measured only once, which gives no interval."),
    ],
)  # fmt: skip
def test_text_tells_how_many_cases_rounds_would_decide(in_one_round: int, text: str) -> None:
    record = {"cases": 4, "in_one_round": in_one_round, "decided_by": {"5": 1, "8": 3, "60": 3}, "near": []}
    assert verdict_sentences.more_rounds_text({"more_rounds": record}) == text
    assert verdict_sentences.more_rounds_text({"more_rounds": None}) == ""
