"""Parse and validate the output from lscpu and macOS's sysctl."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from select import select

from contract.errors import StudyError
from contract.files import parse_json

# Texts that stand for a missing value.
_NOTHING = re.compile(r"\W*(unknown|none|null|nil|n/?a|undefined|not specified|)\W*", re.IGNORECASE)
_MOST_OUTPUT, _LONGEST_S = 2**20, 10.0


def read_output(*command: str) -> bytes:
    """Run a command with English output; return what it prints within 10 s, at most 1 MiB; b'' if it cannot run."""
    printed = b""
    with (
        suppress(OSError, subprocess.SubprocessError),
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        ) as process,
    ):
        assert process.stdout is not None
        ends = time.monotonic() + _LONGEST_S
        # Do not use read(), which waits for the pipe to close: the command's children may hold the pipe open.
        while len(printed) < _MOST_OUTPUT and select([process.stdout], [], [], max(0.0, ends - time.monotonic()))[0]:
            if not (piece := os.read(process.stdout.fileno(), 2**16)):
                break
            printed += piece
        process.kill()
    return printed[:_MOST_OUTPUT]


def parse_text(value: object) -> str:
    """Parse a field as one line, at most 200 characters; '' for placeholders: '-', '(null)', 'unknown'."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(value)).split())
    line = line.encode("utf-8", "replace").decode("utf-8")[:200].strip()
    return "" if _NOTHING.fullmatch(line) or not re.search(r"\w", line) else line


def parse_count(value: object, maximum: float) -> int | None:
    """Parse a field as an integer from 1 to `maximum`; None for anything else."""
    digits = re.fullmatch(r"\s*([0-9]{1,18})\s*", str(value))
    return number if digits and 1 <= (number := int(digits[1])) <= maximum else None


def lscpu_fields(printed: bytes) -> list[tuple[str, str]]:
    """Parse (name, value) pairs, in order, from the output of `lscpu -J` or `lscpu`; skip JSON objects without both."""
    try:
        return [(name.strip().rstrip(":"), value) for name, value in _field_pairs(parse_json(printed, "lscpu"))]
    except StudyError:
        lines = printed.decode("utf-8", "replace").splitlines()
        parts = (line.partition(":") for line in lines)
        return [(name.strip(), value.strip()) for name, colon, value in parts if colon and name.strip()]


def _field_pairs(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        name, data = value.get("field"), value.get("data")
        if isinstance(name, str) and isinstance(data, str | int | float):
            yield name, str(data)
        for item in value.values():
            yield from _field_pairs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _field_pairs(item)


def split_by_core_kind(fields: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Split lscpu's fields into a section per core kind. Each "Model name" after the first begins a new section."""
    parts: list[dict[str, str]] = [{}]
    for name, value in fields:
        if name == "Model name" and name in parts[-1]:
            parts.append({})
        parts[-1].setdefault(name, value)
    return parts


def first_values(fields: Sequence[tuple[str, str]], *names: str) -> dict[str, str]:
    """Return the first non-empty value for each name."""
    values: dict[str, str] = {}
    for name, value in fields:
        if name in names and (line := parse_text(value)):
            values.setdefault(name, line)
    return values


def sysctl_fields(printed: bytes) -> dict[str, str]:
    """Parse `name: value` lines from macOS's `sysctl hw machdep.cpu`."""
    lines = printed.decode("utf-8", "replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): line for name, _, value in pairs if (line := parse_text(value))}
