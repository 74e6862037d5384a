"""All programs and packages that the study runs are installed with it, not only with its developers' tools."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = ("contract", "experiments", "report", "workflow")


def walk(path: Path) -> Iterable[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def installed_with(requirements: Iterable[str]) -> set[str]:
    """The names of all packages that these requirements bring, their own included."""
    wanted, seen = [(Requirement(text), "") for text in requirements], set[tuple[str, str]]()
    while wanted:
        one, extra = wanted.pop()
        if one.marker and not one.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(one.name)
        for asked in {"", *one.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, asked))
            try:
                wanted += [(Requirement(text), asked) for text in metadata.requires(name) or []]
            except metadata.PackageNotFoundError:
                continue  # of another system, or an extra that is not installed here
    return {name for name, _ in seen}


def test_snakemake_finds_what_its_own_report_needs() -> None:
    needs = [Requirement(text) for text in metadata.requires("snakemake") or []]
    of_report = {need.name for need in needs if need.marker and need.marker.evaluate({"extra": "reports"})}
    of_report -= {need.name for need in needs if not need.marker}
    assert of_report
    assert {canonicalize_name(name) for name in of_report} <= installed_with(PROJECT["dependencies"])


def test_each_imported_package_is_a_dependency() -> None:
    extras = [text for name, texts in PROJECT["optional-dependencies"].items() if name != "dev" for text in texts]
    brought = installed_with([*PROJECT["dependencies"], *extras])
    imported = set[str]()
    for node in (node for package in OURS for path in (ROOT / package).rglob("*.py") for node in walk(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    assert {"numpy", "torch", "snakemake"} <= imported
    # Packages that are not installed here (CuPy) are found by nobody's import.
    providers = {top: names for top, names in metadata.packages_distributions().items() if top in imported - {*OURS}}
    missing = [top for top, names in providers.items() if not {canonicalize_name(name) for name in names} & brought]
    assert missing == []
