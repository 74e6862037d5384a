"""NVIDIA's management library: what a GPU says of itself, and nothing where it does not.

No question is sure of an answer: GPUs, drivers and containers each leave some out. Functions take the library as an
argument, so that a stand-in can take its place where there is no GPU.
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
# Larger answers stand for "not available" (0xFFFFFFFF), or are nonsense. Watts, MHz; bytes; GPUs.
_MOST, _MOST_BYTES, _MOST_GPUS = 1e5, 2.0**53, 100


def placeholder_name(maker: str = "NVIDIA") -> str:
    """The name in a record of a GPU that does not tell its own."""
    return f"{maker} GPU"


def load_pynvml() -> Any:
    """pynvml: importable without a driver."""
    import pynvml

    return pynvml


def refusal(library: Any = None) -> str:
    """Why NVML does not answer, in its words; '' if it does."""
    return _count_gpus(library or load_pynvml())[1]


def nvidia_gpus(library: Any = None) -> list[dict[str, Any]]:
    """NVIDIA GPUs by NVML, without serial numbers: entries of the node record. [] where NVML does not answer.

    What a GPU does not tell is left out, and `unanswered` has NVML's words for it by the name of the field;
    "handle" stands for all of them. A GPU without a name is called `placeholder_name()`.
    """
    library = library or load_pynvml()
    found = []
    for index in range(_count_gpus(library)[0]):
        handle, refused = try_question(partial(library.nvmlDeviceGetHandleByIndex, index))
        found.append(
            {"name": placeholder_name(), "unanswered": {"handle": refused}}
            if refused
            else _describe_gpu(handle, library)
        )
    return found


def status() -> str:
    """Driver version and number of GPUs, or why NVML does not answer."""
    library = load_pynvml()
    number, refused = _count_gpus(library)
    if refused:
        return refused
    version, unknown = try_question(lambda: _check_text(library.nvmlSystemGetDriverVersion()))
    return f"driver {f'unknown ({unknown})' if unknown else version}, {number} GPU(s)"


def recorded_refusal(record: Mapping[str, Any]) -> str:
    """The words of a node record in which NVML did not answer; '' if it did, or its record does not tell."""
    told = str(record["hardware"].get("nvml", ""))
    return "" if told.startswith("driver ") else told


def ask(library: Any, question: str, *words: Any) -> Any:
    """The answer to one question; None if this GPU, driver or version of the library has none."""
    return try_question(lambda: getattr(library, question)(*words))[0]


def ask_number(library: Any, question: str, *words: Any, most: float = _MOST) -> float | None:
    """The answer to one question if it is a number from 0 to `most`, else None."""
    return try_question(lambda: _check_number(getattr(library, question)(*words), most))[0]


def ask_text(library: Any, question: str, *words: Any) -> str | None:
    """The answer to one question as a line of text, else None."""
    return try_question(lambda: _check_text(getattr(library, question)(*words)))[0]


def try_question(question: Callable[[], Any]) -> tuple[Any, str]:
    """The answer to any question and ''; or None, and the words in which it was refused."""
    try:
        return question(), ""
    except Exception as refused:  # a driver in trouble, or an old library, raises what it likes
        return None, _error_text(refused)


def _error_text(refused: Exception) -> str:
    try:
        words = str(refused)
    except Exception:  # pynvml asks the library for words that it does not know itself
        words = ""
    return re.sub(r"[^ -~]+", " ", words).strip(" .")[:200] or type(refused).__name__


def _count_gpus(library: Any) -> tuple[int, str]:
    """The number of GPUs and '', or 0 and why NVML does not answer."""

    def count() -> int:
        library.nvmlInit()
        return int(_check_number(library.nvmlDeviceGetCount(), _MOST_GPUS))

    number, refused = try_question(count)
    return number or 0, refused


def _describe_gpu(handle: Any, library: Any) -> dict[str, Any]:
    """A GPU's entry of the node record."""
    known: dict[str, Any] = {"name": placeholder_name()}
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
    }
    for name, question in questions.items():
        value, refused = try_question(question)
        if refused:
            unanswered[name] = refused
        else:
            known[name] = value
    if is_mig(handle, library):
        known["mig"] = True
    return known | ({"unanswered": unanswered} if unanswered else {})


def _check_number(value: Any, most: float = _MOST) -> float:
    """A finite number within bounds, as it was answered. Raises ValueError, TypeError."""
    if isinstance(value, bool) or not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no answer")
    return value


def _check_positive(value: Any, most: float) -> int:
    """A number that is not 0: no card has no memory, and no link of no lanes."""
    if not (number := int(_check_number(value, most))):
        raise ValueError("0 is no answer")
    return number


def _check_text(value: Any) -> str:
    """A line of text, of at most 200 characters; old libraries answer in bytes. Raises ValueError, TypeError."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:200]
    if not line:
        raise ValueError("an empty text is no answer")
    return line


class Unwatched(StrEnum):
    """Why the state of a GPU is not recorded beside its samples, or not all of it."""

    MAKER = "not NVIDIA's"
    SILENT = "NVML does not answer"
    UNIDENTIFIED = "torch does not identify it"
    UNKNOWN = "NVML does not know it"
    SLICE = "a slice of a GPU"

    @property
    def meaning(self) -> str:
        """The consequence for the samples, in words."""
        if self is Unwatched.SLICE:
            return "MIG cut the GPU: power, energy and use are the whole card's, and are not recorded for a slice"
        return f"{self.value}: clock, power, temperature and other processes are not recorded"


@dataclass(frozen=True)
class DeviceLookup:
    """NVML's handle of a device, None without certainty; and why the device is not watched, or not wholly."""

    handle: Any = None
    unwatched: Unwatched | None = None


def find_device(device: str, library: Any) -> DeviceLookup:
    """NVML's handle of torch's device `cuda:N`, by its UUID or its place on the PCI bus.

    Never by the number of a GPU that torch sees: NVML numbers them in another order.
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
    """The same handle alone. Raises NVMLError where there is none."""
    found = find_device(device, library)
    if found.handle is None:
        raise library.NVMLError(library.NVML_ERROR_NOT_FOUND)
    return found.handle


def _identity_questions(torch: Any, index: int) -> list[tuple[str, Any]]:
    """NVML's questions by which a GPU of torch's can be found, each with the identity to ask for; the best first.

    CUDA's UUID has no prefix. Of a slice it is the slice's or the whole card's, by the version of CUDA. Sources:
    cuDeviceGetUuid_v2 in the CUDA driver API, nvmlDeviceGetUUID in the NVML API reference.
    """
    if torch.version.cuda is None or not torch.cuda.is_available():
        return [("nvmlDeviceGetHandleByIndex", index)]  # it measures none, and has no numbers of its own
    properties = torch.cuda.get_device_properties(index)
    identity = str(getattr(properties, "uuid", None) or "")
    prefixes = [""] if identity.startswith(("GPU-", "MIG-")) else ["GPU-", "MIG-"]
    found = [("nvmlDeviceGetHandleByUUID", prefix + identity) for prefix in prefixes if identity]
    place = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if all(isinstance(number, int) for number in place):
        domain, bus, slot = place
        found.append(("nvmlDeviceGetHandleByPciBusId", f"{domain:08x}:{bus:02x}:{slot:02x}.0"))
    return found


def is_mig(handle: Any, library: Any) -> bool:
    """True if MIG cuts the GPU into slices, or the handle is such a slice's."""
    modes, _ = try_question(lambda: tuple(library.nvmlDeviceGetMigMode(handle)))
    return bool(modes and modes[0] == 1) or ask(library, "nvmlDeviceIsMigDeviceHandle", handle) == 1


def read_power_w(handle: Any, library: Any) -> float | None:
    """What the GPU draws now; None where nothing tells it.

    The field is what was last measured. nvmlDeviceGetPowerUsage is that too on old GPUs, but from Ampere on
    (except GA100) the mean of the last second: half a second into a load it is mostly of what came before.
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
    """Why the GPU's clock is held back now, in words; empty if it is not."""
    mask = int(ask_number(library, "nvmlDeviceGetCurrentClocksThrottleReasons", handle, most=2.0**64) or 0)
    return [words for name, words in _REASONS.items() if mask & getattr(library, name, 0)]


def process_ids(handle: Any, library: Any) -> set[int]:
    """Numbers of the processes that use the GPU, as far as the driver shows them from where we are."""
    questions = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
    running = (ask(library, question, handle) for question in questions)
    return {one.pid for some in running if isinstance(some, Iterable) for one in some if hasattr(one, "pid")}


def count_other_processes(handle: Any, library: Any) -> int:
    """How many processes besides this one use the GPU.

    In a container the driver may know this process by another number: then one of them is taken to be this one.
    """
    found = process_ids(handle, library)
    own = os.getpid()
    return len(found - {own}) if own in found else max(len(found) - 1, 0)
