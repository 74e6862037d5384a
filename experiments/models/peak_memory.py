"""What a call takes besides time: memory at its peak."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import torch

from experiments.devices import Device

# Threads tell the kernel of their pages in batches: a smaller growth is not known to a part in ten.
LEAST_GROWTH = 16 << 20


def peak_bytes(call: Callable[[], object], device: Device, held: float) -> float | None:
    """Bytes in use at the peak of a call; None where nothing tells.

    On an accelerator what PyTorch has allocated there, which includes what was held before.
    On a CPU `held` bytes that were there before, and by how much the resident memory of this
    process rose above what it was (Linux; what the allocator kept of earlier calls is given
    back first, so that it is asked for again). A growth of less than LEAST_GROWTH tells nothing.
    """
    if device.name == "cpu":
        grown = _growth(call)
        return held + grown if grown is not None and grown >= LEAST_GROWTH else None
    module = getattr(torch, device.name.partition(":")[0])
    if not hasattr(module, "reset_peak_memory_stats"):
        return None
    module.reset_peak_memory_stats(device.name)
    call()
    device.synchronise()
    return float(module.max_memory_allocated(device.name))


def _growth(call: Callable[[], object]) -> float | None:
    """Bytes by which resident memory rises at the most; None where the system does not tell."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is forgotten
        before = _resident("VmRSS")
    except (AttributeError, KeyError, OSError):
        return None
    call()
    try:
        return max(0.0, _resident("VmHWM") - before)
    except (KeyError, OSError):  # some sandboxes tell the size alone
        return None


def _resident(name: str) -> float:
    """A line of /proc/self/status in bytes. Source: proc_pid_status(5)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return 1024.0 * float(fields[name].split()[0])
