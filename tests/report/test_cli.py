"""The commands as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract.errors import StudyError
from report.cli import main, parser
from report.data.gather import gather
from report.judging.judge import CLAIMS

from .conftest import Factory

ROOT = Path(__file__).parents[2]


def typed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "report", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def measured(synthetic: Factory) -> Factory:
    """One node that calls itself measured, for the commands refuse synthetic data."""
    synthetic("node-a", origin="measured").gemm(27.9).gemm(14, n=256).clock().write()
    return synthetic


def test_gather_judge_summary_and_explain(measured: Factory, tmp_path: Path) -> None:
    empty = tmp_path / "published"
    empty.mkdir()
    assert main(["gather", "--nodes", str(measured.root), str(empty), "--out", str(tmp_path / "data")]) == 0
    assert (tmp_path / "data" / "summary.parquet").exists()
    out = tmp_path / "v" / "verdicts.json"
    assert main(["judge", "--data", str(tmp_path / "data"), "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert len(document["verdicts"]) == len(list(CLAIMS.glob("*.yaml"))) and document["origin"] == "measured"
    assert out.with_suffix(".csv").exists()
    counted = typed("summary", "--verdicts", out)
    assert counted.returncode == 0 and "challenged" in counted.stdout and "node: Synthetic, 2 cores" in counted.stdout
    told = typed("explain", "W15", "--verdicts", out)
    assert told.returncode == 0 and "W15: CHALLENGED" in told.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["judge", "--data", "nowhere", "--out", "{tmp}/v.json"], "nowhere/summary.parquet: no such file"),
        (["gather", "--nodes", "nowhere", "--out", "{tmp}/data"], "no usable node under nowhere"),
        (["summary", "--verdicts", "{tmp}/v.json"], "no such file"),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(tmp_path: Path, words: list[str], said: str) -> None:
    done = typed(*(word.format(tmp=tmp_path) for word in words))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_synthetic_data_cannot_be_judged_from_the_command_line(synthetic: Factory, tmp_path: Path) -> None:
    synthetic("node-a").clock().write()
    gathered = typed("gather", "--nodes", synthetic.root, "--out", tmp_path / "data")
    assert gathered.returncode == 2 and "synthetic data is for tests only" in gathered.stderr
    gather([synthetic.root], tmp_path / "data", allow_synthetic=True)
    done = typed("judge", "--data", tmp_path / "data", "--out", tmp_path / "v.json")
    assert done.returncode == 2 and "synthetic, which are for tests only" in done.stderr


def test_equal_data_are_judged_equally_whatever_order_sets_have(published: Path, tmp_path: Path) -> None:
    # The published nodes were judged in this process, whose hashes are of another seed.
    out = tmp_path / "verdicts.json"
    command = [sys.executable, "-m", "report", "judge", "--data", str(published / "data"), "--out", str(out)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "1"}, check=True, capture_output=True)
    judged = [json.loads(path.read_text(encoding="utf-8")) for path in (out, published / "verdicts.json")]
    for document in judged:
        for name in ("generated_utc", "made_from"):
            del document[name]
    assert json.dumps(judged[0]) == json.dumps(judged[1])


def test_light_commands_load_no_data_libraries(tmp_path: Path) -> None:
    document = {"verdicts": [], "nodes": [], "refused": []}
    (tmp_path / "v.json").write_text(json.dumps(document))
    script = (
        "import sys; from report.cli import main; "
        f"main(['summary', '--verdicts', {str(tmp_path / 'v.json')!r}]); "
        "heavy = {'pandas', 'numpy', 'scipy', 'pyarrow', 'matplotlib'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["gather", "judge", "render", "summary", "explain"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        parser().parse_args([command, "--help"])
    assert leaving.value.code == 0 and command in capsys.readouterr().out


def test_an_unknown_renderer_is_refused() -> None:
    with pytest.raises(StudyError, match="argument --renderer: invalid choice: 'word'"):
        parser().parse_args(["render", "--verdicts", "v.json", "--out", "d", "--renderer", "word"])
