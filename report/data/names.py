"""Reviewed names: the id of each GPU, processor and model, by every spelling in data/published and data/reference.

A spelling has one id everywhere, or one for each source that uses it for something else. Ids are decided by hand, never
by a pattern: names that differ in memory, form or suffix are different products.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from contract.errors import StudyError
from report import ROOT

NAMES = ROOT / "data" / "names"
# Kinds of things with names, each with its column of ids: the tables are `<kind>s.csv` and `<kind>_names.csv`.
KINDS = {"accelerator": "accelerator_id", "cpu": "cpu_id", "model": "model_id"}
# Subjects of data/reference, which are what an entry's id names before its last dot.
SUBJECTS = "reference_subjects.csv"

Rows = tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Names:
    """Things of one kind, and their spellings. ids: the id by spelling and source, with source '' for all sources."""

    things: Rows
    spellings: Rows
    ids: Mapping[tuple[str, str], str]

    def find(self, name: str, source: str = "") -> str:
        """Return the id of a spelling in a source; '' if it is in no table."""
        return self.ids.get((name, source)) or self.ids.get((name, ""), "")


def read_rows(path: Path) -> Rows:
    """Read a CSV file as rows of text. Raises StudyError if it is missing or a row has too many or too few fields."""
    if not path.is_file():
        raise StudyError(f"{path}: no such file")
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file, strict=True)
        rows = []
        for row in table:
            if None in row or None in row.values():
                raise StudyError(f"{path}, line {table.line_num}: must have {len(table.fieldnames or ())} fields")
            rows.append(row)
    return tuple(rows)


@cache
def read_names(kind: str, folder: Path = NAMES) -> Names:
    """Read the things of a kind in KINDS and their spellings; none if the folder is missing.

    Raises StudyError if an id or a spelling occurs twice, or if a spelling has an id that is not declared.
    """
    column, things_path, names_path = KINDS[kind], folder / f"{kind}s.csv", folder / f"{kind}_names.csv"
    if not folder.is_dir():
        return Names((), (), {})
    things, spellings = read_rows(things_path), read_rows(names_path)
    known: set[str] = set()
    for line, row in enumerate(things, 2):
        if row[column] in known:
            raise StudyError(f"{things_path}, line {line}: the id {row[column]!r} is used twice")
        known.add(row[column])
    ids: dict[tuple[str, str], str] = {}
    for line, row in enumerate(spellings, 2):
        key = row["name_as_printed"], row["source"]
        if row[column] not in known:
            raise StudyError(
                f"{names_path}, line {line}: {key[0]!r}: the id {row[column]!r} is not in {things_path.name}"
            )
        if key in ids:
            raise StudyError(f"{names_path}, line {line}: the name {key[0]!r} is listed twice")
        ids[key] = row[column]
    return Names(things, spellings, ids)


@cache
def read_subjects(folder: Path = NAMES) -> Mapping[str, Mapping[str, str]]:
    """Return the kind, id and count of each subject in data/reference, by subject."""
    return {row["subject"]: row for row in read_rows(folder / SUBJECTS)} if folder.is_dir() else {}
