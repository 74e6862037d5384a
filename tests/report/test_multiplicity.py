"""Errors that are expected by chance among all decided cases follow from the cases' own intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student

from report.estimates import Estimates
from report.judging import rules
from report.judging.multiplicity import multiplicity
from report.judging.part_evaluation import PartResult
from report.outcomes import Verdict
from report.verdicts import Missing

from .made_estimates import cases, log_cases, part


def judge_part(
    estimates: Estimates, waits: bool = False, rule: str = "at_least", threshold: object = 1.0
) -> PartResult:
    claim_part = part(rule, threshold)
    result = rules.apply_rule(claim_part, estimates)
    missing = Missing(Verdict.AWAITING_HARDWARE) if waits else None
    return PartResult(claim_part, result.outcome, result=result, waits=missing)


def test_expected_errors_are_the_decided_cases_tail_chances() -> None:
    gaps = np.array([1.0, 0.05, -1.0])
    result = judge_part(log_cases(np.exp(gaps), se=0.1, df=5.0))
    chances = student.cdf(-abs(gaps[[0, 2]]) / 0.1, 5)
    counted = multiplicity([result])
    assert (counted["cases"], counted["decided"]) == (3, 2)
    assert counted["expected"] == pytest.approx(chances.sum())


def test_case_within_a_range_may_lie_beyond_either_end() -> None:
    result = judge_part(log_cases([10.0], se=0.3, df=50.0), rule="within", threshold=[3.0, 30.0])
    chances = student.cdf([math.log(3 / 10) / 0.3, math.log(10 / 30) / 0.3], 50)
    assert multiplicity([result])["expected"] == pytest.approx(chances.sum())


def test_published_and_exact_figures_have_no_chance() -> None:
    exact = judge_part(cases((2.0, 2.0)))
    published = judge_part(log_cases([2.0]), waits=True)
    assert multiplicity([exact, published]) == {"cases": 0, "decided": 0, "expected": 0.0, "standing": 0}


def test_many_cases_at_the_threshold_do_not_stand() -> None:
    draw = np.random.default_rng(5)
    near = log_cases(np.exp(draw.normal(0, 0.1, 400)), se=0.1, df=100.0)
    far = log_cases(np.full(20, 3.0), se=0.1, df=100.0)
    assert multiplicity([judge_part(near)])["standing"] <= 2
    assert multiplicity([judge_part(near), judge_part(far)])["standing"] >= 20
