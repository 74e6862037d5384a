"""Other installed BLAS libraries, through their common C interface."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiments.backends.base import Backend
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

_ROW_MAJOR, _AS_IT_IS = 101, 111


class Cblas(Backend):
    """cblas_sgemm and cblas_dgemm from a shared library with 32-bit sizes.

    libraries: names to look for, either as a linker takes them (-lNAME) or as a path to a file.
    """

    def __init__(self, name: str, libraries: tuple[str, ...]) -> None:
        super().__init__(name)
        self._libraries = libraries

    def matmul(self, a: torch.Tensor, b: torch.Tensor, dtype: Dtype, threads: int) -> Callable[[], torch.Tensor]:
        import torch
        from threadpoolctl import threadpool_limits

        if dtype not in (Dtype.FLOAT32, Dtype.FLOAT64):
            raise Unsupported(f"the C interface of BLAS has no {dtype} product")
        real, letter = (ctypes.c_float, "s") if dtype is Dtype.FLOAT32 else (ctypes.c_double, "d")
        function = getattr(self._load(), f"cblas_{letter}gemm")
        function.restype = None
        function.argtypes = [
            *[ctypes.c_int] * 6,
            *[real, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int],
            *[real, ctypes.c_void_p, ctypes.c_int],
        ]
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty(m, n, dtype=a.dtype)
        layout = (_ROW_MAJOR, _AS_IT_IS, _AS_IT_IS, m, n, k)
        operands = (1.0, a.data_ptr(), k, b.data_ptr(), n, 0.0, out.data_ptr(), n)
        # Set the thread limit again: a limit from before this library was loaded does not apply to the library.
        limits = threadpool_limits(limits=threads, user_api="blas")

        def product() -> torch.Tensor:
            _ = limits, a, b
            function(*layout, *operands)
            return out

        return product

    def path(self) -> str:
        """Return the path to the first installed library, or ''."""
        candidates = (name if "/" in name else ctypes.util.find_library(name) for name in self._libraries)
        return next((path for path in candidates if path), "")

    def _load(self) -> Any:
        path = self.path()
        if not path:
            raise Unsupported(f"not installed (looked for: {', '.join(self._libraries)})")
        try:
            return ctypes.CDLL(path)
        except OSError as refusal:
            raise Unsupported(f"{path} is installed but does not load: {refusal}") from None
