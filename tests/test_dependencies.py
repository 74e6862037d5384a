"""Test that the study's dependencies are declared, not only installed by developer tools."""

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


def walk_syntax(path: Path) -> Iterable[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def installed_packages(requirements: Iterable[str]) -> set[str]:
    """Return the names of all packages that these requirements install, including themselves."""
    wanted, seen = [(Requirement(text), "") for text in requirements], set[tuple[str, str]]()
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for requested_extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, requested_extra))
            try:
                wanted += [(Requirement(text), requested_extra) for text in metadata.requires(name) or []]
            except metadata.PackageNotFoundError:
                continue  # This package is for another system, or for an extra that is not installed here.
    return {name for name, _ in seen}


def test_snakemake_report_dependencies_are_installed() -> None:
    needs = [Requirement(text) for text in metadata.requires("snakemake") or []]
    of_report = {need.name for need in needs if need.marker and need.marker.evaluate({"extra": "reports"})}
    of_report -= {need.name for need in needs if not need.marker}
    assert of_report
    assert {canonicalize_name(name) for name in of_report} <= installed_packages(PROJECT["dependencies"])


def test_each_imported_package_is_a_dependency() -> None:
    extras = [text for name, texts in PROJECT["optional-dependencies"].items() if name != "dev" for text in texts]
    brought = installed_packages([*PROJECT["dependencies"], *extras])
    imported = set[str]()
    for node in (node for package in OURS for path in (ROOT / package).rglob("*.py") for node in walk_syntax(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    assert {"numpy", "torch", "snakemake"} <= imported
    # pip installs, and notebooks run by IPython.
    imported -= {"pip", "IPython"}
    # Packages that are not installed here, such as CuPy, are skipped, because their import names are unknown.
    providers = {top: names for top, names in metadata.packages_distributions().items() if top in imported - {*OURS}}
    missing = [top for top, names in providers.items() if not {canonicalize_name(name) for name in names} & brought]
    assert missing == []


def test_groups_do_not_depend_on_the_pandas_version() -> None:
    # By default, pandas 2 makes a group for each combination of categories, pandas 3 only for those that occur.
    calls = [
        (path.name, node.lineno, {keyword.arg for keyword in node.keywords})
        for path in (ROOT / "report").rglob("*.py")
        for node in walk_syntax(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "groupby"
    ]
    assert len(calls) > 50
    assert [(name, line) for name, line, keywords in calls if "observed" not in keywords] == []
