"""Python runs this at its start where this folder is on PYTHONPATH: the study then sees a machine that is played."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PLAYED = ("hardware", "nvml", "devices", "environment", "jobs", "workers", "rounds", "probe", "cli", "lock")


class Played(MetaPathFinder):
    """Finds modules of the study as Python does, and has `tests.workflow.standin.machine` change them once loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "experiments" or name not in PLAYED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                getattr(importlib.import_module("tests.workflow.standin.machine"), name)(module)

            loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Played())
