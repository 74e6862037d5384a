"""Two ways to test CUDA C without a GPU: run it as C++ on the CPU, or only compile it with NVIDIA's compiler.

On the CPU, blocks run in sequence, and so do the threads in a block. If the source has barriers, however, the threads
in a block are system threads that share `__shared__` memory.
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
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.missing_tools import skip_without

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
    """NumPy array with the methods of CuPy arrays."""

    def set(self, values: Any) -> None:
        self[:] = values

    def get(self) -> Any:
        return np.array(self)


class Cupy:
    """Stand-in for CuPy with its arrays and kernels. A C++ compiler builds the kernels from CUDA C.

    launches: the grid and block sizes of each launch
    streams: the address of each stream in use, and the name of the CuPy function that wrapped the stream
    """

    uint64 = np.uint64

    def __init__(self, compiler: str) -> None:
        self.compiler = compiler
        self.cuda = SimpleNamespace(
            Device=lambda index: SimpleNamespace(use=lambda: None),
            Stream=SimpleNamespace(from_external=self._from_external),
            ExternalStream=lambda address: self._use_stream(address, "ExternalStream"),
        )
        self.launches: list[tuple[int, ...]] = []
        self.streams: list[tuple[int, str]] = []

    def _from_external(self, stream: Any) -> Any:
        version, address = stream.__cuda_stream__()
        assert (version, type(address)) == (0, int), "CuPy takes version 0 of the protocol only"
        return self._use_stream(address, "from_external")

    def _use_stream(self, address: int, wrapper: str) -> Any:
        self.streams.append((address, wrapper))
        return nullcontext()

    def asarray(self, array: Any) -> Any:
        return np.array(array).view(Array)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: None)

    def zeros(self, length: int, dtype: Any) -> Any:
        return np.zeros(length, dtype).view(Array)

    def RawModule(self, code: str, options: tuple[str, ...] = ()) -> Any:  # noqa: N802 - CuPy's name
        defines = tuple(option for option in options if option.startswith("-D"))
        library, has_barriers = _compile(self.compiler, code, defines), "__syncthreads" in code
        return SimpleNamespace(get_function=lambda name: self._kernel(library, library[name], has_barriers))

    def _kernel(self, library: Any, function: Any, has_barriers: bool) -> Any:
        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], **_: Any) -> None:
            self.launches.append((*grid, *block))
            values = [_convert_argument(argument) for argument in arguments]
            library.standin_launch(as_unsigned(pad_to_three(grid)), as_unsigned(pad_to_three(block)))

            def run_thread(block_index: tuple[int, ...], thread_index: tuple[int, ...]) -> None:
                library.standin_thread(as_unsigned(block_index), as_unsigned(thread_index))
                function(*values)

            threads = list(product(*map(range, pad_to_three(block))))
            # All threads in a block must run at once, since each waits at the barriers.
            with ThreadPoolExecutor(len(threads)) if has_barriers else nullcontext() as pool:
                for block_index in product(*map(range, pad_to_three(grid))):
                    for _ in (pool.map if pool else map)(partial(run_thread, block_index), threads):
                        pass

        return launch


@cache
def _compile(compiler: str, code: str, defines: tuple[str, ...]) -> ctypes.CDLL:
    """Compile CUDA C as C++ and load the library. The result is cached, because compiling takes a second."""
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(SHIM + code.replace("pmevent 1;", ""))
        words = [compiler, "-std=c++17", "-O1", "-pthread", "-shared", "-fPIC", "-w", *defines]
        subprocess.run([*words, "-o", str(library), str(source)], check=True)
        # A loaded library stays usable after its file is deleted.
        return ctypes.CDLL(str(library))


def _convert_argument(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, int):  # the address of a tensor's data
        return ctypes.c_void_p(argument)
    # CuPy chooses a width for Python numbers, so kernels must get NumPy scalars, which keep their width.
    assert isinstance(argument, np.generic), f"{argument!r} is no NumPy scalar"
    kinds = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int, "uint32": ctypes.c_uint}
    return {**kinds, "int64": ctypes.c_longlong, "uint64": ctypes.c_ulonglong}[argument.dtype.name](argument.item())


def find_compiler() -> str | None:
    """Return the path to a C++ compiler, if there is one."""
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def install(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    """Replace CuPy with the stand-in for one test; skip the test if there is no C++ compiler."""
    from experiments.kernels.cuda_compile import compile_module

    compiler = find_compiler()
    if compiler is None:
        skip_without("kernels in CUDA, run on the CPU: no C++ compiler; `apt-get install g++` (Debian)")
    fake = Cupy(compiler)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    stream = SimpleNamespace(cuda_stream=7, __cuda_stream__=lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    compile_module.cache_clear()
    return fake


@cache
def _load_nvrtc() -> Any:
    places = [file for folder in map(Path, sys.path) for file in folder.glob("nvidia/*/lib/libnvrtc.so.*")]
    for name in [*map(str, places), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compile_to_ptx(source: str, architecture: str, options: tuple[str, ...] = ()) -> dict[str, str]:
    """Compile with NVRTC and return the PTX body of each kernel; an error fails the test with NVRTC's log.

    architecture: for example compute_90. The test is skipped without NVRTC, whose wheel needs no GPU.
    """
    library, program, size = _load_nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    if library is None:
        skip_without("kernels in CUDA, by NVIDIA's compiler: no NVRTC; `pip install nvidia-cuda-nvrtc`")
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
