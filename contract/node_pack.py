"""Node packs: one zip file with a node's record, rounds, and a manifest with their digests.

Members are stored uncompressed, because Parquet is compressed already. The same files always make the same bytes. On
its way to the reader, a pack may be unpacked by a browser, or zipped again in another form. The reader accepts any form
that holds exactly the files and digests in the manifest, and limits the bytes that it reads from a member.

Source for the zip format: PKWARE's APPNOTE.TXT, section 4.3.6.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import re
import stat
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
_REPACK = "unpack it, and pack the node's folder again with `python -m experiments pack FOLDER`"
_SPLIT = (
    "spread the rounds over several folders, each with the record and with one round that all share, pack each folder "
    "with `python -m experiments pack FOLDER`, and hand in all packs: `add` joins their rounds"
)

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

_START_MARK, _ENTRY_MARK, _END_MARK = b"PK\3\4", b"PK\1\2", b"PK\5\6"
# Bytes in a zip file's end record, whose last two count the bytes in the comment behind it.
_END_BYTES = 22
# Names that systems add to a folder or an archive. MOST_ADDED: most entries with such names, and of folders.
_ADDED = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini|__MACOSX", re.IGNORECASE)
MOST_ADDED = 2 * MOST_FILES
# Most zip files inside each other.
_MOST_NESTED = 3
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class Pack:
    """Contents of a pack.

    files: contents by file name, with the record but without the manifest. record, manifest: their parsed contents.
    digest: SHA-256 of the bytes that `make_archive` makes from the files, in any form of the pack.
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
        _check_size(name, len(data), _most_bytes(name))
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
        raise StudyError(f"is {len(whole):,} bytes in all (limit for a pack: {MOST_BYTES:,}): {_SPLIT}")
    return whole


def read_pack(path: Path) -> Pack:
    """Read a pack, check its names, sizes and digests, and compare its manifest with the node record.

    path: a zip file in any form, or a folder with its files. Does not check the rounds' contents. Raises StudyError
    with a one-line message, also for a link or a device.
    """
    where = escape_line(str(path))
    try:
        if path.is_dir() and not path.is_symlink():
            return _parse_pack(_read_folder(path))
        data = read_plain_file(path, MOST_BYTES)
    except StudyError as fault:
        size = path.lstat().st_size if path.is_file() else 0
        advice = f": {_SPLIT}" if size > MOST_BYTES else ""
        raise StudyError(f"{where}: {escape_line(str(fault).removeprefix(f'{path}: '))}{advice}") from None
    try:
        return _parse_pack(_read_members(data))
    except StudyError as fault:
        raise StudyError(f"{where}: {escape_line(str(fault))}") from None
    except Exception as fault:
        # zipfile may raise any exception on corrupt data.
        raise StudyError(
            f"{where}: cannot be read as a zip file ({type(fault).__name__}: {escape_line(truncate(fault))}): {_AGAIN}"
        ) from None


def _parse_pack(files: dict[str, bytes]) -> Pack:
    if MANIFEST not in files:
        raise StudyError(f"holds no {MANIFEST}: it is not a pack. Make one with `python -m experiments pack FOLDER`")
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
    record = next(node.parse_node(files[name], name) for name in _RECORDS if name in files)
    return Pack(files, record, manifest, hashlib.sha256(make_archive(files)).hexdigest())


def _read_folder(folder: Path) -> dict[str, bytes]:
    """Read the files of an unpacked pack by name, within size limits. Raises StudyError."""
    try:
        paths = [path for path in sorted(folder.iterdir()) if not _ADDED.fullmatch(path.name)]
    except OSError as refusal:
        raise StudyError(f"cannot be opened ({refusal.strerror})") from None
    if len(paths) == 1 and paths[0].is_dir() and not paths[0].is_symlink():
        return _read_folder(paths[0])
    _check_names(path.name for path in paths)
    files: dict[str, bytes] = {}
    total = 0
    for path in paths:
        files[path.name] = read_plain_file(path, _most_bytes(path.name))
        total = _add_size(total, files[path.name])
    return files


def _read_members(data: bytes, level: int = 1) -> dict[str, bytes]:
    """Read a zip file's members by name, within size limits. Raises StudyError, and any error from zipfile.

    A folder that holds all members is left out of their names. If the only member is a zip file, its members are read.
    """
    if data[: len(_START_MARK)] != _START_MARK:
        raise StudyError("is not a pack, which is a zip file: make one with `python -m experiments pack`")
    # Limit the directory's entries before zipfile reads them, which takes ten times their size in memory.
    if (entries := data.count(_ENTRY_MARK)) > MOST_FILES + 1 + MOST_ADDED:
        raise StudyError(f"holds {entries:,} files (limit: {MOST_FILES:,})")
    if (end := data.rfind(_END_MARK)) < 0:
        raise StudyError("has no zip ending: it was cut off on its way. Send it again")
    # Drop the zip file's comment, and bytes that a gateway appended.
    data = data[: end + _END_BYTES - 2] + bytes(2)
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        paths = {member: path for member in archive.infolist() if (path := _plain_path(member))}
        folder = posixpath.commonpath([posixpath.dirname(path) for path in paths.values()] or [""])
        names = {member: path.removeprefix(folder).removeprefix("/") for member, path in paths.items()}
        inner = next(iter(names)) if len(names) == 1 else None
        if inner and names[inner].lower().endswith(".zip"):
            if level == _MOST_NESTED:
                raise StudyError(f"holds more than {_MOST_NESTED} zip files inside each other: unpack it")
            return _read_members(_read_member(archive, inner, names[inner], MOST_BYTES), level + 1)
        _check_names(names.values())
        total = 0
        for member, name in names.items():
            files[name] = _read_member(archive, member, name, _most_bytes(name))
            total = _add_size(total, files[name])
    return files


def _plain_path(member: zipfile.ZipInfo) -> str:
    """Return a member's path; return '' for a folder and for files that systems add.

    Raises StudyError for a link, a device, and a path that leads out of the pack.
    """
    # zipfile cuts off `filename` at a zero byte.
    path = member.orig_filename.replace("\\", "/")
    parts = [part for part in path.removesuffix("/").split("/") if part != "."]
    if any(part in ("", "..") or ":" in part for part in parts) or not parts:
        raise StudyError(f"holds {_show_name(member.orig_filename)}, which leads out of the pack: {_ALLOWED}")
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise StudyError(f"{parts[-1]}: is a link or a device: a pack contains regular files only")
    is_folder = path.endswith("/") and not member.file_size
    return "" if is_folder or any(map(_ADDED.fullmatch, parts)) else "/".join(parts)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, most: int) -> bytes:
    """Read a member with at most `most` bytes. Raises StudyError, and any error from zipfile."""
    if member.flag_bits & 0x1:
        raise StudyError(f"{name}: is encrypted: {_REPACK}")
    if member.compress_type not in _METHODS:
        raise StudyError(f"{name}: is compressed by method {member.compress_type}, which packs never use: {_REPACK}")
    with archive.open(member) as file:
        # Read one byte more than the limit, and trust no size that the zip file states.
        data = file.read(most + 1)
    _check_size(name, max(member.file_size, len(data)), most)
    return data


def _check_names(names: Iterable[str]) -> None:
    """Raise StudyError for invalid, duplicate or too many names."""
    seen: set[str] = set()
    for name in names:
        if name not in (MANIFEST, *_RECORDS) and not ROUND.fullmatch(name):
            raise StudyError(f"holds {_show_name(name)}: {_ALLOWED}; {_REPACK}")
        if name in seen:
            raise StudyError(f"holds {_show_name(name)} twice: {_REPACK}")
        seen.add(name)
    if len(seen) > MOST_FILES + 1:
        raise StudyError(f"contains {len(seen):,} files (limit: {MOST_FILES:,}): {_SPLIT}")


def _show_name(name: str) -> str:
    return escape_line(truncate(repr(name), 100))


def _most_bytes(name: str) -> int:
    return sample_table.MOST_BYTES if ROUND.fullmatch(name) else node.MOST_BYTES


def _check_size(name: str, size: int, most: int) -> None:
    if size > most:
        raise StudyError(f"{name}: has {size:,} bytes (limit: {most:,})")


def _add_size(total: int, contents: bytes) -> int:
    """Return the bytes that files take together. Raises StudyError if they exceed MOST_BYTES."""
    if (total := total + len(contents)) > MOST_BYTES:
        raise StudyError(f"its files take more than {MOST_BYTES:,} bytes (limit for a pack): {_SPLIT}")
    return total
