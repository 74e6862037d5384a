"""Detect and open the devices to measure, create data on them, and time their work."""

from __future__ import annotations

from collections.abc import Sequence

from contract.errors import StudyError
from experiments.devices.accelerator import Accelerator
from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.devices.cuda import CudaDevice
from experiments.devices.mps import MpsDevice
from experiments.devices.rocm import RocmDevice
from experiments.devices.xpu import XpuDevice

KINDS: tuple[type[Device], ...] = (CpuDevice, CudaDevice, RocmDevice, XpuDevice, MpsDevice)


def find_device_class(name: str, kinds: tuple[type[Device], ...] = KINDS) -> type[Device]:
    """Find the class for device `name` (cpu, cuda:0, …) without opening the device, which would allocate memory.

    Raises StudyError listing the known devices and the reasons for missing ones.
    """
    known: list[str] = []
    left_out: list[str] = []
    for kind in kinds:
        names, reasons = kind.detect()
        if name in names:
            return kind
        known += names
        left_out += reasons
    why = "".join(f" {reason}." for reason in dict.fromkeys(left_out))
    raise StudyError(f"no device {name!r} on this machine. Devices: {', '.join(known)}.{why}")


def open_device(name: str, kinds: tuple[type[Device], ...] = KINDS) -> Device:
    """Open device `name`. Raises StudyError if it does not exist or is unusable."""
    device = find_device_class(name, kinds)(name)
    device.open()
    return device


def detect(kinds: tuple[type[Device], ...] = KINDS) -> tuple[list[Device], list[str]]:
    """Detect all devices without opening them; return them with one line per omitted device."""
    devices: list[Device] = []
    left_out: list[str] = []
    for kind in kinds:
        names, reasons = kind.detect()
        devices += [kind(name) for name in names]
        left_out += reasons
    return devices, list(dict.fromkeys(left_out))


def torch_gpu_names(kinds: tuple[type[Device], ...] = KINDS) -> list[tuple[str, str]]:
    """Return (maker, name) for every GPU torch sees, including unusable ones, without opening any."""
    return [(kind.maker, name) for kind in kinds if issubclass(kind, Accelerator) for name in kind.names()]


def open_devices(devices: Sequence[Device]) -> tuple[list[Device], list[str]]:
    """Open the devices; return the usable ones and one line per unusable device.

    Their memory stays allocated until the process ends, so use this only in short processes.
    """
    opened, left_out = [], []
    for device in devices:
        try:
            device.open()
        except StudyError as refusal:
            left_out.append(str(refusal))
        else:
            opened.append(device)
    return opened, left_out
