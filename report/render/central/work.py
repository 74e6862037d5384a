"""Work with its operations and bytes counted, and the ceilings of the machines that did it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from report.estimates import Estimates
from report.quantities.ladder import LOOPS
from report.quantities.roofline import arithmetic, bandwidth
from report.render.central.base import Machine, of_all
from report.render.measurements.base import View
from report.render.measurements.marks import known, records

PASSES, PRODUCTS, TRAINING, ANSWERS, PROMPTS, TEXT = (
    "passes over memory", "matrix products", "training steps", "answers", "reading prompts", "writing text",
)  # fmt: skip
KINDS = (TEXT, PASSES, TRAINING, ANSWERS, PROMPTS, PRODUCTS)
# Of an experiment, and of the phase that its parameters name. Experiments whose subject is another one than the work
# (what data lie in it, how many threads are in flight, who else computes it) repeat work that stands here already.
_KIND_OF = {
    ("gemm", ""): PRODUCTS, ("batched", ""): PRODUCTS, ("inference", ""): ANSWERS, ("generation", "prefill"): PROMPTS,
    ("generation", "decode"): TEXT, ("roofline", "training"): TRAINING, ("roofline", "forward"): ANSWERS,
    ("roofline", "prefill"): PROMPTS, ("roofline", "decode"): TEXT,
}  # fmt: skip
# STREAM's triad: a multiply and an add for three elements that move (McCalpin 1995).
_TRIAD_FLOP, _TRIAD_ELEMENTS = 2, 3
_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Point:
    """Work on a machine. x: FLOP per byte; estimate, low, high: FLOP/s; short: a name of few characters."""

    kind: str
    short: str
    name: str
    dtype: str
    x: float
    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Roof:
    """The ceilings of a machine: peaks in FLOP/s and balances in FLOP/B by number format, bandwidth in B/s; cells."""

    peaks: Mapping[str, Mapping[str, Any]]
    balances: Mapping[str, Mapping[str, Any]]
    bandwidth: Mapping[str, Any]

    @property
    def peak(self) -> float:
        return max(float(cell["estimate"]) for cell in self.peaks.values())

    def of(self, points: Sequence[Point]) -> Roof:
        """The same with the peaks of those formats alone in which something was computed, if any is among them."""
        kept = {point.dtype for point in points if point.kind != PASSES} & set(self.peaks) or set(self.peaks)
        peaks, balances = (
            {dtype: cell for dtype, cell in cells.items() if dtype in kept} for cells in (self.peaks, self.balances)
        )
        return Roof(peaks, balances, self.bandwidth)

    def share(self, point: Point) -> float | None:
        """A point's rate over the lower of its two ceilings; None where no peak was measured in its format."""
        peak = self.peaks.get(point.dtype)
        if peak is None:
            return None
        return point.estimate / min(float(peak["estimate"]), point.x * float(self.bandwidth["estimate"]))

    def beyond(self, point: Point) -> bool | None:
        """Whether arithmetic is the lower ceiling; None where that is not known."""
        balance = self.balances.get(point.dtype)
        return None if balance is None else point.x > float(balance["estimate"])


def roofs_of(views: Sequence[View]) -> dict[Machine, Roof]:
    """The ceilings of every device, with the most threads that they were measured with."""
    if not views:
        return {}
    data = views[0].data
    nodes = {view.node for view in views}
    peaks, moved, balances = (
        _with_most_threads(cells) for cells in (arithmetic(data), bandwidth(data), of_all(views, "roofline.balance"))
    )
    found = {}
    for machine, slope in moved.items():
        if machine[0] in nodes and machine in peaks and machine in balances:
            of = [{str(cell["dtype"]): cell for cell in cells[machine]} for cells in (peaks, balances)]
            found[machine] = Roof(of[0], of[1], slope[0])
    return found


def _with_most_threads(cells: Estimates) -> dict[Machine, list[dict[str, Any]]]:
    found: dict[Machine, list[dict[str, Any]]] = {}
    for cell in records(cells):
        found.setdefault((str(cell["node"]), str(cell["device"])), []).append(cell)
    most = {machine: max(int(cell["threads"]) for cell in group) for machine, group in found.items()}
    return {
        machine: [cell for cell in group if int(cell["threads"]) == most[machine]] for machine, group in found.items()
    }


def points_of(views: Sequence[View], machine: Machine) -> list[Point]:
    """The work of a device with all its threads, each at its fastest library."""
    view = next(view for view in views if view.node == machine[0])
    rows = view.rows
    rows = rows[(rows["device"] == machine[1]) & (rows["metric"] == "time") & (rows["flop"] > 0) & (rows["bytes"] > 0)]
    rows = rows[~rows["backend"].isin(LOOPS)]
    if len(rows):
        rows = rows[rows["threads"] == rows["threads"].max()]
    fastest = rows.sort_values("estimate", kind="stable").drop_duplicates(["experiment", "params", "dtype"])
    found = []
    for row in fastest.to_dict("records"):
        params = json.loads(row["params"])
        kind = _KIND_OF.get((str(row["experiment"]), str(params.get("phase", ""))))
        if kind:
            flop = float(row["flop"])
            ends = [known(row[end]) for end in ("high", "low")]
            low, high = (flop / end if end else None for end in ends)
            name, short = _named(params)
            at = flop / float(row["bytes"])
            found.append(Point(kind, short, name, str(row["dtype"]), at, flop / float(row["estimate"]), low, high))
    # The same work of several experiments stands once, at its fastest.
    found = list({(point.kind, point.name, point.dtype): point for point in sorted(found, key=_rate)}.values())
    # Products in formats that no model is measured in say nothing of its work.
    of_models = {point.dtype for point in found if point.kind != PRODUCTS}
    found = [point for point in found if not of_models or point.dtype in of_models]
    return sorted([*found, *_passes(view, machine[1])], key=lambda point: (KINDS.index(point.kind), point.x))


def _rate(point: Point) -> float:
    return point.estimate


def _named(params: Mapping[str, Any]) -> tuple[str, str]:
    """What is computed, in full and short."""
    if "model" in params:
        batch = int(params.get("batch", 1))
        model, after = str(params["model"]), ""
        if params.get("phase") == "decode" and "context" in params:
            after = f" after {int(params['context']):,} tokens"
        return f"{model}, batch {batch:,}{after}", model if batch == 1 else f"{model}, {batch:,}"
    m, n, k = (int(params[side]) for side in ("m", "n", "k"))
    times = f"{int(params['batch']):,} × " if "batch" in params else ""
    return f"{times}{m:,} × {k:,} by {k:,} × {n:,}", f"n = {n:,}" if m == n == k and not times else ""


def _passes(view: View, device: str) -> Iterator[Point]:
    """STREAM's triad over arrays that no cache holds, with the most threads."""
    cells = view.quantity("bandwidth.rate", device=device, backend="best", op="triad")
    for group in _with_most_threads(cells).values():
        for cell in group:
            size = _BYTES.get(str(cell["dtype"]))
            if size:
                at = _TRIAD_FLOP / (_TRIAD_ELEMENTS * size)
                rate, low, high = (known(float(cell[end]) * at) for end in ("estimate", "low", "high"))
                assert rate is not None
                yield Point(PASSES, "triad", "triad", str(cell["dtype"]), at, rate, low, high)
