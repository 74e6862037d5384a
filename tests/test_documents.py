"""What the documents tell a newcomer is there: commands, files, and few enough lines to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The most lines that somebody new should have to read.
DOCUMENTS = {
    "README.md": 120,
    "CONTRIBUTING.md": 140,
    "docs/commands.md": 80,
    "docs/gpu.md": 140,
    "docs/tests.md": 60,
    "docs/words.md": 40,
}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_short_and_leads_to_what_is_there(name: str) -> None:
    assert len(text(name).splitlines()) <= DOCUMENTS[name]
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text(name))
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


def test_the_first_screen_is_the_answer_and_the_two_commands() -> None:
    first = "\n".join(text("README.md").splitlines()[:25])
    assert all(words in first for words in ("<!-- end of what `make edition` made -->", "make study", "make test"))
    # Numbers of what was found are made, never typed.
    typed = re.sub(r"<!-- made.*?<!-- end", "", text("README.md"), flags=re.DOTALL)
    assert re.findall(r"\b\d+ (?:claims|hours|times|minutes)\b", typed) == []
