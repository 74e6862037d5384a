"""What is done to a page when it has been rendered: its figures become a part of it, and only its own scripts may run.

Both renderers put an image into the page as a file in base64, which is a third longer than the file, which the
page's styles and scripts cannot reach, and which repeats what all figures have in common.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

from report.render.compact import Shared, element
from report.render.outline import UnknownMarkupError

_SVG = "data:image/svg+xml"
_POLICY = "content-security-policy"
_ANY_SCRIPT = "'unsafe-inline'"


def inline(page: Path, scripts: Iterable[str] = ()) -> None:
    """Put the figures of a rendered page into it as elements; the file is replaced.

    A figure that cannot be taken apart without loss stays the image that it is. scripts: the
    texts of the page's own. Where the page has a policy for scripts, it is narrowed to these.
    Raises OSError if the file cannot be read or written.
    """
    text = page.read_text(encoding="utf-8")
    page.write_text(_inlined(text, set(map(str.strip, scripts))), encoding="utf-8")


def scripts_of(text: str) -> list[str]:
    """The texts of a page's scripts."""
    return _Page(text).scripts


def _inlined(text: str, scripts: set[str]) -> str:
    seen = _Page(text)
    shared = Shared()
    changes = [(tag, markup) for tag in seen.images if (markup := _figure(tag, shared))]
    if not (seen.head_end and seen.body):
        changes = []
    elif changes:
        changes.append((seen.head_end, f"<style>{shared.css()}</style>\n{seen.head_end.text}"))
        changes.append((seen.body, f"{seen.body.text}\n{shared.definitions()}"))
    if seen.policy:
        hashes = " ".join(_hash(script) for script in seen.scripts if script.strip() in scripts) or "'none'"
        content = (seen.policy.get("content") or "").replace(f"script-src {_ANY_SCRIPT}", f"script-src {hashes}")
        said = html.escape(content, quote=False).replace('"', "&quot;")
        changes.append((seen.policy, f'<meta http-equiv="Content-Security-Policy" content="{said}">'))
    made, at = [], 0
    for tag, markup in sorted(changes, key=lambda change: change[0].start):
        made += [text[at : tag.start], markup]
        at = tag.start + len(tag.text)
    return "".join([*made, text[at:]])


@dataclass(frozen=True)
class _Tag:
    """A tag as it stands in a page: where it begins, its characters, its attributes."""

    start: int
    text: str
    attributes: tuple[tuple[str, str | None], ...]

    def get(self, name: str) -> str | None:
        return dict(self.attributes).get(name)


class _Page(HTMLParser):
    """The tags of a page that are to be changed, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.images: list[_Tag] = []
        self.scripts: list[str] = []
        self.policy: _Tag | None = None
        self.head_end: _Tag | None = None
        self.body: _Tag | None = None
        self._in_script = False
        # Where each line begins: the parser tells places by line and column.
        self._lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = self._tag(self.get_starttag_text() or "", attrs)
        if tag == "img":
            self.images.append(found)
        elif tag == "body" and not self.body:
            self.body = found
        elif tag == "meta" and (found.get("http-equiv") or "").lower() == _POLICY and not self.head_end:
            self.policy = found
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False
        if tag == "head" and not self.head_end:
            self.head_end = self._tag("</head>", [])

    def _tag(self, text: str, attributes: list[tuple[str, str | None]]) -> _Tag:
        line, column = self.getpos()
        return _Tag(self._lines[line - 1] + column, text, tuple(attributes))


def _figure(tag: _Tag, shared: Shared) -> str:
    """An image as an element of the page; '' if it is none of ours, or would lose something."""
    svg = _svg(tag.get("src") or "")
    if not svg:
        return ""
    try:
        return element(svg, shared, tag.get("class") or "", tag.get("alt") or "")
    except (UnknownMarkupError, ElementTree.ParseError):
        return ""


def _svg(address: str) -> str:
    """The SVG that an address holds in itself; '' if it holds none."""
    about, _, data = address.partition(",")
    if not about.startswith(_SVG):
        return ""
    try:
        return (base64.b64decode(data) if about.endswith(";base64") else unquote_to_bytes(data)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _hash(script: str) -> str:
    """A script as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode('ascii')}'"
