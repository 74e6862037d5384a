"""Preview images for shared links, 1200 × 630 pixels as in Open Graph."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from report.pages import verdict_words
from report.pages.charts import INK, MUTED, PAPER, WIDE, Chart, theme
from report.pages.control_characters import sanitize

_COLOURS = {
    "supported": "#00609c", "challenged": "#b84a00", "depends": "#8a6500", "outdated": "#74528f",
    "undecided": "#59636e", "open": "#59636e", "opinion": "#59636e",
}  # fmt: skip


def draw_claim_previews(document: Mapping[str, Any], charts: Sequence[Chart], folder: Path) -> None:
    """Write a preview image with verdict, finding and claim, for each claim that has a figure."""
    drawn = {chart.name for chart in charts}
    for verdict in document["verdicts"]:
        if verdict["id"] in drawn:
            word = verdict_words.verdict_word(str(verdict["verdict"]))
            _save_preview(folder / f"{verdict['id']}.png", f"{word.sign} {word.name}", _COLOURS[word.css],
                          str(verdict["finding"]),
                          f"{verdict['id']}: {verdict['says']}")  # fmt: skip


# Beginning of a picture's figure name.
PICTURE = "picture-"
# Size of a preview in inches, and its dots per inch: text of 10 points is then 22 pixels high.
_SIZE, _DPI = (7.5, 3.9375), 160


def preview_path(chart: Chart) -> str:
    """Return the path of a picture's preview."""
    return f"previews/{chart.name}.png"


def draw_picture_preview(chart: Chart, folder: Path) -> None:
    """Write a picture with its title, 1200 × 630 pixels."""
    title = _wrap_lines(chart.title, 60, 3)
    head = 0.12 + 0.28 * (title.count("\n") + 1)
    with theme():
        page = Figure(figsize=_SIZE, dpi=_DPI, facecolor=PAPER)
        page.text(0.02, 0.965, title, va="top", fontsize=13, weight="bold", color=INK, linespacing=1.3)
        figure = chart.draw(WIDE)
        figure.set_size_inches(_SIZE[0], _SIZE[1] - head)
        figure.set_dpi(_DPI)
        figure.set_facecolor(PAPER)
        image, drawing = _draw_image(page), _draw_image(figure)
    image.paste(drawing, (0, image.height - drawing.height))
    _save_image(image, folder / f"{chart.name}.png", colours=64)


def draw_front_preview(document: Mapping[str, Any], folder: Path) -> None:
    """Write the front page's preview image, with the question and the verdict tally."""
    tally = verdict_words.format_tally(document["verdicts"])
    _save_preview(folder / "index.png", f"{len(document['verdicts'])} claims of three articles, checked", INK,
                  "Does AI need a GPU?", f"{tally}." if tally else "")  # fmt: skip


def _save_preview(path: Path, head: str, colour: str, text: str, below: str) -> None:
    with theme():
        figure = Figure(figsize=(12, 6.3), dpi=100, facecolor="white")
        figure.set_layout_engine("none")
        place: dict[str, Any] = {"transform": figure.transFigure, "va": "top"}
        figure.text(0.06, 0.9, head, fontsize=30, weight="bold", color=colour, **place)
        figure.text(
            0.06, 0.76, _wrap_lines(text, 44, 5), fontsize=32, weight="bold", color=INK, linespacing=1.25, **place
        )
        figure.text(0.06, 0.18, _wrap_lines(below, 88, 2), fontsize=17, color=MUTED, linespacing=1.3, **place)
        _save_image(_draw_image(figure), path, colours=16)


def _draw_image(figure: Figure) -> Image.Image:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _save_image(image: Image.Image, path: Path, colours: int) -> None:
    """Save an image as PNG with few colours, which make the file four times smaller."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # `optimize` is off, because it takes ten times as long and saves 4%.
    image.quantize(colours).save(path)


def _wrap_lines(text: str, width: int, most: int) -> str:
    return "\n".join(textwrap.wrap(sanitize(text), width, max_lines=most, placeholder=" …"))
