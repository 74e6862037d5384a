"""Add contributed nodes to the published nodes, and mark them as not measured by the project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

from contract.files import parse_json, read_plain_file, write_json
from contract.node import A_TIME, object_schema, utc_time
from contract.node_pack import Pack
from contract.schema import check_document

SIDECAR = "contributed.json"
# Prefix for staging folders. A node is first written into a staging folder's subfolder. The search for nodes does not
# reach this depth, so it never reads an incomplete node.
_ADDING = ".adding-"
_MOST_BYTES = 10_000
_SCHEMA = object_schema(
    "schema pack_sha256 added_utc",
    schema={"const": 1},
    pack_sha256={"type": "string", "pattern": "^[0-9a-f]{64}$"},
    added_utc=A_TIME,
)


def read_pack_digest(folder: Path) -> str:
    """Return the SHA-256 of a contributed node's pack, or '' if the node was not contributed.

    Raises StudyError if the file SIDECAR cannot be read.
    """
    path = folder / SIDECAR
    if not path.exists() and not path.is_symlink():
        return ""
    content = parse_json(read_plain_file(path, _MOST_BYTES), path)
    check_document(content, _SCHEMA, path)
    return str(content["pack_sha256"])


def write_node_folder(pack: Pack, folder: Path) -> Path:
    """Write a pack's node into the new folder `folder`, and return `folder`. Raises OSError."""
    pack.write(folder)
    write_json(folder / SIDECAR, {"schema": 1, "pack_sha256": pack.digest, "added_utc": utc_time()})
    return folder


def add_node_folder(pack: Pack, nodes: Path, like: Iterable[str]) -> Path:
    """Add a pack's node to the folder `nodes` atomically, without overwriting anything; return the node's folder.

    like: names of folders whose rounds have the pack's node id. The new folder's name sorts after these names, to let
    the existing nodes keep their ids. Removes staging folders that killed runs left. Raises OSError.
    """
    nodes.mkdir(parents=True, exist_ok=True)
    for stale in nodes.glob(f"{_ADDING}*"):
        shutil.rmtree(stale, ignore_errors=True)
    target = nodes / _free_name(str(pack.record["id"]), nodes, max(like, default=""))
    with TemporaryDirectory(prefix=_ADDING, dir=nodes) as scratch:
        write_node_folder(pack, Path(scratch) / target.name).rename(target)
    return target


def _free_name(node_id: str, nodes: Path, last: str) -> str:
    """Return the first unused folder name for a node, among the names that sort after `last`."""
    numbered = (f"{node_id}.{number}" for number in range(2, 10))
    names = chain([node_id], numbered, (f"{last or node_id}.{number}" for number in count(2)))
    return next(name for name in names if name > last and not os.path.lexists(nodes / name))
