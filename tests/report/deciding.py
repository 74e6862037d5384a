"""Rules on estimates that are made up, without a claim around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.estimates import Estimates
from report.judging import rules
from report.judging.claims import Part
from report.judging.rules import RuleResult
from report.model import Threshold


def part(
    rule: str,
    threshold: float | Sequence[float],
    options: Mapping[str, Any] | None = None,
    sensitivity: Sequence[float | Sequence[float]] = (),
    **more: Any,
) -> Part:
    """A part of a claim with this rule."""
    tried = tuple(map(Threshold.of, sensitivity))
    given = {"name": "", "quantity": "gemm.rate", "why": "it is made up", **more}
    return Part(rule=rule, threshold=Threshold.of(threshold), options=dict(options or {}), sensitivity=tried, **given)


def decide(
    rule: str,
    estimates: Estimates,
    threshold: float | Sequence[float],
    unit: str = "1",
    options: Mapping[str, Any] | None = None,
    node_labels: Mapping[str, str] | None = None,
) -> RuleResult:
    """What a rule says of estimates."""
    return rules.decide(part(rule, threshold, options), estimates, unit, node_labels)
