"""Rounding: how execution order changes a matrix product's result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from report.data.dataset import Dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.gemm import with_shape

_LABELS = ("method", "dtype", "backend", "threads", "shape", "m", "n", "k")
# ACROSS: methods that change the order in which entries are computed. WITHIN: methods that change the order in which an
# entry's terms are added. A library may change both orders, as `spread_across_cells` explains.
ACROSS = ("cell_order", "permuted")
WITHIN = ("summation", "split_k", "threads", "libraries")


def _method_estimates(data: Dataset, metric: str, methods: Sequence[str], least: float = 0.0) -> Estimates:
    """Return a metric for some methods. Lower bounds are raised to `least`, the smallest possible value."""
    estimates = with_shape(data.summary("numerics", metric).filter(method=methods))
    return estimates.label(low=estimates["low"].clip(lower=least))


@quantity("numerics.spread_across_cells_ulp", "ulp", _LABELS)
def spread_across_cells(data: Dataset) -> Estimates:
    """Largest difference in any entry if the entries are computed in another order, in units in the last place.

    cell_order: a plain loop visits the entries in other orders, with one and with several threads; nothing else
    changes. permuted: a library computes the product with permuted rows in A and columns in B. The library may then
    also add an entry's terms in another order, for example at the edge of a tile. In that case, a difference shows this
    change, and says nothing about the order of entries. The unit in the last place is taken at the result's root mean
    square.
    """
    return _method_estimates(data, "spread_ulp", ACROSS)


@quantity("numerics.spread_within_cell_ulp", "ulp", _LABELS)
def spread_within_cell(data: Dataset) -> Estimates:
    """Largest difference in any entry if its terms are added in another order, in units in the last place.

    The methods `summation` and `split_k` always change that order. `threads` (more threads) and `libraries` (another
    library) may keep it. The unit in the last place is taken at the result's root mean square.
    """
    return _method_estimates(data, "spread_ulp", WITHIN)


@quantity("numerics.determinism", "1", ("over", *_LABELS[1:]))
def determinism(data: Dataset) -> Estimates:
    """Number of distinct results from one product with the same operands; 1 means that the product is deterministic.

    over: `calls` counts the results from repeated calls in one process, as a mean over rounds. `rounds` counts the
    results over all processes that measured the point, which are at least two.
    """
    calls = _method_estimates(data, "distinct_results", ("repeat",), least=1)
    return concat_estimates(
        [calls.drop_labels("method").label(over="calls"), _distinct_over_rounds(data).label(over="rounds")]
    )


def _distinct_over_rounds(data: Dataset) -> Estimates:
    """Count the distinct fingerprints over rounds, for products with at least two rounds."""
    estimates = data.summary("numerics", "fingerprint")
    samples = data.samples("numerics")
    prints = samples[(samples["metric"] == "fingerprint") & (samples["status"] == "ok")].astype({"params": str})
    different = prints.groupby(POINT, observed=True)["value"].nunique().rename("different").reset_index()
    points = data.table.loc[[number for (number,) in estimates["source_rows"]], POINT]
    counts = points.astype(object).merge(different.astype(object), how="left", on=POINT)["different"].astype(float)
    estimates = estimates.label(estimate=counts, low=counts, high=counts, se=np.nan, df=np.inf)
    return with_shape(estimates.take(estimates["n_rounds"] > 1).drop_labels("method"))
