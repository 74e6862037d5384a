"""Model structure: graph depth and width, and the GPU speed-up for recurrent networks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from report.data.dataset import Dataset
from report.estimates import RUNTIMES, Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.rate_arithmetic import BEST_LABELS
from report.quantities.training import speedup

# Metrics by the label `level`: the width at the median level, and at the widest level.
WIDTHS = {"median": "median_width", "widest": "width"}
# Metrics by the label `counted`. The first counts a sum as one operator, the second as a tree of additions.
LEVELS = {"operators": "levels", "operators, sums as trees": "span"}
# RECURRENT: prefix for the LSTMs' names. TRANSFORMER: the transformer whose multiply-adds per byte are closest to the
# LSTM's.
RECURRENT, TRANSFORMER = "lstm-", "gpt-1m"
# Two training steps are comparable if their operation counts differ by at most this factor.
SIMILAR_FACTOR = 1.5
_STEP = ("model", "batch", "baseline", *BEST_LABELS)
_counted_quantity = partial(quantity, experiments=["models"], device="cpu")


def counted_metric(data: Dataset, metric: str) -> Estimates:
    """Return a model property that the experiment `models` counts. It is exact, and equal on every machine."""
    points = data.summary("models", metric).keep_labels("node", "device", "model")
    exact = points.label(low=points["estimate"], high=points["estimate"], se=np.nan, df=np.inf)
    return Estimates(exact.frame, log=False)


def labelled_counts(data: Dataset, label: str, metrics: Mapping[str, str]) -> Estimates:
    """Join several counted properties in one table.

    label: name for the label that tells the properties apart. metrics: metric for each value of that label.
    """
    return concat_estimates([counted_metric(data, metric).label(**{label: name}) for name, metric in metrics.items()])


@_counted_quantity("sequential.parallel_width", "1", ("model", "level"))
def parallel_width(data: Dataset) -> Estimates:
    """Calculations that one sample's forward pass may run at the same time, by model and level.

    A calculation is one multiply-add in a product, or one element in another operator. The model's traced operator
    graph is divided into levels of operators that do not need each other's results. The label `level` is `widest` for
    the count in the widest level, and `median` for the median count over all levels. For a batch, multiply by the batch
    size. The counts come from the graph, so they are equal on every machine.
    """
    return labelled_counts(data, "level", WIDTHS)


@_counted_quantity("sequential.dependent_levels", "1", ("model", "counted"))
def dependent_levels(data: Dataset) -> Estimates:
    """Levels in a model's forward pass that must run one after another.

    An operator waits for all its operands, so the longest operator chain sets the number of levels. counted: in
    `operators`, each operator in the chain counts as one level; in `operators, sums as trees`, each sum over k terms is
    computed as a tree, which adds log2(k) levels and has the least depth possible. The operators are PyTorch's, with
    recurrences unrolled step by step. Operators that only move data do not count.
    """
    return labelled_counts(data, "counted", LEVELS)


@_counted_quantity("models.flop_per_parameter_token", "1", ("model", "of"))
def flop_per_parameter_token(data: Dataset) -> Estimates:
    """FLOP in a sample's products, divided by model parameters and by tokens per sample.

    of: `training` counts the FLOP in a training step, and `inference` those in a forward pass. Parameters include
    embeddings, which are looked up and not multiplied. Attention adds FLOP that grow with the tokens per sample.
    """
    operations = labelled_counts(data, "of", {"training": "step_flop", "inference": "forward_flop"})
    return operations / counted_metric(data, "parameters") / counted_metric(data, "length")


@quantity("sequential.recurrent_over_transformer", "1", _STEP, experiments=["training"], device="both")
def recurrent_over_transformer(data: Dataset) -> Estimates:
    """GPU-over-CPU speed-up for training the LSTM, relative to that for a transformer with similar arithmetic.

    The transformer is gpt-1m, whose multiply-adds per byte match the LSTM's to within a tenth. Each LSTM batch is
    compared to the transformer batch with the nearest operation count per step, within a factor 1.5; `detail` names it.
    Node, baseline and precision are the same. The labels model, batch, runtime and cpu_runtime describe the LSTM.
    """
    operations = data.summary("training", value="flop")
    step_flop = dict(zip(operations.rows("model", "batch"), operations["estimate"], strict=True))
    speedups = speedup(data)
    speedups = speedups.label(step_flop=[step_flop.get(step, np.nan) for step in speedups.rows("model", "batch")])
    recurrent = speedups.take(speedups["model"].astype(str).str.startswith(RECURRENT))
    transformer = speedups.filter(model=TRANSFORMER)
    runtimes = [f"{gpu} over {cpu}" for gpu, cpu in transformer.rows(*RUNTIMES)]
    references = transformer.label(
        other_batch=transformer["batch"], other_flop=transformer["step_flop"], other_runtimes=runtimes
    )
    pairs = recurrent / references.drop_labels("model", "batch", "step_flop")
    distance = (pairs.numbers("other_flop") / pairs.numbers("step_flop")).map(np.log).abs()
    near = distance[distance <= np.log(SIMILAR_FACTOR)]
    keys = [pairs[name][near.index] for name in ("node", "device", "baseline", "precision", "dtype", "model", "batch")]
    nearest = pairs.take(sorted(near.groupby(keys, dropna=False, observed=True).idxmin()))
    detail = [f"over {TRANSFORMER}, batch {int(batch)}, {runtimes}"
              for batch, runtimes in nearest.rows("other_batch", "other_runtimes")]  # fmt: skip
    return nearest.label(detail=detail).drop_labels("step_flop", "other_batch", "other_flop", "other_runtimes")
