"""Measurement of the peak memory during a call."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import torch

from experiments.devices import Device

# Smallest memory growth in bytes that can be measured to within 10%. Linux updates a process's page count in batches
# per thread, so smaller growth is measured less accurately.
LEAST_GROWTH = 16 << 20


def peak_bytes(call: Callable[[], object], device: Device, bytes_before: float) -> float | None:
    """Return the largest number of bytes in use during a call; None if the system or device does not report it.

    On an accelerator, this is PyTorch's peak allocation, which includes tensors from before the call. On a CPU, it is
    `bytes_before` (the bytes in use before the call) plus the growth of the process's resident memory; None if this
    growth is below LEAST_GROWTH. Before the call, the allocator returns unused memory to the system; otherwise, memory
    that the call reuses would not count as growth.
    """
    if device.name == "cpu":
        growth = _peak_growth(call)
        return bytes_before + growth if growth is not None and growth >= LEAST_GROWTH else None
    module = getattr(torch, device.name.partition(":")[0])
    if not hasattr(module, "reset_peak_memory_stats"):
        return None
    module.reset_peak_memory_stats(device.name)
    call()
    device.synchronise()
    return float(module.max_memory_allocated(device.name))


def _peak_growth(call: Callable[[], object]) -> float | None:
    """Return the peak growth in resident memory during a call, in bytes; None if the system does not report it."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak (VmHWM) to the current value
        before = _status_bytes("VmRSS")
    except (AttributeError, KeyError, OSError):
        return None
    call()
    try:
        return max(0.0, _status_bytes("VmHWM") - before)
    except (KeyError, OSError):  # some sandboxes report no peak
        return None


def _status_bytes(name: str) -> float:
    """Read a field from /proc/self/status, in bytes. Source: proc_pid_status(5)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return 1024.0 * float(fields[name].split()[0])
