"""The house style of every figure, and how a figure is kept: small, reproducible, light and dark.

Figures are drawn without pyplot (no global state), saved as SVG, and drawn again
only when what they show, or the code that draws them, has changed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from report.formatting import exactly
from report.render import strokes
from report.render.plain import harmless, visible

INK, MUTED, GREY, GRID, PLATE = "#1f2328", "#59636e", "#a8b0b9", "#d5dae0", "#ffffff"
# Okabe and Ito's palette, darkened where it must be read on white; never the only carrier of a meaning.
BLUE, VERMILION, AMBER, GREEN, PURPLE, SKY = "#0072b2", "#c2530a", "#b58500", "#00795a", "#a3558c", "#3b93c9"
SERIES = [BLUE, VERMILION, GREEN, PURPLE, AMBER, SKY]
MARKERS = ["o", "s", "^", "D", "v", "P"]
# What is light enough to fill a mark is too light for letters: these are of the same hue.
_AMBER_LETTERS, _SKY_LETTERS = "#8a6500", "#2273a3"
LETTERS = {AMBER: _AMBER_LETTERS, SKY: _SKY_LETTERS}
OUTCOME = {"supports": (BLUE, "o"), "challenges": (VERMILION, "X"), "undecided": (MUTED, "D")}
# The same on a dark page.
DARK = {INK: "#e6e9ed", MUTED: "#a4adb8", GREY: "#5d6772", GRID: "#3a424c", PLATE: "#161b22", BLUE: "#58a9e0",
        VERMILION: "#f08a4b", AMBER: "#e0b341", GREEN: "#3fbf97", PURPLE: "#d68fc0", SKY: "#7cc4ee",
        _AMBER_LETTERS: "#e0b341", _SKY_LETTERS: "#7cc4ee"}  # fmt: skip
# Whose code a figure depends on: what computes the numbers shows in the numbers.
_DRAWS = ("report.render", "report.formatting", "report.statistics")
_SVG = "{http://www.w3.org/2000/svg}"
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
# As elements of the file itself, not with a prefix.
ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 8.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    # A place of its own: to look for one that is free takes a fifth of the drawing.
    "axes.titley": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    # Text stays text: small files, the reader's own font, searchable.
    "svg.fonttype": "none",
    "svg.hashsalt": "does-ai-need-a-gpu",
    "path.simplify": True,
    # A dollar sign in a name is a dollar sign.
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Drawing:
    """A figure that is to be made: its file name, what it shows, and who draws it.

    `draw` is given `shows` and returns the figure; equal `shows` give equal figures.
    """

    name: str
    shows: Any
    draw: Callable[[Any], Figure]
    alt: str
    caption: str


def without_interval(bare: int, of: int, why: str = "") -> str:
    """What a caption says of the marks that have no interval, and why they have none; '' if all have one."""
    if not bare:
        return ""
    why = why or "too few rounds, or rounds that agree in every digit"
    some = f"{bare} of {of}" if bare < of else "all" if of > 1 else "it"
    return f" No interval is drawn at {some}: {why}."


def style() -> Any:
    """The house style, as a context: `with style(): …`."""
    return matplotlib.rc_context(STYLE)


def name_axis(axes: Axes, which: str, what: str, unit: str = "", log: bool = False, **look: Any) -> None:
    """Title an axis: what it counts, in which unit or that it has none, and whether it is logarithmic."""
    said = bool(re.search(rf"(?<!\w){re.escape(unit)}(?!\w)", what)) if unit else log
    titled = what if said else f"{what} ({unit or 'no unit'})"
    label = (axes.set_xlabel if which == "x" else axes.set_ylabel)(f"{titled}, log scale" if log else titled, **look)
    label.set_gid(f"title.{which}.{len(axes.figure.axes)}{'.said' if unit and said else ''}")


def log_ticks(
    axes: Axes, which: str = "x", base: float = 10, words: Callable[[float], str] | None = None, most: int = 0
) -> None:
    """A logarithmic axis with sparse ticks, each in plain digits. most: decades, or powers of another base, at most."""
    getattr(axes, f"set_{which}scale")("log", base=base)
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    steps: tuple[int, ...] = (1,)
    if base == 10 and high / low < 300:
        # Decades alone would leave one tick or two.
        steps = (1, 2, 5) if high / low < 50 else (1, 3)
    axis.set_major_locator(LogLocator(base=base, subs=steps, numticks=most or (8 if base == 10 else 4)))
    axis.set_major_formatter(FuncFormatter(lambda value, _place: (words or _digits)(value)))
    axis.set_minor_formatter(NullFormatter())


def linear_ticks(axes: Axes, which: str = "x") -> None:
    """A linear axis with few ticks, each in plain digits."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _place: _digits(value)))


def _digits(value: float) -> str:
    """A tick's value with no digit too many: 0.05, 2.5, 1,024."""
    return (f"{value:,.6g}" if abs(value) < 1e6 else exactly(float(f"{value:.6g}"))).replace("-", "−")


def keep(drawing: Drawing, folder: Path, earlier: Path | None, png: bool = False) -> bool:
    """Put the drawing's SVG (and PNG) into `folder`; copy them from `earlier` if they show the same.

    Returns whether it was drawn. Raises OSError if the folder cannot be written.
    """
    key = reuse(drawing, folder, earlier, png)
    if key:
        paint(drawing, folder, key, png)
    return bool(key)


def reuse(drawing: Drawing, folder: Path, earlier: Path | None, png: bool = False) -> str:
    """Copy the drawing's files from `earlier` if they show the same, and give ''; else the key to draw it under."""
    key = _key(drawing)
    paths = _files(drawing, folder, png)
    old = [earlier / path.name for path in paths] if earlier else []
    if not old or not all(path.is_file() for path in old) or _stored_key(old[0]) != key:
        return key
    for source, path in zip(old, paths, strict=True):
        shutil.copyfile(source, path)
    return ""


def paint(drawing: Drawing, folder: Path, key: str, png: bool = False) -> None:
    """Draw the figure into `folder`, its SVG marked with `key`. Raises OSError if the folder cannot be written."""
    svg, *others = _files(drawing, folder, png)
    with style():
        figure = drawing.draw(drawing.shows)
        figure.savefig(svg, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        for path in others:
            save_png(figure, path, 110)
    svg.write_text(_finish(svg.read_text(encoding="utf-8"), key, strokes.told(figure)), encoding="utf-8")


def save_png(figure: Figure, path: Path, dpi: int) -> None:
    """Save a figure as pixels on a white plate, so many to the inch; equal figures give equal files. Raises OSError."""
    figure.savefig(path, dpi=dpi, format="png", facecolor=PLATE, metadata={"Software": None})


def _files(drawing: Drawing, folder: Path, png: bool) -> list[Path]:
    return [folder / f"{drawing.name}.{kind}" for kind in (["svg", "png"] if png else ["svg"])]


def _key(drawing: Drawing) -> str:
    """A digest of what is shown and of the code that draws it."""
    shown = json.dumps(drawing.shows, sort_keys=True, default=str)
    digest = hashlib.sha256(f"{matplotlib.__version__}\n{drawing.draw.__qualname__}\n{shown}".encode())
    for module in sorted({__name__, *_drawn_by(drawing.draw.__module__)}):
        digest.update(_source(module))
    return digest.hexdigest()[:16]


@cache
def _drawn_by(module: str) -> frozenset[str]:
    """A module and all that it imports of what draws, directly or not: a change there may change the figure."""
    found = {module}
    left = [module]
    while left:
        new = {name for name in _imports(left.pop()) if name.startswith(_DRAWS)} - found
        found |= new
        left += sorted(new)
    return frozenset(found)


def _imports(module: str) -> set[str]:
    """The modules that one imports: of `from package import module` the module, not the package."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{one.name}" for one in node.names}
            found |= whole if whole <= set(sys.modules) else {node.module}
    return found & set(sys.modules)


@cache
def _source(module: str) -> bytes:
    """The code of a module. One without a file (made up in a test, or typed at a prompt) has none."""
    place = getattr(sys.modules[module], "__file__", None)
    return Path(place).read_bytes() if place else b""


def _stored_key(svg: Path) -> str:
    with svg.open(encoding="utf-8") as file:
        found = re.search(r"<!--shows ([0-9a-f]+)-->", file.read(600))
    return found[1] if found else ""


def _finish(svg: str, key: str, told: Mapping[str, Sequence[str]]) -> str:
    """The SVG without what no reader sees, in the reader's font, readable on a dark page, its marks with their words.

    told: the words of each mark of a stroke, by the stroke's id.
    """
    svg = visible(svg[svg.index("<svg") :])
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"'DejaVu Sans'(?:, [^;\"]*?)?(?=[;\"])", FONTS, svg)
    # Hundredths of a point are enough for coordinates; text is left alone.
    svg = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda place: re.sub(r"(\.\d{2})\d+", r"\1", place.group()), svg)
    svg = re.sub(r"(<text\b[^>]*>)([^<]+)", lambda text: _lettering(text[1]) + harmless(text[2]), svg)
    if told:
        svg = _titled(svg, told)
    dark = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
        if f"{part}: {light}" in svg
    )
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    head = f"\n<!--shows {key}-->\n<style>@media (prefers-color-scheme: dark){{{dark}}}</style>"
    return svg.replace(">", ">" + head, 1)


def _lettering(tag: str) -> str:
    """The tag of a text in a colour that can be read."""
    return re.sub(r"(?<=fill: )#[0-9a-f]{6}", lambda colour: LETTERS.get(colour[0], colour[0]), tag)


def _titled(svg: str, told: Mapping[str, Sequence[str]]) -> str:
    """The SVG with the words of each mark as its title.

    Where marks of a stroke fall outside the figure, matplotlib leaves them out or puts them at its edge, and
    nobody can say whose those in the file are: none of that stroke has words.
    """
    root = ElementTree.fromstring(svg)
    width, height = map(float, root.get("viewBox", "0 0 0 0").split()[2:])
    for group in root.iter(f"{_SVG}g"):
        words = told.get(group.get("id", ""), ())
        uses = group.findall(f".//{_SVG}use")
        marks = uses or group.findall(f"{_SVG}path")
        within = all(0 <= float(use.get("x", "0")) <= width and 0 <= float(use.get("y", "0")) <= height for use in uses)
        if within and len(words) == len(marks):
            for mark, text in zip(marks, words, strict=True):
                ElementTree.SubElement(mark, f"{_SVG}title").text = harmless(" ".join(text.split()))
    return ElementTree.tostring(root, encoding="unicode")
