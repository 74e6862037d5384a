"""A figure's marks tell their words: to a pointer, a finger, a keyboard, a screen reader, and without a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from playwright.sync_api import expect

from report.render import TEMPLATES, strokes
from report.render.figures import Drawing, keep, name_axis
from report.render.inline import inline

WORDS = ["first: 3 [2, 4] s", "second: 1 [0.5, 2] s", "third: <b>2</b> & more"]
PLACES = [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]


def _draw(shows: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(4.5, 3))
    axes = figure.add_axes((0.15, 0.2, 0.8, 0.7))
    axes.set(xlim=(0, 4), ylim=(0, 4))
    strokes.points(axes, *PLACES, told=shows["words"], marker="o", color="#0072b2")
    name_axis(axes, "x", "place")
    return figure


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with one figure whose marks have words, and one whose marks have none."""
    folder = tmp_path_factory.mktemp("hover")
    images = ""
    for name, words in (("told", WORDS), ("silent", [])):
        keep(Drawing(name, {"words": words}, _draw, "", ""), folder, None)
        images += f'<figure><img src="figures/{name}.svg" class="central" alt="The figure called {name}"></figure>\n'
    for name in ("told", "silent"):
        data = (folder / f"{name}.svg").read_bytes()
        images = images.replace(f"figures/{name}.svg", f"data:image/svg+xml;base64,{_base64(data)}")
    styles = "".join(path.read_text() for path in sorted((TEMPLATES / "styles").glob("*.css")))
    script = (TEMPLATES / "scripts" / "hover.js").read_text()
    (folder / "index.html").write_text(
        f'<!DOCTYPE html><html lang="en"><head><title>t</title><style>{styles}</style></head><body class="study">'
        f"<main>{images}<button>after</button></main><script>{script}</script></body></html>"
    )
    inline(folder / "index.html")
    return folder / "index.html"


def _base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode()


@pytest.fixture
def page(chromium, place: Path):
    context = chromium.new_context(viewport={"width": 800, "height": 900}, has_touch=True)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(place.as_uri())
    yield page
    assert said == []
    context.close()


def spots(page) -> list[tuple[float, float]]:
    """The middles of the marks that have words, in CSS pixels."""
    boxes = [mark.bounding_box() for mark in page.locator(".hover-frame use").all()]
    return [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]


def test_a_pointer_is_told_the_nearest_mark(page) -> None:
    tip = page.locator(".hover-tip")
    expect(tip).to_be_hidden()
    for (x, y), words in zip(spots(page), WORDS, strict=True):
        page.mouse.move(x + 12, y - 12)
        expect(tip).to_have_text(words)
    assert tip.evaluate("(tip) => tip.children.length") == 0, "words are text"
    page.mouse.move(5, 890)
    expect(tip).to_be_hidden()


def test_the_keyboard_goes_from_mark_to_mark_with_one_stop_for_each_figure(page) -> None:
    tip = page.locator(".hover-tip")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "slider"
    expect(tip).to_have_text(WORDS[0])
    for key, at in (("ArrowRight", 1), ("ArrowDown", 2), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0), ("End", 2),
                    ("ArrowUp", 1)):  # fmt: skip
        page.keyboard.press(key)
        expect(tip).to_have_text(WORDS[at])
        reader = page.locator("[role=slider]")
        expect(reader).to_have_attribute("aria-valuetext", WORDS[at])
        expect(reader).to_have_attribute("aria-valuenow", str(at + 1))
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.keyboard.press("ArrowLeft")
    expect(tip).to_have_text(WORDS[0])
    page.keyboard.press("Tab")
    expect(tip).to_be_hidden()
    assert page.evaluate("document.activeElement.textContent") == "after", "the silent figure is no stop"


def test_a_screen_reader_hears_a_named_range_beside_the_figures_own_words(page) -> None:
    reader = page.get_by_role("slider", name="Values in this figure")
    assert reader.get_attribute("aria-valuemin") == "1"
    assert reader.get_attribute("aria-valuemax") == str(len(WORDS))
    assert page.get_by_role("img", name="The figure called told").count() == 1
    expect(page.locator(".hover-tip")).to_have_attribute("aria-hidden", "true")


def test_what_a_finger_touched_stays_until_something_else_is_touched(page) -> None:
    tip = page.locator(".hover-tip")
    page.touchscreen.tap(*spots(page)[1])
    expect(tip).to_have_text(WORDS[1])
    button = page.get_by_role("button").bounding_box()
    page.touchscreen.tap(button["x"] + 2, button["y"] + 2)
    expect(tip).to_be_hidden()


def test_without_a_script_the_words_are_titles(chromium, place: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(place.as_uri())
    assert page.locator("svg.plot title").all_text_contents() == WORDS
    assert page.locator("[role=slider]").count() == 0
    context.close()
