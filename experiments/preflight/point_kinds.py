"""Select one point per kind from a plan. Points that differ only in numeric parameters mostly have the same kind."""

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
    """A kind's representative point, and the rule in ranges.yaml that gives the point's expected rate, if any."""

    job: Job
    point: Point
    rule: Rule | None

    @property
    def title(self) -> str:
        """The experiment and the parameters, text values first: `gemm bfloat16 torch k=4096 m=4096 n=4096`."""
        params = {name: value for name, value in self.point.params if name != "threads" or self.job.device == "cpu"}
        words = [value for value in params.values() if isinstance(value, str)]
        numbers = [f"{name}={value}" for name, value in params.items() if not isinstance(value, str)]
        return " ".join([self.job.experiment, *words, *numbers])


def job_kinds(job: Job, rules: list[Rule]) -> list[Kind]:
    """Return one point per kind in a job.

    Points have the same kind if they have equal text parameters and environments, and if their rules in ranges.yaml
    expect the same range. The quickest point represents its kind. Points without a rule are left out if a rule applies
    to another point with the same text parameters and environment.
    """
    groups: dict[tuple[Any, ...], dict[str, Kind]] = {}
    for point in sorted(job.points, key=lambda point: point.predicted_s):
        if point.left_out:
            continue
        params = dict(point.params)
        words = tuple(value for value in params.values() if isinstance(value, str))
        rule = find_rule(rules, job.experiment, params)
        groups.setdefault((words, point.process_key), {}).setdefault(rule.key if rule else "", Kind(job, point, rule))
    return [kind for group in groups.values() for key, kind in group.items() if key or len(group) == 1]


def breadth_first(jobs: Iterable[Job], rules: list[Rule]) -> list[Kind]:
    """Return all jobs' kinds in the order to try: first one kind per job, then the kinds with a rule, then the others.

    Within each of the three groups, the kinds alternate between jobs.
    """
    rows = zip_longest(*(job_kinds(job, rules) for job in jobs))
    first, *later_rows = [[kind for kind in row if kind is not None] for row in rows] or [[]]
    return first + sorted(chain.from_iterable(later_rows), key=lambda kind: kind.rule is None)


def count_by_job(kinds: Iterable[Kind]) -> Counter[str]:
    """Count the kinds by job, as in {'gemm on cuda:0': 2}, in the order in which the jobs first occur."""
    return Counter(f"{kind.job.experiment} on {kind.job.device}" for kind in kinds)
