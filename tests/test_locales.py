"""Test commands in locales other than UTF-8: output, input and file names."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from contract.errors import run_command
from experiments.cli import main as experiments
from report.cli import main as report

from .report.conftest import Factory

ROOT = Path(__file__).parents[1]
# ASCII locale, with Python's UTF-8 coercion off.
PLAIN = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONWARNDEFAULTENCODING": "1"}


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "euc-jp"])
@pytest.mark.parametrize(("command", "words"), [(experiments, ["list"]), (report, ["quantities"])])
def test_unprintable_output_is_escaped(
    command: Callable[..., int], words: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", shown)
    text = "20–30 µs, 日本, \udcfc"

    def main(argv: Sequence[str] | None) -> int:
        print(text)
        return command(argv)

    assert run_command(main, words) == 0
    monkeypatch.undo()
    shown.seek(0)
    first, *rest = shown.read().splitlines()
    assert first == text.encode(encoding, "backslashreplace").decode(encoding)
    assert len(rest) > 10


def run_module(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=cwd, env=os.environ | PLAIN | {"PYTHONPATH": str(ROOT)},
        capture_output=True, encoding="ascii", check=False,
    )  # fmt: skip


def test_files_get_their_given_names(tmp_path: Path) -> None:
    """Libraries that take paths as UTF-8 once wrote to files with other names, without an error."""
    # Marked as measured, since the commands refuse synthetic data.
    Factory(tmp_path / "größe")("node-a", origin="measured").gemm(27.9).write()
    gathered = run_module("report", "gather", "--nodes", "größe", "--out", "データ", cwd=tmp_path)
    assert gathered.returncode == 0, gathered.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"größe", "データ"}
    assert json.loads((tmp_path / "データ" / "nodes.json").read_text(encoding="utf-8"))[0]["source"] == "größe"
    assert (tmp_path / "データ" / "samples.parquet").stat().st_size > 1000


def test_no_file_uses_locale_encoding(tmp_path: Path) -> None:
    preset = "{rounds: 1, target: 0.5, point_s: 0.1, round_s: 5, max_samples: 6, experiments: {clock: {sweep: [{grid: "
    preset += "{backend: [llvm], threads: [1], chain: [1000]}}]}}}  # µ"
    (tmp_path / "kurz–.yaml").write_text(preset, encoding="utf-8")
    done = run_module("experiments", "plan", "--preset", "kurz–.yaml", "--out", "plän.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # Ignore warnings from libraries in an environment that lies inside this folder.
    warned = [line for line in done.stderr.splitlines() if "EncodingWarning" in line and str(ROOT) in line]
    assert [line for line in warned if "site-packages" not in line] == []
    assert json.loads((tmp_path / "plän.json").read_text(encoding="utf-8"))["preset"] == "kurz–.yaml"
