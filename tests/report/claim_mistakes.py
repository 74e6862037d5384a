"""Helpers that write YAML declarations, and find the line that an error message names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from contract.errors import StudyError

# Fields that every claim file declares.
HEAD = {
    "article": "whygpu",
    "section": "One",
    "says": "Something.",
    "word": "none",
    "kind": "measured",
    "note": "N.",
    "version": 1,
}


def write_yaml(path: Path, content: Any) -> Path:
    """Write `content` to `path` as YAML and return `path`."""
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(content, file)
    return path


def reported_line(fault: StudyError, path: Path) -> str:
    """Return the line in `path` that the error message names, or line 1 if the message names only the file."""
    place = re.match(rf"{re.escape(str(path))}(?:, line (\d+))?: ", str(fault))
    assert place is not None, fault
    return path.read_text(encoding="utf-8").splitlines()[int(place[1] or 1) - 1].strip()
