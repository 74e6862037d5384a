"""Jobs that were run whole, and what they tell of derived times: how far those are off, and how sure that is.

The time of a published run is derived from its operations and the best rate of its family. Runs take longer than that:
their steps are smaller than those of the best rate, they draw batches and test, and libraries that suit one step do not
suit another. By how much is a line through the logarithms, of how many times as long a job took against its operations:
the more a run computes, the less of its time goes into anything else. A run beyond the largest job is corrected as that
job; nothing is extrapolated. The interval is that of a further run beside the jobs (prediction interval of linear
regression, Student's t), so that the jobs' own scatter widens it. Jobs of all nodes count, each once: the mean of a
job's logarithms over nodes. Devices of one kind share the line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from report import statistics
from report.data.dataset import Dataset, cached_per_dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat_estimates, device_kind, merge_source_rows
from report.quantities import quantity
from report.quantities.training import best_rates
from report.statistics import Floats

EXPERIMENT = "time-to-train"
# The quantity that shows how well derived times hold.
CHECK = "time_to_train.held_out"
# Fewer jobs than this give no line.
LEAST_JOBS = 5
# The family whose best rate the time of a job is derived from; others are of no family that published runs have.
FAMILY_OF = {
    "digits-cnn": "convolutional",
    "mnist-resnet": "convolutional",
    "mnist-wide-resnet": "convolutional",
    "mnist-resnet-50": "convolutional",
    "mnist-vit": "transformer",
    "bytes-gpt": "transformer",
    "bytes-nanogpt-cpu": "transformer",
    "bytes-gpt-10m": "transformer",
    "bytes-nanogpt": "transformer",
    "bytes-gpt2": "transformer",
    "origin-minilm-l6": "transformer",
}
# What a round of a job tells.
_PARTS = ["prepare_time", "steps", "step_time", "draw_time", "forward_passes", "forward_time"]
_ROUND = [*POINT, "round"]
_correction_quantity = partial(quantity, experiments=[EXPERIMENT, "training"], tier="derived", checked=CHECK)


def job_rounds(data: Dataset) -> pd.DataFrame:
    """What each round of each job observed: columns POINT and round, and one for each metric."""
    samples = data.samples(EXPERIMENT)
    observed = samples[samples["status"] == "ok"].groupby([*_ROUND, "metric"], observed=True)["value"].median()
    table = observed.unstack("metric").reset_index()
    table = table.reindex(columns=[*_ROUND, "job_time", "job_flop", *_PARTS])
    prepare, steps, step, draw, passes, forward = (table[name] for name in _PARTS)
    return table.assign(predicted=prepare + steps * (step + draw) + passes * forward)


def round_estimates(data: Dataset, table: pd.DataFrame, values: pd.Series, unit: str) -> Estimates:
    """One value a round as cases, with rounds as the unit of the intervals."""
    known = table.assign(value=values)[values.notna()]
    samples = data.samples(EXPERIMENT)
    first = samples[samples["metric"] == "job_time"].drop(columns="value")
    return data.estimates_from_samples(first.merge(known[[*_ROUND, "value"]], on=_ROUND).assign(unit=unit))


def predicted_over_measured(data: Dataset) -> Estimates:
    """Predicted over measured time of each job, by two methods.

    parts: from the time of each part, alone; both sides of the ratio are of the same round. rate: as the ladder of
    published runs predicts, operations of the job over the best rate of its family on that device.
    """
    table = job_rounds(data)
    parts = round_estimates(data, table, table["predicted"] / table["job_time"], "ratio")
    # Of the operations of a job, the rate over the best of its family on the same device with the same threads.
    achieved = round_estimates(data, table, table["job_flop"] / table["job_time"], "FLOP/s")
    achieved = achieved.label(family=[FAMILY_OF.get(job, "") for job in achieved["job"]])
    rate = (achieved / best_rates(data).without("baseline")).without("family")
    return concat_estimates([parts.label(method="parts"), rate.label(method="rate")])


@dataclass(frozen=True)
class Line:
    """How many times as long whole runs take as is derived for them.

    jobs: their names. flop: operations of each; ratio: measured over derived time; rows: of the summary behind each.
    """

    jobs: tuple[str, ...]
    flop: Floats
    ratio: Floats
    rows: tuple[tuple[int, ...], ...] = ()

    def without(self, job: int) -> Line:
        """The line through the other jobs."""
        kept = [at for at in range(len(self.jobs)) if at != job]
        return Line(tuple(self.jobs[at] for at in kept), self.flop[kept], self.ratio[kept])

    def at(self, flop: float) -> tuple[float, float, float]:
        """Of a run with so many operations: how many times as long, standard error of its logarithm, its df."""
        x, y = np.log(self.flop), np.log(self.ratio)
        here = math.log(min(max(flop, float(self.flop.min())), float(self.flop.max())))
        middle, spread = x.mean(), float(((x - x.mean()) ** 2).sum())
        slope = float(((x - middle) * y).sum() / spread)
        df = len(x) - 2
        left = y - y.mean() - slope * (x - middle)
        variance = float((left**2).sum()) / df * (1 + 1 / len(x) + (here - middle) ** 2 / spread)
        return math.exp(y.mean() + slope * (here - middle)), math.sqrt(variance), float(df)


@cached_per_dataset
def correction_lines(data: Dataset) -> dict[str, Line]:
    """The line of each kind of device, cpu or gpu, on which enough jobs were run whole: each in its fastest format."""
    ratios = predicted_over_measured(data).only(method="rate")
    point = ["node", "device", "job", "dtype", "backend", "threads"]
    operations = {key: flop for *key_, flop in data.summary(EXPERIMENT, "job_flop").rows(*point, "estimate")
                  for key in [tuple(key_)]}  # fmt: skip
    frame = pd.DataFrame(ratios.rows(*point, "estimate", "source_rows"), columns=[*point, "share", "rows"])
    if not len(frame):
        return {}
    frame["kind"] = frame["device"].map(device_kind)
    frame["ratio"] = 1 / frame["share"]
    frame["flop"] = [operations.get(tuple(key), math.nan) for key in frame[point].itertuples(index=False)]
    frame = frame[np.isfinite(frame["ratio"]) & np.isfinite(frame["flop"])]
    best = frame.loc[frame.groupby(["kind", "node", "device", "job"])["ratio"].idxmin()]
    found = {}
    for kind, own in best.groupby("kind"):
        jobs = own.groupby("job", sort=True)
        ratio, flop = (np.exp(jobs[name].agg(lambda values: np.log(values).mean()).to_numpy()) for name in
                       ("ratio", "flop"))  # fmt: skip
        if len(ratio) >= LEAST_JOBS:
            rows = tuple(merge_source_rows(own["rows"]) for _, own in jobs)
            found[str(kind)] = Line(tuple(jobs.groups), flop, ratio, rows)
    return found


def correct_estimates(data: Dataset, derived: Estimates, flop: float, inverse: bool = False) -> Estimates:
    """Derived times, on the log scale, of a run with so many operations, as whole runs correct and widen them.

    inverse: they are rates. Without whole runs on that kind of device they have no interval.
    """
    if not len(derived):
        return derived
    known = correction_lines(data)
    made = [known[kind].at(flop) if kind in known else (1.0, math.nan, 0.0)
            for kind in map(device_kind, derived["device"])]  # fmt: skip
    factor, se, df = (np.array(values) for values in zip(*made, strict=True))
    both, freedom = statistics.combine(derived["se"], derived["df"], se, df)
    estimate = derived.numbers("estimate") * (1 / factor if inverse else factor)
    behind = {kind: merge_source_rows(line.rows) for kind, line in known.items()}
    rows = [own + behind.get(device_kind(device), ()) for own, device in derived.rows("source_rows", "device")]
    return Estimates.from_estimates(derived.label(estimate=estimate, se=both, df=freedom, source_rows=rows).frame)


@_correction_quantity(CHECK, "1", ("job", "flop"))
def held_out_ratio(data: Dataset) -> Estimates:
    """Measured time of each job over what is derived for it, with the line through the others alone.

    The interval is that of the prediction: a job is predicted where it holds 1. flop: operations of the job. detail:
    how many times as long it took as was derived without correction.
    """
    rows = []
    for kind, line in correction_lines(data).items():
        for at, job in enumerate(line.jobs):
            factor, se, df = line.without(at).at(float(line.flop[at]))
            rows.append(
                {
                    "device": kind, "job": job, "flop": float(f"{line.flop[at]:.3g}"),
                    "estimate": float(line.ratio[at]) / factor, "se": se, "df": df, "n_rounds": 1, "n_samples": 1,
                    "detail": f"{line.ratio[at]:.2g} times without correction", "source_rows": line.rows[at],
                }
            )  # fmt: skip
    return Estimates.of(rows, log=True)


@dataclass(frozen=True)
class Coverage:
    """How well derived times hold: of so many jobs, how many are predicted from the others; how many times as long the
    shortest and the longest took as was derived without correction; and how wide the interval of a prediction is."""

    jobs: int
    predicted: int
    shortest: float
    longest: float
    width: float


def coverage(data: Dataset, kind: str = "cpu") -> Coverage | None:
    """What `held_out_ratio` comes to on a kind of device; None without enough jobs."""
    line = correction_lines(data).get(kind)
    if line is None:
        return None
    made = held_out_ratio(data).only(device=kind)
    inside = [low <= 1 <= high for low, high in made.rows("low", "high")]
    width = float(np.median([math.sqrt(high / low) for low, high in made.rows("low", "high")]))
    return Coverage(len(inside), sum(inside), float(line.ratio.min()), float(line.ratio.max()), width)
