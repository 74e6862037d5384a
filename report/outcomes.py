"""Verdicts, sides of an estimate, tiers of evidence and thresholds.

No data libraries: what only reads verdicts starts at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from report.formatting import threshold_text


class Verdict(StrEnum):
    """On a claim, or on one part of it."""

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
    def decided(self) -> bool:
        """Whether something was found: too close to call is none."""
        return self in DECIDED

    @property
    def judged(self) -> bool:
        """Whether a rule could be applied."""
        return self in JUDGED

    @property
    def awaits(self) -> bool:
        """Whether something is missing."""
        return self in AWAITING


DECIDED = (Verdict.SUPPORTED, Verdict.CHALLENGED, Verdict.DEPENDS, Verdict.OUTDATED)
JUDGED = (*DECIDED, Verdict.UNDECIDED)
# What takes longest to come stands for a claim that lacks several things.
AWAITING = (Verdict.AWAITING_EXPERIMENT, Verdict.AWAITING_HARDWARE, Verdict.AWAITING_SOURCE)

# Why nothing decides a judgement.
OPINION = "An opinion or advice: no measurement decides it."
# What a derived quantity rests on that asks for no model: figures that are added, multiplied and divided.
ARITHMETIC = "arithmetic"
# What claims that ask the same have for a verdict where they came out differently.
DIFFER = "differ"


# Whose measurements a verdict rests on.
HERE, OTHERS = "here", "others"

# How robust a verdict is: see `judging.robustness.claim_robustness`.
ROBUST, SENSITIVE, LISTED, UNTRIED = "robust", "sensitive", "on a chosen list", "not varied"


class Side(StrEnum):
    """Where one estimate lies beside the threshold."""

    SUPPORTS = "supports"
    CHALLENGES = "challenges"
    UNDECIDED = "undecided"


class Tier(StrEnum):
    """Kinds of evidence, the strongest first. The weakest that a verdict rests on is the one it bears."""

    MEASURED = "measured"
    DERIVED = "derived"
    PUBLISHED = "published"
    DOCUMENTED = "documented"
    NONE = "none"

    @classmethod
    def weakest(cls, tiers: Sequence[str]) -> Tier:
        """The weakest of several; none of none."""
        return max(map(cls, tiers), key=list(cls).index, default=cls.NONE)


def verdict_from_counts(n: int, supporting: int, challenging: int) -> Verdict:
    """One verdict of n cases, of which so many support and so many challenge.

    It depends where they differ. Where all that are decided agree, they have to be most of the cases.
    """
    if supporting and challenging:
        return Verdict.DEPENDS
    if 2 * supporting > n:
        return Verdict.SUPPORTED
    return Verdict.CHALLENGED if 2 * challenging > n else Verdict.UNDECIDED


def combine_verdicts(outcomes: Sequence[str]) -> Verdict:
    """The verdict on a claim from those on its parts, all of which it says.

    It depends if something is shown to differ, which no part that is awaited can undo. Otherwise what is awaited comes
    first. It is supported only if every part is, and challenged if most are and none holds.
    """
    kinds = [Verdict(outcome) for outcome in outcomes]
    if Verdict.DEPENDS in kinds or {Verdict.SUPPORTED, Verdict.CHALLENGED} <= set(kinds):
        return Verdict.DEPENDS
    awaited = [kind for kind in kinds if kind.awaits]
    if awaited:
        return min(awaited, key=AWAITING.index)
    whole = verdict_from_counts(len(kinds), kinds.count(Verdict.SUPPORTED), kinds.count(Verdict.CHALLENGED))
    return Verdict.UNDECIDED if whole is Verdict.SUPPORTED and Verdict.UNDECIDED in kinds else whole


@dataclass(frozen=True, order=True)
class Threshold:
    """One number, or both ends of a range."""

    low: float
    high: float | None = None

    @classmethod
    def from_json(cls, value: float | Sequence[float]) -> Threshold:
        """From JSON or YAML: a number, or a list of two."""
        return cls(value) if isinstance(value, (int, float)) else cls(*value)

    @property
    def json(self) -> float | list[float]:
        return self.low if self.high is None else [self.low, self.high]

    @property
    def ends(self) -> tuple[float, ...]:
        """The number, or both ends."""
        return (self.low,) if self.high is None else (self.low, self.high)

    @property
    def is_range(self) -> bool:
        return self.high is not None

    def distance(self, value: float) -> float:
        """How far a value is from the number, or the nearer end: in logarithms where both are positive."""
        if value > 0 and all(end > 0 for end in self.ends):
            return min(abs(math.log(value / end)) for end in self.ends)
        return min(abs(value - end) for end in self.ends)

    def format(self, unit: str) -> str:
        """In words, with its unit."""
        return threshold_text(self.json, unit)


def _decided_line(document: Mapping[str, Any]) -> list[str]:
    """Whose measurements the verdicts rest on, in a line; none for files that do not say."""
    numbers = document.get("decided")
    if not numbers:
        return []
    return ["", f"decided here: {numbers[HERE]}; decided on others' runs: {numbers[OTHERS]}; open: {numbers['open']}"]


def tally(document: Mapping[str, Any]) -> str:
    """A table of verdict counts by article and by question, each question once, and which nodes they rest on."""
    articles = list(dict.fromkeys(verdict["article"] for verdict in document["verdicts"]))
    width = max(map(len, Verdict))
    head = "verdict".ljust(width) + "".join(name.rjust(11) for name in [*articles, "all", "questions"])
    asked = [question["verdict"] for question in document.get("questions", [])]

    def line(name: str, given: Sequence[str], questions: int) -> str:
        counts = [*(given.count(article) for article in articles), len(given), questions]
        return name.ljust(width) + "".join(str(n).rjust(11) for n in counts)

    return "\n".join(
        [
            head,
            "-" * len(head),
            *(
                line(
                    name,
                    [verdict["article"] for verdict in document["verdicts"] if verdict["verdict"] == name],
                    asked.count(name),
                )
                for name in Verdict
            ),
            line("claims differ", [], asked.count(DIFFER)),
            "-" * len(head),
            line("in all", [verdict["article"] for verdict in document["verdicts"]], len(asked)),
            *_decided_line(document),
            "",
            *(f"node: {node['label']} ({node['n_ok']} of {node['n_points']} series ok)" for node in document["nodes"]),
            *(f"left out: {one['file']}: {one['reason']}" for one in document["refused"]),
        ]
    )
