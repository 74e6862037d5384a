"""The outcome of a point that raised an error: status, reason, and the end of a process that cannot go on."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contract import running_time
from experiments import imports
from experiments.clock_readings import NoTimeError
from experiments.workload import HarnessError, ProfileError, Unsupported

# Errors of drivers, in the words of CUDA and HIP, CuPy, SYCL and Level Zero, Metal, and Vulkan. After most of them
# every later call of the process fails as well.
_DEVICE_ERROR = re.compile(
    r"(?i:\b(CUDA|HIP|XPU|SYCL) error\b)|\b(cuda|hip)Error|\b(CUDA|HIP|UR_RESULT|ZE_RESULT|PI)_ERROR_|"
    r"\bAcceleratorError\b|\bCUDA(Runtime|Driver)Error\b|_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)\b|"
    r"command buffer exited with error|(?i:\bdevice[ _](is |was )?lost\b)"
)

# Refused memory, in the words of torch and of the libraries that it calls.
_OUT_OF_MEMORY = re.compile(r"(?i:not enough memory|out[ _]of[ _](host_|device_)?memory|alloc(ation)?_failed)")


class Skipped(Exception):  # noqa: N818 - an outcome that is recorded, not an error
    """The point does not fit its budget or the memory; the message says by how much."""


def outcome(status: str, reason: str) -> dict[str, Any]:
    """An answer without samples."""
    return {"status": status, "reason": reason or status}


def attempt(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer that a call returns, or the outcome of its error."""
    started = running_time.now()
    try:
        try:
            return call()
        except (ImportError, RuntimeError, OSError, AttributeError) as error:
            if not is_out_of_memory(error) and (unsupported := imports.explain_import_error(error)):
                raise unsupported from error
            raise
    except Exception as error:
        return _error_outcome(error, running_time.now() - started)


def _error_outcome(error: Exception, after_s: float = 0.0) -> dict[str, Any]:
    """The outcome of a point that raised this error after so many seconds; the last one if it comes from a device."""
    answer = outcome(*_error_status(error, after_s))
    return {**answer, "last": True} if _is_device_error(error) else answer


def _error_status(error: Exception, after_s: float) -> tuple[str, str]:
    """Status and reason for an error; the log gets the traceback of one that nobody expects."""
    match error:
        case Unsupported():
            return "unsupported", str(error)
        case HarnessError():
            return "failed", f"harness: {error}"
        case Skipped():
            return "skipped", str(error)
        case NoTimeError() | ProfileError():
            return "failed", str(error)
        case MemoryError():
            return "oom", f"out of memory after {after_s:.1f} s"
    what = (str(error).splitlines() or [""])[0]
    if is_out_of_memory(error):
        return "oom", what
    if "could not create a primitive" in str(error):  # oneDNN's words for what this processor lacks
        return "unsupported", f"oneDNN: {what}"
    traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return "failed", f"{type(error).__name__}: {what} ({Path(place.filename).name}:{place.lineno})"


def is_out_of_memory(error: Exception) -> bool:
    """True if a device or the system refused memory: torch has types for some of these errors, and words for others."""
    named = isinstance(error, MemoryError) or "outofmemory" in type(error).__name__.lower()
    return named or _OUT_OF_MEMORY.search(str(error)) is not None


def _is_device_error(error: BaseException | None) -> bool:
    """True if an error, or the error that it came from, is that of a device's driver."""
    while error is not None:
        if _DEVICE_ERROR.search(f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False
