"""Presets measure what claims need: here `experiments` and `report` may both be asked."""

from __future__ import annotations

import pytest

from experiments.counters import RAPL_LEAST_S
from experiments.sweep import PRESETS, read_preset, sweep
from experiments.timing import LEAST_SHARE
from report.data.reference import read_reference
from report.judging.claims import read_claims
from report.quantities import quantities
from tests.workflow.clones import ROOT

# Calls in a row may become shorter after the warm-up, and so may the samples that they fill.
MARGIN = 1.1


@pytest.mark.parametrize("preset", [path.stem for path in PRESETS.glob("*.yaml")])
def test_no_point_whose_energy_a_claim_needs_can_end_before_it_is_counted(preset: str) -> None:
    claims, content = read_claims(ROOT / "report/claims", read_reference(ROOT / "data/reference")), read_preset(preset)
    asked = {part.quantity for claim in claims for part in claim.parts if part.quantity.startswith("energy.")}
    needed = {name for one in asked for name in quantities()[one].experiments}
    parts = [sweep(content, name, preset) for name in needed & set(content["experiments"])]
    compared = [point for part in parts for kind in ("cpu", "gpu") for point in part.points(kind) if point.value == 1]
    assert compared
    # Samples may end at their least share of the budget.
    assert [point for point in compared if LEAST_SHARE * point.point_s < MARGIN * RAPL_LEAST_S] == []
