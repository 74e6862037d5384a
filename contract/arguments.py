"""Argument types for command lines, and a parser that reports mistakes in one line."""

from __future__ import annotations

import argparse
import math
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from contract.errors import StudyError


class _Help(argparse.HelpFormatter):
    """Help that wraps single lines, and keeps the line breaks of longer texts, such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Parser that raises StudyError on a mistake and prints no usage text. examples: command lines for the help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        self.examples = examples
        if examples:
            options["epilog"] = "\n  ".join(["examples:", *examples])
        super().__init__(*args, **{"formatter_class": _Help, **options})

    def error(self, message: str) -> NoReturn:
        raise StudyError(f"{self.prog}: {message}. `{self.prog} --help` says more")


def list_commands(commands: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> str:
    """Format the commands' descriptions by group, and examples of the first group, for the end of a program's help.

    commands: the `Parser` of each command.
    """
    column = max(map(len, commands)) + 2
    lines = []
    for title, names in groups.items():
        lines += [f"{title}:"]
        for name in names:
            head = f"    {name:{column}}"
            lines += textwrap.wrap(
                commands[name].description, 100, initial_indent=head, subsequent_indent=" " * len(head)
            )
        lines += [""]
    lines += ["examples; put --help after a command for its options:"]
    lines += [f"  {example}" for name in next(iter(groups.values())) for example in commands[name].examples[:1]]
    return "\n".join(lines)


def parse_number(text: str) -> float:
    """Parse a finite number. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= 1e30:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a finite number")
    return value


def parse_minutes(text: str) -> float:
    """Parse a time in minutes, above 0 and at most a week. Raises ArgumentTypeError."""
    value = parse_number(text)
    if not 0 < value <= 10_080:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes between 0 and 10080, a week")
    return value


def parse_share(text: str) -> float:
    """Parse a share from 0 to 1. Raises ArgumentTypeError."""
    value = parse_number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return value


def integer_between(least: int, most: int) -> Callable[[str], int]:
    """Return a function to parse whole numbers from `least` to `most`. It raises ArgumentTypeError."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def expand_home(text: str) -> str:
    """Expand a leading `~` or `~user` in a path.

    Raises StudyError if the user's home folder is unknown, or if the path is not valid UTF-8, which libraries require.
    """
    if re.search("[\ud800-\udfff]", text):
        raise StudyError(f"{text!r}: the name is not UTF-8: rename it")
    expanded = os.path.expanduser(text)  # noqa: PTH111  pathlib would expand "./~x"
    if expanded.startswith("~"):
        user, _, _ = text.partition("/")
        raise StudyError(f"{text}: no home folder is known for {user}: give the whole path, or ./{text} for that name")
    return expanded


def parse_path(text: str) -> Path:
    """Parse a path and expand a leading `~`, which shells keep in `--out=~/x` and in quotes. Raises StudyError."""
    return Path(expand_home(text))


parse_count = integer_between(1, 1_000_000)
parse_seed = integer_between(0, 2**32 - 1)
