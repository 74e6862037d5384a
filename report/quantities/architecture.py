"""Quantities of what a model is made of: how deep and wide its graph is, and what a recurrence costs on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from report.data.dataset import Dataset
from report.estimates import RUNTIMES, Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.rate_arithmetic import BEST_LABELS
from report.quantities.training import speedup

# A level's place among the levels of its graph, and the metric that holds its width.
WIDTHS = {"median": "median_width", "widest": "width"}
# How a level is counted, and the metric: a sum is one operator, or a tree of additions.
LEVELS = {"operators": "levels", "operators, sums as trees": "span"}
# The transformer that takes as many multiply-adds for a byte as the recurrent network does.
RECURRENT, TRANSFORMER = "lstm-", "gpt-1m"
# Steps of like arithmetic: operations within this factor.
SIMILAR_FACTOR = 1.5
_STEP = ("model", "batch", "baseline", *BEST_LABELS)
_counted_quantity = partial(quantity, experiments=["models"], device="cpu")


def counted_metric(data: Dataset, metric: str) -> Estimates:
    """A property of each model, which the experiment `models` counts: exact, whatever the machine."""
    points = data.summary("models", metric).by("node", "device", "model")
    exact = points.label(low=points["estimate"], high=points["estimate"], se=np.nan, df=np.inf)
    return Estimates(exact.frame, log=False)


def labelled_counts(data: Dataset, label: str, metrics: Mapping[str, str]) -> Estimates:
    """Several counted properties under a label that says which."""
    return concat_estimates([counted_metric(data, metric).label(**{label: name}) for name, metric in metrics.items()])


@_counted_quantity("sequential.parallel_width", "1", ("model", "level"))
def parallel_width(data: Dataset) -> Estimates:
    """Calculations of one sample's forward pass that may run at the same moment, by model and level.

    A calculation is one multiply-add of a product, or one element of another operator.
    Levels are those of the operators' graph; level: the widest, or the median, which
    half of all levels do not exceed. The samples of a batch multiply it. Counted from
    the traced graph, and the same on every machine.
    """
    return labelled_counts(data, "level", WIDTHS)


@_counted_quantity("sequential.dependent_levels", "1", ("model", "counted"))
def dependent_levels(data: Dataset) -> Estimates:
    """Levels of a model's forward pass of which each needs the last one's results.

    counted: operators in the longest chain, each a level; or a sum of k terms within an
    operator as a tree of log2(k) additions more, the least depth it can have. Operators
    as PyTorch takes the model apart, a recurrence step by step; what only moves data is
    none. An operator waits for the whole of its operands.
    """
    return labelled_counts(data, "counted", LEVELS)


@_counted_quantity("models.flop_per_parameter_token", "1", ("model", "of"))
def flop_per_parameter_token(data: Dataset) -> Estimates:
    """FLOP of a sample's products over its model's parameters and the tokens of the sample.

    of: training (a step) or inference (a forward pass). Parameters with those of embeddings, which are
    looked up and not multiplied; attention grows with the length besides.
    """
    operations = labelled_counts(data, "of", {"training": "step_flop", "inference": "forward_flop"})
    return operations / counted_metric(data, "parameters") / counted_metric(data, "length")


@quantity("sequential.recurrent_over_transformer", "1", _STEP, experiments=["training"], device="both")
def recurrent_over_transformer(data: Dataset) -> Estimates:
    """GPU-over-CPU speed-up of training the LSTM over that of training a transformer of like arithmetic.

    The transformer is gpt-1m, whose multiply-adds for a byte are those of the LSTM
    within a tenth. Each point of the LSTM is compared with the batch of the transformer
    whose step takes the nearest number of operations, if that is within a factor of
    1.5; `detail` names it. Same node, baseline and precision. model, batch, runtime and cpu_runtime: the LSTM's.
    """
    operations = data.summary("training", value="flop")
    step_flop = dict(zip(operations.rows("model", "batch"), operations["estimate"], strict=True))
    speedups = speedup(data)
    speedups = speedups.label(step_flop=[step_flop.get(step, np.nan) for step in speedups.rows("model", "batch")])
    recurrent = speedups.at(speedups["model"].astype(str).str.startswith(RECURRENT))
    transformer = speedups.only(model=TRANSFORMER)
    runtimes = [f"{gpu} over {cpu}" for gpu, cpu in transformer.rows(*RUNTIMES)]
    others = transformer.label(
        other_batch=transformer["batch"], other_flop=transformer["step_flop"], other_runtimes=runtimes
    )
    pairs = recurrent / others.without("model", "batch", "step_flop")
    apart = (pairs.numbers("other_flop") / pairs.numbers("step_flop")).map(np.log).abs()
    like = apart[apart <= np.log(SIMILAR_FACTOR)]
    point = [pairs[name][like.index] for name in ("node", "device", "baseline", "precision", "dtype", "model", "batch")]
    nearest = pairs.at(sorted(like.groupby(point, dropna=False).idxmin()))
    detail = [f"over {TRANSFORMER}, batch {int(batch)}, {runtimes}"
              for batch, runtimes in nearest.rows("other_batch", "other_runtimes")]  # fmt: skip
    return nearest.label(detail=detail).without("step_flop", "other_batch", "other_flop", "other_runtimes")
