"""Where the words of a PDF stand, by poppler's pdftotext, and the tree of its structure."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pypdf.generic import IndirectObject

_XHTML = "{http://www.w3.org/1999/xhtml}"
# Boxes reach from a font's highest to its lowest letter, so those of close lines overlap; what is written is within.
_TRIM_X, _TRIM_Y = 0.6, 0.32


@dataclass(frozen=True)
class Word:
    """A word and its box in points, from the upper left corner of its page."""

    page: int
    text: str
    left: float
    top: float
    right: float
    bottom: float


def _by_poppler(pdf: Path, *options: str) -> str:
    """What pdftotext writes. Fails the test where poppler is missing."""
    program = shutil.which("pdftotext")
    if program is None:
        pytest.fail("poppler is needed for this test: apt-get install poppler-utils")
    ran = subprocess.run([program, "-enc", "UTF-8", *options, str(pdf), "-"], check=True, capture_output=True)
    return ran.stdout.decode("utf-8")


def text_of(pdf: Path) -> str:
    """The text within the sheets of a PDF in the order in which it was written: what pypdf tells too, and slowly."""
    return _by_poppler(pdf, "-raw")


def words(pdf: Path) -> list[Word]:
    """All words of a PDF. Fails the test where poppler is missing."""
    root = ElementTree.fromstring(_by_poppler(pdf, "-bbox"))
    return [
        Word(number, word.text or "", *(float(word.get(side, "nan")) for side in ("xMin", "yMin", "xMax", "yMax")))
        for number, page in enumerate(root.iter(f"{_XHTML}page"), 1)
        for word in page.iter(f"{_XHTML}word")
    ]


def outside(found: list[Word], left: float, top: float, right: float, bottom: float) -> list[Word]:
    """Words that leave a rectangle (points)."""
    return [word for word in found if word.left < left or word.right > right or word.top < top or word.bottom > bottom]


def overlapping(found: list[Word]) -> list[tuple[Word, Word]]:
    """Pairs of words that stand one upon the other."""
    pages: dict[int, list[Word]] = defaultdict(list)
    for word in found:
        pages[word.page].append(word)
    pairs = []
    for page in pages.values():
        page.sort(key=lambda word: word.top)
        for place, one in enumerate(page):
            for other in page[place + 1 :]:
                if other.top > one.bottom:
                    break
                across = min(one.right, other.right) - max(one.left, other.left) - 2 * _TRIM_X
                down = min(_low(one), _low(other)) - max(_high(one), _high(other))
                if across > 0 and down > 0:
                    pairs.append((one, other))
    return pairs


def _high(word: Word) -> float:
    return word.top + _TRIM_Y * (word.bottom - word.top)


def _low(word: Word) -> float:
    return word.bottom - _TRIM_Y * (word.bottom - word.top)


def elements(root: Any) -> Iterator[Any]:
    """Every element of the structure tree."""
    waiting, seen = [root], set()
    while waiting:
        element = waiting.pop()
        if isinstance(element, IndirectObject):
            if element.idnum in seen:
                continue
            seen.add(element.idnum)
            element = element.get_object()
        if isinstance(element, dict):
            yield element
            children = element.get("/K", [])
            waiting += children if isinstance(children, list) else [children]
