"""Whole jobs from data to a declared accuracy: how long they took, and how well that was predicted."""

from __future__ import annotations

import pandas as pd

from report.data.dataset import Dataset
from report.data.machines import of_kind
from report.data.summary import POINT
from report.derivations import Formula
from report.derived_estimates import quotient
from report.estimates import Estimates, concat
from report.quantities import quantity
from report.quantities.train_hours import best_rates, hours_to_train

EXPERIMENT = "time-to-train"
_LABELS = ("job", "dtype", "backend", "threads")
_NEEDS = {"experiments": [EXPERIMENT], "device": "any"}
_HOUR = 3600.0

# The family whose rate the ladder would take for a job; others are not on the ladder.
FAMILY_OF = {"digits-cnn": "convolutional", "mnist-resnet": "convolutional", "bytes-gpt": "transformer"}
# The jobs of the list of real tasks: fewer would be another list.
TASKS = frozenset(
    {
        "digits-mlp", "digits-cnn", "mnist-resnet", "table-net", "text-classifier", "bytes-gpt", "table-boosting",
        "digits-boosting", "digits-logistic",
    }
)  # fmt: skip


def rounds(data: Dataset) -> pd.DataFrame:
    """What each round of each job observed: columns POINT and round, and one for each metric."""
    samples = data.samples(EXPERIMENT)
    seen = samples[(samples["experiment"] == EXPERIMENT) & (samples["status"] == "ok")]
    if not len(seen):
        return pd.DataFrame(columns=[*POINT, "round", "job_time", "predicted"])
    table = seen.pivot_table(index=[*POINT, "round"], columns="metric", values="value", aggfunc="median").reset_index()
    table.columns.name = None
    parts = ["prepare_time", "steps", "step_time", "draw_time", "forward_passes", "forward_time"]
    if set(parts) <= set(table.columns):
        prepare, steps, step, draw, passes, forward = (table[name] for name in parts)
        table["predicted"] = prepare + steps * (step + draw) + passes * forward
    else:
        table["predicted"] = float("nan")
    return table


def _cells(data: Dataset, table: pd.DataFrame, values: pd.Series, unit: str) -> Estimates:
    """One value a round as cells, with rounds as the unit of the intervals."""
    known = table.assign(value=values)[values.notna()]
    if not len(known):
        return Estimates.empty()
    samples = data.samples(EXPERIMENT)
    first = samples[(samples["experiment"] == EXPERIMENT) & (samples["metric"] == "job_time")]
    rows = first.drop(columns="value").merge(known[[*POINT, "round", "value"]], on=[*POINT, "round"])
    return data.of_samples(rows.assign(unit=unit))


@quantity(
    "time_to_train.job_time",
    unit="s",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, a whole job takes {value} to its accuracy ({labels})",
)
def job_time(data: Dataset) -> Estimates:
    """Seconds of a whole job, from data on disk until its accuracy on held-out samples is reached.

    A job that gave up in some round has no interval: its time is at least that.
    """
    table = rounds(data)
    if not len(table):
        return Estimates.empty()
    cells = _cells(data, table, table["job_time"], "s")
    reached = data.summary(EXPERIMENT, "reached_share").frame
    named = [name for name in cells.labels if name in reached]
    kept = cells.frame.merge(reached[[*named, "estimate"]].rename(columns={"estimate": "reached"}), how="left")
    missed = (kept.pop("reached") < 1).to_numpy(bool)
    gone = {name: kept[name].mask(missed) for name in ("low", "high", "se")}
    return Estimates(
        kept.assign(**gone, detail=["at least: it gave up in some round" if one else "" for one in missed])
    )


@quantity(
    "time_to_train.predicted",
    unit="s",
    tier="derived",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, a whole job should take {value} ({labels})",
)
def predicted(data: Dataset) -> Estimates:
    """Seconds that a job should take by its parts, each timed alone before it.

    prepare + steps x (step + draw) + forward passes of its tests x forward. The numbers of steps
    and of tests are those of the job itself: how many it takes to learn, no clock tells. Left out
    are the first steps, which are slower, and whatever the parts do to each other in a row.
    """
    table = rounds(data)
    return _cells(data, table, table["predicted"], "s") if len(table) else Estimates.empty()


def over_measured(data: Dataset) -> Estimates:
    """Predicted over measured time of each job, by two methods.

    parts: as in `predicted`; both sides of the ratio are of the same round. rate: as the ladder of
    published runs predicts, operations of the job over the best rate of its family on that device.
    """
    table = rounds(data)
    if not len(table):
        return Estimates.empty()
    found = []
    parts = _cells(data, table, table["predicted"] / table["job_time"], "ratio")
    if len(parts):
        found.append(parts.label(method="parts"))
    by_rate = _by_rate(data, table)
    if len(by_rate):
        found.append(by_rate.label(method="rate"))
    return concat(found) if found else Estimates.empty()


def _by_rate(data: Dataset, table: pd.DataFrame) -> Estimates:
    """The rate of each job over the best of its family on the same device with the same threads."""
    rates = best_rates(data)
    if "job_flop" not in table or not len(rates):
        return Estimates.empty()
    achieved = _cells(data, table, table["job_flop"] / table["job_time"], "FLOP/s")
    if not len(achieved):
        return achieved
    achieved = achieved.label(family=[FAMILY_OF.get(str(job), "") for job in achieved.frame["job"]])
    # `baseline` is empty on a GPU, and says nothing that threads do not.
    return (achieved / rates.without(*({"baseline"} & set(rates.labels)))).without("family")


@quantity(
    "time_to_train.prediction_error",
    unit="1",
    tier="derived",
    needs=_NEEDS,
    labels=(*_LABELS, "method"),
    says="On {node}, the predicted time of a whole job is off by {value} of the measured one ({labels})",
)
def prediction_error(data: Dataset) -> Estimates:
    """|predicted / measured - 1| of whole jobs, by the methods of `over_measured`."""
    cells = over_measured(data)
    if not len(cells):
        return cells
    frame = cells.frame
    low, high = (frame["low"] - 1).astype(float), (frame["high"] - 1).astype(float)
    ends = pd.concat([low.abs(), high.abs()], axis=1)
    least = ends.min(axis=1, skipna=False).mask((low < 0) & (high > 0), 0.0)
    error = (frame["estimate"].astype(float) - 1).abs()
    se = frame["se"] * frame["estimate"]
    return Estimates(frame.assign(estimate=error, low=least, high=ends.max(axis=1, skipna=False), se=se), log=False)


def fastest(cells: Estimates) -> Estimates:
    """The shortest of each task on each device with the most threads; `detail` says how it was done."""
    most = cells.frame["threads"].astype(float)
    cells = cells.at((most == most.groupby([cells.frame["node"], cells.frame["device"]]).transform("max")).to_numpy())
    order = cells.frame.sort_values("estimate", kind="stable")
    first = order.groupby(["node", "device", "job"], sort=True).head(1).sort_index()
    detail = [", ".join(filter(None, pair)) for pair in zip(first["dtype"], first["backend"], strict=True)]
    kept = ["node", "device", "threads", "job", *(name for name in first.columns if name not in cells.labels)]
    return Estimates(first.assign(detail=detail)[kept].reset_index(drop=True), cells.log)


@quantity(
    "time_to_train.hours",
    unit="h",
    tier="derived",
    needs={"experiments": [EXPERIMENT, "training"], "device": "any"},
    labels=("job", "evidence", "threads"),
    says="On {node}, training takes {value} ({labels})",
)
def hours(data: Dataset) -> Estimates:
    """Hours of each task of one list, a cell a task: whole jobs as measured, published runs as derived.

    evidence: measured (the study's jobs in the fastest format and library) or derived (the ladder
    of `ladder.hours_to_train`). Only of devices that have run all of TASKS and have a ladder: which
    tasks are on the list decides what it says.
    """
    jobs, ladder = job_time(data), hours_to_train(data)
    if not len(jobs) or not len(ladder):
        return Estimates.empty()
    measured = fastest(jobs) * (1 / _HOUR)
    names = [name for name in ("flop", "baseline") if name in ladder.labels]
    derived = ladder.label(job=ladder.frame["run"]).without("run", *names)
    both = concat([measured.label(evidence="measured"), derived.label(evidence="derived")])
    ran = both.frame.groupby(["node", "device"])["job"]
    whole = ran.transform(lambda names: set(names) >= TASKS and not set(names) <= TASKS)
    return both.at(whole.to_numpy(bool))


RATIO = Formula(
    "T = g / l",
    "1",
    {"g": ("best training rate of the GPU", "FLOP/s"), "l": ("best training rate of the laptop", "FLOP/s")},
)


@quantity(
    "time_to_train.ratio",
    unit="1",
    tier="derived",
    needs={"experiments": ["training"], "device": "gpu"},
    labels=("baseline",),
    says="A fine-tune of a transformer takes a laptop {value} times as long as the GPU of {node} ({labels})",
    formulas=(RATIO,),
)
def ratio(data: Dataset) -> Estimates:
    """Time of one and the same fine-tune on the fastest laptop of the data over that on each GPU.

    The operations are the same on both sides, so that it is the ratio of the best training rates of
    any transformer, batch, format and library (`best_rates`). baseline: laptop, a node whose
    processor bears a laptop's name (`machines.LAPTOP`), with all its cores.
    """
    rates, laptops = best_rates(data), of_kind(data, "laptop")
    if not len(rates) or not laptops:
        return Estimates.empty()
    rates = rates.only(family="transformer")
    gpus, cpus = rates.only(device="gpu"), rates.only(device="cpu", node=laptops)
    if not len(gpus) or not len(cpus):
        return Estimates.empty()
    named = [f"over {data.label(node)}" for node in cpus.frame["node"]]
    best = cpus.label(baseline="laptop", named=named).best(["baseline"], of=["named"])
    names = [name for name in ("threads", "baseline", "family") if name in gpus.labels]
    return quotient(RATIO, gpus.without(*names), best).label(detail=best.frame["detail"].iloc[0])
