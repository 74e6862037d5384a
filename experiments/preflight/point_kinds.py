"""Kinds of points: those of a plan that differ in more than numbers, one point for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from experiments.jobs import Job, Point
from experiments.preflight.rate_ranges import Rule, find_rule


@dataclass(frozen=True)
class Kind:
    """One point that stands for all of its kind, and the rule that judges its rate, if there is one."""

    job: Job
    point: Point
    rule: Rule | None

    @property
    def title(self) -> str:
        """The experiment and the point's parameters, words first: `gemm bfloat16 torch k=4096 m=4096 n=4096`."""
        params = {name: value for name, value in self.point.params if name != "threads" or self.job.device == "cpu"}
        words = [value for value in params.values() if isinstance(value, str)]
        numbers = [f"{name}={value}" for name, value in params.items() if not isinstance(value, str)]
        return " ".join([self.job.experiment, *words, *numbers])


def job_kinds(job: Job, rules: list[Rule]) -> list[Kind]:
    """A point of every kind that a job measures.

    Points are of one kind if all their parameters that are words are the same, and one rule judges them. Of a kind, the
    quickest stands for it; where some of its points can be judged, one of these.
    """
    found: dict[tuple[Any, ...], dict[str, Kind]] = {}
    for point in sorted(job.points, key=lambda one: one.predicted_s):
        if point.left_out:
            continue
        params = dict(point.params)
        words = tuple(value for value in params.values() if isinstance(value, str))
        rule = find_rule(rules, job.experiment, params)
        found.setdefault((words, point.process_key), {}).setdefault(rule.key if rule else "", Kind(job, point, rule))
    return [one for alike in found.values() for key, one in alike.items() if key or len(alike) == 1]


def breadth_first(jobs: Iterable[Job], rules: list[Rule]) -> list[Kind]:
    """The kinds of all jobs: the first of each job, then those that a rule judges, then the others, in turns."""
    rows = zip_longest(*(job_kinds(job, rules) for job in jobs))
    first, *others = [[one for one in row if one is not None] for row in rows] or [[]]
    return first + sorted(chain.from_iterable(others), key=lambda one: one.rule is None)


def count_by_job(every: Iterable[Kind]) -> Counter[str]:
    """Number of kinds of each experiment on each device, in their order."""
    return Counter(f"{one.job.experiment} on {one.job.device}" for one in every)
