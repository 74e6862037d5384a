"""After a kill at any write, the same command finishes, or half-written files are refused in one line."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from contract.errors import StudyError
from contract.files import replace_folder
from contract.node_pack import make_archive
from experiments.pack_node import pack_node
from report.commands import add as add_module
from report.commands.add import add
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.node_reader import read_nodes
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import judge
from report.publish import datapackage
from report.verdicts import read_verdicts
from tests.kills import WRITES, killed_states, restore
from tests.report.conftest import Factory
from tests.report.lying_nodes import copy_node, write_few_claims
from tests.report.packs import node_files


def read_tree(folder: Path) -> dict[str, bytes]:
    """Read all files but hidden ones, which a killed command may leave."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    return {name: path.read_bytes() for path, name in names.items() if not f"/{name}".count("/.")}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Published nodes with one node, and with their lists."""
    copy_node(tmp_path / "data" / "nodes" / "node-a", ["clock.cpu.5"])
    datapackage.write_published(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    (tmp_path / "b.zip").write_bytes(make_archive(node_files(copy_node(tmp_path / "of" / "node-b", ["clock.cpu.4"]))))
    return tmp_path / "b.zip"


def check_each_state(root: Path, into: Path, act: Callable[[], object], events: Collection[str] = WRITES) -> None:
    """Check that `act` completes every state that a kill during `act` leaves."""
    states = killed_states(root, into, act, events)
    whole = read_tree(root)
    assert len(states) > 3
    for state in states:
        restore(state, root)
        act()
        assert read_tree(root) == whole


def test_killed_add_is_completed_by_the_same_command(
    data: Path, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("report.data.contributed_nodes.utc_time", lambda: "2026-11-29T00:00:00Z")
    for name in ("_gather_dataset", "judge", "_refuse_renamed"):
        monkeypatch.setattr(add_module, name, lambda *_: None)
    monkeypatch.setattr(add_module, "_describe_changes", lambda *_: [])

    def add_pack() -> None:
        list(add(pack, data / "nodes"))
        assert datapackage.is_listed(data)

    check_each_state(data, tmp_path / "states", add_pack, ["os.mkdir", "os.rename"])
    assert {node.id for node in read_nodes([data / "nodes"]).nodes} == {"node-a", "node-b"}
    assert [line.endswith("there is nothing to add.") for line in add(pack, data / "nodes")] == [True]


def test_killed_listing_is_found_and_completed(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_node(data / "nodes" / "node-b", ["clock.cpu.4"])
    check_each_state(data, tmp_path / "states", lambda: datapackage.write_published(data))
    assert datapackage.print_faults(data) == 0
    for name in ("datapackage.json", "SHA256SUMS"):
        older = (data / name).read_text(encoding="utf-8").replace("clock.cpu.4", "clock.cpu.3")
        (tmp_path / "kept").write_bytes((data / name).read_bytes())
        (data / name).write_text(older, encoding="utf-8")
        capsys.readouterr()
        assert datapackage.print_faults(data) == 1 and not datapackage.is_listed(data)
        assert capsys.readouterr().out.splitlines()[-1].endswith("list them anew: python -m report datapackage")
        shutil.copyfile(tmp_path / "kept", data / name)


def test_leftovers_from_a_killed_add_are_not_listed(data: Path, tmp_path: Path) -> None:
    before = (data / "SHA256SUMS").read_bytes()
    copy_node(data / "nodes" / ".adding-left" / "node-b", ["clock.cpu.4"])
    datapackage.write_published(data)
    assert (data / "SHA256SUMS").read_bytes() == before


def test_killed_pack_is_completed_by_the_same_command(tmp_path: Path) -> None:
    node = copy_node(tmp_path / "of" / "node-b", ["clock.cpu.4"])
    root = tmp_path / "results"
    root.mkdir()
    (root / "node-b.zip").write_bytes(b"older")
    check_each_state(root, tmp_path / "states", lambda: pack_node(node, root / "node-b.zip"))


def test_replaced_folder_is_whole_or_missing_after_a_kill(tmp_path: Path) -> None:
    root = tmp_path / "results"
    for name, texts in (("new", ("1", "2", "3")), ("dataset", ("a", "b"))):
        (root / name).mkdir(parents=True)
        for text in texts:
            (root / name / text).write_text(text)
    older, newer = read_tree(root / "dataset"), read_tree(root / "new")
    states = killed_states(root, tmp_path / "states", lambda: replace_folder(root / "new", root / "dataset"))
    assert len(states) > 3 and read_tree(root) == {f"dataset/{name}": data for name, data in newer.items()}
    assert all(read_tree(state / "dataset") in ({}, older, newer) for state in states)


def test_half_gathered_tables_are_refused(synthetic: Factory, tmp_path: Path) -> None:
    synthetic("node-a").gemm(20).write()
    root = tmp_path / "results"
    gather([synthetic.root], root, allow_synthetic=True)
    before = read_tree(root)
    synthetic("node-b").gemm(10).write()
    states = killed_states(
        root, tmp_path / "states", lambda: gather([synthetic.root], root, allow_synthetic=True), ["os.rename"]
    )
    assert len(states) > 15
    for state in states:
        if read_tree(state) != before:
            with pytest.raises(StudyError, match=r"nodes\.json: missing, or names no nodes\. Write it with: python -m"):
                read_dataset(state)
    assert {node.id for node in read_dataset(root).nodes.nodes} == {"node-a", "node-b"}


def test_half_written_verdicts_are_refused(synthetic: Factory, tmp_path: Path) -> None:
    synthetic("node-a").gemm(20).clock().write()
    gather([synthetic.root], tmp_path / "data", allow_synthetic=True)
    data = read_dataset(tmp_path / "data", read_reference(REFERENCE))
    root, claims = tmp_path / "results", write_few_claims(tmp_path / "few" / "claims")
    judge(data, root / "verdicts.json", claims, allow_synthetic=True)
    (root / "verdicts.json").write_text("{}")
    older = (root / "verdicts.csv").read_text().replace("challenged", "supported")
    (root / "verdicts.csv").write_text(older)
    states = killed_states(
        root, tmp_path / "states", lambda: judge(data, root / "verdicts.json", claims, allow_synthetic=True)
    )
    document = json.loads((root / "verdicts.json").read_text())
    changed = [state / "verdicts.json" for state in states if (state / "verdicts.csv").read_text() != older]
    assert len(changed) > 3
    for path in changed:
        if not path.exists() or read_verdicts(path) != document:
            with pytest.raises(StudyError, match="no such file"):
                read_verdicts(path)
    with (root / "verdicts.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["id"]: row["verdict"] for row in csv.DictReader(file)}
    assert rows == {verdict["id"]: verdict["verdict"] for verdict in document["verdicts"]}
