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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments import backends
from experiments.backends.cblas import Cblas
from experiments.lscpu import parse_text
from experiments.machine_facts import UnreadableError, clean

# Seconds to wait for a program's version.
_PATIENCE_S = 30.0
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy-rocm-7-0", "cupy")
Entry = dict[str, str]


@dataclass(frozen=True)
class Library:
    """Where a backend's version comes from.

    packages: names of the package, of which the first installed one counts. build: returns more about the build, in
    addition to the package's build number and platforms.
    """

    packages: tuple[str, ...]
    build: Callable[[], str] = str

    def describe(self) -> Entry | None:
        """Return package, version and build; None if the package is not installed."""
        for name in self.packages:
            with suppress(importlib.metadata.PackageNotFoundError):
                found = importlib.metadata.distribution(name)
                return make_entry(name, found.version, self.build(), _wheel_build(found.read_text("WHEEL") or ""))
        return None


@dataclass(frozen=True)
class Program:
    """A program of llama.cpp on PATH. siblings: programs from the same build that tell the version in its place."""

    name: str
    siblings: tuple[str, ...] = ()

    def describe(self) -> Entry | None:
        """Return the program's version, commit and compiler; None if it is not on PATH."""
        path = shutil.which(self.name)
        if path is None:
            return None
        for name in (self.name, *self.siblings):
            printed = _output(str(Path(path).with_name(name)), "--version")
            if version := re.search(r"^version: (\d+) \(([0-9a-f]+)\)", printed, re.MULTILINE):
                compiler = re.search(r"^built with (.*)", printed, re.MULTILINE)
                return make_entry(self.name, version[1], f"commit {version[2]}", compiler[1] if compiler else "")
        return make_entry(self.name, "unknown")


@dataclass(frozen=True)
class SharedLibrary:
    """A BLAS library that `experiments.backends` finds on this system."""

    backend: Cblas

    def describe(self) -> Entry | None:
        """Return the library's version and kernels, asked in a process of its own; None if it is not installed."""
        if not (path := self.backend.path()):
            return None
        code = (
            "import ctypes, json, sys, threadpoolctl; ctypes.CDLL(sys.argv[1]); "
            "print(json.dumps([pool for pool in threadpoolctl.threadpool_info() if pool['user_api'] == 'blas']))"
        )
        with suppress(ValueError, LookupError, TypeError):
            pool = json.loads(_output(sys.executable, "-c", code, path).splitlines()[-1])[0]
            return make_entry(Path(path).name, str(pool["version"]), str(pool.get("architecture", "")))
        return make_entry(Path(path).name, "unknown")


@dataclass(frozen=True)
class Interpreter:
    """The Python interpreter."""

    def describe(self) -> Entry:
        """Return the interpreter's version and compiler."""
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
    """Return build number and platforms from a package's file WHEEL; a package built here names `linux_x86_64`."""
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
    triton = Library(("triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-windows")).describe()
    return ", ".join(filter(None, [*lines[:1], f"{triton['package']} {triton['version']}" if triton else ""]))


def _cuda_compiler() -> str:
    compiler = Library(("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13")).describe()
    return f"NVRTC {compiler['version']}" if compiler else ""


def _polars_runtime() -> str:
    runtime = Library(("polars-runtime-32", "polars-runtime-64", "polars-runtime-compat")).describe()
    return f"{runtime['package']} {runtime['version']}" if runtime else ""


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


_TORCH = Library(("torch",), _torch_commit)
_LLVM = Library(("llvmlite",), _llvm)
_NUMBA = Library(("numba",), _llvm)
_OPENBLAS = Library(("numpy",), _numpy_blas)
_WGPU = Library(("wgpu",), _vulkan_adapters)
_TRANSFORMERS = Library(("transformers",))
# Source for each backend that an experiment can record.
LIBRARIES: dict[str, Library | Program | SharedLibrary | Interpreter] = {
    **dict.fromkeys(("torch", "channels_last", "graph"), _TORCH),
    "onednn": Library(("torch",), _onednn),
    "inductor": Library(("torch",), _compilers),
    "numpy": Library(("numpy",), partial(_numpy_blas, "architecture")),
    **dict.fromkeys((name for name in backends.NAMES if name.startswith("openblas-")), _OPENBLAS),
    **{backend.name: SharedLibrary(backend) for backend in backends.BACKENDS if isinstance(backend, Cblas)},
    "python": Interpreter(),
    **dict.fromkeys(("scalar", "simd", "numba"), _NUMBA),
    **dict.fromkeys(("llvm", "llvm-nt", "llvm-scalar"), _LLVM),
    **dict.fromkeys(("cupy", "cuda"), Library(CUPY, _cuda_compiler)),
    **dict.fromkeys(("vulkan", "webgpu"), _WGPU),
    "onnx": Library(("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-rocm")),
    "openvino": Library(("openvino",)),
    "openvino-genai": Library(("openvino-genai",)),
    "pandas": Library(("pandas",)),
    "polars": Library(("polars",), _polars_runtime),
    "sklearn": Library(("scikit-learn",)),
    "xgboost": Library(("xgboost", "xgboost-cpu")),
    "lightgbm": Library(("lightgbm",)),
    **dict.fromkeys(("transformers", "transformers-graph"), _TRANSFORMERS),
    "llama-cpp-python": Library(("llama-cpp-python",)),
    "xllamacpp": Library(("xllamacpp",)),
    "llama-bench": Program("llama-bench", ("llama-cli", "llama-server")),
    "llama-server": Program("llama-server"),
}


def backend_versions() -> tuple[dict[str, Entry], dict[str, str]]:
    """Return package, version and build of each installed backend, and the reason for each that fails to answer."""
    versions, unreadable = {}, {}
    described: dict[Any, Entry | None] = {}
    for name, library in LIBRARIES.items():
        if name.startswith("openblas-") and name not in backends.expand_group("openblas-*"):
            continue
        try:
            if library not in described:
                described[library] = library.describe()
            if entry := described[library]:
                versions[name] = entry
        except Exception as fault:  # a broken package may raise anything
            unreadable[f"software.backends.{name}"] = parse_text(f"{type(fault).__name__}: {fault}")[:200]
    return dict(sorted(versions.items())), unreadable
