"""Turn a point's error into an outcome: status, reason, and a flag to end a process that cannot continue."""

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

# Driver errors from CUDA, HIP, CuPy, SYCL, Level Zero, Metal and Vulkan. After most of these errors, every later call
# in the process fails too.
_DEVICE_ERROR = re.compile(
    r"(?i:\b(CUDA|HIP|XPU|SYCL) error\b)|\b(cuda|hip)Error|\b(CUDA|HIP|UR_RESULT|ZE_RESULT|PI)_ERROR_|"
    r"\bAcceleratorError\b|\bCUDA(Runtime|Driver)Error\b|_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)\b|"
    r"command buffer exited with error|(?i:\bdevice[ _](is |was )?lost\b)"
)

# Out-of-memory messages from torch and the libraries it calls.
_OUT_OF_MEMORY = re.compile(r"(?i:not enough memory|out[ _]of[ _](host_|device_)?memory|alloc(ation)?_failed)")


class Skipped(Exception):  # noqa: N818 - an outcome that is recorded, not an error
    """The point exceeds its budget or the memory; the message says by how much."""


def outcome(status: str, reason: str) -> dict[str, Any]:
    """Return an answer without samples, for a point with this status and reason."""
    return {"status": status, "reason": reason or status}


def attempt(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the call's answer, or the outcome for its error."""
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
    """Return the outcome for an error; mark it with the key `last` if a device error makes the process unusable."""
    answer = outcome(*_error_status(error, after_s))
    return {**answer, "last": True} if _is_device_error(error) else answer


def _error_status(error: Exception, after_s: float) -> tuple[str, str]:
    """Return status and reason for an error; log unexpected errors with their traceback."""
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
    message = (str(error).splitlines() or [""])[0]
    if is_out_of_memory(error):
        return "oom", message
    if "could not create a primitive" in str(error):  # oneDNN's message for a feature missing in this processor
        return "unsupported", f"oneDNN: {message}"
    traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return "failed", f"{type(error).__name__}: {message} ({Path(place.filename).name}:{place.lineno})"


def is_out_of_memory(error: Exception) -> bool:
    """True for an out-of-memory error, which is recognized by its exception type or by its message.

    The message is needed, since torch has exception types only for some out-of-memory errors.
    """
    by_type = isinstance(error, MemoryError) or "outofmemory" in type(error).__name__.lower()
    return by_type or _OUT_OF_MEMORY.search(str(error)) is not None


def _is_device_error(error: BaseException | None) -> bool:
    """True if an error, or any error it was raised from, comes from a device driver."""
    while error is not None:
        if _DEVICE_ERROR.search(f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False
