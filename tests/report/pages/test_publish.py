"""The publishing workflow: valid commands and minimal permissions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from report.cli import parser

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github" / "workflows" / "publish.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return dict(YAML(typ="safe").load(WORKFLOW.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def python_commands(steps: list[dict[str, Any]]) -> list[list[str]]:
    """Split each `python -m …` command into arguments; the shell's variables stay unexpanded."""
    lines = [line for step in steps for line in step.get("run", "").replace("\\\n", " ").splitlines()]
    commands = [
        shlex.split(line.replace('${PREVIOUS:+--previous "$PREVIOUS"}', "--previous editions.json"))
        for line in lines
        if line.strip()
    ]
    return [words[2:] for words in commands if words[:2] == ["python", "-m"]]


def test_report_parses_every_command(steps: list[dict[str, Any]]) -> None:
    commands = python_commands(steps)
    assert {words[0] for words in commands} == {"report"}, "nothing is measured on a shared machine"
    assert [words[1] for words in commands] == ["gather", "judge", "summary", "render", "dataset", "site", "lint"]
    for words in commands:
        words = ["pandoc" if word == "$RENDERER" else word for word in words]
        parser().parse_args(words[1:])
    (gather,) = [words for words in commands if words[1] == "gather"]
    assert (ROOT / gather[gather.index("--nodes") + 1]).is_dir()


def test_jobs_have_minimal_permissions(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["build"]["permissions"] == {"contents": "read", "pages": "read"}
    assert workflow["jobs"]["publish"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert not any("uses" in step and "checkout" in step["uses"] for step in workflow["jobs"]["publish"]["steps"])
    assert all(job["timeout-minutes"] <= 30 for job in workflow["jobs"].values())
