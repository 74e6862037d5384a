"""Fits recover a machine's peak, bandwidth, launch cost and cache speed from its kernels' times."""

from __future__ import annotations

import numpy as np
import pytest

from report.quantities.kernels import Kernels
from report.quantities.prediction import NUMBERS, fit_numbers

START = {"peak": 1.0, "bandwidth": 1.0, "launch": 1e-6, "cache": 3.0}
TRUTH = {"peak": 0.8, "bandwidth": 0.7, "launch": 2e-5, "cache": 4.0}


def make_kernels(seed: int, n: int = 80, operators: int = 3, noise: float = 0.05) -> Kernels:
    """Make random kernels whose times follow the numbers in TRUTH, with noise."""
    random = np.random.default_rng(seed)
    moved = 10 ** random.uniform(4, 9, (n, operators))
    names = np.array([f"gemm|{number}" for number in range(n)])
    kernels = Kernels(
        keys=names, work=names, judged=np.zeros(n, dtype=bool), flop=moved * 10 ** random.uniform(-1, 3, moved.shape),
        bytes=moved, launches=random.integers(1, 20, n).astype(float), cached=random.choice([0.0, 0.3, 1.0], n),
        peak=np.full(n, 1e12), seconds=np.ones(n), bandwidth=1e11,
    )  # fmt: skip
    kernels.seconds = kernels.predict_seconds(TRUTH) * np.exp(random.normal(0, noise, n))
    return kernels


def test_fit_recovers_the_numbers_within_noise() -> None:
    assert fit_numbers([make_kernels(1, noise=0.0)], NUMBERS, [START])[0] == pytest.approx(TRUTH, rel=1e-6)
    for seed in range(4):
        assert fit_numbers([make_kernels(seed)], NUMBERS, [START])[0] == pytest.approx(TRUTH, rel=0.25)


def test_outlier_kernels_hardly_affect_the_fit() -> None:
    odd = make_kernels(1, noise=0.0)
    odd.seconds[:4] *= 1000
    assert fit_numbers([odd], NUMBERS, [START])[0] == pytest.approx(TRUTH, rel=0.01)


def test_rounds_are_fitted_separately_from_the_medians_fit() -> None:
    rounds = [make_kernels(1, noise=0.0) for _ in range(3)]
    rounds[2].seconds = rounds[2].seconds * 1.3
    first, second, slow = fit_numbers(rounds, NUMBERS, [{**START, "launch": 3e-5}, START])
    assert first == second == pytest.approx(TRUTH, rel=1e-6)
    # In the third round all times are 1.3 times as long, so peak and bandwidth are lower and launches take longer.
    assert slow == pytest.approx(
        {"peak": 0.8 / 1.3, "bandwidth": 0.7 / 1.3, "launch": 2e-5 * 1.3, "cache": 4.0}, rel=1e-6
    )
