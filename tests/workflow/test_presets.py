"""Presets measure what claims need: here `experiments` and `report` may both be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.sweep import PRESETS, read_preset, sweep
from experiments.timing import LEAST_SHARE
from experiments.worker import ENERGY_AFTER_S
from report.data.reference import read_reference
from report.judging.claims import read_claims
from report.quantities import quantities

ROOT = Path(__file__).parents[2]
# Calls in a row may become shorter after the warm-up, and so may the samples that they fill.
MARGIN = 1.1


def compared_by_energy() -> set[str]:
    """Experiments whose energy a claim is decided by."""
    claims = read_claims(ROOT / "report" / "claims", read_reference(ROOT / "data" / "reference"))
    asked = {part.quantity for claim in claims for part in claim.parts}
    return {name for one in asked if one.startswith("energy.") for name in quantities()[one].experiments}


@pytest.mark.parametrize("preset", [path.stem for path in PRESETS.glob("*.yaml")])
def test_no_point_whose_energy_a_claim_needs_can_end_before_it_is_counted(preset: str) -> None:
    needed, content = compared_by_energy(), read_preset(preset)
    assert needed
    for name in needed & set(content["experiments"]):
        part = sweep(content, name, preset)
        compared = [point for kind in ("cpu", "gpu") for point in part.points(kind) if point.value == 1]
        # Samples may end at their least share of the budget.
        short = [point for point in compared if LEAST_SHARE * point.point_s < MARGIN * ENERGY_AFTER_S]
        assert short == []
