"""Untrusted packs: `add` accepts only the files that `pack` writes, in any form, and refuses others in one line."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract import node_pack
from contract.errors import StudyError, run_command
from contract.node_pack import MANIFEST, make_archive, read_pack
from contract.sample_table import load_samples
from report.cli import main
from tests.report.lying_nodes import Rows, copy_node, speed_up
from tests.report.packs import file_entries, make_zip, members, node_files

ROUNDS = ("clock.cpu.5", "several-devices.cpu.1")
ROUND, OTHER = f"{ROUNDS[0]}.parquet", "gemm.cpu.1.parquet"
LOCAL, CENTRAL, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files from a valid node."""
    return node_files(copy_node(tmp_path_factory.mktemp("good") / "victim", ROUNDS))


@pytest.fixture(scope="module")
def good_pack(files: Mapping[str, bytes]) -> bytes:
    return make_archive(files)


@dataclass
class Inbox:
    """A folder for packs, with checks on the `add` command."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    def refusal(self, data: bytes | None = None, path: Path | None = None) -> str:
        """Return the error line for a refused pack, and check that nothing was written."""
        path = path or self.root / "in" / "a.zip"
        if data is not None:
            path.write_bytes(data)
        tree_before = sorted(self.root.rglob("*"))
        code = run_command(main, ["add", str(path), "--nodes", str(self.root / "data" / "nodes")])
        output = self.capsys.readouterr()
        assert code == 2 and output.out == ""
        (line,) = output.err.splitlines()
        assert line.startswith(f"error: {path}: ") and line.isprintable() and len(line) < 1500
        assert sorted(self.root.rglob("*")) == tree_before
        return line.removeprefix(f"error: {path}: ")


@pytest.fixture
def inbox(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Inbox:
    (tmp_path / "in").mkdir()
    (tmp_path / "data" / "nodes").mkdir(parents=True)
    return Inbox(tmp_path, capsys)


@pytest.mark.parametrize(
    "name",
    [
        "../evil.cpu.1.parquet", "/etc/passwd", "..\\evil.cpu.1.parquet", "C:evil.cpu.1.parquet", "a/../b.parquet",
        "folder/evil.cpu.1.parquet", "README.md", "contributed.json", ".clock.cpu.1.parquet", "clock.cpu.0.parquet",
        "Clock.cpu.1.parquet", "cl\u043eck.cpu.1.parquet", "\x1b[2J.cpu.1.parquet", "a\n.cpu.1.parquet", "",
        "\u202etekrap.1.upc.kcolc", f"{'x' * 300}.cpu.1.parquet", "clock.cpu.1.parquet\n",
    ],
)  # fmt: skip
def test_member_names_other_than_node_files_are_refused(inbox: Inbox, files: Mapping[str, bytes], name: str) -> None:
    line = inbox.refusal(make_zip([*members(files), (name, files[ROUND])]))
    assert line.startswith("holds '") and "belong in a pack" in line


def patch(data: bytes, mark: bytes, offset: int, value: bytes, which: int = 0) -> bytes:
    """Replace bytes at `offset` from a header's start. mark: the header's signature. which: member index."""
    place = -1
    for _ in range(which + 1):
        place = data.index(mark, place + 1)
    place += offset
    return data[:place] + value + data[place + len(value) :]


def patch_both(data: bytes, local_offset: int, central_offset: int, value: bytes) -> bytes:
    """Make the same change in the first member's local and central headers."""
    return patch(patch(data, LOCAL, local_offset, value), CENTRAL, central_offset, value)


def with_zip64(data: bytes) -> bytes:
    """Insert zip64 records before the end record."""
    body, end = data[:-22], data[-22:]
    entries, size, start = struct.unpack("<HLL", end[10:20])
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, size, start)
    return body + record + struct.pack("<4sLQL", b"PK\6\7", 0, len(body), 1) + end


def with_zip64_sizes(files: Mapping[str, bytes]) -> bytes:
    """Build a pack with zip64 sizes in its local headers."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, data in members(files):
            with target.open(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), "w", force_zip64=True) as member:
                member.write(data)
    return buffer.getvalue()


def with_nested(files: Mapping[str, bytes], data: bytes) -> bytes:
    """Build a pack whose manifest and directory name a member inside another member."""
    name = "clock.cpu.7.parquet"
    inner = make_zip([(name, data)])
    body, directory = inner[: inner.index(CENTRAL)], inner[inner.index(CENTRAL) : -22]
    outer = {**files, ROUND: body}
    outer_zip = make_zip(members(outer, files=file_entries(outer, name, data)))
    end, place = outer_zip[-22:], outer_zip.index(body)
    entry = directory[:42] + struct.pack("<L", place) + directory[46:]
    entries, size, start = struct.unpack("<HLL", end[10:20])
    counted = struct.pack("<2H2L", entries + 1, entries + 1, size + len(entry), start)
    return outer_zip[:-22] + entry + end[:8] + counted + end[20:]


def wrap_zip(data: bytes) -> bytes:
    return make_zip([("inner.ZIP", data)], method=zipfile.ZIP_DEFLATED)


def with_name(files: Mapping[str, bytes], name: str, old: bytes, new: bytes) -> bytes:
    """Build a pack with an extra member, and replace bytes in its name."""
    return make_zip([*members(files), (name, b"")]).replace(old, new)


UNREADABLE = "cannot be read as a zip file"
Archives = Callable[[bytes, Mapping[str, bytes]], bytes]
STRUCTURE: dict[str, tuple[Archives, str]] = {
    "no zip": (lambda good, files: files[ROUND], "is not a pack, which is a zip file"),
    "nothing": (lambda good, files: b"", "is not a pack, which is a zip file"),
    "no end": (lambda good, files: good[:-30], "was cut off on its way. Send it again"),
    "half an end": (lambda good, files: good[:-8], UNREADABLE),
    "something before": (lambda good, files: b"#!/bin/sh\n" + good, "is not a pack"),
    "bytes between": (lambda good, files: good.replace(CENTRAL, bytes(100) + CENTRAL, 1), UNREADABLE),
    "a bomb": (lambda good, files: make_zip([*members(files), ("bomb.cpu.1.parquet", bytes(2**24 + 1))],
                                            method=zipfile.ZIP_DEFLATED), "has 16,777,217 bytes (limit: 16,777,216)"),
    "many small bombs": (lambda good, files: make_zip([(f"bomb.cpu.{at}.parquet", bytes(2**24)) for at in range(1, 10)],
                                                      method=zipfile.ZIP_DEFLATED), "take more than 134,217,728 bytes"),
    "a false larger size": (lambda good, files: patch_both(good, 22, 24, struct.pack("<L", 2**21)), "has 2,097,152 by"),
    "two false larger sizes": (lambda good, files: patch_both(good, 18, 20, struct.pack("<2L", 10**6, 10**6)),
                               UNREADABLE),
    "a false small size": (lambda good, files: patch_both(good, 18, 20, struct.pack("<2L", 9, 9)), "cannot be read"),
    "encrypted": (lambda good, files: patch_both(good, 6, 8, b"\1\0"), "manifest.json: is encrypted: unpack it, and"),
    "an unknown method": (lambda good, files: patch_both(good, 8, 10, b"\x63\0"), "is compressed by method 99"),
    "an unusual method": (lambda good, files: make_zip(members(files), method=zipfile.ZIP_LZMA), "by method 14, which"),
    "a version to come": (lambda good, files: patch(good, CENTRAL, 6, b"\xff\0"), UNREADABLE),
    "names that differ": (lambda good, files: patch(good, LOCAL, 30, b"M"), UNREADABLE),
    "two members in one place": (lambda good, files: patch(good, CENTRAL, 42, bytes(4), which=1), UNREADABLE),
    "a place beyond the end": (lambda good, files: patch(good, CENTRAL, 42, b"\x7f" * 4, which=1), UNREADABLE),
    "a directory of 4 GB": (lambda good, files: patch(good, END, 12, b"\xff\xff\xff\xff"), UNREADABLE),
    "a million files": (lambda good, files: good[:-22] + CENTRAL * 10**6 + good[-22:], "holds 1,000,004 files"),
    "links": (lambda good, files: make_zip(members(files), stat.S_IFLNK), "is a link or a device"),
    "a name that is not UTF-8": (lambda good, files: with_name(files, "\u00e9.cpu.1.parquet", b"\xc3\xa9", b"\xff\xff"),
                                 UNREADABLE),
    "a name that ends early": (lambda good, files: with_name(files, "clock.cpu.7.parquet#", b"et#", b"et\0"),
                               "holds 'clock.cpu.7.parquet\\x00'"),
    "a member twice": (lambda good, files: make_zip([*members(files), (ROUND, files[ROUND])]),
                       f"holds '{ROUND}' twice"),
    "a member twice by another separator": (lambda good, files: make_zip(
        [*((f"a/{name}", data) for name, data in members(files)), (f"a\\{ROUND}", files[ROUND])]), "twice"),
    "two folders": (lambda good, files: make_zip(
        [*((f"a/{name}", data) for name, data in members(files)), (f"b/{OTHER}", b"")]), "holds 'a/manifest.json'"),
    "a way out of a folder": (lambda good, files: make_zip((f"a/../{name}", data) for name, data in members(files)),
                              "leads out of the pack"),
    "four zip files inside each other": (lambda good, files: wrap_zip(wrap_zip(wrap_zip(good))), "more than 3 zip"),
    "a zip file beside the pack": (lambda good, files: make_zip([*members(files), ("a.zip", good)]), "holds 'a.zip'"),
    "an endless member": (lambda good, files: wrap_zip(b"PK\3\4" + bytes(2**27)), "has 134,217,732 bytes (limit: 134,"),
}  # fmt: skip


@pytest.mark.parametrize("fault", STRUCTURE)
def test_archive_structure_other_than_packed_is_refused(
    inbox: Inbox, good_pack: bytes, files: Mapping[str, bytes], fault: str
) -> None:
    make, why = STRUCTURE[fault]
    pack = make(good_pack, files)
    assert pack != good_pack and why in inbox.refusal(pack)


def in_folder(files: Mapping[str, bytes], folder: str, *more: tuple[str, bytes], method: int = 0) -> bytes:
    """Zip a pack's files below `folder`, with `more` members."""
    return make_zip([*more, *((f"{folder}{name}", data) for name, data in members(files))], method=method)


def stream_zip(files: Mapping[str, bytes]) -> bytes:
    """Zip a pack's files as a program that cannot seek does: sizes follow each member."""

    class Pipe(io.RawIOBase):
        whole = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.whole += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in members(files):
            target.writestr(name, data)
    return pipe.whole


FORMS: dict[str, Archives] = {
    "compressed": lambda good, files: in_folder(files, "", method=zipfile.ZIP_DEFLATED),
    "another date": lambda good, files: patch_both(good, 10, 12, b"\1\1\1\1"),
    "other flags": lambda good, files: patch_both(good, 6, 8, b"\0\x08"),
    "members in another order": lambda good, files: make_zip(reversed(members(files))),
    "a folder": lambda good, files: in_folder(files, "my node (1)/", ("my node (1)/", b"")),
    "folders in folders": lambda good, files: in_folder(files, "results/nodes/victim/"),
    "dots": lambda good, files: in_folder(files, "./"),
    "backslashes": lambda good, files: in_folder(files, "nodes\\victim\\"),
    "a Mac": lambda good, files: in_folder(
        files, "victim/", ("victim/.DS_Store", b"x"), (f"__MACOSX/victim/._{ROUND}", b"x")),
    "Windows": lambda good, files: in_folder(files, "", ("Thumbs.db", b"x"), ("desktop.ini", b"x")),
    "zip64": lambda good, files: with_zip64(good),
    "zip64 in each header": lambda good, files: with_zip64_sizes(files),
    "a stream": lambda good, files: stream_zip(files),
    "a comment": lambda good, files: good[:-2] + b"\7\0scanned",
    "a false comment": lambda good, files: good[:-2] + b"\7\0x",
    "appended bytes": lambda good, files: good + b"-- \r\nscanned by a gateway" * 9999,
    "another archive before": lambda good, files: make_zip([("x", b"x" * 99)]) + good,
    "a zip in a zip": lambda good, files: wrap_zip(good),
    "three zips": lambda good, files: wrap_zip(wrap_zip(good)),
    "another number of files": lambda good, files: patch(good, END, 8, b"\1\0\1\0"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_pack_in_another_form_reads_as_the_same_pack(
    tmp_path: Path, good_pack: bytes, files: Mapping[str, bytes], form: str
) -> None:
    data = FORMS[form](good_pack, files)
    (tmp_path / "a.zip").write_bytes(data)
    pack = read_pack(tmp_path / "a.zip")
    assert data != good_pack
    assert pack.files == files and pack.digest == hashlib.sha256(good_pack).hexdigest()


def test_unpacked_pack_reads_as_the_same_pack(inbox: Inbox, good_pack: bytes, files: Mapping[str, bytes]) -> None:
    folder = inbox.root / "in" / "victim"
    with zipfile.ZipFile(io.BytesIO(good_pack)) as archive:
        archive.extractall(folder / "victim")
    (folder / ".DS_Store").touch()
    pack = read_pack(folder)
    assert pack.files == files and pack.digest == hashlib.sha256(good_pack).hexdigest()
    (folder / "victim" / ROUND).write_bytes(files[ROUND][:-1])
    assert f"{ROUND}: differs from the size" in inbox.refusal(path=folder)
    (folder / "victim" / ROUND).unlink()
    (folder / "victim" / ROUND).symlink_to("/dev/zero")
    assert f"{ROUND}: is not a readable regular file (a link)" in inbox.refusal(path=folder)
    (folder / "victim" / MANIFEST).unlink()
    (folder / "victim" / ROUND).unlink()
    assert "Make one with `python -m experiments pack FOLDER`" in inbox.refusal(path=folder)


CONTENTS: dict[str, tuple[Callable[[Mapping[str, bytes]], list[tuple[str, bytes]]], str]] = {
    "no manifest": (lambda files: members(files)[1:], "holds no manifest.json"),
    "a manifest that is no JSON": (lambda files: [(MANIFEST, b"{"), *members(files)[1:]], "json, line 1: not JSON"),
    "a manifest of nested lists": (lambda files: [(MANIFEST, b"[" * 9999), *members(files)[1:]], "levels deep"),
    "a manifest that is a list": (lambda files: [(MANIFEST, b"[]"), *members(files)[1:]], "a pack of version None"),
    "a version to come": (lambda files: members(files, pack=2), "a pack of version 2, this program reads version 1"),
    "an unknown key": (lambda files: members(files, **{"\x1b[2J": 1}), "unknown key"),
    "another node": (lambda files: members(files, node="honest"), "node 'honest', and the node's record says 'victim'"),
    "another kind": (lambda files: members(files, kind="honest"), "says kind 'honest'"),
    "another commit": (lambda files: members(files, commit="0"), "says commit '0'"),
    "another preset": (lambda files: members(files, preset="quick"), "says preset 'quick'"),
    "another digest": (lambda files: members(files, files=file_entries(files, ROUND, sha256="0" * 64)),
                       f"{ROUND}: differs from the size"),
    "another size": (lambda files: members(files, files=file_entries(files, ROUND, bytes=1)),
                     f"{ROUND}: differs from the size"),
    "a malformed digest": (lambda files: members(files, files=file_entries(files, ROUND, sha256="\x1b[2J")),
                           "files.clock"),
    "a missing file": (lambda files: members(files, files=file_entries(files, OTHER)), f"{OTHER}: is in the manifes"),
    "an unlisted file": (lambda files: [*members(files), (OTHER, files[ROUND])], f"{OTHER}: is in the pack"),
    "no record": (lambda files: [member for member in members(files) if member[0] != "node.json"],
                  "node.json: is in the manif"),
    "two records": (lambda files: [*members(files, files=file_entries(files, "node.partial.json", files["node.json"])),
                                   ("node.partial.json", files["node.json"])], "holds node.json and node.partial.json"),
    "no round": (lambda files: members({"node.json": files["node.json"]}), "contains no round"),
    "a record of many bytes": (lambda files: members({**files, "node.json": files["node.json"] + b" " * 2**20}),
                               "(limit: 1,048,576)"),
}  # fmt: skip


@pytest.mark.parametrize("fault", CONTENTS)
def test_contents_that_contradict_manifest_or_record_are_refused(
    inbox: Inbox, files: Mapping[str, bytes], fault: str
) -> None:
    make, why = CONTENTS[fault]
    assert why in inbox.refusal(make_zip(make(files)))


@pytest.mark.parametrize("key", ["id", "kind", "origin"])
def test_invalid_record_is_refused(inbox: Inbox, files: Mapping[str, bytes], key: str) -> None:
    record = json.loads(files["node.json"])
    spoilt = {**files, "node.json": json.dumps({**record, key: "\x1b[2J"}).encode()}
    listed = [(MANIFEST, members(files, files=file_entries(files, "node.json", spoilt["node.json"]))[0][1])]
    assert f"node.json: {key}: " in inbox.refusal(make_zip([*listed, *sorted(spoilt.items())]))


def test_limits_apply_before_reading(
    inbox: Inbox, good_pack: bytes, files: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = inbox.root / "in" / "large.zip"
    with path.open("wb") as file:
        file.truncate(2**40)
    line = inbox.refusal(path=path)
    assert "1,099,511,627,776 bytes (limit: 134,217,728)" in line and "hand in all packs: `add` joins" in line
    monkeypatch.setattr(node_pack, "MOST_FILES", 1)
    # The zip's end record states fewer entries than the file has, but all entries are counted.
    assert "contains 4 files (limit: 1)" in inbox.refusal(patch(good_pack, END, 8, b"\1\0\1\0"))
    monkeypatch.setattr(node_pack, "MOST_ADDED", 1)
    assert "holds 4 files (limit: 1)" in inbox.refusal(good_pack)


FILE_KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "is not a readable regular file"),
    "a link": (lambda path: path.symlink_to("/dev/zero"), "is not a readable regular file (a link)"),
    "a folder": (lambda path: path.mkdir(), "holds no manifest.json"),
    "a link to a folder": (lambda path: path.symlink_to("/usr"), "is not a readable regular file (a link)"),
    "nothing": (lambda path: None, "no such file"),
}


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_packs_other_than_plain_files_are_refused(inbox: Inbox, kind: str) -> None:
    make, why = FILE_KINDS[kind]
    make(inbox.root / "in" / "a.zip")
    assert why in inbox.refusal()


def test_control_characters_in_pack_names_are_escaped(inbox: Inbox, capsys: pytest.CaptureFixture[str]) -> None:
    path = inbox.root / "in" / "\x1b[2J\n\u202e.zip"
    path.write_bytes(b"")
    assert run_command(main, ["add", str(path), "--nodes", str(inbox.root / "data" / "nodes")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable() and "\\x1b[2J\\x0a\\u202e.zip" in line


SAMPLES: dict[str, tuple[Rows, str]] = {
    "rounds from another node": (lambda rows: rows.__setitem__("node", "honest"), f"{ROUND}: column 'node', row 0"),
    "synthetic rounds": (lambda rows: rows.__setitem__("origin", "synthetic"), f"{ROUND}: column 'origin'"),
    "an invalid sample": (lambda rows: rows.__setitem__("value", float("inf")), f"{ROUND}: "),
    "another round number": (lambda rows: rows.__setitem__("round", 4), "holds clock.cpu.4.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SAMPLES)
def test_one_unusable_file_refuses_the_whole_pack(inbox: Inbox, tmp_path: Path, fault: str) -> None:
    change, why = SAMPLES[fault]
    assert why in inbox.refusal(make_archive(node_files(copy_node(tmp_path / "of" / "victim", ROUNDS[:1], change))))


def test_two_implausible_experiments_refuse_the_whole_pack(inbox: Inbox, tmp_path: Path) -> None:
    rounds = ("clock.cpu.5", "gemm.cpu.4", "bandwidth.cpu.4", "peak.cpu.1")
    node = copy_node(tmp_path / "of" / "victim", rounds, speed_up(1000))
    assert "hold what cannot be true" in inbox.refusal(make_archive(node_files(node)))


def test_synthetic_nodes_and_other_data_versions_are_refused(inbox: Inbox, tmp_path: Path) -> None:
    node = copy_node(tmp_path / "of" / "victim", ROUNDS[:1])
    record = json.loads((node / "node.json").read_text())
    (node / "node.json").write_text(json.dumps({**record, "origin": "synthetic"}))
    assert inbox.refusal(make_archive(node_files(node))).startswith("its data are synthetic")
    later = copy_node(tmp_path / "later" / "victim", ROUNDS[:1], schema=99)
    assert f"{ROUND}: written under version 99 of the data dictionary" in inbox.refusal(make_archive(node_files(later)))
    older = copy_node(tmp_path / "no" / "victim", ROUNDS[:1])
    (older / ROUND).write_bytes(b"PAR1")
    assert f"{ROUND}: cannot be read" in inbox.refusal(make_archive(node_files(older)))


@settings(
    max_examples=int(os.environ.get("HOSTILE", "150")),
    derandomize="HOSTILE" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255), st.sampled_from(["anywhere", "manifest", "directory"]))
@example(0.0, 0, "cut")
def test_corrupt_and_truncated_packs_are_refused_or_read_whole(
    tmp_path: Path, good_pack: bytes, where: float, change: int, part: str
) -> None:
    first = good_pack.index(CENTRAL) if part == "directory" else 0
    last = good_pack.index(LOCAL, 4) if part == "manifest" else len(good_pack)
    offset = first + int(where * (last - first))
    path = tmp_path / "a.zip"
    path.write_bytes(good_pack)
    whole = read_pack(path)
    assert whole.files
    flipped = good_pack[:offset] + bytes([good_pack[offset] ^ change]) + good_pack[offset + 1 :]
    for spoilt in (good_pack[:offset], *([flipped] if change else [])):
        path.write_bytes(spoilt)
        try:
            assert read_pack(path) == whole
        except StudyError as refusal:
            assert len(str(refusal).splitlines()) == 1 and str(refusal).isprintable()


def test_round_file_names_match_measured_files() -> None:
    from tests.report.lying_nodes import PUBLISHED

    for path in PUBLISHED.glob("[!.]*.parquet"):
        experiment, device, number = (
            load_samples(path)[0].select([name]).to_pandas()[name][0] for name in ("experiment", "device", "round")
        )
        assert node_pack.round_file_name(experiment, device, number) == path.name and node_pack.ROUND.fullmatch(
            path.name
        )
    assert node_pack.ROUND.fullmatch(node_pack.round_file_name("time-to-train", "cuda:10", 12))
