"""Training loops with their data: what a turn waits for its batch, what preparing a sample takes, and idle GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.formatting import count, number, several, with_unit
from report.quantities.orchestration import PRELOADED
from report.render import dots
from report.render.figures import Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, mark, records, stated, who
from report.render.words import LEVEL

_SOURCES = {
    PRELOADED: "already on the device",
    "memory": "from memory",
    "encoded": "encoded",
    "photographs": "photographs",
}
_EACH = {"memory": "a sample from memory", "encoded": "an encoded sample", "photographs": "a photograph"}
_MANY = {"memory": "Samples from memory", "encoded": "Encoded samples", "photographs": "Photographs"}
_LOOP = ("model", "batch", "source", "workers", "dtype", "threads")


def show(view: View) -> Iterable[Exhibit]:
    """For each device what its loops wait for, and for GPUs how long they have nothing to do."""
    for device in view.devices():
        shares = records(view.quantity("orchestration.wait_share", device=device))
        if shares:
            lines = [_span(shares), *_lost(view, device), *_samples(view, device)]
            yield Exhibit([view.say(line, device) for line in lines], _waits(view, device, shares))
        idle = records(view.quantity("orchestration.gpu_idle_share", device=device))
        if idle:
            yield Exhibit([view.say(_idle_reading(idle), device)], _idle(view, device, idle))


def _job(cell: dict[str, Any]) -> str:
    """'resnet, batch 32, float32, 2 threads'."""
    return f"{cell['model']}, batch {int(cell['batch']):,}, {who(cell['dtype'], cell.get('threads', 0))}"


def _fed(cell: dict[str, Any]) -> str:
    """'encoded, 2 workers'; preloaded batches have no workers."""
    source = _SOURCES.get(str(cell["source"]), str(cell["source"]))
    return source if cell["source"] == PRELOADED else f"{source}, {count(int(cell['workers']), 'worker')}"


def _order(cell: dict[str, Any]) -> tuple[Any, ...]:
    place = list(_SOURCES).index(str(cell["source"])) if cell["source"] in _SOURCES else len(_SOURCES)
    return str(cell["model"]), int(cell["batch"]), str(cell["dtype"]), int(cell["threads"]), place, int(cell["workers"])


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)}%" if share == 0 or share >= 1e-3 else "under 0.1%"


def _ends(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells with the smallest and with the largest estimate; one if there is but one."""
    ordered = sorted(cells, key=lambda cell: float(cell["estimate"]))
    return [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered


def _span(shares: Sequence[dict[str, Any]]) -> str:
    loaded = [cell for cell in shares if cell["source"] != PRELOADED] or list(shares)
    told = [f"{_percent(cell['estimate'])} ({_job(cell)}; {_fed(cell)})" for cell in _ends(loaded)]
    return f"Of a training loop's time, waiting for the next batch takes {' to '.join(told)}."


def _lost(view: View, device: str) -> list[str]:
    """What is lost even with the best number of workers, source by source."""
    found = records(view.quantity("orchestration.time_lost", device=device))
    lines = []
    for source, name in _MANY.items():
        ends = _ends([cell for cell in found if cell["source"] == source])
        told = [f"{_percent(cell['estimate'])} ({_job(cell)}, {cell['detail']})" for cell in ends]
        if told:
            lines.append(f"{name} cost {' to '.join(told)} of the loop's time with as many workers as do best.")
    return lines


def _samples(view: View, device: str) -> list[str]:
    """What one process needs for a sample, where no workers disturb it if there is such a point."""
    cells = records(view.quantity("orchestration.decode_time", device=device))
    told: dict[str, str] = {}
    for cell in sorted(cells, key=lambda cell: (_order(cell)[4], str(cell["model"]), int(cell["workers"]))):
        told.setdefault(f"{_EACH.get(cell['source'], cell['source'])} for {cell['model']}", stated(cell, "s"))
    each = [f"{name} in {time}" for name, time in told.items()]
    return [f"One process prepares {several(each)}."] if each else []


def _waits(view: View, device: str, shares: Sequence[dict[str, Any]]) -> Drawing:
    looks = colours([source for source in _SOURCES if any(cell["source"] == source for cell in shares)])
    times = {_key(cell): float(cell["estimate"]) for cell in records(view.cells("orchestration", device=device))}
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in sorted(shares, key=_order):
        groups.setdefault(_job(cell), []).append(
            {
                "label": _fed(cell),
                "marks": [mark(cell, looks[cell["source"]])],
                "told": f"{_percent(cell['estimate'])} of {with_unit(times[_key(cell)], 's')}",
            }
        )
    shows = {
        "groups": [{"title": title, "rows": rows} for title, rows in groups.items()],
        "x": "share of the loop's time spent waiting for the next batch", "unit": "1", "scale": "linear",
    }  # fmt: skip
    caption = (
        "How long a training loop waits for its next batch, by where the samples come from and how many worker "
        f"processes prepare them, with {LEVEL} intervals; at the right the time of a whole turn; {view.where(device)}."
    )
    return dots.drawing(view.name("orchestration", device), shows, caption, caption)


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in _LOOP)


def _idle_reading(idle: Sequence[dict[str, Any]]) -> str:
    told = [f"{_percent(cell['estimate'])} ({_step(cell)})" for cell in _ends(idle)]
    return f"With its batch in place, the GPU has nothing to do for {' to '.join(told)} of a training step."


def _step(cell: dict[str, Any]) -> str:
    return f"{cell['model']}, batch {int(cell['batch']):,}, {cell['dtype']}, {cell['backend']}"


def _idle(view: View, device: str, idle: Sequence[dict[str, Any]]) -> Drawing:
    looks = colours(sorted({str(cell["dtype"]) for cell in idle}))
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in sorted(idle, key=lambda cell: (cell["model"], cell["backend"], int(cell["batch"]), cell["dtype"])):
        groups.setdefault(f"{cell['model']}, {cell['backend']}", []).append(
            {
                "label": f"batch {int(cell['batch']):,}, {cell['dtype']}",
                "marks": [mark(cell, looks[cell["dtype"]])],
                "told": _percent(cell["estimate"]),
            }
        )
    shows = {
        "groups": [{"title": title, "rows": rows} for title, rows in groups.items()],
        "x": "share of a step in which the GPU waits for its host", "unit": "1", "scale": "linear",
    }  # fmt: skip
    caption = (
        f"Share of a training step in which no kernel runs, by model and batch size, with {LEVEL} intervals; "
        f"{view.where(device)}."
    )
    return dots.drawing(view.name("gpu-idle", device), shows, caption, caption)


FAMILY = Family("orchestration", "The data's way to the device", show)
