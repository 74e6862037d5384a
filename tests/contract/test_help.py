"""Test the help of the command lines: every command is in a group, and every example is valid."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import experiments.cli
import report.cli

PROGRAMS = [(report.cli.parser, report.cli.GROUPS), (experiments.cli.make_parser, experiments.cli.GROUPS)]


def subparsers(parser: argparse.ArgumentParser) -> Mapping[str, Any]:
    (action,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return action.choices


@pytest.mark.parametrize(("make", "groups"), PROGRAMS)
def test_help_lists_each_command_once_with_its_description(make: Any, groups: Mapping[str, Sequence[str]]) -> None:
    parser = make()
    commands = subparsers(parser)
    assert sorted(name for names in groups.values() for name in names) == sorted(commands)
    text = parser.format_help()
    for name, command in commands.items():
        assert sum(line.split()[:1] == [name] for line in text.splitlines()) == 1
        assert " ".join(command.description.split()) in " ".join(text.split())
    assert all(f"\n{title}:\n" in text for title in groups)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("make", "groups"), PROGRAMS)
def test_examples_in_help_are_valid(make: Any, groups: Mapping[str, Sequence[str]]) -> None:
    parser = make()
    examples = {example: name for name, command in subparsers(parser).items() for example in command.examples}
    assert len(examples) > 4
    for example, name in examples.items():
        words = shlex.split(example.removeprefix(parser.prog))
        assert vars(parser.parse_args(words))["command"] == name
        assert example in subparsers(parser)[name].format_help()


@pytest.mark.parametrize("script", ["edition.sh", "measure-offline.sh", "measure-over-ssh.sh"])
def test_help_of_a_script_is_its_first_comment_with_an_example(script: str) -> None:
    path = Path(__file__).parents[2] / "workflow" / script
    done = subprocess.run(["bash", path, "--help"], capture_output=True, text=True, check=True)
    assert f"bash workflow/{script}" in done.stdout and done.stderr == ""
    assert all(f"# {line}" in path.read_text() for line in done.stdout.splitlines())
