"""Results of two protocols are never joined: not within a node, nor over machines of one kind."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from pyarrow import parquet

from contract.errors import StudyError
from contract.sample_table import read_samples
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.node_reader import read_nodes
from tests.report.conftest import Factory


def set_protocol(folder: Path, pattern: str = "*", **about: object) -> None:
    """Change the metadata of a node's rounds."""
    for path in folder.glob(f"{pattern}.parquet"):
        table = parquet.read_table(path)
        known = json.loads(table.schema.metadata[b"study"])
        changed = json.dumps({**known, "schema": 2, **about}).encode()
        parquet.write_table(table.replace_schema_metadata({b"study": changed}), path)


def test_results_say_their_protocol(synthetic: Factory, tmp_path: Path) -> None:
    node = synthetic("node-a").gemm(20).clock()
    node.point("training", 1e-3).point("training", 5e6, metric="peak_memory", unit="B")
    folder = node.write()
    set_protocol(folder, protocol=3)
    set_protocol(folder, "training.*", protocol=1, metric_protocols={"peak_memory": 2})
    gather([folder], tmp_path / "data", allow_synthetic=True)
    rows = pl.read_parquet(tmp_path / "data" / "results.parquet").select("experiment", "metric", "protocol").unique()
    protocols = {(experiment, metric): protocol for experiment, metric, protocol in rows.iter_rows()}
    assert protocols["training", "time"] == 1 and protocols["training", "peak_memory"] == 2
    assert protocols["gemm", "time"] == 3
    assert set(pl.read_parquet(tmp_path / "data" / "runs.parquet")["protocol"]) == {1, 3}


def test_rounds_of_an_older_protocol_are_left_out_of_a_node(synthetic: Factory) -> None:
    folder = synthetic("node-a").gemm(20).clock().write()
    set_protocol(folder, protocol=1)
    set_protocol(folder, "gemm.cpu.[23]", protocol=2)
    nodes = read_nodes([folder], True)
    (refused,) = nodes.refused
    assert Path(refused["file"]).name == "gemm.cpu.1.parquet"
    assert refused["reason"] == "holds protocol 1 of gemm, other rounds of this node hold 2: they never mix"
    samples = nodes.samples()
    assert set(samples[samples["experiment"] == "gemm"]["round"]) == {2, 3}
    assert set(samples[samples["experiment"] == "clock"]["round"]) == {1, 2, 3}


def test_machines_of_one_kind_are_pooled_under_their_newest_protocol_alone(synthetic: Factory, tmp_path: Path) -> None:
    old = synthetic("node-a.000001", seed=1).gemm(20).clock().write()
    new = synthetic("node-a.000002", seed=2).gemm(10).clock().write()
    other = synthetic("node-b").gemm(5).write()
    set_protocol(old, protocol=1)
    set_protocol(new, protocol=1)
    set_protocol(new, "gemm.*", protocol=2)
    set_protocol(other, protocol=1)
    gather([old, new, other], tmp_path / "data", allow_synthetic=True)
    data = read_dataset(tmp_path / "data")
    assert data.superseded_results == {("node-a.000001", "gemm", "time")}
    assert set(data.summary("gemm")["node"]) == {"node-a.000002", "node-b"}, "other kinds are not pooled with it"
    assert set(data.summary("clock", "clock")["node"]) == {"node-a.000001", "node-a.000002"}
    for columns in ((), ("node", "value"), ("value", "metric", "node")):
        samples = data.samples("gemm", "clock", columns=columns)
        assert len(samples) == len(data.samples("gemm", "clock"))
        assert not columns or list(samples.columns) == list(columns)
    assert "node-a.000001" not in set(data.samples("gemm")["node"])


def test_round_without_protocol_is_refused_in_the_newer_format(synthetic: Factory) -> None:
    folder = synthetic("node-a").gemm(20).write()
    path = folder / "gemm.cpu.1.parquet"
    set_protocol(folder, "gemm.cpu.1")
    with pytest.raises(StudyError, match=r"gemm\.cpu\.1\.parquet: metadata 'study'.*protocol"):
        read_samples(path)
