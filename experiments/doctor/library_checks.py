"""Check libraries and environment variables."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from experiments import gpus, imports, worker_environment
from experiments.devices.accelerator import load_torch
from experiments.doctor.finding import Finding, note, ok, warning


def variables(names: Sequence[str]) -> Finding:
    """Report environment variables that would affect measurements.

    names: the names of such variables that are set in this process.
    """
    if not names:
        return ok("variables", "none that change kernels, threads or memory")
    seen = f"{', '.join(names)} change kernels, threads or memory"
    why = "They are removed from the measuring processes, but your own programs may run differently from the study."
    return note("variables", seen, why, f"unset {' '.join(names)}")


def onednn(available: bool) -> Finding:
    """Check that torch includes oneDNN, which is often the fastest library for matrix products on a CPU."""
    if available:
        return ok("oneDNN", "included in this build of torch")
    why = "It is often the fastest library on a CPU: without it, a GPU's advantage looks too large."
    mend = "pip install torch (the official builds for x86 and Arm include it)"
    return warning("oneDNN", "missing from this build of torch", why, mend)


def numba(refusal: str) -> Finding:
    """Check that Numba loads, since Numba refuses NumPy versions that are newer than it supports.

    refusal: the error from importing Numba; '' if the import succeeded.
    """
    if not refusal:
        return ok("Numba", "loads")
    why = "`sequential` is not measured on this CPU, so a GPU's results have no comparison."
    return warning("Numba", f"cannot be loaded: {refusal}", why, "pip install --upgrade numba")


def transformers(failing: Sequence[tuple[str, str]]) -> Finding:
    """Report broken libraries that prevent Transformers from loading. failing: (name, error) pairs."""
    if not failing:
        return ok("Transformers", "no broken library prevents it from loading")
    seen = "; ".join(f"{name} cannot be loaded: {why}" for name, why in failing)
    why = "Transformers imports this library if it is installed, so none of its networks can be measured."
    return warning("Transformers", seen, why, f"pip uninstall --yes {' '.join(name for name, _ in failing)}")


def vulkan(loads: bool, wgpu: bool) -> Finding:
    """Check that Vulkan's loader library can be loaded, if wgpu, which needs this library, is installed."""
    if loads or not wgpu:
        return ok("Vulkan", "the loader is installed" if loads else "wgpu is not installed")
    why = "`without-cuda` is measured only through CUDA."
    return note("Vulkan", "libvulkan.so.1 is missing", why, "apt install libvulkan1, or bundle.sh --with vulkan")


def examine() -> list[Finding]:
    """Run all checks in this module, with the same environment variables as in a measuring process."""
    names = list(worker_environment.blocked_variables())
    # Load the libraries with a measuring process's variables, since libraries read variables during their import.
    with worker_environment.clean_environment_applied():
        torch, refusal = load_torch()
        if torch is None:
            install = "pip install --force-reinstall torch (https://pytorch.org/get-started/locally)"
            torch_finding = warning("torch", refusal, "Nothing can be measured without it.", install)
        else:
            torch_finding = onednn(torch.backends.mkldnn.is_available())
        findings = [variables(names), torch_finding, numba(imports.import_failure("numba"))]
        if torch is not None and imports.is_installed("transformers"):
            findings.append(transformers(imports.transformers_breakers()))
        if sys.platform == "linux":
            findings.append(vulkan(gpus.is_loadable("libvulkan.so.1"), importlib.util.find_spec("wgpu") is not None))
        return findings
