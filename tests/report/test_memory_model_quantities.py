"""The model of training memory: what it says, how far measured peaks are off it, and what fits."""

from __future__ import annotations

import pytest

from report.derived_estimates import DerivedEstimates
from report.quantities import quantities

from .conftest import Factory, SyntheticNode
from .priced import evidence

PARAMETERS, KEPT = {"gpt2": 1e8, "mlp": 1e5}, 5e6
SAID = 16 * PARAMETERS["gpt2"] + KEPT * 32


def build(synthetic: Factory, peaks: tuple[tuple[str, float, int], ...]) -> DerivedEstimates:
    """peaks: of a model, so many times what the model of memory says, at a batch."""
    node: SyntheticNode = synthetic("node-a")
    for model, parameters in PARAMETERS.items():
        for name, number in (("parameters", parameters), ("activation_bytes", KEPT)):
            node.point("models", number, metric=name, params={"model": model}, unit="1", spread=0)
    for model, over, batch in peaks:
        params, peak = {"model": model, "batch": batch}, over * (16 * PARAMETERS[model] + KEPT * batch)
        node.point("training", peak, metric="peak_memory", params=params, unit="B", spread=1e-4)
    found = quantities()["ladder.training_memory_bytes"].cells(evidence(synthetic, node))
    assert isinstance(found, DerivedEstimates)
    return found


LARGE = (("gpt2", 0.9, 1), ("gpt2", 1.1, 2), ("gpt2", 1.2, 4))


@pytest.mark.parametrize(
    ("peaks", "ratios"),
    [
        ((), (0.5, 1.0, 2.0)),
        # Small peaks do not count.
        ((*LARGE, ("mlp", 3.0, 1)), (0.9, 1.1, 1.2)),
    ],
)
def test_measured_peaks_correct_the_model(
    synthetic: Factory, peaks: tuple[tuple[str, float, int], ...], ratios: tuple[float, float, float]
) -> None:
    found = build(synthetic, peaks)
    (own,) = found.only(model="gpt2").rows("low", "estimate", "high")
    assert own == pytest.approx([SAID * ratio for ratio in ratios], rel=1e-3)
    assert bool(found.only(model="gpt2").value("source_rows", 0)) == bool(peaks)
    assert found.only(model="Llama 3.1 8B").rows("low", "estimate", "high") == [pytest.approx((16 * 8e9,) * 3)]
    fits = {name: dict(other.rows("kind", "estimate")) for name, _, other in found.beside}
    assert fits["models that 8 GB hold"] == {"study": 2, "published": 2}
    assert fits["models that 24 GB hold"]["published"] == 3
