"""Read the output of lscpu and of macOS's sysctl as fields, of which none is trusted."""

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

# Words that stand for nothing.
_NOTHING = re.compile(r"\W*(unknown|none|null|nil|n/?a|undefined|not specified|)\W*", re.IGNORECASE)
_MOST_OUTPUT, _LONGEST_S = 2**20, 10.0


def read_output(*command: str) -> bytes:
    """The first MiB that a command prints within 10 s, in English; nothing where there is no such command."""
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
        # Not read(): what the command itself has started may hold the pipe open.
        while len(printed) < _MOST_OUTPUT and select([process.stdout], [], [], max(0.0, ends - time.monotonic()))[0]:
            if not (piece := os.read(process.stdout.fileno(), 2**16)):
                break
            printed += piece
        process.kill()
    return printed[:_MOST_OUTPUT]


def parse_text(value: object) -> str:
    """A field as one line of at most 200 characters; '' for what stands for nothing: '-', '(null)', 'unknown'."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(value)).split())
    line = line.encode("utf-8", "replace").decode("utf-8")[:200].strip()
    return "" if _NOTHING.fullmatch(line) or not re.search(r"\w", line) else line


def parse_count(value: object, most: float) -> int | None:
    """A field as a whole number from 1 to `most`; None for anything else."""
    digits = re.fullmatch(r"\s*([0-9]{1,18})\s*", str(value))
    return number if digits and 1 <= (number := int(digits[1])) <= most else None


def lscpu_fields(printed: bytes) -> list[tuple[str, str]]:
    """Names and values of what `lscpu -J` or `lscpu` printed, in its order; of JSON of another shape, what fits."""
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
        for one in value.values():
            yield from _field_pairs(one)
    elif isinstance(value, list):
        for one in value:
            yield from _field_pairs(one)


def split_by_core_kind(fields: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """lscpu's fields by kind of core: each begins with its model's name, and the first also has what comes before."""
    found: list[dict[str, str]] = [{}]
    for name, value in fields:
        if name == "Model name" and name in found[-1]:
            found.append({})
        found[-1].setdefault(name, value)
    return found


def first_values(fields: Sequence[tuple[str, str]], *names: str) -> dict[str, str]:
    """The first value of each of these fields that says anything."""
    found: dict[str, str] = {}
    for name, value in fields:
        if name in names and (line := parse_text(value)):
            found.setdefault(name, line)
    return found


def sysctl_fields(printed: bytes) -> dict[str, str]:
    """macOS's `sysctl hw machdep.cpu`: `name: value` lines."""
    lines = printed.decode("utf-8", "replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): line for name, _, value in pairs if (line := parse_text(value))}
