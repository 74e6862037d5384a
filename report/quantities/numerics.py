"""Quantities of rounding: what the order of the work does to the result of a matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from report.data.dataset import Dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity
from report.quantities.gemm import with_shape

_LABELS = ("method", "dtype", "backend", "threads", "shape", "m", "n", "k")
# What a method changes. A library may do the other too: see `spread_across_cells_ulp`.
ACROSS = ("cell_order", "permuted")
WITHIN = ("summation", "split_k", "threads", "libraries")


def _method_estimates(data: Dataset, metric: str, methods: Sequence[str], least: float = 0.0) -> Estimates:
    """A metric that cannot be less than `least`, whatever Student's t says of a few rounds."""
    found = with_shape(data.summary("numerics", metric).only(method=methods))
    return found.label(low=found["low"].clip(lower=least))


@quantity("numerics.spread_across_cells_ulp", "ulp", _LABELS)
def spread_across_cells(data: Dataset) -> Estimates:
    """Largest difference in any entry between two orders of the entries, in units in the last place.

    cell_order: a plain loop visits the entries in other orders, alone and with several
    threads; nothing else changes. permuted: a library's product with the rows of A and
    the columns of B in other places. There a library may sum an entry in another order
    because it stands elsewhere, at the edge of a tile, say: a spread says so, and
    nothing of the entries' own order. The unit is that of the result's root mean square.
    """
    return _method_estimates(data, "spread_ulp", ACROSS)


@quantity("numerics.spread_within_cell_ulp", "ulp", _LABELS)
def spread_within_cell(data: Dataset) -> Estimates:
    """Largest difference in any entry between two orders of its additions, in units in the last place.

    summation and split_k add in other orders for certain; more threads or another
    library (threads, libraries) may keep the order. The unit is that of the result's
    root mean square.
    """
    return _method_estimates(data, "spread_ulp", WITHIN)


@quantity("numerics.determinism", "1", ("over", *_LABELS[1:]))
def determinism(data: Dataset) -> Estimates:
    """Number of different results of one product of the same operands; 1 is determinism.

    over calls: among the repeated calls of one process, as a mean over the rounds. over
    rounds: among the processes that measured this point, counted, from two on.
    """
    calls = _method_estimates(data, "distinct_results", ("repeat",), least=1)
    return concat_estimates(
        [calls.without("method").label(over="calls"), _distinct_over_rounds(data).label(over="rounds")]
    )


def _distinct_over_rounds(data: Dataset) -> Estimates:
    """How many different fingerprints the rounds of a product left, of products with at least two rounds."""
    found = data.summary("numerics", "fingerprint")
    samples = data.samples("numerics")
    prints = samples[(samples["metric"] == "fingerprint") & (samples["status"] == "ok")].astype({"params": str})
    different = prints.groupby(POINT, observed=True)["value"].nunique().rename("different").reset_index()
    points = data.table.loc[[number for (number,) in found["source_rows"]], POINT]
    counts = points.astype(object).merge(different.astype(object), how="left", on=POINT)["different"].astype(float)
    found = found.label(estimate=counts, low=counts, high=counts, se=np.nan, df=np.inf)
    return with_shape(found.at(found["n_rounds"] > 1).without("method"))
