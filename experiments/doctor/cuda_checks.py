"""Checks of the way to a GPU: card, driver, and the libraries built for it."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import driver_errors, nvml
from experiments.devices.accelerator import load_torch
from experiments.devices.cuda import CudaDevice
from experiments.doctor.finding import Finding, note, ok, warning
from experiments.doctor.gpu_checks import Card, examine_card
from experiments.kernels.cuda_compile import cupy_package
from experiments.topology import read_text

_NVIDIA = "0x10de"
_NOT_MEASURED = "The GPU is not measured."
_NONE = "no GPU"


@dataclass(frozen=True)
class Torch:
    """The build of torch: versions of CUDA and HIP, None where it was built without. sees: it sees a GPU.

    left_out: reasons why it cannot work on some GPUs that it sees.
    """

    version: str
    cuda: str | None
    hip: str | None
    sees: bool
    left_out: tuple[str, ...] = ()


def installed_torch() -> Torch:
    """The torch that is installed; without a version if it cannot be loaded."""
    torch, _ = load_torch()
    if torch is None:
        return Torch("", None, None, sees=False)
    sees = torch.cuda.is_available()
    left_out = CudaDevice.detect()[1] if sees and torch.version.cuda else []
    return Torch(torch.__version__, torch.version.cuda, torch.version.hip, sees, tuple(left_out))


def has_nvidia_card(root: Path) -> bool:
    """True if an NVIDIA GPU is on the PCI bus, with or without a driver."""
    cards = (root / "sys/bus/pci/devices").glob("*")
    return any(read_text(card / "vendor") == _NVIDIA and read_text(card / "class").startswith("0x03") for card in cards)


def missing_gpu(refusal: str, torch: Torch, root: Path) -> Finding:
    """The finding where NVML shows no GPU. refusal: the reason, in its words or those of this study."""
    mend = driver_errors.advice(refusal, root)
    if torch.sees and torch.cuda:
        return note("GPU", f"torch sees one, but NVML says: {refusal}", nvml.Unwatched.SILENT.meaning, mend)
    if has_nvidia_card(root):
        return warning("GPU", f"a card is there, but NVML says: {refusal}", _NOT_MEASURED, mend)
    if torch.hip is not None:
        return note("GPU", "AMD (ROCm)", "NVML does not know it: its state is neither checked nor recorded.")
    if refusal != _NONE and not driver_errors.means_no_driver(refusal):
        return warning("GPU", f"a driver is there, but NVML says: {refusal}", _NOT_MEASURED, mend)
    if driver_errors.in_container(root):
        return note("GPU", f"none ({refusal})", "A container shows a GPU of its host only if it was given one.", mend)
    return ok("GPU", f"none ({refusal}): the CPU is measured alone")


def torch_build(torch: Torch, latest: tuple[int, int] | None, hidden: str | None) -> Finding:
    """The build of torch for the GPU that is there.

    latest: version of CUDA that the driver goes up to, None if unknown; hidden: CUDA_VISIBLE_DEVICES, if set.
    """
    goes = f"the driver goes up to {latest[0]}.{latest[1]}" if latest else "the driver does not say its CUDA version"
    if torch.cuda is None:
        where = f"https://download.pytorch.org/whl/cu{latest[0]}{latest[1]}" if latest else "…/whl/cu130"
        mend = f"pip install --force-reinstall torch --index-url {where} (or the nearest below it)"
        return warning("CUDA", f"torch {torch.version} was built without CUDA; {goes}", _NOT_MEASURED, mend)
    if latest and int(torch.cuda.split(".")[0]) > latest[0]:
        mend = f"update the driver, or install a build of torch for CUDA {latest[0]}"
        return warning("CUDA", f"torch was built for CUDA {torch.cuda}; {goes}", "No kernel loads.", mend)
    if not torch.sees and hidden is not None:
        seen = f"torch sees no GPU: CUDA_VISIBLE_DEVICES is {hidden!r}"
        return warning("CUDA", seen, _NOT_MEASURED, "unset CUDA_VISIBLE_DEVICES")
    if not torch.sees:
        mend = "python -c 'import torch; torch.zeros(1).cuda()' says why"
        return warning("CUDA", "torch sees no GPU", _NOT_MEASURED, mend)
    return ok("CUDA", f"torch was built for {torch.cuda}; {goes}")


def cupy_install(found: bool) -> Finding:
    """CuPy, which compiles and runs CUDA C."""
    if found:
        return ok("CuPy", "installed")
    return note(
        "CuPy", "not installed", "Points with kernels of our own are left out.", f"pip install {cupy_package()}"
    )


def examine(root: Path, device: str | None, library: Any = None, torch: Torch | None = None) -> list[Finding]:
    """All checks of GPUs, or of torch's one `device`. library, torch: stand in for what is installed."""
    library, torch = library or nvml.load_pynvml(), torch or installed_torch()
    refusal, count = nvml.refusal(library), len(nvml.nvidia_gpus(library))
    found = [] if count else [missing_gpu(refusal or _NONE, torch, root)]
    if count:
        supported = nvml.ask_number(library, "nvmlSystemGetCudaDriverVersion_v2")
        latest = (int(supported) // 1000, int(supported) % 1000 // 10) if supported else None
        version = nvml.ask_text(library, "nvmlSystemGetDriverVersion") or "unknown version"
        found.append(ok("driver", f"{version}, {count} GPU(s)"))
        if torch.version:
            found.append(torch_build(torch, latest, os.environ.get("CUDA_VISIBLE_DEVICES")))
        found += [
            warning(name, why, _NOT_MEASURED, "")
            for name, _, why in (reason.partition(": ") for reason in torch.left_out)
        ]
        if torch.cuda is not None:
            found.append(cupy_install(importlib.util.find_spec("cupy") is not None))
    if device is not None:
        return found + _examine_device(device, count, library)
    for index in range(count):
        found += _examine_index(index, count, library)
    return found


def _examine_index(index: int, count: int, library: Any) -> list[Finding]:
    """The checks of the GPU that has this number in NVML."""
    handle, refusal = nvml.try_question(lambda: library.nvmlDeviceGetHandleByIndex(index))
    if refusal:
        return [warning(f"GPU {index}", f"NVML says: {refusal}", _NOT_MEASURED, driver_errors.advice(refusal))]
    return examine_card(Card(index, handle, library), several=count > 1)


def _examine_device(device: str, count: int, library: Any) -> list[Finding]:
    """The checks of torch's one device, which NVML may not know, or know by another number."""
    seen = nvml.find_device(device, library)
    if seen.handle is not None:
        index = nvml.ask_number(library, "nvmlDeviceGetIndex", seen.handle)
        card = Card(None if index is None else int(index), seen.handle, library)
        part = [note("samples", str(seen.unwatched), f"{seen.unwatched.meaning}.")] if seen.unwatched else []
        return examine_card(card, several=count > 1) + part
    reason = seen.unwatched or nvml.Unwatched.UNKNOWN
    if int(device.partition(":")[2]) < count:
        return [note("samples", f"{device}: {reason}", f"{reason.meaning}.")]
    mend = "nvidia-smi -L lists those there are"
    return [warning("GPU", f"there is no {device}: NVML sees {count} GPU(s)", _NOT_MEASURED, mend)]
