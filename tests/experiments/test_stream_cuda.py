"""STREAM on GPUs, without one: run as C++ on this machine, and compiled by NVIDIA's compiler."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
import torch

from experiments.devices.cpu import CpuDevice
from experiments.kernels import stream_cuda
from experiments.kernels.cuda import module
from experiments.kernels.stream import STREAM_ARRAYS
from experiments.registry import get
from experiments.suite import bandwidth
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.cuda_standin import Cupy, install, ptx
from tests.experiments.second_device import SecondCpu

GPU = SecondCpu()
OPS = ("copy", "scale", "add", "triad")
# Vectors that a block of threads does at a time.
TILE = stream_cuda.UNROLL * stream_cuda.BLOCK


def point(op: str, elements: int, dtype: Dtype = Dtype.FLOAT32, backend: str = "cupy", device: Any = GPU) -> Work:
    footprint = STREAM_ARRAYS[op] * elements * dtype.itemsize
    made = get("bandwidth").function(device, op, footprint, dtype, backend, 0)
    assert isinstance(made, Work)
    return made


def error(made: Work) -> float:
    assert made.check is not None
    return made.check()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    monkeypatch.setattr(bandwidth, "CALL_BYTES", 1e5)
    return install(monkeypatch)


# Less than a vector, part of a tile, whole tiles, and what is left over of each.
@pytest.mark.parametrize("elements", [1, 37, 4 * TILE, 8 * TILE + 4 * 300 + 3])
@pytest.mark.parametrize("dtype", [Dtype.FLOAT32, Dtype.FLOAT64])
@pytest.mark.parametrize("op", OPS)
def test_every_element_is_right(cupy: Cupy, op: str, dtype: Dtype, elements: int) -> None:
    made = point(op, elements, dtype)
    assert made.tolerance is not None
    assert error(made) <= made.tolerance
    moved = STREAM_ARRAYS[op] * elements * dtype.itemsize
    assert made.bytes == moved * -(-1e5 // moved)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("blockIdx.x == 0 && last < elements", "false", id="the elements past the last vector left out"),
        pytest.param("i += BLOCK", "i += count", id="the last tile left unfinished"),
        pytest.param("a + (T)SCALAR * b", "a + (T)2.999 * b", id="another scalar"),
        pytest.param("to[first + u * BLOCK] =", "if (u) to[first + u * BLOCK] =", id="a quarter left out"),
    ],
)
def test_a_wrong_kernel_fails_the_check(cupy: Cupy, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str) -> None:
    assert right in stream_cuda.SOURCE
    monkeypatch.setattr(stream_cuda, "SOURCE", stream_cuda.SOURCE.replace(right, wrong))
    made = point("triad", 4 * TILE + 4 * 300 + 3)
    assert made.tolerance is not None
    assert not error(made) <= made.tolerance


@pytest.mark.parametrize("dtype", [Dtype.FLOAT32, Dtype.FLOAT64])
@pytest.mark.parametrize("op", OPS)
def test_one_thread_an_element_computes_the_same(cupy: Cupy, op: str, dtype: Dtype) -> None:
    a, b = GPU.normal((1001,), dtype), GPU.normal((1001,), dtype)
    each, together = torch.empty_like(a), torch.empty_like(a)
    stream_cuda.plain(op, dtype, GPU)(each, a, b)
    stream_cuda.vectors(op, dtype, GPU)(together, a, b, 1)
    assert torch.equal(each, together)
    assert cupy.launches == [(4, stream_cuda.BLOCK), (1, stream_cuda.BLOCK)]


@pytest.mark.parametrize(
    ("cupy_lacks", "torch_lacks", "how"),
    [
        pytest.param(False, False, "from_external", id="CuPy 14"),
        pytest.param(True, False, "ExternalStream", id="CuPy 13"),
        pytest.param(False, True, "ExternalStream", id="a torch without the protocol"),
    ],
)
def test_kernels_run_on_torchs_stream_without_what_cupy_has_deprecated(
    cupy: Cupy, cupy_lacks: bool, torch_lacks: bool, how: str
) -> None:
    if cupy_lacks:
        del cupy.cuda.Stream.from_external
    if torch_lacks:
        del torch.cuda.current_stream().__cuda_stream__
    a = GPU.normal((10,), Dtype.FLOAT32)
    stream_cuda.plain("copy", Dtype.FLOAT32, GPU)(torch.empty_like(a), a, a)
    assert cupy.streams == [(torch.cuda.current_stream().cuda_stream, how)]


def test_an_array_that_starts_between_vectors_is_refused(cupy: Cupy) -> None:
    data = GPU.normal((101,), Dtype.FLOAT32)
    with pytest.raises(ValueError, match="16 bytes"):
        stream_cuda.vectors("copy", Dtype.FLOAT32, GPU)(data[1:], data[:-1], data[:-1], 1)


@pytest.mark.parametrize(("passes", "blocks"), [(1, 2**33 // (4 * TILE)), (2, 3 * stream_cuda.RESIDENT)])
def test_arrays_of_more_than_2_to_the_31_elements(monkeypatch: pytest.MonkeyPatch, passes: int, blocks: int) -> None:
    launches = []
    monkeypatch.setattr(stream_cuda, "kernel", lambda *_: lambda *launched: launches.append(launched))
    monkeypatch.setattr(SecondCpu, "describe", lambda _: {"multiprocessors": 3})
    huge = torch.empty(2**33, device="meta")
    stream_cuda.vectors("copy", Dtype.FLOAT32, GPU)(huge, huge, huge, passes)
    stream_cuda.plain("copy", Dtype.FLOAT32, GPU)(huge, huge, huge)
    (several, one) = launches
    assert several[:2] == (blocks, stream_cuda.BLOCK)
    assert one[:2] == (2**33 // stream_cuda.BLOCK, stream_cuda.BLOCK)
    for length in (several[5], one[5]):
        assert length == 2**33 and isinstance(length, np.int64)


def test_what_cannot_be_is_unsupported(cupy: Cupy, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="not bfloat16"):
        point("triad", 100, Dtype.BFLOAT16)
    with pytest.raises(Unsupported, match="cupy does not run on cpu"):
        point("triad", 100, device=CpuDevice())
    with pytest.raises(Unsupported, match="too small"):
        get("bandwidth").function(GPU, "triad", 8, Dtype.FLOAT32, "torch", 0)
    monkeypatch.setitem(sys.modules, "cupy", None)
    module.cache_clear()
    with pytest.raises(Unsupported, match="pip install cupy"):
        point("triad", 100)


@pytest.mark.parametrize("dtype", [Dtype.FLOAT64, Dtype.BFLOAT16])
@pytest.mark.parametrize("op", OPS)
def test_torch_is_checked_over_the_whole_array(monkeypatch: pytest.MonkeyPatch, op: str, dtype: Dtype) -> None:
    monkeypatch.setattr(bandwidth, "PART", 1000)
    made = point(op, 3333, dtype, "torch")
    assert made.tolerance is not None
    assert error(made) <= made.tolerance
    calls = {name: getattr(torch, name) for name in ("mul", "add")}

    def short(name: str) -> Any:
        def call(a: Any, *others: Any, out: Any, **options: Any) -> None:
            shorter = [one[:-1] if isinstance(one, torch.Tensor) else one for one in others]
            calls[name](a[:-1], *shorter, out=out[:-1], **options)

        return call

    for name in calls:
        monkeypatch.setattr(torch, name, short(name))
    if op != "copy":
        # The last element keeps the nan that it began with.
        assert not error(point(op, 3333, dtype, "torch")) <= made.tolerance


@pytest.mark.parametrize("architecture", ["compute_75", "compute_80", "compute_90", "compute_100"])
def test_nvidias_compiler_loads_and_stores_16_bytes_and_starts_all_loads_first(architecture: str) -> None:
    bodies = ptx(stream_cuda.SOURCE, architecture, stream_cuda.OPTIONS)
    assert set(bodies) == {
        f"{op}_{type}_{kind}" for op in OPS for type in ("float", "double") for kind in ("vectors", "plain")
    }
    for name, body in bodies.items():
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
        assert not [one for one in stores if fetched[0] < one < fetched[-1]], name
