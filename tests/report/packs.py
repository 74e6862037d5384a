"""Build zip archives with arbitrary members, and packs with a matching manifest."""

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


def node_files(folder: Path) -> dict[str, bytes]:
    """Read the record and the rounds from a node folder, by file name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def make_zip(members: Iterable[tuple[str, bytes]], kind: int = stat.S_IFREG, method: int = zipfile.ZIP_STORED) -> bytes:
    """Build a zip file from any members. kind: file type in each member's mode (stat.S_IF...)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names
        for name, data in members:
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system, member.compress_type = 3, method
            member.external_attr = (kind | 0o644) << 16
            target.writestr(member, data)
    return buffer.getvalue()


def file_entries(files: Mapping[str, bytes], name: str, data: bytes = b"", **lies: Any) -> dict[str, Any]:
    """Return the manifest's file entries, in which `data` and `lies` replace the entry for `name`."""
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    entries: dict[str, Any] = make_manifest(files)["files"]
    return {**entries, name: {**(entry if data else entries.get(name, entry)), **lies}}


def members(files: Mapping[str, bytes], /, **lies: Any) -> list[tuple[str, bytes]]:
    """Return the pack members for these files. lies: false values for manifest keys."""
    manifest = {**make_manifest(files), **lies}
    return [(MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode()), *sorted(files.items())]
