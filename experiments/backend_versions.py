"""Find version and build of the library behind each name in the samples' column `backend`.

Versions come from packages' metadata, which needs no import. Only programs and libraries without metadata are asked.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from experiments import backends
from experiments.backends.cblas import Cblas
from experiments.lscpu import parse_text
from experiments.machine_facts import UnreadableError, clean

# Seconds to wait for a program's version.
_PATIENCE_S = 30.0
Entry = dict[str, str]


def describe_package(*names: str, build: Callable[[], str] = str) -> Entry | None:
    """Return the version of the first installed package, its build, and its wheel's; None if none is installed.

    build: returns more about the build.
    """
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.distribution(name)
            return make_entry(name, installed.version, build(), _wheel_build(installed.read_text("WHEEL") or ""))
    return None


def describe_program(name: str, *siblings: str) -> Entry | None:
    """Return version, commit and compiler of llama.cpp's program on PATH; None if there is none.

    siblings: programs from the same build that may tell the version in its place.
    """
    path = shutil.which(name)
    if path is None:
        return None
    for program in (name, *siblings):
        printed = _output(str(Path(path).with_name(program)), "--version")
        if version := re.search(r"^version: (\d+) \(([0-9a-f]+)\)", printed, re.MULTILINE):
            compiler = re.search(r"^built with (.*)", printed, re.MULTILINE)
            return make_entry(name, version[1], f"commit {version[2]}", compiler[1] if compiler else "")
    return make_entry(name, "")


def describe_shared_library(backend: Cblas) -> Entry | None:
    """Return version and kernels of a BLAS library, asked in a process of its own; None if it is not installed."""
    if not (path := backend.path()):
        return None
    code = (
        "import ctypes, json, sys, threadpoolctl; ctypes.CDLL(sys.argv[1]); "
        "print(json.dumps([pool for pool in threadpoolctl.threadpool_info() if pool['user_api'] == 'blas']))"
    )
    with suppress(ValueError, LookupError, TypeError):
        pool = json.loads(_output(sys.executable, "-c", code, path).splitlines()[0])[0]
        return make_entry(Path(path).name, str(pool["version"]), str(pool.get("architecture", "")))
    return make_entry(Path(path).name, "")


def describe_interpreter() -> Entry:
    """Return the Python interpreter's version and compiler."""
    return make_entry(platform.python_implementation(), platform.python_version(), platform.python_compiler())


def make_entry(package: str, version: str, *builds: str) -> Entry:
    """Make a record's entry; texts that may identify the machine are left out."""
    parts = []
    for build in builds:
        with suppress(UnreadableError):
            parts.append(clean(build, "build"))
    entry = {"package": parse_text(package) or "unknown", "version": parse_text(version) or "unknown"}
    return entry | ({"build": "; ".join(parts)[:200]} if parts else {})


def _wheel_build(wheel: str) -> str:
    """Return build number and platforms from a package's file WHEEL: PyPI's are for manylinux, local builds are not."""
    fields = re.findall(r"^(Build|Tag): ?(\S+)$", wheel, re.MULTILINE)
    numbers = [f"build {value}" for key, value in fields if key == "Build"]
    return " ".join([*numbers, *(value for key, value in fields if key == "Tag")][:4])


def _output(*words: str) -> str:
    """Run a program in the project's folder; return what it prints, '' if it fails or takes too long."""
    with suppress(OSError, subprocess.SubprocessError):
        ended = subprocess.run(
            words,
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            cwd=Path(__file__).parents[1],
        )
        return (ended.stdout + b"\n" + ended.stderr).decode("utf-8", "replace")
    return ""


def onednn_version() -> str:
    """Return the version and commit of torch's oneDNN; '' without oneDNN."""
    import torch

    line = re.search(r"MKL-DNN v([0-9.]+)(?: \(Git Hash ([0-9a-f]+)\))?", torch.__config__.show())
    return " ".join(filter(None, [line[1], line[2] and line[2][:10]])) if line else ""


def _onednn() -> str:
    return f"oneDNN {onednn_version() or 'missing'}"


def _torch_commit() -> str:
    import torch

    return f"commit {(torch.version.git_version or 'unknown')[:10]}"


def _llvm() -> str:
    from llvmlite import binding

    return f"LLVM {'.'.join(map(str, binding.llvm_version_info))}"


def _numpy_blas(*keys: str) -> str:
    """Return name and version of the BLAS that NumPy loads, and threadpoolctl's values for other `keys`."""
    import numpy.linalg as _loads_it  # noqa: F401
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "numpy" in pool["filepath"]]
    return " ".join(str(pools[0].get(key, "")) for key in ("internal_api", "version", *keys)) if pools else ""


def _compilers() -> str:
    """Return the compilers for `torch.compile`: the C++ compiler as inductor chooses it, and Triton."""
    lines = _output(os.environ.get("CXX", "g++"), "--version").splitlines()
    return ", ".join(filter(None, [*lines[:1], _name_version("triton", "pytorch-triton-rocm", "pytorch-triton-xpu")]))


def _name_version(*names: str) -> str:
    """Return name and version of the first installed package; '' if none is installed."""
    entry = describe_package(*names)
    return f"{entry['package']} {entry['version']}" if entry else ""


def _vulkan_adapters() -> str:
    """Return Vulkan's adapters and their drivers. Ask in a process of its own, because drivers may crash."""
    code = (
        "from experiments.kernels.webgpu import adapters; print('; '.join(sorted({f\"{about['device']}: "
        "{about['description']}\" for about in (adapter.info for adapter in adapters())})))"
    )
    return (_output(sys.executable, "-c", code).splitlines() or [""])[0] if _has_vulkan() else ""


def _has_vulkan() -> bool:
    with suppress(OSError):
        return bool(ctypes.CDLL("libvulkan.so.1"))
    return False


def _package(*names: str, build: Callable[[], str] = str) -> Callable[[], Entry | None]:
    return partial(describe_package, *names, build=build)


_NVRTC = partial(_name_version, "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13")
_POLARS = partial(_name_version, "polars-runtime-32", "polars-runtime-64", "polars-runtime-compat")
# Source for each backend that an experiment can record. Names with the same source share its function.
LIBRARIES: dict[str, Callable[[], Entry | None]] = {
    **dict.fromkeys(("torch", "channels_last", "graph"), _package("torch", build=_torch_commit)),
    "onednn": _package("torch", build=_onednn),
    "inductor": _package("torch", build=_compilers),
    "numpy": _package("numpy", build=partial(_numpy_blas, "architecture")),
    **dict.fromkeys(
        (name for name in backends.NAMES if name.startswith("openblas-")), _package("numpy", build=_numpy_blas)
    ),
    **{
        backend.name: partial(describe_shared_library, backend)
        for backend in backends.BACKENDS
        if isinstance(backend, Cblas)
    },
    "python": describe_interpreter,
    **dict.fromkeys(("scalar", "simd", "numba"), _package("numba", build=_llvm)),
    **dict.fromkeys(("llvm", "llvm-nt", "llvm-scalar"), _package("llvmlite", build=_llvm)),
    **dict.fromkeys(("cupy", "cuda"), _package("cupy-cuda13x", "cupy-cuda12x", "cupy-rocm-7-0", "cupy", build=_NVRTC)),
    **dict.fromkeys(("vulkan", "webgpu"), _package("wgpu", build=_vulkan_adapters)),
    "onnx": _package("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-rocm"),
    "openvino": _package("openvino"),
    "openvino-genai": _package("openvino-genai"),
    "pandas": _package("pandas"),
    "polars": _package("polars", build=_POLARS),
    "sklearn": _package("scikit-learn"),
    "xgboost": _package("xgboost", "xgboost-cpu"),
    "lightgbm": _package("lightgbm"),
    **dict.fromkeys(("transformers", "transformers-graph"), _package("transformers")),
    "llama-cpp-python": _package("llama-cpp-python"),
    "xllamacpp": _package("xllamacpp"),
    "llama-bench": partial(describe_program, "llama-bench", "llama-cli", "llama-server"),
    "llama-server": partial(describe_program, "llama-server"),
}


def backend_versions() -> tuple[dict[str, Entry], dict[str, str]]:
    """Return package, version and build of each installed backend, and the reason for each that fails to answer."""
    versions, unreadable = {}, {}
    described: dict[Callable[[], Entry | None], Entry | None] = {}
    for name, describe in LIBRARIES.items():
        if name.startswith("openblas-") and name not in backends.expand_group("openblas-*"):
            continue
        try:
            if describe not in described:
                described[describe] = describe()
            if entry := described[describe]:
                versions[name] = entry
        except Exception as fault:  # a broken package may raise anything
            # Leave out paths, which may contain user names.
            message = re.sub(r"\S*[/\\]\S*", "…", f"{type(fault).__name__}: {fault}")
            try:
                unreadable[f"software.backends.{name}"] = clean(message, "its error")
            except UnreadableError as reason:
                unreadable[f"software.backends.{name}"] = str(reason)
    return dict(sorted(versions.items())), unreadable
