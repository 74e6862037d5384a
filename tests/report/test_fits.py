"""Numbers are fitted to kernels as the machine has them, within bounds, from the best of several starts."""

from __future__ import annotations

import numpy as np
import pytest

from report.quantities.fits import NUMBERS, fit
from report.quantities.kernels import Kernels

START = {"peak": 1.0, "bandwidth": 1.0, "launch": 1e-6, "cache": 3.0}
TRUTH = {"peak": 0.8, "bandwidth": 0.7, "launch": 2e-5, "cache": 4.0}


def kernels(seed: int, n: int = 80, operators: int = 3, noise: float = 0.05) -> Kernels:
    """Kernels of a machine that reaches less than its ceilings, whose launches cost and whose cache is fast."""
    random = np.random.default_rng(seed)
    moved = 10 ** random.uniform(4, 9, (n, operators))
    names = np.array([f"gemm|{number}" for number in range(n)])
    made = Kernels(
        what=names, work=names, held=np.zeros(n, dtype=bool), flop=moved * 10 ** random.uniform(-1, 3, moved.shape),
        bytes=moved, launches=random.integers(1, 20, n).astype(float), cached=random.choice([0.0, 0.3, 1.0], n),
        peak=np.full(n, 1e12), seconds=np.ones(n), bandwidth=1e11,
    )  # fmt: skip
    made.seconds = made.predicted(TRUTH) * np.exp(random.normal(0, noise, n))
    return made


def missed(of: Kernels, numbers: dict[str, float]) -> float:
    return float(np.median(np.abs(np.log(of.predicted(numbers) / of.seconds))))


def test_a_machine_shows_its_numbers_and_noise_blurs_them() -> None:
    assert fit(kernels(1, noise=0.0), NUMBERS, [START]) == pytest.approx(TRUTH, rel=1e-6)
    for seed in range(4):
        assert fit(kernels(seed), NUMBERS, [START]) == pytest.approx(TRUTH, rel=0.25)


def test_what_is_not_free_is_as_measured() -> None:
    for n in (2, 3):
        assert set(fit(kernels(1), NUMBERS[:n], [START])) == set(NUMBERS[:n])
    ideal = kernels(2, noise=0.0)
    ideal.seconds = ideal.predicted({"peak": 0.5, "bandwidth": 0.25})
    assert fit(ideal, NUMBERS[:2], [START]) == pytest.approx({"peak": 0.5, "bandwidth": 0.25}, rel=1e-6)


def test_a_kernel_that_is_far_off_hardly_pulls() -> None:
    odd = kernels(1, noise=0.0)
    odd.seconds[:4] *= 1000
    assert fit(odd, NUMBERS, [START]) == pytest.approx(TRUTH, rel=0.01)


def test_numbers_stay_within_their_bounds() -> None:
    quick = kernels(3)
    quick.seconds = quick.seconds / 1e6
    found = fit(quick, NUMBERS, [START])
    assert max(found["peak"], found["bandwidth"]) <= np.e * (1 + 1e-12)
    assert found["launch"] >= np.exp(-23) * (1 - 1e-12) and 1 <= found["cache"] <= np.exp(5) * (1 + 1e-12)


def test_of_several_starts_the_best_in_the_median_is_taken() -> None:
    far = {**START, "launch": 0.5, "cache": 100.0}
    for seed in range(3):
        of = kernels(seed, n=40)
        least = min(missed(of, fit(of, NUMBERS, [start])) for start in (START, far))
        assert missed(of, fit(of, NUMBERS, [START, far])) == pytest.approx(least, rel=1e-9)
