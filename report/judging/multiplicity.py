"""How many of all decided cases are expected to lie on the wrong side by chance, over all claims together.

Each case of a measured or derived part has the chance, by its own interval, that its true value lies on the other side
of the threshold. The sum over the decided cases is the expected number of errors. The smaller of a case's two chances,
doubled, is the p-value of a test that its true value lies on the threshold. Benjamini and Hochberg (1995), J. R. Stat.
Soc. B 57, keep the expected fraction of errors among the cases that stand below 1%.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import stats

from report import statistics
from report.judging.part_evaluation import PartResult
from report.judging.shares import reach_chances
from report.outcomes import Side
from report.statistics import Floats


def wrong_side_chances(result: PartResult) -> tuple[Floats, list[Side]]:
    """Return each case's highest chance to lie on the other side of the threshold than its estimate, and its side.

    Only cases with several rounds and an interval count: published and exact figures have no chance. A part without a
    rule's result, or with settled sides, gives no cases.
    """
    if result.result is None or result.waits is not None or result.part.rule == "crossover":
        return np.empty(0), []
    estimates, sides, part = result.result.estimates, result.result.sides, result.part
    low, high = (estimates.numbers(end).to_numpy() for end in ("low", "high"))
    varies = (estimates["n_rounds"].astype(int) > 1).to_numpy(bool) & (low < high)
    least, most = reach_chances(estimates, part.threshold.low, part.compare == "at_most")
    if part.threshold.high is not None:
        # The chance to lie within a range is the chance to reach its lower end but not its upper end.
        least_above, most_above = reach_chances(estimates, part.threshold.high, False)
        least, most = np.clip(least - most_above, 0, 1), np.clip(most - least_above, 0, 1)
    below = np.array([side is Side.CHALLENGES for side in sides]) | (
        np.array([side is Side.UNDECIDED for side in sides]) & (least + most < 1)
    )
    chances = np.where(below, most, 1 - least)
    return chances[varies], [side for side, varying in zip(sides, varies, strict=True) if varying]


def multiplicity(results: Iterable[PartResult]) -> dict[str, float]:
    """Count errors that are expected among all parts' cases.

    cases: cases with an interval from rounds. decided: those that support or challenge a claim. expected: how many of
    the decided cases are expected to lie on the wrong side. standing: cases that stand at a false discovery rate of 1%.
    """
    judged = [wrong_side_chances(result) for result in results]
    chances = np.concatenate([np.empty(0), *(chances for chances, _ in judged)])
    decided = np.array([side is not Side.UNDECIDED for _, sides in judged for side in sides], dtype=bool)
    adjusted = stats.false_discovery_control(np.minimum(1.0, 2 * chances)) if len(chances) else chances
    return {
        "cases": len(chances),
        "decided": int(decided.sum()),
        "expected": float(chances[decided].sum()),
        "standing": int((adjusted <= 1 - statistics.DECIDING).sum()),
    }
