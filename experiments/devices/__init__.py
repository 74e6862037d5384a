"""Devices that can be measured, and how each is found, fed and timed."""

from __future__ import annotations

from contract.errors import StudyError
from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.devices.cuda import CudaDevice

KINDS: tuple[type[Device], ...] = (CpuDevice, CudaDevice)


def find(name: str, kinds: tuple[type[Device], ...] = KINDS) -> type[Device]:
    """The class of the device called `name` (cpu, cuda:0, …), without opening it: that would claim its memory.

    Raises StudyError saying which devices there are if it is not among them.
    """
    found: list[str] = []
    for kind in kinds:
        names, _ = kind.detect()
        if name in names:
            return kind
        found += names
    raise StudyError(f"no device {name!r} on this machine. Devices: {', '.join(found)}.")


def open_device(name: str, kinds: tuple[type[Device], ...] = KINDS) -> Device:
    """The device called `name`. Raises StudyError if there is none."""
    return find(name, kinds)(name)


def detect(kinds: tuple[type[Device], ...] = KINDS) -> tuple[list[Device], list[str]]:
    """All devices of this machine, and for each kind left out the reason."""
    devices: list[Device] = []
    left_out: list[str] = []
    for kind in kinds:
        names, reason = kind.detect()
        devices += [kind(name) for name in names]
        if reason:
            left_out.append(reason)
    return devices, left_out
