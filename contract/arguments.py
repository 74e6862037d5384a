"""Numbers on a command line: each kind of them once, and mistakes in one line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

from contract.errors import StudyError


class Parser(argparse.ArgumentParser):
    """A parser that tells a mistake as every other is told, without a page of usage. Raises StudyError."""

    def error(self, message: str) -> NoReturn:
        raise StudyError(f"{self.prog}: {message}. `{self.prog} --help` says more")


def number(text: str) -> float:
    """Any finite number. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= 1e30:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a finite number")
    return value


def minutes(text: str) -> float:
    """Minutes, more than none and a week at most. Raises ArgumentTypeError."""
    value = number(text)
    if not 0 < value <= 10_080:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes between 0 and 10080, a week")
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number between both, which belong to it. What is returned raises ArgumentTypeError."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


count = whole(1, 1_000_000)
seed = whole(0, 2**32 - 1)
