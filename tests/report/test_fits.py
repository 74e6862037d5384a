"""Numbers fitted to many kernels at once are those that SciPy's `least_squares` finds one problem at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from report.quantities.fits import NUMBERS, TOLERATED, fits
from report.quantities.kernels import Kernels

PEAK, BANDWIDTH = 1e12, 1e11
START = {"peak": 1.0, "bandwidth": 1.0, "launch": 1e-6, "cache": 3.0}
FREE = {2: NUMBERS[:2], 3: NUMBERS[:3], 4: NUMBERS}


def kernels(seed: int, n: int = 40, operators: int = 3, noise: float = 0.05) -> Kernels:
    """Kernels of a machine that reaches less than its ceilings, whose launches cost and whose cache is fast."""
    random = np.random.default_rng(seed)
    moved = 10 ** random.uniform(4, 9, (n, operators))
    flop = moved * 10 ** random.uniform(-1, 3, (n, operators))
    truth = {"peak": 0.8, "bandwidth": 0.7, "launch": 2e-5, "cache": 4.0}
    names = np.array([f"gemm|{number}" for number in range(n)])
    made = Kernels(
        what=names, work=names, held=np.zeros(n, dtype=bool), flop=flop, bytes=moved,
        launches=random.integers(1, 20, n).astype(float), cached=random.choice([0.0, 0.3, 1.0], n),
        peak=np.full(n, PEAK), seconds=np.ones(n), bandwidth=BANDWIDTH,
    )  # fmt: skip
    made.seconds = made.predicted(truth) * np.exp(random.normal(0, noise, n))
    return made


def misses(of: Kernels, numbers: dict[str, float]) -> np.ndarray:
    return np.log(of.predicted(numbers) / of.seconds)


def cost(of: Kernels, numbers: dict[str, float]) -> float:
    return float(np.log1p((misses(of, numbers) / TOLERATED) ** 2).sum())


def by_scipy(of: Kernels, free: tuple[str, ...]) -> dict[str, float]:
    ends = {"peak": (-7, 1), "bandwidth": (-7, 1), "launch": (-23, 0), "cache": (0, 5)}

    def named(x: np.ndarray) -> dict[str, float]:
        return {"peak": 1.0, "bandwidth": 1.0, **dict(zip(free, np.exp(x).tolist(), strict=True))}

    done = least_squares(
        lambda x: misses(of, named(x)), [np.log(START[name]) for name in free], jac="3-point", loss="cauchy",
        f_scale=TOLERATED, bounds=tuple(np.array([ends[name][side] for name in free]) for side in (0, 1)),
        xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=2000,
    )  # fmt: skip
    return named(done.x)


@pytest.mark.parametrize("numbers", [2, 3, 4])
def test_the_numbers_are_those_that_scipy_finds_one_by_one(numbers: int) -> None:
    several = [kernels(seed, n=20 + seed, operators=1 + seed % 4) for seed in range(60)]
    free = FREE[numbers]
    found = fits(several, free, [START])
    peer = [by_scipy(one, free) for one in several]
    # Where an operator is as near to one ceiling as to the other the loss has a kink, at which either may stop.
    near = [all(mine[name] == pytest.approx(other[name], rel=1e-5) for name in free)
            for mine, other in zip(found, peer, strict=True)]  # fmt: skip
    assert np.mean(near) > 0.85
    worse = [cost(of, mine) > 1.01 * cost(of, other) for of, mine, other in zip(several, found, peer, strict=True)]
    assert np.mean(worse) < 0.05
    assert all(set(mine) == {"peak", "bandwidth", *free} for mine in found)


def test_a_machine_without_noise_shows_its_numbers() -> None:
    (found,) = fits([kernels(1, n=80, noise=0.0)], NUMBERS, [START])
    assert found == pytest.approx({"peak": 0.8, "bandwidth": 0.7, "launch": 2e-5, "cache": 4.0}, rel=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True), st.sampled_from([2, 3, 4]))
def test_what_is_fitted_beside_it_changes_nothing(seeds: list[int], numbers: int) -> None:
    several = [kernels(seed, n=10 + seed % 20) for seed in seeds]
    together = fits(several, FREE[numbers], [START])
    for one, found in zip(several, together, strict=True):
        (alone,) = fits([one], FREE[numbers], [START])
        assert found == pytest.approx(alone, rel=1e-9)


def test_numbers_stay_within_their_bounds() -> None:
    quick = kernels(3)
    quick.seconds = quick.seconds / 1e6
    (found,) = fits([quick], NUMBERS, [START])
    assert found["peak"] <= np.e * (1 + 1e-12) and found["bandwidth"] <= np.e * (1 + 1e-12)
    assert found["launch"] >= np.exp(-23) * (1 - 1e-12) and 1 <= found["cache"] <= np.exp(5) * (1 + 1e-12)


def test_of_several_starts_the_best_in_the_median_is_taken() -> None:
    several = [kernels(seed) for seed in range(4)]
    far = {**START, "launch": 0.5, "cache": 100.0}
    each = [fits(several, NUMBERS, [start]) for start in (START, far)]
    for of, *single, both in zip(several, *each, fits(several, NUMBERS, [START, far]), strict=True):
        least = min(float(np.median(np.abs(misses(of, one)))) for one in single)
        assert float(np.median(np.abs(misses(of, both)))) == pytest.approx(least, rel=1e-9)


def test_nothing_to_fit_is_no_fault() -> None:
    assert fits([], NUMBERS, [START]) == []
