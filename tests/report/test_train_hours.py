"""The ladder of published training runs: its FLOP, and the rate that each run is divided by."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.data.reference import read_reference
from report.judging.rules import decide
from report.quantities.train_hours import RUNS, total_flop

from .conftest import Factory, SyntheticNode
from .test_quantities import data, of, value

GIGA = 1e9
REFERENCE = read_reference(Path(__file__).resolve().parents[2] / "data" / "reference")
NANOGPT, RESNET = "nanoGPT on Shakespeare", "ResNet-50 on ImageNet"
NANOGPT_FLOP, RESNET_FLOP = 6 * (12 * 6 * 384**2) * 5000 * 64 * 256, 6 * 3.8e9 * 60e4 * 256


def step(node: SyntheticNode, model: str, rate: float, batch: int = 16, **more: Any) -> None:
    more = {"threads": 2, "spread": 0, **more}
    node.point("training", 1 / (rate * GIGA), params={"model": model, "batch": batch}, flop=1.0, **more)


def trained(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    step(node, "gpt", 100)
    step(node, "gpt", 80, batch=1)
    step(node, "gpt", 200, dtype="bfloat16")
    step(node, "gpt2", 250, backend="onednn", batch=4)
    step(node, "cnn", 50)
    step(node, "cnn", 150, batch=256)
    step(node, "gpt", 9000, device="cuda:0", dtype="bfloat16")
    # What must not stand for either family: another family, one thread, plain loops.
    step(node, "mlp", 1e6)
    step(node, "gpt", 1e6, threads=1)
    step(node, "cnn", 1e6, backend="simd")
    return node


def found(synthetic: Factory, node: SyntheticNode) -> Dataset:
    return data(synthetic, node, reference=REFERENCE)


@pytest.mark.parametrize(
    ("run", "device", "flop", "rate", "detail"),
    [
        (NANOGPT, "cpu", NANOGPT_FLOP, 250, "gpt2, batch 4, float32, onednn"),
        (NANOGPT, "gpu", NANOGPT_FLOP, 9000, "gpt, batch 16, bfloat16, torch"),
        (RESNET, "cpu", RESNET_FLOP, 150, "cnn, batch 256, float32, torch"),
    ],
)
def test_a_run_is_divided_by_the_best_rate_of_its_family(
    synthetic: Factory, run: str, device: str, flop: float, rate: float, detail: str
) -> None:
    cells = of("ladder.hours_to_train", found(synthetic, trained(synthetic)), run=run, device=device)
    assert value(cells) == pytest.approx(flop / (rate * GIGA) / 3600)
    assert cells.frame["detail"].iloc[0] == detail


def test_a_cpu_stands_with_all_its_threads(synthetic: Factory) -> None:
    cells = of("ladder.hours_to_train", found(synthetic, trained(synthetic)), device="cpu")
    assert set(cells.frame["threads"]) == {2} and set(cells.frame["baseline"]) == {"node"}
    assert list(cells.frame["run"].value_counts()) == [1] * len(RUNS)


def test_a_family_that_was_not_measured_has_no_hours(synthetic: Factory) -> None:
    runs = of("ladder.hours_to_train", found(synthetic, trained(synthetic)), device="gpu").frame["run"]
    assert NANOGPT in set(runs) and RESNET not in set(runs)


def test_a_node_that_measured_its_gpu_alone_has_its_hours(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    step(node, "gpt", 9000, device="cuda:0")
    cells = of("ladder.hours_to_train", found(synthetic, node))
    assert set(cells.frame["device"]) == {"cuda:0"}


def test_a_node_that_trained_nothing_has_none(synthetic: Factory) -> None:
    assert len(of("ladder.hours_to_train", found(synthetic, synthetic("node-a").clock()))) == 0


def test_the_interval_is_that_of_the_rate(synthetic: Factory) -> None:
    node = synthetic("node-a")
    step(node, "gpt", 100, spread=0.05)
    evidence = found(synthetic, node)
    hours = of("ladder.hours_to_train", evidence, run=NANOGPT).frame.iloc[0]
    rate = evidence.summary("training", value="flop_per_s").frame.iloc[0]
    assert hours["high"] / hours["low"] == pytest.approx(rate["high"] / rate["low"])
    assert hours["low"] < hours["estimate"] < hours["high"] and hours["n_rounds"] == 3


def test_one_figure_that_was_not_read_leaves_the_whole_ladder_waiting(synthetic: Factory) -> None:
    reference = copy.deepcopy(REFERENCE)
    reference["bert-base.steps"]["status"] = "not verified"
    with pytest.raises(MissingSourceError, match="BERT"):
        of("ladder.hours_to_train", data(synthetic, trained(synthetic), reference=reference))


@pytest.mark.parametrize(
    ("run", "flop"),
    [
        # 0.724 billion multiply-adds, 90 times 1.2 million images.
        ("AlexNet on ImageNet", 6 * 0.724e9 * 108e6),
        # What the script itself says of the run.
        ("GPT-2 (124M) on FineWeb", 7.44e18),
        ("Llama 3.1 405B", 6 * 405e9 * 15.6e12),
        (NANOGPT, NANOGPT_FLOP),
        (RESNET, RESNET_FLOP),
        ("Pythia-1.4B", 6 * 1.2086e9 * 299.89e9),
        ("Llama 2 70B", 6 * 70e9 * 2e12),
        ("Alpaca 7B fine-tune (at most)", 6 * 7e9 * 52e3 * 3 * 512),
        # 90% of the steps on 128 tokens, the rest on 512; 85 million parameters in the blocks.
        ("BERT base", 6 * 84.9e6 * 256e6 * 166.4),
    ],
)
def test_the_flop_of_a_run(synthetic: Factory, run: str, flop: float) -> None:
    evidence = found(synthetic, synthetic("node-a").clock())
    assert total_flop(next(one for one in RUNS if one.name == run), evidence) == pytest.approx(flop, rel=0.02)


def test_the_runs_grow_and_lie_apart(synthetic: Factory) -> None:
    """A factor of two in the rate moves a boundary by two runs at most."""
    evidence = found(synthetic, synthetic("node-a").clock())
    flop = [total_flop(run, evidence) for run in RUNS]
    assert flop == sorted(flop)
    assert all(above / below > 2 for below, above in zip(flop, flop[2:], strict=False))


def test_the_boundary_of_a_day_lies_between_two_runs(synthetic: Factory) -> None:
    cells = of(
        "ladder.hours_to_train", found(synthetic, trained(synthetic)), device="cpu", threads="all", baseline="node"
    )
    ruling = decide("at_least", cells, 24, "h", {})
    sides = dict(zip(ruling.cells.frame["run"], ruling.outcomes, strict=True))
    assert ruling.outcome == "depends"
    assert sides[NANOGPT] == "challenges" and sides["ResNet-18 on CIFAR-10"] == "supports"
    assert ruling.boundary and "no one or two labels" not in ruling.boundary


def test_nodes_and_servers_for_ninety_days(synthetic: Factory) -> None:
    evidence = found(synthetic, trained(synthetic))
    nodes = of("ladder.nodes_for_90_days", evidence, device="cpu", parameters=70_000_000_000)
    assert value(nodes) == pytest.approx(6 * 70e9 * 2e12 / (250 * GIGA) / (90 * 86400))
    servers = of("ladder.servers_for_90_days", evidence, parameters=70_000_000_000, evidence="measured")
    assert value(servers) == pytest.approx(value(nodes) * 2 / 128)
    assert set(of("ladder.nodes_for_90_days", evidence, device="gpu").frame["parameters"]) == {7e9, 70e9, 405e9}
    assert set(of("ladder.servers_for_90_days", evidence).frame["device"]) == {"cpu"}
