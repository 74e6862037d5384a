"""Trouble with a GPU or its driver: what to do about it, from the words of NVML, CUDA or torch."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path("/")

_INSTALL = "install NVIDIA's driver, or load it: sudo modprobe nvidia"
_IN_WINDOWS = "install NVIDIA's driver in Windows, and none in WSL; then: wsl --shutdown"
_ATTACH = "start the container with its host's GPU: docker run --gpus all (podman run --device nvidia.com/gpu=all)"
_WITH_NVML = "start the container with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility: it has the GPU, but not NVML"
_AGAIN = "start the container again; if that does not help, restart its host, or install the driver again there"
_RESTART = "restart the machine, or install the driver again (sudo dmesg | grep -i nvrm says more)"
_NO_DRIVER = r"library not found|driver not loaded|no nvidia driver"

# A pattern of the error, what to do, and what to do in a container if that differs. The first match counts.
_ADVICE: tuple[tuple[str, str, str], ...] = (
    (_NO_DRIVER, _INSTALL, _ATTACH),
    (r"version mismatch|\berror 803\b",
     "the driver in the kernel is not of the version that is installed: restart the machine, or load its modules again "
     "(sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia)",
     "the driver in the host's kernel is not of the version that the container has: restart the host, or load its "
     "modules again there, and then start the container again"),
    (r"\berror 802\b|not yet initialized",
     "start NVIDIA's fabric manager: sudo systemctl start nvidia-fabricmanager", ""),
    (r"\berror 804\b|forward compatibility",
     "the CUDA libraries are newer than the driver, and this GPU does not allow that: update the driver",
     "the CUDA libraries are newer than the driver, and this GPU does not allow that: update the driver on the host"),
    (r"function not found|argument version", "update NVIDIA's driver", "update NVIDIA's driver on the host"),
    (r"permission|not permitted|blocked the request",
     "join the group of the GPU's files: ls -l /dev/nvidia* names it, sudo usermod -aG GROUP $USER adds you to it; "
     "then log in again", _ATTACH),
    (r"external power", "connect the GPU's power cables, and restart the machine", ""),
    (r"is lost|requires restart|requires reset|fallen off",
     "restart the machine (sudo dmesg | grep -i xid says what became of the GPU)",
     "restart the host (sudo dmesg | grep -i xid says there what became of the GPU)"),
    (r"out of memory", "other processes use its memory: stop them, or choose another GPU", ""),
    (r"busy or unavailable",
     "another process has it to itself, or its compute mode forbids computing: nvidia-smi -q -d COMPUTE says which",
     ""),
    (r"ecc error", "its memory is damaged: reset it (sudo nvidia-smi -r), and have it replaced if that comes back", ""),
    (r"no kernel image", "this build of torch has no code for it: install another", ""),
    # A container loses its GPU when systemd on its host reads its units again.
    (r"unknown error", _RESTART, _AGAIN),
)  # fmt: skip


def advice(said: str, root: Path = ROOT) -> str:
    """Advice on an error of NVML, CUDA or torch, on this system; for any other error too."""
    inside = in_container(root)
    outside, within = _match_advice(said) or (_RESTART, _AGAIN)
    if inside and within == _ATTACH and any((root / "dev").glob("nvidia[0-9]*")):
        return _WITH_NVML
    if not inside and outside == _INSTALL and (root / "dev/dxg").exists():
        return _IN_WINDOWS
    return (within or outside) if inside else outside


def has_advice(said: str) -> bool:
    """True if there is advice for this error alone."""
    return _match_advice(said) is not None


def means_no_driver(said: str) -> bool:
    """True if NVML's error means that no driver is at work: every machine without an NVIDIA GPU says so."""
    return re.search(_NO_DRIVER, said, re.IGNORECASE) is not None


def in_container(root: Path = ROOT) -> bool:
    """True if this process runs in a container of Docker, Podman, Kubernetes or LXC."""
    marks = (".dockerenv", "run/.containerenv", "run/systemd/container", "var/run/secrets/kubernetes.io")
    # Path.exists raises where a folder may not be entered.
    if any(os.path.exists(root / mark) for mark in marks):  # noqa: PTH110
        return True
    try:
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"docker|kubepods|containerd|libpod|/lxc", groups) is not None


def _match_advice(said: str) -> tuple[str, str] | None:
    found = ((outside, within) for pattern, outside, within in _ADVICE if re.search(pattern, said, re.IGNORECASE))
    return next(found, None)
