"""How often the rule for shares errs, and what it finds: `python -m studies.shares`.

Populations of models whose true share is known are sampled and measured in three rounds. A model lies
above the threshold or below, by a factor that is drawn: with mean 1.3 (`apart`) or 1.1 (`near`). `at` puts those above
right on it, where the rule counts each as half: the worst case.
Rounds vary by 5%, and models have one or four cases. The share that is asked for is a half.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np
import pandas as pd

from report import statistics
from report.estimates import Estimates
from report.judging.shares import Population
from report.model import Verdict

SEED, ROUNDS, SPREAD, WANTED, THRESHOLD = 20261, 3, 0.05, 0.5, 1.0
DISTANCES = {"apart": 0.26, "near": 0.1, "at": 0.0}
OUTCOMES = (Verdict.SUPPORTED, Verdict.CHALLENGED)
TRUE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.9)
# Models in the sample, and cases of each.
SIZES = ((10, 1), (17, 1), (40, 1), (12, 4), (525, 1))


def sample(models: int, cases: int, distance: str, share: float, draw: np.random.Generator) -> Estimates:
    """Cases of a sample of models of which such a share lies above the threshold, as three rounds tell them."""
    above = draw.random(models) < share
    far = draw.exponential(1.0, models) * DISTANCES[distance]
    # Models below are clear of it, so that only those above can be taken for others.
    true = np.where(above, far, -np.maximum(far, 0.2 if distance == "at" else far))
    of_cases = np.repeat(true, cases) + draw.normal(0, 0.02, models * cases) * (cases > 1)
    rounds = np.exp(of_cases[:, None] + draw.normal(0, SPREAD, (models * cases, ROUNDS)))
    rows = pd.DataFrame({"model": np.repeat(np.arange(models), cases), "detail": "", "n_rounds": ROUNDS})
    return Estimates.from_points(rows.assign(n_samples=ROUNDS), statistics.on_log_scale(list(rounds)), log=True)


def rates(models: int, cases: int, distance: str, share: float, trials: int) -> dict[Verdict, float]:
    """Shares of the trials that the rule supports and challenges."""
    draw = np.random.default_rng([SEED, models, cases, int(100 * share)])
    drawn = (sample(models, cases, distance, share, draw) for _ in range(trials))
    seen = [Population(one, "model", "at_least").at(THRESHOLD).outcome(WANTED) for one in drawn]
    return {verdict: float(np.mean([one == verdict for one in seen])) for verdict in OUTCOMES}


def main(trials: int = 2000) -> int:
    print(f"Share asked for: {WANTED:.0%}. In per cent of {trials} trials.")
    print("models cases distance  true share   supported  challenged")
    for distance, (models, cases), share in product(DISTANCES, SIZES, TRUE):
        supported, challenged = rates(models, cases, distance, share, trials).values()
        told = f"{models:6} {cases:5} {distance:8} {share:10.0%}"
        print(f"{told}   {100 * supported:9.1f}   {100 * challenged:9.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
