"""Judging at looks: a case is decided at the first look at which its interval is clear of the threshold.

It stays decided, and keeps the interval of that look. The looks together err to a side in at most 1% of cases, because
each look has the level `statistics.LOOK_LEVEL` (Bonferroni). The looks are fixed beforehand, so that this holds for all
that they show.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from report import statistics
from report.compared_estimates import ComparedEstimates, pool_compared
from report.estimates import Estimates
from report.judging.claim_files import Part
from report.judging.rules import CaseSides, transform_machines
from report.outcomes import Side


def transform_at_looks(part: Part, looks: Sequence[Estimates], nodes: Collection[str], unit: str) -> ComparedEstimates:
    """Transform the estimates at each look like `rules.transform`, and take each case from the look that decides it.

    The declared threshold chooses the look, so that other thresholds are tried on the same intervals.

    looks: the estimates in scope as of each look, at least one. nodes: the nodes with looks; the cases of other
    machines are equal at all looks, and keep the usual level. Raises StudyError if the rule's options do not fit the
    estimates.
    """
    compared = [transform_machines(part, at_look_level(estimates, nodes), unit) for estimates in looks]
    return pool_compared(_first_decided(part, compared, nodes))


def at_look_level(estimates: Estimates, nodes: Collection[str]) -> Estimates:
    """Return the estimates with the intervals of these nodes at `statistics.LOOK_LEVEL`."""
    if "node" not in estimates.labels:
        return estimates
    return estimates.at_level(np.where(estimates["node"].isin(list(nodes)), statistics.LOOK_LEVEL, statistics.LEVEL))


def _first_decided(part: Part, looks: Sequence[ComparedEstimates], nodes: Collection[str]) -> ComparedEstimates:
    """Take each row of the last look, in its order, from the first look that decides it."""
    last = looks[-1]
    if not len(last.estimates) or "node" not in last.estimates.labels:
        return last
    keys = pd.concat([look.estimates.frame[last.estimates.keys] for look in looks], ignore_index=True)
    cases = keys.groupby(last.estimates.keys, dropna=False, sort=False, observed=True).ngroup().to_numpy()
    threshold = part.declared or part.threshold
    sides = [side for look in looks for side in CaseSides(part, look.estimates, look.settled).separate_sides(threshold)]
    decides = (
        np.array([side is not Side.UNDECIDED for side in sides], dtype=bool) & keys["node"].isin(list(nodes)).to_numpy()
    )
    first_rows = dict(reversed([(cases[at], at) for at in np.flatnonzero(decides).tolist()]))
    last_rows = range(len(keys) - len(last.estimates), len(keys))
    rows = [first_rows.get(cases[at], at) for at in last_rows]
    frame = pd.concat([look.estimates.frame for look in looks], ignore_index=True).iloc[rows].reset_index(drop=True)
    settled = [side for look in looks for side in look.settled]
    return ComparedEstimates(Estimates(frame, last.estimates.log), last.unit, [settled[row] for row in rows])
