"""Pages and figures that could not be made: each is named with its reason, and costs no other."""

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
from contract.schema import check
from report.pages import site_paths

_LONGEST = 300
# Refusals that concern one file.
_OF_ONE_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_FIELDS = ("kind", "name", "reason")
# The failures in a file, as `Failures.as_json` gives them.
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
    """A page, figure, preview or PDF that could not be made. name: its path in the report, without ending."""

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: could not be made: {self.reason}"


class Failures:
    """All failures of one report, in the order in which they came."""

    def __init__(self, known: Iterable[Mapping[str, Any]] = ()) -> None:
        self.found = [Failure(str(one["kind"]), str(one["name"]), str(one["reason"])) for one in known]

    @contextmanager
    def caught(self, kind: str, name: str) -> Iterator[None]:
        """Record an error of the block as a failure of this page or figure, with its traceback on standard error.

        An interruption and the system's refusals, of a full disk say, are raised: they concern every page.
        """
        try:
            yield
        except Exception as fault:
            # Errors of libraries that read a damaged file have no number.
            if isinstance(fault, OSError) and fault.errno not in (None, *_OF_ONE_FILE):
                raise
            reason = str(fault) if isinstance(fault, StudyError) else f"{type(fault).__name__}: {fault}"
            self.add(kind, name, reason)
            traceback.print_exc()

    def add(self, kind: str, name: str, reason: str) -> None:
        """Record a failure and tell it on standard error; another of the same page is left out."""
        failure = Failure(kind, name, (" ".join(reason.split()) or "no reason given")[:_LONGEST])
        if not self.find(kind, name):
            self.found.append(failure)
            print(f"warning: {failure}", file=sys.stderr)

    def find(self, kind: str, name: str) -> Failure | None:
        """The failure of a page or figure, if it failed."""
        return next((one for one in self.found if (one.kind, one.name) == (kind, name)), None)

    @property
    def as_json(self) -> list[dict[str, str]]:
        """The failures as JSON."""
        return [asdict(one) for one in self.found]


def read_failures(report: Path) -> Failures:
    """The failures of the report in a folder. Raises StudyError if no whole list of them is there."""
    return Failures(_checked(report / site_paths.FAILURES, _SCHEMA, "render"))


def read_failed_figures(folder: Path) -> Failures:
    """The failures of the figures that `report figures` drew into a folder. Raises StudyError for a damaged list."""
    lists = [_checked(path, _OF_FIGURES, "figures") for path in sorted(folder.glob("*.json"))]
    # The page of a failed figure's claim or family fails again, where it is made.
    return Failures(one for drawn in lists for one in drawn["failed"] if one["kind"] != "page")


def _checked(path: Path, schema: Mapping[str, Any], command: str) -> Any:
    """The content of a file that a command of the report wrote. Raises StudyError unless it has this schema."""
    document = read_json(path)
    try:
        check(document, schema, path)
    except StudyError as fault:
        raise StudyError(f"{fault}: write it again with `python -m report {command}`") from None
    return document
