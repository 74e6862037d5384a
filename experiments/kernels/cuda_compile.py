"""CUDA C kernels that CuPy compiles on first use and launches with PyTorch's tensors on PyTorch's current stream.

The tests compile the kernels' source texts with NVIDIA's compiler, which needs no GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import distributions
from typing import Any

from experiments.devices.accelerator import load_torch
from experiments.workload import Unsupported

Launch = Callable[..., None]


def cupy_package() -> str:
    """Return the name of the pip package with the CuPy for this torch build."""
    import torch

    return _package_name(torch.version.cuda, torch.version.hip)


def _package_name(cuda: str | None, hip: str | None) -> str:
    return "cupy-rocm-7-0" if hip is not None else f"cupy-cuda{(cuda or '13').partition('.')[0]}x"


def installed_cupy() -> list[str]:
    """List the installed pip packages that contain CuPy."""
    names = {str(package.name).lower() for package in distributions() if package.name}
    return sorted(name for name in names if re.fullmatch(r"cupy(-cuda\d+x?|-rocm[\d-]+)?", name))


def cupy_fault(packages: Sequence[str], cuda: str | None, hip: str | None = None) -> tuple[str, str]:
    """Return the reason why CuPy cannot run and the command that mends it; ('', '') if there is no such reason.

    packages: the names from `installed_cupy`. cuda, hip: the versions that torch was built for.
    """
    right = _package_name(cuda, hip)
    mend = f"pip uninstall --yes {' '.join(packages)} && pip install {right}"
    if len(packages) > 1:
        return f"{' and '.join(packages)} are installed together, and overwrite each other's files", mend
    built = re.search(r"cuda(\d+)x$", packages[0]) if packages else None
    if built and cuda and built[1] != cuda.partition(".")[0]:
        return f"{packages[0]} needs CUDA {built[1]}'s libraries, and torch was built for CUDA {cuda}", mend
    return "", ""


def installed_cupy_fault() -> list[str]:
    """Return a list with a line on the fault in the installed CuPy, if there is one. Loads torch."""
    torch, _ = load_torch()
    if torch is None or (torch.version.cuda is None and torch.version.hip is None):
        return []
    seen, mend = cupy_fault(installed_cupy(), torch.version.cuda, torch.version.hip)
    return [f"CuPy: {seen}: {mend}"] if seen else []


def open_cupy(device: str) -> Any:
    """Make torch's GPU `device` CuPy's current GPU, and return CuPy.

    Raises Unsupported without CuPy, and on GPUs without CUDA or ROCm.
    """
    if device.startswith(("mps", "xpu")):
        raise Unsupported("CUDA C and CuPy run on NVIDIA's and AMD's GPUs only")
    cupy = _import_cupy()
    cupy.cuda.Device(int(device.partition(":")[2] or 0)).use()
    return cupy


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise Unsupported(f"CuPy is not installed: pip install {cupy_package()}") from None
    return cupy


@cache
def compile_module(source: str, options: tuple[str, ...] = ()) -> Any:
    """Return CuPy's module for this source, which is compiled on its first use. Raises Unsupported without CuPy."""
    return _import_cupy().RawModule(code=source, options=options)


def compile_kernel(source: str, name: str, device: str, options: tuple[str, ...] = (), shared_bytes: int = 0) -> Launch:
    """Return launch(grid, block, *arguments) for the kernel `name` in a CUDA C source.

    grid and block: ints or tuples. arguments: tensors, or NumPy scalars with exactly the type that the kernel declares.
    shared_bytes: dynamic shared memory per block. Raises Unsupported without CuPy, and if the source does not compile
    for this GPU (for example, AMD's GPUs have no PTX, and old GPUs lack some instructions).
    """
    import torch

    cupy = open_cupy(device)
    try:
        function = compile_module(source, options).get_function(name)
    except Exception as refusal:
        # Recognise compiler errors by their class name, because CuPy raises them from several modules.
        if "Compile" not in type(refusal).__name__ and "CUDADriver" not in type(refusal).__name__:
            raise
        line = next((line for line in str(refusal).splitlines() if "error" in line), str(refusal).splitlines()[0])
        raise Unsupported(f"the kernel {name} does not compile for {device}: {line.strip()[:200]}") from None
    if shared_bytes > 48 * 1024:
        function.max_dynamic_shared_size_bytes = shared_bytes

    def launch(grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: Any) -> None:
        pointers = tuple(
            argument.data_ptr() if isinstance(argument, torch.Tensor) else argument for argument in arguments
        )
        sizes = [(size,) if isinstance(size, int) else size for size in (grid, block)]
        # Launch on torch's current stream, on which torch records events and captures graphs.
        with _wrap_stream(cupy, torch.cuda.current_stream()):
            function(*sizes, pointers, shared_mem=shared_bytes)

    return launch


def _wrap_stream(cupy: Any, stream: Any) -> Any:
    """Return a CuPy stream object for torch's stream; torch still owns the stream.

    CuPy takes torch's stream object since version 14; earlier versions take the stream's address.
    """
    takes = getattr(cupy.cuda.Stream, "from_external", None)
    if takes is not None and hasattr(stream, "__cuda_stream__"):
        return takes(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream)
