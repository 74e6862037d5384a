"""Test path arguments that begin with `~`."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.arguments import expand_home, parse_path
from contract.errors import run_command
from experiments.cli import main as experiments
from report.cli import main as report


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_expand_home_leaves_other_names_unchanged(home: Path) -> None:
    assert parse_path("~/a b/x") == home / "a b/x"
    assert expand_home("~") == str(home)
    for name in ("results", "./~x", "a/~/x", "$HOME/x", ""):
        assert expand_home(name) == name


@pytest.mark.parametrize("name", ["~nobody-here/x", "~+", "~-/x"])
def test_expand_home_refuses_unknown_user_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    commands = (
        (experiments, ["check", f"--preset={name}"]),
        (report, ["gather", "--nodes=x", "--out", name]),
        (report, ["summary", f"--verdicts={name}"]),
    )
    for command, words in commands:
        assert run_command(command, words) == 2
        stderr = capsys.readouterr().err
        assert stderr.startswith(f"error: {name}: no home folder is known for ~") and stderr.count("\n") == 1


def test_commands_expand_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = home / "mine.yaml"
    mine.write_text(
        "{rounds: 1, target: 0.5, point_s: 0.1, round_s: 5, max_samples: 6, experiments: {clock: {sweep: [{grid: "
        "{backend: [llvm], threads: [1], chain: [1000]}}]}}}",
        encoding="utf-8",
    )
    assert experiments(["plan", "--preset=~/mine.yaml", "--cores=2", "--out=~/new/plan.json"]) == 0
    assert (home / "new" / "plan.json").is_file()
    assert experiments(["check", "--preset", "~/mine.yaml"]) == 0
    assert str(mine) in capsys.readouterr().out
