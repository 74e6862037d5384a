"""Test that documents for newcomers are short, and that their commands and files exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.card_costs import PAGE, cost_table

ROOT = Path(__file__).parents[1]
# Highest number of lines in each document for newcomers.
DOCUMENTS = {
    "README.md": 120,
    "CONTRIBUTING.md": 140,
    "docs/commands.md": 80,
    "docs/further-rounds.md": 40,
    "docs/gpu.md": 140,
    "docs/rented.md": 90,
    "docs/tests.md": 60,
    "docs/words.md": 40,
}


def document_text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_is_short_and_its_references_exist(name: str) -> None:
    assert len(document_text(name).splitlines()) <= DOCUMENTS[name]
    links = re.findall(r"\]\((?!http)([^)#]+)\)", document_text(name))
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


def test_first_screen_has_answer_and_two_commands() -> None:
    first = "\n".join(document_text("README.md").splitlines()[:25])
    assert all(words in first for words in ("<!-- end of what `make edition` made -->", "make study", "make test"))
    # Outside the generated part, no result may be typed by hand.
    typed = re.sub(r"<!-- made.*?<!-- end", "", document_text("README.md"), flags=re.DOTALL)
    assert re.findall(r"\b\d+ (?:claims|hours|times|minutes)\b", typed) == []


def test_costs_by_card_are_those_of_the_published_prices() -> None:
    assert cost_table() in PAGE.read_text(encoding="utf-8"), "python -m docs.card_costs"
