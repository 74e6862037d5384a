"""Quantities of what a model is made of: how deep and wide its graph is, and what a recurrence costs on a GPU."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import Estimates, concat, exact
from report.quantities import quantity
from report.quantities.training import speedup

_NEEDS = {"experiments": ["models"], "device": "cpu"}
# A level's place among the levels of its graph, and the metric that holds its width.
WIDTHS = {"median": "median_width", "widest": "width"}
# How a level is counted, and the metric: a sum is one operator, or a tree of additions.
LEVELS = {"operators": "levels", "operators, sums as trees": "span"}
# The transformer that takes as many multiply-adds for a byte as the recurrent network does.
RECURRENT, TRANSFORMER = "lstm-", "gpt-1m"
# Steps of like arithmetic: operations within this factor.
LIKE = 1.5
_PAIR = ["node", "device", "baseline", "precision", "dtype"]


def counted(data: Dataset, metric: str) -> Estimates:
    """A property of each model, which the experiment `models` counts: exact, whatever the machine."""
    cells = data.summary("models", metric)
    if not len(cells):
        return cells
    kept = ["node", "device", "model", "estimate", "n_rounds", "n_samples", "source_rows"]
    frame = exact([{str(name): value for name, value in row.items()} for row in cells.frame[kept].to_dict("records")])
    return Estimates(
        frame.frame.assign(n_rounds=cells.frame["n_rounds"], n_samples=cells.frame["n_samples"]), log=False
    )


def _by(data: Dataset, label: str, metrics: dict[str, str]) -> Estimates:
    """Several counted properties under a label that says which."""
    parts = [cells.label(**{label: name}) for name, metric in metrics.items() if len(cells := counted(data, metric))]
    return concat(parts) if parts else Estimates.empty()


@quantity(
    "sequential.parallel_width",
    unit="1",
    needs=_NEEDS,
    labels=("model", "level"),
    says="Counted on {node}: in the {labels} level, {value} calculations of one sample need no result of one another",
)
def parallel_width(data: Dataset) -> Estimates:
    """Calculations of one sample's forward pass that may run at the same moment, by model and level.

    A calculation is one multiply-add of a product, or one element of another operator.
    Levels are those of the operators' graph; level: the widest, or the median, which
    half of all levels do not exceed. The samples of a batch multiply it. Counted from
    the traced graph, and the same on every machine.
    """
    return _by(data, "level", WIDTHS)


@quantity(
    "sequential.dependent_levels",
    unit="1",
    needs=_NEEDS,
    labels=("model", "counted"),
    says="Counted on {node}: in the graph of {labels}, {value} levels wait for one another",
)
def dependent_levels(data: Dataset) -> Estimates:
    """Levels of a model's forward pass of which each needs the last one's results.

    counted: operators in the longest chain, each a level; or a sum of k terms within an
    operator as a tree of log2(k) additions more, the least depth it can have. Operators
    as PyTorch takes the model apart, a recurrence step by step; what only moves data is
    none. An operator waits for the whole of its operands.
    """
    return _by(data, "counted", LEVELS)


@quantity(
    "sequential.recurrent_over_transformer",
    unit="1",
    needs={"experiments": ["training"], "device": "both"},
    labels=("model", "batch", "baseline", "precision", "dtype"),
    says="On {node}, the GPU speeds the recurrent network up {value} times as much as the transformer ({labels})",
)
def recurrent_over_transformer(data: Dataset) -> Estimates:
    """GPU-over-CPU speed-up of training the LSTM over that of training a transformer of like arithmetic.

    The transformer is gpt-1m, whose multiply-adds for a byte are those of the LSTM
    within a tenth. Each point of the LSTM is compared with the batch of the transformer
    whose step takes the nearest number of operations, if that is within a factor of
    1.5; `detail` names it. Same node, baseline and precision. model and batch: the LSTM's, by length.
    """
    cells = speedup(data)
    if not len(cells):
        return cells
    cells = cells.label(step_flop=_step_flop(data, cells.frame))
    models = cells.frame["model"].astype(str)
    recurrent = cells.at(models.str.startswith(RECURRENT).to_numpy(bool))
    transformer = cells.at((models == TRANSFORMER).to_numpy(bool))
    parts = [
        ratio
        for at in range(len(recurrent))
        for ratio in [_over_nearest(recurrent.at([at]), transformer)]
        if len(ratio)
    ]
    return concat(parts) if parts else Estimates.empty()


def _step_flop(data: Dataset, frame: pd.DataFrame) -> list[float]:
    """Operations of a step of each cell's model and batch, which every point of `training` says."""
    rows = data.table[(data.table["experiment"] == "training") & data.table["flop"].notna()]
    params = pd.DataFrame(list(map(_params, rows["params"])), columns=["model", "batch"])
    known = dict(zip(params.itertuples(index=False, name=None), rows["flop"], strict=True))
    return [float(known.get((str(model), int(batch)), np.nan)) for model, batch in frame[["model", "batch"]].to_numpy()]


def _params(text: str) -> tuple[str, int]:
    params: dict[str, Any] = json.loads(text)
    return str(params.get("model", "")), int(params.get("batch", 0))


def _over_nearest(one: Estimates, others: Estimates) -> Estimates:
    """A cell over that one of the others, same in all but model and batch, whose step is nearest in operations."""
    mine = one.frame.iloc[0]
    here, there = (cells.frame[_PAIR].astype(object).where(cells.frame[_PAIR].notna(), "") for cells in (one, others))
    same = (there == here.iloc[0]).all(axis=1)
    apart = np.abs(np.log(others.frame["step_flop"].astype(float) / float(mine["step_flop"])))
    near = apart[same & (apart <= np.log(LIKE))]
    if not len(near):
        return Estimates.empty()
    other = others.at([int(near.idxmin())])
    batch = int(other.frame["batch"].iloc[0])
    ratio = one.without("step_flop") / other.by(*_PAIR)
    return Estimates(ratio.frame.assign(detail=f"over {TRANSFORMER}, batch {batch}"), ratio.log)
