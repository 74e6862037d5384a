"""Multiply-adds per clock cycle: from an interpreted loop to matrix units, of one core and of whole chips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from report.estimates import Estimates, device_kind
from report.formatting import count, exactly, number, several, threshold_text
from report.quantities.ladder import LOOPS
from report.render.central import rungs
from report.render.central.base import (
    MOST_MACHINES,
    Central,
    Shown,
    deciding,
    fastest,
    machine_names,
    of_all,
    unlike_first,
)
from report.render.figures import BLUE, GREEN, MUTED, Drawing
from report.render.measurements.base import Table, View
from report.render.measurements.marks import mark, multiple, over, records, stated
from report.render.words import LEVEL

_UNIT = "MAC/cycle"
_CORE, _CHIP, _SCALAR = "gemm.mac_per_cycle_per_core", "gemm.mac_per_cycle", "peak.scalar_mac_per_cycle"
_DECIDES = (_CORE, _CHIP, _SCALAR)
_MEASURED, _DERIVED, _GPU, _DOCUMENTED = [BLUE, "o"], [BLUE, "o"], [GREEN, "s"], [MUTED, "D"]
_LOOPS = dict(zip(LOOPS, ("interpreted loop", "compiled loop, scalar", "compiled loop, vectors"), strict=True))
_FORMATS = ("float32", "bfloat16")
_WAITS = "awaiting hardware: no GPU has multiplied matrices"


@dataclass(frozen=True)
class _Published:
    """A maker's figure. entry: its id in the reference; says: what it counts; times: what one of its units makes."""

    entry: str
    says: str
    times: float = 1.0


# A multiply-add is two operations; a lane does one in a cycle.
_CORES = (
    _Published("avx512.fp32_flop_per_cycle", "float32", 0.5),
    _Published("amx.bf16_flop_per_cycle", "bfloat16", 0.5),
)
_UNITS = (_Published("ampere.tensor_core_fma_per_clock", "one Tensor Core, float16"),)
_CHIPS = (
    _Published("h100-sxm.fp32_cores", "float32 lanes"),
    _Published("rtx-4090.fp32_cores", "float32 lanes"),
)


@dataclass(frozen=True)
class _Server:
    """What a claim makes of one core: times so many cores, at most so many multiply-adds a cycle."""

    claim: str
    cores: float
    most: float


def show(views: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """One core of each node, what makers state of one, and whole chips, on one axis."""
    cores = of_all(views, _CORE)
    best = _only(cores, threads=1, backend="best", dtype="float32")
    if not len(best):
        return None
    ranked = sorted(records(best), key=lambda cell: float(cell["estimate"]), reverse=True)
    labels = {view.node: view.make for view in views}
    chosen = set(unlike_first([str(cell["node"]) for cell in ranked], labels.__getitem__)[:MOST_MACHINES])
    drawn = [view for view in views if view.node in chosen]
    gpus = _gpus(views)
    names = machine_names(views, [*((view.node, "cpu") for view in drawn), *gpus])
    first = [cell for cell in ranked if cell["node"] in chosen]
    server = _server(document)
    groups = [_one_core(views, view, cores, names, len(drawn) == 1) for view in drawn]
    groups += [_group("one core or unit, as makers state it", _published(views[0], [*_CORES, *_UNITS]))]
    groups += [_chips(views, drawn, cores, gpus, names, server)]
    groups = [group for group in groups if group["rows"]]
    return Shown(
        _title(first, server),
        list(_reading(groups, first, server)),
        _drawing(groups, names, len(ranked) - len(drawn)),
        _table(groups),
        deciding(document, *_DECIDES),
    )


def _only(cells: Estimates, **wanted: Any) -> Estimates:
    """The cells with these labels; none where they are not labelled so."""
    return cells.only(**wanted) if len(cells) and set(wanted) <= set(cells.labels) else Estimates.empty()


def _gpus(views: Sequence[View]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By node and device the best products of GPUs, format by format; of equal cards the fastest, and not too many."""
    on_gpu = any((view.rows["experiment"].eq("gemm") & view.rows["device"].ne("cpu")).any() for view in views)
    # The whole chip's rates are read from the samples, with the clock beside each.
    cells = (
        _only(of_all(views, _CHIP), device="gpu", backend="best", dtype=list(_FORMATS)) if on_gpu else Estimates.empty()
    )
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in sorted(records(cells), key=lambda cell: _FORMATS.index(cell["dtype"])):
        found.setdefault((str(cell["node"]), str(cell["device"])), []).append(cell)
    rank = {place: max(float(cell["estimate"]) for cell in cells) for place, cells in found.items()}
    return {place: found[place] for place in fastest(views, rank)}


def _server(document: Mapping[str, Any]) -> _Server | None:
    """The first claim that multiplies one core's rate and sets a limit."""
    for verdict in document["verdicts"]:
        for part in verdict.get("parts") or []:
            scale, most = float(part.get("scale") or 1.0), part.get("threshold")
            if part.get("quantity") == _CORE and scale != 1.0 and isinstance(most, (int, float)):
                return _Server(str(verdict["id"]), scale, float(most))
    return None


def _one_core(
    views: Sequence[View], view: View, cores: Estimates, names: Mapping[tuple[str, str], str], alone: bool
) -> dict[str, Any]:
    """The rungs of one core of a node: all of them where it is alone, else those by which nodes are compared."""
    mine = {"node": view.node, "threads": 1}
    peaks = _only(of_all(views, "peak.mac_per_cycle"), **mine)
    found = [(told, _only(cores, backend=name, **mine)) for name, told in _LOOPS.items() if alone]
    # What vectors add begins at scalar code, in loops as in registers.
    found.insert(2 if alone else 0, ("scalar instructions", _only(of_all(views, _SCALAR), **mine, dtype="float32")))
    for dtype in _FORMATS:
        found.append((f"best library, {dtype}", _only(cores, backend="best", dtype=dtype, **mine)))
        if alone:
            found.append((f"vectors in registers, {dtype}", _only(peaks, dtype=dtype)))
    rows: list[dict[str, Any]] = []
    before = None
    for label, cells in found:
        if not len(cells):
            continue
        cell = max(records(cells), key=lambda one: float(one["estimate"]))
        row = _row(label, cell, _MEASURED, str(cell.get("detail") or "") if "library" in label else "")
        row["cells"][0]["start"] = before
        before = float(cell["estimate"])
        rows.append(row)
    return _group(f"one core: {names[view.node, 'cpu']}", rows)


def _group(title: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "rows": list(rows)}


def _row(label: str, cell: Mapping[str, Any], look: list[str], by: str, hollow: bool = False) -> dict[str, Any]:
    """A rung with its one mark. by: what stands behind it, in words."""
    rate = stated(cell, _UNIT)
    told = f"{label}: {rate}{f' ({by})' if by else ''}"
    marks = [{**mark(cell, look, hollow), "told": told}]
    exact = cell["low"] == cell["high"] == cell["estimate"]
    short = (exactly if exact else number)(float(cell["estimate"]))
    return {"label": label, "cells": [{"marks": marks, "told": short}], "rate": rate, "by": by, "cell": dict(cell)}


def _published(view: View, wanted: Sequence[_Published]) -> list[dict[str, Any]]:
    """Makers' figures that were verified, as hollow marks."""
    rows = []
    for one in wanted:
        entry = view.data.reference.get(one.entry)
        if entry is None or entry["status"] != "verified" or entry.get("value") is None:
            continue
        value = one.times * float(entry["value"])
        cell = {"estimate": value, "low": value, "high": value}
        label = f"{_short(str(entry['subject']))}: {one.says}"
        rows.append(_row(label, cell, _DOCUMENTED, f"documented: {entry['source']['title']}", hollow=True))
    return rows


def _short(subject: str) -> str:
    """A maker's product without the generation that it is quoted for."""
    return subject.partition(",")[0].partition(" with ")[0]


def _chips(
    views: Sequence[View], drawn: Sequence[View], cores: Estimates,
    gpus: Mapping[tuple[str, str], Sequence[dict[str, Any]]], names: Mapping[tuple[str, str], str],
    server: _Server | None,
) -> dict[str, Any]:  # fmt: skip
    """Whole chips: processors with all cores, a claim's server worked out from one core, GPUs, makers' figures."""
    rows = []
    for view in drawn:
        name = names[view.node, "cpu"]
        mine = _only(cores, node=view.node, backend="best", dtype=list(_FORMATS))
        most = mine.frame["threads"].astype(int).max() if len(mine) else 0
        whole_chip = records(mine.only(threads=int(most))) if most > 1 else []
        for cell in sorted(whole_chip, key=lambda cell: _FORMATS.index(cell["dtype"])):
            whole = {**cell, **{end: float(cell[end]) * most for end in ("estimate", "low", "high")}}
            rows.append(_row(f"{name}: {cell['dtype']}", whole, _MEASURED, f"all cores, {cell['detail']}"))
        if server:
            for cell in records(_only(cores, node=view.node, backend="best", dtype="float32", threads=1)):
                whole = {**cell, **{end: float(cell[end]) * server.cores for end in ("estimate", "low", "high")}}
                label = f"{server.cores:g} × one core: float32" if len(drawn) == 1 else (
                    f"{server.cores:g} × one core of {name}"
                )  # fmt: skip
                rows.append(_row(label, whole, _DERIVED, f"worked out: one core of {name}", hollow=True))
    for (node, device), cells in gpus.items():
        rows += [_row(f"{names[node, device]}: {cell['dtype']}", cell, _GPU, str(cell["detail"])) for cell in cells]
    if not gpus:
        rows.append({"label": "GPU", "waits": _WAITS})
    group = _group("whole chip", [*rows, *_published(views[0], _CHIPS)])
    if server:
        most_told = threshold_text(server.most, _UNIT)
        group["lines"] = [{"x": server.most, "label": f"{server.claim}: at most {most_told}"}]
    return group


def _title(first: Sequence[Mapping[str, Any]], server: _Server | None) -> str:
    """What one core does in a cycle, and what that makes of the claim's server."""
    core = first[0]
    told = f"One core retires {stated(core, 'multiply-adds')} in a clock cycle"
    if server is None:
        return told
    most = exactly(server.most)
    ends = [core["low"], core["high"]]
    if all(end is not None and float(end) * server.cores > server.most for end in ends):
        return f"{told}, so that {server.cores:g} of them do more than {most}"
    if all(end is not None and float(end) * server.cores <= server.most for end in ends):
        return f"{told}, so that {server.cores:g} of them do no more than {most}"
    return f"{told}; whether {server.cores:g} of them do more than {most} is too close to call"


def _reading(
    groups: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]], server: _Server | None
) -> Iterator[str]:
    """The ways from scalar code to the best library, and what the claim's server would do."""
    rows = {row["label"]: row for row in groups[0]["rows"]}
    scalar = rows.get("scalar instructions")
    gains = [
        f"{multiple(over(row['cell'], scalar['cell']))} with {label.replace('best library, ', 'the best library in ')}"
        for label, row in rows.items()
        if scalar and label.startswith("best library")
    ]
    if scalar and gains:
        yield f"Scalar instructions do {scalar['rate']} on one core; it does that {several(gains)}."
    if server:
        derived = {end: first[0][end] and float(first[0][end]) * server.cores for end in ("estimate", "low", "high")}
        yield (
            f"{server.claim} gives a server of {server.cores:g} cores at most {threshold_text(server.most, _UNIT)}; "
            f"one core times {server.cores:g} makes {stated(derived, _UNIT)}, if all keep the clock of one."
        )


def _drawing(groups: Sequence[Mapping[str, Any]], names: Mapping[tuple[str, str], str], left_out: int) -> Drawing:
    # What the table needs is no part of the drawing.
    shown = [
        {**group, "rows": [{k: v for k, v in row.items() if k not in ("rate", "by", "cell")} for row in group["rows"]]}
        for group in groups
    ]
    legend = [
        {"label": "measured", "look": _MEASURED},
        {"label": "worked out from one core", "look": _DERIVED, "hollow": True},
        {"label": "as its maker states it", "look": _DOCUMENTED, "hollow": True},
    ]
    if any(device_kind(device) == "gpu" for _, device in names):
        legend.insert(1, {"label": "measured, GPU", "look": _GPU})
    shows = {
        "panels": [{"title": "", "below": ""}], "groups": shown, "legend": legend,
        "x": "multiply-adds in a clock cycle", "unit": _UNIT,
    }  # fmt: skip
    caption = (
        f"Multiply-adds in one clock cycle, with {LEVEL} intervals: filled marks were measured, hollow ones worked out "
        "or stated by makers, who give no interval (lanes: one each); each thin line begins at the rung before"
    )
    if left_out:
        caption += f"; {count(left_out, 'more node')} with fewer on one core: under matrix products"
    return rungs.drawing(FIGURE.name, shows, f"{caption}.", "Multiply-adds in one clock cycle, rung by rung.")


def _table(groups: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [str(group["title"]), str(row["label"]), str(row["rate"]), str(row["by"]) or "the study's own kernel"]
        for group in groups
        for row in group["rows"]
        if "rate" in row
    ]
    return Table(
        f"Multiply-adds in one clock cycle, with {LEVEL} intervals of what was measured",
        ["Of", "Rung", "Rate", "By"],
        rows,
        "llrl",
        [22, 23, 29, 26],
    )


FIGURE = Central("mac", show)
