"""The data dictionary in data/ is the one that the code checks by."""

from __future__ import annotations

from pathlib import Path

from contract.__main__ import markdown


def test_the_committed_dictionary_is_the_declared_one() -> None:
    committed = Path(__file__).parents[2] / "data" / "dictionary.md"
    assert committed.read_text(encoding="utf-8") == markdown(), "run: python -m contract > data/dictionary.md"
