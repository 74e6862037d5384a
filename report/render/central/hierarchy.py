"""The hierarchy of bandwidths: from a core's first cache to the link between host and GPU, all devices on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from report.estimates import device_kind
from report.formatting import count, interval, several, with_unit
from report.render import dots
from report.render.central.base import Central, Shown, deciding, machine_names
from report.render.central.chosen import nodes
from report.render.central.levels import CORE, CORES, GPU, LINKS, MEMORY, Level, Place, of_node
from report.render.figures import BLUE, GREEN, MUTED, SKY, Drawing
from report.render.measurements.base import NOTHING, Table, View
from report.render.measurements.marks import mark, multiple, over, stated
from report.render.words import LEVEL

_PUBLISHED = "published"
_LOOKS = {CORE: [SKY, "v"], CORES: [BLUE, "o"], GPU: [GREEN, "s"], _PUBLISHED: [MUTED, "D"]}
_HOLLOW = (_PUBLISHED,)
_WIDTH = 7.4  # inches


@dataclass(frozen=True)
class Published:
    """Verified figures that others published: what they are, and which; place: the measured device that they are of."""

    title: str
    figures: Sequence[Mapping[str, Any]]
    place: Place | None = None
    key: str = ""


def show(views: Sequence[View], document: Mapping[str, Any]) -> Shown | None:
    """A group of rows for each device that has moved bytes, and one for what others published."""
    able = [view for view in views if len(view.of("bandwidth")) or len(view.of("transfer"))]
    shown = nodes(able)
    # Of hosts that are alike but for their GPUs the first.
    hosts = {view.label if view.host == view.make else view.host: view.node for view in reversed(shown)}
    levels = [
        level for view in shown for level in of_node(view) if level.place[1] != "cpu" or view.node in hosts.values()
    ]
    if not levels:
        return None
    names = machine_names(shown, list(dict.fromkeys(level.place for level in levels)))
    published = list(_published(document, _sockets(shown)))
    left_out = len(able) - len(shown)
    return Shown(
        _title(levels, names),
        _reading(levels, names, published),
        _drawing(levels, names, published, left_out),
        _table(levels, names, published),
        deciding(document, "bandwidth.rate", "transfer.memory_ratio", "transfer.rate"),
    )


def _sockets(views: Iterable[View]) -> dict[str, int]:
    told = {view.node: (view.record.get("hardware") or {}).get("cpu") for view in views}
    return {node: int(cpu.get("sockets") or 1) if isinstance(cpu, Mapping) else 1 for node, cpu in told.items()}


def _published(document: Mapping[str, Any], sockets: Mapping[str, int]) -> Iterator[Published]:
    """Figures beside the measured devices that they are of, and those of other machines by what they are."""
    for pair in document.get("triangulation") or []:
        if pair["unit"] != "B/s":
            continue
        title, others = str(pair["title"]), []
        for figure in pair["figures"]:
            if figure["status"] != "verified" or figure["value"] is None:
                continue
            for cell in figure["cells"]:
                # A figure of one processor is not that of a board with two.
                if not (pair["scaled"] and sockets.get(cell["node"], 1) > 1):
                    place = str(cell["node"]), str(cell["device"])
                    yield Published(title, [figure], place, str(pair["scope"].get("direction", MEMORY)))
            if not figure["cells"]:
                others.append(figure)
        if others:
            yield Published(title, sorted(others, key=lambda figure: float(figure["value"])))


def _title(levels: Sequence[Level], names: Mapping[Place, str]) -> str:
    """What lies furthest apart: a GPU's memory and its link, else a core's first cache and its memory."""
    rates = {(level.place, level.key): level.rates for level in levels if level.key}
    for place, name in names.items():
        memory, link = rates.get((place, MEMORY)), rates.get((place, "host_to_device"))
        if memory and link:
            ratio = multiple(over(memory[GPU], link[GPU]))
            return f"The memory of {name} moves {ratio} what the link to its host does"
    for place, name in names.items():
        near = next((level.rates[CORE] for level in levels if level.place == place and CORE in level.rates), None)
        far = rates.get((place, MEMORY), {}).get(CORE)
        if near and far and near is not far:
            return f"The first cache gives one core of {name} {multiple(over(near, far))} what memory does"
    return "How many bytes a second caches, memory and links move"


def _reading(levels: Sequence[Level], names: Mapping[Place, str], published: Sequence[Published]) -> list[str]:
    """From the nearest level to the furthest, machine by machine; and what is known where no GPU was measured."""
    lines = []
    for place, name in names.items():
        parts = []
        for who in (CORE, CORES, GPU):
            told = [f"{stated(level.rates[who], 'B/s')} {_from(level)}" for level in levels
                    if level.place == place and who in level.rates]  # fmt: skip
            if told:
                ends = told if who == GPU else [told[0], *told[1:][-1:]]
                parts.append(several(ends) if who == GPU else f"{who} gets {several(ends)}")
        lines.append(f"{name}: {'; '.join(parts)}.".replace(f"{CORES} gets", f"{CORES} get"))
    if not any(device_kind(device) == "gpu" for _, device in names) and any(one.place is None for one in published):
        lines.append(
            "No GPU has been measured. What is published of other machines stands apart: a rating is what no program "
            "reaches, and not to be held against a measured rate."
        )
    return lines


def _from(level: Level) -> str:
    return level.name if level.key in LINKS else f"from {level.name}"


def _drawing(
    levels: Sequence[Level], names: Mapping[Place, str], published: Sequence[Published], left_out: int
) -> Drawing:
    groups: list[dict[str, Any]] = [
        {"title": name, "rows": [_row(level, name, published) for level in levels if level.place == place]}
        for place, name in names.items()
    ]
    others = [_other(one) for one in published if one.place is None]
    if others:
        groups.append({"title": "Published of machines that were not measured here", "rows": others})
    marks: list[dict[str, Any]] = [one for group in groups for row in group["rows"] for one in row["marks"]]
    seen = {one["who"] for one in marks}
    # Whose marks have no interval: published figures', or measured ones'.
    bare = {one["who"] == _PUBLISHED for one in marks if one["low"] is None or one["high"] is None}
    why = {True: "published figures are stated without one", False: "measured ones have too few rounds"}
    shows = {
        "groups": groups, "x": "bandwidth", "unit": "B/s", "scale": "log", "width": _WIDTH,
        "bare": "; ".join(text for kind, text in why.items() if kind in bare),
        "legend": [
            {"label": who, "look": look, "hollow": who in _HOLLOW} for who, look in _LOOKS.items() if who in seen
        ],
    }  # fmt: skip
    caption = (
        "Bytes a second that triad moves (it reads two arrays and writes a third), from arrays that a cache holds to "
        f"those that none does, and that copies move over links, with {LEVEL} intervals. Which level an array lies in "
        "follows from the sizes of the caches as the machine tells them"
    )
    if left_out > 0:
        caption += f"; {count(left_out, 'further node')} stand in the section on memory bandwidth"
    return dots.drawing(FIGURE.name, shows, f"{caption}.", "Bandwidth of caches, memory and links, machine by machine.")


def _row(level: Level, machine: str, published: Sequence[Published]) -> dict[str, Any]:
    marks = [
        {
            **mark(cell, _LOOKS[who], who in _HOLLOW),
            "who": who,
            "words": f"{machine}, {level.name}, {who}: {stated(cell, 'B/s')} ({cell['where']})",
        }
        for who, cell in level.rates.items()
    ]
    marks += [_of_others(one.figures[0], one.title) for one in _beside(level, published)]
    told = [with_unit(float(cell["estimate"]), "B/s") for cell in level.rates.values()]
    return {"label": level.name, "below": level.bytes, "marks": marks, "told": " / ".join(told)}


def _beside(level: Level, published: Sequence[Published]) -> list[Published]:
    return [one for one in published if level.key and (one.place, one.key) == (level.place, level.key)]


def _other(one: Published) -> dict[str, Any]:
    """Figures of one kind as a row; under its label whose the ends are."""
    ends = [one.figures[0], *one.figures[1:][-1:]]
    return {
        "label": one.title,
        "below": " to ".join(str(figure["called"]).partition(" (")[0] for figure in ends),
        "marks": [_of_others(figure, one.title) for figure in one.figures],
        "told": " to ".join(dict.fromkeys(with_unit(float(figure["value"]), "B/s") for figure in ends)),
    }


def _of_others(figure: Mapping[str, Any], title: str) -> dict[str, Any]:
    """A published figure as a mark, with the range that its source gives, if any."""
    value, low, high = _ends(figure)
    ranged = low < high
    return {
        "estimate": value,
        "low": low if ranged else None,
        "high": high if ranged else None,
        "look": _LOOKS[_PUBLISHED],
        "hollow": True,
        "who": _PUBLISHED,
        "words": f"{figure['called']}: {interval(value, low, high, 'B/s')} (published; {title})",
    }


def _ends(figure: Mapping[str, Any]) -> tuple[float, float, float]:
    value = float(figure["value"])
    low, high = (value if figure[end] is None else float(figure[end]) for end in ("low", "high"))
    return value, low, high


def _table(levels: Sequence[Level], names: Mapping[Place, str], published: Sequence[Published]) -> Table:
    rows = []
    for level in levels:
        for who, cell in level.rates.items():
            rows.append([names[level.place], level.name, who, stated(cell, "B/s"), str(cell["where"])])
        rows += [_published_row(one.figures[0], one.title) for one in _beside(level, published)]
    rows += [_published_row(figure, one.title) for one in published if one.place is None for figure in one.figures]
    return Table(
        f"Bandwidth by machine and level, measured with {LEVEL} intervals, and as published",
        ["Machine", "Level", "By", "Rate", "With"],
        rows, "lllrl", [22, 26, 12, 24, 26],
    )  # fmt: skip


def _published_row(figure: Mapping[str, Any], title: str) -> list[str]:
    return [str(figure["called"]), title, _PUBLISHED, interval(*_ends(figure), "B/s"), NOTHING]


FIGURE = Central("hierarchy", show)
