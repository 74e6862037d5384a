"""Test that presets measure the points that claims need."""

from __future__ import annotations

import pytest

from experiments.counters import NVML_LEAST_S, RAPL_LEAST_S
from experiments.jobs import Point
from experiments.sweep import PRESETS, Sweep, find_sweep, read_preset
from experiments.timing import LEAST_SHARE
from report.data.reference_figures import read_reference
from report.judging.claim_files import read_claims
from report.quantities import quantities
from tests.workflow.project_clones import ROOT

# Factor by which a point's samples must exceed the minimum length, because calls may become shorter after the warm-up.
MARGIN = 1.1
# Minimum length in seconds that samples need for an energy reading, by device kind.
LEAST_S = {"cpu": RAPL_LEAST_S, "gpu": NVML_LEAST_S}


def energy_points(part: Sweep, kind: str) -> list[Point]:
    """Return the points on a device kind whose samples always last long enough for an energy reading."""
    # Sampling may end after the share LEAST_SHARE of the budget.
    return [point for point in part.points(kind) if LEAST_SHARE * point.point_s >= MARGIN * LEAST_S[kind]]


def models_and_batches(points: list[Point]) -> set[tuple[str, int]]:
    """Return each point's model and batch size."""
    return {(params["model"], params["batch"]) for params in (dict(point.params) for point in points)}


def families(of: set[tuple[str, int]]) -> set[str]:
    return {model.partition("-")[0] for model, _ in of}


@pytest.mark.parametrize("preset", [path.stem for path in PRESETS.glob("*.yaml")])
def test_energy_claims_have_long_enough_points_on_both_devices(preset: str) -> None:
    claims, content = read_claims(ROOT / "report/claims", read_reference(ROOT / "data/reference")), read_preset(preset)
    energy_quantities = {
        part.quantity for claim in claims for part in claim.parts if part.quantity.startswith("energy.")
    }
    needed = {name for quantity in energy_quantities for name in quantities()[quantity].experiments}
    assert needed == {"training"}
    if "training" not in content["experiments"]:
        return
    part = find_sweep(content, "training", preset)
    essential = {kind: [point for point in part.points(kind) if point.value == 1] for kind in LEAST_S}
    assert set(essential["cpu"]) <= set(energy_points(part, "cpu"))
    compared = models_and_batches(essential["cpu"]) & models_and_batches(essential["gpu"])
    both = families(
        compared & models_and_batches(energy_points(part, "cpu")) & models_and_batches(energy_points(part, "gpu"))
    )
    # Three-second points for every model and batch would take a third of the budget, so one point per model family is
    # enough. Rented machines need points for two families only, because they seldom report CPU energy.
    assert both == ({"bert", "resnet"} if preset == "rented" else families(compared))
