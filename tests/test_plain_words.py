"""Count words that break the rules under "Plain words" in CONTRIBUTING.md. A failure is a hint for a reader."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("contract", "experiments", "report", "studies", "workflow", "tests")
RELATIVE = re.compile(r"(What|Whether|Who|Which|Whom|Whose|Whoever|Whatever)\b")
# Function names that tell neither an action nor a result: a lone preposition, pronoun or participle.
VAGUE = re.compile(r"""(of|by|on)_.*|[a-z]*[a-df-z]ed|[a-z]+ing|
    above|after|against|all|any|around|as|at|before|behind|below|beside|besides|between|beyond|both|by|each|either|every|for|
    from|her|here|him|his|if|in|inside|into|it|its|like|mine|neither|no|none|of|off|on|one|other|others|our|out|over|own|same|
    so|some|such|that|their|them|there|these|they|this|those|through|to|together|under|upon|via|what|which|who|whole|whose|
    with|within|without|
    begun|bound|broken|brought|built|chosen|done|drawn|driven|felt|found|given|gone|grown|had|heard|held|hidden|kept|known|
    laid|led|left|lent|lost|made|meant|met|paid|said|seen|sent|shown|sold|spent|spoken|stood|taken|taught|thought|told|
    understood|won|worn|written""", re.VERBOSE)  # fmt: skip
# Names that are allowed although VAGUE matches them: nouns, and names that PyTorch and httptools prescribe.
ALLOWED = {
    "bed", "embed", "shed", "boosting", "crossing", "finding", "heading", "meaning", "rating", "reading", "scaling",
    "serving", "setting", "staging", "throttling", "training", "warning", "enabled", "on_body", "on_message_complete",
}  # fmt: skip

# Variable names that do not tell their content.
VAGUE_VARIABLES = {"asked", "found", "held", "made", "one", "said", "some", "such", "those", "told"}


def programs(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def prose(path: Path) -> Iterator[str]:
    """Yield the comments and docstrings of a program."""
    with tokenize.open(path) as file:
        lexemes = list(tokenize.generate_tokens(file.readline))
    yield from (lexeme.string.lstrip("# ") for lexeme in lexemes if lexeme.type == tokenize.COMMENT)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, documented))
    yield from filter(None, map(ast.get_docstring, nodes))


@cache
def named_nodes(package: str) -> list[tuple[str, ast.AST]]:
    """Return each function, argument and assigned variable in the programs, after its program's path."""
    return [
        (str(path.relative_to(ROOT)), node)
        for path in programs(package)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.arg))
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_prose_is_in_plain_word_order(package: str) -> None:
    texts = [text for path in programs(package) for text in prose(path)]
    words = re.findall(r"[a-z]+", " ".join(texts).lower())
    assert len(texts) > 50
    assert words.count("of") <= 1.5 * words.count("to")
    assert sum(bool(RELATIVE.match(text)) for text in texts) <= 0.01 * len(texts)


@pytest.mark.parametrize("package", PACKAGES)
def test_names_tell_an_action_or_a_result(package: str) -> None:
    vague = []
    for place, node in named_nodes(package):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            word = node.name.strip("_")
            if VAGUE.fullmatch(word) and word not in ALLOWED:
                vague.append(f"{place}:{node.lineno} {node.name}")
    assert vague == []


@pytest.mark.parametrize("package", PACKAGES)
def test_variables_tell_their_content(package: str) -> None:
    vague = []
    for place, node in named_nodes(package):
        if isinstance(node, ast.Name) and node.id in VAGUE_VARIABLES:
            vague.append(f"{place}:{node.lineno} {node.id}")
        if isinstance(node, ast.arg) and node.arg in VAGUE_VARIABLES:
            vague.append(f"{place}:{node.lineno} {node.arg}")
    assert vague == []
