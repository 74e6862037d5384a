"""The model of training memory: what it says, how far measured peaks are off it, and what fits."""

from __future__ import annotations

import pytest

from report.derived_estimates import DerivedEstimates
from report.quantities import quantities
from report.quantities.memory_model import LEAST_PEAK, model_ratio

from .conftest import Factory, SyntheticNode
from .evidence import of
from .priced import evidence

PARAMETERS, KEPT = 100_000_000.0, 5e6


def counted(node: SyntheticNode, model: str = "gpt2", parameters: float = PARAMETERS) -> SyntheticNode:
    for name, number in (("parameters", parameters), ("activation_bytes", KEPT)):
        node.point("models", number, metric=name, params={"model": model}, unit="1", spread=0)
    return node


def peak(node: SyntheticNode, over: float, batch: int = 4, model: str = "gpt2", parameters: float = PARAMETERS) -> None:
    """A measured peak so many times what the model says."""
    said = 16 * parameters + KEPT * batch
    node.point(
        "training", over * said, metric="peak_memory", params={"model": model, "batch": batch}, unit="B", spread=0.001
    )


def test_a_model_takes_its_state_and_its_batch(synthetic: Factory) -> None:
    cells = of("ladder.training_memory_bytes", evidence(synthetic, counted(synthetic("node-a"))))
    own = cells.only(kind="study").frame.iloc[0]
    said = 16 * PARAMETERS + KEPT * 32
    assert own["estimate"] == pytest.approx(said)
    assert (own["low"], own["high"]) == pytest.approx((said / 2, said * 2))
    llama = cells.only(model="Llama 3.1 8B").frame.iloc[0]
    assert llama["low"] == llama["estimate"] == pytest.approx(16 * 8e9)


def test_measured_peaks_correct_it_and_small_ones_do_not_count(synthetic: Factory) -> None:
    node = counted(counted(synthetic("node-a")), "mlp", 1e5)
    for over, batch in ((0.9, 1), (1.0, 2), (1.2, 4)):
        peak(node, over, batch)
    peak(node, 3.0, 1, "mlp", 1e5)
    found = evidence(synthetic, node)
    assert 16e5 + KEPT < LEAST_PEAK
    ratio = model_ratio(found)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.9, 1.0, 1.2), rel=0.01)
    row = of("ladder.training_memory_bytes", found, model="gpt2").frame.iloc[0]
    assert row["high"] / row["low"] == pytest.approx(1.2 / 0.9, rel=0.01)


def test_what_each_size_holds_stands_beside(synthetic: Factory) -> None:
    cells = quantities()["ladder.training_memory_bytes"].cells(evidence(synthetic, counted(synthetic("node-a"))))
    assert isinstance(cells, DerivedEstimates)
    held = {
        name: {of["kind"]: of["estimate"] for of in other.frame.to_dict("records")} for name, _, other in cells.beside
    }
    assert held["models that 8 GB hold"] == {"study": 1, "published": 2}
    assert held["models that 24 GB hold"]["published"] == 3
