"""The house style of every figure, and how a figure is kept: small, reproducible, light and dark.

Figures are drawn without pyplot (no global state), saved as SVG and PNG, and drawn again
only when what they show, or the code that draws them, has changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from report.wording import exactly

INK, MUTED, GREY, GRID, PLATE = "#1f2328", "#59636e", "#a8b0b9", "#d5dae0", "#ffffff"
# Okabe and Ito's palette, darkened where it must be read on white; never the only carrier of a meaning.
BLUE, VERMILION, AMBER, GREEN, PURPLE, SKY = "#0072b2", "#c2530a", "#b58500", "#00795a", "#a3558c", "#3b93c9"
SERIES = [BLUE, VERMILION, GREEN, PURPLE, AMBER, SKY]
MARKERS = ["o", "s", "^", "D", "v", "P"]
OUTCOME = {"supports": (BLUE, "o"), "challenges": (VERMILION, "X"), "undecided": (MUTED, "D")}
_DARK = {INK: "#e6e9ed", MUTED: "#a4adb8", GREY: "#5d6772", GRID: "#3a424c", PLATE: "#161b22", BLUE: "#58a9e0",
         VERMILION: "#f08a4b", AMBER: "#e0b341", GREEN: "#3fbf97", PURPLE: "#d68fc0", SKY: "#7cc4ee"}  # fmt: skip
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
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
    titled = f"{what} ({unit})".strip() if unit else what if log else f"{what} (no unit)"
    label = (axes.set_xlabel if which == "x" else axes.set_ylabel)(f"{titled}, log scale" if log else titled, **look)
    label.set_gid(f"title.{which}.{len(axes.figure.axes)}")


def log_ticks(
    axes: Axes, which: str = "x", base: float = 10, words: Callable[[float], str] | None = None, most: int = 4
) -> None:
    """A logarithmic axis with sparse ticks, each in plain digits. most: ticks at most, if the base is not 10."""
    getattr(axes, f"set_{which}scale")("log", base=base)
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    steps: tuple[int, ...] = (1,)
    if base == 10 and high / low < 300:
        # Decades alone would leave one tick or two.
        steps = (1, 2, 5) if high / low < 50 else (1, 3)
    axis.set_major_locator(LogLocator(base=base, subs=steps, numticks=8 if base == 10 else most))
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


def keep(drawing: Drawing, folder: Path, earlier: Path | None) -> bool:
    """Put the drawing's SVG and PNG into `folder`; copy them from `earlier` if they show the same.

    Returns whether it was drawn. Raises OSError if the folder cannot be written.
    """
    key = _key(drawing)
    paths = [folder / f"{drawing.name}.{kind}" for kind in ("svg", "png")]
    old = [earlier / path.name for path in paths] if earlier else []
    if old and all(path.is_file() for path in old) and _stored_key(old[0]) == key:
        for source, path in zip(old, paths, strict=True):
            shutil.copyfile(source, path)
        return False
    with style():
        figure = drawing.draw(drawing.shows)
        figure.savefig(paths[0], metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        figure.savefig(paths[1], dpi=110, facecolor=PLATE, metadata={"Software": None})
    paths[0].write_text(_finish(paths[0].read_text(encoding="utf-8"), key), encoding="utf-8")
    return True


def _key(drawing: Drawing) -> str:
    """A digest of what is shown and of the code that draws it."""
    shown = json.dumps(drawing.shows, sort_keys=True, default=str)
    digest = hashlib.sha256(f"{matplotlib.__version__}\n{drawing.draw.__qualname__}\n{shown}".encode())
    for module in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()[:16]


def _stored_key(svg: Path) -> str:
    with svg.open(encoding="utf-8") as file:
        found = re.search(r"<!--shows ([0-9a-f]+)-->", file.read(600))
    return found[1] if found else ""


def _finish(svg: str, key: str) -> str:
    """The SVG without what no reader sees, in the reader's font, and readable on a dark page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"'DejaVu Sans'(?:, [^;\"]*?)?(?=[;\"])", _FONTS, svg)
    # Hundredths of a point are enough for coordinates; text is left alone.
    svg = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda place: re.sub(r"(\.\d{2})\d+", r"\1", place.group()), svg)
    dark = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in _DARK.items()
        for part in ("fill", "stroke")
        if f"{part}: {light}" in svg
    )
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    head = f"\n<!--shows {key}-->\n<style>@media (prefers-color-scheme: dark){{{dark}}}</style>"
    return svg.replace(">", ">" + head, 1)
