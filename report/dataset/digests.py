"""Digests of files: the list SHA256SUMS, in the format of sha256sum."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from contract.errors import StudyError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def digest(path: Path) -> str:
    """Return a file's SHA-256 as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def format_digests(folder: Path, files: Iterable[Path]) -> str:
    """Return the text of SHA256SUMS for files under `folder`."""
    return "".join(f"{digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def digest_faults(folder: Path, files: Iterable[Path]) -> Iterator[str]:
    """Yield a line per file that is missing, differs from its digest in SHA256SUMS, or has none.

    files: the files under `folder` that must have a digest. Raises StudyError if the list is missing.
    """
    path = folder / SUMS
    if not path.is_file():
        raise StudyError(f"{path}: no such file: digests cannot be checked")
    listed = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            yield f"{SUMS}, line {number}: is not a digest and a file name"
        else:
            listed[match[2]] = match[1]
    there = {file.relative_to(folder).as_posix(): file for file in files}
    for name in sorted(listed.keys() - there.keys()):
        yield f"{name}: is listed in {SUMS}, but missing"
    for name in sorted(there.keys() - listed.keys()):
        yield f"{name}: is not listed in {SUMS}"
    for name in sorted(listed.keys() & there.keys()):
        if digest(there[name]) != listed[name]:
            yield f"{name}: differs from its digest in {SUMS}"
