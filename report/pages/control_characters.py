"""Text from data is plain text: nothing in it is hidden, and nothing steers how its neighbours are shown."""

from __future__ import annotations

import re

# What no document may hold: XML, markdown and typst refuse it, or show nothing.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# What is not seen and yet acts: marks of direction, spaces without width, tags, soft hyphens. The joiners of
# emoji and of Persian and Indic scripts stay: without them words are misspelt.
_UNSEEN = re.compile(
    r"[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
# Accents that are piled up cover the lines above and below; no language needs more than a few on one letter.
_PILE = re.compile(r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})"
                   r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")  # fmt: skip
_R = r"\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
# Words that run from right to left, with what stands between them.
_RIGHT_TO_LEFT = re.compile(rf"[{_R}]+(?:[^\w\n]+[{_R}]+)*")
# First strong isolate, and its end: what stands between orders itself and nothing beside it (UAX #9), be it a
# number, a bracket or the name of another.
_ISOLATED = "\u2068\\g<0>\u2069"


def visible(text: str) -> str:
    """`text` without what cannot be seen; what no document may hold is replaced by U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return _PILE.sub(r"\1", _UNSEEN.sub("", _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)))


def harmless(text: str) -> str:
    """`text` as it may stand among other text: visible, and set apart where it runs from right to left."""
    return _RIGHT_TO_LEFT.sub(_ISOLATED, visible(text))
