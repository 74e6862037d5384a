"""Find the paths from which this process loaded NVIDIA's libraries."""

from __future__ import annotations

import contextlib
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from experiments.devices import Device
from experiments.workload import Dtype, Unsupported

Observed = dict[str, tuple[float, str]]

DRIVER = re.compile(r"libcuda\.so")
# File names of the CUDA toolkit's libraries and of NVIDIA's libraries for use with the toolkit, such as cuDNN and NCCL.
# Python wheels may add suffixes to the names.
TOOLKIT = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn\w*|cufft|cufile|cupti|curand|cusolver\w*|cusparse\w*|nccl|nvJitLink|nvrtc[\w-]*)[.-]"
)


def origins(device: Device) -> Observed:
    """Load NVIDIA's libraries and return their origins (`count_origins`). Raises Unsupported."""
    if device.kind == "cpu":
        raise Unsupported("NVIDIA's libraries are not needed on a CPU")
    load_libraries(device)
    return count_origins(mapped_files(), package_folders())


def load_libraries(device: Device) -> None:
    """Call cuDNN, cuBLAS and, if CuPy is installed, NVIDIA's compiler, since each is loaded only at its first call."""
    import torch

    from experiments.kernels import naive_products

    a, b = (device.random_normal((16, 16), Dtype.FLOAT32) for _ in range(2))
    torch.nn.functional.conv2d(a.reshape(1, 1, 16, 16), b.reshape(1, 1, 16, 16))
    out = torch.mm(a, b)
    with contextlib.suppress(Unsupported):
        naive_products.product("naive", device.name)(a, b, out)
    device.synchronise()


def mapped_files(maps: Path = Path("/proc/self/maps")) -> set[str]:
    """Read the paths mapped by this process. Raises Unsupported if the system does not list them."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        raise Unsupported("this system does not report the loaded libraries of a process") from None
    mapped_paths = [line.split(maxsplit=5)[5] for line in lines if line.count("/")]
    return {path.removesuffix(" (deleted)") for path in mapped_paths}


def package_folders() -> list[Path]:
    """Return the Python environment's package folders, and for a conda environment also its root folder."""
    import torch

    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()}
    folders |= {*site.getsitepackages(), str(Path(torch.__file__).parents[1])}
    if (Path(sys.prefix) / "conda-meta").is_dir():
        folders.add(sys.prefix)
    # Resolve links, since the system reports resolved paths.
    return [Path(folder).resolve() for folder in folders]


def count_origins(paths: Iterable[str], folders: Iterable[Path]) -> Observed:
    """Return metrics on the loaded driver and toolkit libraries: their number, and if the system provides them.

    paths: the loaded files. folders: the environment's package folders. A file outside these folders is from the
    system. The metrics contain no path. Raises Unsupported if no driver is loaded.
    """
    inside = list(folders)

    def from_system(path: str) -> bool:
        return not any(Path(path).is_relative_to(folder) for folder in inside)

    files = {path: Path(path).name for path in paths}
    driver = [from_system(path) for path, name in files.items() if DRIVER.match(name)]
    toolkit = [from_system(path) for path, name in files.items() if TOOLKIT.match(name)]
    if not driver:
        raise Unsupported("this process has not loaded NVIDIA's driver")
    return {
        "system_driver_loaded": (float(any(driver)), "1"),
        "system_toolkit_loaded": (float(any(toolkit)), "1"),
        "toolkit_libraries_loaded": (float(len(toolkit)), "1"),
        "toolkit_libraries_from_system": (float(sum(toolkit)), "1"),
    }
