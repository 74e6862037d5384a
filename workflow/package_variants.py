"""Print, as JSON, the packages that suit this environment where packages with several names share their files.

Two such packages in one environment overwrite each other, and the removal of one breaks the other. The answer has
`cupy`, the requirement for the CuPy that fits torch ('' if one is installed, or torch has no CUDA), and `installed`,
the installed variant for each requirement that it stands in for. Run with `python -I`, to see the environment from
inside pip's isolated builds.
"""

from __future__ import annotations

import json
import re
import runpy
from importlib import metadata, util
from pathlib import Path

# Requirements, and the packages that provide the same modules.
VARIANTS = {
    "xgboost": ("xgboost-cpu",),
    "xgboost-cpu": ("xgboost",),
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-migraphx"),
    "snakemake": ("snakemake-minimal",),
}
# CUDA version of torch's default build on PyPI, for an environment without torch.
DEFAULT_CUDA = "13.0"


def installed_names() -> set[str]:
    """Return the installed packages' normal names."""
    names = (entry.metadata["Name"] for entry in metadata.distributions())
    return {normal_name(name) for name in names if name}


def normal_name(name: str) -> str:
    """Return a package's name in lower case with hyphens."""
    return re.sub("[-_.]+", "-", name).lower()


def torch_cuda() -> str | None:
    """Return the CUDA version of the installed torch build; DEFAULT_CUDA without torch, None without CUDA."""
    torch = util.find_spec("torch")
    if torch is None or torch.origin is None:
        return DEFAULT_CUDA
    # Importing torch would take seconds.
    return runpy.run_path(str(Path(torch.origin).with_name("version.py"))).get("cuda")


def fitting_cupy(installed: set[str]) -> str:
    """Return the CuPy to install beside torch; '' if one is among `installed`, or torch has no CUDA."""
    cuda = torch_cuda()
    if cuda is None or any(re.fullmatch("cupy(-(cuda|rocm).*)?", name) for name in installed):
        return ""
    return f"cupy-cuda{cuda.partition('.')[0]}x"


def installed_variants(installed: set[str]) -> dict[str, str]:
    """Return the installed package that provides a requirement's modules, by requirement."""
    providers = {name: sorted(installed & {*others}) for name, others in VARIANTS.items() if name not in installed}
    return {name: others[0] for name, others in providers.items() if others}


if __name__ == "__main__":
    names = installed_names()
    print(json.dumps({"cupy": fitting_cupy(names), "installed": installed_variants(names)}))
