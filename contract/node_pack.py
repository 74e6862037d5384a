"""Node packs: one zip file with a node's record, rounds, and a manifest with their digests.

Members are stored uncompressed, because Parquet is compressed already, and so that a small pack cannot expand to huge
files when it is read. The same files always make the same bytes. The reader refuses a pack with any other bytes, such
as gaps, trailing data or overlapping members.

Source for the zip format: PKWARE's APPNOTE.TXT, section 4.3.6.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import node, sample_table
from contract.attempts import MOST_ATTEMPTS
from contract.errors import StudyError
from contract.files import parse_json, read_plain_file
from contract.node import PARTIAL, RECORD, integer_schema, object_schema, text_schema
from contract.schema import check_document, escape_line, truncate

VERSION, MANIFEST = 1, "manifest.json"
# These limits are about thirty times the bytes and forty times the files in the largest published node.
MOST_BYTES, MOST_FILES = 2**27, 5000
ROUND = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}\.[a-z]{1,20}(-[0-9]{1,4})?\.[1-9][0-9]{0,6}(?P<repeat>-[2-9])?\.parquet")
# Columns of the sample table that make a round file's name.
ROUND_COLUMNS = ["experiment", "device", "round", "attempt"]
_RECORDS = (RECORD, PARTIAL)
_ALLOWED = f"only {RECORD} or {PARTIAL} and <experiment>.<device>.<round>[-<attempt>].parquet belong in a pack"
_AGAIN = "pack the node again with `python -m experiments pack`"

SCHEMA = object_schema(
    "pack node kind commit preset files",
    pack={"const": VERSION},
    node=text_schema(),
    kind=text_schema(),
    commit=text_schema(),
    preset=text_schema(1000),
    files={
        "type": "object",
        "propertyNames": text_schema(),
        "maxProperties": MOST_FILES,
        "additionalProperties": object_schema(
            "bytes sha256", bytes=integer_schema(MOST_BYTES), sha256={"type": "string", "pattern": "^[0-9a-f]{64}$"}
        ),
    },
)

# Zip end record without a comment: signature, disk numbers, entry counts, directory size and offset.
_END = struct.Struct("<4s4H2LH")
_END_MARK, _START_MARK, _ZIP64_MARK = b"PK\5\6", b"PK\3\4", b"PK\6\7"
_ZIP64_BYTES = 20
# Maximum bytes per directory entry: 46 fixed bytes, and the member's name.
_ENTRY_BYTES = 46 + 124


@dataclass(frozen=True)
class Pack:
    """Contents of a pack.

    files: contents by file name, with the record but without the manifest. record, manifest: their parsed contents.
    digest: SHA-256 of the whole pack.
    """

    files: Mapping[str, bytes]
    record: Mapping[str, Any]
    manifest: Mapping[str, Any]
    digest: str

    def write(self, folder: Path) -> None:
        """Write the files into a new folder. Raises OSError, also if the folder exists."""
        folder.mkdir(parents=True)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


def round_file_name(experiment: str, device: str, number: int, attempt: int = 1) -> str:
    """Return the file name for a round, such as 'gemm.cuda-0.2.parquet', or for its second attempt, with '2-2'."""
    suffix = f"-{attempt}" if attempt > 1 else ""
    return f"{experiment}.{device.replace(':', '-')}.{number}{suffix}.parquet"


def parse_round_file(name: str) -> tuple[str, str, int, int] | None:
    """Return the experiment, device, round and attempt in a round's file name; None if it is not one."""
    if ROUND.fullmatch(name) is None:
        return None
    experiment, device, number = name.removesuffix(".parquet").split(".")
    round_no, _, attempt = number.partition("-")
    return experiment, device.replace("-", ":"), int(round_no), int(attempt or 1)


def is_repeat(name: str) -> bool:
    """Tell if a file name is that of a further attempt at a round."""
    match = ROUND.fullmatch(name)
    return match is not None and match["repeat"] is not None


def repeat_files(first: Path) -> list[Path]:
    """List the existing files with further attempts at a round. first: path to the file with its first attempt."""
    paths = [first.with_name(f"{first.stem}-{attempt}.parquet") for attempt in range(2, MOST_ATTEMPTS + 1)]
    return [path for path in paths if path.exists()]


def check_round(path: Path) -> None:
    """Check that a file holds samples of exactly the round that its name states. Raises StudyError."""
    contents = sample_table.load_samples(path)[0].select(ROUND_COLUMNS)
    names = {round_file_name(*row) for row in contents.to_pandas().drop_duplicates().itertuples(index=False, name=None)}
    if names != {path.name}:
        raise StudyError(
            f"{path}: holds {truncate(', '.join(sorted(names)) or 'no round')}, which contradicts its file name"
        )


def make_manifest(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Make the manifest for these files. Raises StudyError unless exactly one of them is a valid node record."""
    records = [name for name in _RECORDS if name in files]
    if len(records) != 1:
        raise StudyError(f"holds {' and '.join(records) or 'no record of a node'}: {_ALLOWED}")
    record = node.parse_node(files[records[0]], records[0])
    return {
        "pack": VERSION,
        "node": record["id"],
        "kind": record["kind"],
        "commit": record["study"]["commit"],
        "preset": str(record.get("options", {}).get("preset", "")),
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(files.items())
        },
    }


def make_archive(files: Mapping[str, bytes]) -> bytes:
    """Return a pack's bytes, which depend only on the files. Raises StudyError if a file does not belong in a pack."""
    _check_names(files)
    for name, data in files.items():
        _check_size(name, len(data))
    manifest = json.dumps(make_manifest(files), indent=1, ensure_ascii=False).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in ((MANIFEST, manifest), *sorted(files.items())):
            # Set fixed values in the fields that would otherwise depend on the system or the Python version.
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system, member.create_version, member.extract_version = 3, 20, 20
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, data)
    whole = buffer.getvalue()
    if len(whole) > MOST_BYTES:
        raise StudyError(f"is {len(whole):,} bytes in all (limit for a pack: {MOST_BYTES:,})")
    return whole


def read_pack(path: Path) -> Pack:
    """Read a pack, check its structure, names, sizes and digests, and compare its manifest with the node record.

    Does not check the rounds' contents. Raises StudyError with a one-line message if the file is not regular, or if its
    bytes differ from the bytes that `make_archive` makes.
    """
    where = escape_line(str(path))
    try:
        data = read_plain_file(path, MOST_BYTES)
    except StudyError as fault:
        raise StudyError(escape_line(str(fault))) from None
    try:
        return _parse_pack(data)
    except StudyError as fault:
        raise StudyError(f"{where}: {escape_line(str(fault))}") from None
    except Exception as fault:
        # zipfile may raise any exception on corrupt data.
        raise StudyError(
            f"{where}: cannot be read as a zip file ({type(fault).__name__}: {escape_line(truncate(fault))}): {_AGAIN}"
        ) from None


def _parse_pack(data: bytes) -> Pack:
    files = _read_members(data)
    if MANIFEST not in files:
        raise StudyError(f"holds no {MANIFEST}: it is not a pack. Make one with `python -m experiments pack`")
    manifest = parse_json(files.pop(MANIFEST), MANIFEST)
    version = manifest.get("pack") if isinstance(manifest, dict) else None
    if version != VERSION:
        raise StudyError(
            f"{MANIFEST}: a pack of version {truncate(repr(version), 40)}, this program reads version {VERSION}: "
            "use the matching release, or pack the node again"
        )
    check_document(manifest, SCHEMA, MANIFEST)
    _check_names(manifest["files"])
    for name in manifest["files"]:
        if name not in files:
            raise StudyError(f"{name}: is in the manifest but not in the pack: {_AGAIN}")
    for name, contents in files.items():
        if name not in manifest["files"]:
            raise StudyError(f"{name}: is in the pack but not in its manifest: {_AGAIN}")
        entry = manifest["files"][name]
        if entry["bytes"] != len(contents) or entry["sha256"] != hashlib.sha256(contents).hexdigest():
            raise StudyError(f"{name}: differs from the size or digest in the manifest: {_AGAIN}")
    expected = make_manifest(files)
    for key, value in expected.items():
        if manifest[key] != value:
            raise StudyError(f"{MANIFEST}: says {key} {manifest[key]!r}, and the node's record says {value!r}")
    if not any(map(ROUND.fullmatch, files)):
        raise StudyError("contains no round: there is nothing to add")
    if make_archive(files) != data:
        raise StudyError(f"contains extra bytes, or files in a different order or form than a pack: {_AGAIN}")
    record = next(node.parse_node(files[name], name) for name in _RECORDS if name in files)
    return Pack(files, record, manifest, hashlib.sha256(data).hexdigest())


def _read_members(data: bytes) -> dict[str, bytes]:
    """Read a zip file's members by name, within size limits. Raises StudyError, and any error from zipfile."""
    if data[: len(_START_MARK)] != _START_MARK:
        raise StudyError("is not a pack, which is a zip file: make one with `python -m experiments pack`")
    if data[-_END.size :][: len(_END_MARK)] != _END_MARK or len(data) < _END.size:
        raise StudyError("has no valid zip ending: it is incomplete, or has extra bytes. Send it again")
    _, _, _, _, entries, directory, _, _ = _END.unpack(data[-_END.size :])
    if data[-_END.size - _ZIP64_BYTES :].startswith(_ZIP64_MARK):
        raise StudyError("is a zip64 archive: a pack never is")
    # Check the directory's size before zipfile reads the directory, which takes ten times this size in memory.
    if entries > MOST_FILES + 1 or directory > (MOST_FILES + 1) * _ENTRY_BYTES:
        raise StudyError(
            f"claims {entries:,} files in a directory of {directory:,} bytes (limit: {MOST_FILES:,} files)"
        )
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        _check_names(member.orig_filename for member in members)
        for member in members:
            _check_member(member)
        if sum(member.file_size for member in members) > len(data):
            raise StudyError("its files take more bytes than the pack: they overlap")
        for member in members:
            files[member.filename] = archive.read(member)
    return files


def _check_names(names: Iterable[str]) -> None:
    """Raise StudyError for invalid, duplicate or too many names."""
    seen: set[str] = set()
    for name in names:
        shown = escape_line(truncate(repr(name), 100))
        if name not in (MANIFEST, *_RECORDS) and not ROUND.fullmatch(name):
            raise StudyError(f"holds {shown}: {_ALLOWED}")
        if name in seen:
            raise StudyError(f"holds {shown} twice")
        seen.add(name)
    if len(seen) > MOST_FILES + 1:
        raise StudyError(f"contains {len(seen):,} files (limit: {MOST_FILES:,})")


def _check_member(member: zipfile.ZipInfo) -> None:
    name, kind = member.filename, stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise StudyError(f"{name}: is a link or a folder: a pack contains regular files only")
    if member.flag_bits & 0x1:
        raise StudyError(f"{name}: is encrypted: files in a pack never are")
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise StudyError(f"{name}: is compressed: files in a pack never are")
    _check_size(name, member.file_size)


def _check_size(name: str, size: int) -> None:
    most = sample_table.MOST_BYTES if ROUND.fullmatch(name) else node.MOST_BYTES
    if size > most:
        raise StudyError(f"{name}: has {size:,} bytes (limit: {most:,})")
