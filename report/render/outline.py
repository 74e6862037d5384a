"""Outlines of SVG paths in few characters: relative, rounded, each letter and space only where it is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
# The commands that matplotlib writes, and how many points each takes.
_POINTS = {"M": 1, "L": 1, "Q": 2, "C": 3, "Z": 0}
_Point = tuple[float, float]


class UnknownMarkupError(ValueError):
    """An SVG holds what cannot be put more briefly without losing it."""


def outline(path: str, digits: int = 1, x: float = 0.0, y: float = 0.0) -> str:
    """A path's `d`, moved by x and y, its coordinates rounded to `digits` behind the point.

    No error adds up: each step is the difference of two rounded places. Raises UnknownMarkupError
    for a command that matplotlib does not write.
    """
    scale = 10**digits
    words = _Words(digits)
    at = start = (0, 0)
    for letter, points in _steps(path):
        places = [(round((across + x) * scale), round((down + y) * scale)) for across, down in points]
        if letter == "Z":
            words.say("z", [])
            at = start
        elif letter == "M":
            words.say("M", list(places[0]))
            at = start = places[0]
        else:
            steps = [part - whole for place in places for part, whole in zip(place, at, strict=True)]
            if letter != "L":
                words.say(letter.lower(), steps)
            elif steps[1] == 0:
                # A step that is too small to be seen counts only where it is all there is.
                if steps[0] or words.last == "M":
                    words.say("h", steps[:1])
            elif steps[0] == 0:
                words.say("v", steps[1:])
            else:
                words.say("l", steps)
            at = places[-1]
    return words.text


def simple(path: str) -> bool:
    """Whether a path is one straight line."""
    return [letter for letter, _ in _steps(path)] == ["M", "L"]


def _steps(path: str) -> Iterator[tuple[str, list[_Point]]]:
    """Commands with their points."""
    tokens = _TOKEN.findall(path)
    place = 0
    while place < len(tokens):
        letter = tokens[place].upper()
        if letter not in _POINTS or (tokens[place] != letter and letter != "Z"):
            raise UnknownMarkupError(f"a path with {tokens[place]}")
        end = place + 1 + 2 * _POINTS[letter]
        numbers = [float(token) for token in tokens[place + 1 : end]]
        yield letter, list(zip(numbers[::2], numbers[1::2], strict=True))
        place = end


class _Words:
    """A `d` as it is being written."""

    def __init__(self, digits: int) -> None:
        self.digits, self.text, self.last, self._before = digits, "", "", ""

    def say(self, letter: str, numbers: list[int]) -> None:
        """Add a command. numbers: in units of the last digit."""
        if letter != self.last or letter in "Mz":
            self.text += letter
            self._before = ""
        self.last = letter
        for value in numbers:
            said = number(value / 10**self.digits, self.digits)
            apart = self._before and not said.startswith("-") and not (said.startswith(".") and "." in self._before)
            self.text += f" {said}" if apart else said
            self._before = said


def number(value: float, digits: int = 1) -> str:
    """A number with at most so many digits behind the point and no idle character: 57.6, .5, -3, 0."""
    said = f"{value:.{digits}f}"
    if "." in said:
        said = said.rstrip("0").rstrip(".")
    if said == "-0":
        return "0"
    return re.sub(r"^(-?)0\.", r"\1.", said)
