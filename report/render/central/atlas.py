"""The atlas of who wins: for each kind of work the sizes at which the CPU is ahead, and those at which the GPU is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from report.formatting import capital, count, exactly, several, with_unit
from report.render.central import territory
from report.render.central.base import Central, Machine, Shown, deciding, machine_names
from report.render.central.chosen import accelerators, nodes
from report.render.central.races import ANSWER, BATCH, BYTES, ROWS, TABLES, TEXT, WEIGHTS, Race, against_gpu
from report.render.central.races import against_one_core as among_cores
from report.render.figures import AMBER, BLUE, GREEN, Drawing
from report.render.measurements.base import Table, View
from report.render.measurements.offload import OPS
from report.render.words import LEVEL

MOST_MACHINES = 2
MOST_MODELS = 6  # and of several machines less, for the figure to fit a page
# By what sizes the work of a field: its title, its axis and its unit.
_FIELDS = {
    BYTES: ("Requests, by the bytes that they bring and take", "data of a request", "B"),
    ROWS: ("Work on tables, by rows", "rows of a table", ""),
    BATCH: ("Training steps, by batch", "samples in a batch", ""),
    WEIGHTS: ("Answers of trained models, by their size", "weights of the model", ""),
}
_STEPS = "training steps"
_EVERY = {**dict.fromkeys(OPS.values(), BYTES), **{f"table {name}": ROWS for name in TABLES.values()},
          _STEPS: BATCH, ANSWER: WEIGHTS, TEXT: WEIGHTS}  # fmt: skip
# Challenger and holder, each with its colour.
_GPU, _CORES = (("GPU", GREEN), ("CPU", BLUE)), (("all cores", BLUE), ("one core", AMBER))
_NO_GPU = (
    "No GPU has been measured, so who wins against one is not known for any of it. Datasheets do not tell: what a GPU "
    "does with little work depends on what it costs to launch it, which none of them states."
)


def show(views: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """A row for each kind of work; against the GPUs where one was measured, else all cores against one."""
    shown = nodes(views, MOST_MACHINES)
    gpus = [(view, device) for view in shown for device in accelerators(view)][:MOST_MACHINES]
    races = [one for view, device in gpus for one in against_gpu(view, device)]
    sides = _GPU
    if not races:
        races, sides = [one for view in shown for one in among_cores(view)], _CORES
    races = _few_models(races)
    if not races:
        return None
    machines = machine_names(shown, list(dict.fromkeys((one.node, one.device) for one in races)))
    known = any(accelerators(view) for view in views)
    left_out = sum(bool(accelerators(view)) for view in views) - len(shown) if known else len(views) - len(shown)
    return Shown(
        _title(races, sides, machines),
        _reading(races, sides, known),
        _drawing(races, sides, machines, left_out),
        _table(races, sides, machines),
        deciding(document, "inference.latency_s", "tabular.gpu_gain", "offload.speedup_over_100_cores"),
    )


def _few_models(races: Sequence[Race]) -> list[Race]:
    """The races in the order of their fields and kinds of work, machine by machine, training only of some models."""
    machines = len({(one.node, one.device) for one in races})
    models = list(dict.fromkeys(one.work for one in races if one.field == BATCH))[: MOST_MODELS // max(1, machines)]
    kept = [one for one in races if one.field != BATCH or one.work in models]
    fields = list(_FIELDS)
    works = list(dict.fromkeys(one.work for one in kept))
    return sorted(kept, key=lambda one: (fields.index(one.field), works.index(one.work)))


def _outcome(one: Race, sides: Any) -> str:
    """Who leads where, in a few words."""
    (challenger, _), (holder, _) = sides
    if one.turn:
        low, high = (_size(end, one.field) for end in one.turn[1:])
        return f"{challenger if one.outcome == 'turns' else holder} past {low}–{high}"
    if one.outcome == "open":
        return "too close to call"
    who = challenger if 1 in one.sides else holder
    if one.outcome == "partly":
        led = [place for place, side in enumerate(one.sides) if side]
        ends = _size(one.sizes[led[0]], one.field), _size(one.sizes[led[-1]], one.field)
        if 0 not in one.sides[led[0] :]:
            return f"{who} from {ends[0]}"
        return f"{who} up to {ends[1]}" if 0 not in one.sides[: led[-1]] else f"{who} or a draw"
    return f"{who} throughout" if len(one.sizes) > 1 else f"{who} at {_size(one.sizes[0], one.field)}"


def _size(value: float, field: str) -> str:
    unit = _FIELDS[field][2]
    return with_unit(value, unit) if unit else exactly(float(f"{value:.3g}"))


def _kind(one: Race) -> str:
    """A kind of work as `_EVERY` has it."""
    return {ROWS: f"table {one.work}", BATCH: _STEPS}.get(one.field, one.work)


def _title(races: Sequence[Race], sides: Any, machines: Mapping[Machine, str]) -> str:
    """In how many kinds of work who leads."""
    total = count(len(races), "kind") if len(machines) == 1 else count(len(races), "case")
    n = Counter(one.outcome for one in races)
    first = next(iter(machines.values()))
    if sides is _CORES:
        who = f"all cores of {first}" if len(machines) == 1 else "all cores of a CPU"
        return f"No GPU to win against yet; {who} beat one throughout in {n['challenger']} of {total} of work"
    who = first if len(machines) == 1 else "a GPU"
    turns, open_ = n["turns"] + n["turns back"], n["open"] + n["partly"]
    parts = [f"the CPU wins {n['holder']} throughout"] if n["holder"] else []
    parts += [f"{who} wins {n['challenger']} throughout"] if n["challenger"] else []
    parts += [f"{turns} turn{'s' if turns == 1 else ''} with the size"] if turns else []
    parts += [f"{open_} {'is' if open_ == 1 else 'are'} too close to call at some sizes"] if open_ else []
    return f"Of {total} of work, {several(parts)}"


def _reading(races: Sequence[Race], sides: Any, known: bool) -> list[str]:
    """What turns and what does not, what is not known, and what was not measured."""
    holder = sides[1][0]
    groups = {
        f"{holder} ahead throughout": [one for one in races if one.outcome == "holder"],
        "Turning with the size": [one for one in races if one.turn],
        "Too close to call": [one for one in races if one.outcome == "open"],
    }
    told = [f"{label}: {several(list(dict.fromkeys(map(_said, group))))}" for label, group in groups.items() if group]
    lines = [f"{'. '.join(map(capital, told))}."] if told else []
    if not known:
        lines.append(_NO_GPU)
    elif sides is _CORES:
        lines.append("No work was measured on a GPU and on its host both: what stands here is one core against all.")
    missing = [name for name in _EVERY if name not in {_kind(one) for one in races}]
    if missing:
        lines.append(f"Not measured on both sides: {several(missing)}.")
    return lines


def _said(one: Race) -> str:
    """A kind of work in a sentence, with where it turns."""
    name = f"{_STEPS} of {one.work}" if one.field == BATCH else _kind(one)
    if not one.turn:
        return name
    low, high = (_size(end, one.field) for end in one.turn[1:])
    of = {BYTES: "", ROWS: " rows", BATCH: " samples", WEIGHTS: " weights"}[one.field]
    return f"{name} (between {low} and {high}{of})"


def _drawing(races: Sequence[Race], sides: Any, machines: Mapping[Machine, str], left_out: int) -> Drawing:
    panels = []
    for field, group in groupby(races, key=lambda one: one.field):
        title, axis, unit = _FIELDS[field]
        rows = [_row(one, sides, machines) for one in group]
        panels.append({"title": title, "x": axis, "unit": unit, "rows": rows})
    (challenger, colour), (holder, other) = sides
    shows = {
        "panels": panels,
        "colours": {"1": colour, "-1": other},
        "names": {"1": f"{challenger} ahead", "-1": f"{holder} ahead", "0": "too close to call"},
        "turn": "where it turns",
    }
    against = (
        "a GPU, from and to host memory, against all cores of its host, each side by its fastest library and, in "
        "training and text, in its best number format"
        if sides is _GPU
        else "all cores of a CPU against one of them, each side by its fastest library"
    )
    caption = (
        f"Who answers first, by kind of work and size: {against}. Bars reach over the sizes (notches) at which the "
        f"{LEVEL} interval of the ratio leaves no doubt who is ahead; the diamond is where it turns, the line beside "
        "it the neighbouring sizes that are sure"
    )
    if len(machines) == 1:
        caption += f"; {next(iter(machines.values()))}"
    if left_out > 0:
        caption += f"; {count(left_out, 'further node')} stand in the sections of their families"
    about = (
        f"Who is ahead, by kind of work and its size; the speed of {challenger} over that of {holder} at the smallest "
        "and the largest."
    )
    return territory.drawing(FIGURE.name, shows, f"{caption}.", about)


def _row(one: Race, sides: Any, machines: Mapping[Machine, str]) -> dict[str, Any]:
    (challenger, _), (holder, _) = sides
    machine = machines[one.node, one.device]
    several_machines = len(machines) > 1
    who = f"{machine}, {one.work}" if several_machines else one.work
    words = [
        f"{who}, {_size(size, one.field)}: {challenger} {ratio} the speed of {holder}"
        for size, ratio in zip(one.sizes, one.ratios, strict=True)
    ]
    return {
        "label": one.work,
        "machine": machine.removeprefix("NVIDIA ") if several_machines else "",
        "sizes": list(one.sizes),
        "sides": list(one.sides),
        "words": words,
        "turn": list(one.turn) if one.turn else None,
        "turn_words": f"{who}: {_outcome(one, sides)}" if one.turn else "",
        "told": _outcome(one, sides),
        "ends": " to ".join(dict.fromkeys(f"{one.ratios[at]} at {_size(one.sizes[at], one.field)}" for at in (0, -1))),
    }


def _table(races: Sequence[Race], sides: Any, machines: Mapping[Machine, str]) -> Table:
    (challenger, _), (holder, _) = sides
    rows = [
        [
            _said(one).partition(" (")[0], machines[one.node, one.device], _size(one.sizes[0], one.field),
            one.ratios[0], _size(one.sizes[-1], one.field), one.ratios[-1], _outcome(one, sides),
        ]
        for one in races
    ]  # fmt: skip
    return Table(
        f"Speed of {challenger} over that of {holder} at the smallest and largest size, with {LEVEL} intervals, and "
        "where they change places",
        ["Work", "On", "Smallest", "There", "Largest", "There", "Ahead"],
        rows, "llrrrrl", [22, 18, 12, 18, 12, 18, 24],
    )  # fmt: skip


FIGURE = Central("atlas", show)
