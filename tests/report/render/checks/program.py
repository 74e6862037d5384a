"""Checks of the program that writes the report: no number is typed into prose, and only `strokes` draws."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from report.commands.lint.study import Study, check

Found = Iterator[tuple[str, str, str]]
# A number of its own; digits within a name (float64, W15, 2x) are none.
NUMBER = re.compile(r"(?<![\w.,/#§^-])[-−]?\d[\d.,]*(?:%|\b)(?![\w-]*[A-Za-z_])(?!\w)")
# What is typed by definition, not by measurement: each with why it may be. One that nothing needs is taken out.
ALLOWED = {
    r"\b95% intervals \(Wilson\)": "the level of the shares of simulated trials, set where they are counted",
    r"\b99% of (?:single )?requests\b": "the percentile of claims about waiting",
    r"\b99 (?:of|in) 100\b": "the same",
    r"\bLlama (?:2|3\.1)\b": "the name of a model",
    r"\bMLPerf Training 3\.1\b": "the name of an edition",
    r"\bXeon Platinum 8480\+": "the name of a product",
    r"\((?:Smyth |Kaplan et al\. |Rajbhandari et al\. )?\d{4}(?=[),])": "the year of a reference",
    r"\bWelch's \(1947\)|\bBelli \(2015\)": "the year of a reference",
    r"\b(?:Kaplan|Rajbhandari) et al\. 2020\b": "the year of a reference",
    r"(?<=, )section \d\.\d(?=\))": "a place in a reference",
    r"\(1\).* \(0\)": "the code of yes and no",
    r"\b\d+ x (?=[a-z])": "the factor of a formula, told in words",
    r"/ 24\b": "the hours of a day",
    r"\b2 \+ 2 \+ 12 bytes in mixed precision, 4 each in float32\b": "bytes of the formats named: arithmetic",
    r"\b16 bytes a parameter\b": "weights, gradients and both moments in float32: arithmetic",
    r"\bgroup of 32\b": "the threads of a GPU that run one program in step, by its maker's definition",
    r"\b100 cores\b": "what a claim of the articles speaks of",
    r"\b90 days\b": "the time that claims about feasibility ask for",
    r"\b1,000 x 1,000\b": "the articles' own example",
    r"\b10, 33 and 100 ms\b|^(?:10|33|100) ms$": "the time that an answer has, by declaration",
    r"\bunder (?:0\.1|1)%": "where a share is too small to be told",
    r"^1 \w+$|: 1 thread\b": "one of what is counted, where the number is not printed from data",
    r"\bbase, ×1\)": "the base of a ladder",
    r"− 1\||\bless 1\b|\bbelow 1\b": "what no difference and no gain are",
    r"\bat 0\b|\bfrom 0\b|^0 to ": "where a count begins",
}
_ALLOWED = re.compile("|".join(f"(?:{pattern})" for pattern in ALLOWED))
# What only `strokes` may call: whatever puts a line, a mark or an area on axes.
_DRAWS = {
    "add_artist", "add_collection", "add_line", "add_patch", "axhline", "axhspan", "axline", "axvline", "axvspan",
    "bar", "barh", "errorbar", "fill_between", "fill_betweenx", "hlines", "loglog", "plot", "scatter", "semilogx",
    "semilogy", "stackplot", "stairs", "stem", "step", "vlines",
}  # fmt: skip
# About the program and its files, not about results; and calls whose strings are patterns or formulas.
NOT_PROSE = ("lint", "metadata", "cli.py")
_NO_PROSE = ("re.", "Formula")


@check("typed-number", "No number is typed into prose: each comes from data, from a declaration, or is a definition.")
def typed_number(study: Study) -> Found:
    for path in sorted(study.package.rglob("*.py")):
        if path.relative_to(study.package).parts[0] not in NOT_PROSE:
            for line, text in prose(path):
                yield from _typed(study, path, line, text)
    for path in sorted((study.package / "templates").rglob("*.qmd")):
        for line, text in template_prose(path):
            yield from _typed(study, path, line, text)


def _typed(study: Study, path: Path, line: int, text: str) -> Found:
    for number in NUMBER.findall(_ALLOWED.sub(" ", text)):
        where = f"{path.relative_to(study.package.parent)}, line {line}"
        yield (
            where,
            f"the number {number} is typed into {text.strip()[:60]!r}",
            "Let it come from data or a declaration",
        )


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a module that are prose, with their lines: of two words or more, no docstring, pattern or error."""
    tree = _tree(path)
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        elif isinstance(node, ast.Raise) or (
            isinstance(node, ast.Call) and ast.unparse(node.func).startswith(_NO_PROSE)
        ):
            skipped |= set(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            # What stands in braces is data: an X holds its place, as a part of the word around it.
            skipped |= {part for part in node.values if isinstance(part, ast.Constant)}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"\{\w*\}", "X", node.value)
        else:
            continue
        if " " in text and re.search(r"[A-Za-z]{2,}", text) and not re.search(r"\.\*|\\[bd]", text):
            yield node.lineno, text


def template_prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a template without what it prints, its statements, attributes, addresses, code and front matter."""
    text = path.read_text(encoding="utf-8")
    for pattern in (r"\A---\n.*?\n---\n", r"```.*?```", r"<%.*?%>", r"<<.*?>>", r"\{[^{}]*\}", r"\]\([^()]*\)"):
        text = re.sub(pattern, lambda found: re.sub(r"[^\n]", "X", found[0]), text, flags=re.DOTALL)
    for number, line in enumerate(_without_references(text).splitlines(), 1):
        if not re.match(r"[|:X \-]*\Z", line):
            yield number, line


def _without_references(text: str) -> str:
    """A list of references is bibliography: volumes, pages and years are names."""
    head, mark, rest = text.partition("### References")
    return head + mark + re.sub(r"\d", "x", rest)


@check("own-strokes", "Only report.render.strokes draws, which joins points along ordered variables alone.")
def own_strokes(study: Study) -> Found:
    for path in sorted(study.package.rglob("*.py")):
        if path.name == "strokes.py":
            continue
        where = path.relative_to(study.package.parent)
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            called, on = node.func.attr, ast.unparse(node.func.value)
            if called in _DRAWS and on != "strokes":
                yield f"{where}, line {node.lineno}", f"{on}.{called} draws by itself", "Use report.render.strokes"
            elif called == "savefig" and path.name != "figures.py":
                yield f"{where}, line {node.lineno}", "saves a figure by itself", "Use report.render.figures.keep"
