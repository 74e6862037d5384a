"""A figure's SVG as an element of the page: the same picture in a fraction of the characters.

matplotlib writes every style out at every stroke, makes each tick a group of groups, and gives coordinates to a
millionth of an inch. Among other figures on one page that need not be: equal styles become classes, equal marks,
patterns and clips are defined once for all figures, ticks of one kind become one path, colours become variables
that a dark page sets otherwise, and a tenth of a point is near enough. The figure's own file stays as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from xml.etree import ElementTree

from report.render.figures import DARK, FONTS
from report.render.outline import UnknownMarkupError, number, outline, simple

_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_URL = re.compile(r"url\(#([^)]*)\)")
# What the page's own style says of all figures, or what is so without saying it.
_IDLE = {("stroke-dashoffset", "0"), ("stroke-linejoin", "round"), ("stroke-linecap", "butt"), ("fill-opacity", "1")}
# What every style builds on.
_ALL = f".plot,.plot-defs{{stroke-linejoin:round}}.plot text{{font-family:{FONTS}}}.plot-defs{{position:absolute}}"
_UPRIGHT = re.compile(r"rotate\(-?0(?:\.0*)? ")
_COLOURS = {light: f"var(--f{place})" for place, light in enumerate(DARK)}


@dataclass
class Shared:
    """What the figures of one page have in common: the classes of their styles, and what they refer to."""

    styles: dict[str, str] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)

    def style(self, declared: Mapping[str, str]) -> str:
        """The class of this style; '' if it says nothing."""
        said = ";".join(f"{name}:{_COLOURS.get(value, value)}" for name, value in sorted(declared.items()))
        return self.styles.setdefault(said, f"fg{len(self.styles)}") if said else ""

    def define(self, tag: str, attributes: str, inside: str = "") -> str:
        """The id of a thing that figures refer to: one of its kind for the whole page."""
        return self.defined.setdefault(f"<{tag} id=%s{attributes}>{inside}</{tag}>", f"fd{len(self.defined)}")

    def css(self) -> str:
        """The classes, and the colours on a light and on a dark page."""
        light = ";".join(f"--f{place}:{colour}" for place, colour in enumerate(DARK))
        dark = ";".join(f"--f{place}:{colour}" for place, colour in enumerate(DARK.values()))
        classes = "".join(f".{name}{{{said}}}" for said, name in self.styles.items())
        return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{_ALL}{classes}"

    def definitions(self) -> str:
        """An element that shows nothing, for the beginning of the page."""
        inside = "".join(text.replace("%s", f'"{name}"', 1) for text, name in self.defined.items())
        return f'<svg class="plot-defs" aria-hidden="true"><defs>{inside}</defs></svg>'


@dataclass(frozen=True)
class _Mark:
    """One thing that is seen. body: a path's outline, a text, or where which definition is used."""

    kind: str
    look: str
    body: str
    clip: str = ""
    at: str = ""
    words: str = ""
    merges: bool = False


def element(svg: str, shared: Shared, classes: str, alt: str) -> str:
    """The markup of a figure for the page; its styles and definitions are added to `shared`.

    classes, alt: of the element. Raises UnknownMarkupError if the SVG holds what would be lost.
    """
    root = ElementTree.fromstring(svg)
    marks = list(_marks(root, _Defined(root), shared))
    inside = "".join(
        f'<g clip-path="url(#{clip})">{drawn}</g>' if clip else drawn
        for clip, group in groupby(_merged(marks), key=lambda mark: mark.clip)
        for drawn in ["".join(map(_markup, group))]
    )
    named = f'role="img" aria-label="{html.escape(alt)}"' if alt.strip() else 'aria-hidden="true"'
    names = f"plot {html.escape(classes)}".strip()
    return f'<svg class="{names}" viewBox="{html.escape(root.get("viewBox", ""))}" {named}>{inside}</svg>'


class _Defined:
    """What a figure defines and refers to within itself."""

    def __init__(self, root: ElementTree.Element) -> None:
        self.paths: dict[str, ElementTree.Element] = {}
        self.clips: dict[str, ElementTree.Element] = {}
        self.patterns: dict[str, ElementTree.Element] = {}
        kinds = {"path": self.paths, "clipPath": self.clips, "pattern": self.patterns}
        for defs in root.iter(f"{_SVG}defs"):
            for one in defs:
                tag = one.tag.removeprefix(_SVG)
                if tag in kinds:
                    kinds[tag][one.get("id", "")] = one
                elif tag != "style":
                    raise UnknownMarkupError(f"a definition of {tag}")
        used = [use.get(_HREF, "")[1:] for use in root.iter(f"{_SVG}use")]
        self.once = {name for name in self.paths if used.count(name) == 1}


def _marks(node: ElementTree.Element, defined: _Defined, shared: Shared, clip: str = "") -> Iterator[_Mark]:
    """What is seen of an element and all that it holds, in the order of drawing. clip: of what is around it."""
    for child in node:
        tag = child.tag.removeprefix(_SVG) if isinstance(child.tag, str) else "comment"
        if tag in ("defs", "style", "title", "comment"):
            continue
        known = _KNOWN.get(tag)
        if known is None or not set(child.keys()) <= known:
            raise UnknownMarkupError(f"{tag} with {', '.join(child.keys())}")
        own = _clip(child, defined, shared)
        if own and clip:
            raise UnknownMarkupError("a clip within a clip")
        if tag == "g":
            inside = _marks(child, defined, shared, own or clip)
            yield from _ticks(inside) if child.get("id", "").startswith("matplotlib.axis_") else inside
            continue
        mark = _text(child, shared) if tag == "text" else (_path if tag == "path" else _use)(child, defined, shared)
        if mark:
            words = child.findtext(f"{_SVG}title", "")
            yield replace(mark, clip=own or clip, words=words, merges=mark.merges and not words)


_KNOWN = {
    "g": {"id", "clip-path"},
    "path": {"d", "style", "clip-path", "id"},
    "use": {_HREF, "x", "y", "style"},
    "text": {"style", "x", "y", "transform"},
}


def _ticks(marks: Iterator[_Mark]) -> list[_Mark]:
    """The marks of an axis: grid and ticks of one look together, then what is written. None reaches past a clip."""
    every = [replace(mark, clip="") for mark in marks]
    looks = list(dict.fromkeys(mark.look for mark in every))
    return sorted(every, key=lambda mark: (mark.kind == "text", mark.kind != "text" and looks.index(mark.look)))


def _clip(node: ElementTree.Element, defined: _Defined, shared: Shared) -> str:
    """The id, on the page, of the clip that an element is under; '' if there is none."""
    found = _URL.fullmatch(node.get("clip-path", ""))
    if not found:
        return ""
    inside = []
    if found[1] not in defined.clips:
        raise UnknownMarkupError(f"a clip to {found[1]}, which is not defined")
    for shape in defined.clips[found[1]]:
        if shape.tag != f"{_SVG}rect":
            raise UnknownMarkupError("a clip that is no rectangle")
        inside.append("<rect" + "".join(f' {name}="{html.escape(value)}"' for name, value in shape.items()) + "/>")
    return shared.define("clipPath", "", "".join(inside))


def _path(node: ElementTree.Element, defined: _Defined, shared: Shared) -> _Mark | None:
    style = _declared(node.get("style", ""))
    look = _look(style, defined, shared)
    return None if look is None else _Mark("path", look, outline(node.get("d", "")), merges=_merges(style))


def _use(node: ElementTree.Element, defined: _Defined, shared: Shared) -> _Mark | None:
    """A mark: as a path of its own if it is a straight line or stands nowhere else, else as one of many."""
    name = node.get(_HREF, "")[1:]
    if name not in defined.paths:
        raise UnknownMarkupError(f"a use of {name}, which is no path")
    what = defined.paths[name]
    shape, x, y = what.get("d", ""), float(node.get("x", "0")), float(node.get("y", "0"))
    straight = simple(shape)
    # The definition's own style is a part of what the mark says; a straight line has no inside.
    style = {**_declared(node.get("style", "")), **_declared(what.get("style", ""))}
    style |= {"fill": "none"} if straight else {}
    look = _look(style, defined, shared)
    if look is None:
        return None
    if straight or name in defined.once:
        return _Mark("path", look, outline(shape, 1 if straight else 2, x, y), merges=_merges(style))
    place = shared.define("path", f' d="{outline(shape, digits=2)}"')
    return _Mark("use", look, f'href="#{place}" x="{number(x)}" y="{number(y)}"')


def _text(node: ElementTree.Element, shared: Shared) -> _Mark:
    if len([child for child in node if child.tag != f"{_SVG}title"]):
        raise UnknownMarkupError("a text of several parts")
    turn = node.get("transform", "")
    at = f'x="{number(float(node.get("x", "0")))}" y="{number(float(node.get("y", "0")))}"'
    if turn and not _UPRIGHT.match(turn):
        at += f' transform="{html.escape(turn)}"'
    style = _declared(node.get("style", ""))
    style.pop("font-family", None)
    return _Mark("text", shared.style(style), html.escape(node.text or "", quote=False), at=at)


def _look(style: Mapping[str, str], defined: _Defined, shared: Shared) -> str | None:
    """The class of a style; None for one that shows nothing."""
    if style.get("fill") == "none" and style.get("stroke", "none") == "none":
        return None
    said = dict(style)
    for key, value in style.items():
        found = _URL.fullmatch(value)
        if found and found[1] not in defined.patterns:
            raise UnknownMarkupError(f"a reference to {found[1]}, which is no pattern")
        if found:
            said[key] = f"url(#{_pattern(defined.patterns[found[1]], shared)})"
    return shared.style(said)


def _pattern(node: ElementTree.Element, shared: Shared) -> str:
    """The id, on the page, of a hatching."""
    inside = []
    for shape in node:
        tag = shape.tag.removeprefix(_SVG)
        if tag not in ("rect", "path") or len(shape):
            raise UnknownMarkupError(f"a pattern with {tag}")
        style = {**_declared(shape.get("style", "")), **{k: v for k, v in shape.items() if k in ("fill", "stroke")}}
        look = shared.style(style)
        rest = {key: value for key, value in shape.items() if key not in ("style", "fill", "stroke", "d")}
        if shape.get("d"):
            rest["d"] = outline(shape.get("d", ""))
        said = "".join(f' {name}="{html.escape(value)}"' for name, value in rest.items())
        inside.append(f'<{tag} class="{look}"{said}/>')
    given = "".join(f' {name}="{html.escape(value)}"' for name, value in node.items() if name != "id")
    return shared.define("pattern", given, "".join(inside))


def _declared(text: str) -> dict[str, str]:
    """A style's declarations, without those that say nothing."""
    pairs = (part.partition(":") for part in text.split(";") if part.strip())
    said = ((name.strip(), value.strip()) for name, _, value in pairs)
    return {name: value for name, value in said if (name, value) not in _IDLE}


def _merges(style: Mapping[str, str]) -> bool:
    """Whether strokes of this style look the same as one path: nothing shines through, nothing is filled."""
    return style.get("fill") == "none" and not any("opacity" in name for name in style)


def _merged(marks: Sequence[_Mark]) -> Iterator[_Mark]:
    """The marks, neighbours of one look as one path."""
    for (_, _, merges), group in groupby(marks, key=lambda mark: (mark.look, mark.clip, mark.merges)):
        if merges:
            every = list(group)
            yield replace(every[0], body="".join(mark.body for mark in every))
        else:
            yield from group


def _markup(mark: _Mark) -> str:
    look = f' class="{mark.look}"' if mark.look else ""
    words = f"<title>{html.escape(mark.words, quote=False)}</title>" if mark.words else ""
    if mark.kind == "text":
        return f"<text{look} {mark.at}>{mark.body}</text>"
    given = f' d="{mark.body}"' if mark.kind == "path" else f" {mark.body}"
    return f"<{mark.kind}{look}{given}>{words}</{mark.kind}>" if words else f"<{mark.kind}{look}{given}/>"
