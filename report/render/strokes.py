"""The strokes that figures are made of. Nothing else in this package draws a line, a mark or a bar.

Points are joined only where what lies between them means something (Hoefler and Belli, rule 12): along one
of the variables in INTERPOLABLE, in rising order, never from one category to the next. Each stroke carries
its kind as the id of its group in the SVG, so that a published figure can be checked stroke by stroke.

`told` gives each mark of a stroke its words, in the order of the points: what a reader sees who points at it.
They go into the SVG as the mark's title. A stroke without them has none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

# What may be joined along, and what lies between two points of it.
INTERPOLABLE = {
    "batch": "a batch may have any number of samples",
    "footprint": "arrays may have any length",
    "size": "a matrix, a table or a message may have any size",
    "threads": "work may be given to any number of threads",
    "paths": "threads may part into any number of paths",
    "load": "requests may come at any rate",
    "time": "time passes between two readings",
}
KINDS = ("join", "points", "interval", "reference", "rise", "band", "bar", "predicted", "key")
_NAME = re.compile(rf"({'|'.join(KINDS)})(?:\.([a-z]+))?(?:\.bare(\d+))?\.\d+")


def join(
    axes: Axes,
    xs: Sequence[float],
    ys: Sequence[float],
    along: str,
    bare: int = 0,
    told: Sequence[str] = (),
    **look: Any,
) -> None:
    """A line through the points of one series, and their marks if `look` has any.

    along: the variable of the axis, one of INTERPOLABLE. bare: how many of the points have no
    interval. told: the words of each mark. Raises ValueError for another variable, for points
    that do not rise along it, and for words without marks or not as many as these.
    """
    if along not in INTERPOLABLE:
        raise ValueError(f"points may not be joined along {along!r}: only along {', '.join(INTERPOLABLE)}")
    if any(isinstance(x, str) or not math.isfinite(x) for x in xs) or any(a > b for a, b in pairwise(xs)):
        raise ValueError(f"points that are joined along {along} do not rise: {list(xs)}")
    if told and look.get("marker") in (None, "", " ", "none", "None"):
        raise ValueError("words are told of marks: give the line a marker, or draw the points by themselves")
    for line in axes.plot(xs, ys, **look):
        _name(axes, line, f"join.{along}", bare, told, len(xs))


def points(
    axes: Axes, xs: Sequence[float], ys: Sequence[float], bare: int = 0, told: Sequence[str] = (), **look: Any
) -> None:
    """Marks that nothing joins. bare: how many of them have no interval. told: the words of each mark.

    Raises ValueError if there are not as many words as points.
    """
    for line in axes.plot(xs, ys, **{**look, "linestyle": "none"}):
        _name(axes, line, "points", bare, told, len(xs))


def interval(axes: Axes, low: float, high: float, at: float, told: Sequence[str] = (), **look: Any) -> None:
    """An interval along the x axis, at one height. told: its words, a list of one."""
    for line in axes.plot([low, high], [at, at], **look):
        _name(axes, line, "interval", 0, told, 1)


def intervals(
    axes: Axes,
    xs: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    told: Sequence[str] = (),
    **look: Any,
) -> None:
    """Intervals along the y axis, one at each x. told: the words of each. Raises ValueError as `points`."""
    _name(axes, axes.vlines(xs, lows, highs, **look), "interval", 0, told, len(xs))


def rise(axes: Axes, start: float, end: float, at: float, **look: Any) -> None:
    """How far a row lies from the one before, within that row: what it gains."""
    for line in axes.plot([start, end], [at, at], **look):
        _name(axes, line, "rise")


def reference(axes: Axes, xs: Sequence[float], ys: Sequence[float], **look: Any) -> None:
    """What no point was measured for and holds all along: a threshold, a ceiling, a proportion."""
    for line in axes.plot(xs, ys, **look):
        _name(axes, line, "reference")


def level(axes: Axes, y: float, **look: Any) -> None:
    """A reference at one height, across the axes."""
    _name(axes, axes.axhline(y, **look), "reference")


def upright(axes: Axes, x: float, **look: Any) -> None:
    """A reference at one place, from the foot of the axes to their head."""
    _name(axes, axes.axvline(x, **look), "reference")


def uprights(axes: Axes, xs: Sequence[float], low: float, high: float, **look: Any) -> None:
    """References at several places, from one height to another."""
    _name(axes, axes.vlines(xs, low, high, **look), "reference")


def band(axes: Axes, left: float, right: float, **look: Any) -> None:
    """A stretch of the x axis, shaded over the height of the axes."""
    _name(axes, axes.axvspan(left, right, **look), "band")


def track(axes: Axes, ends: Sequence[float], low: float, high: float, **look: Any) -> None:
    """A stretch of the x axis, shaded between two heights."""
    _name(axes, axes.fill_between(ends, low, high, **look), "band")


def bar(
    axes: Axes, at: float, start: float, length: float, height: float, told: Sequence[str] = (), **look: Any
) -> None:
    """A part of a bar along the x axis. It has no interval: parts of one whole vary together.

    told: its words, a list of one.
    """
    for part in axes.barh(at, length, height=height, left=start, **look):
        _name(axes, part, "bar", 1, told, 1)


def predicted(
    axes: Axes, low: float, high: float, at: float, height: float, told: Sequence[str] = (), **look: Any
) -> None:
    """A range in which a value is predicted to lie: its own interval. told: its words, a list of one."""
    for part in axes.barh(at, high - low, height=height, left=low, **look):
        _name(axes, part, "predicted", 0, told, 1)


def key(place: Axes | Figure, artist: Line2D | Rectangle) -> None:
    """A mark of the legend, or of a label beside its series."""
    place.add_artist(artist)
    _name(place, artist, "key")


def told(figure: Figure) -> Mapping[str, Sequence[str]]:
    """The words of a figure's marks, by the id that their stroke bears in the SVG."""
    found: Mapping[str, Sequence[str]] = figure.__dict__.get("_told", {})
    return found


def _name(
    place: Axes | Figure, artist: Any, kind: str, bare: int = 0, words: Sequence[str] = (), marks: int = 0
) -> None:
    """Give a stroke its kind as the id that it bears in the SVG; ids are numbered through the figure.

    words: of each of its `marks`. Raises ValueError if these are not as many.
    """
    if isinstance(words, str) or (words and len(words) != marks):
        raise ValueError(f"a stroke of kind {kind} has {marks} mark(s), and the words of {len(words)}: {words!r}")
    figure: Any = place if isinstance(place, Figure) else place.figure
    number = figure.__dict__.setdefault("_strokes", 0)
    figure.__dict__["_strokes"] = number + 1
    name = f"{kind}{f'.bare{bare}' if bare else ''}.{number}"
    artist.set_gid(name)
    if words:
        figure.__dict__.setdefault("_told", {})[name] = list(words)


def parse(name: str) -> tuple[str, str, int] | None:
    """Kind, variable and number of points without an interval, from the id of a stroke; None if it is no stroke's."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2] or "", int(found[3] or 0)) if found else None
