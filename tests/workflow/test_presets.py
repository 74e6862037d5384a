"""Presets measure what claims need: here `experiments` and `report` may both be asked."""

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

# Calls in a row may become shorter after the warm-up, and so may the samples that they fill.
MARGIN = 1.1
# Seconds of samples without which energy is not counted, by kind of device.
LEAST_S = {"cpu": RAPL_LEAST_S, "gpu": NVML_LEAST_S}


def counted(part: Sweep, kind: str) -> list[Point]:
    """Points of a kind of device that cannot end before their energy is counted."""
    # Samples may end at their least share of the budget.
    return [point for point in part.points(kind) if LEAST_SHARE * point.point_s >= MARGIN * LEAST_S[kind]]


def jobs(points: list[Point]) -> set[tuple[str, int]]:
    """Models and batches."""
    return {(params["model"], params["batch"]) for params in (dict(point.params) for point in points)}


def families(of: set[tuple[str, int]]) -> set[str]:
    return {model.partition("-")[0] for model, _ in of}


@pytest.mark.parametrize("preset", [path.stem for path in PRESETS.glob("*.yaml")])
def test_claims_about_energy_get_points_on_both_sides_that_cannot_end_before_it_is_counted(preset: str) -> None:
    claims, content = read_claims(ROOT / "report/claims", read_reference(ROOT / "data/reference")), read_preset(preset)
    asked = {part.quantity for claim in claims for part in claim.parts if part.quantity.startswith("energy.")}
    needed = {name for one in asked for name in quantities()[one].experiments}
    assert needed == {"training"}
    if "training" not in content["experiments"]:
        return
    part = find_sweep(content, "training", preset)
    essential = {kind: [point for point in part.points(kind) if point.value == 1] for kind in LEAST_S}
    assert set(essential["cpu"]) <= set(counted(part, "cpu"))
    compared = jobs(essential["cpu"]) & jobs(essential["gpu"])
    both = families(compared & jobs(counted(part, "cpu")) & jobs(counted(part, "gpu")))
    # Three seconds of every model and batch on a GPU would take a third of the minutes: one of each family has them; of
    # two families on rented machines, which seldom show the energy of their CPU.
    assert both == ({"bert", "resnet"} if preset == "rented" else families(compared))
