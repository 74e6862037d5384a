"""Checks of the libraries and of the environment that reaches them."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Sequence

from experiments import imports, worker_environment
from experiments.devices.accelerator import load_torch
from experiments.doctor.finding import Finding, note, ok, warning


def variables(names: Sequence[str]) -> Finding:
    """Variables that would change what is measured. names: those that are set."""
    if not names:
        return ok("variables", "none that would choose kernels, threads or memory")
    seen = f"{', '.join(names)} would choose kernels, threads or memory"
    why = "They do not reach the measuring processes, where libraries choose for themselves; your own programs may run "
    return note("variables", seen, f"{why}differently.", f"unset {' '.join(names)}")


def onednn(available: bool) -> Finding:
    """oneDNN, whose products are often the best that a CPU has."""
    if available:
        return ok("oneDNN", "in this build of torch")
    why = "It is often the best that a CPU has: without it a GPU's advantage looks larger than it is."
    mend = "pip install torch (the official builds for x86 and Arm have it)"
    return warning("oneDNN", "missing from this build of torch", why, mend)


def numba(refusal: str) -> Finding:
    """Numba: each version takes NumPy up to one. refusal: why it does not load, '' if it does."""
    if not refusal:
        return ok("Numba", "loads")
    why = "`sequential` is not measured on this processor, and a GPU's has nothing to be compared with."
    return warning("Numba", f"cannot be loaded: {refusal}", why, "pip install --upgrade numba")


def transformers(failing: Sequence[tuple[str, str]]) -> Finding:
    """Libraries that keep Transformers from loading: (name, why) of each."""
    if not failing:
        return ok("Transformers", "nothing beside it keeps it from loading")
    seen = "; ".join(f"{name} cannot be loaded: {why}" for name, why in failing)
    why = "Transformers imports it wherever it is installed, so that none of its networks is measured."
    return warning("Transformers", seen, why, f"pip uninstall --yes {' '.join(name for name, _ in failing)}")


def vulkan(loads: bool, wgpu: bool) -> Finding:
    """Vulkan's loader, for wgpu where that is installed."""
    if loads or not wgpu:
        return ok("Vulkan", "its loader is there" if loads else "wgpu is not installed")
    why = "`without-cuda` is measured through CUDA alone."
    return note("Vulkan", "libvulkan.so.1 is missing", why, "apt install libvulkan1, or bundle.sh --with vulkan")


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def examine() -> list[Finding]:
    """All checks of this module, with the libraries as the measuring processes see them."""
    names = list(worker_environment.blocked_variables())
    # Libraries read variables as they are loaded.
    with worker_environment.clean_environment_applied():
        torch, refusal = load_torch()
        if torch is None:
            install = "pip install --force-reinstall torch (https://pytorch.org/get-started/locally)"
            of_torch = warning("torch", refusal, "Nothing is measured without it.", install)
        else:
            of_torch = onednn(torch.backends.mkldnn.is_available())
        found = [variables(names), of_torch, numba(imports.import_failure("numba"))]
        if torch is not None and imports.is_installed("transformers"):
            found.append(transformers(imports.transformers_breakers()))
        if sys.platform == "linux":
            found.append(vulkan(_is_loadable("libvulkan.so.1"), importlib.util.find_spec("wgpu") is not None))
        return found
