"""CUDA C kernels without a GPU: right and broken kernels run as C++ on the CPU, and the compiled PTX is checked."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from experiments.devices.base import Device
from experiments.kernels import gpu_threads, naive_products, stream_cuda
from experiments.kernels.sequential import chains_class, cpu_kernels, cuda_kernels
from experiments.kernels.stream import STREAM_ARRAYS
from experiments.suite import bandwidth, parallelism
from experiments.workload import Dtype, Unsupported, Workload
from tests.experiments.cuda_standin import Cupy, compile_to_ptx, install
from tests.experiments.point_runs import GPU, build_work, passes_check
from tests.experiments.second_device import SecondCpu

GPUS = ["compute_75", "compute_90", "compute_100"]
OPS = ("copy", "scale", "add", "triad")
# A tile is the number of vectors that a block copies in a pass.
TILE = stream_cuda.UNROLL * stream_cuda.BLOCK


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    """GPU with 3 multiprocessors that hold 300 threads each."""
    monkeypatch.setattr(bandwidth, "CALL_BYTES", 1e5)
    monkeypatch.setattr(gpu_threads, "thread_capacity", lambda device: (3, 300))
    monkeypatch.setattr(parallelism, "STEPS", 1000)
    monkeypatch.setattr(parallelism, "TURNS", 8)
    monkeypatch.setattr(cuda_kernels.CudaChains, "max_chains", classmethod(lambda cls, device, threads: 300))
    return install(monkeypatch)


def stream_work(op: str, elements: int, dtype: Dtype = Dtype.FLOAT32, backend: str = "cupy") -> Workload:
    footprint = STREAM_ARRAYS[op] * elements * dtype.itemsize
    return build_work("bandwidth", GPU, op=op, footprint=footprint, dtype=dtype, backend=backend)


def parallelism_work(kernel: str, backend: str = "cupy", **changed: int) -> Workload:
    return build_work("parallelism", GPU, kernel=kernel, backend=backend, **{"paths": 0, **changed})


def product_work(kernel: str, n: int) -> Workload:
    return build_work("without-cuda", GPU, kernel=kernel, n=n, backend="cuda", dtype="float32")


def chain_work(kernel: str, data: str, footprint: int, chains: str) -> Workload:
    stand_in = SimpleNamespace(kind="gpu", name="cuda:0", unsupported_backend=GPU.unsupported_backend)
    device: Device = stand_in  # type: ignore[assignment]
    return build_work(
        "sequential", device, kernel=kernel, data=data, footprint=footprint, chains=chains, backend="cupy"
    )


# The arrays fill, in this order, less than a vector, less than a tile, whole tiles, and whole tiles plus some vectors
# and elements.
@pytest.mark.parametrize("elements", [1, 37, 4 * TILE, 8 * TILE + 4 * 300 + 3])
@pytest.mark.parametrize("dtype", [Dtype.FLOAT32, Dtype.FLOAT64])
def test_stream_kernels_compute_every_element(cupy: Cupy, dtype: Dtype, elements: int) -> None:
    for op in OPS:
        work = stream_work(op, elements, dtype)
        assert passes_check(work)
        moved = STREAM_ARRAYS[op] * elements * dtype.itemsize
        assert work.bytes == moved * -(-1e5 // moved)
        a, b = GPU.random_normal((1001,), dtype), GPU.random_normal((1001,), dtype)
        each, together = torch.empty_like(a), torch.empty_like(a)
        cupy.launches.clear()
        stream_cuda.plain_kernel(op, dtype, GPU)(each, a, b)
        stream_cuda.vector_kernel(op, dtype, GPU)(together, a, b, 1)
        assert torch.equal(each, together), "one thread per element computes the same"
        assert cupy.launches == [(4, stream_cuda.BLOCK), (1, stream_cuda.BLOCK)]


@pytest.mark.parametrize(
    ("kernel", "changed"),
    [
        *(("chains", {"in_flight": threads}) for threads in (1, 32, 700)),
        *(("paths", {"paths": count}) for count in (1, 4, 32)),
    ],
)
def test_chains_and_paths_match_the_reference(cupy: Cupy, kernel: str, changed: dict[str, Any]) -> None:
    work = parallelism_work(kernel, **changed)
    work.calls[0]()
    assert passes_check(work)
    if kernel == "chains":
        assert work.flop == 2 * 1000 * changed["in_flight"]
    if kernel == "paths":  # one block per multiprocessor fills the device
        assert set(cupy.launches) == {(3, gpu_threads.PATH_BLOCK)}


@pytest.mark.parametrize("chains", ["one", "full"])
@pytest.mark.parametrize(
    ("kernel", "data", "footprint"),
    [
        ("chain", "random", 4), ("chase", "random", 300 * 3 * 128), ("branches", "predictable", 256),
        ("branches", "random", 256), ("states", "text", 1 << 21),
    ],
)  # fmt: skip
def test_chains_end_at_the_reference_integers(cupy: Cupy, kernel: str, data: str, footprint: int, chains: str) -> None:
    assert passes_check(chain_work(kernel, data, footprint, chains))
    # The 300 chains need two blocks of 256 threads; the threads after the last chain are idle.
    assert cupy.launches == [(1, 1) if chains == "one" else (2, 256)]
    assert (chains_class("cpu"), chains_class("gpu")) == (cpu_kernels.CpuChains, cuda_kernels.CudaChains)


STREAM = (stream_work, ("triad", 4 * TILE + 4 * 300 + 3))
BREAKS = [
    (*STREAM, stream_cuda, "blockIdx.x == 0 && last < elements", "false"),
    (*STREAM, stream_cuda, "i += BLOCK", "i += count"),
    (*STREAM, stream_cuda, "a + (T)SCALAR * b", "a + (T)2.999 * b"),
    (*STREAM, stream_cuda, "to[first + u * BLOCK] =", "if (u) to[first + u * BLOCK] ="),
    (parallelism_work, ("chains", {"in_flight": 40}), gpu_threads, "fmaf(x, x, c)", "x * x + c"),
    (parallelism_work, ("chains", {"in_flight": 40}), gpu_threads, "step < steps", "step + 1 < steps"),
    (parallelism_work, ("chains", {"in_flight": 40}), gpu_threads, "which >= threads", "which + 1 >= threads"),
    (parallelism_work, ("paths", {"paths": 4}), gpu_threads, "& mask", "& 0"),
    (parallelism_work, ("paths", {"paths": 32}), gpu_threads, "case 31:", "case 32:"),
    (
        parallelism_work,
        ("paths", {"paths": 1}),
        gpu_threads,
        f"round < {gpu_threads.ROUNDS}",
        f"round < {gpu_threads.ROUNDS - 1}",
    ),
    (product_work, ("naive", {"n": 37}), naive_products, "i < k", "i + 1 < k"),
    (product_work, ("tiled", {"n": 37}), naive_products, "right[i][x], sum", "right[x][i], sum"),
    (product_work, ("tiled", {"n": 37}), naive_products, "start + x < k ?", "start + x < k - 1 ?"),
    (product_work, ("tiled", {"n": 37}), naive_products, "row < m && column < n)", "row + 1 < m && column < n)"),
]


@pytest.mark.parametrize(("make", "args", "module", "text", "wrong"), BREAKS)
def test_broken_kernel_fails_its_check(
    cupy: Cupy, monkeypatch: pytest.MonkeyPatch, make: Any, args: Any, module: Any, text: str, wrong: str
) -> None:
    assert text in module.SOURCE
    monkeypatch.setattr(module, "SOURCE", module.SOURCE.replace(text, wrong))
    assert not passes_check(make(*args) if make is stream_work else make(args[0], **args[1]))


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (17, 35, 50), (33, 15, 31)])
@pytest.mark.parametrize("kind", ["naive", "tiled"])
def test_products_are_right_for_any_shape(cupy: Cupy, kind: Any, shape: tuple[int, int, int]) -> None:
    (m, n, k), tile = shape, naive_products.TILE
    a, b, out = torch.randn(m, k), torch.randn(k, n), torch.full((m, n), torch.nan)
    naive_products.product(kind, "cuda:0")(a, b, out)
    assert torch.allclose(out.double(), a.double() @ b.double(), atol=1e-5)
    assert cupy.launches == [(-(-n // tile), -(-m // tile), tile, tile)]


def test_threads_are_spread_over_multiprocessors_first() -> None:
    spread = {1: (1, 32), 64: (2, 32), 132 * 32: (132, 32), 132 * 32 + 1: (67, 64), 132 * 2048: (132 * 16, 128)}
    assert {threads: gpu_threads.launch_shape(threads, 132) for threads in spread} == spread


def test_kernels_run_on_torchs_stream_without_deprecated_cupy_functions(cupy: Cupy) -> None:
    a, stream = GPU.random_normal((10,), Dtype.FLOAT32), torch.cuda.current_stream()
    absent_in_older: list[tuple[Any, str]] = [(stream, "__cuda_stream__"), (cupy.cuda.Stream, "from_external")]
    for absent in ([], *([attribute] for attribute in absent_in_older)):
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in absent:
                patch.delattr(owner, name)
            stream_cuda.plain_kernel("copy", Dtype.FLOAT32, GPU)(torch.empty_like(a), a, a)
        assert cupy.streams[-1] == (stream.cuda_stream, "ExternalStream" if absent else "from_external")


def test_unaligned_arrays_and_other_formats_are_refused(cupy: Cupy) -> None:
    data = GPU.random_normal((101,), Dtype.FLOAT32)
    with pytest.raises(ValueError, match="16 bytes"):
        stream_cuda.vector_kernel("copy", Dtype.FLOAT32, GPU)(data[1:], data[:-1], data[:-1], 1)
    with pytest.raises(Unsupported, match="not bfloat16"):
        stream_work("triad", 100, Dtype.BFLOAT16)


@pytest.mark.parametrize(("passes", "blocks"), [(1, 2**33 // (4 * TILE)), (2, 3 * stream_cuda.RESIDENT)])
def test_kernels_index_more_than_2_to_the_31_elements(
    monkeypatch: pytest.MonkeyPatch, passes: int, blocks: int
) -> None:
    launches = []
    monkeypatch.setattr(stream_cuda, "compile_kernel", lambda *_: lambda *launch: launches.append(launch))
    monkeypatch.setattr(SecondCpu, "describe", lambda _: {"multiprocessors": 3})
    huge = torch.empty(2**33, device="meta")
    stream_cuda.vector_kernel("copy", Dtype.FLOAT32, GPU)(huge, huge, huge, passes)
    stream_cuda.plain_kernel("copy", Dtype.FLOAT32, GPU)(huge, huge, huge)
    (vectors, plain) = launches
    assert vectors[:2] == (blocks, stream_cuda.BLOCK)
    assert plain[:2] == (2**33 // stream_cuda.BLOCK, stream_cuda.BLOCK)
    for length in (vectors[5], plain[5]):
        assert length == 2**33 and isinstance(length, np.int64)


@pytest.mark.parametrize("architecture", GPUS)
def test_nvidias_compiler_keeps_the_measured_instructions(architecture: str) -> None:
    bodies = compile_to_ptx(gpu_threads.SOURCE, architecture)
    # The unrolled part of a chain consists of multiply-adds, with no other instruction between them.
    assert re.search(r"(\s+fma\.rn\.f32[^\n]+\n){100}", bodies["chains"])
    # Each path has its own loop, unrolled by four, so its constant occurs four times. PTX shows constants as signed.
    signed = [multiplier - (1 << 32) if multiplier >> 31 else multiplier for multiplier in gpu_threads.MULTIPLIERS]
    assert all(bodies["paths"].count(f", {constant};") == 4 for constant in signed)
    # The naive product uses no shared memory, the tiled product has barriers, and neither has vector loads.
    bodies |= compile_to_ptx(naive_products.SOURCE, architecture)
    assert "shared" not in bodies["naive"] and "bar.sync" in bodies["tiled"]
    assert not re.search(r"\.v[24]\.", bodies["naive"] + bodies["tiled"])
    bodies |= compile_to_ptx(cuda_kernels.SOURCE, architecture)
    # The compiler unrolls the branches and keeps their markers (`pmevent`) and jumps. It does not replace jumps by
    # selections (`selp`).
    marks, jumps = bodies["branches"].count("pmevent"), len(re.findall(r"@!?%p\d+ bra", bodies["branches"]))
    assert marks > 1 and jumps > marks / 2
    assert "selp" not in bodies["branches"] + bodies["paths"]


def test_chains_fill_a_gpu_in_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(multi_processor_count=82, max_threads_per_multi_processor=6 * cuda_kernels.BLOCK + 100)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert cuda_kernels.CudaChains.max_chains("cuda:0", threads=1) == 82 * 6 * cuda_kernels.BLOCK


@pytest.mark.parametrize("architecture", GPUS)
def test_nvidias_compiler_starts_all_16_byte_loads_before_stores(architecture: str) -> None:
    for name, body in compile_to_ptx(stream_cuda.SOURCE, architecture, stream_cuda.OPTIONS).items():
        op, type, kind = name.split("_")
        access = r"{}\.global(?:\.cg)?\.v" + ("4\\.[fb]32" if type == "float" else "2\\.[fb]64")
        loads, stores = ([match.start() for match in re.finditer(access.format(word), body)] for word in ("ld", "st"))
        if kind == "plain":
            assert not loads and not stores, name
            continue
        fetched = [match.start() for match in re.finditer(r"ld\.global\.cg", body)]
        operands = STREAM_ARRAYS[op] - 1
        assert len(fetched) == operands * stream_cuda.UNROLL, name
        assert set(fetched) <= set(loads), name
        assert not [store for store in stores if fetched[0] < store < fetched[-1]], name
