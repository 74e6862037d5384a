"""Dot plots show every mark with its interval, nought included, whatever the numbers are."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from report.render import dots
from report.render.dots import PLAIN
from report.render.figures import keep, style


def row(label: str, estimate: float, low: float | None, high: float | None, **more: Any) -> dict[str, Any]:
    marks = [{"estimate": estimate, "low": low, "high": high, "look": PLAIN, "hollow": False}]
    return {"label": label, "marks": marks, "told": f"{estimate:g}", **more}


def plot(*rows: dict[str, Any], scale: str = "log", **more: Any) -> dict[str, Any]:
    group = {"title": "a group", "rows": list(rows), "lines": [{"x": 3.0, "label": "a line"}]}
    return {"groups": [group], "x": "rate", "unit": "1", "scale": scale, **more}


def drawn(shows: dict[str, Any]) -> Figure:
    with style():
        return dots.draw(copy.deepcopy(shows))


def test_an_interval_is_as_wide_as_it_is() -> None:
    axes = drawn(plot(row("one", 2.0, 1.5, 2.5), row("two", 5.0, None, None))).axes[0]
    across = [tuple(line.get_xdata()) for line in axes.get_lines() if len(line.get_xdata()) == 2]
    assert (1.5, 2.5) in across
    level = [xs for xs in across if xs[0] != xs[1]]
    assert len(level) == 1, "what has no interval shows none"


def test_nought_has_a_place_of_its_own_on_a_logarithmic_axis() -> None:
    shows = plot(row("none", 0.0, 0.0, 0.0), row("some", 12.0, 0.0, 20.0), scale="zero", none="0")
    shows["groups"][0]["lines"] = []
    axes = drawn(shows).axes[0]
    places = [float(line.get_xdata()[0]) for line in axes.get_lines() if line.get_marker() == PLAIN[1]]
    low, high = axes.get_xlim()
    assert all(low <= place <= high for place in places)
    ticks = dict(zip(axes.get_xticks(), [text.get_text() for text in axes.get_xticklabels()], strict=True))
    assert ticks[places[0]] == "0"
    assert places[0] < places[1]


def test_words_stand_in_the_figure_and_in_its_text(tmp_path: Path) -> None:
    shows = plot(
        row("one", 2.0, 1.5, 2.5, below="a detail", told_below="×2"), legend=[{"label": "a kind", "look": PLAIN}]
    )
    drawing = dots.drawing("name", shows, "A caption.", "About it.")
    keep(drawing, tmp_path, None)
    svg = ElementTree.parse(tmp_path / "name.svg").iter("{http://www.w3.org/2000/svg}text")
    said = {text.text for text in svg}
    assert {"one", "a detail", "2", "×2", "a group", "a line", "a kind"} <= said
    assert drawing.alt == "About it. a group: one (a detail): 2."


@pytest.mark.parametrize("scale", ["log", "linear", "zero"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats(1e-12, 1e15), min_size=1, max_size=4), noughts=st.integers(0, 2))
def test_any_numbers_can_be_drawn(scale: str, values: list[float], noughts: int) -> None:
    more = [0.0] * noughts if scale != "log" else []
    figure = drawn(plot(*(row("x", value, value / 2, value * 2) for value in [*values, *more]), scale=scale))
    low, high = figure.axes[0].get_xlim()
    assert low < high
