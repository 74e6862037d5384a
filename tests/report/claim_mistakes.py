"""Declarations written for a test, and the line that a message about a mistake points at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from contract.errors import StudyError


def dump(path: Path, content: Any) -> Path:
    """Write a document as YAML; its path."""
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(content, file)
    return path


def pointed_at(fault: StudyError, path: Path) -> str:
    """The line of the file that the message names; the first where it names the file alone."""
    found = re.match(rf"{re.escape(str(path))}(?:, line (\d+))?: ", str(fault))
    assert found is not None, fault
    return path.read_text(encoding="utf-8").splitlines()[int(found[1] or 1) - 1].strip()
