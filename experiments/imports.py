"""Find installed libraries that cannot be imported, and suggest a fix.

A broken optional dependency also breaks the library that imports it. For example, PyPI's torchvision cannot be imported
if PyTorch was built without CUDA, and then no network from Transformers can be imported either.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING

from experiments.workload import INSTALLED_AS, Unsupported, missing_library

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OURS = ("contract", "experiments", "report", "studies", "workflow", "tests")


def explain_import_error(error: BaseException) -> Unsupported | None:
    """Return an Unsupported error with a remedy if a library is missing or broken; None for any other error.

    Raises the original ModuleNotFoundError if the missing module is in this project or in the standard library.
    """
    cause = root_cause(error)
    if isinstance(cause, ModuleNotFoundError) and not is_installed((cause.name or "").partition(".")[0]):
        return missing_library(cause)
    importer, broken = failed_import(cause)
    reason = (str(cause).splitlines() or [type(cause).__name__])[0]
    if importer != broken:
        problem = f"{importer} imports {broken}, which cannot be loaded here ({reason})"
        return Unsupported(f"{problem}: {remedy(importer, broken)}")
    if broken and isinstance(cause, ImportError | OSError):
        return Unsupported(f"{broken} cannot be loaded here ({reason}): {remedy(broken, broken)}")
    return missing_library(cause) if isinstance(cause, ModuleNotFoundError) else None


def is_installed(library: str) -> bool:
    """True if the library is installed, or if `library` is '' (as for an import error that names no module)."""
    return not library or importlib.util.find_spec(library) is not None


def root_cause(error: BaseException) -> BaseException:
    """Follow `__cause__` to the first error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def failed_import(error: BaseException) -> tuple[str, str]:
    """Return the library being imported and the library that failed, which may be the same; '' if unknown."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    packages = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    libraries = list(
        dict.fromkeys(name for name in packages if name not in {*OURS, "__main__", *sys.stdlib_module_names})
    )
    return (libraries[0], libraries[min(1, len(libraries) - 1)]) if libraries else ("", "")


def remedy(importer: str, broken: str) -> str:
    """Return a pip command: reinstall the broken library if it is required, else uninstall it."""
    name = distribution_name(broken)
    needed = {canonical_name(need.name) for need in _requirements(distribution_name(importer))}
    required = importer == broken or canonical_name(name) in needed
    return f"pip install --force-reinstall {name}" if required else f"pip uninstall --yes {name}"


def distribution_name(module: str) -> str:
    """Return the installed distribution's name for a module."""
    candidates = [INSTALLED_AS.get(module, module), *metadata.packages_distributions().get(module, [])]
    for name in candidates:
        try:
            return str(metadata.metadata(name)["Name"])
        except metadata.PackageNotFoundError:
            continue
    return candidates[0]


def canonical_name(name: str) -> str:
    """Normalize a distribution name for comparison (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirements(name: str) -> list[Requirement]:
    """Read a distribution's requirements, without extras, from its metadata."""
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(text) for text in metadata.requires(name) or []]
    except metadata.PackageNotFoundError:
        return []
    return [need for need in requirements if need.marker is None or need.marker.evaluate({"extra": ""})]


def torch_dependents() -> Iterable[str]:
    """Yield the installed modules whose distribution requires torch, except this project's own modules."""
    for module, names in metadata.packages_distributions().items():
        if module not in OURS and any(
            canonical_name(need.name) == "torch" for name in names for need in _requirements(name)
        ):
            yield module


def import_failure(module: str) -> str:
    """Import a module; return the root error's first line, or '' on success."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a library may check other libraries during its import, and raise any exception
        return (str(root_cause(error)).splitlines() or [type(error).__name__])[0]
    return ""


def transformers_breakers() -> list[tuple[str, str]]:
    """List (name, error) for optional dependencies that cannot be imported and thereby break Transformers."""
    failing = [(module, why) for module in sorted(torch_dependents()) if (why := import_failure(module))]
    if not failing:
        return []
    availability = importlib.import_module("transformers.utils.import_utils")
    return [
        (distribution_name(module), why) for module, why in failing if hasattr(availability, f"is_{module}_available")
    ]
