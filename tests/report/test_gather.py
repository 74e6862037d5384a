"""Command `gather` turns node folders into tables, and leaves out only the files that are unusable."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import pytest

from contract.node import PARTIAL, write_node
from contract.sample_table import rename_node
from report.data.gather import gather
from report.data.gathered_files import _read_samples, read_summary
from report.data.node_reader import Node, read_nodes
from report.data.summary import COLUMNS, POINT
from report.dataset.declaration import tables
from report.pages import limitations
from report.pages.missing_points import left_out_points

from .conftest import Factory

TABLES = ("machines", "runs", "software", "points", "results", "result_flags", "metrics", "parameters")


def write_node_folder(synthetic: Factory, name: str = "node-a") -> Path:
    return synthetic(name).gemm(20).gemm(10, n=256).clock().write()


def test_gather_writes_and_describes_every_table(synthetic: Factory, tmp_path: Path) -> None:
    write_node_folder(synthetic)
    gather([synthetic.root, tmp_path / "no such folder"], tmp_path / "out", allow_synthetic=True)
    written = {path.name for path in (tmp_path / "out").iterdir()}
    files = {f"{name}.{suffix}" for name in TABLES for suffix in ("parquet", "csv")}
    assert written == {*files, "samples.parquet", "nodes.json", "refused.json"}
    summary = read_summary(tmp_path / "out")
    assert list(summary.columns) == ["row", *POINT, *COLUMNS]
    assert len(summary) == 3 and (summary["n_rounds"] == 3).all()
    assert len(pd.read_parquet(tmp_path / "out" / "samples.parquet")) == 3 * 3 * 5
    for name in TABLES:
        schema = parquet.read_schema(tmp_path / "out" / f"{name}.parquet")
        assert all(field.metadata[b"description"] for field in schema), name
        # Parameters are mostly empty in results, and CSV has them as one text.
        wanted = [column for column in schema.names if name != "results" or column in tables()[name].names]
        assert list(pd.read_csv(tmp_path / "out" / f"{name}.csv").columns) == wanted
    node = json.loads((tmp_path / "out" / "nodes.json").read_text())[0]
    assert node["id"] == "node-a" and node["rounds"][0]["wall_s"] == 10


def test_interrupted_node_counts_and_its_missing_rounds_are_reported(
    synthetic: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_node_folder(synthetic)
    record = json.loads((folder / "node.json").read_text())
    del record["ended_utc"]
    record["jobs"] = {
        "gemm.cpu": {"predicted_s": [9.0] * 4, "left_out": {}},
        "clock.cpu": {"predicted_s": [9.0] * 3, "left_out": {}},
        "training.cuda-0": {"predicted_s": [9.0], "left_out": {}},
        "serving.cuda-0": {"predicted_s": [], "left_out": {"plan: left out to fit 9 min": 2}},
    }
    (folder / "node.json").unlink()
    write_node(folder / PARTIAL, record)
    gather([synthetic.root], tmp_path / "out", allow_synthetic=True)
    assert "node-a was cut off: 2 of its rounds are missing (gemm.cpu.4, training.cuda-0.1)" in capsys.readouterr().err
    assert len(pd.read_parquet(tmp_path / "out" / "results.parquet")) == 3
    (row,) = (row for row in left_out_points(tmp_path / "out") if row["experiment"] == "serving")
    assert (row["device"], row["count"], row["reason"]) == ("cuda:0", 2, "plan: left out to fit 9 min")
    # A user's study says nothing on the published machines.
    (tmp_path / "data").mkdir()
    published = synthetic.root.rename(tmp_path / "data" / "nodes")
    monkeypatch.chdir(tmp_path)
    gather([published], tmp_path / "out", allow_synthetic=True)
    assert "cut off" not in capsys.readouterr().err


def test_lost_profile_metrics_count_once_per_point(synthetic: Factory, tmp_path: Path) -> None:
    node = synthetic("node-a").gemm(20)
    for batch in (1, 2):
        node.point("training", 1e-3, device="cuda:0", params={"model": "mlp", "batch": batch})
    lost = {"status": "failed", "reason": "the profiler lost kernels", "device": "cuda:0"}
    for metric, unit in (("kernel_time", "s"), ("matmul_time_share", "1")):
        for batch in (1, 2):
            node.point("training", 0, metric=metric, unit=unit, params={"model": "mlp", "batch": batch}, **lost)
    node.point("gemm", 0, params={"m": 1, "n": 1, "k": 1}, status="oom", reason="too large")
    node.write()
    gather([synthetic.root], tmp_path / "out", allow_synthetic=True)
    counts = {(row["experiment"], row["reason"]): row["count"] for row in left_out_points(tmp_path / "out")}
    assert counts == {("training", "the profiler lost kernels"): 2, ("gemm", "too large"): 1}
    assert "1 measurement gave no result" in limitations._round_limit(tmp_path / "out"), (
        "the steps themselves were timed"
    )


def rewrite(path: Path, **changes: object) -> None:
    """Rewrite a file without the contract's checks. changes: new value per column, or None to drop it."""
    contents = parquet.read_table(path)
    frame = contents.to_pandas()
    for column, value in changes.items():
        frame = frame.drop(columns=column) if value is None else frame.assign(**{column: value})
    frame.to_parquet(path, index=False)
    table = parquet.read_table(path).replace_schema_metadata(contents.schema.metadata)
    parquet.write_table(table, path)


CUT = b"PAR1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"unit": None}, "column 'unit' is missing"),
        ({"value": -1.0}, "not a time"),
        ({"value": "fast"}, "value"),
        ({"node": "another"}, "column 'node', row 0: 'another', but this folder's node.json says 'node-a'"),
        (CUT, "Parquet"),
        # The same round appears twice.
        (1, "round 1 of gemm on cpu was already read"),
    ],
)
def test_unusable_file_is_refused_with_a_reason(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, reason: str
) -> None:
    victim = write_node_folder(synthetic) / "gemm.cpu.2.parquet"
    if isinstance(change, dict):
        rewrite(victim, **change)
    else:
        victim.write_bytes(CUT if change == CUT else (victim.parent / "gemm.cpu.1.parquet").read_bytes())
    gather([synthetic.root], tmp_path / "out", allow_synthetic=True)
    (refused,) = json.loads((tmp_path / "out" / "refused.json").read_text())
    assert refused["file"] == str(victim) and reason in refused["reason"] and str(victim) in capsys.readouterr().err
    samples = pd.read_parquet(tmp_path / "out" / "samples.parquet").query("experiment == 'gemm'")
    assert samples["run_id"].unique().tolist() == ["node-a/gemm.cpu.1", "node-a/gemm.cpu.3"]


def sorted_samples(node: Node) -> list[tuple[object, ...]]:
    """Return all samples from a node, sorted."""
    columns = ["experiment", "params", "metric", "round", "sample", "value"]
    return sorted(node.samples[columns].itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("removed", "copy_first"),
    [("", False), ("*.3.parquet", False), ("*.3.parquet", True), ("broken", False), ("statistics", False)],
)
def test_copied_node_counts_once_and_is_reported(
    synthetic: Factory, tmp_path: Path, removed: str, copy_first: bool
) -> None:
    original = write_node_folder(synthetic)
    copy = shutil.copytree(original, tmp_path / "mine" / "node-a", ignore=shutil.ignore_patterns(removed))
    if removed == "broken":
        (copy / "gemm.cpu.1.parquet").write_bytes(CUT)
    for path in copy.glob("*.parquet") if removed == "statistics" else ():
        parquet.write_table(parquet.read_table(path), path, write_statistics=False)
    nodes = read_nodes([copy, original] if copy_first else [original, copy], True)
    assert [node.id for node in nodes.nodes] == ["node-a"]
    assert sorted_samples(nodes.nodes[0]) == sorted_samples(read_nodes([original], True).nodes[0])
    names = {Path(refusal["file"]).name for refusal in nodes.refused}
    assert names == ({"node-a", "gemm.cpu.1.parquet"} if removed == "broken" else {"node-a"})
    assert any("rounds that were already read from" in refusal["reason"] for refusal in nodes.refused)


def test_another_run_under_the_same_id_is_a_separate_node(synthetic: Factory, tmp_path: Path) -> None:
    """Three runs have the id `node-a`: the first keeps the id, and the others become `node-a.2` and `node-a.3`."""
    first = write_node_folder(synthetic)
    folders = [first, *(Factory(tmp_path / f"run{seed}")("node-a", seed=seed).gemm(30).clock().write()
                        for seed in (1, 2)), Factory(tmp_path)("node-b").gemm(5).write(),
               Factory(tmp_path)("node-a.0a1b2c", seed=3).gemm(20).write()]  # fmt: skip
    separate = [read_nodes([folder], True).nodes[0] for folder in folders]
    together = read_nodes(folders, True)
    assert [node.id for node in together.nodes] == ["node-a", "node-a.2", "node-a.3", "node-a.0a1b2c", "node-b"]
    assert together.refused == []
    by_id = {node.id: node for node in together.nodes}
    for node, before in zip(("node-a", "node-a.2", "node-a.3", "node-b", "node-a.0a1b2c"), separate, strict=True):
        assert sorted_samples(by_id[node]) == sorted_samples(before)
        assert set(by_id[node].samples["node"]) == {node}
    gather(folders, tmp_path / "out", allow_synthetic=True)
    summary = pd.read_parquet(tmp_path / "out" / "results.parquet")
    assert list(dict.fromkeys(summary["node"])) == [node.id for node in together.nodes]


def rename_node_folder(folder: Path, name: str) -> Path:
    """Rename a node in its folder name, record and rounds, and return the new folder."""
    record = json.loads((folder / "node.json").read_text())
    write_node(folder / "node.json", {**record, "id": name, "instance": name.partition(".")[2]})
    for path in folder.glob("*.parquet"):
        parquet.write_table(rename_node(parquet.read_table(path), record["id"], name), path)
    return folder.rename(folder.with_name(name))


@pytest.mark.parametrize("longer", [0, 1])
def test_renamed_copy_counts_once(synthetic: Factory, tmp_path: Path, longer: int) -> None:
    """All rounds are read, even if the original or its copy lacks a round.

    longer: 0 if the original has all rounds, 1 if the copy has them.
    """
    before, folder = write_node_folder(synthetic, "kind.aaaaaa"), tmp_path / "mine"
    copy = shutil.copytree(before, folder / "kind.aaaaaa")
    copy = rename_node_folder(copy, "kind.bbbbbb")
    twin = Factory(tmp_path / "twin")("kind.cccccc", seed=5).gemm(30).clock().write()
    expected = sorted_samples(read_nodes([before], True).nodes[0])
    max([before, copy][1 - longer].glob("*.parquet")).unlink()
    nodes = read_nodes([before, copy, twin], True)
    assert [node.id for node in nodes.nodes] == ["kind.aaaaaa", "kind.cccccc"]
    assert sorted_samples(nodes.nodes[0]) == expected
    (left_out,) = nodes.refused
    assert "rounds that were already read from" in left_out["reason"]


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("{} (conflicted copy).parquet", "copy"),
        ("{} (1).parquet", "round"),
        ("Copy of {}.parquet", ""),
        ("{} - Copy.parquet", "round"),
        ("{}.parquet~", "round"),
        ("{}-2.parquet", "round"),
        ("{}.sync-conflict-20261128-101112-ABC.parquet", "round"),
        ("{}.PARQUET.bak", "copy"),
    ],
)
def test_whole_round_is_read_beside_its_copy(synthetic: Factory, name: str, cut: str) -> None:
    """A copy by a file synchroniser may sort before or after its original (see github.com/pbek/QOwnNotes#1589)."""
    folder = write_node_folder(synthetic)
    record = json.loads((folder / "node.json").read_text())
    write_node(folder / "node.json", {**record, "jobs": {"clock.cpu": {"predicted_s": [9.0] * 3, "left_out": {}}}})
    (before,) = read_nodes([synthetic.root], True).nodes
    path = folder / "clock.cpu.1.parquet"
    table = parquet.read_table(path)
    copy = path.with_name(name.format(path.stem))
    for file in (path, copy):
        part = {"copy": copy, "round": path}.get(cut) == file
        parquet.write_table(table.slice(0, len(table) // 4) if part else table, file)
    nodes = read_nodes([synthetic.root], True)
    assert sorted_samples(nodes.nodes[0]) == sorted_samples(before) and nodes.nodes[0].missing_rounds() == []
    (refused,) = nodes.refused
    left_out, used = (path, copy) if cut == "round" else (copy, path)
    assert refused["file"] == str(left_out) and refused["reason"].endswith(f"was already read from {used.name}")
    # A copy without its original is used.
    path.unlink()
    assert read_nodes([synthetic.root], True).nodes[0].missing_rounds() == []


@pytest.mark.parametrize(
    ("name", "cut"),
    [("Copy of {}", "copy"), ("{} (1)", "original"), ("{}-copy", "original"), ("a-{}", "copy"), ("A{}", "original")],
)
def test_whole_rounds_are_read_beside_a_copied_folder(synthetic: Factory, name: str, cut: str) -> None:
    folder = write_node_folder(synthetic)
    (before,) = read_nodes([synthetic.root], True).nodes
    copy = Path(shutil.copytree(folder, folder.with_name(name.format(folder.name))))
    path = {"copy": copy, "original": folder}[cut] / "clock.cpu.1.parquet"
    parquet.write_table(parquet.read_table(path).slice(0, 1), path)
    nodes = read_nodes([synthetic.root], True)
    assert [node.id for node in nodes.nodes] == ["node-a"]
    assert sorted_samples(nodes.nodes[0]) == sorted_samples(before)
    assert str(copy) in {refusal["file"] for refusal in nodes.refused}


def test_copied_record_is_reported_and_used_only_without_the_original(synthetic: Factory) -> None:
    folder = write_node_folder(synthetic)
    copy = Path(shutil.copyfile(folder / "node.json", folder / "node (conflicted copy).json"))
    for damage, line in (
        (lambda: None, (copy, "was already read from node.json")),
        (lambda: (folder / "node.json").write_text("{"), (folder / "node.json", "not JSON")),
        ((folder / "node.json").unlink, (folder / "node.json", "no such file")),
    ):
        damage()
        nodes = read_nodes([synthetic.root], True)
        (refused,) = nodes.refused
        assert [node.id for node in nodes.nodes] == ["node-a"] and len(nodes.nodes[0].rounds) == 6
        assert refused["file"] == str(line[0]) and line[1] in refused["reason"]


def test_files_beside_the_tables_are_named_and_not_read(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_node_folder(synthetic)
    (tmp_path / "results (1).parquet").write_bytes(CUT)
    gather([synthetic.root], tmp_path, allow_synthetic=True)
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert "results (1).parquet" in note and "none is read" in note
    assert len(read_summary(tmp_path)) == 3


@pytest.mark.parametrize("batch", [1, 8])
def test_gathered_tables_have_one_experiment_per_row_group(
    synthetic: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("report.data.gather.BATCH", batch)
    for name in ("node-a", "node-b", "node-c"):
        write_node_folder(synthetic, name)
    gather([synthetic.root], tmp_path, allow_synthetic=True)
    with parquet.ParquetFile(tmp_path / "samples.parquet") as file:
        groups = [set(file.read_row_group(index)["experiment"].to_pylist()) for index in range(file.num_row_groups)]
    assert all(len(experiments) == 1 for experiments in groups) and len(groups) == {1: 6, 8: 2}[batch]
    columns = ["node", "experiment", "params", "metric", "round", "sample"]
    expected = read_nodes([synthetic.root], True).samples().sort_values(columns, ignore_index=True)
    samples = _read_samples(tmp_path, (), (), ()).sort_values(columns, ignore_index=True)
    assert samples["node"].tolist() == expected["node"].tolist()
    assert samples["value"].to_numpy() == pytest.approx(expected["value"].to_numpy())
    summary = read_summary(tmp_path)
    assert summary["row"].tolist() == list(range(len(summary)))
    assert summary["node"].astype(str).is_monotonic_increasing


def test_files_refused_for_one_reason_share_a_warning(synthetic: Factory, capsys: pytest.CaptureFixture[str]) -> None:
    write_node_folder(synthetic)
    files = sorted((write_node_folder(synthetic, "node-b")).glob("*.parquet"))
    for path in files:
        path.write_bytes(b"cut off")
    for count, rest in ((len(files), f"{len(files) - 1} others"), (3, "2 others"), (2, "1 other")):
        for path in files[count:]:
            path.unlink(missing_ok=True)
        assert len(read_nodes([synthetic.root], True).refused) == count
        (warning,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
        assert warning.startswith(f"warning: left out: {files[0]} and {rest}: cannot be read as Parquet")
