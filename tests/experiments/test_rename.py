"""A node gets another instance: samples stay as they were, a kill leaves a whole one, and the run goes on under it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import pytest

from contract.errors import StudyError
from contract.files import held_lock
from contract.node import PARTIAL, read_node, write_node
from contract.tables import read_samples
from experiments import hardware, rename
from experiments.cli import main

from .test_node import RECORD, measured

KIND, OLD, NEW = "some-cpu-2c-abc123", "some-cpu-2c-abc123.aaaaaa", "some-cpu-2c-abc123.bbbbbb"
NODE = {**RECORD, "id": OLD, "kind": KIND, "instance": "aaaaaa", "hosts": ["aaaaaa"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed node with two rounds, and one of an earlier preset that was set aside."""
    place = tmp_path / "nodes" / OLD
    write_node(place / "node.json", NODE)
    for number in (1, 2):
        measured(place, f"gemm.cpu.{number}.parquet", 6 + number, node=OLD, host="aaaaaa", wall_s=60.0)
    measured(place, "superseded/gemm.cpu.9.parquet", 3, node=OLD)
    return place


def contents(folder: Path) -> dict[str, Any]:
    """Everything in a folder: samples with their metadata and time, and the record; but for the node's name."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            table, about = read_samples(path)
            assert set(table["node"]) == {folder.name}
            values = table.drop(columns="node").to_dict("list")
            found[name] = pd.DataFrame(values).to_csv(), about, parquet.read_schema(path), path.stat().st_mtime_ns
        elif path.suffix == ".json":
            record = read_node(path)
            assert record["id"] == folder.name
            found[name] = {**record, "id": "", "instance": ""}
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def test_all_that_bears_the_name_bears_the_new_one_and_nothing_else_changes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ".preliminary").write_text("a mark")
    before = contents(folder)
    assert len(before) == 5
    assert main(["rename", str(folder), "bbbbbb"]) == 0
    assert NEW in capsys.readouterr().out
    assert contents(folder.with_name(NEW)) == before
    assert [path.name for path in folder.parent.iterdir()] == [NEW]


def test_a_folder_of_any_name_gets_the_nodes(folder: Path) -> None:
    friend = folder.replace(folder.with_name("from-a-friend"))
    assert rename.rename(friend, "bbbbbb") == NEW
    assert [path.name for path in folder.parent.iterdir()] == [NEW]


@pytest.mark.parametrize("instance", ["", "gpu01", "AAAAAA", "aaaaaaa", "../../x", "myhost", "bbbbbb\n"])
def test_what_could_be_a_hosts_name_or_a_path_is_no_instance(folder: Path, instance: str) -> None:
    before = contents(folder)
    with pytest.raises(StudyError, match="six hexadecimal digits"):
        rename.rename(folder, instance)
    assert contents(folder) == before


def _taken(folder: Path) -> None:
    write_node(folder.with_name(NEW) / "node.json", {**NODE, "id": NEW, "instance": "bbbbbb"})


def _taken_elsewhere(folder: Path) -> None:
    write_node(folder.with_name("other") / PARTIAL, {**NODE, "id": NEW, "instance": "bbbbbb"})


def _another_nodes_round(folder: Path) -> None:
    measured(folder, "gemm.cpu.3.parquet", 9, node="another-cpu-8c-fff000")


def _broken(folder: Path) -> None:
    (folder / "gemm.cpu.3.parquet").write_bytes(b"PAR1")


def _no_record(folder: Path) -> None:
    (folder / "node.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_taken, f"{NEW} already: choose another"),
        (_taken_elsewhere, f"other: bears the name {NEW}"),
        (_another_nodes_round, r"gemm\.cpu\.3.* samples of another-cpu-8c-fff000"),
        (_broken, r"gemm\.cpu\.3\.parquet: cannot be read"),
        (_no_record, "no node is there"),
    ],
)
def test_what_cannot_be_renamed_is_told_and_left_as_it_is(
    folder: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(folder)
    before = {
        path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file() and ".made" not in str(path)
    }
    with pytest.raises(StudyError, match=why):
        rename.rename(folder, "bbbbbb")
    after = {
        path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file() and ".made" not in str(path)
    }
    assert after == before


class Killed(BaseException):
    """As if the process ended here."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """End the program in the middle of its n-th change of the disk."""
    left = [step]

    def dying(change: Callable[..., Any], in_part: Callable[..., Any] | None = None) -> Callable[..., Any]:
        def changed(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                if in_part:
                    in_part(*args)
                raise Killed
            return change(*args, **kwargs)

        return changed

    def some_of(place: Path, *_: Any) -> None:
        min(path for path in Path(place).rglob("*") if path.is_file()).unlink()

    monkeypatch.setattr(rename.shutil, "copytree", dying(shutil.copytree))
    monkeypatch.setattr(rename.shutil, "rmtree", dying(shutil.rmtree, some_of))
    monkeypatch.setattr(rename, "write_node", dying(rename.write_node))
    monkeypatch.setattr(
        rename.parquet, "write_table", dying(parquet.write_table, lambda _, path: path.write_bytes(b"x"))
    )
    monkeypatch.setattr(Path, "replace", dying(Path.replace))


def test_cut_off_anywhere_a_whole_node_is_there_and_the_same_call_finishes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder.parents[1] / "node.json"
    write_node(run, NODE)
    before, to, step = contents(folder), folder.with_name(NEW), 0
    kept = shutil.copytree(folder.parents[1], folder.parents[1].with_name("kept"))
    while True:
        step += 1
        with monkeypatch.context() as dying:
            kill_at(dying, step)
            try:
                rename.rename(folder, "bbbbbb")
            except Killed:
                pass
            else:
                break
        whole = [place for place in (folder, to) if place.exists()]
        assert whole
        assert all(contents(place) == before for place in whole)
        # The run is found where its record says.
        assert (folder.parent / read_node(run)["id"]).is_dir()
        rename.rename(folder, "bbbbbb")
        assert [path.name for path in folder.parent.iterdir()] == [NEW]
        assert (contents(to), read_node(run)["id"]) == (before, NEW)
        shutil.rmtree(folder.parents[1])
        shutil.copytree(kept, folder.parents[1])
    assert step > 8


def test_a_run_goes_on_under_the_new_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder.parents[1] / "node.json"
    write_node(run, NODE)
    monkeypatch.setattr(hardware, "_kind", lambda *_: KIND)
    rename.rename(folder, "bbbbbb")
    assert main(["probe", "--id", "--out", str(run)]) == 0
    assert capsys.readouterr().out.strip() == NEW
    assert main(["check", "--preset", "quick", "--node", str(run)]) == 0
    to = folder.with_name(NEW)
    third = measured(to, "gemm.cpu.3.parquet", 9, node=NEW)
    rounds = [str(to / f"gemm.cpu.{number}.parquet") for number in (1, 2)]
    assert main(["seal", "--probe", str(run), "--rounds", *rounds, third, "--out", str(to / "node.json")]) == 0
    assert read_node(to / "node.json")["ended_utc"] == "2026-01-02T09:30:00Z"


@pytest.mark.parametrize("gone_on", [OLD, NEW])
def test_cut_off_and_gone_on_with_no_round_is_lost(folder: Path, gone_on: str) -> None:
    """Both are there, and the run has measured one more round into either."""
    old = shutil.copytree(folder, folder.parents[1] / "old")
    rename.rename(folder, "bbbbbb")
    shutil.move(old, folder)
    measured(folder.with_name(gone_on), "gemm.cpu.3.parquet", 9, node=gone_on)
    assert rename.rename(folder, "bbbbbb") == NEW
    assert [path.name for path in folder.parent.iterdir()] == [NEW]
    assert len(list(folder.with_name(NEW).glob("*.parquet"))) == 3


def test_a_node_is_not_renamed_while_its_run_is_at_work(folder: Path) -> None:
    write_node(folder.parents[1] / "node.json", NODE)
    handle = held_lock(folder.parents[1] / rename.RUN_LOCK)
    assert handle is not None
    before = contents(folder)
    with pytest.raises(StudyError, match="a run is at work"):
        rename.rename(folder, "bbbbbb")
    assert contents(folder) == before
