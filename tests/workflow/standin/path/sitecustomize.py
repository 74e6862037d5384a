"""Start-up hook that Python runs if this folder is on PYTHONPATH. It makes the study see the stand-in machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PATCHED = (
    "hardware", "nvml", "devices", "worker_environment", "jobs", "worker_processes", "rounds", "fingerprint", "cli",
    "lock",
)  # fmt: skip


class PatchingFinder(MetaPathFinder):
    """Finder that lets `tests.workflow.standin.machine` patch modules after loading."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "experiments" or name not in PATCHED:
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


sys.meta_path.insert(0, PatchingFinder())
