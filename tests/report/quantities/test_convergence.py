"""Quantities on convergence and equivalence: how learning rates are chosen, and intervals over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from report import statistics
from report.quantities import convergence as module
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import evidence
from tests.report.test_statistics import Effects, heavy_tailed_effects, normal_effects

from .builders import AGREE, CURVES, DIFFER, add_accuracies, add_curve
from .made_cases import DatasetOf, select_row, select_rows

BATCHES = np.array([8.0, 32.0, 128.0, 512.0])


def add_sweep(node: SyntheticNode, seeds: int = 6, **more: Any) -> SyntheticNode:
    """Add runs at several learning rates for each batch size.

    The linear rule gives the rate batch / 32, and the best rate is twice as high. The mean accuracy at the best rate is
    0.96 - 0.01 log2(batch / 8).
    """
    random = np.random.default_rng(3)
    for place, batch in enumerate((8, 32, 128)):
        best = batch / 16
        for rate in sorted({1.0, batch / 32, best, 4 * best}):
            centre = 0.96 - 0.02 * place - 0.02 * abs(np.log2(rate / best))
            # The test accuracy differs between seeds, but the validation accuracy is the same for all seeds.
            add_accuracies(node, batch, rate, centre + 0.001 * random.standard_normal(seeds), centre, **more)
    return node


def sweep_nodes(synthetic: Factory) -> list[SyntheticNode]:
    return [add_sweep(add_sweep(synthetic()), data="mnist"), add_sweep(synthetic("other", gpus=1), device="cuda:0")]


def test_each_rule_chooses_a_rate_per_batch(dataset_of: DatasetOf) -> None:
    chosen = module.chosen_points(dataset_of(sweep_nodes))
    rates = {rule: dict(zip(part["batch"], part["rate"], strict=True)) for rule, part in
             chosen[chosen["data"] == "mnist"].groupby("learning_rate")}  # fmt: skip
    assert rates == {
        "fixed": {8: 1.0, 32: 1.0, 128: 1.0}, "linear": {8: 0.25, 32: 1.0, 128: 4.0},
        "tuned": {8: 0.5, 32: 2.0, 128: 8.0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "tried", "expected"),
    [
        # The rate with the best validation accuracy is chosen, and its test accuracy is the result.
        (32, {0.5: (0.97, 0.80), 1.0: (0.90, 0.95), 2.0: (0.91, 0.90)}, (0.90, "1 times the base rate")),
        (64, {1.0: (0.7, 0.7), 2.0: (0.8, 0.8), 4.0: (0.9, 0.9)},
         (0.90, "4 times the base rate, the edge of what was tried")),
        (128, {1.0: (0.5, 0.5), 4.0: (0.6, 0.6)}, None),
    ],
)  # fmt: skip
def test_tuning_needs_at_least_three_rates(
    synthetic: Factory, batch: int, tried: dict[float, tuple[float, float]], expected: tuple[float, str] | None
) -> None:
    node = synthetic()
    for rate, (test, validation) in tried.items():
        add_accuracies(node, batch, rate, [test - 0.001, test, test + 0.001], validation)
    rows = select_rows("convergence.accuracy", evidence(synthetic, node), learning_rate="tuned").rows(
        "estimate", "detail"
    )
    assert rows == ([(pytest.approx(expected[0]), f"3 seeds, {expected[1]}")] if expected else [])


def test_accuracy_interval_counts_seeds_not_rounds(synthetic: Factory) -> None:
    values = [0.90, 0.91, 0.95, 0.92]
    nodes = [add_accuracies(synthetic(f"rounds-{rounds}"), 32, 1.0, values, rounds=rounds) for rounds in (1, 3)]
    half = student.ppf((1 + statistics.LEVEL) / 2, 3) * np.std(values, ddof=1) / 2
    means = select_rows("convergence.accuracy", evidence(synthetic, *nodes), learning_rate="fixed")
    expected = (pytest.approx(0.92), pytest.approx(0.92 - half), pytest.approx(0.92 + half), 4, 1)
    assert means.rows("estimate", "low", "high", "n_samples", "n_rounds") == [expected, expected]


@pytest.mark.parametrize(("batches", "seeds"), [((16, 64), 4), ((16, 64, 256), 2)])
def test_two_batches_or_two_seeds_make_no_trend(synthetic: Factory, batches: tuple[int, ...], seeds: int) -> None:
    node = synthetic()
    for batch in batches:
        add_accuracies(node, batch, 1.0, [0.9 + 0.01 * seed for seed in range(seeds)])
    data = evidence(synthetic, node)
    assert not any(len(select_rows(f"convergence.{name}_per_doubling", data)) for name in ("accuracy", "spread"))
    assert (len(select_rows("convergence.spread", data)) > 0) == (seeds > 2)


def test_equal_updates_compare_batches_with_different_epochs(synthetic: Factory) -> None:
    node = synthetic()
    # Each time the batch doubles, the accuracy falls by 0.01 at equal epochs, and rises by 0.01 at equal updates.
    for place, batch in enumerate((16, 64, 256)):
        fell, rose = 0.95 - 0.02 * place, 0.90 + 0.02 * place
        add_accuracies(node, batch, 1.0, [fell - 0.001, fell, fell + 0.001], epochs=4, updates=[256 // 4**place])
        add_accuracies(node, batch, 1.0, [rose - 0.001, rose, rose + 0.001], epochs=15 * 4**place, updates=[960])
    data = evidence(synthetic, node)
    at_equal = {unit: select_rows(f"convergence.accuracy_per_doubling{name}", data, learning_rate="fixed").rows(
                unit, "estimate") for unit, name in (("updates", "_of_equal_updates"), ("epochs", ""))}  # fmt: skip
    assert at_equal == {"updates": [(960, pytest.approx(0.01))], "epochs": [(4, pytest.approx(-0.01))]}
    assert len(select_rows("convergence.spread_per_doubling_of_equal_updates", data)) == 1


@pytest.mark.parametrize(
    ("spreads", "draw", "least"),
    [
        pytest.param([0.005] * 4, normal_effects, 0.975, id="alike"),
        pytest.param([0.016, 0.008, 0.004, 0.002], normal_effects, 0.97, id="falling"),
        pytest.param([0.002, 0.002, 0.002, 0.03], normal_effects, 0.97, id="one apart"),
        pytest.param([0.016, 0.008, 0.004, 0.002], heavy_tailed_effects, 0.94, id="falling, heavy tails"),
    ],
)
def test_spread_trend_interval_has_its_stated_coverage(spreads: list[float], draw: Effects, least: float) -> None:
    unit_spread = np.abs(draw(np.random.default_rng(1), (400_000,))).mean() * np.sqrt(np.pi / 2)
    truth = float(module.slope_weights(BATCHES) @ (unit_spread * np.array(spreads)))
    random, covered = np.random.default_rng(5), []
    for _ in range(600):
        slope = module.slope_of_spreads(BATCHES, list(0.9 + np.array(spreads)[:, None] * draw(random, (4, 10))))
        covered.append(slope["low"] <= truth <= slope["high"])
    assert least <= np.mean(covered) <= 0.998


def test_spread_of_normal_values_is_their_standard_deviation() -> None:
    random = np.random.default_rng(2)
    spreads = module.spreads([0.9 + 0.01 * random.standard_normal(10) for _ in range(4000)])
    assert spreads.estimate.mean() == pytest.approx(0.01, rel=0.01)
    assert 0.97 < np.mean((spreads.low <= 0.01) & (spreads.high >= 0.01)) < 0.995


def test_identical_seeds_have_no_interval() -> None:
    spreads = module.spreads([np.full(10, 0.9), np.array([0.9, 0.91, 0.92])])
    assert (spreads.estimate[0], np.isnan(spreads.low[0]), np.isnan(spreads.high[0])) == (0, True, True)
    assert spreads.low[1] < spreads.estimate[1] < spreads.high[1]
    trend = module.slope_of_spreads(np.array([8.0, 64.0]), [np.full(10, 0.9), np.linspace(0.8, 0.9, 10)])
    assert trend["estimate"] > 0 and np.isnan(trend["low"])


def test_noisy_machine_does_not_widen_a_quiet_machines_interval(synthetic: Factory) -> None:
    quiet, noisy = synthetic("node-a"), synthetic("node-a.0a1b2c", seed=1)
    for batch in (32, 64, 128):
        add_accuracies(quiet, batch, 1.0, [0.95] * 4, time_to_target=[1.0, 1.01, 0.99, 1.0])
    alone = [select_rows("convergence.time_to_target_s", evidence(synthetic, quiet)).rows("low", "high")]
    for batch in (32, 64, 128):
        add_accuracies(noisy, batch, 1.0, [0.95] * 4, time_to_target=[1.0, 9.0, 3.0, batch / 8])
    both = select_rows("convergence.time_to_target_s", evidence(synthetic, quiet, noisy))
    assert alone == [both.filter(node="node-a").rows("low", "high")] and len(both) > len(alone[0]) > 0


# For each name: arguments for the curve of the fourth model, and then the expected estimate, the lower end of its
# interval, and the text in its column `detail`. If the lower end is None, any value below the estimate is right.
FOURTH: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "agrees": ({}, (1, 1, "4 models")),
    "differs": ({"agrees": DIFFER}, (0.75, 0.75, "4 models, differing: tabular")),
    "differs once": ({"agrees": (1.0, 0.0, 1.0)}, (11 / 12, None, "4 models, differing: tabular")),
    "is wrong": ({"status": "wrong"}, (0.75, 0.75, "4 models, differing: tabular")),
    **{status: ({"status": status}, (0.75, 0.75, "4 models, not running: tabular"))
       for status in ("unsupported", "failed", "oom")},
    "left out": ({"status": "skipped"}, (1, 1, "3 models")),
    "another format": ({"status": "unsupported", "dtype": "tf32"}, (1, 1, "3 models")),
    "twice": ({"agrees": DIFFER, "steps": 30, "model": "mlp"}, (2 / 3, 2 / 3, "3 models, differing: mlp")),
}  # fmt: skip


@pytest.mark.parametrize("fourth", FOURTH)
def test_share_of_models_that_agree(synthetic: Factory, fourth: str) -> None:
    node, (more, (estimate, low, detail)) = synthetic(gpus=1), FOURTH[fourth]
    for model in CURVES[:3]:
        add_curve(node, model)
    add_curve(node, **{"model": "tabular", **more})
    data = evidence(synthetic, node)
    row = select_row("equivalence.models_that_agree", data)
    assert (row["estimate"], row["detail"]) == (pytest.approx(estimate), detail)
    assert row["low"] < row["estimate"] <= row["high"] or low is not None
    assert low is None or row["low"] == row["high"] == pytest.approx(low)
    assert (row["device"], row["dtype"], row["backend"], row["n_rounds"]) == ("cuda:0", "float32", "torch", 3)
    assert row["source_rows"] == tuple(data.table.index[data.table["dtype"] == "float32"])


@pytest.mark.parametrize(("status", "rounds", "expected"), [("ok", 1, (1, None)), ("failed", 3, (0, 0))])
def test_one_round_has_no_interval_and_failures_do_not_agree(
    synthetic: Factory, status: str, rounds: int, expected: tuple[float, float | None]
) -> None:
    node = synthetic(gpus=1)
    add_curve(node, "mlp", AGREE[:rounds], status)
    row = select_row("equivalence.models_that_agree", evidence(synthetic, node))
    assert (row["estimate"], None if np.isnan(row["low"]) else row["low"]) == expected
