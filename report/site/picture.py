"""The picture that stands for the page where somebody passes on its address: the question, the answer, the tally."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

from contract.files import atomic
from report.render import strokes
from report.render.figures import AMBER, BLUE, GREY, GRID, INK, MUTED, PLATE, VERMILION, save_png, style
from report.render.head import HEIGHT, WIDTH
from report.render.words import verdict_class

_DPI = 100
_MARGIN = 60
_COLOURS = {
    "supported": BLUE, "challenged": VERMILION, "depends": AMBER, "outdated": "#74528f", "undecided": MUTED,
    "awaiting": GRID, "opinion": GREY,
}  # fmt: skip
# Of the answer, in points: the largest in which it fits. A line's height, in that size.
_SIZES, _LINE = (25, 22, 19.5, 17.5, 15.5), 1.42
_FOOT = 15.5
# Lines of the legend for which there is room.
_LEGENDS = 3
# Letters that no line has room for: to measure a text takes as long as it is.
_LONGEST = 200
_CUT = " …"


def write_picture(shows: Mapping[str, Any], path: Path) -> None:
    """Draw what `head.told` gave as a PNG of WIDTH by HEIGHT pixels. Raises OSError."""
    with style(), atomic(path) as temporary:
        save_png(draw(shows), temporary, _DPI)


def draw(shows: Mapping[str, Any]) -> Figure:
    """The picture as a figure; everything is placed in pixels from its upper left corner."""
    figure = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI)
    _write(figure, _MARGIN, 62, shows["title"], 44, weight="bold")
    size, lines = fitted(shows["answer"], WIDTH - 2 * _MARGIN, 232)
    for place, line in enumerate(lines):
        _write(figure, _MARGIN, 146 + place * _pixels(size * _LINE), line, size)
    _bar(figure, shows["tally"], 392, 56)
    _legend(figure, shows["tally"], 466)
    foot = _cut(wrapped(shows["foot"], _FOOT, WIDTH - 2 * _MARGIN), 1, _FOOT, WIDTH - 2 * _MARGIN)
    _write(figure, _MARGIN, HEIGHT - 44, "".join(foot), _FOOT, color=MUTED)
    return figure


def fitted(text: str, width: float, height: float) -> tuple[float, list[str]]:
    """The size in points, and the lines, in which a text fits into so many pixels; cut short if it never does."""
    for size in _SIZES:
        lines, most = wrapped(text, size, width), int(height / _pixels(size * _LINE))
        if len(lines) <= most:
            return size, lines
    return size, _cut(lines, most, size, width)


def wrapped(text: str, size: float, width: float) -> list[str]:
    """A text in lines of at most so many pixels; a word that is wider is broken."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if len(longer) <= _LONGEST and _wide(longer, size) <= width:
            lines[-1:] = [longer]
            continue
        while len(word) > _LONGEST or _wide(word, size) > width:
            end = _fits(word[:_LONGEST], size, width)
            lines.append(word[:end])
            word = word[end:]
        lines.append(word)
    return lines


def _fits(word: str, size: float, width: float) -> int:
    """How many letters of a word fit; one at the least."""

    def wide(letters: int) -> float:
        return _wide(word[:letters], size)

    return max(1, bisect_right(range(1, len(word) + 1), width, key=wide))


def _cut(lines: Sequence[str], most: int, size: float, width: float) -> list[str]:
    """So many of the lines, the last of which shows if there were more."""
    if len(lines) <= most:
        return list(lines)
    last = lines[most - 1]
    while last and _wide(last + _CUT, size) > width:
        last = last[:-1]
    return [*lines[: most - 1], last.rstrip() + _CUT]


def _wide(text: str, size: float) -> float:
    """How many pixels a text takes."""
    wide, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return _pixels(float(wide))


def _pixels(points: float) -> float:
    return points * _DPI / 72


def _write(figure: Figure, x: float, y: float, text: str, size: float, **look: Any) -> None:
    """A line of text whose upper left corner is there."""
    at = {"x": x / WIDTH, "y": 1 - y / HEIGHT, "ha": "left", "va": "top"}
    # What looks like a formula to the drawing library is text.
    figure.text(s=text, fontsize=size, parse_math=False, **{"color": INK, **at, **look})


def _bar(figure: Figure, tally: Sequence[tuple[str, int]], top: float, height: float) -> None:
    axes = figure.add_axes((_MARGIN / WIDTH, 1 - (top + height) / HEIGHT, 1 - 2 * _MARGIN / WIDTH, height / HEIGHT))
    axes.set_axis_off()
    axes.set_ylim(-0.5, 0.5)
    axes.set_xlim(0, max(1, sum(number for _, number in tally)))
    start = 0
    for name, number in tally:
        strokes.bar(axes, 0, start, number, 1, color=_COLOURS[verdict_class(name)], edgecolor=PLATE, linewidth=2.5)
        start += number


def _legend(figure: Figure, tally: Sequence[tuple[str, int]], top: float) -> None:
    """Each verdict with its number and colour, in as many lines as they take."""
    size, sign, gap = 16.5, 20, 30
    x, y, line = float(_MARGIN), top, 1
    for name, number in tally:
        label = f"{number} {name}"
        wide = sign + 10 + _wide(label, size)
        if x > _MARGIN and x + wide > WIDTH - _MARGIN:
            x, y, line = float(_MARGIN), y + 34, line + 1
        if line > _LEGENDS:
            break
        mark = Rectangle((x / WIDTH, 1 - (y + sign) / HEIGHT), sign / WIDTH, sign / HEIGHT, linewidth=0,
                         facecolor=_COLOURS[verdict_class(name)])  # fmt: skip
        strokes.key(figure, mark)
        _write(figure, x + sign + 10, y - 2, label, size)
        x += wide + gap
