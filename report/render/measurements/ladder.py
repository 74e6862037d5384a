"""The ladder: the same work from an interpreted loop to all that the node can do.

Half of every "GPU is N times faster" is the CPU that it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.estimates import Estimates, device_kind
from report.formatting import capital, several, with_unit
from report.quantities.ladder import DEFAULT, PRODUCT, ROWS, STEP
from report.render import dots
from report.render.figures import BLUE, GREEN, VERMILION
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import factor, mark, multiple, ratio, records, stated
from report.render.words import LEVEL

_LOOKS = {"plain": [BLUE, "o"], "default": [VERMILION, "D"], "gpu": [GREEN, "s"]}
_SHAPE = f"{ROWS:,} × {PRODUCT['k']:,} by {PRODUCT['k']:,} × {PRODUCT['n']:,}"
_WORKS = {
    "product": f"a matrix product ({_SHAPE})",
    "training step": f"a training step ({STEP['model']}, batch {STEP['batch']})",
}


def show(view: View) -> Iterable[Exhibit]:
    """For each work a ladder, and beside it a table of its rungs."""
    cells = view.quantity("ladder.rate")
    for work in dict.fromkeys(cells.frame["work"] if len(cells) else ()):
        rungs = cells.only(work=work)
        # Of several GPUs the fastest; from the lowest rate up, for which rung is next depends on the machine.
        rungs = rungs.at(list(rungs.frame.sort_values("estimate", kind="stable").groupby("rung").tail(1).index))
        if len(rungs) > 1:
            yield Exhibit(_reading(view, work, rungs), _drawing(view, work, rungs), _table(view, work, rungs))


def _name(rung: dict[str, Any]) -> str:
    """A rung, with the device where that is not the CPU."""
    return str(rung["rung"]) if device_kind(rung["device"]) == "cpu" else f"{rung['rung']}, {rung['device']}"


def _drawing(view: View, work: str, rungs: Estimates) -> Any:
    rows: list[dict[str, Any]] = []
    for place, rung in enumerate(records(rungs)):
        look = "default" if rung["rung"] == DEFAULT else device_kind(rung["device"])
        rows.append(
            {
                "label": _name(rung),
                "below": str(rung["detail"]),
                "marks": [mark(rung, _LOOKS.get(look, _LOOKS["plain"]))],
                "told": with_unit(rung["estimate"], "FLOP/s"),
                "told_below": factor(ratio(rungs, place, place - 1)) if place else "",
                "strong": look == "default",
            }
        )
    shows = {"groups": [{"title": "", "rows": rows}], "x": "rate", "unit": "FLOP/s", "scale": "log", "rises": True}
    caption = (
        f"Ladder of {_WORKS.get(work, work)}: rates with {LEVEL} intervals, and under each rate the "
        f"factor over the row above, where the thin line begins; {view.label}."
    )
    about = f"{capital(work)} on {view.label}, rung by rung."
    return dots.drawing(view.name(f"ladder-{work.replace(' ', '-')}"), shows, caption, about)


def _table(view: View, work: str, rungs: Estimates) -> Table:
    rows = []
    for place, rung in enumerate(records(rungs)):
        steps = [factor(ratio(rungs, place, other)) if place else NOTHING for other in (place - 1, 0)]
        rows.append([_name(rung), stated(rung, "FLOP/s"), *steps])
    return Table(
        f"{capital(work)}, rung by rung, with {LEVEL} intervals. Step: over the rung before; in all: over "
        f"“{_name(records(rungs)[0])}”. {view.label}",
        ["Rung", "Rate", "Step", "In all"],
        rows,
        "lrrr",
        [25, 27, 22, 26],
    )


def _reading(view: View, work: str, rungs: Estimates) -> Sequence[str]:
    """What a default user gets against the most that the processor, and then the node, can do."""
    told = records(rungs)
    on_cpu = [i for i, rung in enumerate(told) if device_kind(rung["device"]) == "cpu"]
    on_gpu = [i for i in range(len(told)) if i not in on_cpu]
    default = next((i for i in on_cpu if told[i]["rung"] == DEFAULT), None)
    if not on_cpu:
        return []
    best = max(on_cpu, key=lambda i: told[i]["estimate"])
    # `detail` is the library and the format; the rung says the format already.
    name = f"{told[best]['rung']}, by {told[best]['detail'].partition(',')[0]}"
    lines = []
    if default is None or default == best:
        lines.append(f"{capital(_WORKS.get(work, work))} runs at {_rate(told[best])} at its fastest ({name}).")
    else:
        lines.append(
            f"{capital(_WORKS.get(work, work))} runs at {_rate(told[default])} with {DEFAULT}, and at "
            f"{_rate(told[best])} at its fastest on the same processor ({name}): "
            f"{multiple(ratio(rungs, best, default))} as fast."
        )
    if best and default != 0:
        lines.append(f"That is {multiple(ratio(rungs, best, 0))} “{told[0]['rung']}”.")
    if on_gpu:
        top = max(on_gpu, key=lambda i: told[i]["estimate"])
        against = [i for i in dict.fromkeys([0, default, best]) if i is not None]
        factors = [f"{multiple(ratio(rungs, top, i))} “{told[i]['rung']}”" for i in against]
        lines.append(f"{_name(told[top])} ({told[top]['detail']}) reaches {several(factors)}.")
    return [view.say(line) for line in lines]


def _rate(rung: dict[str, Any]) -> str:
    return stated(rung, "FLOP/s")


FAMILY = Family("ladder", "One piece of work, from an interpreted loop to everything there is", show)
