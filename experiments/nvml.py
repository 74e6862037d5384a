"""Query GPUs through NVML, NVIDIA's management library.

Any query may fail, since some GPUs, drivers and containers do not answer it. Functions take the library as an
argument, so that tests without a GPU can pass a fake one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

# Throttle reasons to report. An idle GPU and clocks set by the user are not reported.
_REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power limit",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSyncBoost": "kept in step with another GPU",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "heat",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "heat (hardware slowdown)",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksThrottleReasonDisplayClockSetting": "display clock",
}

# The value of NVML_FI_DEV_POWER_INSTANT. Old versions of pynvml do not define this constant.
_POWER_NOW = 186
# Settings of a GPU, many of which some GPUs do not have.
SETTINGS = (
    "driver", "driver_cuda", "default_power_limit_w", "persistence", "ecc", "mig", "current_pcie_generation",
    "current_pcie_width", "application_sm_clock_mhz", "application_memory_clock_mhz",
)  # fmt: skip
# An answer above its limit is invalid, or means "not available" (0xFFFFFFFF).
# _MOST: limit for watts and MHz. _MOST_BYTES: limit for memory sizes. _MOST_GPUS: limit for the number of GPUs.
_MOST, _MOST_BYTES, _MOST_GPUS = 1e5, 2.0**53, 100


def placeholder_name(maker: str = "NVIDIA") -> str:
    """Return the name to record for a GPU whose own name is unknown."""
    return f"{maker} GPU"


def load_pynvml() -> Any:
    """Import pynvml, which needs no driver."""
    import pynvml

    return pynvml


def refusal(library: Any = None) -> str:
    """Return NVML's error message, or '' if it answers."""
    return _count_gpus(library or load_pynvml())[1]


def nvidia_gpus(library: Any = None) -> list[dict[str, Any]]:
    """Return node record entries for NVIDIA GPUs, without serial numbers; [] if NVML does not answer.

    Missing fields are omitted; `unanswered` maps their names to NVML's errors ("handle" if all fields are missing). A
    GPU without a name is called `placeholder_name()`.
    """
    library = library or load_pynvml()
    entries = []
    for index in range(_count_gpus(library)[0]):
        handle, refused = try_question(partial(library.nvmlDeviceGetHandleByIndex, index))
        entries.append(
            {"name": placeholder_name(), "unanswered": {"handle": refused}}
            if refused
            else _describe_gpu(handle, library)
        )
    return entries


def status() -> str:
    """Return the text for a node record with the driver version and the number of GPUs, or with NVML's error."""
    library = load_pynvml()
    number, refused = _count_gpus(library)
    if refused:
        return refused
    version, unknown = try_question(lambda: _check_text(library.nvmlSystemGetDriverVersion()))
    return f"driver {f'unknown ({unknown})' if unknown else version}, {number} GPU(s)"


def recorded_refusal(record: Mapping[str, Any]) -> str:
    """Return NVML's error from a node record; '' if NVML answered, or if the record has no text from `status`."""
    status = str(record["hardware"].get("nvml", ""))
    return "" if status.startswith("driver ") else status


def ask(library: Any, question: str, *arguments: Any) -> Any:
    """Call a library function by name; None if this GPU, driver or library version does not support it."""
    return try_question(lambda: getattr(library, question)(*arguments))[0]


def ask_number(library: Any, question: str, *arguments: Any, most: float = _MOST) -> float | None:
    """Call a library function; return a number from 0 to `most`, else None."""
    return try_question(lambda: _check_number(getattr(library, question)(*arguments), most))[0]


def ask_text(library: Any, question: str, *arguments: Any) -> str | None:
    """Call a library function; return one line of text, else None."""
    return try_question(lambda: _check_text(getattr(library, question)(*arguments)))[0]


def try_question(question: Callable[[], Any]) -> tuple[Any, str]:
    """Call a function; return (its result, ''), or (None, the error message)."""
    try:
        return question(), ""
    except Exception as refused:  # broken drivers and old libraries raise any type
        return None, _error_text(refused)


def _error_text(refused: Exception) -> str:
    try:
        words = str(refused)
    except Exception:  # pynvml looks up messages in the library, which may fail too
        words = ""
    return re.sub(r"[^ -~]+", " ", words).strip(" .")[:200] or type(refused).__name__


def _count_gpus(library: Any) -> tuple[int, str]:
    """Return (the GPU count, ''), or (0, NVML's error)."""

    def count() -> int:
        library.nvmlInit()
        return int(_check_number(library.nvmlDeviceGetCount(), _MOST_GPUS))

    number, refused = try_question(count)
    return number or 0, refused


def _describe_gpu(handle: Any, library: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": placeholder_name()}
    unanswered = {}
    questions: dict[str, Callable[[], Any]] = {
        "name": lambda: _check_text(library.nvmlDeviceGetName(handle)),
        "memory_bytes": lambda: _check_positive(library.nvmlDeviceGetMemoryInfo(handle).total, _MOST_BYTES),
        "power_limit_w": lambda: _check_number(library.nvmlDeviceGetPowerManagementLimit(handle) / 1000),
        "max_sm_clock_mhz": lambda: _check_number(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM)),
        "max_memory_clock_mhz": lambda: _check_number(
            library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_MEM)
        ),
        "pcie_generation": lambda: _check_positive(library.nvmlDeviceGetMaxPcieLinkGeneration(handle), 100),
        "pcie_width": lambda: _check_positive(library.nvmlDeviceGetMaxPcieLinkWidth(handle), 1000),
        **_settings(handle, library),
    }
    for name, question in questions.items():
        value, refused = try_question(question)
        if refused:
            unanswered[name] = refused
        else:
            facts[name] = value
    if is_mig(handle, library):
        facts["mig"] = True
        unanswered.pop("mig", None)
    return facts | ({"unanswered": unanswered} if unanswered else {})


def _settings(handle: Any, library: Any) -> dict[str, Callable[[], Any]]:
    """Return a question for each of SETTINGS."""

    def application_mhz(domain: str) -> float:
        return _check_number(library.nvmlDeviceGetApplicationsClock(handle, getattr(library, domain)))

    return {
        "driver": lambda: _check_text(library.nvmlSystemGetDriverVersion()),
        "driver_cuda": lambda: _check_cuda(library.nvmlSystemGetCudaDriverVersion_v2()),
        "default_power_limit_w": lambda: _check_number(library.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000),
        "persistence": lambda: _check_switch(library.nvmlDeviceGetPersistenceMode(handle)),
        "ecc": lambda: _check_switch(library.nvmlDeviceGetEccMode(handle)[0]),
        "mig": lambda: _check_switch(library.nvmlDeviceGetMigMode(handle)[0]),
        "current_pcie_generation": lambda: _check_positive(library.nvmlDeviceGetCurrPcieLinkGeneration(handle), 100),
        "current_pcie_width": lambda: _check_positive(library.nvmlDeviceGetCurrPcieLinkWidth(handle), 1000),
        "application_sm_clock_mhz": lambda: application_mhz("NVML_CLOCK_SM"),
        "application_memory_clock_mhz": lambda: application_mhz("NVML_CLOCK_MEM"),
    }


def _check_number(value: Any, most: float = _MOST) -> float:
    """Return `value` if it is a finite number from 0 to `most`. Raises ValueError, TypeError."""
    if isinstance(value, bool) or not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"{value!r} is not a valid answer")
    return value


def _check_positive(value: Any, most: float) -> int:
    """Return `value` if it is positive: 0 bytes or 0 lanes is not a valid answer."""
    if not (number := int(_check_number(value, most))):
        raise ValueError("0 is not a valid answer")
    return number


def _check_switch(value: Any) -> bool:
    """Return True for 1 and False for 0, NVML's values for on and off. Raises ValueError, TypeError."""
    return bool(_check_number(value, 1))


def _check_cuda(value: Any) -> str:
    """Return CUDA's version as text: 13.0 for 13000. Raises ValueError, TypeError."""
    number = _check_positive(value, _MOST)
    return f"{number // 1000}.{number % 1000 // 10}"


def _check_text(value: Any) -> str:
    """Return `value`, text or bytes, as one line, up to 200 characters. Raises ValueError, TypeError."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())[:200]
    if not line:
        raise ValueError("an empty text is not a valid answer")
    return line


class Unwatched(StrEnum):
    """Reason why a GPU's state is not recorded, or is recorded only in part."""

    MAKER = "not NVIDIA's"
    SILENT = "NVML does not answer"
    UNIDENTIFIED = "torch does not identify it"
    UNKNOWN = "NVML does not know it"
    SLICE = "a slice of a GPU"

    @property
    def meaning(self) -> str:
        """Describe the consequence for the samples."""
        if self is Unwatched.SLICE:
            return "MIG cut the GPU: power, energy and use are the whole card's, and are not recorded for a slice"
        return f"{self.value}: clock, power, temperature and other processes are not recorded"


@dataclass(frozen=True)
class DeviceLookup:
    """NVML's handle for a device (None if not found), and the reason if the device's state is not fully recorded."""

    handle: Any = None
    unwatched: Unwatched | None = None


def find_device(device: str, library: Any) -> DeviceLookup:
    """Look up NVML's handle for torch's device `cuda:N` by UUID or PCI address.

    The device number is not usable, since NVML numbers GPUs in another order.
    """
    from experiments.devices.accelerator import load_torch

    torch, _ = load_torch()
    if torch is None or not device.startswith("cuda") or torch.version.hip is not None:
        return DeviceLookup(unwatched=Unwatched.MAKER)
    if _count_gpus(library)[1]:
        return DeviceLookup(unwatched=Unwatched.SILENT)
    names, _ = try_question(partial(_identity_questions, torch, int(device.partition(":")[2] or 0)))
    for question, name in names or ():
        handle = ask(library, question, name)
        if handle is not None:
            cut = str(name).startswith("MIG-") or is_mig(handle, library)
            return DeviceLookup(handle, Unwatched.SLICE if cut else None)
    return DeviceLookup(unwatched=Unwatched.UNKNOWN if names else Unwatched.UNIDENTIFIED)


def device_handle(device: str, library: Any) -> Any:
    """Return the handle from `find_device`. Raises NVMLError if there is none."""
    lookup = find_device(device, library)
    if lookup.handle is None:
        raise library.NVMLError(library.NVML_ERROR_NOT_FOUND)
    return lookup.handle


def _identity_questions(torch: Any, index: int) -> list[tuple[str, Any]]:
    """Return (NVML function, argument) pairs to look up torch's GPU, the most reliable first.

    NVML expects a UUID with the prefix GPU- or MIG-, but CUDA's UUID has no prefix, so both are tried. For a MIG slice,
    CUDA's UUID identifies the slice or the card, depending on the CUDA version.
    Sources: cuDeviceGetUuid_v2 in the CUDA driver API, nvmlDeviceGetUUID in the NVML API reference.
    """
    if torch.version.cuda is None or not torch.cuda.is_available():
        return [("nvmlDeviceGetHandleByIndex", index)]  # torch sees no GPUs, so the index is NVML's
    properties = torch.cuda.get_device_properties(index)
    identity = str(getattr(properties, "uuid", None) or "")
    prefixes = [""] if identity.startswith(("GPU-", "MIG-")) else ["GPU-", "MIG-"]
    questions = [("nvmlDeviceGetHandleByUUID", prefix + identity) for prefix in prefixes if identity]
    place = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if all(isinstance(number, int) for number in place):
        domain, bus, slot = place
        questions.append(("nvmlDeviceGetHandleByPciBusId", f"{domain:08x}:{bus:02x}:{slot:02x}.0"))
    return questions


def is_mig(handle: Any, library: Any) -> bool:
    """True if the GPU is split by MIG, or the handle belongs to a MIG slice."""
    modes, _ = try_question(lambda: tuple(library.nvmlDeviceGetMigMode(handle)))
    return bool(modes and modes[0] == 1) or ask(library, "nvmlDeviceIsMigDeviceHandle", handle) == 1


def read_power_w(handle: Any, library: Any) -> float | None:
    """Read the GPU's instantaneous power in watts; None if unavailable.

    nvmlDeviceGetPowerUsage is only the fallback: on GPUs from Ampere on (except GA100), it averages over the last
    second, so soon after a load begins, its result is mostly the power before the load.
    Source: NVML API reference, nvmlDeviceGetPowerUsage and NVML_FI_DEV_POWER_INSTANT.
    """

    def now() -> float:
        (field,) = library.nvmlDeviceGetFieldValues(handle, [_POWER_NOW])
        if field.nvmlReturn != library.NVML_SUCCESS:
            raise ValueError("no such field")
        return _check_number(field.value.uiVal / 1000)

    power, refused = try_question(now)
    return try_question(lambda: _check_number(library.nvmlDeviceGetPowerUsage(handle) / 1000))[0] if refused else power


def throttle_reasons(handle: Any, library: Any) -> list[str]:
    """Describe the current throttle reasons; empty if the clock is not throttled."""
    mask = int(ask_number(library, "nvmlDeviceGetCurrentClocksThrottleReasons", handle, most=2.0**64) or 0)
    return [words for name, words in _REASONS.items() if mask & getattr(library, name, 0)]


def process_ids(handle: Any, library: Any) -> set[int]:
    """Return the ids of the processes on the GPU; in a container, the driver may not show all."""
    questions = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
    running = (ask(library, question, handle) for question in questions)
    return {entry.pid for group in running if isinstance(group, Iterable) for entry in group if hasattr(entry, "pid")}


def count_other_processes(handle: Any, library: Any) -> int:
    """Count the other processes on the GPU.

    In a container, the driver may list this process under another id. If this process's id is not listed, one of the
    listed ids is assumed to be this process.
    """
    pids = process_ids(handle, library)
    own_pid = os.getpid()
    return len(pids - {own_pid}) if own_pid in pids else max(len(pids) - 1, 0)
