"""Helpers that apply rules to invented estimates, without claim files or nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from report import verdicts
from report.data.dataset import Dataset
from report.data.node_reader import Nodes
from report.estimates import Estimates, exact_estimates
from report.judging import rules
from report.judging.claim_files import Part
from report.judging.rules import RuleResult
from report.outcomes import Threshold

# Dataset without measurements. To judge invented estimates, only the node names in a dataset are needed.
NO_DATA = Dataset(Nodes([], []), {}, pd.DataFrame(columns=["experiment", "metric", "status"]))


def cases(*intervals: tuple[float, float], **labels: Sequence[Any]) -> Estimates:
    """Build an estimate at the middle of each interval. The interval's ends are the same at every confidence level.

    labels: for each label, a sequence with its value for each interval.
    """
    rows = [{"estimate": (low + high) / 2, "low": low, "high": high} for low, high in intervals]
    return exact_estimates(
        [{**row, **{name: values[index] for name, values in labels.items()}} for index, row in enumerate(rows)]
    )


def log_cases(estimates: ArrayLike, se: ArrayLike = 0.01, **labels: Any) -> Estimates:
    """Build measured estimates whose logarithms have the standard error `se`."""
    frame = pd.DataFrame({"estimate": estimates, "se": se, "df": 10.0, "n_rounds": 3, "n_samples": 15, **labels})
    return Estimates.from_estimates(frame)


def part(
    rule: str,
    threshold: float | Sequence[float],
    options: Mapping[str, Any] | None = None,
    sensitivity: Sequence[float | Sequence[float]] = (),
    **more: Any,
) -> Part:
    thresholds = tuple(map(Threshold.from_json, sensitivity))
    fields = {"name": "", "quantity": "gemm.rate", "why": "it is made up", **more}
    return Part(
        rule=rule,
        threshold=Threshold.from_json(threshold),
        options=dict(options or {}),
        sensitivity=thresholds,
        **fields,
    )


def decide(
    rule: str,
    estimates: Estimates,
    threshold: float | Sequence[float],
    unit: str = "1",
    options: Mapping[str, Any] | None = None,
    node_labels: Mapping[str, str] | None = None,
) -> RuleResult:
    """Apply a rule to the estimates. node_labels: display names by node id."""
    names = node_labels or {}

    def join_labels(nodes: Sequence[str]) -> str:
        return " and ".join(names.get(node, node) for node in nodes)

    return rules.apply_rule(part(rule, threshold, options), estimates, unit, join_labels)


def part_record(**fields: Any) -> verdicts.Part:
    """Build a part record as in `verdicts.json`, with `fields` in place of defaults."""
    defaults: dict[str, Any] = {
        "name": "", "quantity": "gemm.rate", "unit": "1", "rule": "at_least", "options": {}, "threshold": 1.0,
        "threshold_why": "", "sensitivity": [], "scope": {}, "scale": 1.0, "scale_why": "", "how": None, "entries": [],
        "ends": "interval",
        "margin": None, "margin_why": "",
        "from_samples": False, "followed": True, "outcome": "supported", "tier": "measured",
        "missing": None, "waits": None, "others": [],
        "unchecked": False, "more_rounds": None, "checked": None, "check": None, "cases_why": "", "n_cases": 1,
        "share": None, "boundary": None,
        "estimate": None, "low": None, "high": None, "robustness": None, "arithmetic": None,
    }  # fmt: skip
    return verdicts.Part(**{**defaults, **fields})
