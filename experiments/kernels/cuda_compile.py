"""CUDA C through CuPy: compiled on first use, launched on PyTorch's tensors and its current stream.

The kernel tests list every source text in `SOURCES`, to compile it with NVIDIA's compiler without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from experiments.workload import Unsupported

Launch = Callable[..., None]


def cupy_package() -> str:
    """Return pip's name for the CuPy that fits this build of torch."""
    import torch

    if torch.version.hip is not None:
        return "cupy-rocm-7-0"
    return f"cupy-cuda{(torch.version.cuda or '13').partition('.')[0]}x"


def open_cupy(device: str) -> Any:
    """Return CuPy, set to torch's GPU `device`. Raises Unsupported without CuPy, and on GPUs without CUDA or ROCm."""
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
    """Return CuPy's module for this source, compiled per GPU on first use. Raises Unsupported without CuPy."""
    return _import_cupy().RawModule(code=source, options=options)


def compile_kernel(source: str, name: str, device: str, options: tuple[str, ...] = (), shared_bytes: int = 0) -> Launch:
    """Return launch(grid, block, *arguments) for one kernel.

    grid and block: ints or tuples. arguments: tensors, or NumPy scalars of exactly the type that the kernel declares.
    shared_bytes: dynamic shared memory per block. Raises Unsupported without CuPy, and if the source does not compile
    for this GPU (AMD's GPUs have no PTX, old GPUs lack instructions).
    """
    import torch

    cupy = open_cupy(device)
    try:
        function = compile_module(source, options).get_function(name)
    except Exception as refusal:
        # CuPy wraps compiler messages in exceptions from several modules.
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
    """Wrap torch's stream for CuPy, without handing over its ownership.

    CuPy takes the stream object since version 14, and took its address before.
    """
    takes = getattr(cupy.cuda.Stream, "from_external", None)
    if takes is not None and hasattr(stream, "__cuda_stream__"):
        return takes(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream)
