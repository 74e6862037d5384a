"""Tests for the words that carry a claim's strength."""

from __future__ import annotations

from itertools import product

import pytest

from report.judging.claim_words import FREQUENT, NO_WORD, POSSIBLE, UNIVERSAL, WORDS, misfit, missing_word
from report.judging.rules import RULES

ONE_CASE = ("exists", "crossover")


def fitting_rules(word: str) -> set[tuple[str, str]]:
    """Return the rules that a word allows, each with its quantifier."""
    every = set(product(RULES, ("most", "every")))
    if word == NO_WORD:
        return every
    if word in POSSIBLE:
        return {pair for pair in every if pair[0] in ONE_CASE}
    others = {pair for pair in every if pair[0] not in ONE_CASE}
    if word in FREQUENT:
        return {pair for pair in others if pair[1] == "most"}
    assert word in UNIVERSAL
    return {pair for pair in others if pair[1] == "every" and pair[0] != "for_share_of"}


@pytest.mark.parametrize("word", WORDS)
def test_each_word_accepts_its_own_rules_only(word: str) -> None:
    assert {pair for pair in product(RULES, ("most", "every")) if not misfit(word, *pair)} == fitting_rules(word)


@pytest.mark.parametrize(
    ("word", "says", "missing"),
    [("can", "It can be fast.", False), ("can", "It cannot be fast.", True), ("every", "Every core is fast.", False),
     ("no", "None of it is fast.", True), (NO_WORD, "It is fast.", False)],
)  # fmt: skip
def test_paraphrase_must_keep_the_word(word: str, says: str, missing: bool) -> None:
    assert missing_word(word, says) is missing
