"""Give advice on GPU and driver errors, chosen by the error message from NVML, CUDA or torch."""

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

# Each entry is (error pattern, advice, advice inside a container). The last is '' if the same advice holds inside a
# container. The first entry whose pattern matches the error is used.
_ADVICE: tuple[tuple[str, str, str], ...] = (
    (_NO_DRIVER, _INSTALL, _ATTACH),
    (r"version mismatch|\berror 803\b",
     "the kernel's driver version differs from the installed version: restart the machine, or load the modules again "
     "(sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia)",
     "the host kernel's driver version differs from the container's version: restart the host, or load the "
     "modules again there, and then start the container again"),
    (r"\berror 802\b|not yet initialized",
     "start NVIDIA's fabric manager: sudo systemctl start nvidia-fabricmanager", ""),
    (r"\berror 804\b|forward compatibility",
     "the CUDA libraries are newer than the driver, and this GPU does not support that: update the driver",
     "the CUDA libraries are newer than the driver, and this GPU does not support that: update the host's driver"),
    (r"function not found|argument version", "update NVIDIA's driver", "update NVIDIA's driver on the host"),
    (r"permission|not permitted|blocked the request",
     "join the group of the GPU's files: ls -l /dev/nvidia* names it, sudo usermod -aG GROUP $USER adds you to it; "
     "then log in again", _ATTACH),
    (r"external power", "connect the GPU's power cables, and restart the machine", ""),
    (r"is lost|requires restart|requires reset|fallen off",
     "restart the machine (sudo dmesg | grep -i xid shows the GPU's error)",
     "restart the host (sudo dmesg | grep -i xid there shows the GPU's error)"),
    (r"out of memory", "other processes use its memory: stop them, or choose another GPU", ""),
    (r"busy or unavailable",
     "another process has exclusive use, or the compute mode prohibits it: see nvidia-smi -q -d COMPUTE",
     ""),
    (r"ecc error", "its memory is damaged: reset it (sudo nvidia-smi -r), and replace it if the error returns", ""),
    (r"no kernel image", "this build of torch has no code for this GPU: install another build", ""),
    # A container loses its GPU with this error if its host runs `systemctl daemon-reload`.
    (r"unknown error", _RESTART, _AGAIN),
)  # fmt: skip


def advice(message: str, root: Path = ROOT) -> str:
    """Return advice on an NVML, CUDA or torch error on this system; general advice if no pattern matches."""
    inside = in_container(root)
    outside, within = _match_advice(message) or (_RESTART, _AGAIN)
    if inside and within == _ATTACH and any((root / "dev").glob("nvidia[0-9]*")):
        return _WITH_NVML
    if not inside and outside == _INSTALL and (root / "dev/dxg").exists():
        return _IN_WINDOWS
    return (within or outside) if inside else outside


def has_advice(message: str) -> bool:
    """True if a pattern matches the error."""
    return _match_advice(message) is not None


def means_no_driver(message: str) -> bool:
    """True if NVML's error means a missing driver, as on every machine without an NVIDIA GPU."""
    return re.search(_NO_DRIVER, message, re.IGNORECASE) is not None


def in_container(root: Path = ROOT) -> bool:
    """True if this process runs in a Docker, Podman, Kubernetes or LXC container."""
    marks = (".dockerenv", "run/.containerenv", "run/systemd/container", "var/run/secrets/kubernetes.io")
    # Use os.path.exists, since Path.exists raises PermissionError for a path in an inaccessible folder.
    if any(os.path.exists(root / mark) for mark in marks):  # noqa: PTH110
        return True
    try:
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"docker|kubepods|containerd|libpod|/lxc", groups) is not None


def _match_advice(message: str) -> tuple[str, str] | None:
    matches = ((outside, within) for pattern, outside, within in _ADVICE if re.search(pattern, message, re.IGNORECASE))
    return next(matches, None)
