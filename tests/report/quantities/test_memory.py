"""Quantities on memory, rooflines, chains, requests and services reproduce the values given to synthetic nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from report.quantities import offload
from report.quantities.roofline import share_below
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import evidence, priced_node

from .builders import (
    ON_HOST,
    ONE_GPU,
    add_copy,
    add_counts,
    add_cpu_request,
    add_gpu_request,
    add_load,
    add_passes,
    add_peak_memory,
    add_tails,
    link_node,
)
from .made_cases import case, case_test, select_row, select_rows

MIB, NAN = 2**20, float("nan")
SEVENTH = "AMD Ryzen 9 7950X 16-Core Processor"


def memory_nodes(synthetic: Factory) -> list[SyntheticNode]:
    """Return the node from `link_node` with memory passes on its GPU and CPU, and two desktops with memory passes."""
    node = link_node(synthetic)
    node.devices[1]["l2_bytes"] = 50 * MIB
    for backend, rate in (("torch", 3e12), ("cupy", 2e12)):
        add_passes(node, 512 * MIB, rate, backend=backend, **ONE_GPU)
    add_passes(node, 512 * MIB, 1e12, "copy", **ONE_GPU)
    add_passes(node, 512 * MIB, 9e11, threads=2)  # This CPU is no desktop, so it is no baseline for the GPU.
    add_passes(node, 128 * MIB, 1e13, threads=2)  # This is the least footprint used: four times the 32 MiB cache.
    add_passes(node, 127 * MIB, 9e13, threads=2)
    desktops = [priced_node(synthetic, name=name, model=SEVENTH, seed=ord(name[-1])) for name in ("node-b", "node-c")]
    for desktop, rate in zip(desktops, (5e10, 6e10), strict=True):
        add_passes(desktop, 512 * MIB, rate, threads=2)
        add_passes(desktop, 512 * MIB, 9e10)  # This rate is ignored, because it is for one thread.
    return [node, *desktops]


_RATE = {"size": 256 * MIB, "host_memory": "pinned"}
test_memory = case_test(
    memory_nodes,
    case("bandwidth.rate", {"torch": 3e12, "cupy": 2e12}, by="backend", op="triad", device="gpu"),
    case("bandwidth.rate", 3e12, op="triad", device="gpu", backend="best", detail="torch, footprint 537 MB"),
    case("bandwidth.rate", {512 * MIB: 9e11, 128 * MIB: 1e13}, by="footprint", device="cpu", node="node-a"),
    case("bandwidth.over_desktop", 50, op="triad", precision="equal", labels={"node": "node-a", "device": "cuda:0",
         "op": "triad", "dtype": "float32", "baseline": "desktop", "precision": "equal", "runtime": "torch",
         "cpu_runtime": "torch"}),
    case("transfer.memory_ratio", {"host_to_device": 20, "device_to_host": 25}, by="direction", rel=0.01, **_RATE),
    # At 50 GB/s, 500 kB take 10 µs, which is as long as the latency. At this size the rate is therefore halved.
    case("transfer.half_rate_size", 500e3, direction="host_to_device", host_memory="pinned", low=65536, high=MIB,
         rel=0.35),
)  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "spread", "ends"),
    [
        # The interval can begin only at a size whose rate is surely below half the best rate.
        ({65536: 1e9, MIB: 4.9e9, 4 * MIB: 5.1e9, 16 * MIB: 10e9}, 0.05, [(65536, 16 * MIB)]),
        ({MIB: 4.9e9, 4 * MIB: 5.1e9, 16 * MIB: 10e9}, 0.05, [(NAN, 16 * MIB)]),
        ({MIB: 8e9, 16 * MIB: 1e9}, 0, []),
    ],
)
def test_half_rate_size_is_bracketed(
    synthetic: Factory, rates: dict[int, float], spread: float, ends: list[tuple[float, float]]
) -> None:
    node = synthetic("node-a", gpus=1)
    for size, rate in rates.items():
        add_copy(node, size / rate, size, spread=spread)
    rows = select_rows("transfer.half_rate_size", evidence(synthetic, node)).rows("low", "high")
    assert rows == [pytest.approx(end, nan_ok=True) for end in ends]


PARAMETERS, ACTIVATION = {"gpt2": 1e8, "mlp": 1e5}, 5e6


@pytest.mark.parametrize("measured", [False, True])
def test_measured_peaks_correct_the_memory_model(synthetic: Factory, measured: bool) -> None:
    node = synthetic("node-a")
    for model, parameters in PARAMETERS.items():
        add_counts(node, model, 3, parameters=parameters, activation_bytes=ACTIVATION)
    # The factor `over` is the measured peak divided by the modelled peak. The peak for `mlp` is too small to be used.
    for model, over, batch in (("gpt2", 0.9, 1), ("gpt2", 1.1, 2), ("gpt2", 1.2, 4), ("mlp", 3.0, 1)) * measured:
        add_peak_memory(node, model, batch, over * (16 * PARAMETERS[model] + ACTIVATION * batch), spread=1e-4)
    rows = select_rows("ladder.training_memory_bytes", evidence(synthetic, node))
    (own,) = rows.filter(model="gpt2").rows("low", "estimate", "high")
    base = 16 * PARAMETERS["gpt2"] + ACTIVATION * 32
    assert own == pytest.approx([base * ratio for ratio in ((0.9, 1.1, 1.2) if measured else (0.5, 1, 2))], rel=1e-3)
    assert bool(rows.filter(model="gpt2").value("source_rows", 0)) == measured
    assert rows.filter(model="Llama 3.1 8B").rows("low", "estimate", "high") == [pytest.approx((16 * 8e9,) * 3)]


# PEAK is in FLOP/s and MOVED in bytes/s. The node's balance is their ratio, 16 FLOP/B.
PEAK, MOVED = 1.6e11, 1e10
CACHE = 2**25
LIMITS = [2.0**power for power in range(-2, 13)]


def machine_node(synthetic: Factory, name: str = "node-a", spread: float = 0.0) -> SyntheticNode:
    """Return a node with two ceilings: a multiply-add kernel at PEAK FLOP/s, and memory passes at MOVED bytes/s."""
    node = synthetic(name, cache=CACHE).peak(PEAK, spread=spread)
    return add_passes(node, 8 * CACHE, MOVED, backend="llvm", dtype="float64", spread=spread)


def add_time_below(
    node: SyntheticNode, shares: dict[float, float], phase: str, spread: float = 0.0, **more: float
) -> None:
    """Add a step. shares: fraction of the time that operators take, by their intensity in FLOP/B."""
    about: dict[str, Any] = {"params": {"model": "mlp", "batch": 8, "phase": phase}, "spread": spread}
    for limit in LIMITS:
        share = sum(part for intensity, part in shares.items() if intensity <= limit)
        node.point("roofline", {f"time_below.{limit:g}_share": share}, **about)
    node.point("roofline", more, unit="FLOP/B", **about)


def roofline_nodes(synthetic: Factory) -> list[SyntheticNode]:
    # The balance is about 16, between the limits 8 and 32.
    node = machine_node(synthetic, spread=0.01)
    add_time_below(node, {0.25: 0.3, 8: 0.3, 64: 0.4}, "training", product_intensity=64.0)
    add_time_below(node, {0.5: 1.0}, "decode", product_intensity=0.5)
    add_time_below(node, {256: 1.0}, "prefill")
    # Operators with intensity 16 may lie on either side of the balance.
    add_time_below(node, {1: 0.3, 16: 0.3, 64: 0.4}, "forward", spread=0.02)
    # On node-b, the product is faster than the multiply-add kernel, so it sets the peak. node-c has no ceilings.
    faster = machine_node(synthetic, "node-b", spread=1e-3).gemm(64, clock=2.5e9, spread=1e-3)
    bare = synthetic("node-c")
    add_time_below(bare, {1: 1.0}, "training", product_intensity=1.0)
    return [node, faster, bare]


_ALL = {"sources": ("roofline", "peak", "bandwidth")}
test_roofline = case_test(
    roofline_nodes,
    case("roofline.balance", PEAK / MOVED, node="node-a", rel=0.02, detail="multiply-adds in registers",
         sources=("peak", "bandwidth")),
    case("roofline.balance", 2 * 64 * 2.5e9 / MOVED, node="node-b", rel=0.01, detail="torch, 512x512x512"),
    case("roofline.intensity_over_balance", {"training": 4, "decode": 0.5 / 16}, by="phase", rel=0.05, **_ALL),
    # If all rounds give the same share, the spread between rounds is unknown.
    case("roofline.memory_bound_share", 0.6, phase="training", width="unknown", **_ALL),
    # The shares 1 and 0 are exact: all operators, or no operators, have an intensity below the balance.
    case("roofline.memory_bound_share", 1, phase="decode", width="exact", **_ALL),
    case("roofline.memory_bound_share", 0, phase="prefill", width="exact", **_ALL),
    case("roofline.memory_bound_share", 0.5, phase="forward", rel=0.25, **_ALL),
    case("roofline.memory_bound_share", None, node="node-c"),
    case("roofline.prediction_error", None),
)  # fmt: skip


@pytest.mark.parametrize(
    ("balance", "expected"),
    [
        # There is a share, with an interval, for each intensity limit. The result's interval begins where the share's
        # interval begins at the last limit that is surely below the balance. It ends where the share's interval ends at
        # the first limit that is surely above the balance.
        ((6.0, 3.0, 12.0), (0.5 + 0.2 * np.log(1.5) / np.log(2), 0.35, 0.8)),
        ((4.0, 4.0, 8.0), (0.5, 0.45, 0.75)),
        ((1.0, 0.5, 2.0), (0.2, 0.0, 0.45)),
        ((64.0, 20.0, 80.0), (0.75, 0.7, 1.0)),
        ((6.0, NAN, NAN), (0.5 + 0.2 * np.log(1.5) / np.log(2), NAN, NAN)),
    ],
)
def test_share_below_a_balance_spans_its_interval(balance: tuple[float, ...], expected: tuple[float, ...]) -> None:
    shares = np.array([0.2, 0.4, 0.5, 0.7, 0.75])
    part = {"limit": np.array([1.0, 2, 4, 8, 16]), "estimate": shares, "low": shares - 0.05, "high": shares + 0.05,
            "n_rounds": np.full(5, 3)}  # fmt: skip
    share = share_below(part, dict(zip(("estimate", "low", "high"), balance, strict=True)))
    assert list(share.values()) == pytest.approx(expected, nan_ok=True)


def add_square(
    node: SyntheticNode, m: int, n: int, reached: float = 1.0, launch: float = 0.0, spread: float = 0.0
) -> None:
    flop, moved = 2.0 * m * n * n, 4.0 * (2 * m * n + n * n)
    seconds = max(flop / PEAK, moved / MOVED) / reached + launch
    node.point("gemm", seconds, params={"m": m, "n": n, "k": n}, flop=flop, bytes=moved, spread=spread)


def predictable_node(
    synthetic: Factory, launch: float = 0.0, cache: float = 1.0, reached: float = 1.0, spread: float = 0.0
) -> SyntheticNode:
    """Return a machine on which these numbers determine how long every kernel takes.

    launch: seconds per kernel launch. cache: cache bandwidth, relative to memory bandwidth. reached: kernel
    speed relative to the ceiling that limits the kernel.
    """
    node = machine_node(synthetic, spread=spread)
    for n in (64, 96, 128, 192, 256, 320, 384, 448, 512, 768, 1024, 1536):
        for m in (1, n):
            add_square(node, m, n, reached, launch, spread)
    for size in (2**14, 2**16, 2**18, 2**20, 2**22, 2**24, CACHE * 16, CACHE * 24):
        for op in ("copy", "add"):
            seconds = size / (MOVED * (cache if size <= CACHE else 1.0) * reached) + launch
            add_passes(node, size, size / seconds, op, backend="llvm", dtype="float64", spread=spread)
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        # Operators with 1/4 FLOP/B move half the bytes, and operators with 64 FLOP/B move the other half. The balance
        # lies between them, at 16 FLOP/B.
        moved, kernels = 1e6 * batch, 50.0
        seconds = (moved / 2 / MOVED + moved / 2 * 64 / PEAK) / reached + kernels * launch
        params = {"model": "mlp", "batch": batch, "phase": "training"}
        node.point("roofline", seconds, params=params, flop=moved / 2 * 64.25, bytes=moved, spread=spread)
        metrics = {"kernels": kernels, "cached_bytes_share": 0.0}
        for limit in LIMITS:
            metrics[f"bytes_below.{limit:g}_share"] = 0.5 if limit < 64 else 1.0
            metrics[f"flop_below.{limit:g}_share"] = 0.25 / 64.25 if limit < 64 else 1.0
        node.point("roofline", metrics, unit="1", params=params, spread=0)
    return node


@pytest.mark.parametrize(
    ("about", "enough"),
    [
        ({}, 2), ({"reached": 0.7}, 2), ({"launch": 5e-6, "reached": 0.8}, 3),
        ({"launch": 2e-4, "cache": 8.0, "reached": 0.8}, 4),
    ],
)  # fmt: skip
def test_model_with_enough_numbers_predicts_the_machine(
    synthetic: Factory, about: dict[str, float], enough: int
) -> None:
    data = evidence(synthetic, predictable_node(synthetic, **about))
    rows = select_rows("roofline.prediction_error", data)
    errors = {(numbers, by): error for numbers, by, error in rows.rows("numbers", "ceilings", "estimate")}
    for numbers in (2, 3, 4):
        least, most = (0, 0.01) if numbers >= enough else (2 * errors[enough, "fitted"] + 0.01, 1e9)
        assert least <= errors[numbers, "fitted"] < most
    # Measured ceilings predict well only if kernels reach them.
    assert (errors[2, "measured"] < 0.01) == (about == {})


def test_prediction_interval_comes_from_rounds(synthetic: Factory) -> None:
    data = evidence(synthetic, predictable_node(synthetic, reached=0.7, spread=0.03))
    row = select_row("roofline.prediction_error", data, numbers=2, ceilings="measured")
    assert row["low"] < 0.3 < row["high"] < row["low"] + 0.3 and row["n_rounds"] == 3


def add_chain(
    node: SyntheticNode, seconds: float, kernel: str = "chain", kind: str = "random", footprint: int = 4,
    count: int = 1, device: str = "cpu", spread: float = 1e-4,
) -> SyntheticNode:  # fmt: skip
    """Add the time per step in one chain of dependent steps.

    If `count` is above 1, this many chains run at once and fill the device.
    """
    params = {"kernel": kernel, "chains": "one" if count == 1 else "full", "footprint": footprint, "data": kind}
    about: dict[str, Any] = {"params": params, "dtype": "", "device": device, "threads": count}
    node.point("sequential", seconds, metric="step_time", spread=spread, **about)
    return node.point("sequential", float(count), metric="chains_in_flight", unit="1", spread=0, samples=1, **about)


def chains_node(synthetic: Factory) -> SyntheticNode:
    """Return a node with dependent chains and branching loops, and with chases through memory on its CPU."""
    node = synthetic("node-a", gpus=1).clock(3e9, spread=1e-4)
    add_chain(node, 1e-9)
    add_chain(node, 8e-9, **ONE_GPU)
    add_chain(node, 1.5e-9, count=2)
    add_chain(node, 2e-9, count=4)
    add_chain(node, 2e-8, count=1000, **ONE_GPU)
    for device, predictable, random in (("cpu", 1e-9, 4e-9), ("cuda:0", 1e-8, 1.05e-8)):
        for kind, seconds in (("predictable", predictable), ("random", random)):
            add_chain(node, seconds, "branches", kind, 2**19, device=device, spread=0.01)
    for footprint, seconds in ((2**14, 1e-9), (2**18, 4e-9)):
        add_chain(node, seconds, "chase", "random", footprint)
    return node


_CHAIN = {"node": "node-a", "device": "cuda:0", "kernel": "chain", "data": "random", "footprint": 4}
test_chains = case_test(
    chains_node,
    case("sequential.chain_speed_ratio", 8, kernel=["chain", "chase"], labels=_CHAIN),
    case("sequential.gpu_over_cpu_one_thread", 1 / 8, kernel="chain", labels=_CHAIN),
    # The GPU runs 1,000 chains with 20 ns per step, and the CPU runs four with 2 ns per step. The time for two chains
    # is not used, because two chains do not fill the CPU.
    case("sequential.gpu_over_cpu_full_chip", (1000 / 20) / (4 / 2), labels=_CHAIN),
    case("sequential.prediction_gain", {"cpu": 4, "cuda:0": 1.05}, by="device", chains="one", rel=0.02),
    # Random data add 3 ns per step. On random data every other guess is wrong, so a wrong guess costs 6 ns, which is 18
    # cycles at 3 GHz.
    case("sequential.mispredict_cycles", 18, rel=0.02),
    case("sequential.load_cycles", {2**14: 3, 2**18: 12}, by="footprint"),
    case("sequential.cache_gain", None),
)


def cache_dataset(synthetic: Factory, level_2: int | None = MIB, flat: bool = False) -> Dataset:
    """Return evidence on loads that take 2, 6 or 24 ns in caches up to 32 KiB, 1 MiB and 16 MiB, and 150 ns in memory.

    level_2: bytes in the level 2 cache that the system reports, or None if it reports no such cache. flat: if true, all
    loads take 2 ns.
    """
    levels = {"L3": (16 * MIB, 1), **({"L2": (2 * level_2, 2)} if level_2 else {})}
    caches = {name: {"bytes": size, "instances": number} for name, (size, number) in levels.items()}
    node = synthetic("node-a", cpu={"caches": caches})
    for size in (2**power for power in range(12, 28)):
        nanoseconds = 2 if flat or size <= 2**15 else 6 if size <= MIB else 24 if size <= 16 * MIB else 150
        add_chain(node, nanoseconds * 1e-9, "chase", footprint=size, spread=0.01)
    return evidence(synthetic, node)


@pytest.mark.parametrize(
    ("level_2", "flat", "gain", "near"),
    [(MIB, False, 25, "262 kB"), (None, False, 25, "262 kB"), (2**15, False, 75, "32.8 kB"), (MIB, True, 1, "262 kB")],
)
def test_memory_is_compared_with_the_cache_near_a_core(
    synthetic: Factory, level_2: int | None, flat: bool, gain: float, near: str
) -> None:
    data = cache_dataset(synthetic, level_2, flat)
    case("sequential.cache_gain", gain, rel=0.05, detail=f"134 MB over {near}").check(data)


DENSE: dict[str, Any] = {"op": "mlp", "m": 64, "n": 1024, "k": 1024}
TINY: dict[str, Any] = {"op": "elementwise", "m": 8, "n": 1, "k": 1}


def requests_node(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    add_cpu_request(node, 10e-3)
    add_cpu_request(node, 8e-3, backend="onednn")
    add_cpu_request(node, 5e-3, threads=2)
    # Products from the experiment `gemm` count as requests if they ran on a CPU. The int8 product ran on a GPU.
    product: dict[str, Any] = {"params": {"m": 500, "n": 500, "k": 500}, "spread": 1e-4, "backend": "numpy"}
    node.point("gemm", 4e-3, **product)
    node.point("gemm", 1e-6, dtype="int8", **ONE_GPU, **product)
    add_gpu_request(node, 1e-3, (0.4e-3, 0.1e-3, 0.3e-3))
    add_gpu_request(node, 0.5e-3, launch="graph", op="gemv")
    add_gpu_request(node, 0.5e-3, launch="graph", dtype="bfloat16")  # No core ran this format, so it has no speedup.
    add_gpu_request(node, 4e-3, host_memory="pageable")
    add_gpu_request(node, 2e-3, m=500, n=500, k=500)
    add_cpu_request(node, 1e-6, **TINY)
    add_gpu_request(node, 1e-5, (1e-6, 4e-6, 1e-6), **TINY)
    add_gpu_request(node, 100e-6, (20e-6, 10e-6, 30e-6), **DENSE)
    add_gpu_request(node, 1000e-6, (20e-6, 900e-6, 30e-6), uses=100, **DENSE)
    # Because of noise, the three phases take longer than the whole request, so the remaining time is taken as 0.
    add_gpu_request(node, 100e-6, (50e-6, 30e-6, 25e-6), **{**DENSE, "m": 65})
    return node


_SQUARE: dict[str, Any] = {"op": "gemm", "m": 1000, "dtype": "float32"}
_EAGER = {**_SQUARE, "launch": "eager", "host_memory": "pinned"}
_ONLY = {"sources": ("offload",)}
test_requests = case_test(
    requests_node,
    case("offload.phase_share", {"h2d": 0.4, "compute": 0.1, "d2h": 0.3, offload.REST: 0.2}, by="phase", clock="device",
         **_EAGER),
    case("offload.phase_share", dict.fromkeys(ON_HOST["eager"], 0.25), by="phase", clock="host", **_EAGER),
    case("offload.phase_share", dict.fromkeys(ON_HOST["graph"], 0.5), by="phase", clock="host", op="gemv"),
    case("offload.phase_share", 0, phase=offload.REST, m=65, width="exact"),
    case("offload.phase_share", None, clock="device", op="gemv"),
    case("offload.transfer_share", {1: 0.5, 100: 0.05}, by="uses", op="mlp", batch=64),
    case("offload.transfer_over_compute", 5, op="mlp", batch=64, uses=1),
    case("offload.transfer_over_compute", 0.5, op="elementwise", labels={"node": "node-a", "device": "cuda:0",
         "op": "elementwise", "size": 64, "uses": 1, "dtype": "float32", "host_memory": "pinned"}),
    case("offload.speedup", 8, baseline="core", detail="over onednn, 1 thread", **_EAGER),
    case("offload.speedup", 5, baseline="node", detail="over torch, 2 threads", **_EAGER),
    case("offload.speedup", 2, baseline="core", host_memory="pageable"),
    case("offload.speedup", 2, m=500, detail="over numpy, 1 thread", sources=("offload", "gemm")),
    # This request ran on one thread only, so it has no speedup over the whole node.
    case("offload.speedup", {"core": 0.1}, by="baseline", op="elementwise"),
    case("offload.speedup_over_100_cores", 0.08, m=1000, transfers="included", **_ONLY,
         detail="pinned, eager over onednn, 1 thread"),
    case("offload.speedup_over_100_cores", 0.8, transfers="excluded", detail="pinned over onednn, 1 thread", **_ONLY),
)  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({1000: 2e-5, 10_000: 2e-5, 100_000: 2e-5, 1_000_000: 2e-5}, (80_000, 160_000, 800_000)),
        *(({1000: low, 10_000: high}, (NAN,) * 3) for low, high in ((1e-7, 1e-7), (1e-3, 1e-3), (1e-8, 1e-3))),
    ],
    ids=["overtakes", "always ahead", "never ahead", "falls behind"],
)
def test_crossover_size(synthetic: Factory, gpu: dict[int, float], expected: tuple[float, ...]) -> None:
    node = synthetic("node-a", gpus=1)
    for m in (1000, 10_000, 100_000):
        add_cpu_request(node, 1e-9 * m, **{**TINY, "m": m}, spread=0.01)
    for m, seconds in gpu.items():
        add_gpu_request(node, seconds, **{**TINY, "m": m}, spread=0.01)
    row = select_row("offload.crossover", evidence(synthetic, node), baseline="core")
    assert [row[end] for end in ("low", "estimate", "high")] == pytest.approx(expected, rel=0.1, nan_ok=True)
    assert row["detail"]


def services_node(synthetic: Factory) -> SyntheticNode:
    node = add_tails(synthetic("node-a", gpus=1), {100: 0.03, 5: 0.01, 300: 1.5})
    add_load(node, 20, seconds=60, p99_latency=0.02)
    add_tails(node, {5: 0.01, 20: 0.01}, service="embedding")
    add_tails(node, {5: 1.0, 20: 2.0}, cores=1)
    # 20 requests/s miss the latency limit, so the capacity is below 20, although 100 requests/s meet it.
    return add_tails(node, {5: 0.01, 20: 0.5, 100: 0.02}, service="int8")


_TWO = {"cores": 2, "service": "classifier"}
test_services = case_test(
    services_node,
    case("serving.capacity", 100, low=100, high=300, detail="offered: 5 to 300", **_TWO),
    case("serving.capacity", 20, low=20, service="embedding"),
    case("serving.capacity", 0, low=0, high=5, cores=1),
    case("serving.capacity", 5, low=5, high=20, service="int8"),
)


def test_noise_at_the_limit_widens_the_capacity_interval(synthetic: Factory) -> None:
    node = add_tails(add_tails(synthetic("node-a"), {5: 0.01, 1000: 3.0}), {20: 0.08, 100: 0.15}, spread=0.5)
    row = select_row("serving.capacity", evidence(synthetic, node))
    assert (row["low"], row["high"]) == (5, 1000) and 5 <= row["estimate"] <= 100
