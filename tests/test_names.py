"""Test that names in documents, docstrings and comments exist: paths, modules, functions, commands, options."""

from __future__ import annotations

import importlib
import io
import re
import token
import tokenize
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

import pytest
from snakemake.cli import get_argument_parser

from contract.errors import StudyError
from contract.files import read_yaml
from experiments.cli import main as experiments
from report.cli import main as report

ROOT = Path(__file__).parents[1]
PACKAGES = ("contract", "experiments", "report", "studies", "workflow")
FOLDERS = "|".join(map(re.escape, (*PACKAGES, "tests", "docs", "data", "config", "profiles", "slurm", "gpu", ".test")))
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *(ROOT / name / "README.md" for name in ("config", "data"))]
DOCUMENTS = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]  # The changelog names removed things.
SETTINGS = {".yaml", ".json", ".smk", ".sh", ".txt", ".js", ".html"}
PROGRAMS = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def split_prose(path: Path) -> tuple[str, str]:
    """Split a program into prose (comments and docstrings) and code; a document is all prose."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text, ""
    prose, code, before = [], [], token.NEWLINE
    for lexeme in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = lexeme.type == token.STRING and before in (token.NEWLINE, token.INDENT)
        (prose if docstring or lexeme.type == token.COMMENT else code).append(lexeme.string)
        if lexeme.type not in (token.COMMENT, token.NL):
            before = lexeme.type
    return "\n".join(prose), " ".join(code)


@cache
def all_code() -> str:
    """Return all code: programs, rules, settings, workflows."""
    others = [ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / ".github").rglob("*.yml")]
    for folder in ("workflow", "report", "contract", "config", "data"):
        others += (path for path in (ROOT / folder).rglob("*") if path.suffix in SETTINGS)
    return "\n".join(
        [split_prose(path)[1] for path in PROGRAMS] + [path.read_text(encoding="utf-8") for path in others]
    )


@cache
def code_words() -> set[str]:
    return set(re.findall(r"\w+", all_code()))


def backticked_texts(path: Path) -> Iterator[str]:
    """Find the texts between backticks."""
    yield from re.findall(r"`([^`\n]+)`", split_prose(path)[0])


def name_exists(name: str) -> bool:
    """True if a dotted name leads from a module to an object."""
    first, *others = name.split(".")
    modules = [path.relative_to(ROOT).with_suffix("").parts for path in PROGRAMS]
    modules = [parts[:-1] if parts[-1] == "__init__" else parts for parts in modules]
    for start in [first, *(".".join(parts) for parts in modules if parts[-1] == first)]:
        for count in range(len(others), -1, -1):
            try:
                value = importlib.import_module(".".join([start, *others[:count]]))
            except ImportError:
                continue
            for word in others[count:]:
                value = getattr(value, word, None)
            if value is not None:
                return True
    return False


@pytest.mark.parametrize("path", [*DOCUMENTS, *PROGRAMS], ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_prose_exist(path: Path) -> None:
    prose, missing = split_prose(path)[0], list[str]()
    # Ignore names that a tutorial's own commands create.
    for groups in {*re.findall(r"experiments new (\w+)|new-claim (\w+)", prose)} if path.suffix == ".md" else ():
        prose = prose.replace("".join(groups), "*")
    for name in re.findall(rf"(?<![\w/.~$<>-])((?:{FOLDERS})/[\w./<>*-]*[\w>*/])", prose):
        pattern = re.sub(r"<[^>]*>|(?<=/)[A-Z]+(?=/)", "*", name)
        if not any(ROOT.glob(pattern)) and name not in all_code():
            missing.append(name)
    for name in re.findall(r"(?:^|`|&& )make ([a-z]+)(?=[`\s])", prose, re.MULTILINE):
        if path.suffix == ".md" and not re.search(rf"^{name}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M):
            missing.append(f"make {name}")
    for span in backticked_texts(path):
        name = span.removesuffix("()")
        if re.fullmatch(r"[a-z_]\w*(\.[A-Za-z_]\w*)+", name) and name not in all_code() and not name_exists(name):
            missing.append(name)
        if re.fullmatch(r"[A-Za-z_]\w*", name) and name not in code_words():
            missing.append(name)
    assert missing == []


@cache
def command_help(package: str, command: str) -> str:
    """Return a command's help, or '' if the command does not exist."""
    shown = io.StringIO()
    with redirect_stdout(shown), suppress(SystemExit, StudyError):
        {"experiments": experiments, "report": report}[package]([command, "--help"])
    return shown.getvalue()


def test_commands_and_options_in_documents_exist() -> None:
    snakemake = {word for action in get_argument_parser()._actions for word in action.option_strings}
    settings, missing, seen = read_yaml(ROOT / "config" / "config.yaml"), list[str](), 0
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for package, command, rest in re.findall(r"python3? -m (experiments|report) ([a-z-]+)([^`\n|]*)", text):
            known = re.findall(r"--[a-z-]+", command_help(package, command))
            missing += [
                f"{package} {command} {word}" for word in re.findall(r" (--[a-z-]+)", rest) if word not in known
            ]
            seen += bool(known)
            missing += [] if known else [f"{package} {command}"]
        for words in re.findall(r"snakemake (-[^`\n|]*)", text):
            missing += [word for word in re.findall(r"(?:^| )(--?[a-z-]+)", words) if word not in snakemake]
            after = words.partition("--config ")[2].partition(" -")[0]
            missing += [name for name in re.findall(r"(\w+)=", after) if name not in settings]
    assert missing == [] and seen > 20
