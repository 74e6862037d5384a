"""Quantities of convergence: the rules choose their runs, seeds are the unit, and intervals hold the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from report import statistics
from report.data.dataset import Dataset
from report.estimates import Estimates
from report.formatting import number
from report.judging.claims import Part
from report.judging.counterfactuals import flips
from report.judging.filters import select
from report.judging.robustness import robustness
from report.judging.rules import decide
from report.quantities import convergence as module
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .convergence_runs import runs
from .evidence import data

BATCHES = np.array([8.0, 32.0, 128.0, 512.0])


def of(name: str, found: Dataset, **scope: Any) -> Estimates:
    return select(quantities()[f"convergence.{name}"].compute(found), scope)


def by_batch(cells: Estimates) -> dict[int, float]:
    return {int(row["batch"]): float(row["estimate"]) for _, row in cells.frame.iterrows()}


def swept(node: SyntheticNode, seeds: int = 6, **more: Any) -> SyntheticNode:
    """The best rate is twice the linear one; with it accuracy is 0.96 - 0.01 log2(batch / 8), with others less."""
    random = np.random.default_rng(3)
    for place, batch in enumerate((8, 32, 128)):
        best = batch / 16
        for rate in sorted({1.0, batch / 32, best, 4 * best}):
            centre = 0.96 - 0.02 * place - 0.02 * abs(np.log2(rate / best))
            # On the test images the seeds differ, on the validation images the rates alone do.
            runs(node, batch, rate, centre + 0.001 * random.standard_normal(seeds), centre, **more)
    return node


def test_each_rule_chooses_its_rate_at_every_batch(synthetic: Factory) -> None:
    chosen = module.chosen(data(synthetic, swept(synthetic())))
    found = {
        rule: dict(zip(part["batch"], part["rate"], strict=True)) for rule, part in chosen.groupby("learning_rate")
    }
    assert found == {
        "fixed": {8: 1.0, 32: 1.0, 128: 1.0}, "linear": {8: 0.25, 32: 1.0, 128: 4.0},
        "tuned": {8: 0.5, 32: 2.0, 128: 8.0},
    }  # fmt: skip


def test_what_is_chosen_by_validation_is_judged_by_the_test(synthetic: Factory) -> None:
    node = synthetic()
    for rate, test, validation in ((0.5, 0.97, 0.80), (1.0, 0.90, 0.95), (2.0, 0.91, 0.90)):
        runs(node, 32, rate, [test - 0.001, test, test + 0.001], validation)
    cells = of("accuracy", data(synthetic, node), learning_rate="tuned")
    assert by_batch(cells) == pytest.approx({32: 0.90})
    assert cells.frame["detail"].iloc[0] == "3 seeds, 1 times the base rate"


def test_a_rate_at_the_edge_is_told_and_two_rates_are_not_tuned(synthetic: Factory) -> None:
    node = synthetic()
    for rate, accuracy in ((1.0, 0.7), (2.0, 0.8), (4.0, 0.9)):
        runs(node, 64, rate, [accuracy, accuracy + 0.01, accuracy + 0.02])
    for rate in (1.0, 4.0):
        runs(node, 128, rate, [0.5, 0.6, 0.7])
    cells = of("accuracy", data(synthetic, node), learning_rate="tuned")
    assert list(cells.frame["detail"]) == ["3 seeds, 4 times the base rate, the edge of what was tried"]


def test_accuracy_is_the_mean_over_seeds_with_students_t(synthetic: Factory) -> None:
    values = [0.90, 0.91, 0.95, 0.92]
    node = runs(synthetic(), 32, 1.0, values)
    row = of("accuracy", data(synthetic, node), learning_rate="fixed").frame.iloc[0]
    half = student.ppf((1 + statistics.LEVEL) / 2, 3) * np.std(values, ddof=1) / 2
    assert (row["estimate"], row["low"], row["high"]) == pytest.approx((0.92, 0.92 - half, 0.92 + half))
    assert (row["n_samples"], row["n_rounds"]) == (4, 1)


def test_rounds_repeat_a_seed_and_do_not_add_to_it(synthetic: Factory) -> None:
    values = [0.90, 0.91, 0.95, 0.92]
    once = of("accuracy", data(synthetic, runs(synthetic("one"), 32, 1.0, values)), learning_rate="fixed").frame
    twice = of("accuracy", data(synthetic, runs(synthetic("two"), 32, 1.0, values, rounds=3)), node="two").frame
    assert twice[["estimate", "low", "high"]].iloc[0].tolist() == pytest.approx(
        once[["estimate", "low", "high"]].iloc[0].tolist()
    )


def test_the_slope_is_that_of_a_line_over_doublings(synthetic: Factory) -> None:
    found = data(synthetic, swept(synthetic()))
    cells = of("accuracy_per_doubling", found)
    slopes = {row["learning_rate"]: row for _, row in cells.frame.iterrows()}
    assert set(slopes) == {"fixed", "linear", "tuned"}
    assert slopes["tuned"]["estimate"] == pytest.approx(-0.01, abs=5e-4)
    assert slopes["tuned"]["low"] < -0.01 < slopes["tuned"]["high"] < -0.008
    assert slopes["tuned"]["detail"] == "batches of 8 to 128, 6 seeds"


def test_two_batches_or_two_seeds_make_no_trend(synthetic: Factory) -> None:
    node = synthetic()
    for batch in (16, 64):
        runs(node, batch, 1.0, [0.9, 0.91, 0.92, 0.93])
    assert len(of("accuracy_per_doubling", data(synthetic, node))) == 0
    two = synthetic("two")
    for batch in (16, 64, 256):
        runs(two, batch, 1.0, [0.9, 0.91])
    assert len(of("accuracy_per_doubling", data(synthetic, two), node="two")) == 0
    assert len(of("spread", data(synthetic, two), node="two")) == 0


def test_equal_updates_compare_batches_of_different_epochs(synthetic: Factory) -> None:
    node = synthetic()
    # At equal epochs accuracy falls with the batch, at equal updates it rises by 0.01 with every doubling.
    for place, batch in enumerate((16, 64, 256)):
        fell, rose = 0.95 - 0.02 * place, 0.90 + 0.02 * place
        runs(node, batch, 1.0, [fell - 0.001, fell, fell + 0.001], epochs=4, updates=[256 // 4**place])
        runs(node, batch, 1.0, [rose - 0.001, rose, rose + 0.001], epochs=15 * 4**place, updates=[960])
    found = data(synthetic, node)
    rose_with = of("accuracy_per_doubling_of_equal_updates", found, learning_rate="fixed").frame
    assert rose_with[["updates", "estimate"]].to_numpy().tolist() == [[960, pytest.approx(0.01)]]
    fell_with = of("accuracy_per_doubling", found, learning_rate="fixed").frame
    assert fell_with[["epochs", "estimate"]].to_numpy().tolist() == [[4, pytest.approx(-0.01)]]
    assert len(of("spread_per_doubling_of_equal_updates", found)) == 1


def test_nodes_sets_and_models_are_kept_apart(synthetic: Factory) -> None:
    node = swept(synthetic())
    swept(node, data="mnist")
    other = swept(synthetic("other", gpus=1), device="cuda:0")
    cells = of("accuracy_per_doubling", data(synthetic, node, other), learning_rate="tuned").frame
    assert sorted(zip(cells["node"], cells["device"], cells["data"], strict=True)) == [
        ("node-a", "cpu", "digits"), ("node-a", "cpu", "mnist"), ("other", "cuda:0", "digits"),
    ]  # fmt: skip


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return random.standard_normal(shape)


def heavy(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return random.standard_t(4, shape) / np.sqrt(2)


def coverage(spreads: Any, draw: Callable[..., Any], of: Callable[[Any], tuple[float, float]], truth: float) -> float:
    random = np.random.default_rng(5)
    held = [
        low <= truth <= high
        for low, high in (of(0.9 + np.asarray(spreads)[:, None] * draw(random, (len(spreads), 10))) for _ in range(600))
    ]
    return float(np.mean(held))


@pytest.mark.parametrize(
    ("spreads", "draw", "least"),
    [
        pytest.param([0.005] * 4, normal, 0.975, id="alike"),
        pytest.param([0.016, 0.008, 0.004, 0.002], normal, 0.97, id="falling"),
        pytest.param([0.002, 0.002, 0.002, 0.03], normal, 0.97, id="one apart"),
        pytest.param([0.016, 0.008, 0.004, 0.002], heavy, 0.94, id="falling, heavy tails"),
    ],
)
def test_the_interval_of_a_trend_of_spreads_holds_the_truth_as_often_as_it_says(
    spreads: list[float], draw: Callable[..., Any], least: float
) -> None:
    one = np.abs(draw(np.random.default_rng(1), (400_000,))).mean() * np.sqrt(np.pi / 2)
    truth = float(module.weights(BATCHES) @ (one * np.array(spreads)))

    def interval(values: Any) -> tuple[float, float]:
        found = module.slope_of_spreads(BATCHES, list(values))
        return found["low"], found["high"]

    assert least <= coverage(spreads, draw, interval, truth) <= 0.998


def test_the_spread_of_normal_values_is_their_standard_deviation() -> None:
    random = np.random.default_rng(2)
    many = [0.9 + 0.01 * random.standard_normal(10) for _ in range(4000)]
    found = module.spreads(many)
    assert found.estimate.mean() == pytest.approx(0.01, rel=0.01)
    assert 0.97 < np.mean((found.low <= 0.01) & (found.high >= 0.01)) < 0.995


def test_seeds_that_all_agree_have_no_interval() -> None:
    found = module.spreads([np.full(10, 0.9), np.array([0.9, 0.91, 0.92])])
    assert (found.estimate[0], np.isnan(found.low[0]), np.isnan(found.high[0])) == (0, True, True)
    assert found.low[1] < found.estimate[1] < found.high[1]
    trend = module.slope_of_spreads(np.array([8.0, 64.0]), [np.full(10, 0.9), np.linspace(0.8, 0.9, 10)])
    assert trend["estimate"] > 0
    assert np.isnan(trend["low"])


def test_a_spread_that_falls_is_found_through_the_data(synthetic: Factory) -> None:
    node, random = synthetic(), np.random.default_rng(4)
    for batch, spread in ((8, 0.02), (32, 0.01), (128, 0.005), (512, 0.0025)):
        runs(node, batch, 1.0, 0.9 + spread * random.standard_normal(12))
    found = data(synthetic, node)
    row = of("spread_per_doubling", found, learning_rate="fixed").frame.iloc[0]
    assert row["low"] < row["estimate"] < row["high"] < 0
    spreads = by_batch(of("spread", found, learning_rate="fixed"))
    assert row["estimate"] == pytest.approx(float(module.weights(BATCHES) @ np.array([spreads[b] for b in spreads])))


def test_time_to_the_target_counts_where_every_seed_gets_there(synthetic: Factory) -> None:
    node = synthetic()
    runs(node, 32, 1.0, [0.95] * 4, time_to_target=[1.0, 1.1, 0.9, 1.0])
    runs(node, 64, 1.0, [0.95] * 4, reached=0.75, time_to_target=[1.0, 1.1, 0.9])
    cells = of("time_to_target_s", data(synthetic, node), learning_rate="fixed")
    assert by_batch(cells) == pytest.approx({32: 1.0}, rel=0.01)
    row = cells.frame.iloc[0]
    assert 0.75 < row["low"] < 1 < row["high"] < 1.3


def test_the_noise_scale_is_a_ratio_of_means(synthetic: Factory) -> None:
    node = runs(
        synthetic(), 32, 1.0, [0.95] * 4,
        gradient_variance=[20.0, 30.0, 10.0, 20.0], gradient_square=[0.2, 0.2, 0.1, 0.3],
    )  # fmt: skip
    row = of("noise_scale", data(synthetic, node), learning_rate="fixed").frame.iloc[0]
    assert row["estimate"] == pytest.approx(100)
    assert row["low"] < 100 < row["high"]


def test_the_interval_of_a_ratio_of_means_holds_the_truth() -> None:
    random, held = np.random.default_rng(6), 0
    for _ in range(1000):
        below = 0.2 * np.exp(0.3 * random.standard_normal(10))
        above = 20 * np.exp(0.3 * random.standard_normal(10)) * (below / 0.2) ** 0.5
        found = module.log_ratio_of_means(above, below)
        half = float(statistics.half_width(found["se"], found["df"]))
        truth = 20 * np.exp(0.045 + 0.3**2 / 8) / (0.2 * np.exp(0.045))
        held += abs(np.log(found["estimate"] / truth)) <= half
    assert 0.97 < held / 1000 < 0.998


def test_noise_that_cannot_be_told_from_none_has_no_interval() -> None:
    found = module.log_ratio_of_means(np.array([-1.0, 1.5, 0.1]), np.array([1.0, 1.0, 1.0]))
    assert found["estimate"] == pytest.approx(0.2)
    assert np.isnan(found["se"])


@pytest.mark.parametrize("name", sorted(name for name in quantities() if name.startswith("convergence.")))
def test_without_runs_there_is_nothing(synthetic: Factory, name: str) -> None:
    assert len(quantities()[name].compute(data(synthetic, synthetic().gemm(10)))) == 0


def test_the_distance_from_a_threshold_of_zero_is_told_in_widths_of_the_interval(synthetic: Factory) -> None:
    node, random = synthetic(), np.random.default_rng(4)
    for batch, spread in ((8, 0.0025), (32, 0.005), (128, 0.01), (512, 0.02)):
        runs(node, batch, 1.0, 0.9 + spread * random.standard_normal(12))
    found = data(synthetic, node)
    cells = of("spread_per_doubling", found, learning_rate="fixed")
    part = Part("spread falls", "convergence.spread_per_doubling", "at_most", 0.0, "why")
    ruling = decide("at_most", cells, 0.0)
    row = cells.frame.iloc[0]
    widths = row["estimate"] / (row["high"] - row["low"])
    assert 0.5 < widths < 5
    said = flips(part, ruling, robustness(part, cells, ruling, "1", found, lambda outcome: outcome))
    assert any(text.startswith(f"The nearest result lies {number(widths, 2)} interval width") for text in said)
