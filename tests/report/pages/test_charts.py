"""Chart types: small files for page and phone, readable on a dark page, with names as text."""

from __future__ import annotations

import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from report.pages import charts
from report.pages.control_characters import remove_invisible
from report.pages.svg import read_plot, save_chart

Draw = Callable[[float], Figure]
MOST_BYTES = 60_000
HOSTILE = [
    "$x$ and $\\frac{1}{2}$",
    '<b>bold</b> & "so" <script>alert(1)</script>',
    "مرحبا 12 (ab) שלום",
    "a\x00b\x07c\u202ed",
    "_a_b %d {} {{x}} \\n",
    "--> ]]> <!-- a",
]
LONG = ["long " * 60, "x" * 300]


def estimates(*names: str) -> Draw:
    rows = [{"label": name, "estimate": 3.0 + i, "low": 2.5, "high": 3.5 + i, "text": name[:9], "tier": "published"}
            for i, name in enumerate(names)]  # fmt: skip
    last = {"label": "another", "estimate": 40.0, "low": None, "high": None, "text": "40", "side": "challenges"}
    return charts.estimate_chart([*rows, last], "times", [10.0], "threshold: 10")


def lines(*names: str) -> Draw:
    points = [{"x": 10.0**i, "y": 5.0 + 3 * i, "low": 4.0, "high": 20.0, "of": name} for name in names for i in (0, 2)]
    return charts.line_chart(pd.DataFrame(points), "x", "y", "of" if len(names) > 1 else None, axis=("size", names[0]))


def bars(*names: str) -> Draw:
    return charts.bar_chart(
        pd.DataFrame({"x": [1.0, *[2.5] * len(names)], "y": ["another", *names]}), "x", "y", "seconds"
    )


def heat(*names: str) -> Draw:
    fields = [{"x": i, "y": name, "value": 1.0 + i} for name in names for i in (1, 2)]
    return charts.heat_map(pd.DataFrame(fields), "x", "y", "value", ("batch", "model"), "times")


TYPES: Mapping[str, Callable[..., Draw]] = {"estimates": estimates, "lines": lines, "bars": bars, "heat": heat}


@pytest.fixture(params=TYPES, scope="module")
def kind(request: pytest.FixtureRequest) -> Callable[..., Draw]:
    return TYPES[request.param]


def save_svgs(draw: Draw, folder: Path) -> dict[str, str]:
    """Save a chart and return its SVG texts by file name."""
    with warnings.catch_warnings():
        # Ignore warnings about characters that Matplotlib's font lacks. The browser draws them in another font.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font|Matplotlib currently does not support")
        save_chart(charts.Chart("chart", "A title", draw), folder)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def remove_spacing(text: str) -> str:
    """Remove white space and direction marks, which charts add to wrap lines and isolate names."""
    return re.sub(r"[\s\u2068\u2069]", "", text)


def visible_text(svg: str) -> str:
    """Return the text that a reader sees, without spacing. Raises ParseError if `svg` is not XML."""
    root = ET.fromstring(svg)
    return remove_spacing("".join("".join(tag.itertext()) for tag in root.iter("{http://www.w3.org/2000/svg}text")))


def test_page_and_phone_each_get_a_drawing(kind: Callable[..., Draw], tmp_path: Path) -> None:
    svgs = save_svgs(kind("plain"), tmp_path)
    assert set(svgs) == {"chart.svg", "chart.phone.svg"}
    widths = {name: float(ET.fromstring(svg).attrib["width"].removesuffix("pt")) for name, svg in svgs.items()}
    assert widths["chart.phone.svg"] == pytest.approx(72 * charts.NARROW, rel=0.05)
    assert widths["chart.svg"] == pytest.approx(72 * charts.WIDE, rel=0.05)
    for svg in svgs.values():
        assert len(svg.encode()) < MOST_BYTES
        assert "plain" in visible_text(svg)


def test_drawing_is_readable_on_a_dark_page(kind: Callable[..., Draw], tmp_path: Path) -> None:
    for svg in save_svgs(kind("plain"), tmp_path).values():
        (style,) = re.findall(r"<style>@media \(prefers-color-scheme: dark\)\{(.*?)\}</style>", svg)
        body = svg.replace(style, "")
        assert "style=" not in body and "<style" not in body.replace("<style>@media", ""), "a server may forbid styles"
        for light, dark in charts.DARK.items():
            for part in ("fill", "stroke"):
                assert (f'{part}="{light}"' in body) == (f"{part}:{dark}" in style)
        assert charts.DARK[charts.MUTED] in style, "the words along the axes"


@pytest.mark.parametrize("names", [HOSTILE, LONG], ids=["hostile", "long"])
def test_any_name_stays_text(kind: Callable[..., Draw], tmp_path: Path, names: list[str]) -> None:
    for svg in save_svgs(kind(*names), tmp_path).values():
        assert not [name for name in names if remove_spacing(remove_invisible(name)) not in visible_text(svg)]
        assert not {tag.tag.rpartition("}")[2] for tag in ET.fromstring(svg).iter()} & {"b", "script", "a", "image"}
        assert len(svg.encode()) < MOST_BYTES


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(name="half a sign \ud800")
@given(name=st.text(min_size=1, max_size=40))
def test_any_name_is_drawn_as_valid_xml(tmp_path: Path, name: str) -> None:
    for svg in save_svgs(estimates(name), tmp_path).values():
        assert remove_spacing(remove_invisible(name)) in visible_text(svg)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-9), min_size=1, max_size=4),
    st.sampled_from([charts.WIDE, charts.NARROW]),
)
def test_every_mark_lies_within_its_axis(values: list[float], width: float) -> None:
    rows = [
        {"label": str(i), "estimate": value, "low": value, "high": value, "text": ""} for i, value in enumerate(values)
    ]
    with charts.theme():
        figure = charts.estimate_chart(rows, "times", [values[0]], "a line")(width)
        figure.canvas.draw()
        low, high = figure.axes[0].get_xlim()
        ticks = [label.get_text() for label in figure.axes[0].get_xticklabels() if label.get_text()]
    assert low <= min(values) and max(values) <= high
    assert ticks and not any("nan" in tick or "\N{MINUS SIGN}\N{MINUS SIGN}" in tick for tick in ticks)


def test_bars_may_have_more_kinds_than_colours(tmp_path: Path) -> None:
    kinds = [f"kind {i}" for i in range(2 * len(charts.SERIES))]
    table = pd.DataFrame([{"x": 1.0 + i, "y": "a row", "kind": kind} for i, kind in enumerate(kinds)])
    for svg in save_svgs(charts.bar_chart(table, "x", "y", "seconds", hue="kind", stacked=True), tmp_path).values():
        assert not [kind for kind in kinds if remove_spacing(kind) not in visible_text(svg)]


def test_same_rows_make_identical_files(kind: Callable[..., Draw], tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    assert save_svgs(kind("plain"), tmp_path / "one") == save_svgs(kind("plain"), tmp_path / "other")


@pytest.mark.parametrize(
    ("which", "width", "expected"),
    [
        ("x", charts.NARROW, [1, 10]),
        ("y", charts.NARROW, [1, 2, 5, 10, 20, 50]),
        ("x", charts.WIDE, [1, 2, 5, 10, 20, 50]),
    ],
)
def test_phone_x_axis_labels_only_decades(which: str, width: float, expected: list[int]) -> None:
    axes = Figure().subplots()
    charts.set_scale(axes, which, [1, 50], True, width)
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    assert [round(tick, 6) for tick in axis.get_majorticklocs() if low <= tick <= high] == expected


def draw(chart: Draw, width: float) -> Figure:
    with charts.theme():
        figure = chart(width)
        figure.canvas.draw()
    return figure


@pytest.mark.parametrize("width", [charts.WIDE, charts.NARROW])
def test_each_panel_has_tick_labels_and_logarithmic_axes_say_so(width: float) -> None:
    points = [{"x": 10.0**i, "y": 3.0 * 10**i, "format": name} for name in ("first", "second", "third") for i in (0, 3)]
    chart = charts.line_chart(pd.DataFrame(points), "x", "y", panel="format", axis=("size", "GFLOP/s"))
    panels = [axes for axes in draw(chart, width).axes if axes.get_visible()]
    assert len(panels) == 3
    for axes in panels:
        assert any(label.get_visible() and label.get_text() for label in axes.get_xticklabels())
    labels = {axes.get_xlabel().replace("\n", " ") for axes in panels} | {axes.get_ylabel() for axes in panels}
    assert labels - {""} == {"size (logarithmic)", "GFLOP/s (logarithmic)"}


def test_interval_far_beyond_all_marks_ends_with_an_arrow_at_the_frame() -> None:
    rows = [{"x": 1.0, "y": 5.0, "low": 4.0, "high": 6.0}, {"x": 2.0, "y": 6.0, "low": 0.001, "high": 60_000.0}]
    axes = draw(charts.line_chart(pd.DataFrame(rows), "x", "y", axis=("size", "rate")), charts.WIDE).axes[0]
    low, high = axes.get_ylim()
    arrows = {line.get_marker(): line.get_ydata()[0] for line in axes.lines if line.get_marker() in ("^", "v")}
    assert 1 < low < 5 and 6 < high < 60
    assert arrows == {"v": low, "^": high}


def test_ranges_along_x_are_named_within_the_axis() -> None:
    points = pd.DataFrame([{"x": 10.0**i, "y": 1.0 + i} for i in range(4)])
    regions = [("below", 0.01), ("L1", 10.0), ("L2", 1e9)]
    axes = draw(charts.line_chart(points, "x", "y", axis=("size", "ns"), regions=regions), charts.WIDE).axes[0]
    assert [text.get_text() for text in axes.texts] == ["L1", "L2"]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("light", "dark"), charts.HEAT.items())
def test_numbers_in_a_heat_map_are_readable_on_both_pages(light: str, dark: str) -> None:
    for cell, ink in ((light, charts.INK), (dark, charts.DARK[charts.INK])):
        darker, brighter = sorted((luminance(cell), luminance(ink)))
        assert (brighter + 0.05) / (darker + 0.05) >= 4.5


def test_time_axis_names_its_ticks() -> None:
    rows = [{"label": name, "estimate": hours, "text": ""} for name, hours in (("short", 0.5), ("long", 3e5))]
    chart = charts.estimate_chart(rows, "time", log=True, ticks={1 / 3600: "1 s", 1.0: "1 hour", 8766.0: "1 year"})
    for width in (charts.WIDE, charts.NARROW):
        assert [label.get_text() for label in draw(chart, width).axes[0].get_xticklabels()] == ["1 hour", "1 year"]


@pytest.mark.parametrize("log", [False, True])
def test_drawing_tells_where_its_plot_and_axis_lie(tmp_path: Path, log: bool) -> None:
    rows = [{"label": "a", "estimate": 2.0, "low": 1.0, "high": 3.0, "text": "2"},
            {"label": "b", "estimate": 50.0, "low": 40.0, "high": 60.0, "text": "50"}]  # fmt: skip
    chart = charts.Chart("chart", "A title", charts.estimate_chart(rows, "an axis", [10.0], "10", log=log))
    save_chart(chart, tmp_path)
    for name in ("chart.svg", "chart.phone.svg"):
        plot = read_plot(tmp_path / name)
        assert plot is not None
        left, right, top, bottom, low, high = map(float, plot[:-1])
        assert 0 < left < right < 1 and 0 < top < bottom < 1 and plot[-1] == ("log" if log else "linear")
        # The threshold's line is drawn where these numbers put it.
        svg = (tmp_path / name).read_text(encoding="utf-8")
        width = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0])
        share = math.log(10 / low) / math.log(high / low) if log else (10 - low) / (high - low)
        lines = [float(x) for x, again in re.findall(r'd="M ([\d.]+) [\d.]+\s+L ([\d.]+) ', svg) if x == again]
        assert any(abs(x / width - left - share * (right - left)) < 0.002 for x in lines)


def test_drawing_of_several_plots_has_no_place(tmp_path: Path) -> None:
    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 2))
        figure.subplots(1, 2)
        return figure

    save_chart(charts.Chart("chart", "A title", draw), tmp_path)
    assert read_plot(tmp_path / "chart.svg") is None
