"""Kernels in CUDA C without a GPU: run as C++ on this machine, spoilt there, and compiled by NVIDIA's compiler."""

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
# Vectors that a block of threads does at a time.
TILE = stream_cuda.UNROLL * stream_cuda.BLOCK


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    """A GPU of 3 multiprocessors that hold 300 threads each."""
    monkeypatch.setattr(bandwidth, "CALL_BYTES", 1e5)
    monkeypatch.setattr(gpu_threads, "thread_capacity", lambda device: (3, 300))
    monkeypatch.setattr(parallelism, "STEPS", 1000)
    monkeypatch.setattr(parallelism, "TURNS", 8)
    monkeypatch.setattr(cuda_kernels.CudaChains, "max_chains", classmethod(lambda cls, device, threads: 300))
    return install(monkeypatch)


def stream(op: str, elements: int, dtype: Dtype = Dtype.FLOAT32, backend: str = "cupy") -> Workload:
    footprint = STREAM_ARRAYS[op] * elements * dtype.itemsize
    return build_work("bandwidth", GPU, op=op, footprint=footprint, dtype=dtype, backend=backend)


def parallels(kernel: str, backend: str = "cupy", **given: int) -> Workload:
    return build_work("parallelism", GPU, kernel=kernel, backend=backend, **{"paths": 0, **given})


def products_of(kernel: str, n: int) -> Workload:
    return build_work("without-cuda", GPU, kernel=kernel, n=n, backend="cuda", dtype="float32")


def chained(kernel: str, data: str, footprint: int, chains: str) -> Workload:
    named = SimpleNamespace(kind="gpu", name="cuda:0", unsupported_backend=GPU.unsupported_backend)
    device: Device = named  # type: ignore[assignment]
    return build_work(
        "sequential", device, kernel=kernel, data=data, footprint=footprint, chains=chains, backend="cupy"
    )


# Less than a vector, part of a tile, whole tiles, and what is left over of each.
@pytest.mark.parametrize("elements", [1, 37, 4 * TILE, 8 * TILE + 4 * 300 + 3])
@pytest.mark.parametrize("dtype", [Dtype.FLOAT32, Dtype.FLOAT64])
def test_every_element_of_an_array_is_right(cupy: Cupy, dtype: Dtype, elements: int) -> None:
    for op in OPS:
        made = stream(op, elements, dtype)
        assert passes_check(made)
        moved = STREAM_ARRAYS[op] * elements * dtype.itemsize
        assert made.bytes == moved * -(-1e5 // moved)
        a, b = GPU.random_normal((1001,), dtype), GPU.random_normal((1001,), dtype)
        each, together = torch.empty_like(a), torch.empty_like(a)
        cupy.launches.clear()
        stream_cuda.plain_kernel(op, dtype, GPU)(each, a, b)
        stream_cuda.vector_kernel(op, dtype, GPU)(together, a, b, 1)
        assert torch.equal(each, together), "one thread an element computes the same"
        assert cupy.launches == [(4, stream_cuda.BLOCK), (1, stream_cuda.BLOCK)]


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        *(("chains", {"in_flight": threads}) for threads in (1, 32, 700)),
        *(("paths", {"paths": count}) for count in (1, 4, 32)),
    ],
)
def test_chains_and_paths_are_those_of_the_reference(cupy: Cupy, kernel: str, given: dict[str, Any]) -> None:
    made = parallels(kernel, **given)
    made.calls[0]()
    assert passes_check(made)
    if kernel == "chains":
        assert made.flop == 2 * 1000 * given["in_flight"]
    if kernel == "paths":  # as many threads as the device holds in whole blocks
        assert set(cupy.launches) == {(3, gpu_threads.PATH_BLOCK)}


@pytest.mark.parametrize("chains", ["one", "full"])
@pytest.mark.parametrize(
    ("kernel", "data", "footprint"),
    [
        ("chain", "random", 4), ("chase", "random", 300 * 3 * 128), ("branches", "predictable", 256),
        ("branches", "random", 256), ("states", "text", 1 << 21),
    ],
)  # fmt: skip
def test_the_chains_end_at_the_same_integers(cupy: Cupy, kernel: str, data: str, footprint: int, chains: str) -> None:
    assert passes_check(chained(kernel, data, footprint, chains))
    # Two blocks hold 300 chains, and the threads past the last chain do nothing.
    assert cupy.launches == [(1, 1) if chains == "one" else (2, 256)]
    assert (chains_class("cpu"), chains_class("gpu")) == (cpu_kernels.CpuChains, cuda_kernels.CudaChains)


STREAM = (stream, ("triad", 4 * TILE + 4 * 300 + 3))
BREAKS = [
    (*STREAM, stream_cuda, "blockIdx.x == 0 && last < elements", "false"),
    (*STREAM, stream_cuda, "i += BLOCK", "i += count"),
    (*STREAM, stream_cuda, "a + (T)SCALAR * b", "a + (T)2.999 * b"),
    (*STREAM, stream_cuda, "to[first + u * BLOCK] =", "if (u) to[first + u * BLOCK] ="),
    (parallels, ("chains", {"in_flight": 40}), gpu_threads, "fmaf(x, x, c)", "x * x + c"),
    (parallels, ("chains", {"in_flight": 40}), gpu_threads, "step < steps", "step + 1 < steps"),
    (parallels, ("chains", {"in_flight": 40}), gpu_threads, "which >= threads", "which + 1 >= threads"),
    (parallels, ("paths", {"paths": 4}), gpu_threads, "& mask", "& 0"),
    (parallels, ("paths", {"paths": 32}), gpu_threads, "case 31:", "case 32:"),
    (
        parallels,
        ("paths", {"paths": 1}),
        gpu_threads,
        f"round < {gpu_threads.ROUNDS}",
        f"round < {gpu_threads.ROUNDS - 1}",
    ),
    (products_of, ("naive", {"n": 37}), naive_products, "i < k", "i + 1 < k"),
    (products_of, ("tiled", {"n": 37}), naive_products, "right[i][x], sum", "right[x][i], sum"),
    (products_of, ("tiled", {"n": 37}), naive_products, "start + x < k ?", "start + x < k - 1 ?"),
    (products_of, ("tiled", {"n": 37}), naive_products, "row < m && column < n)", "row + 1 < m && column < n)"),
]


@pytest.mark.parametrize(("make", "given", "where", "text", "wrong"), BREAKS)
def test_a_broken_kernel_fails_its_check(
    cupy: Cupy, monkeypatch: pytest.MonkeyPatch, make: Any, given: Any, where: Any, text: str, wrong: str
) -> None:
    assert text in where.SOURCE
    monkeypatch.setattr(where, "SOURCE", where.SOURCE.replace(text, wrong))
    assert not passes_check(make(*given) if make is stream else make(given[0], **given[1]))


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (17, 35, 50), (33, 15, 31)])
@pytest.mark.parametrize("kind", ["naive", "tiled"])
def test_products_of_any_shape(cupy: Cupy, kind: Any, shape: tuple[int, int, int]) -> None:
    (m, n, k), tile = shape, naive_products.TILE
    a, b, out = torch.randn(m, k), torch.randn(k, n), torch.full((m, n), torch.nan)
    naive_products.product(kind, "cuda:0")(a, b, out)
    assert torch.allclose(out.double(), a.double() @ b.double(), atol=1e-5)
    assert cupy.launches == [(-(-n // tile), -(-m // tile), tile, tile)]


def test_threads_are_spread_over_multiprocessors_first() -> None:
    # A second multiprocessor before a second warp.
    spread = {1: (1, 32), 64: (2, 32), 132 * 32: (132, 32), 132 * 32 + 1: (67, 64), 132 * 2048: (132 * 16, 128)}
    assert {threads: gpu_threads.launch_shape(threads, 132) for threads in spread} == spread


def test_kernels_run_on_torchs_stream_without_what_cupy_has_deprecated(cupy: Cupy) -> None:
    a, stream = GPU.random_normal((10,), Dtype.FLOAT32), torch.cuda.current_stream()
    older: list[tuple[Any, str]] = [(stream, "__cuda_stream__"), (cupy.cuda.Stream, "from_external")]
    for lacking in ([], *([one] for one in older)):
        with pytest.MonkeyPatch.context() as patch:
            for where, name in lacking:
                patch.delattr(where, name)
            stream_cuda.plain_kernel("copy", Dtype.FLOAT32, GPU)(torch.empty_like(a), a, a)
        assert cupy.streams[-1] == (stream.cuda_stream, "ExternalStream" if lacking else "from_external")


def test_arrays_between_vectors_and_in_other_formats_are_refused(cupy: Cupy) -> None:
    data = GPU.random_normal((101,), Dtype.FLOAT32)
    with pytest.raises(ValueError, match="16 bytes"):
        stream_cuda.vector_kernel("copy", Dtype.FLOAT32, GPU)(data[1:], data[:-1], data[:-1], 1)
    with pytest.raises(Unsupported, match="not bfloat16"):
        stream("triad", 100, Dtype.BFLOAT16)


@pytest.mark.parametrize(("passes", "blocks"), [(1, 2**33 // (4 * TILE)), (2, 3 * stream_cuda.RESIDENT)])
def test_arrays_of_more_than_2_to_the_31_elements(monkeypatch: pytest.MonkeyPatch, passes: int, blocks: int) -> None:
    launches = []
    monkeypatch.setattr(stream_cuda, "compile_kernel", lambda *_: lambda *launched: launches.append(launched))
    monkeypatch.setattr(SecondCpu, "describe", lambda _: {"multiprocessors": 3})
    huge = torch.empty(2**33, device="meta")
    stream_cuda.vector_kernel("copy", Dtype.FLOAT32, GPU)(huge, huge, huge, passes)
    stream_cuda.plain_kernel("copy", Dtype.FLOAT32, GPU)(huge, huge, huge)
    (several, one) = launches
    assert several[:2] == (blocks, stream_cuda.BLOCK)
    assert one[:2] == (2**33 // stream_cuda.BLOCK, stream_cuda.BLOCK)
    for length in (several[5], one[5]):
        assert length == 2**33 and isinstance(length, np.int64)


@pytest.mark.parametrize("architecture", GPUS)
def test_nvidias_compiler_keeps_what_each_kernel_is_there_for(architecture: str) -> None:
    bodies = compile_to_ptx(gpu_threads.SOURCE, architecture)
    # Between two multiply-adds of the unrolled part of a chain nothing happens but the next one.
    assert re.search(r"(\s+fma\.rn\.f32[^\n]+\n){100}", bodies["chains"])
    # Every arm has a loop of its own, with its own constant, and is reached by a jump.
    signed = [multiplier - (1 << 32) if multiplier >> 31 else multiplier for multiplier in gpu_threads.MULTIPLIERS]
    assert all(bodies["paths"].count(f", {one};") == 4 for one in signed)
    # The plain product has no memory of a block, the tiled one two barriers for each tile, and neither vector loads.
    bodies |= compile_to_ptx(naive_products.SOURCE, architecture)
    assert "shared" not in bodies["naive"] and "bar.sync" in bodies["tiled"]
    assert not re.search(r"\.v[24]\.", bodies["naive"] + bodies["tiled"])
    bodies |= compile_to_ptx(cuda_kernels.SOURCE, architecture)
    # Both arms of each unrolled branch are there, marked, and reached by a jump.
    marks, jumps = bodies["branches"].count("pmevent"), len(re.findall(r"@!?%p\d+ bra", bodies["branches"]))
    assert marks > 1 and jumps > marks / 2
    assert "selp" not in bodies["branches"] + bodies["paths"]


def test_chains_fill_a_gpu_in_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(multi_processor_count=82, max_threads_per_multi_processor=6 * cuda_kernels.BLOCK + 100)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert cuda_kernels.CudaChains.max_chains("cuda:0", threads=1) == 82 * 6 * cuda_kernels.BLOCK


@pytest.mark.parametrize("architecture", GPUS)
def test_nvidias_compiler_loads_and_stores_16_bytes_and_starts_all_loads_first(architecture: str) -> None:
    for name, body in compile_to_ptx(stream_cuda.SOURCE, architecture, stream_cuda.OPTIONS).items():
        op, type, kind = name.split("_")
        access = r"{}\.global(?:\.cg)?\.v" + ("4\\.[fb]32" if type == "float" else "2\\.[fb]64")
        loads, stores = ([one.start() for one in re.finditer(access.format(word), body)] for word in ("ld", "st"))
        if kind == "plain":
            assert not loads and not stores, name
            continue
        fetched = [one.start() for one in re.finditer(r"ld\.global\.cg", body)]
        operands = STREAM_ARRAYS[op] - 1
        assert len(fetched) == operands * stream_cuda.UNROLL, name
        assert set(fetched) <= set(loads), name
        assert not [store for store in stores if fetched[0] < store < fetched[-1]], name
