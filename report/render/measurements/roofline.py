"""The roofline: what steps reach under the machine's two ceilings, and on which side of its balance their time goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from report.formatting import capital, count, interval, number, several, with_unit
from report.quantities.roofline import arithmetic, bandwidth, distribution
from report.render import stacks, sweep
from report.render.figures import AMBER, BLUE, VERMILION
from report.render.measurements import foretold
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import colours, filled, formats, known, records, series, stated
from report.render.words import LEVEL

PHASES = {
    "training": "training steps", "forward": "forward passes", "prefill": "reading prompts",
    "decode": "generating text",
}  # fmt: skip
_PRODUCTS = "matrix products"
# An operator of less than this share of the balance is far from needing the arithmetic that there is.
FAR = 0.25


def show(view: View) -> Iterable[Exhibit]:
    """For each device the roofline with its steps, their time by intensity, and what few numbers foretell."""
    for device in view.devices():
        steps = _steps(view, device)
        if len(steps):
            ceilings = _ceilings(view, device, int(steps["threads"].max()))
            steps = steps[steps["dtype"].isin(list(ceilings)) & (steps["threads"] == steps["threads"].max())]
            if len(steps):
                yield _roofline(view, device, steps, ceilings)
                yield from _time(view, device, steps, ceilings)
        yield from foretold.show(view, device)


def _steps(view: View, device: str) -> pd.DataFrame:
    """The steps that were timed, as rows with their model, batch and phase; FLOP and bytes counted."""
    rows = view.of("roofline", "time", device)
    return rows[(rows["flop"] > 0) & (rows["bytes"] > 0)] if len(rows) else rows


def _ceilings(view: View, device: str, threads: int) -> dict[str, dict[str, Any]]:
    """Peak and bandwidth with the balance of both, by number format."""
    at = {"device": device, "threads": threads}
    peaks, moved = (records(view.pick(cells, **at)) for cells in (arithmetic(view.data), bandwidth(view.data)))
    found = {str(cell["dtype"]): cell for cell in records(view.quantity("roofline.balance", **at))}
    return {
        str(peak["dtype"]): {"peak": peak, "bandwidth": moved[0], "balance": found[str(peak["dtype"])]}
        for peak in peaks
        if moved and str(peak["dtype"]) in found
    }


def _points(rows: pd.DataFrame) -> dict[str, list[Any]]:
    """FLOP/s over FLOP per byte, with intervals; the shortest time is the highest rate."""
    rows = rows.assign(x=rows["flop"] / rows["bytes"]).sort_values("x")
    ends = {name: [known(flop / one) for flop, one in zip(rows["flop"], rows[end], strict=True)]
            for name, end in (("y", "estimate"), ("low", "high"), ("high", "low"))}  # fmt: skip
    return {"xs": [float(x) for x in rows["x"]], **ends}


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _roofline(view: View, device: str, steps: pd.DataFrame, ceilings: Mapping[str, Mapping[str, Any]]) -> Exhibit:
    """A panel for each number format: both ceilings, products and steps."""
    products = view.of("gemm", "time", device)
    looks = colours([_PRODUCTS, *PHASES])
    panels, told = [], []
    for dtype in formats(steps["dtype"]):
        here = ceilings[dtype]
        mine = steps[steps["dtype"] == dtype]
        parts = {phase: mine[mine["phase"] == phase] for phase in PHASES}
        lines = [series(_points(part), PHASES[phase], looks[phase], joined=False) for phase, part in parts.items()]
        if len(products):
            same = products[(products["dtype"] == dtype) & (products["threads"] == steps["threads"].max())]
            best = same[(same["bytes"] > 0)].sort_values("estimate").drop_duplicates(["m", "n", "k"])
            lines.append(series(_points(best), _PRODUCTS, looks[_PRODUCTS], hollow=True, joined=False))
        lines = filled(lines)
        balance = float(here["balance"]["estimate"])
        xs = [x for line in lines for x in line["xs"]]
        low, high = min([*xs, balance / 2]), max([*xs, balance * 2])
        peak, moved = float(here["peak"]["estimate"]), float(here["bandwidth"]["estimate"])
        roof = {"xs": [low, balance, high], "ys": [low * moved, peak, peak], "label": ""}
        panels.append(
            {"title": dtype, "series": lines, "guides": [roof], "marks": [{"x": balance, "label": "balance"}]}
        )
        told.append(f"{stated(here['balance'], 'FLOP/B')} in {dtype}")
    shows = {
        "panels": panels, "x": "FLOP per byte", "y": "rate", "unit": "FLOP/s", "base": 10, "narrow": len(panels) == 1,
    }  # fmt: skip
    caption = (
        "Rate of products and of whole steps over the operations that they do for each byte which their operators have "
        f"to move, with {LEVEL} intervals; dashed: the measured bandwidth of memory and peak of arithmetic, which meet "
        "at the balance. What caches hold may lie above the slope"
    )
    reading = [view.say(f"The machine balances at {several(told)}.", device), *_reached(view, device, steps, ceilings)]
    drawing = sweep.drawing(view.name("roofline", device), shows, f"{caption}.", view.where(device))
    return Exhibit(reading, drawing, _table(view, device, steps, ceilings), wide=len(panels) > 1)


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['model']}, {PHASES[row['phase']]}, batch {int(row['batch'])}, {row['dtype']}"


def _share(row: Mapping[str, Any], ceilings: Mapping[str, Mapping[str, Any]]) -> float:
    """Rate of a step over the lower of its two ceilings."""
    here = ceilings[str(row["dtype"])]
    slope = float(row["flop"]) / float(row["bytes"]) * float(here["bandwidth"]["estimate"])
    return float(row["flop"] / row["estimate"] / min(slope, float(here["peak"]["estimate"])))


def _reached(view: View, device: str, steps: pd.DataFrame, ceilings: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Which step comes nearest to its ceiling, and which stays furthest below."""
    shares = sorted(((_share(row, ceilings), row) for row in _rows(steps)), key=lambda one: one[0])
    (low, lowest), (high, highest) = shares[0], shares[-1]
    if len(shares) > 1:
        yield view.say(
            f"Of the lower of its two ceilings a whole step reaches between {number(100 * low, 2)}% "
            f"({_named(lowest)}) and {number(100 * high, 2)}% ({_named(highest)}).",
            device,
        )


def _table(view: View, device: str, steps: pd.DataFrame, ceilings: Mapping[str, Mapping[str, Any]]) -> Table:
    """Every step: its intensity, rate, the share of its ceiling, and how much of its time memory limits."""
    labels = ("model", "batch", "phase", "dtype", "threads")
    bound = {tuple(cell[name] for name in labels): cell
             for cell in records(view.quantity("roofline.memory_bound_share", device=device))}  # fmt: skip
    rows = []
    order = list(PHASES)
    for row in sorted(_rows(steps), key=lambda row: (order.index(row["phase"]), row["model"], row["batch"])):
        at = bound.get((row["model"], int(row["batch"]), row["phase"], row["dtype"], int(row["threads"])))
        rows.append(
            [
                _named(row),
                with_unit(row["flop"] / row["bytes"], "FLOP/B"),
                interval(row["estimate"], known(row["low"]), known(row["high"]), "s"),
                with_unit(row["flop"] / row["estimate"], "FLOP/s"),
                f"{number(100 * _share(row, ceilings), 2)}%",
                _percent(at) if at else NOTHING,
            ]
        )
    return Table(
        f"Whole steps under the roofline; {view.where(device)}.",
        ["Step", "Intensity", "Time", "Rate", "Of its ceiling", "Time that memory limits"],
        rows, "lrrrrr", [32, 12, 20, 12, 10, 16],
    )  # fmt: skip


def _percent(cell: Mapping[str, Any]) -> str:
    """A share with its interval in per cent."""
    ends = [known(cell[name]) for name in ("low", "high")]
    scaled = [100 * one if one is not None else None for one in (float(cell["estimate"]), *ends)]
    if scaled[1] is None:
        return f"{number(scaled[0], 2)}%"
    return f"{number(scaled[0], 2)}% [{number(scaled[1], 2)}, {number(scaled[2], 2)}]"


def _time(view: View, device: str, steps: pd.DataFrame, ceilings: Mapping[str, Any]) -> Iterable[Exhibit]:
    """Operators' time below and above the balance, step by step."""
    threads = int(steps["threads"].max())
    spent = {
        _key(cell): cell for cell in records(view.pick(view.data.summary("roofline", "operator_time"), device=device))
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for key, part in distribution(view.data, "time").items():
        labels = dict(key)
        here = (labels["node"], labels["device"], labels["threads"]) == (view.node, device, threads)
        if not here or labels["dtype"] not in ceilings or labels["phase"] not in PHASES:
            continue
        balance = float(ceilings[labels["dtype"]]["balance"]["estimate"])
        far, near = np.interp(np.log([FAR * balance, balance]), np.log(part["limit"].astype(float)), part["estimate"])
        took = spent.get(_key(labels))
        row = {
            "label": f"{labels['model']}, batch {int(labels['batch'])}, {labels['dtype']}",
            "told": with_unit(float(took["estimate"]), "s") if took else "",
            "shares": [float(far), float(near - far), float(1 - near)],
        }
        groups.setdefault(labels["phase"], []).append(row)
    if not groups:
        return
    shows = {
        "groups": [{"title": PHASES[phase], "rows": groups[phase]} for phase in PHASES if phase in groups],
        "parts": [
            {"label": "under a quarter of the balance", "colour": VERMILION},
            {"label": "up to the balance", "colour": AMBER},
            {"label": "above it", "colour": BLUE},
        ],
        "x": "share of the operators' time",
    }  # fmt: skip
    caption = (
        "Time of a step's operators by what they do for each byte that they have to move, against the machine's "
        "balance: below it memory is the lower ceiling, above it arithmetic; at the right the time of all operators; "
        f"{view.where(device)}."
    )
    drawing = stacks.drawing(view.name("bound", device), shows, caption, caption)
    yield Exhibit([view.say(text, device) for text in _limited(view, device, threads)], drawing)


def _key(labels: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(labels[name]) for name in ("model", "batch", "phase", "dtype", "threads"))


def _limited(view: View, device: str, threads: int) -> Iterable[str]:
    """How much of the time memory limits, phase by phase."""
    cells = records(view.quantity("roofline.memory_bound_share", device=device, threads=threads))
    for phase, name in PHASES.items():
        same = sorted((cell for cell in cells if cell["phase"] == phase), key=lambda cell: float(cell["estimate"]))
        if not same:
            continue
        low, high = same[0], same[-1]
        said = f"between {_percent(low)} ({_short(low)}) and {_percent(high)} ({_short(high)})"
        if _percent(low) == _percent(high):
            said = _percent(low)
        yield f"{capital(name)} ({count(len(same), 'step')}): memory limits {said} of the operators' time."


def _short(cell: Mapping[str, Any]) -> str:
    return f"{cell['model']}, batch {int(cell['batch'])}, {cell['dtype']}"


FAMILY = Family("roofline", "What limits a step: the roofline", show)
