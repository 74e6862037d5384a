"""Where the words of a PDF stand, by PDFium, and the tree of its structure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
from pypdf.generic import IndirectObject
from pypdfium2.raw import FS_RECTF, FPDFText_GetLooseCharBox, FPDFText_GetUnicode

# Boxes reach from a font's highest to its lowest letter, so those of close lines overlap; what is written is within.
_TRIM_X, _TRIM_Y = 0.6, 0.25


@dataclass(frozen=True)
class Word:
    """A word and its box in points, from the upper left corner of its page."""

    page: int
    text: str
    left: float
    top: float
    right: float
    bottom: float


def text_of(pdf: Path) -> str:
    """The text within the sheets of a PDF in the order in which it was written: what pypdf tells too, and slowly."""
    with pdfium.PdfDocument(pdf) as document:
        # PDFium has a mark of its own for the soft hyphen of a broken word.
        return "\n".join(page.get_textpage().get_text_range() for page in document).replace("\ufffe", "\xad")


def words(pdf: Path) -> list[Word]:
    """All words of a PDF."""
    with pdfium.PdfDocument(pdf) as document:
        return [word for number, page in enumerate(document, 1) for word in _words_of(page, number)]


def _words_of(page: pdfium.PdfPage, number: int) -> Iterator[Word]:
    found, height, box = page.get_textpage(), page.get_height(), FS_RECTF()
    text = found.raw
    letters, boxes = "", []
    # One past the end, where the last word ends too, PDFium tells 0.
    for place in range(found.count_chars() + 1):
        letter = chr(FPDFText_GetUnicode(text, place)).strip().strip("\0")
        broken = letter == "\x02"  # the hyphen at the end of a line
        if letter:
            FPDFText_GetLooseCharBox(text, place, box)
            letters += "-" if broken else letter
            boxes.append((box.left, height - box.top, box.right, height - box.bottom))
        if letters and (broken or not letter):
            left, top, right, bottom = zip(*boxes, strict=True)
            yield Word(number, letters, min(left), min(top), max(right), max(bottom))
            letters, boxes = "", []


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
