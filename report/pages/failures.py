"""Record pages and figures that failed, so that one failure does not stop the rest."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json
from contract.schema import check_document
from report.pages import site_paths

_LONGEST = 300
# Codes of system errors that concern a single file: other pages can still be made after such an error.
_OF_ONE_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_FIELDS = ("kind", "name", "reason")
# Schema of the list that `Failures.as_json` returns.
_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": list(_FIELDS),
        "properties": {name: {"type": "string"} for name in _FIELDS},
    },
}
_OF_FIGURES = {"type": "object", "required": ["failed"], "properties": {"failed": _SCHEMA}}


@dataclass(frozen=True)
class Failure:
    """A failed page, figure, preview or PDF. name: its path in the report, without suffix."""

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: could not be made: {self.reason}"


class Failures:
    """Failures in one report, in chronological order."""

    def __init__(self, known: Iterable[Mapping[str, Any]] = ()) -> None:
        self.items = [Failure(str(failure["kind"]), str(failure["name"]), str(failure["reason"])) for failure in known]

    @contextmanager
    def catch(self, kind: str, name: str) -> Iterator[None]:
        """Record an exception from the block as a failure, with a traceback on standard error.

        Re-raises interrupts and system errors such as a full disk: they affect every page.
        """
        try:
            yield
        except Exception as fault:
            # Some libraries raise OSError without errno for a damaged file. Such an error concerns a single file, so it
            # is recorded.
            if isinstance(fault, OSError) and fault.errno not in (None, *_OF_ONE_FILE):
                raise
            reason = str(fault) if isinstance(fault, StudyError) else f"{type(fault).__name__}: {fault}"
            self.add(kind, name, reason)
            traceback.print_exc()

    def add(self, kind: str, name: str, reason: str) -> None:
        """Record and print a failure, unless one is already recorded for the same page or figure."""
        failure = Failure(kind, name, (" ".join(reason.split()) or "no reason given")[:_LONGEST])
        if not self.find(kind, name):
            self.items.append(failure)
            print(f"warning: {failure}", file=sys.stderr)

    def find(self, kind: str, name: str) -> Failure | None:
        """Return the failure recorded for this page or figure, if any."""
        return next((failure for failure in self.items if (failure.kind, failure.name) == (kind, name)), None)

    @property
    def as_json(self) -> list[dict[str, str]]:
        """Failures as JSON."""
        return [asdict(failure) for failure in self.items]


def read_failures(report: Path) -> Failures:
    """Read a report's failures. Raises StudyError if the list is missing or damaged."""
    return Failures(_read_checked(report / site_paths.FAILURES, _SCHEMA, "render"))


def read_failed_figures(folder: Path) -> Failures:
    """Read the failures that `report figures` recorded in a folder. Raises StudyError for a damaged list."""
    lists = [_read_checked(path, _OF_FIGURES, "figures") for path in sorted(folder.glob("*.json"))]
    # Skip failed pages: a claim or family that failed here fails again, and is recorded, when its page is built.
    return Failures(failure for drawn in lists for failure in drawn["failed"] if failure["kind"] != "page")


def _read_checked(path: Path, schema: Mapping[str, Any], command: str) -> Any:
    """Read a file written by a report command. Raises StudyError unless it matches the schema."""
    document = read_json(path)
    try:
        check_document(document, schema, path)
    except StudyError as fault:
        raise StudyError(f"{fault}: write it again with `python -m report {command}`") from None
    return document
