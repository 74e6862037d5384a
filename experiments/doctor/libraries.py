"""Checks of the libraries: whether they use what the processor has, and what the environment makes of them."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Sequence

from experiments import environment, imports
from experiments.devices.accelerator import loaded
from experiments.doctor.finding import Finding, note, ok, warning

# OpenBLAS's names of cores whose kernels use 512-bit vectors.
_WIDE_CORES = ("skylakex", "cooperlake", "sapphirerapids", "zen4", "zen5")


def inherited(names: Sequence[str]) -> Finding:
    """Variables that would change what is measured. names: those that are set."""
    if not names:
        return ok("variables", "none that would choose kernels, threads or memory")
    return note(
        "variables",
        f"{', '.join(names)} would choose kernels, threads or memory",
        "They do not reach the measuring processes, where libraries choose for themselves; your own programs "
        "may run differently.",
        f"unset {' '.join(names)}",
    )


def openblas(core: str, simd: Sequence[str]) -> Finding | None:
    """Whether NumPy's OpenBLAS takes kernels for this processor's vectors. core: its name for the core, '' if none."""
    if not core:
        return note("NumPy's BLAS", "not OpenBLAS", "Its kernels are chosen in ways that cannot be seen from here.")
    if "avx512f" in simd and core.lower() not in _WIDE_CORES:
        return note(
            "NumPy's BLAS",
            f"OpenBLAS uses kernels for {core}, this processor has AVX-512",
            "NumPy's products by themselves use narrower vectors; kernels for wider ones are measured beside them.",
            "in your own programs, try OPENBLAS_CORETYPE=SkylakeX",
        )
    return ok("NumPy's BLAS", f"OpenBLAS uses kernels for {core}")


def torch_capability(capability: str, simd: Sequence[str]) -> Finding:
    """Whether PyTorch's own loops use the processor's vectors. capability: as torch names it."""
    wanted = "AVX512" if "avx512f" in simd else "AVX2" if "avx2" in simd else ""
    if wanted and not capability.startswith(wanted):
        return note(
            "torch's loops",
            f"use {capability}, this processor has {wanted}",
            "What is not a matrix product runs with narrower vectors.",
            "unset ATEN_CPU_CAPABILITY, or install a build of torch for this processor",
        )
    return ok("torch's loops", f"use {capability}")


def onednn(available: bool) -> Finding:
    """Whether the best products of a CPU are at hand."""
    if available:
        return ok("oneDNN", "in this build of torch")
    return warning(
        "oneDNN",
        "missing from this build of torch",
        "It is often the best that a CPU has: without it a GPU's advantage looks larger than it is.",
        "pip install torch (the official builds for x86 and Arm have it)",
    )


def bfloat16(simd: Sequence[str]) -> Finding:
    """Whether the processor multiplies in bfloat16."""
    units = [name for name in simd if name in ("amx_bf16", "avx512_bf16", "bf16", "svebf16", "sme")]
    if units:
        return ok("bfloat16", ", ".join(units))
    return note("bfloat16", "no instructions for it", "Points in bfloat16 go through float32.")


def numba(refusal: str) -> Finding:
    """Numba, which loads or refuses: each version takes NumPy up to one. refusal: why not, '' if it loads."""
    if not refusal:
        return ok("Numba", "loads")
    why = "`sequential` is not measured on this processor, and a GPU's has nothing to be compared with."
    return warning("Numba", f"cannot be loaded: {refusal}", why, "pip install --upgrade numba")


def transformers(failing: Sequence[tuple[str, str]]) -> Finding:
    """Libraries that keep Transformers from loading: (name, why) of each."""
    if not failing:
        return ok("Transformers", "nothing beside it keeps it from loading")
    names = " ".join(name for name, _ in failing)
    return warning(
        "Transformers",
        "; ".join(f"{name} cannot be loaded: {why}" for name, why in failing),
        "Transformers imports it wherever it is installed, so that none of its networks is measured.",
        f"pip uninstall --yes {names}",
    )


def vulkan(loads: bool, wgpu: bool) -> Finding:
    """Vulkan's loader, for wgpu where that is installed."""
    if loads or not wgpu:
        return ok("Vulkan", "its loader is there" if loads else "wgpu is not installed")
    why = "`without-cuda` is measured through CUDA alone."
    return note("Vulkan", "libvulkan.so.1 is missing", why, "apt install libvulkan1, or bundle.sh --with vulkan")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def examine(simd: Sequence[str]) -> list[Finding | None]:
    """All checks of this module, with the libraries as the measuring processes see them."""
    names = list(environment.inherited())
    # As for `probe`: what libraries choose by themselves is asked, and they read variables as they are loaded.
    with environment.applied():
        from experiments.backends.openblas import core_type

        torch, refusal = loaded()
        if torch is None:
            install = "pip install --force-reinstall torch (https://pytorch.org/get-started/locally)"
            of_torch = [warning("torch", refusal, "Nothing is measured without it.", install)]
        else:
            capability = torch.backends.cpu.get_cpu_capability()
            of_torch = [torch_capability(capability, simd), onednn(torch.backends.mkldnn.is_available())]
        found: list[Finding | None] = [inherited(names), openblas(core_type(), simd), *of_torch, bfloat16(simd)]
        found.append(numba(imports.why_not("numba")))
        if torch is not None and imports.is_installed("transformers"):
            found.append(transformers(imports.breaking_transformers()))
        if sys.platform == "linux":
            found.append(vulkan(_loads("libvulkan.so.1"), importlib.util.find_spec("wgpu") is not None))
        return found
