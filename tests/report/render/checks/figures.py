"""Checks of the figures as they were published, stroke by stroke."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from report.commands.lint.study import Study, check

from report.render import strokes

Found = Iterator[tuple[str, str, str]]
_G, _TEXT = "{http://www.w3.org/2000/svg}g", "{http://www.w3.org/2000/svg}text"
# What matplotlib names by itself and strokes do not: a line or a collection of lines that nobody declared.
_UNDECLARED = re.compile(r"(line2d|LineCollection|PathCollection|FillBetweenPolyCollection|PolyCollection)_\d+")
_TITLE = re.compile(r".*\(.+\)|.+, log scale|.*\(.+\), log scale")
_RATIO = re.compile(r"×\d[\d.,]*(?![\d.,]| \[| \(no interval)")
_DRAW = "Draw it with report.render.strokes"


def _figures(study: Study) -> Iterator[tuple[str, ElementTree.Element, list[tuple[str, str, int]]]]:
    """Each figure with its strokes: kind, variable, points without an interval."""
    for name, svg in study.figures.items():
        root = ElementTree.fromstring(svg)
        found = [strokes.parse(group.get("id", "")) for group in root.iter(_G)]
        yield name, root, [one for one in found if one]


@check(
    "figure-strokes", "Every stroke of a figure is of a declared kind, and points are joined along ordered variables."
)
def figure_strokes(study: Study) -> Found:
    for name, root, found in _figures(study):
        axes = {
            part
            for group in root.iter(_G)
            if group.get("id", "").startswith("matplotlib.axis_")
            for part in group.iter()
        }
        for group in root.iter(_G):
            if group not in axes and _UNDECLARED.fullmatch(group.get("id", "")):
                yield f"figure {name}", f"a stroke of no declared kind ({group.get('id')})", _DRAW
        for kind, along, _ in found:
            if kind == "join" and along not in strokes.INTERPOLABLE:
                yield (
                    f"figure {name}",
                    f"points are joined along {along!r}",
                    f"Join along {', '.join(strokes.INTERPOLABLE)}",
                )
        if not found:
            yield f"figure {name}", "no stroke of a declared kind", _DRAW


@check("figure-axes", "Every axis with numbers has a title, with its unit, or that it has none, or is logarithmic.")
def figure_axes(study: Study) -> Found:
    for name, root, _ in _figures(study):
        titles: dict[str, list[str]] = {"x": [], "y": []}
        for group in root.iter(_G):
            # `name_axis` knows where the words before say the unit already.
            found = re.fullmatch(r"title\.([xy])\.\d+(\.said)?", group.get("id", ""))
            if found:
                text = "".join(text.text or "" for text in group.iter(_TEXT))
                titles[found[1]].append("" if found[2] else text)
        for which, text in ((which, text) for which, texts in titles.items() for text in texts):
            if text and not _TITLE.fullmatch(text):
                yield f"figure {name}", f"the {which} axis {text!r} has no unit", "Name it with figures.name_axis"
        for which, number in (("x", 1), ("y", 2)):
            # Panels side by side share the title of the first.
            ticks = [
                text
                for group in root.iter(_G)
                if group.get("id") == f"matplotlib.axis_{number}"
                for tick in group.iter(_G)
                if tick.get("id", "").startswith(f"{which}tick_")
                for text in tick.iter(_TEXT)
            ]
            if ticks and not titles[which]:
                yield f"figure {name}", f"its {which} axis has no title", "Name it with figures.name_axis"


@check("figure-intervals", "Every mark has its interval, or the caption says how many have none and why.")
def figure_intervals(study: Study) -> Found:
    for name, root, found in _figures(study):
        bare = sum(one[2] for one in found)
        captions = re.findall(rf"!\[(.*?)\]\(figures/{re.escape(name)}\.svg\)", study.source)
        if bare and not all("No interval is drawn" in caption for caption in captions):
            yield f"figure {name}", f"{bare} mark(s) without an interval, and no word why", "Say it in the caption"
        title = " ".join(
            "".join(text.text or "" for text in group.iter(_TEXT))
            for group in root.iter(_G)
            if group.get("id", "").startswith("title.x.")
        )
        if " over " in title:
            continue
        for text in root.iter(_TEXT):
            if _RATIO.search(text.text or ""):
                yield f"figure {name}", f"the ratio {text.text!r} has no interval", "Tell it with marks.factor"
