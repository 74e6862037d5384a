"""The picture for links: its size, its words, and that everything stays within it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from report.render.figures import style
from report.render.head import HEIGHT, WIDTH, head, put
from report.site.picture import draw, write_picture
from tests.report.render.conftest import VERDICTS

from .conftest import URL, Judged

SHOWS: dict[str, Any] = {
    "title": "Does AI need a GPU?",
    "answer": "Of 88 claims, 42 can be decided on the evidence gathered so far. Of the others, 41 wait for hardware.",
    "tally": [(name, number) for name, number in zip(VERDICTS, (15, 11, 13, 1, 2, 41, 1, 3, 1), strict=True)],
    "foot": "Evidence of AMD EPYC, 2 cores, 2026-01-01",
}


def drawn(shows: dict[str, Any]) -> Figure:
    with style():
        figure = draw(shows)
        FigureCanvasAgg(figure).draw()
    return figure


def test_the_picture_has_the_size_that_is_promised(tmp_path: Path) -> None:
    write_picture(SHOWS, tmp_path / "og.png")
    with Image.open(tmp_path / "og.png") as image:
        assert image.size == (WIDTH, HEIGHT) == (1200, 630)
    assert (tmp_path / "og.png").stat().st_size < 300_000
    write_picture(SHOWS, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "og.png").read_bytes()
    write_picture({**SHOWS, "tally": [("supported", 88)]}, tmp_path / "other.png")
    assert (tmp_path / "other.png").read_bytes() != (tmp_path / "og.png").read_bytes()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"answer": "word " * 400},
        {"answer": "W" * 90 + " $x^2$ \\frac <b> " + "i" * 2000},
        {"foot": "Evidence of " + "a very long machine, " * 30},
        {"tally": []},
        {"tally": [(f"a verdict of the future, number {n}", 10**n) for n in range(8)]},
    ],
)
def test_nothing_leaves_the_picture(more: dict[str, Any]) -> None:
    figure = drawn({**SHOWS, **more})
    renderer = figure.canvas.get_renderer()
    for text in figure.texts:
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0 and box.x1 <= WIDTH and box.y0 >= 0 and box.y1 <= HEIGHT, text.get_text()
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])


def test_what_only_an_address_can_say_is_left_out_without_one(second: Judged) -> None:
    without, tags = head(second.document, ""), head(second.document, URL)
    assert "og:title" in without and "og:description" in without
    assert "http" not in without and "og:image" not in without and "canonical" not in without
    assert f'<meta property="og:image" content="{URL}og.png">' in tags
    assert f'<link rel="canonical" href="{URL}">' in tags and 'href="feed.xml"' in tags


def test_tags_are_text_and_stand_in_the_head(second: Judged, tmp_path: Path) -> None:
    nodes = [{**second.document["nodes"][0], "label": '"><script>alert(1)</script>'}]
    tags = head({**second.document, "nodes": nodes}, URL)
    assert "<script" not in tags and "&lt;script&gt;" in tags
    page = tmp_path / "index.html"
    page.write_text("<html><head><title>T</title></head><body></head></body></html>", encoding="utf-8")
    put(page, tags)
    text = page.read_text(encoding="utf-8")
    assert text.index("og:title") < text.index("</head>") and text.count("og:title") == 1
    page.write_text("<html></html>", encoding="utf-8")
    with pytest.raises(ValueError, match="no head"):
        put(page, tags)
