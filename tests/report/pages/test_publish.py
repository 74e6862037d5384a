"""The workflow that publishes: of the shape that GitHub reads, with commands that are there, and few permissions."""

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


def commands(steps: list[dict[str, Any]]) -> list[list[str]]:
    """Every `python -m …` of the workflow in words, what the shell fills in standing as it is."""
    lines = [line for step in steps for line in step.get("run", "").replace("\\\n", " ").splitlines()]
    found = [shlex.split(line.replace("${PREVIOUS:-}", "--previous editions.json")) for line in lines if line.strip()]
    return [words[2:] for words in found if words[:2] == ["python", "-m"]]


def test_every_command_is_one_that_the_report_knows(steps: list[dict[str, Any]]) -> None:
    known = commands(steps)
    assert {words[0] for words in known} == {"report"}, "nothing is measured on a shared machine"
    assert [words[1] for words in known] == ["gather", "judge", "summary", "render", "site", "lint"]
    for words in known:
        words = ["pandoc" if word == "$RENDERER" else word for word in words]
        parser().parse_args(words[1:])
    (gather,) = [words for words in known if words[1] == "gather"]
    assert (ROOT / gather[gather.index("--nodes") + 1]).is_dir()


def test_each_job_has_no_more_permissions_than_it_needs(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["build"]["permissions"] == {"contents": "read", "pages": "read"}
    assert workflow["jobs"]["publish"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert not any("uses" in step and "checkout" in step["uses"] for step in workflow["jobs"]["publish"]["steps"])
    assert all(job["timeout-minutes"] <= 30 for job in workflow["jobs"].values())
