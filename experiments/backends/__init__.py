"""Libraries of matrix products on the CPU: which is best is measured, never assumed."""

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

# A parameter of this type in an experiment takes these names.
Library = Annotated[str, "a library's name"]
NAMES = tuple(_BY_NAME)
# What a preset may say in place of a name: all core types of this processor's kind, and
# whatever other BLAS is installed (possibly none).
GROUPS = ("openblas-*", "other-blas")


def expand(name: str) -> list[str]:
    """The libraries that a preset means by a name or one of GROUPS."""
    if name == "openblas-*":
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        return [f"openblas-{core.lower()}" for core in (CORE_TYPES_X86 if x86 else CORE_TYPES_ARM)]
    if name == "other-blas":
        return [backend.name for backend in BACKENDS if isinstance(backend, Cblas) and backend.path()]
    return [name]


def get(name: str) -> Backend | None:
    """The library called `name`; None if there is none."""
    return _BY_NAME.get(name)


def environment(name: str) -> dict[str, str]:
    """Variables with which a process that uses the library `name` is started."""
    backend = get(name)
    return dict(backend.environment) if backend else {}
