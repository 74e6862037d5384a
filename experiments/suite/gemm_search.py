"""The highest rate of a matrix product that can be found: a search over shapes, and a measurement of the winner."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from statistics import median
from typing import Any

from experiments.backends import Library
from experiments.devices import Device
from experiments.readings import NoTimeError, Timer
from experiments.registry import experiment
from experiments.suite import gemm
from experiments.work import Dtype, Threads, Work

Shape = tuple[int, int, int]

# Matrix units work on tiles of results, 128 or 256 wide. How many of them fall to each
# multiprocessor decides how many idle at the end: a step changes that by a few.
STEP = 256
# The depth only says how often a tile's start and end come: coarse steps do.
DEPTHS = (0.5, 1.0, 2.0)
# Seconds of the device that the first look takes at most, and calls that each shape gets in it.
SEARCH_S, CALLS = 0.3, 3
# So many of the fastest are looked at again, in turn, so that no one gets the coolest moment.
FINALISTS, TURNS = 8, 3


def memory(m: int, n: int, k: int, span: int, dtype: str, **_: Any) -> float:
    """The largest candidate, as `gemm` measures it, beside the operands from which all candidates are cut."""
    m, n, k = _largest(m, n, k, span)
    return gemm.memory(m, n, k, dtype) + (m * k + k * n) * Dtype(dtype).itemsize


@experiment("gemm-search", memory=memory, flop=gemm.flop, fits=("gpu",))
def gemm_search(
    device: Device,
    m: int,
    n: int,
    k: int,
    span: int,
    dtype: Dtype,
    backend: Library,
    threads: Threads,
) -> Work:
    """The fastest product among shapes around (m, n, k), measured as `gemm` measures it: its rate in FLOP/s.

    Candidates have m and n up to `span` steps of 256 away, and half, once and twice the
    depth k. They are called a few times each, in an order without system, until the time
    for that is spent; the fastest are compared again, and the first of them is the shape.
    The samples that are published are taken after that choice: the times by which it was
    made, in which the winner was perhaps lucky, are thrown away.
    `best_m`, `best_n`, `best_k` are the shape, `shapes_tried` the candidates that were called.

    After mamf-finder (S. Bekman, Machine Learning Engineering, "Maximum Achievable Matmul
    FLOPS"), whose exhaustive searches on H100s end at shapes like 2048 x 2048 x 13312.
    Work: 2*m*n*k FLOP of the shape found. Unsupported: formats that the library or the device lacks.
    """
    tried = _search(device, candidates(m, n, k, span), backend, dtype)
    m, n, k = tried[0]
    found = {"best_m": m, "best_n": n, "best_k": k, "shapes_tried": len(tried)}
    return replace(
        gemm.gemm(device, m, n, k, dtype, backend, threads),
        metric="rate",
        rate=gemm.flop(m, n, k),
        rate_unit="FLOP/s",
        graph=False,
        observe=lambda: {name: (float(value), "1") for name, value in found.items()},
    )


def candidates(m: int, n: int, k: int, span: int) -> list[Shape]:
    """Every shape of the neighbourhood once, in an order without system that is always the same."""
    steps = [STEP * i for i in range(-span, span + 1)]
    shapes = {
        (max(STEP, m + down), max(STEP, n + right), max(STEP, int(k * depth)))
        for down, right, depth in product(steps, steps, DEPTHS)
    }
    ordered = sorted(shapes)
    Random(0).shuffle(ordered)
    return ordered


def _search(device: Device, shapes: list[Shape], backend: str, dtype: Dtype) -> list[Shape]:
    """The shapes that were tried, the fastest first."""
    m, n, k = (max(sizes) for sizes in zip(*shapes, strict=True))
    left, right = device.normal((m * k,), dtype), device.normal((k * n,), dtype)

    def work(shape: Shape) -> Work:
        m, n, k = shape
        return Work(run=device.matmul(backend, left[: m * k].view(m, k), right[: k * n].view(k, n), dtype))

    spent, rates = 0.0, {}
    for shape in shapes:
        if spent > SEARCH_S:
            break
        candidate = Timer(work(shape), device)
        first, each = (sum(candidate.take(calls) or ()) for calls in (1, CALLS))
        spent += first + CALLS * each
        if each:
            rates[shape] = gemm.flop(*shape) / each
    leaders = {shape: Timer(work(shape), device) for shape in sorted(rates, key=lambda one: -rates[one])[:FINALISTS]}
    again: dict[Shape, list[float]] = {shape: [] for shape in leaders}
    for _ in range(TURNS):
        for shape, leader in leaders.items():
            if parts := leader.take(CALLS):
                again[shape].append(sum(parts) / gemm.flop(*shape))
    order = sorted(again, key=lambda one: median(again[one] or [1 / rates[one]]))
    if not order:
        raise NoTimeError(f"the clock of {device.name} is unusable here: no reading of {len(shapes)} shapes is a time")
    return [*order, *(shape for shape in rates if shape not in again)]


def _largest(m: int, n: int, k: int, span: int) -> Shape:
    return m + STEP * span, n + STEP * span, int(k * max(DEPTHS))
