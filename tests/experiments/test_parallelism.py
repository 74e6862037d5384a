"""Parallelism: the kernels compute what they should on both kinds of devices, wrong results are seen, and
NVIDIA's compiler keeps what each kernel is there for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from experiments.devices.cpu import CpuDevice
from experiments.kernels import parallel, paths, products
from experiments.registry import get
from experiments.suite import parallelism
from experiments.work import Unsupported, Work
from tests.experiments.cuda_standin import Cupy, install, ptx
from tests.experiments.second_device import SecondCpu

GPUS = ["compute_75", "compute_80", "compute_90", "compute_100"]


def point(device: Any, kernel: str, backend: str = "cupy", **given: int) -> Work:
    params = {"in_flight": 0, "paths": 0, "n": 0, "threads": 1 if device.kind == "cpu" else 0, **given}
    return get("parallelism").function(device, kernel=kernel, backend=backend, **params)


def fails(made: Work) -> bool:
    assert made.check is not None
    assert made.tolerance is not None
    return not made.check() <= made.tolerance


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    """A GPU of 3 multiprocessors that hold 300 threads each."""
    monkeypatch.setattr(parallel, "room", lambda device: (3, 300))
    monkeypatch.setattr(parallelism, "STEPS", 1000)
    monkeypatch.setattr(parallelism, "TURNS", 8)
    return install(monkeypatch)


KINDS: list[tuple[str, dict[str, Any]]] = [
    *(("chains", {"in_flight": threads}) for threads in (1, 32, 700)),
    *(("paths", {"paths": count}) for count in (1, 4, 32)),
    *((kind, {"n": n}) for kind in ("naive", "tiled") for n in (16, 37)),
]


@pytest.mark.parametrize(("kernel", "given"), KINDS)
def test_a_gpu_computes_what_the_reference_does(cupy: Cupy, kernel: str, given: dict[str, Any]) -> None:
    made = point(SecondCpu(), kernel, **given)
    assert not fails(made)
    for call in made.calls[:2]:
        call()


def test_a_librarys_product_stands_beside_the_plain_ones(cupy: Cupy) -> None:
    made = point(SecondCpu(), "library", "torch", n=37)
    assert not fails(made)
    assert made.flop == 2 * 37**3
    assert made.bytes == 3 * 4 * 37**2


def test_every_operation_of_the_chains_is_counted_and_what_the_device_holds_is_told(cupy: Cupy) -> None:
    made = point(SecondCpu(), "chains", in_flight=700)
    assert made.flop == 2 * 1000 * 700
    assert made.observe is not None
    assert made.observe() == {"threads_held": (900.0, "1")}


def test_paths_take_as_many_threads_as_the_device_holds_in_whole_blocks(cupy: Cupy) -> None:
    point(SecondCpu(), "paths", paths=2).calls[0]()
    assert cupy.launches == [(3, parallel.PATH_BLOCK)]


@pytest.mark.parametrize(
    ("threads", "grid", "block"),
    [
        (1, 1, 32),
        (32, 1, 32),
        (64, 2, 32),  # a second multiprocessor before a second warp
        (132 * 32, 132, 32),
        (132 * 32 + 1, 67, 64),
        (132 * 128, 132, 128),
        (132 * 2048, 132 * 16, 128),
    ],
)
def test_threads_are_spread_over_multiprocessors_first(threads: int, grid: int, block: int) -> None:
    assert parallel.spread(threads, 132) == (grid, block)


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (17, 35, 50), (33, 15, 31)])
@pytest.mark.parametrize("kind", ["naive", "tiled"])
def test_products_of_any_shape(cupy: Cupy, kind: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, out = torch.randn(m, k), torch.randn(k, n), torch.full((m, n), torch.nan)
    products.product(kind, "cuda:0")(a, b, out)
    assert torch.allclose(out.double(), a.double() @ b.double(), atol=1e-5)
    tile = products.TILE
    assert cupy.launches == [(-(-n // tile), -(-m // tile), tile, tile)]


BREAKS = [
    ("chains", {"in_flight": 40}, "SOURCE", "fmaf(x, x, c)", "x * x + c"),
    ("chains", {"in_flight": 40}, "SOURCE", "step < steps", "step + 1 < steps"),
    ("chains", {"in_flight": 40}, "SOURCE", "which >= threads", "which + 1 >= threads"),
    ("paths", {"paths": 4}, "SOURCE", "& mask", "& 0"),
    ("paths", {"paths": 32}, "SOURCE", "case 31:", "case 32:"),
    ("paths", {"paths": 1}, "SOURCE", f"round < {parallel.ROUNDS}", f"round < {parallel.ROUNDS - 1}"),
]


@pytest.mark.parametrize(("kernel", "given", "source", "right", "wrong"), BREAKS)
def test_a_broken_kernel_fails_its_check(
    cupy: Cupy,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    given: dict[str, Any],
    source: str,
    right: str,
    wrong: str,
) -> None:
    text = getattr(parallel, source)
    assert right in text
    monkeypatch.setattr(parallel, source, text.replace(right, wrong))
    assert fails(point(SecondCpu(), kernel, **given))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("naive", "i < k", "i + 1 < k"),
        ("tiled", "right[i][x], sum", "right[x][i], sum"),
        ("tiled", "start + x < k ?", "start + x < k - 1 ?"),
        ("tiled", "row < m && column < n)", "row + 1 < m && column < n)"),
    ],
)
def test_a_broken_product_fails_its_check(
    cupy: Cupy, monkeypatch: pytest.MonkeyPatch, kind: str, right: str, wrong: str
) -> None:
    assert right in products.SOURCE
    monkeypatch.setattr(products, "SOURCE", products.SOURCE.replace(right, wrong))
    assert fails(point(SecondCpu(), kind, n=37))


@pytest.mark.parametrize(("make", "kind"), [(paths.masked_ir, "masked"), (paths.branching_ir, "branching")])
def test_a_cpu_takes_the_same_paths_as_the_reference(make: Callable[[], str], kind: Any) -> None:
    random = np.random.default_rng(1)
    table = torch.from_numpy(parallel.deal(random))
    # More groups than the table has rows, so that it begins anew.
    starts = torch.randint(-(1 << 31), 1 << 31, (parallel.GROUP * (parallel.ROWS + 3),)).int()
    run, ends = paths.cpu_paths(kind), torch.empty_like(starts)
    for count in (1, 2, 16, 32):
        run(table, starts, ends, 5, count)
        assert torch.equal(ends, parallel.after_turns(table, starts, 5, count).int())
    # One constant for each arm: none stands for another.
    assert all(f"i32 {one}" in make() or f", {one}\n" in make() for one in parallel.MULTIPLIERS)


def test_a_wrong_arm_on_a_cpu_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MULTIPLIERS", (*parallel.MULTIPLIERS[:-1], 1))
    for backend in ("llvm", "llvm-scalar"):
        assert fails(point(CpuDevice(), "paths", backend, paths=32))


def test_every_row_of_the_table_deals_every_arm_once() -> None:
    table = parallel.deal(np.random.default_rng())
    assert (np.sort(table, axis=1) == np.arange(parallel.GROUP)).all()
    assert len({tuple(row) for row in table}) == parallel.ROWS


@pytest.mark.parametrize(
    ("device", "kernel", "backend", "given"),
    [
        (CpuDevice(), "chains", "cupy", {"in_flight": 32}),
        (CpuDevice(), "tiled", "cupy", {"n": 16}),
        (CpuDevice(), "paths", "cupy", {"paths": 2}),
        (CpuDevice(), "paths", "llvm", {"paths": 2, "threads": 2}),
        (CpuDevice(), "paths", "llvm", {"paths": 3}),
        (SecondCpu(), "paths", "llvm", {"paths": 2}),
        (SecondCpu(), "chains", "torch", {"in_flight": 32}),
        (SecondCpu(), "chains", "cupy", {}),
        (SecondCpu(), "naive", "torch", {"n": 16}),
    ],
)
def test_what_cannot_be_says_so(cupy: Cupy, device: Any, kernel: str, backend: str, given: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        point(device, kernel, backend, **given)


@pytest.mark.parametrize("architecture", GPUS)
def test_nvidias_compiler_unrolls_the_chains_and_keeps_the_arms_apart(architecture: str) -> None:
    bodies = ptx(parallel.SOURCE, architecture)
    chain = bodies["chains"]
    assert chain.count("fma.rn.f32") >= 128
    # Between two multiply-adds of the unrolled part nothing happens but the next one.
    assert re.search(r"(\s+fma\.rn\.f32[^\n]+\n){100}", chain)
    arms = bodies["paths"]
    # Every arm has a loop of its own, with its own constant, and is reached by a jump.
    signed = [one - (1 << 32) if one >> 31 else one for one in parallel.MULTIPLIERS]
    assert all(arms.count(f", {one};") == 4 for one in signed)
    jumps = len(re.findall(r"@!?%p\d+ bra", arms))
    assert jumps >= 2 * parallel.GROUP - 1 or "brx" in arms
    assert "selp" not in arms


@pytest.mark.parametrize("architecture", GPUS)
def test_nvidias_compiler_takes_the_products(architecture: str) -> None:
    bodies = ptx(products.SOURCE, architecture)
    assert set(bodies) == {"naive", "tiled"}
    assert "shared" not in bodies["naive"]
    # For each tile (some compilers write the loop out for two) two barriers, and a load of each operand.
    tiled = bodies["tiled"]
    tiles = tiled.count("bar.sync") // 2
    assert tiles >= 1
    assert tiled.count("fma.rn.f32") == tiles * products.TILE
    assert len(re.findall(r"ld\.global\.", tiled)) == 2 * tiles
    assert len(re.findall(r"ld\.shared\.", tiled)) == 2 * tiles * products.TILE
    # The plain kernel: no blocks of several cells, and no vector loads.
    assert not any(re.search(r"\.v[24]\.", body) for body in bodies.values())
