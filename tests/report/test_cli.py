"""The commands as a person types them."""

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
from report.quantities import quantities

from .conftest import ROOT, Factory

HEAVY = {"pandas", "numpy", "scipy", "pyarrow", "matplotlib", "polars"}


def run_report(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "report", *map(str, words)]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_gather_judge_anew_summary_and_explain(synthetic: Factory, tmp_path: Path) -> None:
    # It calls itself measured, for the commands refuse synthetic data.
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
    told = ((verdict["id"], verdict["verdict"], verdict["estimate"]) for verdict in document["verdicts"])
    assert rows == [(*names, "" if estimate is None else str(estimate)) for *names, estimate in told]
    # Sets have another order in a process whose hashes are of another seed.
    again = run_report("judge", "--data", data, "--out", tmp_path / "again.json", PYTHONHASHSEED="1")
    assert again.returncode == 0, again.stderr
    other = json.loads((tmp_path / "again.json").read_text())
    assert json.dumps(other | {"generated_utc": ""}) == json.dumps(document | {"generated_utc": ""})
    counted = run_report("summary", "--verdicts", out)
    assert counted.returncode == 0 and "node: Synthetic, 2 cores" in counted.stdout
    row = next(line.split() for line in counted.stdout.splitlines() if line.startswith("challenged"))
    *articles, total, questions = map(int, row[1:])
    assert total == document["tally"]["challenged"] == sum(articles)
    assert questions == sum(question["verdict"] == "challenged" for question in document["questions"])
    told = run_report("explain", "W15", "--verdicts", out)
    assert told.returncode == 0 and "W15: CHALLENGED" in told.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["judge", "--data", "nowhere", "--out", "{tmp}/v.json"], "nowhere/summary.parquet: no such file"),
        (["gather", "--nodes", "nowhere", "--out", "{tmp}/data"], "no usable node under nowhere"),
        (["summary", "--verdicts", "{tmp}/v.json"], "no such file. `make study` writes it"),
        (["summary", "--verdicts", "{tmp}/list.json"], "holds no verdicts"),
        (["quantities", "gem.rate"], "no quantity matches 'gem.rate'. Did you mean 'gemm.rate'?"),
        (["render", "--verdicts", "v.json", "--out", "d", "--renderer", "word"], "invalid choice: 'word'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    (tmp_path / "list.json").write_text("[]")
    assert run_command(main, [word.format(tmp=tmp_path) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and said in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("words", [("summary",), ("explain", "N01")])
def test_commands_that_only_read_verdicts_load_no_data_libraries(
    small_study: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    # Beside them are no data, whose rows would be read.
    verdicts = tmp_path / "verdicts.json"
    verdicts.write_bytes((small_study / "verdicts.json").read_bytes())
    script = (
        "import sys; from report.cli import main; "
        f"main([*{words!r}, '--verdicts', {str(verdicts)!r}]); "
        f"heavy = {HEAVY!r} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^    ([a-z-]+)", parser().format_help(), re.MULTILINE)
    assert {"gather", "judge", "explain", "new-claim"} <= set(commands)
    for command in commands:
        with pytest.raises(SystemExit) as leaving:
            main([command, "--help"])
        assert leaving.value.code == 0 and f"report {command}" in capsys.readouterr().out


def test_quantities_are_listed_with_unit_tier_and_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantities"]) == 0
    told = capsys.readouterr().out
    assert all(f"{name}  [" in told for name in quantities())
    assert main(["quantities", "gemm.rate"]) == 0
    head, *text = capsys.readouterr().out.splitlines()
    assert head == "gemm.rate  [FLOP/s; measured]" and "labels: node, device, dtype" in "".join(text)
