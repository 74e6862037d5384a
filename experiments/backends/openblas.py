"""NumPy's product from the OpenBLAS in NumPy's wheels, with kernels that it or OPENBLAS_CORETYPE chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.backends.base import Backend
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# Names in OpenBLAS for cores with fused multiply-adds; its builds include kernels for these cores (DYNAMIC_LIST in
# Makefile.system, driver/others/dynamic*.c).
CORE_TYPES_X86 = ("Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids")
CORE_TYPES_ARM = ("ARMV8", "NEOVERSEN1", "NEOVERSEV1", "NEOVERSEN2", "VORTEX")
VARIABLE = "OPENBLAS_CORETYPE"


class NumPy(Backend):
    """`numpy.matmul`. core: name of the core whose kernels OpenBLAS should use ('' for its own choice)."""

    def __init__(self, name: str, core: str = "") -> None:
        super().__init__(name, {VARIABLE: core} if core else {})
        self._core = core

    def matmul(self, a: torch.Tensor, b: torch.Tensor, dtype: Dtype, threads: int) -> Callable[[], torch.Tensor]:
        import numpy as np
        import torch

        if dtype not in (Dtype.FLOAT32, Dtype.FLOAT64):
            raise Unsupported(f"NumPy's BLAS has no {dtype} product")
        if self._core:
            self._require_core_type()
        left, right = a.numpy(), b.numpy()
        out = np.empty((a.shape[0], b.shape[1]), dtype=left.dtype)
        wrapped = torch.from_numpy(out)

        def product() -> torch.Tensor:
            np.matmul(left, right, out=out)
            return wrapped

        return product

    def _require_core_type(self) -> None:
        """Raise Unsupported unless OpenBLAS uses the requested kernels, because it ignores requests it cannot meet."""
        actual = core_type()
        if not actual:
            raise Unsupported("NumPy's BLAS is not OpenBLAS")
        if actual.lower() != self._core.lower():
            raise Unsupported(f"this OpenBLAS has no {self._core} kernels for this CPU: it took {actual}")


def core_type() -> str:
    """Return the core type whose kernels NumPy's OpenBLAS uses in this process; '' for another BLAS."""
    import numpy.linalg as _loads_it  # noqa: F401
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["internal_api"] == "openblas"]
    return str(pools[0].get("architecture") or "") if pools else ""
