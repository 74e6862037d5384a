"""How often the rule for shares errs, and what it finds: `python -m studies.shares`.

Populations of models whose true share is known are sampled and measured in three rounds. A model is above the
threshold or below; how far, is drawn: `apart`, by a factor of 1.3 on the mean (half as often it is hard to tell as with
`near`, 1.1; `at` puts those above right on it, where the rule counts each as half: the worst case, in which it errs).
Rounds vary by 5%, and models have one or four cells. The share that is asked for is a half. Beside the present rule
stands the one before: the number of cells whose own interval, widened by their number, is clear of the threshold.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from report import statistics
from report.estimates import Estimates
from report.judging.shares import Population
from report.model import Verdict

SEED, ROUNDS, SPREAD, WANTED, THRESHOLD = 20261, 3, 0.05, 0.5, 1.0
DISTANCES = {"apart": 0.26, "near": 0.1, "at": 0.0}
TRUE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.9)


@dataclass(frozen=True)
class Setting:
    """models: in the sample; cells: of each; distance: mean of the logarithm of how far each is from the threshold."""

    models: int
    cells: int
    distance: str


SETTINGS = tuple(
    Setting(models, cells, distance)
    for distance in DISTANCES
    for models, cells in ((10, 1), (17, 1), (40, 1), (12, 4), (525, 1))
)


def sample(setting: Setting, share: float, draw: np.random.Generator) -> Estimates:
    """Cells of a sample of models of which such a share lies above the threshold, as three rounds tell them."""
    above = draw.random(setting.models) < share
    far = draw.exponential(1.0, setting.models) * DISTANCES[setting.distance]
    # Models below are clear of it, so that only those above can be taken for others.
    true = np.where(above, far, -np.maximum(far, 0.2 if setting.distance == "at" else far))
    cells = np.repeat(true, setting.cells) + draw.normal(0, 0.02, setting.models * setting.cells) * (setting.cells > 1)
    rounds = np.exp(cells[:, None] + draw.normal(0, SPREAD, (len(cells), ROUNDS)))
    points = statistics.on_log_scale(list(rounds))
    rows = pd.DataFrame(
        {"model": np.repeat(np.arange(setting.models), setting.cells), "detail": "", "n_rounds": ROUNDS}
    )
    return Estimates.from_points(rows.assign(n_samples=ROUNDS), points, log=True)


def before(estimates: Estimates) -> Verdict:
    """The rule that was: cells counted by intervals that are widened by their number."""
    n = len(estimates)
    low, high = estimates.ends(1 - (1 - statistics.DECIDING) / n)
    if (low >= THRESHOLD).sum() >= WANTED * n - 1e-9:
        return Verdict.SUPPORTED
    return Verdict.CHALLENGED if n - (high < THRESHOLD).sum() < WANTED * n - 1e-9 else Verdict.UNDECIDED


def now(estimates: Estimates) -> Verdict:
    return Population(estimates, "model", "at_least").at(THRESHOLD).outcome(WANTED)


def found(setting: Setting, share: float, trials: int) -> Iterator[tuple[Verdict, Verdict]]:
    """The verdicts of both rules, by trial."""
    draw = np.random.default_rng([SEED, setting.models, setting.cells, int(100 * share)])
    for _ in range(trials):
        estimates = sample(setting, share, draw)
        yield before(estimates), now(estimates)


def rates(setting: Setting, share: float, trials: int) -> dict[str, float]:
    """Shares of the trials: `supported` and `challenged` by the present rule, and by the one before (`_before`)."""
    seen = list(found(setting, share, trials))
    return {
        f"{verdict}{name}": float(np.mean([one[which] == verdict for one in seen]))
        for verdict in (Verdict.SUPPORTED, Verdict.CHALLENGED)
        for which, name in ((1, ""), (0, "_before"))
    }


def main(trials: int = 2000) -> int:
    print(f"Share asked for: {WANTED:.0%}. In per cent of {trials} trials, by the present rule (by the one before).")
    print("models cells distance  true share   supported       challenged")
    for setting in SETTINGS:
        for share in TRUE:
            seen = rates(setting, share, trials)
            told = [
                f"{100 * seen[verdict]:5.1f} ({100 * seen[f'{verdict}_before']:5.1f})"
                for verdict in ("supported", "challenged")
            ]
            print(
                f"{setting.models:6} {setting.cells:5} {setting.distance:8} {share:10.0%}   {'   '.join(told)}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
