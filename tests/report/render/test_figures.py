"""Figures show what they are given, are the same every time, and are drawn only when something changed."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from report.render.claim_figure import MOST_ROWS, claim_drawing
from report.render.figures import keep, style
from report.render.sweep import _apart


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


def test_nothing_found_makes_no_figure(make_document) -> None:
    waiting = next(one for one in make_document()["verdicts"] if one["verdict"] == "awaiting experiment")
    assert claim_drawing(waiting) is None


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


def test_numbers_in_a_figure_keep_every_digit(make_document, tmp_path: Path) -> None:
    verdict = decided(make_document())
    cell = {**verdict["cells"][0], "label": "0.123456789 and 9.87654321"}
    drawing = claim_drawing({**verdict, "cells": [cell]})
    assert drawing is not None
    keep(drawing, tmp_path, None)
    assert "0.123456789 and 9.87654321" in words(tmp_path / f"{drawing.name}.svg")


def test_only_what_changed_is_drawn_again(make_document, tmp_path: Path) -> None:
    drawing = claim_drawing(decided(make_document()))
    assert drawing is not None
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    assert keep(drawing, old, None)
    assert not keep(drawing, new, old)
    assert (new / f"{drawing.name}.png").read_bytes() == (old / f"{drawing.name}.png").read_bytes()
    shows = copy.deepcopy(drawing.shows)
    shows["panels"][0]["rows"][0]["estimate"] *= 1.5
    assert keep(replace(drawing, shows=shows), new, old)


@given(st.lists(st.floats(0, 1), max_size=12).map(sorted))
def test_labels_keep_their_order_and_their_distance(places: list[float]) -> None:
    step = 0.06
    moved = _apart(places, step)
    assert all(b - a >= step - 1e-9 for a, b in pairwise(moved))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in moved)
    if all(b - a >= step for a, b in pairwise(places)):
        assert moved == pytest.approx(places)
