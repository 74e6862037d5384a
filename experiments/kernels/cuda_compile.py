"""CUDA C through CuPy: compiled when first used, launched on PyTorch's tensors and its current stream.

`SOURCES` of the test of the kernels lists every text that is compiled here: there
NVIDIA's compiler sees it without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from experiments.workload import Unsupported

Launch = Callable[..., None]


def package() -> str:
    """What pip calls the CuPy that fits this build of torch."""
    import torch

    if torch.version.hip is not None:
        return "cupy-rocm-7-0"
    return f"cupy-cuda{(torch.version.cuda or '13').partition('.')[0]}x"


def cupy_on(device: str) -> Any:
    """CuPy, set to work on the GPU that torch calls `device`. Raises Unsupported without it, and on GPUs it has not."""
    if device.startswith(("mps", "xpu")):
        raise Unsupported("CUDA C and CuPy run on NVIDIA's and AMD's GPUs alone")
    cupy = _cupy()
    cupy.cuda.Device(int(device.partition(":")[2] or 0)).use()
    return cupy


def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise Unsupported(f"CuPy is not installed: pip install {package()}") from None
    return cupy


@cache
def module(source: str, options: tuple[str, ...] = ()) -> Any:
    """CuPy's module of this source, which it compiles for each GPU that it runs on. Raises Unsupported without CuPy."""
    return _cupy().RawModule(code=source, options=options)


def kernel(source: str, name: str, device: str, options: tuple[str, ...] = (), shared_bytes: int = 0) -> Launch:
    """launch(grid, block, *arguments) of one kernel: grid and block as ints or tuples, arguments as tensors, or
    as NumPy scalars of exactly the type that the kernel declares.

    shared_bytes: dynamic shared memory of a block. Raises Unsupported without CuPy, and
    where the source does not compile for this GPU (AMD's have no PTX, old ones lack instructions).
    """
    import torch

    cupy = cupy_on(device)
    try:
        function = module(source, options).get_function(name)
    except Exception as refusal:
        # CuPy wraps its compilers' messages in exceptions of several modules.
        if "Compile" not in type(refusal).__name__ and "CUDADriver" not in type(refusal).__name__:
            raise
        line = next((line for line in str(refusal).splitlines() if "error" in line), str(refusal).splitlines()[0])
        raise Unsupported(f"the kernel {name} does not compile for {device}: {line.strip()[:200]}") from None
    if shared_bytes > 48 * 1024:
        function.max_dynamic_shared_size_bytes = shared_bytes

    def launch(grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: Any) -> None:
        places = tuple(
            argument.data_ptr() if isinstance(argument, torch.Tensor) else argument for argument in arguments
        )
        sizes = [(size,) if isinstance(size, int) else size for size in (grid, block)]
        # Torch's current stream: where its events lie, and what it captures in graphs.
        with _same_stream(cupy, torch.cuda.current_stream()):
            function(*sizes, places, shared_mem=shared_bytes)

    return launch


def _same_stream(cupy: Any, stream: Any) -> Any:
    """Torch's stream as CuPy's, which leaves it alive: since version 14 by the stream itself, before by its address."""
    takes = getattr(cupy.cuda.Stream, "from_external", None)
    if takes is not None and hasattr(stream, "__cuda_stream__"):
        return takes(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream)
