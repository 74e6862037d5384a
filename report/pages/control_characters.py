"""Strip control characters, so that text from data cannot hide anything or reorder the text beside it."""

from __future__ import annotations

import re

# Characters that XML, markdown and typst reject or drop.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Invisible characters that change other text: direction marks, zero-width spaces, tags and soft hyphens. Joiners are
# not listed, because emoji and Persian and Indic scripts need them.
_UNSEEN = re.compile(
    r"[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
# Many accents on one letter cover the lines beside it. Only the first four are kept: no language needs more than a few.
_PILE = re.compile(r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})"
                   r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")  # fmt: skip
_R = r"\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
# Right-to-left words, with the signs between them.
_RIGHT_TO_LEFT = re.compile(rf"[{_R}]+(?:[^\w\n]+[{_R}]+)*")
# The characters "first strong isolate" and "pop directional isolate" enclose right-to-left text, so that it cannot
# reorder numbers, brackets or names beside it (UAX #9).
_ISOLATED = "\u2068\\g<0>\u2069"


def remove_invisible(text: str) -> str:
    """Remove invisible characters and excess accents; replace characters that documents reject by U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return _PILE.sub(r"\1", _UNSEEN.sub("", _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)))


def sanitize(text: str) -> str:
    """Make text safe to embed: visible, with right-to-left words isolated."""
    return _RIGHT_TO_LEFT.sub(_ISOLATED, remove_invisible(text))
