"""How many more rounds would decide an undecided part's cases, if their estimates and spreads stay as they are.

Rounds are looked at after fixed numbers, LOOKS, whatever they show. Each look decides at LOOK_LEVEL, so that the three
looks together err to a side in at most 1% of cases (Bonferroni), like one look at the usual level. The projection is
optimistic for cases near the threshold: their true distance may be smaller than their estimated distance.
"""

from __future__ import annotations

import numpy as np

from contract.looks import LOOKS
from report import statistics
from report.compared_estimates import PooledEstimates
from report.data.row_ranges import format_ranges
from report.estimates import Estimates, merge_source_rows
from report.judging.part_evaluation import PartResult, QuantityCache
from report.outcomes import Side, Threshold, Verdict
from report.statistics import Floats
from report.verdicts import MoreRounds, OpenCase

# Largest number of rounds to project.
MOST_ROUNDS = 60


def projected_rounds(estimates: Estimates, threshold: Threshold) -> Floats:
    """Return the number of rounds that would decide each estimate, shape (rows,).

    It is the smallest number from the estimate's own rounds on with a half-width, at LOOK_LEVEL, below the distance
    from the threshold. The standard error falls with the square root of the rounds, and each round adds a degree of
    freedom. The number is infinite if MOST_ROUNDS do not suffice, and nan without a standard error.
    """
    se, df, rounds = (estimates.numbers(name).to_numpy() for name in ("se", "df", "n_rounds"))
    distance = np.min([np.abs(estimates.distances(end)) for end in threshold.ends], axis=0)
    known = np.isfinite(se) & (df > 0) & (rounds > 1) & np.isfinite(distance)
    needed = np.where(known, np.inf, np.nan)
    for number in range(MOST_ROUNDS, LOOKS[0] - 1, -1):
        with np.errstate(invalid="ignore", divide="ignore"):
            half = statistics.half_width(se * np.sqrt(rounds / number), df + number - rounds, statistics.LOOK_LEVEL)
            needed = np.where(known & (number >= rounds) & (half < distance), number, needed)
    return needed


def more_rounds(result: PartResult, cache: QuantityCache) -> MoreRounds | None:
    """Project how many rounds would decide an undecided part's open cases; None for other parts.

    A case pooled over machines needs the rounds of its machine that needs most. Parts whose cases have one model's
    error in common, and parts without open cases from rounds, have no projection: rounds do not reduce that error.
    """
    ruling, quantity = result.result, result.quantity
    if result.outcome is not Verdict.UNDECIDED or ruling is None or quantity is None or quantity.common_error:
        return None
    if result.part.rule in ("trend", "crossover") or result.unchecked:
        return None
    estimates = ruling.estimates
    open_rows = np.array([side is Side.UNDECIDED for side in ruling.sides])
    if isinstance(estimates, PooledEstimates):
        rows, each = estimates.instance_rows, estimates.instances
    else:
        rows, each = np.arange(len(estimates)), estimates
    needed = projected_rounds(each, result.part.threshold)
    single = (each["n_rounds"].astype(int) == 1).to_numpy(bool) & each["low"].isna().to_numpy(bool)
    cases = [np.flatnonzero(rows == row) for row in np.flatnonzero(open_rows)]
    of_cases = np.array([np.max(needed[at]) for at in cases])
    projected = of_cases[~np.isnan(of_cases)]
    in_one_round = sum(bool(single[at].any()) for at in cases)
    if not len(projected) and not in_one_round:
        return None
    nodes = [[node] for node in each["node"]] if "node" in each.labels else [[]] * len(each)
    sources = each["source_rows"].tolist()
    near = [
        OpenCase(
            rounds=None if np.isnan(number) else int(number),
            behind=format_ranges(
                merge_source_rows(cache.source_rows(quantity, sources[at], nodes[at]) for at in case.tolist())
            ),
        )
        for case, number in zip(cases, of_cases.tolist(), strict=True)
        if number <= MOST_ROUNDS or (np.isnan(number) and single[case].any())
    ]
    return MoreRounds(
        cases=len(cases),
        in_one_round=in_one_round,
        decided_by={str(look): int((projected <= look).sum()) for look in (*LOOKS[1:], MOST_ROUNDS)},
        near=near,
    )
