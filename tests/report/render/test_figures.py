"""Figures show what they are given, are the same every time, and are drawn only when something changed."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from report.render import figures, strokes
from report.render.claim_figure import MOST_ROWS, claim_drawing
from report.render.figures import DARK, LETTERS, PLATE, Drawing, keep, style


def decided(document: dict) -> dict:
    return next(one for one in document["verdicts"] if len(one["cells"]) == 3)


def words(svg: Path) -> list[str]:
    return [part.text or "" for part in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_claims_figure_says_each_cell_and_the_threshold(make_document, tmp_path: Path) -> None:
    verdict = decided(make_document())
    drawing = claim_drawing(verdict)
    assert drawing is not None
    assert keep(drawing, tmp_path, None)
    told = words(tmp_path / f"{verdict['id']}.svg")
    for cell in verdict["cells"]:
        assert all(word in " ".join(told) for word in cell["label"].split())
    assert any(text.startswith("threshold ") for text in told)
    assert any("log scale" in text or "(" in text for text in told), "the axis names its unit or scale"
    for cell in verdict["cells"]:
        assert f"{cell['label']}: " in drawing.alt
        assert cell["outcome"] in drawing.alt


def test_the_interval_is_drawn_as_wide_as_it_is(make_document) -> None:
    verdict = decided(make_document())
    drawing = claim_drawing(verdict)
    assert drawing is not None
    with style():
        axes = drawing.draw(drawing.shows).axes[0]
    shown = {tuple(line.get_xdata()) for line in axes.get_lines() if len(line.get_xdata()) == 2}
    for row in drawing.shows["panels"][0]["rows"]:
        assert (row["low"], row["high"]) in shown


def test_the_rows_nearest_to_the_threshold_are_shown_and_the_caption_says_so(make_document) -> None:
    verdict = decided(make_document())
    far = {**verdict["cells"][0], "estimate": verdict["threshold"] * 1e6, "low": None, "high": None, "label": "far"}
    near = [
        {**far, "estimate": verdict["threshold"] * (1 + i / 100), "label": f"near {i}"} for i in range(1, MOST_ROWS + 1)
    ]
    drawing = claim_drawing({**verdict, "cells": [far, *near]})
    assert drawing is not None
    assert [row["name"] for row in drawing.shows["panels"][0]["rows"]] == [cell["label"] for cell in near]
    assert f"{MOST_ROWS} of {MOST_ROWS + 1}" in drawing.caption


@pytest.mark.parametrize("threshold", [None, 5, [10, 100], 0, -3.5])
@pytest.mark.parametrize("estimate", [0.0, -2.0, 1e-12, 3.0, 1e25])
def test_any_threshold_and_estimate_can_be_drawn(make_document, threshold: object, estimate: float) -> None:
    verdict = decided(make_document())
    cells = [{**verdict["cells"][0], "estimate": estimate, "low": estimate - 1, "high": estimate + 1}]
    part = {**verdict["parts"][0], "threshold": threshold, "sensitivity": [[1, 2], 3]}
    drawing = claim_drawing({**verdict, "cells": cells, "parts": [part]})
    assert drawing is not None
    with style():
        assert isinstance(drawing.draw(copy.deepcopy(drawing.shows)), Figure)


def test_figures_are_reproducible_and_bare(make_document, tmp_path: Path) -> None:
    drawing = claim_drawing(decided(make_document()))
    assert drawing is not None
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        keep(drawing, tmp_path / place, None)
    first, second = ((tmp_path / place / f"{drawing.name}.svg").read_bytes() for place in ("a", "b"))
    assert first == second
    assert b"<metadata" not in first
    assert b"<dc:" not in first
    assert not re.search(rb"(?:href|src)=\"(?:https?:)", first)
    assert b"prefers-color-scheme: dark" in first


def test_only_what_changed_is_drawn_again(make_document, tmp_path: Path) -> None:
    drawing = claim_drawing(decided(make_document()))
    assert drawing is not None
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    assert keep(drawing, old, None)
    assert not keep(drawing, new, old)
    assert (new / f"{drawing.name}.svg").read_bytes() == (old / f"{drawing.name}.svg").read_bytes()
    shows = copy.deepcopy(drawing.shows)
    shows["panels"][0]["rows"][0]["estimate"] *= 1.5
    assert keep(replace(drawing, shows=shows), new, old)


def _every_kind(shows: dict) -> Figure:
    figure = Figure(figsize=(4, 3))
    axes = figure.add_subplot()
    axes.set(xlim=(0, 5), ylim=(0, 5))
    strokes.join(axes, [1, 2], [1, 2], "size", told=["join 1", "join 2"], marker="s")
    strokes.points(axes, [1, 2, 3], [4, 3, 4], told=["point 1", "<point> & 2", "point 3"], marker="o")
    strokes.intervals(axes, [1, 2], [1, 2], [3, 4], told=["upright 1", "upright 2"])
    strokes.interval(axes, 1, 2, 0.5, told=["level 1"])
    strokes.bar(axes, 4, 0, 2, 0.3, told=["bar 1"])
    strokes.predicted(axes, 1, 3, 4.5, 0.2, told=["predicted 1"], hatch="///", facecolor="none")
    strokes.points(axes, [2], [2], marker="x")
    # One of each lies far outside: nobody can say which of the marks in the file are whose.
    strokes.points(axes, [1, 2], [1, 5000], told=["inside", "outside"], marker="v")
    strokes.points(axes, [1, 2, 3], [5000, 6000, 1], told=["outside", "outside too", "inside"], marker="v")
    return figure


def told(svg: Path) -> list[tuple[str, list[str]]]:
    """The kind of each stroke that has words, and these."""
    space = "{http://www.w3.org/2000/svg}"
    found = []
    for group in ElementTree.parse(svg).iter(f"{space}g"):
        parsed = strokes.parse(group.get("id", ""))
        titles = [title.text or "" for title in group.iter(f"{space}title")]
        if parsed and titles:
            found.append((parsed[0], titles))
    return found


def test_each_mark_bears_its_words(tmp_path: Path) -> None:
    keep(Drawing("every", {}, _every_kind, "", ""), tmp_path, None)
    assert sorted(told(tmp_path / "every.svg")) == [
        ("bar", ["bar 1"]),
        ("interval", ["level 1"]),
        ("interval", ["upright 1", "upright 2"]),
        ("join", ["join 1", "join 2"]),
        ("points", ["point 1", "<point> & 2", "point 3"]),
        ("predicted", ["predicted 1"]),
    ]


def _lettered(shows: dict) -> Figure:
    figure = Figure(figsize=(3, 2))
    for place, text in enumerate(shows["texts"]):
        figure.text(0.1, 0.1 + 0.1 * place, text, color=shows["colours"][place % len(shows["colours"])])
    return figure


def test_names_are_text_in_a_figure_whatever_they_hold(tmp_path: Path) -> None:
    texts = ["$x$ and $\\frac$", "a\x00b\ufffe", "<script>alert(1)</script> &amp;", "abc\u202edef", "שלום 2", "--><!--"]
    keep(Drawing("names", {"texts": texts, "colours": ["#1f2328"]}, _lettered, "", ""), tmp_path, None)
    assert words(tmp_path / "names.svg") == [
        "$x$ and $\\frac$", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}", "<script>alert(1)</script> &amp;",
        "abcdef", "\u2068שלום\u2069 2", "--><!--",
    ]  # fmt: skip


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_letters_and_marks_can_be_told_from_the_plate_in_light_and_dark(tmp_path: Path) -> None:
    colours = [figures.INK, figures.MUTED, *figures.SERIES]
    shows = {"texts": [f"text {place}" for place in range(len(colours))], "colours": colours}
    keep(Drawing("letters", shows, _lettered, "", ""), tmp_path, None)
    svg = (tmp_path / "letters.svg").read_text()
    used = re.findall(r"<text[^>]*fill: (#[0-9a-f]{6})", svg)
    assert len(set(used)) == len(colours)
    for colour in used:
        assert contrast(colour, PLATE) >= 4.5, colour
        assert contrast(DARK[colour], DARK[PLATE]) >= 4.5, colour
        assert f'[style*="fill: {colour}"]{{fill:{DARK[colour]}' in svg
    for colour in colours:
        assert contrast(colour, PLATE) >= 3, f"{colour}, of a mark"
    assert set(LETTERS) == {colour for colour in figures.SERIES if contrast(colour, PLATE) < 4.5}
