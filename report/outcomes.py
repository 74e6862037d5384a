"""Verdicts, sides, evidence tiers and thresholds.

This module imports no data libraries, so that commands which only read verdicts start fast.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from report.formatting import threshold_text


class Verdict(StrEnum):
    """Verdict on a claim or a part."""

    SUPPORTED = "supported"
    CHALLENGED = "challenged"
    DEPENDS = "depends"
    OUTDATED = "outdated"
    UNDECIDED = "undecided"
    AWAITING_HARDWARE = "awaiting hardware"
    AWAITING_EXPERIMENT = "awaiting experiment"
    AWAITING_SOURCE = "awaiting source"
    NOT_TESTABLE = "not testable"

    @property
    def is_decided(self) -> bool:
        """True if the evidence was sufficient to decide the claim or part."""
        return self in DECIDED

    @property
    def is_judged(self) -> bool:
        """True if a rule was applied, even if it left the claim or part undecided."""
        return self in JUDGED

    @property
    def awaits(self) -> bool:
        """True if the evidence to decide the claim or part is missing."""
        return self in AWAITING


DECIDED = (Verdict.SUPPORTED, Verdict.CHALLENGED, Verdict.DEPENDS, Verdict.OUTDATED)
JUDGED = (*DECIDED, Verdict.UNDECIDED)
# Verdicts' names for readers.
_NAMES = {Verdict.UNDECIDED: "Too close to call", **dict.fromkeys(
    (Verdict.AWAITING_EXPERIMENT, Verdict.AWAITING_HARDWARE, Verdict.AWAITING_SOURCE), "Open")}  # fmt: skip
# Verdicts for missing evidence, by priority: if a claim's parts await different things, the claim has the first of
# their verdicts in this order.
AWAITING = (Verdict.AWAITING_EXPERIMENT, Verdict.AWAITING_HARDWARE, Verdict.AWAITING_SOURCE)


def verdict_name(verdict: str, reason: bool = False) -> str:
    """Return a verdict's name for readers: 'Supported', 'Too close to call', 'Open'.

    reason: True adds to an open verdict what is missing: 'Open (awaiting hardware)'.
    """
    name = _NAMES.get(Verdict(verdict), verdict.capitalize())
    return f"{name} ({verdict})" if reason and Verdict(verdict).awaits else name


OPINION = "An opinion or advice: no measurement decides it."
# Value for `Quantity.checked` if a derived quantity only adds, multiplies and divides figures, so that it has no model
# to check.
ARITHMETIC = "arithmetic"
# Verdict on a question whose decided claims have different verdicts.
DIFFER = "differ"


# Origin of the deciding measurements: this study, or published runs by others.
HERE, OTHERS = "here", "others"
# The basis of a verdict, in words: an evidence tier, or the reason why no evidence decides.
OPEN = "open"
BASES = {
    "measured": "measured here",
    "derived": "derived",
    "published": "on published runs",
    "documented": "by documents",
    OPEN: "open",
    "not testable": "not testable",
}

# Robustness levels for a claim, as `judging.robustness.claim_robustness` defines them.
ROBUST, SENSITIVE, LISTED, UNTRIED = "robust", "sensitive", "on a chosen list", "not varied"


# If fewer further units than this fraction of a chosen list would turn its outcome, it is sensitive to the list.
_SENSITIVE_FRACTION = 0.25

# Fewest machines whose lowest and highest result enclose the median of their kind at 99%: 2 * 0.5**8 is below 1%.
FEWEST_MACHINES = 8


class Side(StrEnum):
    """Side on which one estimate lies relative to the threshold."""

    SUPPORTS = "supports"
    CHALLENGES = "challenges"
    UNDECIDED = "undecided"


class Tier(StrEnum):
    """Evidence tiers, strongest first. A verdict has the weakest tier of its evidence."""

    MEASURED = "measured"
    DERIVED = "derived"
    PUBLISHED = "published"
    DOCUMENTED = "documented"
    NONE = "none"

    @classmethod
    def weakest(cls, tiers: Sequence[str]) -> Tier:
        """Return the weakest tier; NONE for an empty sequence."""
        return max(map(cls, tiers), key=list(cls).index, default=cls.NONE)


def is_sensitive_to_list(turning_units: int | None, units: int) -> bool:
    """Tell if few further units would turn the outcome for a chosen list; False if none can (None)."""
    return turning_units is not None and turning_units < _SENSITIVE_FRACTION * units


def verdict_from_counts(n: int, supporting: int, challenging: int) -> Verdict:
    """Combine n cases into a verdict, given how many support and how many challenge the claim.

    The verdict is DEPENDS if there are both. Otherwise it is SUPPORTED or CHALLENGED if more than half of all cases are
    on that side, and UNDECIDED if not.
    """
    if supporting and challenging:
        return Verdict.DEPENDS
    if 2 * supporting > n:
        return Verdict.SUPPORTED
    return Verdict.CHALLENGED if 2 * challenging > n else Verdict.UNDECIDED


def combine_verdicts(outcomes: Sequence[str]) -> Verdict:
    """Combine the parts' outcomes into the claim's verdict; a claim asserts all its parts.

    The first verdict whose condition is met applies:
    DEPENDS: a part depends, or one part is supported and another challenged. Further evidence cannot undo this.
    CHALLENGED: a part is challenged. The whole cannot become true; at most, another part can.
    AWAITING_...: a part awaits evidence.
    UNDECIDED: a part is undecided.
    SUPPORTED: all parts are supported.
    """
    kinds = [Verdict(outcome) for outcome in outcomes]
    if Verdict.DEPENDS in kinds or {Verdict.SUPPORTED, Verdict.CHALLENGED} <= set(kinds):
        return Verdict.DEPENDS
    if Verdict.CHALLENGED in kinds:
        return Verdict.CHALLENGED
    awaited = [kind for kind in kinds if kind.awaits]
    if awaited:
        return min(awaited, key=AWAITING.index)
    return Verdict.UNDECIDED if Verdict.UNDECIDED in kinds else Verdict.SUPPORTED


@dataclass(frozen=True, order=True)
class Threshold:
    """Threshold: one number, or both ends of a range."""

    low: float
    high: float | None = None

    @classmethod
    def from_json(cls, value: float | Sequence[float]) -> Threshold:
        """Convert a number, or a list of two numbers, from JSON or YAML."""
        return cls(value) if isinstance(value, (int, float)) else cls(*value)

    @property
    def json(self) -> float | list[float]:
        return self.low if self.high is None else [self.low, self.high]

    @property
    def ends(self) -> tuple[float, ...]:
        """The single number, or both ends of the range, as a tuple."""
        return (self.low,) if self.high is None else (self.low, self.high)

    @property
    def is_range(self) -> bool:
        return self.high is not None

    def distance(self, value: float) -> float:
        """Return the distance from a value to the nearest end, on logarithms if all are positive."""
        if value > 0 and all(end > 0 for end in self.ends):
            return min(abs(math.log(value) - math.log(end)) for end in self.ends)
        return min(abs(value - end) for end in self.ends)

    def format(self, unit: str) -> str:
        """Format the threshold with a unit."""
        return threshold_text(self.json, unit)


def verdict_basis(verdict: Mapping[str, Any]) -> str:
    """Return the evidence tier that decides a claim, or 'open' (undecided) or 'not testable'."""
    if verdict["verdict"] == Verdict.NOT_TESTABLE:
        return str(Verdict.NOT_TESTABLE)
    if verdict["verdict"] not in DECIDED:
        return OPEN
    return str(Tier.PUBLISHED if verdict.get("decided_on") == OTHERS else verdict["evidence_tier"])


def count_bases(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Count the claims by `verdict_basis`; names without claims count 0."""
    bases = [verdict_basis(verdict) for verdict in verdicts]
    return {name: bases.count(name) for name in BASES}


def format_bases(counts: Mapping[str, int]) -> str:
    """Format the counts from `count_bases`: '21 measured here, 12 derived, 20 on published runs, 14 by documents'."""
    return ", ".join(f"{counts[name]} {BASES[name]}" for name in BASES if counts[name])


def format_counts(counts: Mapping[str, int]) -> str:
    """Format the number of claims by verdict: '40 supported, 12 challenged, 8 too close to call, 3 open'."""
    names: Counter[str] = Counter()
    for verdict, count in counts.items():
        names[verdict_name(verdict).lower()] += count
    return ", ".join(f"{count} {name}" for name, count in names.items() if count)


def tally(document: Mapping[str, Any]) -> str:
    """Format a table that counts the verdicts by article and by question, and list the nodes and refused files."""
    articles = list(dict.fromkeys(verdict["article"] for verdict in document["verdicts"]))
    width = max(len(verdict_name(name, reason=True)) for name in Verdict)
    head = "verdict".ljust(width) + "".join(name.rjust(11) for name in [*articles, "all", "questions"])
    question_verdicts = [question["verdict"] for question in document.get("questions", [])]

    def line(name: str, claim_articles: Sequence[str], questions: int) -> str:
        counts = [*(claim_articles.count(article) for article in articles), len(claim_articles), questions]
        return name.ljust(width) + "".join(str(n).rjust(11) for n in counts)

    return "\n".join(
        [
            head,
            "-" * len(head),
            *(
                line(
                    verdict_name(name, reason=True),
                    [verdict["article"] for verdict in document["verdicts"] if verdict["verdict"] == name],
                    question_verdicts.count(name),
                )
                for name in Verdict
            ),
            line("Claims differ", [], question_verdicts.count(DIFFER)),
            "-" * len(head),
            line("in all", [verdict["article"] for verdict in document["verdicts"]], len(question_verdicts)),
            "",
            f"decided by: {format_bases(count_bases(document['verdicts']))}",
            "",
            *(f"node: {node['label']} ({node['n_ok']} of {node['n_points']} series ok)" for node in document["nodes"]),
            *(f"left out: {file['file']}: {file['reason']}" for file in document["refused"]),
        ]
    )
