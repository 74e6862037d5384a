"""Correction of derived times by jobs that were run whole, and its uncertainty.

**By the best rate.** A published run's time is derived from its operations and its model family's best rate. Runs take
longer: their steps are smaller than those at the best rate, they draw batches and test, and one library does not suit
all steps. The correction is a line fitted to the jobs on logarithmic scales: the ratio of job time to derived time,
against operations. It has a slope because a run that computes more spends a smaller share of its time on anything else.
A run with more operations than the largest job gets the ratio at that job's place on the line. For a published run with
35 to 10^11 times as many operations, that is an extrapolation, which the interval does not hold. The interval is the
prediction interval from linear regression (Student's t) for one further run, so scatter between jobs widens it. Jobs on
all nodes count, but each job only once, with the mean logarithm over nodes.

**By the run's own step.** The time of a run whose own training step was timed is its number of steps times the step's
time. The jobs show how far a sum of parts, each timed alone, misses the time of the whole (`Parts`). Their parts are
timed in the job's own process, and a published run's step in a process of `training`: `held_out_step_ratio` compares
jobs to that step. The longest job takes about an hour. That a run of days keeps the pace of its step is assumed.

Each device kind has its own corrections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from report import statistics
from report.data.dataset import Dataset, cached_per_dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat_estimates, device_kind, merge_source_rows
from report.quantities import quantity
from report.quantities.training import best_rates, samples_per_second
from report.statistics import Floats

EXPERIMENT = "time-to-train"
# Quantities that check derived times: by the best rate, by the job's parts, and by the step that `training` timed.
CHECK, PARTS_CHECK = "time_to_train.held_out", "time_to_train.held_out_parts"
STEP_CHECK = "time_to_train.held_out_step"
# Fewest jobs for a correction.
LEAST_JOBS = 5
# Model family for each job; the family's best rate predicts the job's time. A job that is not listed belongs to no
# family in the published runs.
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
    "bytes-nanogpt-hour": "transformer",
    "bytes-gpt2": "transformer",
    "origin-minilm-l6": "transformer",
}
# Model and batch of a job's training step, by job.
STEP_OF = {
    "digits-mlp": ("mlp", 32),
    "digits-cnn": ("cnn", 32),
    "mnist-resnet": ("resnet", 64),
    "mnist-wide-resnet": ("wide-resnet", 64),
    "mnist-resnet-50": ("resnet-50", 16),
    "bytes-nanogpt-cpu": ("nanogpt-cpu", 12),
    "bytes-nanogpt": ("nanogpt", 64),
    "bytes-nanogpt-hour": ("nanogpt", 64),
    "origin-minilm-l6": ("minilm-l6-classifier", 16),
}
# Metrics, recorded in each round, that predict a job's time.
_PARTS = ["prepare_time", "steps", "step_time", "draw_time", "forward_passes", "forward_time"]
_ROUND = [*POINT, "round"]
_correction_quantity = partial(quantity, experiments=[EXPERIMENT, "training"], tier="derived", checked=CHECK)


def job_rounds(data: Dataset) -> pd.DataFrame:
    """Return each job's observations per round: columns POINT and round, and one per metric."""
    samples = data.samples(EXPERIMENT)
    observed = samples[samples["status"] == "ok"].groupby([*_ROUND, "metric"], observed=True)["value"].median()
    table = observed.unstack("metric").reset_index()
    table = table.reindex(columns=[*_ROUND, "job_time", "job_flop", *_PARTS])
    prepare, steps, step, draw, passes, forward = (table[name] for name in _PARTS)
    return table.assign(predicted=prepare + steps * (step + draw) + passes * forward)


def round_estimates(data: Dataset, table: pd.DataFrame, values: pd.Series, unit: str) -> Estimates:
    """Convert one value per round to estimates whose intervals are over rounds."""
    valid = table.assign(value=values)[values.notna()]
    samples = data.samples(EXPERIMENT)
    first = samples[samples["metric"] == "job_time"].drop(columns="value")
    return data.estimates_from_samples(first.merge(valid[[*_ROUND, "value"]], on=_ROUND).assign(unit=unit))


def predicted_over_measured(data: Dataset) -> Estimates:
    """Divide predicted by measured time for each job, by two methods.

    parts: adds up the times for the job's parts, each measured alone in the same round. rate: divides the job's
    operations by the family's best rate on that device, as the ladder of published runs does.
    """
    table = job_rounds(data)
    parts = round_estimates(data, table, table["predicted"] / table["job_time"], "ratio")
    # Predicted over measured time equals the achieved rate over the family's best rate on the same device and threads.
    achieved = round_estimates(data, table, table["job_flop"] / table["job_time"], "FLOP/s")
    achieved = achieved.label(family=[FAMILY_OF.get(job, "") for job in achieved["job"]])
    rate = (achieved / best_rates(data).drop_labels("baseline")).drop_labels("family")
    return concat_estimates([parts.label(method="parts"), rate.label(method="rate")])


@dataclass(frozen=True)
class Line:
    """Jobs that were run whole: the points through which the line is fitted.

    jobs: job names.
    flop: operations per job.
    ratio: measured over derived time per job.
    rows: summary row numbers behind each job.
    """

    jobs: tuple[str, ...]
    flop: Floats
    ratio: Floats
    rows: tuple[tuple[int, ...], ...] = ()

    def without_job(self, job: int) -> Line:
        """Return the line through the other jobs."""
        others = [index for index in range(len(self.jobs)) if index != job]
        return Line(tuple(self.jobs[index] for index in others), self.flop[others], self.ratio[others])

    def correction(self, flop: float) -> tuple[float, float, float]:
        """Return the correction factor for a run with `flop` operations, its logarithm's standard error, and df."""
        x, y = np.log(self.flop), np.log(self.ratio)
        x_run = math.log(min(max(flop, float(self.flop.min())), float(self.flop.max())))
        middle, spread = x.mean(), float(((x - x.mean()) ** 2).sum())
        slope = float(((x - middle) * y).sum() / spread)
        df = len(x) - 2
        residuals = y - y.mean() - slope * (x - middle)
        variance = float((residuals**2).sum()) / df * (1 + 1 / len(x) + (x_run - middle) ** 2 / spread)
        return math.exp(y.mean() + slope * (x_run - middle)), math.sqrt(variance), float(df)


@dataclass(frozen=True)
class Parts:
    """Jobs that were run whole, beside the sums of their parts, each timed alone.

    jobs: job names.
    ratio: measured over predicted time per job, as the mean logarithm over nodes and formats.
    within: mean squared deviation from this mean logarithm, over nodes and formats, per job.
    rows: summary row numbers behind each job.
    """

    jobs: tuple[str, ...]
    ratio: Floats
    within: Floats
    rows: tuple[tuple[int, ...], ...] = ()

    def without_job(self, job: int) -> Parts:
        """Return the other jobs."""
        others = [index for index in range(len(self.jobs)) if index != job]
        return Parts(tuple(self.jobs[index] for index in others), self.ratio[others], self.within[others])

    def correction(self) -> tuple[float, float, float]:
        """Return the correction factor for a sum of parts, its logarithm's standard error, and df.

        The factor is the jobs' mean. The error is that of one further run on one node, so it contains the scatter
        between jobs and, within a job, between nodes: means over nodes alone would scatter less than runs do. A part of
        this scatter is error of measurement, which makes the interval wider than necessary.
        """
        y, m = np.log(self.ratio), len(self.jobs)
        variance = float(((y - y.mean()) ** 2 + self.within).sum()) / (m - 1)
        return math.exp(y.mean()), math.sqrt(variance * (1 + 1 / m)), float(m - 1)


@cached_per_dataset
def sums_of_parts(data: Dataset) -> dict[str, Parts]:
    """Collect the jobs with timed parts for each device kind (cpu or gpu) with at least LEAST_JOBS such jobs."""
    ratios = predicted_over_measured(data).filter(method="parts")
    columns = ["device", "job", "estimate", "source_rows"]
    frame = pd.DataFrame(ratios.rows(*columns), columns=columns)
    if not len(frame):
        return {}
    frame = frame.assign(kind=frame["device"].map(device_kind), y=-np.log(frame["estimate"]))
    result = {}
    for kind, own in frame.groupby("kind", observed=True):
        jobs = own.groupby("job", sort=True, observed=True)
        if len(jobs) >= LEAST_JOBS:
            rows = tuple(merge_source_rows(rows) for _, rows in jobs["source_rows"])
            ratio, within = np.exp(np.array(jobs["y"].mean(), float)), np.array(jobs["y"].var(ddof=0), float)
            result[str(kind)] = Parts(tuple(map(str, jobs.groups)), ratio, within, rows)
    return result


@cached_per_dataset
def correction_lines(data: Dataset) -> dict[str, Line]:
    """Fit one line for each device kind (cpu or gpu) with at least LEAST_JOBS whole jobs.

    Each job counts in its fastest format.
    """
    ratios = predicted_over_measured(data).filter(method="rate")
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
    best = frame.loc[frame.groupby(["kind", "node", "device", "job"], observed=True)["ratio"].idxmin()]
    lines = {}
    for kind, own in best.groupby("kind", observed=True):
        jobs = own.groupby("job", sort=True, observed=True)
        ratio, flop = (np.exp(jobs[name].agg(lambda values: np.log(values).mean()).to_numpy()) for name in
                       ("ratio", "flop"))  # fmt: skip
        if len(ratio) >= LEAST_JOBS:
            rows = tuple(merge_source_rows(own["rows"]) for _, own in jobs)
            lines[str(kind)] = Line(tuple(jobs.groups), flop, ratio, rows)
    return lines


def correct_estimates(data: Dataset, derived: Estimates, flop: float, inverse: bool = False) -> Estimates:
    """Multiply derived times by the line's correction for a run with `flop` operations, and widen their intervals.

    inverse: the estimates are rates, which are divided by the correction.
    """
    lines = correction_lines(data)
    corrections = {kind: line.correction(flop) for kind, line in lines.items()}
    return _apply_corrections(derived, corrections, {kind: line.rows for kind, line in lines.items()}, inverse)


def correct_sums(data: Dataset, derived: Estimates) -> Estimates:
    """Multiply derived sums of parts by the mean correction for a sum of parts, and widen their intervals."""
    sums = sums_of_parts(data)
    corrections = {kind: parts.correction() for kind, parts in sums.items()}
    return _apply_corrections(derived, corrections, {kind: parts.rows for kind, parts in sums.items()})


def _apply_corrections(
    derived: Estimates,
    corrections: Mapping[str, tuple[float, float, float]],
    rows: Mapping[str, Sequence[tuple[int, ...]]],
    inverse: bool = False,
) -> Estimates:
    """Apply each device kind's correction (factor, standard error, df), which rests on these summary rows.

    Estimates for a device kind with too few whole runs stay uncorrected, without an interval.
    """
    if not len(derived):
        return derived
    kinds = list(map(device_kind, derived["device"]))
    own = [corrections.get(kind, (1.0, math.nan, 0.0)) for kind in kinds]
    factor, se, df = (np.array(values) for values in zip(*own, strict=True))
    both, freedom = statistics.combine(derived["se"], derived["df"], se, df)
    estimate = derived.numbers("estimate") * (1 / factor if inverse else factor)
    behind = {kind: merge_source_rows(jobs) for kind, jobs in rows.items()}
    numbers = [own + behind.get(kind, ()) for own, kind in zip(derived["source_rows"], kinds, strict=True)]
    return Estimates.from_estimates(derived.label(estimate=estimate, se=both, df=freedom, source_rows=numbers).frame)


@_correction_quantity(CHECK, "1", ("job", "flop"))
def held_out_ratio(data: Dataset) -> Estimates:
    """A job's measured time, relative to its derived time, corrected by the line that is fitted to the other jobs.

    The interval is that of the prediction, so a job counts as predicted if its interval contains 1. flop: operations in
    the job. detail: measured time relative to derived time, without correction.
    """
    rows = []
    for kind, line in correction_lines(data).items():
        for index, job in enumerate(line.jobs):
            factor, se, df = line.without_job(index).correction(float(line.flop[index]))
            rows.append(
                {
                    "device": kind, "job": job, "flop": float(f"{line.flop[index]:.3g}"),
                    "estimate": float(line.ratio[index]) / factor, "se": se, "df": df, "n_rounds": 1, "n_samples": 1,
                    "detail": f"{line.ratio[index]:.2g} times without correction", "source_rows": line.rows[index],
                }
            )  # fmt: skip
    return Estimates.from_rows(rows, log=True)


@_correction_quantity(PARTS_CHECK, "1", ("job",), checked=PARTS_CHECK)
def held_out_parts_ratio(data: Dataset) -> Estimates:
    """A job's measured time, relative to the sum of its parts, corrected by what the sums of the other jobs miss.

    The interval is that of the prediction, as in `held_out_ratio`.
    """
    rows = []
    for kind, parts in sums_of_parts(data).items():
        for index, job in enumerate(parts.jobs):
            factor, se, df = parts.without_job(index).correction()
            rows.append(
                {
                    "device": kind, "job": job, "estimate": float(parts.ratio[index]) / factor, "se": se, "df": df,
                    "n_rounds": 1, "n_samples": 1, "detail": "", "source_rows": parts.rows[index],
                }
            )  # fmt: skip
    return Estimates.from_rows(rows, log=True)


@_correction_quantity(STEP_CHECK, "1", ("job", "dtype", "seconds"), checked=STEP_CHECK)
def held_out_step_ratio(data: Dataset) -> Estimates:
    """A job's measured time, relative to its number of steps times the step in `training`, corrected as published runs.

    `training` timed the step on the job's machine, with the job's model, format and library, and the job's batch or the
    largest smaller one. Preparation, draws of batches and tests are left out, as in `ladder.hours_to_train`. The
    correction comes from the sums of the other jobs' parts, and the interval is that of the prediction. seconds: the
    job's time, to three digits.
    """
    table, sums = job_rounds(data), sums_of_parts(data)
    table = table[table["steps"].notna()]
    where = ("node", "device", "dtype", "backend", "threads")
    steps: dict[tuple[Any, ...], dict[int, tuple[float, tuple[int, ...]]]] = {}
    for *point, model, batch, rate, sources in samples_per_second(data).rows(
        *where, "model", "batch", "estimate", "source_rows"
    ):
        steps.setdefault((*point, model), {})[int(batch)] = rate, sources
    times = round_estimates(data, table, table["job_time"], "s").rows(*where, "job", "estimate", "source_rows")
    per_step = round_estimates(data, table, table["job_time"] / table["steps"], "s").numbers("estimate")
    rows = []
    for (*point, job, seconds, sources), step_s in zip(times, per_step, strict=True):
        model, most = STEP_OF.get(job, ("", 0))
        rates = {batch: rate for batch, rate in steps.get((*point, model), {}).items() if batch <= most}
        kind = device_kind(point[1])
        if rates and kind in sums and job in sums[kind].jobs:
            rate, behind = rates[max(rates)]
            factor, se, df = sums[kind].without_job(sums[kind].jobs.index(job)).correction()
            rows.append(
                {
                    "node": point[0], "device": point[1], "job": job, "dtype": point[2],
                    "seconds": float(f"{seconds:.3g}"), "estimate": step_s * rate / most / factor, "se": se, "df": df,
                    "n_rounds": 1, "n_samples": 1, "detail": "", "source_rows": merge_source_rows([sources, behind]),
                }
            )  # fmt: skip
    return Estimates.from_rows(rows, log=True)


@dataclass(frozen=True)
class Coverage:
    """Accuracy of derived times.

    jobs: number of jobs.
    predicted: number of jobs whose time lies in the interval that the other jobs predict.
    shortest, longest: extreme ratios of measured to uncorrected time.
    width: factor from the middle of a prediction interval to its ends, as the median over jobs.
    """

    jobs: int
    predicted: int
    shortest: float
    longest: float
    width: float


def coverage(data: Dataset, kind: str = "cpu") -> Coverage | None:
    """Summarise `held_out_ratio` for a device kind; None without enough jobs."""
    line = correction_lines(data).get(kind)
    return _coverage(held_out_ratio(data).filter(device=kind), line.ratio) if line else None


def parts_coverage(data: Dataset, kind: str = "cpu") -> Coverage | None:
    """Summarise `held_out_parts_ratio` for a device kind; None without enough jobs."""
    parts = sums_of_parts(data).get(kind)
    return _coverage(held_out_parts_ratio(data).filter(device=kind), parts.ratio) if parts else None


def _coverage(held_out: Estimates, uncorrected: Floats) -> Coverage:
    ends = held_out.rows("low", "high")
    width = float(np.median([math.sqrt(high / low) for low, high in ends]))
    inside = sum(low <= 1 <= high for low, high in ends)
    return Coverage(len(ends), inside, float(uncorrected.min()), float(uncorrected.max()), width)
