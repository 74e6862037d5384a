"""Test that `experiments` and `report` do not import each other, and that `contract` imports neither."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {"experiments": {"report"}, "report": {"experiments"}, "contract": {"experiments", "report"}}


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            names |= {str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)}
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_do_not_import_each_other(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert len(files) > 2
    assert [path for path in files if imported_packages(path) & FORBIDDEN[package]] == []
