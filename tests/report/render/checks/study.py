"""What is linted: the verdicts, the data and reference they rest on, the page with its figures, and the program."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import StudyError
from contract.files import read_yaml
from report import PACKAGE
from report.data.gathered import read_summary
from report.data.reference import REFERENCE, read_reference
from report.model import JUDGED, read_verdicts

_SETTINGS = json.loads((PACKAGE / "schemas" / "quarto.schema.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Fault:
    """One violation: which check, where, what is wrong, and what to do about it."""

    check: str
    where: str
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.check}: {self.where}: {self.what}. {self.do}"


@dataclass(frozen=True)
class Study:
    """The files of a study, each read when a check asks for it. Raises StudyError for one that cannot be read."""

    verdicts: Path
    data: Path
    report: Path
    reference: Path = REFERENCE
    package: Path = PACKAGE

    @cached_property
    def document(self) -> dict[str, Any]:
        return read_verdicts(self.verdicts)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """The summary's rows by their number."""
        table = read_summary(self.data)
        return table.set_index("row", drop=False) if "row" in table else table

    @cached_property
    def entries(self) -> Mapping[str, Mapping[str, Any]]:
        return read_reference(self.reference)

    @cached_property
    def markdown(self) -> str:
        """The page as it is handed to the renderers."""
        return _text(self.report / "index.qmd")

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """How Quarto is to render it. Raises StudyError for what is not in the schema."""
        settings: Mapping[str, Any] = read_yaml(self.report / "_quarto.yml", _SETTINGS)
        return settings

    @cached_property
    def source(self) -> str:
        """The page as markdown, signs that markdown would take for markup freed of their backslashes."""
        return re.sub(r"\\([^\w\s])", r"\1", self.markdown)

    @cached_property
    def page(self) -> str:
        return _text(self.report / "index.html")

    @cached_property
    def figures(self) -> Mapping[str, str]:
        """Every figure of the page: its SVG by name. Raises StudyError if the page shows one that is not there."""
        names = dict.fromkeys(re.findall(r"\]\(figures/([\w-]+)\.svg\)", self.source))
        return {name: _text(self.report / "figures" / f"{name}.svg") for name in names}

    def parts(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]]:
        """Each part that was weighed: where, its verdict, the part, its cells."""
        for verdict in self.document["verdicts"]:
            for part in verdict["parts"]:
                if part["outcome"] in JUDGED:
                    where = f"claim {verdict['id']}" + (f", {part['name']}" if part["name"] else "")
                    yield where, verdict, part, [one for one in verdict["cells"] if one["part"] == part["name"]]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StudyError(f"{path}: no such file: write it with `python -m report render`") from None
    except (OSError, UnicodeDecodeError) as broken:
        raise StudyError(f"{path}: cannot be read ({broken}): render again") from None


@dataclass(frozen=True)
class Check:
    """A named check. says: what holds where it finds nothing. find: gives (where, what, what to do) for each fault."""

    name: str
    says: str
    find: Callable[[Study], Iterable[tuple[str, str, str]]]

    def faults(self, study: Study) -> list[Fault]:
        return [Fault(self.name, *found) for found in self.find(study)]


CHECKS: dict[str, Check] = {}


def check(name: str, says: str) -> Callable[[Callable[[Study], Iterable[tuple[str, str, str]]]], Check]:
    """Register a check under its name. Raises ValueError if the name is taken."""
    if name in CHECKS:
        raise ValueError(f"two checks are called {name!r}")

    def register(find: Callable[[Study], Iterable[tuple[str, str, str]]]) -> Check:
        CHECKS[name] = Check(name, says, find)
        return CHECKS[name]

    return register
