"""Save figures as SVG: in the reader's font, readable on a dark page, without metadata."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from report.pages.charts import DARK, FONTS, MUTED, NARROW, WIDE, Chart, theme
from report.pages.control_characters import remove_invisible, sanitize

# Suppress matplotlib's default metadata.
METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def save_chart(chart: Chart, folder: Path) -> None:
    """Draw `NAME.svg` and, for phones, `NAME.phone.svg`. Raises OSError."""
    for width, ending in ((WIDE, "svg"), (NARROW, "phone.svg")):
        path = folder / f"{chart.name}.{ending}"
        with theme():
            figure = chart.draw(width)
            # Figure.savefig writes the same file, but draws the figure twice, because it computes the layout first.
            FigureCanvasSVG(figure).print_svg(path, metadata=METADATA)
        path.write_text(finish_svg(path.read_text(encoding="utf-8"), plot_area(figure)), encoding="utf-8")


def plot_area(figure: Figure) -> str:
    """Describe a drawn figure's only plot: its edges, the ends of its x axis, and the axis's scale; '' if it has more.

    The edges are left, right, top and bottom, as fractions of the figure's width and height.
    """
    if len(figure.axes) != 1:
        return ""
    (axes,) = figure.axes
    box = axes.get_position()
    edges = (box.x0, box.x1, 1 - box.y1, 1 - box.y0, *axes.get_xlim())
    return " ".join([*(f"{edge:.6g}" for edge in edges), axes.get_xscale()])


def read_plot(path: Path) -> list[float | str] | None:
    """Read what `plot_area` wrote into an SVG file; None if it is not there. Raises OSError if the file is missing."""
    attribute = re.search(r'<svg[^>]* data-plot="([^"]+)"', path.read_text(encoding="utf-8")[:2000])
    if not attribute:
        return None
    *numbers, scale = attribute[1].split()
    return [*map(float, numbers), scale]


def text_drawing(text: str) -> Callable[[float], Figure]:
    """Return a drawing that contains only the text."""

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.8))
        figure.text(0.02, 0.5, textwrap.fill(text, 34 if width <= NARROW else 70), color=MUTED, va="center")
        return figure

    return draw


def finish_svg(svg: str, plot: str = "") -> str:
    """Remove metadata and comments, set the reader's font, add dark colours, turn styles into attributes.

    plot: from `plot_area`, for the page's slider.
    """
    svg = remove_invisible(svg[svg.index("<svg") :])
    svg = re.sub(r"\s*<metadata>.*?</metadata>|\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"'DejaVu Sans'(?:, [^;\"]*?)?(?=[;\"])", FONTS, svg)
    # Round coordinates to hundredths, but not numbers in text.
    svg = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda place: re.sub(r"(\.\d{2})\d+", r"\1", place.group()), svg)
    svg = re.sub(r"(<text\b[^>]*>)([^<]+)", lambda text: text[1] + sanitize(text[2]), svg)
    # A server may forbid styles inside a file. Attributes that are equal in effect are always allowed.
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg", '<svg stroke-linejoin="round"' + (f' data-plot="{plot}"' if plot else ""), 1)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r' style="([^"]*)"', _presentation_attributes, tag.group()), svg)
    dark = "".join(
        f'[{part}="{light}"]{{{part}:{dark}}}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
        if f'{part}="{light}"' in svg
    )
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return svg.replace(">", f">\n<style>@media (prefers-color-scheme: dark){{{dark}}}</style>", 1)


def _presentation_attributes(style: re.Match[str]) -> str:
    declarations = (part.partition(":") for part in style[1].split(";") if part.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in declarations)
