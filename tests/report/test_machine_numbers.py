"""Test a machine's five numbers, and a page in one file."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from contract.errors import StudyError
from report.commands.machine_numbers import print_numbers
from report.commands.overview import overview_lines
from report.pages.embedded_page import embed_page

ROW = {
    "node": "a", "experiment": "gemm", "device": "cpu", "backend": "torch", "dtype": "float32", "metric": "time",
    "status": "ok", "estimate": 1e-3, "low": 0.9e-3, "high": 1.1e-3, "flop_per_s": 2e12, "bytes_per_s": None,
    "items_per_s": None, "item": None, "m": 1024, "n": 1024, "k": 1024, "n_rounds": 3, "n_disturbed": 0,
}  # fmt: skip


def write_data(folder: Path, *rows: dict[str, object]) -> None:
    about = {"a": ("My machine", "results/nodes"), "b": ("Published", "data/nodes")}
    records = [
        {"id": name, "label": label, "source": source, "started_utc": "2026-11-29T01:00:00Z"}
        for name, (label, source) in about.items()
    ]
    (folder / "nodes.json").write_text(json.dumps(records))
    pl.DataFrame([{**ROW, **row} for row in rows]).write_parquet(folder / "results.parquet")


def test_best_result_by_device_has_an_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path, {}, {"flop_per_s": 1e12, "dtype": "float64"}, {"device": "cuda:0", "flop_per_s": 9e13},
               {"node": "b", "flop_per_s": 7e15}, {"status": "failed", "flop_per_s": 8e15})  # fmt: skip
    print_numbers(tmp_path, [])
    title, cpu, gpu = capsys.readouterr().out.splitlines()
    assert title == "My machine: a"
    assert cpu.split()[2:7] == ["cpu", "2.00", "[1.82,", "2.22]", "TFLOP/s"] and "float32" in cpu
    assert gpu.split()[2:4] == ["cuda:0", "90.0"]


def test_request_is_the_fastest_with_one_item(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = {"experiment": "inference", "model": "resnet-50", "batch": 1}
    write_data(tmp_path, {**request, "backend": "openvino"}, {**request, "estimate": 5e-3, "backend": "torch"},
               {**request, "batch": 64, "estimate": 1e-4}, {**request, "model": "mlp", "estimate": 1e-6})  # fmt: skip
    print_numbers(tmp_path, ["a"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "request" in line]
    assert "1.00 [0.90, 1.10] ms" in line and "openvino" in line


def test_unknown_node_is_refused_and_empty_machine_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path, {"node": "b"})
    print_numbers(tmp_path, [])
    assert "nothing measured yet" in capsys.readouterr().out
    with pytest.raises(StudyError, match="no node c in"):
        print_numbers(tmp_path, ["c"])


def test_overview_compares_this_machine_and_names_noise_and_report(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    training = {"experiment": "training", "item": "sample"}
    write_data(tmp_path / "data", {}, {"node": "b", "flop_per_s": 1e12}, {"node": "b", "flop_per_s": 3e12},
               {**training, "model": "cnn", "items_per_s": 100.0, "n_disturbed": 2},
               {**training, "model": "bert-base", "items_per_s": 10.0, "node": "b"})  # fmt: skip
    lines = list(overview_lines(tmp_path, {"supported": 2, "depends": 0, "challenged": 1}))
    assert lines[0] == "this machine, My machine: its best results, and on the right the best of each published machine"
    assert lines[1].split()[2:7] == ["cpu", "2.00", "[1.82,", "2.22]", "TFLOP/s"]
    assert lines[1].endswith("3.00 TFLOP/s on 1 machine")
    assert lines[2].split()[0] == "training" and lines[2].endswith("not measured there")
    assert lines[3].startswith("noise: other processes disturbed 1 of 2 results in most rounds (training 1)")
    claims, pack, report = lines[-3:]
    assert claims == "3 claims: 2 supported, 1 challenged"
    assert pack.endswith(f"python -m experiments pack {tmp_path}/nodes")
    assert report == f"report: {tmp_path}/report/index.html"


def test_page_in_one_file_needs_no_others(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/study.css").write_text("p { color: red }")
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "index.html").write_text(
        '<link rel="icon" href="site/icon.svg"><link rel="stylesheet" href="site/study.css">'
        '<p><a href="claims/W15.html">told</a> <a href="https://example.org/">source</a>'
        '<source srcset="a.svg"><img src="a.svg"></p><script src="site/page.js"></script>'
    )
    embed_page(tmp_path / "index.html", tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text()
    assert "<style>p { color: red }</style>" in text and text.count("data:image/svg+xml;base64,") == 2
    assert '<a>told</a> <a href="https://example.org/">' in text and "site/" not in text
    with pytest.raises(StudyError, match="render the report first"):
        embed_page(tmp_path / "none.html", tmp_path / "out.html")
