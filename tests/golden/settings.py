"""Collect the numbers in the constants of `experiments`. Measurements are comparable only if these are equal."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from inspect import getsource
from pkgutil import walk_packages
from typing import Any

import experiments


def settings() -> dict[str, dict[str, float]]:
    """Return the numbers in each module's constants, by the constant's name and the number's place in it."""
    names = [module.name for module in walk_packages(experiments.__path__, f"{experiments.__name__}.")]
    # Load all modules first, because some modules fill another module's table.
    modules = [import_module(name) for name in names if not name.endswith("__main__")]
    settings_by_module = {
        module.__name__: {
            place: number
            for name in constant_names(getsource(module))
            for place, number in numbers(getattr(module, name), name)
        }
        for module in modules
    }
    return {name: inside for name, inside in settings_by_module.items() if inside}


def constant_names(source: str) -> Iterator[str]:
    """Yield the names in capitals that a module itself assigns, not those that it imports."""
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper():
                    yield node.id


def numbers(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Yield each number in a value, with its place."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield place, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name), f"{place}.{field.name}")
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from numbers(inside, f"{place}.{key}")
    elif isinstance(value, (tuple, list)):
        for index, inside in enumerate(value):
            yield from numbers(inside, f"{place}.{index}")
    elif isinstance(value, partial):
        yield from numbers([*value.args, value.keywords], place)
