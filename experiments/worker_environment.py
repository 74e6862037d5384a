"""Give measuring processes only the environment variables needed to find programs, libraries and devices.

A variable set for another purpose (OPENBLAS_CORETYPE=Haswell or LD_PRELOAD=libjemalloc.so) can halve a rate without a
trace in the result. No blocklist can be complete, so this module uses an allowlist.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Names of the allowed variables, by purpose. A `*` at the end of a name stands for any suffix.
PASSED = {
    "programs, libraries and headers": (
        "PATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH DYLD_FRAMEWORK_PATH NIX_LD "
        "NIX_LD_LIBRARY_PATH LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH CUDA_HOME CUDA_PATH ROCM_HOME "
        "ROCM_PATH HIP_PATH ONEAPI_ROOT TRITON_LIBCUDA_PATH"
    ),
    "Python and its packages": (
        "PYTHONPATH PYTHONHOME PYTHONPLATLIBDIR PYTHONUSERBASE PYTHONNOUSERSITE PYTHONSAFEPATH PYTHONEXECUTABLE "
        "__PYVENV_LAUNCHER__ VIRTUAL_ENV CONDA_PREFIX"
    ),
    "folders to write": (
        "HOME TMPDIR TEMP TMP XDG_* PYTHONPYCACHEPREFIX PYTHONDONTWRITEBYTECODE CUDA_CACHE_PATH TRITON_CACHE_DIR "
        "TORCHINDUCTOR_CACHE_DIR NUMBA_CACHE_DIR MIOPEN_USER_DB_PATH MIOPEN_CUSTOM_CACHE_DIR STUDY_MODELS"
    ),
    "who, where, in which language": "USER LOGNAME LANG LANGUAGE LC_* TZ",
    "which devices there are": (
        "CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_MPS_PIPE_DIRECTORY NVIDIA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES "
        "ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL HSA_OVERRIDE_GFX_VERSION HSA_ENABLE_DXG_DETECTION ZE_AFFINITY_MASK "
        "ZE_FLAT_DEVICE_HIERARCHY ZE_ENABLE_PCI_ID_DEVICE_ORDER ZES_ENABLE_SYSMAN ONEAPI_DEVICE_SELECTOR "
        "OCL_ICD_VENDORS VK_DRIVER_FILES VK_ADD_DRIVER_FILES VK_ICD_FILENAMES"
    ),
    "Windows itself": (
        "SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT USERNAME USERPROFILE HOMEDRIVE HOMEPATH APPDATA LOCALAPPDATA "
        "PROGRAMDATA PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432 PROCESSOR_ARCHITECTURE NUMBER_OF_PROCESSORS"
    ),
    # `probe` runs Git to describe this checkout, and Git may need these variables to read the folder.
    "which folders git may read": "GIT_CONFIG*",
}
_NAMES = " ".join(PASSED.values()).split()
_NAMES_ALLOWED = {name for name in _NAMES if not name.endswith("*")}
_PREFIXES_ALLOWED = tuple(name.removesuffix("*") for name in _NAMES if name.endswith("*"))
# Blocked variables to report to the user and in the record: only those that are known to affect measurements, since
# many others are private (for example, NCCL's variables name hosts and addresses). The list may be incomplete.
_REPORTED = re.compile(
    # Do not report variables with versions and folders: container images set many, and they do not affect measurements.
    r"(?!\w+_(VERSION|HOME|DIR|PATH|ROOT|ARCH_LIST)\Z)(?:"
    r"(OPENBLAS|MKL|ONEDNN|DNNL|BLIS|NVPL_BLAS|GOTO|OMP|KMP|GOMP|VECLIB|NUMBA|POLARS(?!_CLOUD)|CUDA|CUBLAS|CUDNN|"
    r"HIPBLASLT|ROCBLAS|MIOPEN|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|XLA|ORT|MALLOC)_\w+|"
    r"ATEN_CPU_CAPABILITY|NPY_DISABLE_CPU_FEATURES|NVIDIA_TF32_OVERRIDE|GLIBC_TUNABLES|LD_PRELOAD|LD_AUDIT|"
    r"DYLD_INSERT_LIBRARIES|PYTHON(OPTIMIZE|DEVMODE|MALLOC|TRACEMALLOC|FAULTHANDLER|PROFILEIMPORTTIME|DEBUG|HASHSEED))"
)
# A variable's value is recorded only if it matches, since paths name people and machines, and longer values may be
# secrets.
_SETTING = re.compile(r"[\w.,:;=+%() -]{0,60}")
_HIDDEN = "(not told)"


# Disable telemetry, downloads and version checks. ONNX Runtime's wheels send telemetry by default and store a machine
# identifier in the home folder (its Privacy.md). llvmlite before 0.45 needs a variable to read LLVM's present IR.
FIXED_VARIABLES = {
    "ORT_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1", "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1",
    "LLVMLITE_ENABLE_OPAQUE_POINTERS": "1",
}  # fmt: skip
# Name of OpenVINO's module for telemetry. No variable disables this telemetry, so `set_fixed_variables` prevents the
# module's import, without which OpenVINO works too.
REPORTING = "openvino_telemetry"

# Extra variables by torch's device type. Without TEARDOWN_CUPTI, CUPTI (used by the profiler) stays attached after
# the first profile and slows every launch (pytorch#144455).
_OF_DEVICES = {"cuda": {"TEARDOWN_CUPTI": "1"}}


def set_fixed_variables() -> None:
    """Set FIXED_VARIABLES in this process and its children."""
    os.environ.update(FIXED_VARIABLES)
    sys.modules.setdefault(REPORTING, None)  # type: ignore[arg-type]


def device_variables(device: str) -> dict[str, str]:
    """Return the extra variables for a measuring process on this device."""
    return dict(_OF_DEVICES.get(device.partition(":")[0], {}))


def is_allowed(name: str) -> bool:
    """True if measuring processes get the variable."""
    return name in _NAMES_ALLOWED or name.startswith(_PREFIXES_ALLOWED)


def clean_environment() -> dict[str, str]:
    """Return the allowed variables from this process's environment."""
    return {name: value for name, value in os.environ.items() if is_allowed(name)}


def blocked_variables() -> dict[str, str]:
    """Return the blocked variables that are known to affect measurements, with their values."""
    return {
        name: value if _SETTING.fullmatch(value) else _HIDDEN
        for name, value in sorted(os.environ.items())
        if _REPORTED.fullmatch(name) and not is_allowed(name) and name not in FIXED_VARIABLES
    }


@contextmanager
def clean_environment_applied() -> Iterator[None]:
    """Apply a measuring process's environment to this process, and restore the old one afterwards.

    Libraries imported meanwhile choose the same settings as in a measuring process.
    """
    before = dict(os.environ)
    for name in before.keys() - clean_environment().keys() - FIXED_VARIABLES.keys():
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(before)
