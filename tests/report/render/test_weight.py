"""The page is light: its figures are a part of it, look as their files do, and bring nothing that could run."""

from __future__ import annotations

import base64
import io
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

from report.render import drawn
from report.render.compact import Shared, element
from report.render.figures import Drawing, keep, name_axis
from report.render.inline import inline
from report.render.outline import outline

MOST = 3_000_000  # bytes
# One figure of each kind of drawing, of those that the synthetic report shows.
SHOWN = ["N01", "W15", "gemm-1-cpu", "bandwidth-1-cpu", "numerics-1-cpu", "training-rate-1-cpu", "training-split-1-cpu"]
_STEP = re.compile(r"([Mhvlcqz])([^Mhvlcqz]*)")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)")
coordinate = st.floats(-2000, 2000).map(lambda value: round(value, 6))


def followed(path: str) -> list[tuple[float, float]]:
    """The places that a path goes through, read as the SVG standard says."""
    places: list[tuple[float, float]] = []
    x = y = 0.0
    takes = {"M": 2, "l": 2, "h": 1, "v": 1, "q": 4, "c": 6, "z": 0}
    for letter, rest in _STEP.findall(path):
        numbers = [float(text) for text in _NUMBER.findall(rest)]
        if letter == "z":
            places.append((math.nan, math.nan))
            continue
        for start in range(0, len(numbers), takes[letter]):
            step = numbers[start : start + takes[letter]]
            assert len(step) == takes[letter], path
            if letter == "M":
                x, y = step
            elif letter in "hv":
                x, y = (x + step[0], y) if letter == "h" else (x, y + step[0])
            else:
                places += [(x + a, y + b) for a, b in zip(step[:-2:2], step[1:-2:2], strict=True)]
                x, y = x + step[-2], y + step[-1]
            places.append((x, y))
    return places


@given(st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=40), st.sampled_from([1, 2]))
def test_a_line_goes_where_it_went(points: list[tuple[float, float]], digits: int) -> None:
    path = "M " + "\nL ".join(f"{x} {y}" for x, y in points)
    near = 0.51 * 10**-digits
    seen = followed(outline(path, digits))
    # Points that fall together are said once.
    at = 0
    for x, y in points:
        while math.hypot(seen[at][0] - x, seen[at][1] - y) > near * 1.5:
            at += 1
            assert at < len(seen), f"{(x, y)} is missing from {outline(path, digits)}"
    assert len(seen) <= len(points) + 1
    moved = followed(outline(path, digits, 10.0, -5.0))
    assert moved[0] == pytest.approx((points[0][0] + 10, points[0][1] - 5), abs=near)


@given(st.lists(st.tuples(*[coordinate] * 6), min_size=1, max_size=8))
def test_a_curve_goes_where_it_went(curves: list[tuple[float, ...]]) -> None:
    path = "M 1 2\n" + "\n".join("C " + " ".join(map(str, curve)) for curve in curves) + "\nQ 1 1 2 2\nz\n"
    wanted = [
        (1.0, 2.0),
        *(pair for curve in curves for pair in zip(curve[::2], curve[1::2], strict=True)),
        (1, 1),
        (2, 2),
    ]
    seen = followed(outline(path, 2))
    assert math.isnan(seen[-1][0])
    assert np.array(seen[:-1]) == pytest.approx(np.array(wanted), abs=0.006)


def test_every_figure_is_a_part_of_the_page_with_its_words(page: BeautifulSoup, report: Path) -> None:
    source = (report / "index.qmd").read_text(encoding="utf-8")
    shown = re.findall(r"\]\(figures/([\w-]+)\.svg\)", source)
    assert len(page.select("figure svg.plot[role=img][aria-label]")) == len(shown) > 40
    assert not page.find_all("img")


@pytest.fixture(scope="module")
def canvas(chromium):
    """A page to show one figure after another in: opening a page takes longer than a picture."""
    context = chromium.new_context(viewport={"width": 900, "height": 900})
    yield context.new_page()
    context.close()


def picture(page, markup: str, style: str = "", scheme: str = "light") -> np.ndarray:
    """What Chromium makes of it, as grey values from 0 to 255."""
    page.emulate_media(color_scheme=scheme)
    page.set_content(
        f"<!DOCTYPE html><style>:root{{color-scheme:light dark}}body{{margin:0}}{style}"
        f"#figure>*{{display:block;width:100%;height:auto}}</style><div id=figure>{markup}</div>"
    )
    page.wait_for_function("[...document.images].every((image) => image.complete)")
    taken = page.locator("#figure").screenshot()
    return np.asarray(Image.open(io.BytesIO(taken)).convert("L"), dtype=float)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SHOWN)
def test_a_figure_looks_in_the_page_as_it_does_in_its_file(canvas, report: Path, name: str, scheme: str) -> None:
    """To a tenth of a point, which moves the edges of strokes by less than a pixel and no stroke away."""
    file = report / "figures" / f"{name}.svg"
    shared = Shared()
    svg = file.read_text(encoding="utf-8")
    markup = element(svg, shared, "", "a figure")
    one = picture(canvas, embedded(svg), scheme=scheme)
    other = picture(canvas, shared.definitions() + markup, f"{shared.css()}.plot-defs{{display:none}}", scheme)
    assert one.std() > 3, "there is something to see"
    assert abs(one.shape[0] - other.shape[0]) <= 1
    high = min(one.shape[0], other.shape[0])
    one, other = one[:high], other[:high]
    # A stroke that is missing or of another colour is unlike all that lies within two pixels of it.
    assert max(unlike(one, other).max(), unlike(other, one).max()) < 110


def unlike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """By how much each pixel of one picture is lighter or darker than the other's 5 by 5 about it."""
    lightest = darkest = np.pad(other, 2, mode="edge")
    for along in (0, 1):
        lightest = np.lib.stride_tricks.sliding_window_view(lightest, 5, axis=along).max(axis=2)
        darkest = np.lib.stride_tricks.sliding_window_view(darkest, 5, axis=along).min(axis=2)
    return np.maximum(0, np.maximum(one - lightest, darkest - one))


def embedded(svg: str) -> str:
    return f'<img src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'


def test_no_stroke_and_no_word_of_any_figure_is_lost(report: Path) -> None:
    """Counted: beginnings of strokes, and texts. What shows nothing (no fill, no stroke) is no stroke."""
    for file in (report / "figures").glob("*.svg"):
        svg = file.read_text(encoding="utf-8")
        root = ElementTree.fromstring(svg)
        space = "{http://www.w3.org/2000/svg}"
        defined = {path: path.get("id", "") for defs in root.iter(f"{space}defs") for path in defs.iter(f"{space}path")}
        starts = {f"#{name}": path.get("d", "").count("M") for path, name in defined.items()}
        seen = [path for path in root.iter(f"{space}path") if path not in defined]
        seen = [
            path for path in seen if "fill: none" not in path.get("style", "") or "stroke:" in path.get("style", "")
        ]
        strokes = sum(path.get("d", "").count("M") for path in seen)
        strokes += sum(starts[use.get("{http://www.w3.org/1999/xlink}href", "")] for use in root.iter(f"{space}use"))
        shared = Shared()
        made = BeautifulSoup(element(svg, shared, "", "words"), "html.parser")
        sprite = BeautifulSoup(shared.definitions(), "html.parser")
        kept = sum(path["d"].count("M") for path in made.find_all("path"))
        kept += sum(sprite.find(id=use["href"][1:])["d"].count("M") for use in made.find_all("use"))
        assert kept == strokes > 0, file.name
        assert [text.get_text() for text in made.find_all("text")] != []
        assert sorted(text.get_text() for text in made.find_all("text")) == sorted(
            text.text or "" for text in root.iter(f"{space}text")
        )


def _drawn(shows: dict) -> Figure:
    figure = Figure(figsize=(3, 2))
    axes = figure.add_subplot()
    if shows.get("raster"):
        axes.imshow(np.arange(4).reshape(2, 2))
    name_axis(axes, "x", "place")
    return figure


@pytest.mark.parametrize("broken", ["raster", "gradient", "not XML"])
def test_what_would_lose_something_stays_an_image(tmp_path: Path, broken: str) -> None:
    keep(Drawing("one", {"raster": broken == "raster"}, _drawn, "", ""), tmp_path, None)
    svg = (tmp_path / "one.svg").read_text()
    if broken == "gradient":
        svg = svg.replace("</svg>", '<defs><linearGradient id="g"/></defs></svg>')
    if broken == "not XML":
        svg = svg.replace("</svg>", "")
    data = base64.b64encode(svg.encode()).decode()
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="words">'
    text = f"<html><head></head><body class=x><p>a &lt; b</p>{image}</body></html>"
    (tmp_path / "index.html").write_text(text)
    inline(tmp_path / "index.html")
    assert (tmp_path / "index.html").read_text() == text


def test_the_rest_of_a_page_is_not_touched(tmp_path: Path) -> None:
    keep(Drawing("one", {}, _drawn, "", ""), tmp_path, None)
    data = base64.b64encode((tmp_path / "one.svg").read_bytes()).decode()
    rest = (
        '<p title="a > b">x &amp; <b>y</b></p>\n<script>if (a < b) "<img src=x>"</script>\n<!-- <img src="c.png"> -->'
    )
    image = f'<img src="data:image/svg+xml;base64,{data}"\n alt="a &quot;b&quot;" class="wide" />'
    (tmp_path / "index.html").write_text(f"<html><head><title>t</title></head><body>{rest}{image}{rest}</body></html>")
    inline(tmp_path / "index.html")
    made = (tmp_path / "index.html").read_text()
    assert made.count(rest) == 2
    found = BeautifulSoup(made, "html.parser").select_one("svg.plot.wide")
    assert found is not None
    assert found["aria-label"] == 'a "b"'


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def test_only_the_pages_own_scripts_run(chromium, tmp_path: Path) -> None:
    own, foreign = "document.title = 'own'", "document.body.dataset.foreign = 'ran'"
    page = tmp_path / "index.html"
    page.write_text(
        f'<html><head><meta http-equiv="Content-Security-Policy" content="{POLICY}"><script>{own}</script></head>'
        f"<body><script>{foreign}</script><p onclick=\"document.body.dataset.foreign = 'ran'\">press</p></body></html>"
    )
    inline(page, [own])
    policy = BeautifulSoup(page.read_text(), "html.parser").meta["content"]
    assert re.search(r"script-src 'sha256-[^' ]+'$", policy)
    opened = chromium.new_page()
    opened.goto(page.as_uri())
    opened.get_by_text("press").click()
    assert opened.title() == "own"
    assert opened.evaluate("document.body.dataset.foreign") is None
    opened.close()


def test_figures_are_drawn_by_several_processes_as_by_one(tmp_path: Path, make_document, monkeypatch) -> None:
    from report.render.claim_figure import claim_drawing

    drawings = [one for one in map(claim_drawing, make_document()["verdicts"]) if one][:14]
    folders = [tmp_path / name for name in ("alone", "together", "again")]
    for folder, few in zip(folders, (100, 2, 2), strict=True):
        folder.mkdir()
        monkeypatch.setattr(drawn, "_FEW", few)
        again = folder.name == "again"
        assert drawn.draw(drawings, folder, folders[1] if again else None) == (0 if again else len(drawings))
    for drawing in drawings:
        first, *others = ((folder / f"{drawing.name}.svg").read_bytes() for folder in folders)
        assert others == [first, first]


SHIFTS = """() => new Promise((told) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value })
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => told(sum), 400);
})"""


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_nothing_shifts_while_the_page_loads_or_is_read(chromium, report: Path, width: int, height: int) -> None:
    context = chromium.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.goto((report / "index.html").as_uri())
    assert page.evaluate(SHIFTS) == 0
    for share in (0.05, 0.3, 0.6, 0.95, 0.2):
        page.evaluate("(share) => scrollTo(0, share * document.documentElement.scrollHeight)", share)
        page.wait_for_timeout(100)
    assert page.evaluate(SHIFTS) == 0
    context.close()


def test_the_published_report_is_light(published_report: Path) -> None:
    """The page with everything in it, and the PDF."""
    for name in ("index.html", "report.pdf"):
        assert (published_report / name).stat().st_size < MOST, name
