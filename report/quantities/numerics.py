"""Quantities of rounding: what the order of the work does to the result of a matrix product."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from report.data.dataset import Dataset
from report.estimates import Estimates, concat, exact
from report.quantities import quantity

_PLACE = ["node", "device", "backend", "dtype", "threads"]
_LABELS = ("method", "dtype", "backend", "threads", "shape", "m", "n", "k")
# What a method changes. A library may do the other too: see `spread_across_cells_ulp`.
ACROSS = ("cell_order", "permuted")
WITHIN = ("summation", "split_k", "threads", "libraries")


def _shaped(cells: Estimates) -> Estimates:
    shape = [f"{m}x{n}x{k}" for m, n, k in cells.frame[["m", "n", "k"]].itertuples(index=False)]
    return cells.label(shape=shape)


def _cells(
    data: Dataset, metric: str, methods: Sequence[str] = (*ACROSS, *WITHIN, "repeat"), least: float = 0.0
) -> Estimates:
    """Cells of a metric that cannot be less than `least`, whatever Student's t says of a few rounds."""
    cells = data.summary("numerics", metric=metric)
    if not len(cells):
        return cells
    cells = _shaped(cells.only(method=methods))
    return Estimates(cells.frame.assign(low=cells.frame["low"].clip(lower=least)), cells.log)


@quantity(
    "numerics.spread_across_cells_ulp",
    unit="ulp",
    needs={"experiments": ["numerics"], "device": "any"},
    labels=_LABELS,
    says="On {node}, changing the order of the cells ({labels}) moves a cell of a matrix product by up to {value}",
)
def spread_across_cells(data: Dataset) -> Estimates:
    """Largest difference in any cell between two orders of the cells, in units in the last place.

    cell_order: a plain loop visits the cells in other orders, alone and with several
    threads; nothing else changes. permuted: a library's product with the rows of A and
    the columns of B in other places. There a library may sum a cell in another order
    because it stands elsewhere, at the edge of a tile, say: a spread says so, and
    nothing of the cells' own order. The unit is that of the result's root mean square.
    """
    return _cells(data, "spread_ulp", ACROSS)


@quantity(
    "numerics.spread_within_cell_ulp",
    unit="ulp",
    needs={"experiments": ["numerics"], "device": "any"},
    labels=_LABELS,
    says="On {node}, changing the order of the additions ({labels}) moves a cell of a matrix product by up to {value}",
)
def spread_within_cell(data: Dataset) -> Estimates:
    """Largest difference in any cell between two orders of its additions, in units in the last place.

    summation and split_k add in other orders for certain; more threads or another
    library (threads, libraries) may keep the order. The unit is that of the result's
    root mean square.
    """
    return _cells(data, "spread_ulp", WITHIN)


@quantity(
    "numerics.error_ulp",
    unit="ulp",
    needs={"experiments": ["numerics"], "device": "any"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) errs by up to {value} in a cell",
)
def error(data: Dataset) -> Estimates:
    """Largest error of a cell in the worst of a method's orders, in units in the last place.

    Against float64; for float64 against a product in twice its precision.
    """
    return _cells(data, "error_ulp")


@quantity(
    "numerics.determinism",
    unit="1",
    needs={"experiments": ["numerics"], "device": "any"},
    labels=("over", *(label for label in _LABELS if label != "method")),
    says="On {node}, the same matrix product ({labels}) comes out in {value} different ways, bit by bit",
)
def determinism(data: Dataset) -> Estimates:
    """Number of different results of one product of the same operands; 1 is determinism.

    over calls: among the repeated calls of one process, as a mean over the rounds. over
    rounds: among the processes that measured this point, counted, from two on.
    """
    calls, rounds = _cells(data, "distinct_results", ("repeat",), least=1), _over_rounds(data)
    among = [calls.without("method").label(over="calls")] if len(calls) else []
    return concat([*among, rounds.label(over="rounds")] if len(rounds) else among)


def _over_rounds(data: Dataset) -> Estimates:
    """Different fingerprints among the rounds of a point that has at least two."""
    samples = data.samples("numerics")
    prints = samples[
        (samples["experiment"] == "numerics") & (samples["metric"] == "fingerprint") & (samples["status"] == "ok")
    ]
    rows: list[dict[str, Any]] = []
    own = data.table[(data.table["experiment"] == "numerics") & (data.table["metric"] == "fingerprint")]
    places: Any = own.groupby([*_PLACE, "params"], observed=True).indices
    for (*values, params), part in prints.groupby([*_PLACE, "params"], sort=True):
        rounds = int(part["round"].nunique())
        if rounds > 1:
            size = {name: value for name, value in json.loads(str(params)).items() if name in ("m", "n", "k")}
            found = {"estimate": float(part["value"].nunique()), "n_rounds": rounds, "n_samples": len(part)}
            source_rows = tuple(own.index[places[(*values, params)]].tolist())
            rows.append({**dict(zip(_PLACE, values, strict=True)), **size, **found, "source_rows": source_rows})
    if not rows:
        return Estimates.empty()
    counted = exact(rows)
    frame = counted.frame.assign(
        n_rounds=[row["n_rounds"] for row in rows], n_samples=[row["n_samples"] for row in rows]
    )
    return _shaped(Estimates(frame, counted.log))
