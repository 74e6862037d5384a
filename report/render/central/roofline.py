"""The roofline of each device: all work whose operations and bytes are counted, under its measured ceilings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report.estimates import device_kind
from report.formatting import capital, count, interval, number, several, with_unit
from report.render.central import placed
from report.render.central.base import Central, Shown, deciding, fastest, machine_names
from report.render.central.work import KINDS, PASSES, PRODUCTS, Machine, Point, Roof, points_of, roofs_of
from report.render.figures import Drawing, without_interval
from report.render.measurements.base import NOTHING, Table, View
from report.render.measurements.marks import colours, formats, stated
from report.render.words import LEVEL

_DECIDES = (
    "roofline.memory_bound_share", "roofline.intensity_over_balance", "roofline.prediction_error",
    "roofline.bandwidth_error_over_compute_error", "roofline.spread_over_gpus", "gemm.peak_share", "training.mfu",
)  # fmt: skip
# Number formats that have a ring.
_WIDE = ("float32", "float64")


def show(views: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """A panel for each device."""
    roofs = roofs_of(views)
    chosen = fastest(views, {machine: roof.peak for machine, roof in roofs.items()})
    points = {machine: found for machine in chosen if (found := points_of(views, machine))}
    if not points:
        return None
    roofs = {machine: roofs[machine].of(found) for machine, found in points.items()}
    names = machine_names(views, points)
    return Shown(
        _title(points, roofs),
        [*_balances(roofs, names), *_reached(points, roofs, names)],
        _drawing(points, roofs, names),
        _table(points, roofs, names),
        deciding(document, *_DECIDES),
    )


def _title(points: Mapping[Machine, Sequence[Point]], roofs: Mapping[Machine, Roof]) -> str:
    """Which kinds of work lie on one side of the balance, on all devices."""
    sides: dict[str, set[bool]] = {}
    for machine, found in points.items():
        for point in found:
            beyond = roofs[machine].beyond(point)
            if beyond is not None:
                sides.setdefault(point.kind, set()).add(beyond)
    memory, maths = ([kind for kind in KINDS if sides.get(kind) == {beyond}] for beyond in (False, True))
    told = []
    if memory:
        told.append(f"memory is the lower ceiling of {several(memory)}")
    if maths:
        told.append(f"arithmetic that of {several(maths)}" if memory else f"arithmetic is that of {several(maths)}")
    both = [kind for kind in KINDS if len(sides.get(kind, ())) > 1]
    if both and told:
        told.append(f"{several(both)} lie on both sides")
    return capital("; ".join(told)) if told else "Each kind of work lies on both sides of the machine's balance"


def _balances(roofs: Mapping[Machine, Roof], names: Mapping[Machine, str]) -> Iterator[str]:
    """Below which intensity memory is the lower ceiling, of the fastest machine of each kind."""
    ranked = sorted(roofs, key=lambda machine: roofs[machine].peak)
    for machine in {device_kind(machine[1]): machine for machine in ranked}.values():
        roof = roofs[machine]
        told = [f"{stated(roof.balances[dtype], 'FLOP/B')} in {dtype}" for dtype in formats(roof.balances)]
        less = several(told, "or")
        yield f"Work that does less for each byte than {less} is held up by the memory of {names[machine]}."


def _reached(
    points: Mapping[Machine, Sequence[Point]], roofs: Mapping[Machine, Roof], names: Mapping[Machine, str]
) -> Iterator[str]:
    """How near to the lower of its ceilings the work of models comes, and that caches may carry it above.

    Products and passes are what the ceilings are taken from.
    """
    shares = [
        (share, machine, point)
        for machine, found in points.items()
        for point in found
        if point.kind not in (PASSES, PRODUCTS) and (share := roofs[machine].share(point)) is not None
    ]
    under = sorted((one for one in shares if one[0] <= 1), key=lambda one: one[0])
    if len(under) > 1:
        ends = [
            f"{number(100 * share, 2)}% ({_called(point, machine, names)})"
            for share, machine, point in (under[0], under[-1])
        ]
        above = len(shares) - len(under)
        caches = f"; {above:,} of {len(shares):,} lie above it, as work on what caches hold may" if above else ""
        yield f"Of the lower of its ceilings the work of models reaches from {ends[0]} to {ends[1]}{caches}."


def _called(point: Point, machine: Machine, names: Mapping[Machine, str]) -> str:
    where = f", {names[machine]}" if len(names) > 1 else ""
    return f"{point.kind}: {point.name}, {point.dtype}{where}"


def _drawing(
    points: Mapping[Machine, Sequence[Point]], roofs: Mapping[Machine, Roof], names: Mapping[Machine, str]
) -> Drawing:
    looks = colours(list(KINDS))
    there = {point.kind for found in points.values() for point in found}
    panels = []
    for machine, found in points.items():
        labelled = _labelled(found, roofs[machine])
        panels.append(
            {
                "title": names[machine] if len(names) > 1 else "",
                "roof": _roof(roofs[machine]),
                "points": [
                    {
                        "x": point.x, "y": point.estimate, "low": point.low, "high": point.high,
                        "look": looks[point.kind], "ring": point.dtype not in _WIDE,
                        "label": point.short if point in labelled else "", "told": _words(point),
                    }
                    for point in found
                ],
            }
        )  # fmt: skip
    legend = [{"label": kind, "look": looks[kind]} for kind in KINDS if kind in there]
    shows = {"panels": panels, "legend": legend, "x": "FLOP for each byte to be moved", "y": "rate"}
    every = [point for found in points.values() for point in found]
    bare = sum(point.low is None or point.high is None for point in every)
    ringed = any(point.dtype not in _WIDE for point in every)
    caption = (
        f"Rates of {count(len(every), 'piece')} of work over the operations that they do for each byte which they "
        f"have to move, with {LEVEL} intervals, all threads at work, each at its fastest library"
        f"{'; marks with a ring compute in a narrow number format' if ringed else ''}. Dashed: the bandwidth of "
        f"memory, and the peak of arithmetic in each format, as measured. {several(list(names.values()))}."
    )
    caption += without_interval(bare, len(every))
    return Drawing(FIGURE.name, shows, placed.draw, _alt(points, roofs, names), caption)


def _labelled(found: Sequence[Point], roof: Roof) -> list[Point]:
    """Of each kind the fastest work, that of the lowest intensity, and that furthest below its ceiling."""
    chosen: list[Point] = []
    for kind in KINDS:
        mine = [point for point in found if point.kind == kind and point.short]
        ends = [
            max(mine, key=lambda point: point.estimate, default=None),
            min(mine, key=lambda point: point.x, default=None),
            min(mine, key=lambda point: roof.share(point) or 1.0, default=None),
        ]
        # A name that stands twice tells nothing apart.
        chosen += {point.short: point for point in reversed(ends) if point}.values()
    return chosen


def _words(point: Point) -> str:
    rate = interval(point.estimate, point.low, point.high, "FLOP/s")
    return f"{capital(point.kind)}: {point.name}, {point.dtype}: {rate} at {with_unit(point.x, 'FLOP/B')}"


def _roof(roof: Roof) -> dict[str, Any]:
    levels = [
        {"y": float(roof.peaks[dtype]["estimate"]), "x": float(roof.balances[dtype]["estimate"]),
         "label": f"{dtype} {with_unit(float(roof.peaks[dtype]['estimate']), 'FLOP/s')}"}
        for dtype in formats(roof.peaks) if dtype in roof.balances
    ]  # fmt: skip
    moved = float(roof.bandwidth["estimate"])
    return {"levels": levels, "slope": moved, "label": f"memory {with_unit(moved, 'B/s')}"}


def _alt(points: Mapping[Machine, Sequence[Point]], roofs: Mapping[Machine, Roof], names: Mapping[Machine, str]) -> str:
    """The figure in words: ceilings, and the range of each kind of work."""
    told = []
    for machine, found in points.items():
        roof = roofs[machine]
        peaks = several([f"{stated(roof.peaks[dtype], 'FLOP/s')} in {dtype}" for dtype in formats(roof.peaks)])
        said = f"{names[machine]}: bandwidth {stated(roof.bandwidth, 'B/s')}, peak {peaks}."
        for kind in KINDS:
            mine = [point for point in found if point.kind == kind]
            if mine:
                ranges = f"{_range(mine, 'x', 'FLOP/B')}, {_range(mine, 'estimate', 'FLOP/s')}"
                said += f" {capital(kind)} ({len(mine)}): {ranges}."
        told.append(said)
    return f"Rates of work over its operations for each byte, under measured ceilings. {' '.join(told)}"


def _range(found: Sequence[Point], name: str, unit: str) -> str:
    low, high = (with_unit(end(getattr(point, name) for point in found), unit) for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _table(
    points: Mapping[Machine, Sequence[Point]], roofs: Mapping[Machine, Roof], names: Mapping[Machine, str]
) -> Table:
    """Each kind of work on each machine: how many points, their range, and the one nearest to its ceiling."""
    rows = []
    for machine, found in points.items():
        for kind in KINDS:
            mine = [point for point in found if point.kind == kind]
            if not mine:
                continue
            shared = [(share, point) for point in mine if (share := roofs[machine].share(point)) is not None]
            best = max(shared, key=lambda one: one[0], default=None)
            rows.append(
                [
                    names[machine], kind, f"{len(mine):,}", _range(mine, "x", "FLOP/B"),
                    _range(mine, "estimate", "FLOP/s"),
                    f"{best[1].name}, {best[1].dtype}" if best else NOTHING,
                    interval(best[1].estimate, best[1].low, best[1].high, "FLOP/s") if best else NOTHING,
                    f"{number(100 * best[0], 2)}%" if best else NOTHING,
                ]
            )  # fmt: skip
    return Table(
        f"Work under the roofline, kind by kind, with {LEVEL} intervals. Nearest: that with the largest share of the "
        "lower of its ceilings; above them lies what caches hold",
        ["Machine", "Kind", "Points", "Intensity", "Rate", "Nearest to its ceiling", "Its rate", "Share"],
        rows, "llrrrlrr", [14, 14, 6, 16, 18, 18, 20, 8],
    )  # fmt: skip


FIGURE = Central("roofline", show)
