"""Whole jobs from data to a declared accuracy: how long they took, and how well that was predicted."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.data.machines import of_kind
from report.data.summary import POINT
from report.derivations import Formula
from report.derived_estimates import quotient
from report.estimates import Estimates, concat
from report.quantities import quantity, says
from report.quantities.comparing import most_threads
from report.quantities.train_hours import best_rates, hours_to_train

EXPERIMENT = "time-to-train"
_LABELS = ("job", "dtype", "backend", "threads")
_HOUR = 3600.0
# What a round of a job tells.
_PARTS = ["prepare_time", "steps", "step_time", "draw_time", "forward_passes", "forward_time"]
_ROUND = [*POINT, "round"]
# The family whose rate the ladder would take for a job; others are not on the ladder.
FAMILY_OF = {"digits-cnn": "convolutional", "mnist-resnet": "convolutional", "bytes-gpt": "transformer"}
# The jobs of the list of real tasks: fewer would be another list.
_NETWORKS = ("digits-mlp", "digits-cnn", "mnist-resnet", "table-net", "text-classifier", "bytes-gpt")
TASKS = frozenset([*_NETWORKS, "table-boosting", "digits-boosting", "digits-logistic"])
_jobs = partial(quantity, experiments=[EXPERIMENT])


def rounds(data: Dataset) -> pd.DataFrame:
    """What each round of each job observed: columns POINT and round, and one for each metric."""
    samples = data.samples(EXPERIMENT)
    observed = samples[samples["status"] == "ok"].groupby([*_ROUND, "metric"], observed=True)["value"].median()
    table = observed.unstack("metric").reset_index()
    table = table.reindex(columns=[*_ROUND, "job_time", "job_flop", *_PARTS])
    prepare, steps, step, draw, passes, forward = (table[name] for name in _PARTS)
    return table.assign(predicted=prepare + steps * (step + draw) + passes * forward)


def _of_rounds(data: Dataset, table: pd.DataFrame, values: pd.Series, unit: str) -> Estimates:
    """One value a round as cells, with rounds as the unit of the intervals."""
    known = table.assign(value=values)[values.notna()]
    samples = data.samples(EXPERIMENT)
    first = samples[samples["metric"] == "job_time"].drop(columns="value")
    return data.of_samples(first.merge(known[[*_ROUND, "value"]], on=_ROUND).assign(unit=unit))


@_jobs("time_to_train.job_time", "s", _LABELS)
@says("On {node}, a whole job takes {value} to its accuracy ({labels})")
def job_time(data: Dataset) -> Estimates:
    """Seconds of a whole job, from data on disk until its accuracy on held-out samples is reached.

    A job that gave up in some round has no interval: its time is at least that.
    """
    table = rounds(data)
    times, reached = _of_rounds(data, table, table["job_time"], "s"), data.summary(EXPERIMENT, "reached_share")
    gave_up = set(reached.at(reached["estimate"] < 1).rows(*times.labels))
    missed = [job in gave_up for job in times.rows(*times.labels)]
    detail = ["at least: it gave up in some round" if one else "" for one in missed]
    return times.unknown(missed, "low", "high", "se").label(detail=detail)


@_jobs("time_to_train.predicted", "s", _LABELS, tier="derived")
@says("On {node}, a whole job should take {value} ({labels})")
def predicted(data: Dataset) -> Estimates:
    """Seconds that a job should take by its parts, each timed alone before it.

    prepare + steps x (step + draw) + forward passes of its tests x forward. The numbers of steps
    and of tests are those of the job itself: how many it takes to learn, no clock tells. Left out
    are the first steps, which are slower, and whatever the parts do to each other in a row.
    """
    table = rounds(data)
    return _of_rounds(data, table, table["predicted"], "s")


def over_measured(data: Dataset) -> Estimates:
    """Predicted over measured time of each job, by two methods.

    parts: as in `predicted`; both sides of the ratio are of the same round. rate: as the ladder of
    published runs predicts, operations of the job over the best rate of its family on that device.
    """
    table = rounds(data)
    parts = _of_rounds(data, table, table["predicted"] / table["job_time"], "ratio")
    # Of the operations of a job, the rate over the best of its family on the same device with the same threads.
    achieved = _of_rounds(data, table, table["job_flop"] / table["job_time"], "FLOP/s")
    achieved = achieved.label(family=[FAMILY_OF.get(job, "") for job in achieved["job"]])
    rate = (achieved / best_rates(data).without("baseline")).without("family")
    return concat([parts.label(method="parts"), rate.label(method="rate")])


@_jobs("time_to_train.prediction_error", "1", (*_LABELS, "method"), tier="derived")
@says("On {node}, the predicted time of a whole job is off by {value} of the measured one ({labels})")
def prediction_error(data: Dataset) -> Estimates:
    """|predicted / measured - 1| of whole jobs, by the methods of `over_measured`."""
    ratios = over_measured(data)
    middle, low, high = (ratios.numbers(name) - 1 for name in ("estimate", "low", "high"))
    ends = np.abs([low, high])
    least = np.where((low < 0) & (high > 0), 0.0, ends.min(axis=0))
    errors = {"estimate": middle.abs(), "low": least, "high": ends.max(axis=0)}
    return Estimates(ratios.label(**errors, se=ratios["se"] * ratios["estimate"]).frame, log=False)


def fastest(times: Estimates) -> Estimates:
    """The shortest of each task on each device with the most threads; `detail` says how it was done."""
    times = most_threads(times, "node", "device")
    tasks = times.numbers("estimate").groupby([times[name] for name in ("node", "device", "job")])
    best = times.at(sorted(tasks.idxmin()))
    detail = [", ".join(filter(None, pair)) for pair in best.rows("dtype", "backend")]
    return best.label(detail=detail).by("node", "device", "threads", "job")


@_jobs("time_to_train.hours", "h", ("job", "evidence", "threads"), tier="derived", experiments=[EXPERIMENT, "training"])
@says("On {node}, training takes {value} ({labels})")
def hours(data: Dataset) -> Estimates:
    """Hours of each task of one list, a cell a task: whole jobs as measured, published runs as derived.

    evidence: measured (the study's jobs in the fastest format and library) or derived (the ladder
    of `ladder.hours_to_train`). Only of devices that have run all of TASKS and have a ladder: which
    tasks are on the list decides what it says.
    """
    measured, ladder = fastest(job_time(data)) / _HOUR, hours_to_train(data)
    derived = ladder.label(job=ladder["run"]).without("run", "flop", "baseline")
    both = concat([measured.label(evidence="measured"), derived.label(evidence="derived")])
    # Published runs beside all of the jobs.
    whole = both["job"].groupby([both["node"], both["device"]]).transform(lambda jobs: set(jobs) > TASKS)
    return both.at(whole.astype(bool))


RATIO = Formula(
    "T = g / l",
    "1",
    {"g": ("best training rate of the GPU", "FLOP/s"), "l": ("best training rate of the laptop", "FLOP/s")},
)


@quantity(
    "time_to_train.ratio", "1", ("baseline",), experiments=["training"], device="gpu", tier="derived", formulas=(RATIO,)
)
@says("A fine-tune of a transformer takes a laptop {value} times as long as the GPU of {node} ({labels})")
def ratio(data: Dataset) -> Estimates:
    """Time of one and the same fine-tune on the fastest laptop of the data over that on each GPU.

    The operations are the same on both sides, so that it is the ratio of the best training rates of
    any transformer, batch, format and library (`best_rates`). baseline: laptop, a node whose
    processor bears a laptop's name (`machines.LAPTOP`), with all its cores.
    """
    rates = best_rates(data).only(family="transformer")
    laptops = rates.only(device="cpu", node=of_kind(data, "laptop"))
    named = laptops.label(baseline="laptop", named=[f"over {data.label(node)}" for node in laptops["node"]])
    best = named.best(["baseline"], of=["named"])
    ratios = quotient(RATIO, rates.only(device="gpu").without("threads", "baseline", "family"), best)
    return ratios.label(detail=best["detail"].tolist() * len(ratios))
