"""Words that carry a claim's strength, such as "can" or "most", and the rules that fit them.

A claim file quotes the article's word under `word`. A part with a word of its own overrides the claim's word. Claim
files whose rule asks for more or for less than the word says are refused.
"""

from __future__ import annotations

import re

NO_WORD = "none"
POSSIBLE = ("can", "may", "might", "sometimes")
FREQUENT = ("almost", "largely", "most", "mostly", "often", "typically", "usually")
UNIVERSAL = ("all", "always", "any", "every", "never", "no", "only")
WORDS = (NO_WORD, *POSSIBLE, *FREQUENT, *UNIVERSAL)
# Rules by which one case suffices.
_ONE_CASE = ("exists", "crossover")


def missing_word(word: str, says: str) -> bool:
    """Return True if a claim's paraphrase lacks the article's word."""
    return word != NO_WORD and not re.search(rf"\b{re.escape(word)}\b", says, re.IGNORECASE)


def misfit(word: str, rule: str, quantifier: str) -> str:
    """Return the mistake in a part's rule for a word, with its correction; '' if the rule fits.

    quantifier: most or every.
    """
    if word in POSSIBLE and rule not in _ONE_CASE:
        return f"{word!r} asks for one case: use the rule exists or crossover"
    if word in FREQUENT and (rule in _ONE_CASE or quantifier == "every"):
        return f"{word!r} asks for most cases: use for_share_of, or another rule without the quantifier every"
    if word in UNIVERSAL and (rule in (*_ONE_CASE, "for_share_of") or quantifier != "every"):
        return f"{word!r} asks for every case: use a rule with the quantifier every"
    return ""
