"""The definition of the chains for GPUs, without one: as C++ on this machine, and by NVIDIA's compiler."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.kernels.sequential import cpu, cuda, definition
from experiments.registry import get
from experiments.work import Unsupported, Work

GPU = SimpleNamespace(kind="gpu", name="cuda:0", unsupported=lambda backend: Unsupported(f"{backend} on cuda:0"))
KINDS = [
    ("chain", "random", 4),
    ("chase", "random", 300 * 3 * 128),
    ("branches", "predictable", 256),
    ("branches", "random", 256),
    ("states", "text", 1 << 21),
]


def point(kernel: str, data: str, footprint: int, chains: str) -> Work:
    params = {"kernel": kernel, "data": data, "footprint": footprint, "chains": chains}
    made = get("sequential").function(GPU, backend="cupy", threads=0, **params)
    assert isinstance(made, Work)
    return made


SHIM = """
struct Index { unsigned x; };
extern "C" Index blockIdx, threadIdx, blockDim;
Index blockIdx, threadIdx, blockDim;
#define __global__
#define __launch_bounds__(threads)
"""


class FakeCupy:
    """Arrays of NumPy, and kernels that a C++ compiler makes of CUDA C; threads run one after the other."""

    uint64 = np.uint64

    def __init__(self, folder: Path, compiler: str) -> None:
        self.folder, self.compiler = folder, compiler
        self.cuda = SimpleNamespace(Device=lambda index: SimpleNamespace(use=lambda: None))
        self.launches: list[tuple[int, int]] = []

    class Array(np.ndarray):
        def set(self, values: Any) -> None:
            self[:] = values

        def get(self) -> Any:
            return np.array(self)

    def asarray(self, array: Any) -> Any:
        return np.array(array).view(FakeCupy.Array)

    def zeros(self, length: int, dtype: Any) -> Any:
        return np.zeros(length, dtype).view(FakeCupy.Array)

    def RawModule(self, code: str) -> Any:  # noqa: N802 - CuPy's name
        source, library = self.folder / "kernels.cpp", self.folder / "kernels.so"
        source.write_text(SHIM + code.replace("pmevent 1;", ""))
        subprocess.run([self.compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        loaded = ctypes.CDLL(str(library))
        return SimpleNamespace(get_function=lambda name: self.kernel(loaded, loaded[name]))

    def kernel(self, loaded: Any, function: Any) -> Any:
        places = [ctypes.c_uint.in_dll(loaded, name) for name in ("blockIdx", "threadIdx", "blockDim")]

        def launch(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            self.launches.append((*grid, *block))
            given = [
                ctypes.c_void_p(one.ctypes.data) if isinstance(one, np.ndarray) else ctypes.c_uint(int(one))
                for one in arguments
            ]
            assert all(one.dtype == np.uint32 for one in arguments if not isinstance(one, np.ndarray))
            for here in product(range(*grid), range(*block)):
                for place, value in zip(places, (*here, *block), strict=True):
                    place.value = value
                function(*given)

        return launch


@pytest.fixture
def cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    fake = FakeCupy(tmp_path, compiler)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(cuda.CudaChains, "most", classmethod(lambda cls, device, threads: 300))
    cuda.module.cache_clear()
    yield fake
    cuda.module.cache_clear()


@pytest.mark.parametrize("chains", ["one", "full"])
@pytest.mark.parametrize(("kernel", "data", "footprint"), KINDS)
def test_the_gpu_computes_the_same_integers(
    cupy: FakeCupy, kernel: str, data: str, footprint: int, chains: str
) -> None:
    made = point(kernel, data, footprint, chains)
    assert made.check is not None
    assert made.check() == 0.0
    # Two blocks hold 300 chains, and the threads past the last chain do nothing.
    assert cupy.launches == [(1, 1) if chains == "one" else (2, 256)]


def test_without_cupy_the_gpu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda.module.cache_clear()
    with pytest.raises(Unsupported, match="pip install cupy"):
        point("chain", "random", 4, "one")


def test_the_definitions_are_found_by_kind_of_device() -> None:
    assert (definition("cpu"), definition("gpu")) == (cpu.CpuChains, cuda.CudaChains)


def nvrtc() -> Any:
    """NVIDIA's run-time compiler, from its wheel or the system; skips the test without it."""
    places = [found for folder in map(Path, sys.path) for found in folder.glob("nvidia/*/lib/libnvrtc.so.*")]
    for name in [*map(str, places), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    pytest.skip("no NVRTC: pip install nvidia-cuda-nvrtc")


@pytest.mark.parametrize("architecture", ["compute_75", "compute_90"])
def test_nvidias_compiler_takes_the_kernels_and_keeps_their_branches(architecture: str) -> None:
    library, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), cuda.SOURCE.encode(), b"kernels.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    outcome = library.nvrtcCompileProgram(program, 1, options)
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert outcome == 0, log.value.decode()
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, text)
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n}", text.value.decode(), re.DOTALL))
    assert set(bodies) == set(cpu.KERNELS)
    # Both arms of each unrolled branch are there, marked, and reached by a jump.
    marks, jumps = bodies["branches"].count("pmevent"), len(re.findall(r"@!?%p\d+ bra", bodies["branches"]))
    assert marks > 1 and jumps > marks / 2
    assert "selp" not in bodies["branches"]
    loads = bodies["chase"].count("ld.global.nc")
    assert loads > 1
    assert bodies["chain"].count("mul.lo") + bodies["chain"].count("mad.lo") >= 4
