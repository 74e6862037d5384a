"""What an installation brings: origins of NVIDIA's libraries without a path, kernels for what a build is made for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import loaded
from experiments.devices.cpu import CpuDevice
from experiments.registry import get
from experiments.work import Dtype, Unsupported, Work

from .second_device import SecondCpu

CPU, GPU = CpuDevice(), SecondCpu()


def installed(device: Any, shape: str) -> Work:
    """The point of `libraries` that asks about the installation."""
    about = {"layer": "none", "batch": 0, "passes": "forward", "variant": "library", "threads": 1}
    made = get("libraries").function(device, shape=shape, dtype=Dtype.FLOAT32, **about)
    assert isinstance(made, Work)
    return made


FOLDERS = [Path("/home/someone/venv/lib/python3.12/site-packages")]
IN_PACKAGES = [
    "nvidia/cu13/lib/libcublas.so.13",
    "nvidia/cu13/lib/libcublasLt.so.13",
    "nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9",
    "torch/lib/libcudart-9335f6a2.so.12",
    "nvidia/cu13/lib/libnvrtc-builtins.so.13.0",
    "nvidia/nccl/lib/libnccl.so.2",
]
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"
OTHERS = ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/dev/nvidia0", f"{FOLDERS[0]}/torch/lib/libtorch_cuda.so"]


@pytest.mark.parametrize(
    ("more", "from_system"),
    [
        ([], 0),
        (["/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudart.so.13.0.48"], 1),
        (["/usr/lib/x86_64-linux-gnu/libcudnn_ops.so.9.1", "/opt/nvidia/libnvJitLink.so.13"], 2),
    ],
)
def test_libraries_of_the_system_are_told_from_those_of_the_packages(more: list[str], from_system: int) -> None:
    paths = [DRIVER, *OTHERS, *(f"{FOLDERS[0]}/{name}" for name in IN_PACKAGES), *more]
    found = {metric: value for metric, (value, _) in loaded.compared(paths, FOLDERS).items()}
    assert found == {
        "system_driver_loaded": 1,
        "system_toolkit_loaded": float(from_system > 0),
        "toolkit_libraries_loaded": len(IN_PACKAGES) + from_system,
        "toolkit_libraries_from_system": from_system,
    }


def test_a_driver_that_comes_with_the_packages_is_not_the_systems() -> None:
    assert loaded.compared([f"{FOLDERS[0]}/stubs/libcuda.so.1"], FOLDERS)["system_driver_loaded"] == (0.0, "1")


def test_mapped_files_are_read_from_the_system(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 00000000 08:01 42                 /opt/with space/libcudart.so.13 (deleted)\n"
        "7f01-7f02 r-xp 00001000 08:01 42                 /opt/with space/libcudart.so.13 (deleted)\n"
        "7f02-7f03 rw-p 00000000 00:00 0                  [heap]\n"
        "7f03-7f04 rw-p 00000000 00:00 0 \n"
    )
    assert loaded.mapped(maps) == {"/opt/with space/libcudart.so.13"}
    with pytest.raises(Unsupported):
        loaded.mapped(tmp_path / "none")


def test_this_environments_packages_are_where_torch_is() -> None:
    assert any(Path(torch.__file__).resolve().is_relative_to(folder) for folder in loaded.package_folders())


def test_libraries_are_looked_for_after_they_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "mapped", lambda: {DRIVER, f"{loaded.package_folders()[0]}/nvidia/libcublas.so.13"})
    monkeypatch.setitem(sys.modules, "cupy", None)
    made = installed(GPU, "loaded")
    assert made.observe is not None
    waited = GPU.waits
    found = made.observe()
    assert GPU.waits > waited
    assert (found["system_driver_loaded"][0], found["system_toolkit_loaded"][0]) == (1, 0)
    assert all(isinstance(value, float) and unit == "1" for value, unit in found.values())


def test_operators_are_counted_for_what_this_build_is_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = installed(CPU, "operators")
    assert made.observe is not None
    monkeypatch.setattr(torch.version, "cuda", None)
    found = {metric: value for metric, (value, _) in made.observe().items()}
    assert 0 < found["public_kernels_cpu"] < found["kernels_cpu"] < found["operators"]
    assert found["public_operators"] < found["operators"]
    assert "kernels_cuda" not in found
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "kernels_cuda" in made.observe()
