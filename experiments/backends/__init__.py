"""CPU libraries for matrix products; the study measures the libraries to find the fastest."""

from __future__ import annotations

import platform
from typing import Annotated

from experiments.backends.base import Backend
from experiments.backends.cblas import Cblas
from experiments.backends.loop_products import Loops
from experiments.backends.openblas import CORE_TYPES_ARM, CORE_TYPES_X86, NumPy
from experiments.backends.pytorch import OneDnn, Torch

BACKENDS: tuple[Backend, ...] = (
    Torch("torch"),
    OneDnn("onednn"),
    NumPy("numpy"),
    *(NumPy(f"openblas-{core.lower()}", core) for core in (*CORE_TYPES_X86, *CORE_TYPES_ARM)),
    Cblas("mkl", ("mkl_rt",)),
    Cblas("blis", ("blis", "blis-mt")),
    Cblas("system-openblas", ("openblas",)),
    Cblas("nvpl", ("nvpl_blas_lp64_gomp",)),
    Cblas("armpl", ("armpl_lp64_mp",)),
    Cblas("accelerate", ("Accelerate",)),
    *(Loops(name) for name in ("python", "scalar", "simd")),
)
_BY_NAME = {backend.name: backend for backend in BACKENDS}

# Type for experiment parameters whose value is the name of a library in BACKENDS.
Library = Annotated[str, "a library's name"]
NAMES = tuple(_BY_NAME)
# Names that stand for several libraries in presets: OpenBLAS for each core type in this processor architecture, and all
# other BLAS libraries that are installed (possibly none).
GROUPS = ("openblas-*", "other-blas")


def expand_group(name: str) -> list[str]:
    """Expand a library name, or a name in GROUPS, to library names."""
    if name == "openblas-*":
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        return [f"openblas-{core.lower()}" for core in (CORE_TYPES_X86 if x86 else CORE_TYPES_ARM)]
    if name == "other-blas":
        return [backend.name for backend in BACKENDS if isinstance(backend, Cblas) and backend.path()]
    return [name]


def get_backend(name: str) -> Backend | None:
    """Return the library called `name`; None if the name is unknown."""
    return _BY_NAME.get(name)


def environment(name: str) -> dict[str, str]:
    """Return the variables to set when starting a process that uses library `name`."""
    backend = get_backend(name)
    return dict(backend.environment) if backend else {}
