"""NVIDIA's management library: what a GPU says of itself, and nothing where it does not.

Functions take the library as an argument, so that a stand-in can take its place where there is no GPU.
"""

from __future__ import annotations

import os
from typing import Any

# Reasons that hold a clock back and somebody should know of. Not those that slow
# nobody down: an idle GPU, and clocks that somebody set.
_REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power limit",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSyncBoost": "kept in step with another GPU",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "heat",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "heat (hardware slowdown)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksThrottleReasonDisplayClockSetting": "display clock",
}

# NVML_FI_DEV_POWER_INSTANT: old versions of the library have no name for it.
_POWER_NOW = 186


def module() -> Any:
    """pynvml: importable without a driver."""
    import pynvml

    return pynvml


def gpus() -> list[dict[str, Any]]:
    """NVIDIA GPUs by NVML, without serial numbers: name, memory_bytes, power_limit_w, …; [] without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        found.append(
            {
                "name": str(pynvml.nvmlDeviceGetName(handle)),
                "memory_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                **_asked(
                    {
                        "power_limit_w": lambda h=handle: pynvml.nvmlDeviceGetPowerManagementLimit(h) / 1000,
                        "max_sm_clock_mhz": lambda h=handle: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_SM),
                        "max_memory_clock_mhz": lambda h=handle: pynvml.nvmlDeviceGetMaxClockInfo(
                            h, pynvml.NVML_CLOCK_MEM
                        ),
                        "pcie_generation": lambda h=handle: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(h),
                        "pcie_width": lambda h=handle: pynvml.nvmlDeviceGetMaxPcieLinkWidth(h),
                    }
                ),
            }
        )
    return found


def _asked(questions: dict[str, Any]) -> dict[str, Any]:
    """The answers to those questions that this GPU and driver support."""
    import pynvml

    answers = {}
    for key, ask in questions.items():
        try:
            answers[key] = ask()
        except pynvml.NVMLError:
            continue
    return answers


def status() -> str:
    """Driver version, or why NVML does not answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return f"driver {pynvml.nvmlSystemGetDriverVersion()}, {pynvml.nvmlDeviceGetCount()} GPU(s)"
    except pynvml.NVMLError as refusal:
        return str(refusal)


def ask(library: Any, question: str, *words: Any) -> Any:
    """The answer to one question; None if this GPU, driver or version of the library has none."""
    try:
        return getattr(library, question)(*words)
    except (library.NVMLError, AttributeError):
        return None


def handle(device: str, library: Any) -> Any:
    """NVML's handle of torch's device `cuda:N`. Raises NVMLError if there is none: other makers' are not known to it.

    The two number GPUs differently where CUDA_VISIBLE_DEVICES is set: the identity decides.
    """
    import torch

    if not device.startswith("cuda") or torch.version.hip is not None:
        raise library.NVMLError(library.NVML_ERROR_NOT_FOUND)
    index = int(device.partition(":")[2] or 0)
    identity = _identity(index)
    if identity:
        try:
            return library.nvmlDeviceGetHandleByUUID(identity)
        except library.NVMLError:
            pass
    return library.nvmlDeviceGetHandleByIndex(index)


def _identity(index: int) -> str:
    """The GPU's UUID as torch knows it; '' where it does not (CPU builds, old versions)."""
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return ""
    identity = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{identity}" if identity is not None else ""


def watts(handle: Any, library: Any) -> float | None:
    """What the GPU draws now; None where nothing tells it.

    The field is what was last measured. nvmlDeviceGetPowerUsage is that too on old GPUs, but from Ampere on
    (except GA100) the mean of the last second: half a second into a load it is mostly of what came before.
    Source: NVML API reference, nvmlDeviceGetPowerUsage and NVML_FI_DEV_POWER_INSTANT.
    """
    fields = ask(library, "nvmlDeviceGetFieldValues", handle, [_POWER_NOW])
    if fields and fields[0].nvmlReturn == library.NVML_SUCCESS:
        return float(fields[0].value.uiVal) / 1000
    mean = ask(library, "nvmlDeviceGetPowerUsage", handle)
    return mean / 1000 if mean is not None else None


def throttling(handle: Any, library: Any) -> list[str]:
    """Why the GPU's clock is held back now, in words; empty if it is not."""
    mask = ask(library, "nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    return [words for name, words in _REASONS.items() if mask & getattr(library, name, 0)]


def processes(handle: Any, library: Any) -> set[int]:
    """Numbers of the processes that use the GPU, as far as the driver shows them from where we are."""
    running = [
        *(ask(library, "nvmlDeviceGetComputeRunningProcesses", handle) or []),
        *(ask(library, "nvmlDeviceGetGraphicsRunningProcesses", handle) or []),
    ]
    return {one.pid for one in running}


def other_processes(handle: Any, library: Any) -> int:
    """How many processes besides this one use the GPU.

    In a container the driver may know this process by another number: then one of them is taken to be this one.
    """
    found = processes(handle, library)
    own = os.getpid()
    return len(found - {own}) if own in found else max(len(found) - 1, 0)
