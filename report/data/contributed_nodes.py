"""Nodes that were handed in: how they are put beside the others, and how they are told from those that the project
measured itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

from contract.files import parse_json, read_regular, write_json
from contract.node import A_TIME, fields, utc
from contract.node_pack import Pack
from contract.schema import check

SIDECAR = "contributed.json"
# Where a node lies until it is whole: one folder deeper than nodes are looked for.
_ADDING = ".adding-"
_MOST_BYTES = 10_000
_SCHEMA = fields(
    "schema pack_sha256 added_utc",
    schema={"const": 1},
    pack_sha256={"type": "string", "pattern": "^[0-9a-f]{64}$"},
    added_utc=A_TIME,
)


def pack_of(folder: Path) -> str:
    """SHA-256 of the pack that the node in a folder was handed in as; '' if it was not. Raises StudyError if the file
    that says so cannot be read."""
    path = folder / SIDECAR
    if not path.exists() and not path.is_symlink():
        return ""
    told = parse_json(read_regular(path, _MOST_BYTES), path)
    check(told, _SCHEMA, path)
    return str(told["pack_sha256"])


def lay_out(pack: Pack, folder: Path) -> Path:
    """Write the node of a pack into a folder, which is made; give the folder. Raises OSError."""
    pack.write(folder)
    write_json(folder / SIDECAR, {"schema": 1, "pack_sha256": pack.digest, "added_utc": utc()})
    return folder


def place(pack: Pack, nodes: Path, like: Iterable[str]) -> Path:
    """Put the node of a pack beside the others, whole or not at all; give its folder. Nothing there is written over.

    like: names of the folders that hold rounds under the same id. It comes after them, as they keep the id. What a
    run that was killed left is removed. Raises OSError.
    """
    nodes.mkdir(parents=True, exist_ok=True)
    for left in nodes.glob(f"{_ADDING}*"):
        shutil.rmtree(left, ignore_errors=True)
    target = nodes / _free_name(str(pack.record["id"]), nodes, max(like, default=""))
    with TemporaryDirectory(prefix=_ADDING, dir=nodes) as scratch:
        lay_out(pack, Path(scratch) / target.name).rename(target)
    return target


def _free_name(written: str, nodes: Path, last: str) -> str:
    numbered = (f"{written}.{number}" for number in range(2, 10))
    names = chain([written], numbered, (f"{last or written}.{number}" for number in count(2)))
    return next(name for name in names if name > last and not os.path.lexists(nodes / name))
