"""Check the GPU setup: card, driver, and libraries."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import driver_errors, nvml
from experiments.devices.accelerator import load_torch
from experiments.devices.cuda import CudaDevice, Version, compute_capability, install_advice
from experiments.doctor.finding import Finding, note, ok, warning
from experiments.doctor.gpu_checks import Card, examine_card
from experiments.kernels.cuda_compile import cupy_fault, cupy_package, installed_cupy
from experiments.topology import read_text

_NVIDIA = "0x10de"
_NOT_MEASURED = "The GPU is not measured."
_NONE = "no GPU"


@dataclass(frozen=True)
class Torch:
    """The installed torch build.

    version: torch's own version; '' if torch cannot be loaded.
    cuda: the CUDA version that torch was built for; None if torch was built without CUDA.
    hip: the HIP version that torch was built for; None if torch was built without HIP.
    sees: True if torch sees a GPU.
    left_out: for each GPU that torch sees but cannot use, the reason.
    """

    version: str
    cuda: str | None
    hip: str | None
    sees: bool
    left_out: tuple[str, ...] = ()


def installed_torch() -> Torch:
    """Load torch and describe its build."""
    torch, _ = load_torch()
    if torch is None:
        return Torch("", None, None, sees=False)
    sees = torch.cuda.is_available()
    left_out = CudaDevice.detect()[1] if sees and torch.version.cuda else []
    return Torch(torch.__version__, torch.version.cuda, torch.version.hip, sees, tuple(left_out))


def has_nvidia_card(root: Path) -> bool:
    """True if the PCI bus has an NVIDIA GPU, with or without a driver."""
    cards = (root / "sys/bus/pci/devices").glob("*")
    return any(read_text(card / "vendor") == _NVIDIA and read_text(card / "class").startswith("0x03") for card in cards)


def missing_gpu(refusal: str, torch: Torch, root: Path) -> Finding:
    """Return the finding for a machine on which NVML shows no GPU.

    refusal: NVML's error message, or "no GPU" if NVML works but lists no GPU.
    """
    mend = driver_errors.advice(refusal, root)
    if torch.sees and torch.cuda:
        return note("GPU", f"torch sees a GPU, but NVML reports: {refusal}", nvml.Unwatched.SILENT.meaning, mend)
    if has_nvidia_card(root):
        return warning("GPU", f"the PCI bus has an NVIDIA GPU, but NVML reports: {refusal}", _NOT_MEASURED, mend)
    if torch.hip is not None:
        return note("GPU", "AMD (ROCm)", "NVML does not support it: its state is neither checked nor recorded.")
    if refusal != _NONE and not driver_errors.means_no_driver(refusal):
        return warning("GPU", f"a driver is installed, but NVML reports: {refusal}", _NOT_MEASURED, mend)
    if driver_errors.in_container(root):
        return note("GPU", f"none ({refusal})", "A container sees its host's GPU only if it was started with it.", mend)
    return ok("GPU", f"none ({refusal}): only the CPU is measured")


def torch_build(torch: Torch, latest: Version | None, hidden: str | None, capability: Version | None = None) -> Finding:
    """Check that the torch build fits the GPU and the driver.

    latest: the newest CUDA version that the driver supports; None if the driver does not report it.
    capability: the first GPU's compute capability; None if the driver does not report it.
    hidden: the value of CUDA_VISIBLE_DEVICES; None if that variable is not set.
    """
    support = (
        f"the driver supports up to CUDA {latest[0]}.{latest[1]}"
        if latest
        else "the driver does not report its CUDA version"
    )
    advice = install_advice(latest, capability)
    if torch.cuda is None:
        return warning("CUDA", f"torch {torch.version} was built without CUDA; {support}", _NOT_MEASURED, advice)
    if latest and int(torch.cuda.split(".")[0]) > latest[0]:
        mend = f"update the driver, or {advice}"
        return warning("CUDA", f"torch was built for CUDA {torch.cuda}; {support}", "No kernel can be loaded.", mend)
    if not torch.sees and hidden is not None:
        seen = f"torch sees no GPU: CUDA_VISIBLE_DEVICES is {hidden!r}"
        return warning("CUDA", seen, _NOT_MEASURED, "unset CUDA_VISIBLE_DEVICES")
    if not torch.sees:
        mend = "python -c 'import torch; torch.zeros(1).cuda()' prints the reason"
        return warning("CUDA", "torch sees no GPU", _NOT_MEASURED, mend)
    return ok("CUDA", f"torch was built for CUDA {torch.cuda}; {support}")


def cupy_install(installed: bool, packages: Sequence[str], cuda: str | None) -> Finding:
    """Check for CuPy, which compiles and runs CUDA C. packages: CuPy's pip packages. cuda: torch's CUDA version."""
    seen, mend = cupy_fault(packages, cuda)
    if seen:
        return warning("CuPy", seen, "Points with the study's own CUDA kernels fail.", mend)
    if installed:
        return ok("CuPy", "installed")
    return note(
        "CuPy",
        "not installed",
        "Points with the study's own CUDA kernels are skipped.",
        f"pip install {cupy_package()}",
    )


def examine(root: Path, device: str | None, library: Any = None, torch: Torch | None = None) -> list[Finding]:
    """Check the GPU setup, and then the GPU that torch calls `device`, or all GPUs if `device` is None.

    library, torch: fakes for tests; None for pynvml and the installed torch.
    """
    library, torch = library or nvml.load_pynvml(), torch or installed_torch()
    refusal, count = nvml.refusal(library), len(nvml.nvidia_gpus(library))
    findings = [] if count else [missing_gpu(refusal or _NONE, torch, root)]
    if count:
        supported = nvml.ask_number(library, "nvmlSystemGetCudaDriverVersion_v2")
        latest = (int(supported) // 1000, int(supported) % 1000 // 10) if supported else None
        version = nvml.ask_text(library, "nvmlSystemGetDriverVersion") or "unknown version"
        findings.append(ok("driver", f"{version}, {count} GPU(s)"))
        if torch.version:
            capability = compute_capability(nvml.ask(library, "nvmlDeviceGetHandleByIndex", 0), library)
            findings.append(torch_build(torch, latest, os.environ.get("CUDA_VISIBLE_DEVICES"), capability))
        findings += map(_unusable_gpu, torch.left_out)
        if torch.cuda is not None:
            packages = installed_cupy()
            findings.append(cupy_install(importlib.util.find_spec("cupy") is not None, packages, torch.cuda))
    if device is not None:
        return findings + _examine_device(device, count, library)
    for index in range(count):
        findings += _examine_index(index, count, library)
    return findings


def _unusable_gpu(reason: str) -> Finding:
    """Return the finding for a GPU that torch cannot use. reason: 'cuda:0: the reason: the advice'."""
    name, _, line = reason.partition(": ")
    seen, _, mend = line.rpartition(": ")
    return warning(name, seen, _NOT_MEASURED, mend)


def _examine_index(index: int, count: int, library: Any) -> list[Finding]:
    handle, refusal = nvml.try_question(lambda: library.nvmlDeviceGetHandleByIndex(index))
    if refusal:
        return [warning(f"GPU {index}", f"NVML reports: {refusal}", _NOT_MEASURED, driver_errors.advice(refusal))]
    return examine_card(Card(index, handle, library), several=count > 1)


def _examine_device(device: str, count: int, library: Any) -> list[Finding]:
    """Check the GPU that torch calls `device`; NVML may number this GPU differently, or not list it.

    count: number of GPUs that NVML lists.
    """
    lookup = nvml.find_device(device, library)
    if lookup.handle is not None:
        index = nvml.ask_number(library, "nvmlDeviceGetIndex", lookup.handle)
        card = Card(None if index is None else int(index), lookup.handle, library)
        part = [note("samples", str(lookup.unwatched), f"{lookup.unwatched.meaning}.")] if lookup.unwatched else []
        return examine_card(card, several=count > 1) + part
    reason = lookup.unwatched or nvml.Unwatched.UNKNOWN
    if int(device.partition(":")[2]) < count:
        return [note("samples", f"{device}: {reason}", f"{reason.meaning}.")]
    mend = "nvidia-smi -L lists the GPUs"
    return [warning("GPU", f"there is no {device}: NVML sees {count} GPU(s)", _NOT_MEASURED, mend)]
