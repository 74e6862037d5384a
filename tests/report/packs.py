"""Packs as somebody may send them: archives with any members, and packs whose manifest fits whatever they hold."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from contract.node_pack import MANIFEST, make_manifest


def files_of(folder: Path) -> dict[str, bytes]:
    """The record and the rounds in a node's folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def archive(members: Iterable[tuple[str, bytes]], kind: int = stat.S_IFREG, method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file with these members, whatever they are. kind: of file that each says to be, as in a mode."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in members:
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system, member.compress_type = 3, method
            member.external_attr = (kind | 0o644) << 16
            target.writestr(member, data)
    return made.getvalue()


def told(of: Mapping[str, bytes], name: str, data: bytes = b"", **lies: Any) -> dict[str, Any]:
    """What a manifest says of the files, and of one more or another with these bytes. lies: of that one."""
    true = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    said: dict[str, Any] = make_manifest(of)["files"]
    return {**said, name: {**(true if data else said.get(name, true)), **lies}}


def members(of: Mapping[str, bytes], /, **lies: Any) -> list[tuple[str, bytes]]:
    """The members of a pack of these files. lies: keys of its manifest that say something else."""
    manifest = {**make_manifest(of), **lies}
    return [(MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode()), *sorted(of.items())]
