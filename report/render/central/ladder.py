"""The ladder of speed-ups: the same training step from one core as PyTorch comes to each GPU, on one base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report.cells import Cells
from report.quantities.training_ladder import ALONE, BASE, DEFAULT, EQUAL, LIBRARY, RUNGS, TOP, WHOLE
from report.render.central import rungs
from report.render.central.base import (
    MOST_MACHINES,
    Central,
    Machine,
    Shown,
    card,
    deciding,
    machine_names,
    of_all,
    unlike_first,
)
from report.render.figures import BLUE, GREEN, VERMILION, Drawing
from report.render.measurements.base import Table, View
from report.render.measurements.marks import factor, mark, multiple, records, stated
from report.render.words import LEVEL
from report.wording import count, number, several

MOST_MODELS = 4
_LOOKS = {"base": [VERMILION, "D"], "cpu": [BLUE, "o"], "gpu": [GREEN, "s"]}
_DECIDES = ("training.speedup", "training.default_over_best", "training.ladder", "training.ladder_gain")
_WAITS = "awaiting hardware: no GPU has trained these models"
_ON_ONE_CORE = "as on one core with PyTorch as it comes"
# What each rung improves on in one respect: cores, library, number format or device.
_BELOW = {ALONE: BASE, DEFAULT: BASE, LIBRARY: DEFAULT, WHOLE: LIBRARY, EQUAL: LIBRARY, TOP: WHOLE}
# The rungs by name, and the kind of device of each.
_KINDS = {name: str(wanted["device"]) for name, wanted, _ in RUNGS}

Model = tuple[str, int]  # and batch
Key = tuple[Model, Machine, str]
Rung = dict[str, Any]


def show(views: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """A panel for each of some models; in it each rung of each machine over one core of the same node."""
    rates, gains = of_all(views, "training.ladder"), of_all(views, "training.ladder_gain")
    if not len(rates) or not len(gains):
        return None
    found = _rungs(views, rates, gains)
    models = _models(found, of_all(views, "training.rate"))
    nodes = _nodes(views, found, models)
    drawn = {key: rung for key, rung in found.items() if key[0] in models and key[1][0] in nodes}
    if not any(rung["gain"] for rung in drawn.values()):
        return None
    machines = machine_names(views, dict.fromkeys(machine for _, machine, _ in drawn))
    left_out = len({node for _, (node, _), _ in found}) - len(nodes)
    return Shown(
        _title(drawn, machines),
        list(_reading(rates, drawn, machines)),
        _drawing(drawn, models, machines, left_out),
        _table(drawn, models, machines),
        deciding(document, *_DECIDES),
    )


def _key(cell: Mapping[str, Any]) -> Key:
    model = str(cell["model"]), int(cell["batch"])
    return model, (str(cell["node"]), str(cell["device"])), str(cell["rung"])


def _rungs(views: Sequence[View], rates: Cells, gains: Cells) -> dict[Key, Rung]:
    """Each rung of the nodes that have a base, with its gain over that (None of the base itself).

    Of several equal GPUs of one node the fastest at each rung.
    """
    by_node = {view.node: view for view in views}
    over = {_key(cell): cell for cell in records(gains)}
    fastest: dict[tuple[Any, ...], Key] = {}
    found: dict[Key, Rung] = {}
    for cell in sorted(records(rates), key=lambda cell: float(cell["estimate"])):
        model, machine, name = key = _key(cell)
        found[key] = {**cell, "gain": over.get(key)}
        fastest[model, machine[0], card(by_node[machine[0]], machine[1]), name] = key
    based = {(model, machine[0]) for model, machine, name in found if name == BASE}
    order = {node: place for place, node in enumerate(by_node)}
    kept = sorted(fastest.values(), key=lambda key: (order[key[1][0]], key[1][1] != "cpu", key))
    return {key: found[key] for key in kept if (key[0], key[1][0]) in based}


def _models(found: Mapping[Key, Rung], points: Cells) -> list[Model]:
    """The models with the most rungs, of several such those of which the most was measured.

    Each at the batch with the most rungs, of several such the largest.
    """
    places: dict[Model, set[tuple[str, str]]] = {}
    for model, (node, _), name in found:
        places.setdefault(model, set()).add((node, name))
    chosen = {model[0]: model for model in sorted(places, key=lambda model: (len(places[model]), model[1]))}
    measured = points.frame["model"].value_counts()
    ranked = sorted(chosen.values(), key=lambda model: (-len(places[model]), -int(measured.get(model[0], 0)), model))
    return sorted(ranked[:MOST_MODELS])


def _nodes(views: Sequence[View], found: Mapping[Key, Rung], models: Sequence[Model]) -> list[str]:
    """The nodes that are shown: those with the most rungs of these models, of several such the fastest.

    Unlike nodes before those that are alike.
    """
    rank: dict[str, tuple[int, float]] = {}
    for (model, (node, _), _), rung in found.items():
        if model in models:
            many, fast = rank.get(node, (0, 0.0))
            rank[node] = many + 1, max(fast, float(rung["estimate"]))
    labels = {view.node: view.make for view in views}
    chosen = unlike_first(sorted(rank, key=lambda node: rank[node], reverse=True), labels.__getitem__)[:MOST_MACHINES]
    return [view.node for view in views if view.node in chosen]


def _highest(drawn: Mapping[Key, Rung]) -> Key:
    """The rung that gains most."""
    return max((key for key, rung in drawn.items() if rung["gain"]), key=lambda key: _gain(drawn[key]))


def _gain(rung: Rung) -> float:
    """Over the base, whose own is 1."""
    return float(rung["gain"]["estimate"]) if rung["gain"] else 1.0


def _title(drawn: Mapping[Key, Rung], machines: Mapping[Machine, str]) -> str:
    key = _highest(drawn)
    model, machine, name = key
    gained = f"{multiple(drawn[key]['gain'])} as fast"
    if _KINDS[name] == "gpu":
        return f"{model[0]} trains {gained} on {machines[machine]} {_ON_ONE_CORE}"
    before = "" if any(_KINDS[other] == "gpu" for _, _, other in drawn) else "Before there is any GPU, "
    where = name.replace(", at ", " at ")
    return f"{before}{model[0]} trains {gained} on {where} {_ON_ONE_CORE}"


def _reading(rates: Cells, drawn: Mapping[Key, Rung], machines: Mapping[Machine, str]) -> Iterator[str]:
    """The most that the rungs gain, of what that is made, and what is left of it against all cores."""
    key = _highest(drawn)
    model, machine, _ = key
    base = drawn[model, (machine[0], "cpu"), BASE]
    yield (
        f"At a batch of {model[1]:,}, {model[0]} goes from {stated(base, 'samples/s')} to "
        f"{stated(drawn[key], 'samples/s')}{_parts(rates, model, machine[0])}."
    )
    tops = {(model, machine) for model, machine, name in drawn if name == TOP}
    if tops:
        left = rates.only(rung=TOP) / rates.only(rung=WHOLE).without("device", "rung", "place")
        ranked = sorted((cell for cell in records(left) if _key(cell)[:2] in tops), key=lambda cell: cell["estimate"])
        told = [
            f"{multiple(cell)} ({cell['model']}, {machines[_key(cell)[1]]})" for cell in (*ranked[:1], *ranked[-1:])
        ]
        if told:
            span = told[0] if len(set(told)) == 1 else f"between {' and '.join(told)}"
            yield f"Over all cores of its host at their best a GPU gains {span} as much."


def _parts(rates: Cells, model: Model, node: str) -> str:
    """What each step of the processor's ladder gives of one model: more cores, another library, another format."""
    mine = rates.only(node=node, device="cpu", model=model[0], batch=model[1])
    steps = {"more cores": (DEFAULT, BASE), "a faster library": (LIBRARY, DEFAULT),
             "a narrower number format": (WHOLE, LIBRARY)}  # fmt: skip
    told = []
    for what, (above, below) in steps.items():
        for cell in records(mine.only(rung=above) / mine.only(rung=below).without("rung", "place")):
            # Nothing is faster than the rung before where both are the same measurement.
            if float(cell["estimate"]) != 1.0:
                told.append(f"{what} {factor(cell)}")
    return f"; on the processor, step by step over the one before: {several(told)}" if told else ""


def _drawing(
    drawn: Mapping[Key, Rung], models: Sequence[Model], machines: Mapping[Machine, str], left_out: int
) -> Drawing:
    shows = {
        "panels": [{"title": model[0], "below": f"batch {model[1]:,}"} for model in models],
        "groups": _groups(drawn, models, machines),
        "x": "rate over one core as PyTorch comes",
        "unit": "",
    }
    caption = (
        "Rates of training over one core of the same node with PyTorch as it comes, in float32: that base (diamonds, "
        f"with its samples per second), processors (circles) and GPUs (squares), with {LEVEL} intervals; each thin "
        "line begins at the rung that this one improves on: in its cores, library, number format or device. Best "
        "library: in float32; at their best: in any number format. "
        f"{several(sorted(set(machines.values())))}."
    )
    if left_out:
        caption += f" {count(left_out, 'more node')} with fewer rungs or slower ones: under training."
    return rungs.drawing(FIGURE.name, shows, caption, "Rates of training over one core with PyTorch as it comes.")


def _groups(
    drawn: Mapping[Key, Rung], models: Sequence[Model], machines: Mapping[Machine, str]
) -> list[dict[str, Any]]:
    """Rung by rung from the lowest: one row of one node alone, else a row for each machine under the rung's name."""
    alone = len({node for node, _ in machines}) == 1
    groups: list[dict[str, Any]] = []
    for name, kind in _KINDS.items():
        there = [machine for machine in machines if any(key[1:] == (machine, name) for key in drawn)]
        plain = alone and len(there) == 1
        rows = [_row(drawn, models, machine, name, name if plain else machines[machine]) for machine in there]
        if not there and kind == "gpu" and all(_KINDS[key[2]] != "gpu" for key in drawn):
            rows, plain = [{"label": name, "waits": _WAITS}], True
        if plain and groups and not groups[-1]["title"]:
            groups[-1]["rows"] += rows
        elif rows:
            groups.append({"title": "" if plain else name, "rows": rows})
    return groups


def _row(drawn: Mapping[Key, Rung], models: Sequence[Model], machine: Machine, name: str, label: str) -> dict[str, Any]:
    cells: list[dict[str, Any]] = []
    for model in models:
        rung = drawn.get((model, machine, name))
        if rung is None:
            cells.append({"text": "not measured"})
            continue
        rate, gain = stated(rung, "samples/s"), rung["gain"]
        if gain is None:
            gain, look = {"estimate": 1.0, "low": 1.0, "high": 1.0}, _LOOKS["base"]
            short, told = f"{number(rung['estimate'])}/s", f"the base, {rate}"
        else:
            look = _LOOKS[_KINDS[name]]
            short, told = f"×{number(gain['estimate'], 2)}", f"{factor(gain)} the base, {rate}"
        words = f"{model[0]}, {name}: {told} ({rung['detail']})"
        cell = {"marks": [{**mark(gain, look), "told": words}], "told": short}
        cells.append(cell | {"start": _below(drawn, model, machine, name)})
    return {"label": label, "strong": name == BASE and label == name, "cells": cells}


def _below(drawn: Mapping[Key, Rung], model: Model, machine: Machine, name: str) -> float | None:
    """The gain on the rung that this one improves on, in one respect; None of the base and where it is lacking."""
    rung = drawn.get((model, (machine[0], "cpu"), _BELOW.get(name, "")))
    return _gain(rung) if rung else None


def _table(drawn: Mapping[Key, Rung], models: Sequence[Model], machines: Mapping[Machine, str]) -> Table:
    rows = []
    for key in [(model, machine, name) for model in models for name in _KINDS for machine in machines]:
        rung = drawn.get(key)
        if rung:
            (model, batch), machine, name = key
            gain = factor(rung["gain"]) if rung["gain"] else "base"
            by = str(rung["detail"])
            rows.append([f"{model}, batch {batch:,}", name, machines[machine], by, stated(rung, "samples/s"), gain])
    return Table(
        f"Training, rung by rung, with {LEVEL} intervals; gain: over one core of the same node with PyTorch as it "
        "comes, in float32",
        ["Step", "Rung", "Machine", "By", "Rate", "Gain over the base"],
        rows, "llllrr", [14, 17, 16, 14, 29, 18],
    )  # fmt: skip


FIGURE = Central("ladder", show)
