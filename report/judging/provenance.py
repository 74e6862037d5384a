"""What verdicts were made from, as one digest: equal only if data, claims, published figures and code are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from report import PACKAGE, ROOT

PACKAGES = (PACKAGE, ROOT / "contract")
# What gather wrote that cells are computed from.
TABLES = ("summary.parquet", "samples.parquet", "nodes.json")


def made_from(data: Path, claims: Path, reference: Path) -> str:
    """Digest of a gathered folder's tables, the claim files, the reference and this study's code.

    The names of folders are not in it: a copy has the same. Raises OSError if a table cannot be read.
    """
    digest = hashlib.sha256()
    for table in TABLES:
        _add(digest, [data / table], data)
    for folder in (claims, reference):
        _add(digest, folder.glob("*.yaml"), folder)
    for package in PACKAGES:
        _add(digest, package.rglob("*.py"), package)
    return digest.hexdigest()


def fresh(document: Mapping[str, Any] | None, data: Path, claims: Path, reference: Path) -> bool:
    """Whether verdicts were made from just this."""
    return document is not None and document.get("made_from") == made_from(data, claims, reference)


def _add(digest: Any, paths: Iterable[Path], root: Path) -> None:
    for path in sorted(paths):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
