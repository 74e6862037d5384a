"""The environment in which libraries choose their kernels: their own choice, not an inherited one.

A variable that somebody set for another purpose (OPENBLAS_CORETYPE=Haswell, say)
can halve a library's rate without a trace in the result.
"""

from __future__ import annotations

import os
import re

# Variables that pick a library's kernels, cache sizes or threads. Threads are set per point.
_FAMILIES = (
    "OPENBLAS|MKL|ONEDNN|DNNL|BLIS|NVPL_BLAS|GOTO|OMP|KMP|GOMP|VECLIB|NUMBA|POLARS|"
    "CUBLAS|CUDNN|ROCBLAS|HIPBLASLT|MIOPEN"
)
_SINGLE = (
    "ATEN_CPU_CAPABILITY|NPY_DISABLE_CPU_FEATURES|CUDA_LAUNCH_BLOCKING|NVIDIA_TF32_OVERRIDE|"
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|PYTORCH_NO_CUDA_MEMORY_CACHING|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|"
    # Apple's GPU would hand to the CPU what it cannot do, and nothing would tell.
    "PYTORCH_HIP_ALLOC_CONF|PYTORCH_ENABLE_MPS_FALLBACK"
)
_CHOOSES = re.compile(rf"^((?:{_FAMILIES})_\w+|{_SINGLE})\Z")


def inherited() -> dict[str, str]:
    """The variables of this kind that this process was started with."""
    return {name: value for name, value in sorted(os.environ.items()) if _CHOOSES.match(name)}


def clean() -> dict[str, str]:
    """This process's environment without them."""
    return {name: value for name, value in os.environ.items() if not _CHOOSES.match(name)}
