"""Libraries that are installed and cannot be imported, and what to do about each.

A library that another one imports wherever it is installed takes that one down with it: beside a PyTorch without CUDA
the public torchvision fails, and with it every network of Transformers.
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
    """Remedy for a library that is missing, or fails while it is imported; None for any other error.

    Raises the ModuleNotFoundError of a module of ours or of Python's.
    """
    cause = root_cause(error)
    if isinstance(cause, ModuleNotFoundError) and not is_installed((cause.name or "").partition(".")[0]):
        return missing_library(cause)
    importer, broken = failed_import(cause)
    said = (str(cause).splitlines() or [type(cause).__name__])[0]
    if importer != broken:
        what = f"{importer} imports {broken}, which cannot be loaded here ({said})"
        return Unsupported(f"{what}: {remedy(importer, broken)}")
    if broken and isinstance(cause, ImportError | OSError):
        return Unsupported(f"{broken} cannot be loaded here ({said}): {remedy(broken, broken)}")
    return missing_library(cause) if isinstance(cause, ModuleNotFoundError) else None


def is_installed(library: str) -> bool:
    """True if there is a library of this name; '' stands for one that an error does not name."""
    return not library or importlib.util.find_spec(library) is not None


def root_cause(error: BaseException) -> BaseException:
    """The error from which an error came."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def failed_import(error: BaseException) -> tuple[str, str]:
    """The library that was being imported, and the one whose import it waited for, perhaps itself; '' for none."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    packages = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    libraries = list(
        dict.fromkeys(name for name in packages if name not in {*OURS, "__main__", *sys.stdlib_module_names})
    )
    return (libraries[0], libraries[min(1, len(libraries) - 1)]) if libraries else ("", "")


def remedy(importer: str, broken: str) -> str:
    """The command that mends a library: away with it, or anew where it is needed by itself or by its importer."""
    name = distribution_name(broken)
    needed = {canonical_name(need.name) for need in _requirements(distribution_name(importer))}
    anew = importer == broken or canonical_name(name) in needed
    return f"pip install --force-reinstall {name}" if anew else f"pip uninstall --yes {name}"


def distribution_name(module: str) -> str:
    """The name under which a module's library is installed."""
    known = [INSTALLED_AS.get(module, module), *metadata.packages_distributions().get(module, [])]
    for name in known:
        try:
            return str(metadata.metadata(name)["Name"])
        except metadata.PackageNotFoundError:
            continue
    return known[0]


def canonical_name(name: str) -> str:
    """A library's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirements(name: str) -> list[Requirement]:
    """Names of the libraries that a library requires, by its metadata."""
    from packaging.requirements import Requirement

    try:
        every = [Requirement(text) for text in metadata.requires(name) or []]
    except metadata.PackageNotFoundError:
        return []
    return [one for one in every if one.marker is None or one.marker.evaluate({"extra": ""})]


def torch_dependents() -> Iterable[str]:
    """The modules of installed libraries that are built for one PyTorch, by their metadata; without ours."""
    for module, names in metadata.packages_distributions().items():
        if module not in OURS and any(
            canonical_name(need.name) == "torch" for name in names for need in _requirements(name)
        ):
            yield module


def import_failure(module: str) -> str:
    """Why a module cannot be imported; '' if it can."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a library's check of another may raise anything
        return (str(root_cause(error)).splitlines() or [type(error).__name__])[0]
    return ""


def transformers_breakers() -> list[tuple[str, str]]:
    """Libraries that Transformers imports wherever they are installed, and that fail here: (name, why)."""
    failing = [(module, why) for module in sorted(torch_dependents()) if (why := import_failure(module))]
    if not failing:
        return []
    known = importlib.import_module("transformers.utils.import_utils")
    return [(distribution_name(module), why) for module, why in failing if hasattr(known, f"is_{module}_available")]
