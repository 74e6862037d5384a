"""Command line: a run through the commands, their help and their error messages."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contract.errors import run_command
from report.cli import main, parser
from report.judging.judge import CLAIMS
from report.outcomes import verdict_name
from report.quantities import quantities
from report.verdicts import EDITIONS, newest_edition

from .conftest import ROOT, Factory

HEAVY = {"pandas", "numpy", "scipy", "pyarrow", "matplotlib", "polars"}


def run_report(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "report", *map(str, words)]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_gather_judge_summary_and_explain(
    synthetic: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The commands refuse synthetic data, so label the node measured.
    synthetic("node-a", origin="measured").gemm(27.9).gemm(14, n=256).clock().write()
    empty = tmp_path / "published"
    empty.mkdir()
    data, out = tmp_path / "data", tmp_path / "v" / "verdicts.json"
    assert main(["gather", "--nodes", str(synthetic.root), str(empty), "--out", str(data)]) == 0
    assert main(["judge", "--data", str(data), "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert len(document["verdicts"]) == len(list(CLAIMS.glob("*.yaml"))) and document["origin"] == "measured"
    with out.with_suffix(".csv").open() as file:
        rows = [(row["id"], row["verdict"], row["estimate"]) for row in csv.DictReader(file)]
    expected = ((verdict["id"], verdict["verdict"], verdict["estimate"]) for verdict in document["verdicts"])
    assert rows == [(*names, "" if estimate is None else str(estimate)) for *names, estimate in expected]
    # Another hash seed changes set order, which must not change the output.
    rerun = run_report("judge", "--data", data, "--out", tmp_path / "again.json", PYTHONHASHSEED="1")
    assert rerun.returncode == 0, rerun.stderr
    rerun_document = json.loads((tmp_path / "again.json").read_text())
    assert json.dumps(rerun_document | {"generated_utc": ""}) == json.dumps(document | {"generated_utc": ""})
    capsys.readouterr()
    assert main(["summary", "--verdicts", str(out)]) == 0
    summary = capsys.readouterr().out
    assert "node: Synthetic, 2 cores" in summary
    row = next(line.split() for line in summary.splitlines() if line.startswith("Challenged"))
    *articles, total, questions = map(int, row[1:])
    assert total == document["tally"]["challenged"] == sum(articles)
    assert questions == sum(question["verdict"] == "challenged" for question in document["questions"])
    assert main(["explain", "W15", "--verdicts", str(out)]) == 0
    assert "W15: CHALLENGED" in capsys.readouterr().out


def test_commands_without_a_study_show_the_newest_edition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    number = newest_edition()
    verdicts = json.loads((EDITIONS / str(number) / "verdicts.json").read_text())["verdicts"]
    assert main(["summary"]) == 0
    out, err = capsys.readouterr()
    assert f"edition {number}" in err and len(err.splitlines()) == 1 and str(len(verdicts)) in out
    for verdict in verdicts:
        assert main(["explain", verdict["id"]]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"{verdict['id']}: {verdict_name(verdict['verdict'], reason=True).upper()}")
        assert " ".join(verdict["says"].split())[:80] in " ".join(out.split())
        assert f"claims/{verdict['id']}.html" in out and len(out.splitlines()) <= 12, out
        assert all(len(line) <= 100 for line in out.splitlines() if " page " not in line)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["judge", "--data", "nowhere", "--out", "{tmp}/v.json"], "nowhere/results.parquet: no such file"),
        (["gather", "--nodes", "nowhere", "--out", "{tmp}/data"], "no usable node under nowhere"),
        (["summary", "--verdicts", "{tmp}/v.json"], "no such file. `make study` writes it"),
        (["summary", "--verdicts", "{tmp}/list.json"], "holds no verdicts"),
        (["quantities", "gem.rate"], "no quantity matches 'gem.rate'. Did you mean 'gemm.rate'?"),
        (["render", "--verdicts", "v.json", "--out", "d", "--renderer", "word"], "invalid choice: 'word'"),
    ],
)
def test_user_errors_print_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "list.json").write_text("[]")
    assert run_command(main, [word.format(tmp=tmp_path) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and message in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("words", [("summary",), ("explain", "N01"), ("explain", "N01", "--all")])
def test_commands_on_verdicts_import_no_data_libraries(
    small_study: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    # Copy only the verdicts, because the commands would load rows from data/ if it were beside the verdicts.
    verdicts = tmp_path / "verdicts.json"
    verdicts.write_bytes((small_study / "verdicts.json").read_bytes())
    script = (
        "import sys; from report.cli import main; "
        f"main([*{words!r}, '--verdicts', {str(verdicts)!r}]); "
        f"heavy = {HEAVY!r} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^    ([a-z-]+)", parser().format_help(), re.MULTILINE)
    assert {"gather", "judge", "explain", "new-claim"} <= set(commands)
    for command in commands:
        with pytest.raises(SystemExit) as exit_info:
            main([command, "--help"])
        assert exit_info.value.code == 0 and f"report {command}" in capsys.readouterr().out


def test_quantities_are_listed_with_unit_tier_and_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantities"]) == 0
    listing = capsys.readouterr().out
    assert all(f"{name}  [" in listing for name in quantities())
    assert main(["quantities", "gemm.rate"]) == 0
    head, *text = capsys.readouterr().out.splitlines()
    assert head == "gemm.rate  [FLOP/s; measured]" and "labels: node, device, dtype" in "".join(text)
