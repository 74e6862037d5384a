"""Node packs: `pack` on one machine, then `add --dry-run` and `add` into the published nodes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from contract.errors import StudyError, run_command
from contract.node_pack import make_archive, read_pack
from experiments.cli import main as experiments
from report.cli import main as report
from report.commands.add import add
from report.commands.explain import explain
from report.data import contributed_nodes
from report.data.contributed_nodes import SIDECAR, add_node_folder
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.node_reader import read_nodes
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import judge, sole_contributed_node
from report.pages.claim_page import claim_context
from report.verdict_sentences import hanging_sentence
from tests.report.conftest import Factory
from tests.report.lying_nodes import EXPERIMENTS, FEW_CLAIMS, PUBLISHED, copy_node, write_few_claims
from tests.report.packs import node_files

OTHER = PUBLISHED.parent / "amd-epyc-2c-089962.146241"


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_few_claims(tmp_path_factory.mktemp("few") / "claims")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data folder with one node.

    It has no published measurements, to save time: the claims here need none.
    """
    monkeypatch.setattr("report.commands.add.PUBLISHED", tmp_path / "nothing")
    shutil.copytree(OTHER, tmp_path / "data" / "nodes" / OTHER.name)
    return tmp_path / "data"


def write_nodes(folder: Path, rounds: Iterable[int] = (1, 2, 3)) -> Path:
    """Write a measured node below `folder`, with rounds from the published node, and with files that `pack` ignores."""
    node = folder / PUBLISHED.name
    (node / "superseded").mkdir(parents=True)
    names = [f"{name}.cpu.{number}.parquet" for name in EXPERIMENTS for number in rounds]
    for name in ("node.json", *names):
        shutil.copyfile(PUBLISHED / name, node / name)
    shutil.copyfile(PUBLISHED / names[0], node / "superseded" / names[0])
    (node / ".round.1").touch()
    (node / "notes.txt").touch()
    return folder


def pack_rounds(out: Path, *rounds: int) -> Path:
    assert experiments(["pack", str(write_nodes(out.parent / f"of-{out.stem}", rounds)), "--out", str(out)]) == 0
    return out


def read_tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_pack_then_dry_run_then_add_publishes_the_node(
    data: Path, claims: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = pack_rounds(tmp_path / "a.zip", 1, 2, 3)
    out = capsys.readouterr().out
    assert f"{file}: " in out and f"{PUBLISHED.name} with 12 round(s), preset full; complete" in out
    assert "Hand in a node" in out and "data/incoming" in out
    before = read_tree(data)
    words = ["add", str(file), "--nodes", str(data / "nodes"), "--claims", str(claims)]

    assert report([*words, "--dry-run"]) == 0
    dry = capsys.readouterr().out.splitlines()
    assert dry[0].startswith(f"{PUBLISHED.name}: AMD EPYC, 2 cores, preset full, commit ")
    assert dry[0].endswith("12 rounds; none is missing.")
    assert [line.partition(": ")[0] for line in dry[2:6]] == [
        "Verdicts that move", "Verdicts that stay, with another estimate",
        "Verdicts that rest on it in place of what others published", "Verdicts that would hang on it alone",
    ]  # fmt: skip
    assert "N03: awaiting experiment -> challenged" in dry[2] and "W13: awaiting experiment -> supported" in dry[2]
    assert dry[3].endswith(": none.") and all(name in dry[5] for name in FEW_CLAIMS)
    assert dry[-1].startswith("Nothing was added.") and read_tree(data) == before

    assert report(words) == 0
    added = capsys.readouterr().out.splitlines()
    assert added[:6] == dry[:6] and f"Added: {data / 'nodes' / PUBLISHED.name}" in added[6]
    after = read_tree(data)
    name = f"nodes/{PUBLISHED.name}"
    mine = {path.removeprefix(f"{name}/"): content for path, content in after.items() if path.startswith(name)}
    assert json.loads(mine.pop(SIDECAR))["pack_sha256"] == read_pack(file).digest
    assert mine == dict(read_pack(file).files)
    assert {path: after[path] for path in before} == before
    listed = json.loads((data / "datapackage.json").read_text())["resources"]
    assert f"{name}/gemm.cpu.1.parquet" in {item["path"] for item in listed}
    assert report(["datapackage", "--check", "--data", str(data)]) == 0
    capsys.readouterr()

    assert report(words) == 0
    again = capsys.readouterr().out.splitlines()
    assert again == [f"{PUBLISHED.name}: all its rounds are in {data / 'nodes'} already: there is nothing to add."]
    assert read_tree(data) == after

    gather([data / "nodes"], tmp_path / "out")
    nodes = {node.id: node.contributed for node in read_dataset(tmp_path / "out").nodes.nodes}
    assert nodes == {OTHER.name: "", PUBLISHED.name: read_pack(file).digest}


def test_packing_is_deterministic_and_lossless(tmp_path: Path) -> None:
    first, second = pack_rounds(tmp_path / "a.zip", 1), pack_rounds(tmp_path / "b.zip", 1)
    assert first.read_bytes() == second.read_bytes()
    pack = read_pack(first)
    files = node_files(tmp_path / "of-a" / PUBLISHED.name)
    assert pack.files == {name: data for name, data in files.items() if not name.startswith((".", "notes"))}
    pack.write(tmp_path / "out" / PUBLISHED.name)
    after, before = (read_nodes([folder / PUBLISHED.name]).nodes[0] for folder in (tmp_path / "out", tmp_path / "of-a"))
    assert after.samples.equals(before.samples) and after.record == before.record


def test_archive_bytes_do_not_depend_on_system_or_date(synthetic: Factory) -> None:
    record = json.dumps(synthetic("node-a").record(), sort_keys=True).encode()
    archive = make_archive({"node.json": record, "clock.cpu.1.parquet": b"PAR1"})
    assert hashlib.sha256(archive).hexdigest() == "397afe9bc2e7d3b919c06d2b2f0169b44f7ea71fc8eae633201ce257e6b42a17"


def test_interrupted_node_is_packed_and_its_missing_rounds_are_listed(
    data: Path, claims: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = write_nodes(tmp_path / "nodes")
    record = json.loads((nodes / PUBLISHED.name / "node.json").read_text())
    record["jobs"] = {f"{name}.cpu": {"predicted_s": [1.0] * 4, "left_out": {}} for name in EXPERIMENTS[:1]}
    del record["ended_utc"]
    (nodes / PUBLISHED.name / "node.json").unlink()
    (nodes / PUBLISHED.name / "node.partial.json").write_text(json.dumps(record))
    file = tmp_path / "part.zip"
    assert experiments(["pack", str(nodes / PUBLISHED.name), "--out", str(file)]) == 0
    assert "cut off, 1 round(s) missing" in capsys.readouterr().out
    lines = list(add(file, data / "nodes", claims=claims))
    assert lines[0].endswith("12 rounds; missing are clock.cpu.4.")
    assert (data / "nodes" / PUBLISHED.name / "node.partial.json").is_file()


def test_pack_refuses_ambiguous_folders_and_unusable_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def pack_error(*words: str) -> str:
        assert run_command(experiments, ["pack", *words]) == 2
        output = capsys.readouterr()
        (line,) = output.err.splitlines()
        assert not output.out and not list(tmp_path.glob("results/*.zip"))
        return line

    assert "results/nodes: contains no node" in pack_error()
    nodes = write_nodes(tmp_path / "results" / "nodes")
    other_node = copy_node(nodes / "other", ["clock.cpu.1"])
    assert f"contains several nodes: pass one node's folder ({PUBLISHED.name}, other)" in pack_error()

    def with_round(name: str, content: bytes | None) -> str:
        """Return the error from `pack` if the only round in `other_node` is a file with this name and content."""
        for path in other_node.glob("*.parquet"):
            path.unlink()
        if content is not None:
            (other_node / name).write_bytes(content)
        return pack_error("results/nodes/other")

    good = (other_node / "clock.cpu.1.parquet").read_bytes()
    foreign = (PUBLISHED / "clock.cpu.1.parquet").read_bytes()
    for name, content, why in (
        ("clock.cpu.2.parquet", good, "holds clock.cpu.1.parquet, which contradicts its file name"),
        ("rounds.parquet", good, "rounds.parquet: the name is not <experiment>.<device>.<round>[-<attempt>].parquet"),
        ("", None, "contains no round yet"),
        ("clock.cpu.1.parquet", foreign, f"the round belongs to {PUBLISHED.name}, not to other"),
        ("clock.cpu.1.parquet", b"PAR1", "clock.cpu.1.parquet: cannot be read as Parquet"),
    ):
        assert why in with_round(name, content)
    shutil.rmtree(other_node)
    original = copy_node(other_node, ["clock.cpu.1"]) / "clock.cpu.1.parquet"
    copy = Path(shutil.copyfile(original, other_node / "clock.cpu.1 (1).parquet"))
    assert "clock.cpu.1 (1).parquet: is a copy of clock.cpu.1.parquet: move it away" in pack_error(
        "results/nodes/other"
    )
    table = parquet.read_table(copy)
    parquet.write_table(table.slice(0, 1), original)
    assert f"has {len(table)} samples, and clock.cpu.1.parquet only 1 of that" in pack_error("results/nodes/other")
    shutil.rmtree(other_node)
    dated = copy_node(other_node, ["clock.cpu.1"], ended_utc="1970-01-01T00:00:00Z")
    assert "clock.cpu.1.parquet: ended_utc 1970-01-01T00:00:00Z lies before" in pack_error("results/nodes/other")
    record = json.loads((dated / "node.json").read_text())
    (dated / "node.json").write_text(json.dumps({**record, "started_utc": "2970-01-01T00:00:00Z"}))
    assert "node.json: started_utc 2970-01-01T00:00:00Z lies in the future" in pack_error("results/nodes/other")
    shutil.rmtree(other_node)
    assert experiments(["pack"]) == 0
    assert (tmp_path / "results" / f"{PUBLISHED.name}.zip").is_file()


def test_adding_more_rounds_extends_a_node_without_overwriting_files(data: Path, claims: Path, tmp_path: Path) -> None:
    nodes = data / "nodes"
    first, more = pack_rounds(tmp_path / "a.zip", 1, 2), pack_rounds(tmp_path / "b.zip", 1, 3)
    list(add(first, nodes, claims=claims))
    before = read_tree(nodes)
    lines = list(add(more, nodes, claims=claims))
    assert any("is there already, with some of these rounds" in line for line in lines)
    shifted = next(line for line in lines if line.startswith("Verdicts that stay, with another estimate"))
    assert re.search(r"N03: \S+ MAC/cycle -> \S+ MAC/cycle \([+-]", shifted)
    after = read_tree(nodes)
    assert {path: after[path] for path in before} == before
    assert {Path(path).parts[0] for path in after} == {OTHER.name, PUBLISHED.name, f"{PUBLISHED.name}.2"}
    read = {node.id: node for node in read_nodes([nodes]).nodes}
    assert set(read) == {OTHER.name, PUBLISHED.name} and len(read[PUBLISHED.name].rounds) == 12
    assert next(add(more, nodes, claims=claims)).endswith("there is nothing to add.")
    # A new run on the same machine becomes a separate node.
    again = copy_node(
        tmp_path / "again" / PUBLISHED.name, ["clock.cpu.1"], lambda rows: rows.__setitem__("run", "later")
    )
    (tmp_path / "c.zip").write_bytes(make_archive(node_files(again)))
    lines = list(add(tmp_path / "c.zip", nodes, claims=claims))
    assert lines[0].startswith(f"{PUBLISHED.name}.2: ") and (nodes / f"{PUBLISHED.name}.3").is_dir()
    assert [node.id for node in read_nodes([nodes]).nodes][1:] == [PUBLISHED.name, f"{PUBLISHED.name}.2"]


def test_same_run_under_another_node_id_is_refused(data: Path, claims: Path, tmp_path: Path) -> None:
    nodes, file = data / "nodes", tmp_path / "a.zip"
    file.write_bytes(make_archive(node_files(copy_node(tmp_path / "made" / "first", ["clock.cpu.1"]))))
    list(add(file, nodes, claims=claims))
    file.write_bytes(make_archive(node_files(copy_node(tmp_path / "made" / "second", ["clock.cpu.1"]))))
    with pytest.raises(StudyError, match="round 1 of clock on cpu is that of first, which is already here"):
        list(add(file, nodes, claims=claims))
    assert not (nodes / "second").exists()


def test_first_node_is_added_to_an_empty_folder(data: Path, claims: Path, tmp_path: Path) -> None:
    shutil.rmtree(data)
    lines = list(add(pack_rounds(tmp_path / "a.zip", 1), data / "nodes", claims=claims))
    assert "No other node is there: every verdict is by this one." in lines
    assert (data / "nodes" / PUBLISHED.name / SIDECAR).is_file()
    with pytest.raises(StudyError, match="name a folder called nodes"):
        list(add(tmp_path / "a.zip", data, claims=claims))


def test_leftovers_from_an_interrupted_add_are_ignored_and_removed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = read_pack(pack_rounds(tmp_path / "a.zip", 1))

    def interrupt(source: Path, _target: Path) -> None:
        # A killed process leaves its temporary folder behind.
        shutil.copytree(source, data / "nodes" / f"{contributed_nodes._ADDING}left" / source.name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            add_node_folder(pack, data / "nodes", [])
    assert [node.id for node in read_nodes([data / "nodes"]).nodes] == [OTHER.name]
    assert add_node_folder(pack, data / "nodes", []) == data / "nodes" / PUBLISHED.name
    assert {path.name for path in (data / "nodes").iterdir()} == {OTHER.name, PUBLISHED.name}
    # The new folder sorts after all existing folders, so that the existing nodes keep their ids.
    assert add_node_folder(pack, data / "nodes", ["zz"]).name == "zz.2"
    assert add_node_folder(pack, data / "nodes", [PUBLISHED.name]).name == f"{PUBLISHED.name}.2"


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "not JSON"), ('{"schema": 1, "pack_sha256": "x", "added_utc": "2026-01-01T00:00:00Z"}', "pack_sha256"),
     ("x" * 20_000, "(limit: ")],
)  # fmt: skip
def test_unreadable_contribution_note_is_refused_but_the_node_counts(tmp_path: Path, text: str, why: str) -> None:
    copy_node(tmp_path / "node", ["clock.cpu.1"])
    (tmp_path / "node" / SIDECAR).write_text(text)
    nodes = read_nodes([tmp_path])
    (node,), (refusal,) = nodes.nodes, nodes.refused
    assert node.contributed == "" and refusal["file"] == str(tmp_path / "node" / SIDECAR)
    assert why in refusal["reason"] and "counts as one that was not handed in" in refusal["reason"]


def mark_contributed(folder: Path) -> None:
    note = {"schema": 1, "pack_sha256": "0" * 64, "added_utc": "2026-01-01T00:00:00Z"}
    (folder / SIDECAR).write_text(json.dumps(note))


def test_verdict_names_the_contributed_node_that_alone_decides_it(
    synthetic: Factory, claims: Path, tmp_path: Path
) -> None:
    def verdict() -> tuple[dict[str, Any], dict[str, Any]]:
        gather([synthetic.root], tmp_path / "data", allow_synthetic=True)
        data = read_dataset(tmp_path / "data", read_reference(REFERENCE))
        document = judge(data, tmp_path / "verdicts.json", claims, allow_synthetic=True)
        return document, next(verdict for verdict in document["verdicts"] if verdict["id"] == "N03")

    first = synthetic("node-a").gemm(27.9).clock().write()
    assert verdict()[1]["verdict"] == "challenged" and verdict()[1]["hangs_on"] == ""
    mark_contributed(first)
    document, n03 = verdict()
    sentence = hanging_sentence("Synthetic, 2 cores")
    assert n03["hangs_on"] == "node-a"
    assert sentence in " ".join(explain(document, "N03").split())
    assert sentence in claim_context(n03, document, {"node-a": "Synthetic, 2 cores"})["sure"]
    # The sentence warns that a single contributed machine decides the verdict. It disappears once a second machine has
    # the same outcome.
    second = synthetic("node-b").gemm(20).clock().write()
    document, n03 = verdict()
    assert n03["verdict"] == "challenged" and n03["hangs_on"] == ""
    assert "handed in" not in explain(document, "N03")
    mark_contributed(second)
    assert verdict()[1]["hangs_on"] == ""


CELL = {"node": "a", "behind": "1", "outcome": "supports"}


@pytest.mark.parametrize(
    ("cases", "decided_on", "hangs"),
    [
        ([CELL], "here", "a"), ([CELL, {**CELL, "outcome": "challenges"}], "here", "a"),
        ([CELL, {**CELL, "node": "b"}], "here", ""),
        ([CELL, {**CELL, "node": "b", "outcome": "undecided"}], "here", "a"),
        ([{**CELL, "instances": ["b.aaaaaa", "b.aaaaaa.2"]}], "here", "b.aaaaaa"),
        ([{**CELL, "instances": ["b.aaaaaa", "b.bbbbbb"]}], "here", ""),
        ([CELL, {**CELL, "node": None, "behind": ""}], "here", "a"), ([CELL, {**CELL, "node": None}], "here", ""),
        ([{**CELL, "node": "b"}], "here", ""), ([CELL], "others", ""), ([CELL], "", ""), ([], "here", ""),
    ],
)  # fmt: skip
def test_sole_contributed_node(cases: list[dict[str, Any]], decided_on: str, hangs: str) -> None:
    assert (
        sole_contributed_node({"cases": cases, "decided_on": decided_on}, {"a", "b.aaaaaa", "b.aaaaaa.2", "b.bbbbbb"})
        == hangs
    )
