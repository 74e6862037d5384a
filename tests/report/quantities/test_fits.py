"""Steps are found where a curve was built to have them, and a machine's numbers where its kernels follow them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.quantities.fits import NUMBERS, fit
from report.quantities.kernels import Kernels
from report.quantities.plateau_detection import steps

OCTAVES = (12, 28)  # 4 KiB to 256 MiB


@st.composite
def staircases(draw: Any) -> tuple[Any, Any, list[float]]:
    """A curve of 1 to 4 rises by 1.8 to 8, sharp or over an octave, between plateaus of two octaves or more."""
    density, spread = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([0.0, 1.0]))
    count = draw(st.integers(1, 4))
    gap = 2.0 + spread
    room = OCTAVES[1] - OCTAVES[0] - gap * (count + 1)
    shares = np.array([draw(st.floats(0.0, 1.0)) for _ in range(count + 1)])
    slack = room * shares[:count] / max(shares.sum(), 1e-9)
    middles = OCTAVES[0] + np.cumsum(gap + slack)
    heights = [draw(st.floats(np.log(1.8), np.log(8))) for _ in range(count)]
    x = np.linspace(*OCTAVES, density * (OCTAVES[1] - OCTAVES[0]) + 1)
    y = np.zeros(len(x))
    for middle, height in zip(middles, heights, strict=True):
        y += height * (np.clip((x - middle) / spread + 0.5, 0, 1) if spread else x > middle)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    noise = draw(st.sampled_from([0.0, 0.01, 0.02]))
    return 2.0**x, np.exp(y + random.normal(0, noise, len(x))) * 1e-9, [float(m) for m in middles]


@given(staircases())
def test_every_rise_is_found_within_the_sweeps_resolution(curve: tuple[Any, Any, list[float]]) -> None:
    x, y, middles = curve
    found = steps(x, y)
    assert len(found) == len(middles)
    apart = np.log2(x[1] / x[0])
    for step, middle in zip(found, middles, strict=True):
        assert np.log2(step.high / step.low) == pytest.approx(apart)
        # Noise may move a point at the very middle of a slow rise to its other side.
        assert np.log2(step.low) - apart <= middle <= np.log2(step.high) + apart
    assert [step.level for step in found] == sorted(step.level for step in found)


@given(st.floats(1e-10, 1e-6), st.integers(2, 60), st.floats(0.0, 0.02), st.floats(0.0, 0.02), st.integers(0, 99))
def test_a_flat_curve_has_no_steps_even_if_it_drifts(
    level: float, points: int, noise: float, drift: float, seed: int
) -> None:
    """A drift of 2% an octave: a third more at the end than at the beginning."""
    x = 2.0 ** np.linspace(*OCTAVES, points)
    random = np.random.default_rng(seed)
    y = level * np.exp(random.normal(0, noise, points) + drift * np.linspace(0, OCTAVES[1] - OCTAVES[0], points))
    assert steps(x, y) == []


@given(st.integers(0, 32), st.floats(1.5, 10.0))
def test_one_disturbed_point_neither_makes_nor_moves_a_step(place: int, factor: float) -> None:
    x = 2.0 ** np.linspace(*OCTAVES, 33)
    y = np.where(x > 2.0**20, 4.0, 1.0)
    right = steps(x, y)
    y[place] *= factor
    found = steps(x, y)
    assert len(found) == len(right) == 1
    # Next to the step a disturbed point cannot be told from a part of the rise.
    assert abs(np.log2(found[0].low / right[0].low)) <= 0.5


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


def test_a_machine_shows_its_numbers_and_noise_blurs_them() -> None:
    assert fit([kernels(1, noise=0.0)], NUMBERS, [START])[0] == pytest.approx(TRUTH, rel=1e-6)
    for seed in range(4):
        assert fit([kernels(seed)], NUMBERS, [START])[0] == pytest.approx(TRUTH, rel=0.25)


def test_a_kernel_that_is_far_off_hardly_pulls() -> None:
    odd = kernels(1, noise=0.0)
    odd.seconds[:4] *= 1000
    assert fit([odd], NUMBERS, [START])[0] == pytest.approx(TRUTH, rel=0.01)


def test_rounds_of_one_machine_are_fitted_each_by_itself_from_where_their_median_ended() -> None:
    rounds = [kernels(1, noise=0.0) for _ in range(3)]
    rounds[2].seconds = rounds[2].seconds * 1.3
    first, second, slow = fit(rounds, NUMBERS, [{**START, "launch": 3e-5}, START])
    assert first == second == pytest.approx(TRUTH, rel=1e-6)
    # All of it takes longer: each ceiling is reached by less, and a launch costs more.
    assert slow == pytest.approx(
        {"peak": 0.8 / 1.3, "bandwidth": 0.7 / 1.3, "launch": 2e-5 * 1.3, "cache": 4.0}, rel=1e-6
    )
