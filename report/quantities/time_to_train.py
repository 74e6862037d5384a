"""Whole jobs from data to a target accuracy: duration, and how well it was predicted."""

from __future__ import annotations

from functools import partial

import numpy as np

from report.data.dataset import Dataset
from report.data.machine_kinds import nodes_of_kind
from report.derivations import Formula
from report.derived_estimates import concat_derived, quotient
from report.estimates import Estimates
from report.outcomes import ARITHMETIC
from report.quantities import quantity
from report.quantities.derived import arithmetic_quantity
from report.quantities.rate_arithmetic import BEST_LABELS, best_ratios, most_threads
from report.quantities.training import family_rates
from report.quantities.whole_runs import EXPERIMENT, job_rounds, predicted_over_measured, round_estimates

_LABELS = ("job", "dtype", "backend", "threads")
_job_quantity = partial(quantity, tier="derived", experiments=[EXPERIMENT])


@quantity("time_to_train.job_time", "s", _LABELS)
def job_time(data: Dataset) -> Estimates:
    """Seconds for a whole job, from data on disk to the target accuracy on held-out samples.

    If a job gave up before the target in any round, its time is a lower bound, and has no interval.
    """
    table = job_rounds(data)
    times, reached = round_estimates(data, table, table["job_time"], "s"), data.summary(EXPERIMENT, "reached_share")
    gave_up = set(reached.take(reached["estimate"] < 1).rows(*times.labels))
    missed = [job in gave_up for job in times.rows(*times.labels)]
    detail = ["at least: it gave up in some round" if gave_up_here else "" for gave_up_here in missed]
    return times.set_unknown(missed, "low", "high", "se").label(detail=detail)


@_job_quantity("time_to_train.predicted", "s", _LABELS, checked="time_to_train.prediction_error")
def predicted_time(data: Dataset) -> Estimates:
    """Seconds predicted for a job from its parts, each timed alone beforehand.

    The sum is prepare + steps x (step + draw) + test forward passes x forward, where draw is the time to draw a batch.
    The step and test pass counts come from the job itself, because no clock predicts them. Slow first steps and
    interaction between consecutive parts are left out.
    """
    table = job_rounds(data)
    return round_estimates(data, table, table["predicted"], "s")


@_job_quantity("time_to_train.prediction_error", "1", (*_LABELS, "method"), checked=ARITHMETIC, reads=("training",))
def prediction_error(data: Dataset) -> Estimates:
    """|predicted / measured - 1| for the time of whole jobs, by two prediction methods.

    method: `parts` adds up the times for the job's parts, each measured alone; `rate` divides the job's operations by
    its model family's best rate on that device (see `predicted_over_measured`).
    """
    ratios = predicted_over_measured(data)
    middle, low, high = (ratios.numbers(name) - 1 for name in ("estimate", "low", "high"))
    ends = np.abs([low, high])
    least = np.where((low < 0) & (high > 0), 0.0, ends.min(axis=0))
    errors = {"estimate": middle.abs(), "low": least, "high": ends.max(axis=0)}
    return Estimates(ratios.label(**errors, se=ratios["se"] * ratios["estimate"]).frame, log=False)


def fastest_jobs(times: Estimates) -> Estimates:
    """Select the shortest time per job on each device with the most threads; `detail` gives format and library."""
    times = most_threads(times, "node", "device")
    tasks = times.numbers("estimate").groupby([times[name] for name in ("node", "device", "job")], observed=True)
    best = times.take(sorted(tasks.idxmin()))
    detail = [", ".join(filter(None, pair)) for pair in best.rows("dtype", "backend")]
    return best.label(detail=detail).keep_labels("node", "device", "threads", "job")


RATIO = Formula(
    "T = g / l",
    "1",
    {"g": ("best training rate of the GPU", "FLOP/s"), "l": ("best training rate of the laptop", "FLOP/s")},
)


@arithmetic_quantity(
    "time_to_train.ratio", "1", ("baseline", *BEST_LABELS), experiments=["training"], device="gpu", formulas=(RATIO,)
)
def laptop_over_gpu(data: Dataset) -> Estimates:
    """Time for the same fine-tune on the fastest laptop in the data, divided by that on each GPU.

    Operations are equal on both sides, so this is the ratio of the best training rates over all transformers, batches
    and libraries (`training.family_rates`). baseline: laptop, a node with a laptop processor name
    (`machine_kinds.LAPTOP`), with all its cores. precision: equal (the same dtype on both sides) or best (each side's
    fastest dtype). runtime, cpu_runtime: libraries on the GPU and on the laptop. `detail` names the model and batch on
    both sides, and the laptop.
    """
    rates = family_rates(data).filter(family="transformer")
    laptops = rates.filter(device="cpu", node=nodes_of_kind(data, "laptop"))
    labelled = laptops.label(baseline="laptop", named=[data.label(node) for node in laptops["node"]])
    cpu = labelled.drop_labels("node", "device")
    details = ["named", "model", "batch"]
    return concat_derived(
        best_ratios(
            rates.filter(device="gpu").drop_labels("baseline"), cpu, ["baseline"], details, partial(quotient, RATIO)
        )
    )
