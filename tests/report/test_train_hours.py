"""The ladder of published training runs: its FLOP, and the rate that each run is divided by."""

from __future__ import annotations

import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.quantities.train_hours import RUNS, total_flop
from tests.report.deciding import decide

from .conftest import Factory
from .priced import GIGA, evidence, trained
from .quantity_cases_2 import Case, case, cases, cells, measured

NANOGPT, RESNET = "nanoGPT on Shakespeare", "ResNet-50 on ImageNet"
FLOP = {
    NANOGPT: 6 * (12 * 6 * 384**2) * 5000 * 64 * 256,
    RESNET: 6 * 3.8e9 * 60e4 * 256,
    # 0.724 billion multiply-adds, 90 times 1.2 million images.
    "AlexNet on ImageNet": 6 * 0.724e9 * 108e6,
    # What the script itself says of the run.
    "GPT-2 (124M) on FineWeb": 7.44e18,
    "Llama 3.1 405B": 6 * 405e9 * 15.6e12,
    "Pythia-1.4B": 6 * 1.2086e9 * 299.89e9,
    "Llama 2 70B": 6 * 70e9 * 2e12,
    "Alpaca 7B fine-tune (at most)": 6 * 7e9 * 52e3 * 3 * 512,
    # 90% of the steps on 128 tokens, the rest on 512; 85 million parameters in the blocks.
    "BERT base": 6 * 84.9e6 * 256e6 * 166.4,
}


def build(synthetic: Factory, **changed: dict[str, str]) -> Dataset:
    node, other = synthetic("node-a", gpus=1), synthetic("node-b", gpus=1)
    trained(node, 100)
    trained(node, 200, dtype="bfloat16")
    trained(node, 250, model="gpt2", backend="onednn", spread=1e-3)
    trained(node, 150, model="cnn")
    trained(node, 9000, device="cuda:0", dtype="bfloat16")
    # What must not stand for either family: another family, one thread, plain loops.
    trained(node, 1e6, model="mlp")
    trained(node, 1e6, threads=1)
    trained(node, 1e6, model="cnn", backend="simd")
    trained(other, 8000, device="cuda:0")  # of its GPU alone
    return evidence(synthetic, node, other, changed=changed)


found = measured(build)


def hours(run: str, rate: float) -> float:
    return FLOP[run] / (rate * GIGA) / 3600


@cases(
    case("ladder.hours_to_train", hours(NANOGPT, 250), run=NANOGPT, device="cpu",
         detail="gpt2, batch 16, float32, onednn",
         labels={"node": "node-a", "device": "cpu", "threads": 2, "baseline": "node", "run": NANOGPT, "flop": 5.22e15}),
    case("ladder.hours_to_train", {"node-a": hours(NANOGPT, 9000), "node-b": hours(NANOGPT, 8000)}, by="node",
         run=NANOGPT, device="gpu", width="any"),
    case("ladder.hours_to_train", {"cpu": hours(RESNET, 150)}, by="device", run=RESNET, width="any"),
    case("ladder.nodes_for_90_days", 6 * 70e9 * 2e12 / (250 * GIGA) / (90 * 86400), device="cpu", parameters=70e9),
    case("ladder.nodes_for_90_days", {size: 6 * size * tokens / (9000 * GIGA) / (90 * 86400) for size, tokens in
         ((7e9, 2e12), (70e9, 2e12), (405e9, 15.6e12))}, by="parameters", node="node-a", device="gpu", width="any",
         rel=0.02),
    # The same of a server with 128 such cores.
    case("ladder.servers_for_90_days", 6 * 70e9 * 2e12 / (250 * GIGA) / (90 * 86400) * 2 / 128, parameters=70e9,
         evidence="measured"),
)  # fmt: skip
def test_hours_and_nodes(found: Dataset, one: Case) -> None:
    one.check(found)


def test_the_flop_of_runs(found: Dataset) -> None:
    """As published; they grow, and a factor of two in the rate moves a boundary by two runs at most."""
    flop = {run.name: total_flop(run, found) for run in RUNS}
    assert {name: flop[name] for name in FLOP} == pytest.approx(FLOP, rel=0.02)
    totals = list(flop.values())
    assert totals == sorted(totals) and all(above / below > 2 for below, above in zip(totals, totals[2:], strict=False))


def test_one_figure_that_was_not_read_leaves_the_whole_ladder_waiting(synthetic: Factory) -> None:
    with pytest.raises(MissingSourceError, match="BERT"):
        cells("ladder.hours_to_train", build(synthetic, **{"bert-base.steps": {"status": "not verified"}}))


def test_the_boundary_of_a_day_lies_between_two_runs(found: Dataset) -> None:
    ruling = decide("at_least", cells("ladder.hours_to_train", found, device="cpu", baseline="node"), 24, "h", {})
    sides = dict(zip(ruling.estimates["run"], ruling.sides, strict=True))
    assert ruling.outcome == "depends" and ruling.boundary and len(sides) == len(RUNS)
    assert sides[NANOGPT] == "challenges" and sides["ResNet-18 on CIFAR-10"] == "supports"
