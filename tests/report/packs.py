"""Helpers that build zip archives from any members, and node packs with a true or a false manifest."""

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
    """Build a zip file from (name, content) pairs. kind: file type that all members have, such as stat.S_IFREG."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Tests repeat names on purpose; zipfile warns about that.
        for name, data in members:
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system, member.compress_type = 3, method
            member.external_attr = (kind | 0o644) << 16
            target.writestr(member, data)
    return buffer.getvalue()


def file_entries(files: Mapping[str, bytes], name: str, data: bytes = b"", **lies: Any) -> dict[str, Any]:
    """Return the manifest's entries for `files`, with a changed or added entry for `name`.

    data: content that the entry for `name` describes; if `data` is empty, an existing entry is kept.
    lies: false values for keys in this entry.
    """
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    entries: dict[str, Any] = make_manifest(files)["files"]
    return {**entries, name: {**(entry if data else entries.get(name, entry)), **lies}}


def members(files: Mapping[str, bytes], /, **lies: Any) -> list[tuple[str, bytes]]:
    """Return the members that make a pack: a manifest and `files`. lies: false values for the manifest's keys."""
    manifest = {**make_manifest(files), **lies}
    return [(MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode()), *sorted(files.items())]
