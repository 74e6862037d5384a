"""Test that GitHub's workflow files and forms are valid, and safe with untrusted pull requests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from experiments.pack_node import MADE
from report.cli import parser

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").iterdir())
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").iterdir())
SCHEMAS = {"vendor.github-workflows": WORKFLOWS, "custom.github-workflows-require-timeout": WORKFLOWS,
           "vendor.github-issue-forms": FORMS}  # fmt: skip


def read_file(path: Path) -> dict[str, Any]:
    return dict(YAML(typ="safe").load(path.read_text(encoding="utf-8")))


def workflow_steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_match_github_schemas(schema: str) -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_shell_steps_are_safe(path: Path) -> None:
    workflow = read_file(path)
    uses = [step["uses"] for step in workflow_steps(workflow) if "uses" in step]
    assert uses
    for name in uses:
        assert re.fullmatch(r"(actions|quarto-dev)/[\w/-]+@[0-9a-f]{40}", name), name
    assert not any("${{" in step.get("run", "") for step in workflow_steps(workflow)), (
        "values come through the environment"
    )
    assert workflow["permissions"] == {}
    checkouts = [step for step in workflow_steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts or path.stem == "node-comment", "only the comment needs no file"
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_actionlint_finds_nothing() -> None:
    # It checks the shell steps by shellcheck, which is beside it.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["actionlint"], cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_bot_updates_actions_and_pins() -> None:
    updates = read_file(GITHUB / "dependabot.yml")["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}


def test_comment_shows_text_of_the_same_commit_only(tmp_path: Path) -> None:
    (script,) = [
        step["run"] for step in workflow_steps(read_file(GITHUB / "workflows/node-comment.yml")) if "run" in step
    ]
    tools = tmp_path / "bin"
    tools.mkdir()
    # Stand-in for GitHub's command: it tells a commit, and keeps the arguments of a comment.
    (tools / "gh").write_text('#!/bin/bash\n[ "$2" = view ] && echo abc || echo "$@" > said\n')
    (tools / "gh").chmod(0o755)

    def run_script(number: str, head: str) -> int:
        (tmp_path / "number").write_text(number)
        (tmp_path / "answer.txt").write_text("~~~\n@someone ![x](http://example.org)\n")
        (tmp_path / "said").unlink(missing_ok=True)
        env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "HEAD": head}
        words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, check=False).returncode

    assert run_script("12\n", "abc") == 0
    assert (tmp_path / "said").read_text().startswith("pr comment 12 ")
    _, _, text = (tmp_path / "comment.md").read_text().partition("\n\n")
    assert all(line.startswith("    ") for line in text.splitlines())
    for number, head in (("12", "def"), ("12; touch x", "abc"), ("", "abc"), ("-1", "abc")):
        assert run_script(number, head) and not (tmp_path / "said").exists()


@pytest.fixture
def node() -> dict[str, Any]:
    return read_file(GITHUB / "workflows" / "node.yml")


def test_packs_are_checked_by_target_branch_without_write_permission(node: dict[str, Any]) -> None:
    assert set(node[True if True in node else "on"]) == {"pull_request"}
    assert [job["permissions"] for job in node["jobs"].values()] == [{"contents": "read"}]
    assert "secrets" not in (GITHUB / "workflows" / "node.yml").read_text(encoding="utf-8").replace("no secrets", "")
    trusted, packs = (
        step["with"] for step in workflow_steps(node) if step.get("uses", "").startswith("actions/checkout@")
    )
    assert trusted["ref"] == "${{ github.event.pull_request.base.sha }}" and "path" not in trusted
    assert packs["ref"] == "${{ github.event.pull_request.head.sha }}" and packs["path"] == "handed-in"
    assert (packs["sparse-checkout"], packs["sparse-checkout-cone-mode"]) == ("/data/incoming/*.zip", False)
    installs = [step["run"] for step in workflow_steps(node) if "pip install" in step.get("run", "")]
    assert len(installs) == 1 and "handed-in" not in installs[0]


def run_check(node: dict[str, Any], folder: Path, *names: str) -> tuple[int, list[list[str]], str]:
    """Run the checking step on incoming files with these names; return its exit code, commands and summary page."""
    (script,) = [step["run"] for step in workflow_steps(node) if step.get("name") == "Check"]
    incoming, summary, tools = folder / "handed-in" / "data" / "incoming", folder / "summary", folder / "bin"
    for path in (incoming, tools):
        path.mkdir(parents=True)
    for name in names:
        (incoming / name).write_text("")
    summary.touch()
    # This stand-in for Python logs its arguments, and fails for packs with `bad` in their name.
    (tools / "python").write_text(
        '#!/bin/bash\nprintf "%q " "$@" >> said; echo >> said; echo told; ! [[ "$*" == *bad* ]]\n'
    )
    (tools / "python").chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)}
    # GitHub runs a shell step with these options.
    words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    log = folder / "said"
    commands = [shlex.split(line) for line in log.read_text().splitlines()] if log.exists() else []
    return done.returncode, commands, summary.read_text()


def test_refused_pack_fails_the_check(node: dict[str, Any], tmp_path: Path) -> None:
    code, commands, page = run_check(node, tmp_path, "a-2c.zip", "bad-2c.zip", "c-2c.zip")
    assert code == 1 and page.count("told") == 3 and "### bad-2c.zip" in page
    arguments = [parser().parse_args(words[2:]) for words in commands if words[:2] == ["-m", "report"]]
    assert [args.pack.name for args in arguments] == ["a-2c.zip", "bad-2c.zip", "c-2c.zip"]
    assert all(args.command == "add" and args.dry_run for args in arguments)


def test_good_or_no_packs_pass(node: dict[str, Any], tmp_path: Path) -> None:
    assert run_check(node, tmp_path / "good", "a-2c.zip")[0] == 0
    code, commands, page = run_check(node, tmp_path / "none", "README.md")
    assert (code, commands) == (0, []) and "no pack" in page


@pytest.mark.parametrize(
    "name", ["$(touch x).zip", "a b.zip", "::error::a.zip", "-x.zip", "\x1b[2J.zip", "`x`.zip", "a\n.zip"]
)
def test_invalid_name_reaches_no_command_or_page(node: dict[str, Any], tmp_path: Path, name: str) -> None:
    code, commands, page = run_check(node, tmp_path, name)
    assert (code, commands) == (1, []) and name not in page and "not called as" in page
    assert not (tmp_path / "x").exists()


def test_form_matches_pack_message_and_asks_for_consent() -> None:
    form = read_file(GITHUB / "ISSUE_TEMPLATE" / "hand-in-a-node.yml")
    assert f'"{form["name"]}"' in MADE
    required = {item["id"] for item in form["body"] if item.get("validations", {}).get("required")}
    assert required == {"machine", "pack", "load", "doctor"}
    (consent,) = next(item for item in form["body"] if item.get("id") == "consent")["attributes"]["options"]
    assert consent["required"] and "CC BY 4.0" in consent["label"]
