"""Devices that can be measured, and how each is found, fed and timed."""

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
    """The class of the device called `name` (cpu, cuda:0, …), without opening it: that would claim its memory.

    Raises StudyError saying which devices there are, and why others are not, if it is not among them.
    """
    found: list[str] = []
    left_out: list[str] = []
    for kind in kinds:
        names, reasons = kind.detect()
        if name in names:
            return kind
        found += names
        left_out += reasons
    why = "".join(f" {reason}." for reason in dict.fromkeys(left_out))
    raise StudyError(f"no device {name!r} on this machine. Devices: {', '.join(found)}.{why}")


def open_device(name: str, kinds: tuple[type[Device], ...] = KINDS) -> Device:
    """The device called `name`, ready for work. Raises StudyError if there is none, or it cannot be worked on."""
    device = find_device_class(name, kinds)(name)
    device.open()
    return device


def detect(kinds: tuple[type[Device], ...] = KINDS) -> tuple[list[Device], list[str]]:
    """All devices that this machine shows, none of them opened, and a line for each that is left out."""
    devices: list[Device] = []
    left_out: list[str] = []
    for kind in kinds:
        names, reasons = kind.detect()
        devices += [kind(name) for name in names]
        left_out += reasons
    return devices, list(dict.fromkeys(left_out))


def torch_gpu_names(kinds: tuple[type[Device], ...] = KINDS) -> list[tuple[str, str]]:
    """Maker and name of every GPU that torch sees, also of those that cannot be worked on; none is opened."""
    return [(kind.maker, name) for kind in kinds if issubclass(kind, Accelerator) for name in kind.names()]


def open_devices(devices: Sequence[Device]) -> tuple[list[Device], list[str]]:
    """Those devices that can be worked on, opened, and a line for each that cannot.

    What they are opened for stays allocated until the process ends: for short ones.
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
