"""Figures as files: SVG in the reader's font, readable on a dark page, without what no reader sees."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from report.pages.charts import DARK, FONTS, MUTED, NARROW, WIDE, Chart, theme
from report.pages.control_characters import harmless, visible

# Metadata that matplotlib writes by itself, and that is left out.
METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def save(chart: Chart, folder: Path) -> None:
    """Draw `NAME.svg` and, for phones, `NAME.phone.svg` into the folder. Raises OSError."""
    for width, ending in ((WIDE, "svg"), (NARROW, "phone.svg")):
        path = folder / f"{chart.name}.{ending}"
        with theme():
            # savefig would draw twice, once for the layout alone; the file is the same.
            FigureCanvasSVG(chart.draw(width)).print_svg(path, metadata=METADATA)
        path.write_text(finished(path.read_text(encoding="utf-8")), encoding="utf-8")


def blank(text: str) -> Callable[[float], Figure]:
    """A sentence in the place of a figure."""

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.8))
        figure.text(0.02, 0.5, textwrap.fill(text, 34 if width <= NARROW else 70), color=MUTED, va="center")
        return figure

    return draw


def finished(svg: str) -> str:
    """The SVG without what no reader sees, in the reader's font, readable on a dark page."""
    svg = visible(svg[svg.index("<svg") :])
    svg = re.sub(r"\s*<metadata>.*?</metadata>|\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"'DejaVu Sans'(?:, [^;\"]*?)?(?=[;\"])", FONTS, svg)
    # Hundredths of a point are enough for coordinates; text is left alone.
    svg = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda place: re.sub(r"(\.\d{2})\d+", r"\1", place.group()), svg)
    svg = re.sub(r"(<text\b[^>]*>)([^<]+)", lambda text: text[1] + harmless(text[2]), svg)
    dark = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
        if f"{part}: {light}" in svg
    )
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return svg.replace(">", f">\n<style>@media (prefers-color-scheme: dark){{{dark}}}</style>", 1)
