"""Training on several devices: what each adds, what their talk costs, and how well the memory of a step is foreseen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.formatting import count, number, with_unit
from report.render import dots
from report.render.figures import Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, known, mark, records, stated, who
from report.render.words import LEVEL

_PARTS = {"several_devices.efficiency": "efficiency", "several_devices.communication_share": "communication"}
_TOLD = {"efficiency": "rate of a rank over that of one alone", "communication": "share of a step for averaging"}
_POINT = ("model", "batch", "interconnect", "dtype", "threads")


def show(view: View) -> Iterable[Exhibit]:
    """For each device how training scales over several of them; then peaks of memory against the model of it."""
    for device in view.devices():
        found = {name: records(view.quantity(quantity, device=device)) for quantity, name in _PARTS.items()}
        if any(found.values()):
            lines = [*_scaling(found["efficiency"], device), *_talk(found["communication"])]
            yield Exhibit([view.say(line, device) for line in lines], _drawing(view, device, found))
    for device in view.devices():
        errors = _plain(records(view.quantity("training.memory_model_error", device=device)))
        if errors:
            yield Exhibit([view.say(_foreseen(errors), device)], _memory(view, device, errors))


def _job(cell: dict[str, Any]) -> str:
    """'gpt-1m, batch 8 a rank, float32, 1 thread, gloo'."""
    where = who(cell["dtype"], cell.get("threads", 0))
    return f"{cell['model']}, batch {int(cell['batch']):,} a rank, {where}, {cell['interconnect']}"


def _ranks(cell: dict[str, Any]) -> str:
    return count(int(cell["ranks"]), "rank")


def _extreme(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(cells, key=lambda cell: float(cell["estimate"]))
    return [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered


def _scaling(cells: Sequence[dict[str, Any]], device: str) -> list[str]:
    told = [f"{stated(cell, '1')} ({_job(cell)}, {_ranks(cell)})" for cell in _extreme(cells)]
    what = "cores" if device == "cpu" else "a device"
    return [f"A rank with {what} of its own keeps {' to '.join(told)} of the rate that one alone has."] if told else []


def _talk(cells: Sequence[dict[str, Any]]) -> list[str]:
    told = [f"{number(100 * cell['estimate'], 2)}% ({_job(cell)}, {_ranks(cell)})" for cell in _extreme(cells)]
    return [f"Averaging the gradients takes {' to '.join(told)} of a step."] if told else []


def _drawing(view: View, device: str, found: dict[str, list[dict[str, Any]]]) -> Drawing:
    looks = colours(list(found))
    rates = {
        (*_key(cell), cell["ranks"]): float(cell["estimate"])
        for cell in records(view.cells("several-devices", "samples_per_s", device=device))
    }
    rows: dict[str, dict[int, dict[str, Any]]] = {}
    for name, cells in found.items():
        for cell in sorted(cells, key=lambda cell: (*map(str, _key(cell)), int(cell["ranks"]))):
            row = rows.setdefault(_job(cell), {}).setdefault(int(cell["ranks"]), {"label": _ranks(cell), "marks": []})
            row["marks"].append(mark(cell, looks[name], hollow=name != "efficiency"))
            rate = rates.get((*_key(cell), cell["ranks"]))
            row["told"] = with_unit(rate, "samples/s") if rate else ""
    shows = {
        "groups": [{"title": job, "rows": [group[ranks] for ranks in sorted(group)]} for job, group in rows.items()],
        "x": "share of the rate, and of the time of a step", "unit": "1", "scale": "linear",
        "legend": [
            {"label": _TOLD[name], "look": looks[name], "hollow": name != "efficiency"} for name in found if found[name]
        ],
    }  # fmt: skip
    caption = (
        "Data-parallel training by ranks: rate of each over that of one alone, and the share of a step that averaging "
        f"the gradients takes, with {LEVEL} intervals; at the right the rate of all together; {view.where(device)}."
    )
    return dots.drawing(view.name("several-devices", device), shows, caption, caption)


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in _POINT)


def _plain(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """PyTorch as it comes, with the most threads."""
    plain = [cell for cell in cells if cell["backend"] == "torch" and cell["dtype"] == "float32"]
    most = max((int(cell.get("threads", 0)) for cell in plain), default=0)
    return [cell for cell in plain if int(cell.get("threads", 0)) == most]


def _foreseen(errors: Sequence[dict[str, Any]]) -> str:
    told = [f"{_signed(cell)} ({_step(cell)})" for cell in _extreme(errors)]
    return (
        "Weights, gradients, Adam's moments and what a batch keeps for the backward pass, all counted, differ from the "
        f"measured peak of a training step by {' to '.join(told)}."
    )


def _signed(cell: dict[str, Any]) -> str:
    # Beyond this many digits lies what the arithmetic itself rounds off.
    share = round(100 * float(cell["estimate"]), 6)
    return f"{'−' if share < 0 else '+'}{number(abs(share), 2)}%"


def _step(cell: dict[str, Any]) -> str:
    return f"{cell['model']}, batch {int(cell['batch']):,}"


def _memory(view: View, device: str, errors: Sequence[dict[str, Any]]) -> Drawing:
    look = colours(["error"])["error"]
    peaks = {
        (cell["model"], cell["batch"], cell["threads"]): known(cell["estimate"])
        for cell in records(view.cells("training", "peak_memory", device=device, backend="torch", dtype="float32"))
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in sorted(errors, key=lambda cell: (str(cell["model"]), int(cell["batch"]))):
        peak = peaks.get((cell["model"], cell["batch"], cell["threads"]))
        told = f"{_signed(cell)} of {with_unit(peak, 'B')}" if peak else _signed(cell)
        row = {"label": f"batch {int(cell['batch']):,}", "marks": [mark(cell, look)], "told": told}
        groups.setdefault(str(cell["model"]), []).append(row)
    shows = {
        "groups": [
            {"title": model, "rows": rows, "lines": [{"x": 0.0, "label": "" if place else "as measured"}]}
            for place, (model, rows) in enumerate(groups.items())
        ],
        "x": "expected over measured peak of memory, less 1", "unit": "1", "scale": "linear",
    }  # fmt: skip
    caption = (
        "Peak of memory in a training step, as counted beforehand (16 bytes a parameter and what the batch keeps) "
        f"against measured, in float32, with {LEVEL} intervals; {view.where(device)}."
    )
    return dots.drawing(view.name("memory-model", device), shows, caption, caption)


FAMILY = Family("several-devices", "Several devices, and the memory of a step", show)
