"""CUDA C without a GPU: run as C++ on this machine, and compiled by NVIDIA's own compiler.

Blocks run one after the other. The threads of a block do so too, unless the source has
barriers: then each is a thread of the system, and `__shared__` memory is the block's.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.missing_tools import missing

SHIM = """
#include <cmath>
#include <cstring>
#include <pthread.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)
struct Index { unsigned x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }
using std::fma; using std::fmaf;
static Index gridDim, blockDim;
static thread_local Index blockIdx, threadIdx;
static pthread_barrier_t barrier;
static inline void __syncthreads() { pthread_barrier_wait(&barrier); }
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcg(const T* p) { return *p; }
static inline int atomicAdd(int* p, int v) { return __sync_fetch_and_add(p, v); }
static inline unsigned atomicAdd(unsigned* p, unsigned v) { return __sync_fetch_and_add(p, v); }
extern "C" void standin_launch(unsigned* grid, unsigned* block) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    pthread_barrier_init(&barrier, nullptr, block[0] * block[1] * block[2]);
}
extern "C" void standin_thread(unsigned* block, unsigned* thread) {
    blockIdx = {block[0], block[1], block[2]};
    threadIdx = {thread[0], thread[1], thread[2]};
}
"""


def pad_to_three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def as_unsigned(sizes: tuple[int, ...]) -> Any:
    return (ctypes.c_uint * 3)(*sizes)


class Array(np.ndarray):
    """A NumPy array that answers like CuPy's."""

    def set(self, values: Any) -> None:
        self[:] = values

    def get(self) -> Any:
        return np.array(self)


class Cupy:
    """What the study asks of CuPy: arrays, and kernels that a C++ compiler makes of CUDA C.

    launches: grid and block of each launch, as they were given. streams: the address of the stream of each, and
    how it was made CuPy's.
    """

    uint64 = np.uint64

    def __init__(self, compiler: str) -> None:
        self.compiler = compiler
        self.cuda = SimpleNamespace(
            Device=lambda index: SimpleNamespace(use=lambda: None),
            Stream=SimpleNamespace(from_external=self._taken),
            ExternalStream=lambda address: self._on(address, "ExternalStream"),
        )
        self.launches: list[tuple[int, ...]] = []
        self.streams: list[tuple[int, str]] = []

    def _taken(self, stream: Any) -> Any:
        version, address = stream.__cuda_stream__()
        assert (version, type(address)) == (0, int), "CuPy takes version 0 of the protocol only"
        return self._on(address, "from_external")

    def _on(self, address: int, how: str) -> Any:
        self.streams.append((address, how))
        return nullcontext()

    def asarray(self, array: Any) -> Any:
        return np.array(array).view(Array)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: None)

    def zeros(self, length: int, dtype: Any) -> Any:
        return np.zeros(length, dtype).view(Array)

    def RawModule(self, code: str, options: tuple[str, ...] = ()) -> Any:  # noqa: N802 - CuPy's name
        defines = tuple(option for option in options if option.startswith("-D"))
        loaded, together = _compile(self.compiler, code, defines), "__syncthreads" in code
        return SimpleNamespace(get_function=lambda name: self._kernel(loaded, loaded[name], together))

    def _kernel(self, loaded: Any, function: Any, together: bool) -> Any:
        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], **_: Any) -> None:
            self.launches.append((*grid, *block))
            given = [_convert_argument(argument) for argument in arguments]
            loaded.standin_launch(as_unsigned(pad_to_three(grid)), as_unsigned(pad_to_three(block)))

            def thread(here: tuple[int, ...], at: tuple[int, ...]) -> None:
                loaded.standin_thread(as_unsigned(here), as_unsigned(at))
                function(*given)

            threads = list(product(*map(range, pad_to_three(block))))
            # As many threads of the system as a block has: each of them waits at the barriers.
            with ThreadPoolExecutor(len(threads)) if together else nullcontext() as pool:
                for here in product(*map(range, pad_to_three(grid))):
                    for _ in (pool.map if pool else map)(lambda at, here=here: thread(here, at), threads):
                        pass

        return launch


@cache
def _compile(compiler: str, code: str, defines: tuple[str, ...]) -> ctypes.CDLL:
    """The library that the compiler makes of CUDA C: once for all tests of the same source, for it takes a second."""
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(SHIM + code.replace("pmevent 1;", ""))
        words = [compiler, "-std=c++17", "-O1", "-pthread", "-shared", "-fPIC", "-w", *defines]
        subprocess.run([*words, "-o", str(library), str(source)], check=True)
        # What is loaded stays when its file is gone.
        return ctypes.CDLL(str(library))


def _convert_argument(one: Any) -> Any:
    if isinstance(one, np.ndarray):
        return ctypes.c_void_p(one.ctypes.data)
    if isinstance(one, int):  # the address of a tensor
        return ctypes.c_void_p(one)
    # CuPy passes NumPy's scalars as they are: a Python number would have a width of its own.
    assert isinstance(one, np.generic), f"{one!r} is no NumPy scalar"
    kinds = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int, "uint32": ctypes.c_uint}
    return {**kinds, "int64": ctypes.c_longlong, "uint64": ctypes.c_ulonglong}[one.dtype.name](one.item())


def find_compiler() -> str | None:
    """The path of a C++ compiler."""
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def install(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    """Put the stand-in in CuPy's place for a test. Skips it where there is no C++ compiler."""
    from experiments.kernels.cuda_compile import compile_module

    compiler = find_compiler()
    if compiler is None:
        missing("kernels in CUDA, run on the CPU: no C++ compiler; `apt-get install g++` (Debian)")
    fake = Cupy(compiler)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    stream = SimpleNamespace(cuda_stream=7, __cuda_stream__=lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    compile_module.cache_clear()
    return fake


@cache
def _load_nvrtc() -> Any:
    places = [found for folder in map(Path, sys.path) for found in folder.glob("nvidia/*/lib/libnvrtc.so.*")]
    for name in [*map(str, places), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compile_to_ptx(source: str, architecture: str, options: tuple[str, ...] = ()) -> dict[str, str]:
    """Each kernel's body in PTX, by NVIDIA's compiler; fails the test with its log. architecture: compute_90.

    Skips the test where the compiler is not installed (its wheel needs no GPU).
    """
    library, program, size = _load_nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    if library is None:
        missing("kernels in CUDA, by NVIDIA's compiler: no NVRTC; `pip install nvidia-cuda-nvrtc`")
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    words = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in options)]
    outcome = library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert outcome == 0, log.value.decode()
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, text)
    return dict(re.findall(r"\.entry (\w+)\((.*?)\n}", text.value.decode(), re.DOTALL))
