"""Quantities of memory, rooflines, chains of steps, requests, services and tables are as built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from report.data.dataset import Dataset
from report.quantities import offload
from report.quantities.roofline import share_below
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import evidence, priced_node

from .builders import ON_HOST, ONE_GPU, copy, counted, link, on_cpu, passes, peak, tails, to_gpu, under
from .made_cases import case, cases, holding, only

MIB, NAN = 2**20, float("nan")
SEVENTH = "AMD Ryzen 9 7950X 16-Core Processor"


def memory(synthetic: Factory) -> list[SyntheticNode]:
    """The link, memory of a GPU, and two desktops."""
    node = link(synthetic)
    node.devices[1]["l2_bytes"] = 50 * MIB
    for backend, rate in (("torch", 3e12), ("cupy", 2e12)):
        passes(node, 512 * MIB, rate, backend=backend, **ONE_GPU)
    passes(node, 512 * MIB, 1e12, "copy", **ONE_GPU)
    passes(node, 512 * MIB, 9e11, threads=2)  # no desktop
    passes(node, 128 * MIB, 1e13, threads=2)  # no more than four times the cache, which is 32 MiB, and not less
    passes(node, 127 * MIB, 9e13, threads=2)
    desktops = [priced_node(synthetic, name=name, model=SEVENTH, seed=ord(name[-1])) for name in ("node-b", "node-c")]
    for desktop, rate in zip(desktops, (5e10, 6e10), strict=True):
        passes(desktop, 512 * MIB, rate, threads=2)
        passes(desktop, 512 * MIB, 9e10)  # one thread is not the whole desktop
    return [node, *desktops]


_RATE = {"size": 256 * MIB, "host_memory": "pinned"}
test_memory = holding(
    memory,
    case("bandwidth.rate", {"torch": 3e12, "cupy": 2e12}, by="backend", op="triad", device="gpu"),
    case("bandwidth.rate", 3e12, op="triad", device="gpu", backend="best", detail="torch, footprint 537 MB"),
    case("bandwidth.rate", {512 * MIB: 9e11, 128 * MIB: 1e13}, by="footprint", device="cpu", node="node-a"),
    case("bandwidth.over_desktop", 50, op="triad", precision="equal", labels={"node": "node-a", "device": "cuda:0",
         "op": "triad", "dtype": "float32", "baseline": "desktop", "precision": "equal", "runtime": "torch",
         "cpu_runtime": "torch"}),
    case("transfer.memory_ratio", {"host_to_device": 20, "device_to_host": 25}, by="direction", rel=0.01, **_RATE),
    # 10 µs are 500 kB at 50 GB/s: there a copy takes twice as long as its bytes do.
    case("transfer.half_rate_size", 500e3, direction="host_to_device", host_memory="pinned", low=65536, high=MIB,
         rel=0.35),
)  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "spread", "ends"),
    [
        # A size that is not surely below half the best rate is no end of where it lies.
        ({65536: 1e9, MIB: 4.9e9, 4 * MIB: 5.1e9, 16 * MIB: 10e9}, 0.05, [(65536, 16 * MIB)]),
        ({MIB: 4.9e9, 4 * MIB: 5.1e9, 16 * MIB: 10e9}, 0.05, [(NAN, 16 * MIB)]),
        ({MIB: 8e9, 16 * MIB: 1e9}, 0, []),
    ],
)
def test_where_half_of_the_best_rate_is_passed(
    synthetic: Factory, rates: dict[int, float], spread: float, ends: list[tuple[float, float]]
) -> None:
    node = synthetic("node-a", gpus=1)
    for size, rate in rates.items():
        copy(node, size / rate, size, spread=spread)
    found = cases("transfer.half_rate_size", evidence(synthetic, node)).rows("low", "high")
    assert found == [pytest.approx(end, nan_ok=True) for end in ends]


PARAMETERS, KEPT = {"gpt2": 1e8, "mlp": 1e5}, 5e6


@pytest.mark.parametrize("measured", [False, True])
def test_measured_peaks_correct_the_model_of_memory(synthetic: Factory, measured: bool) -> None:
    node = synthetic("node-a")
    for model, parameters in PARAMETERS.items():
        counted(node, model, 3, parameters=parameters, activation_bytes=KEPT)
    # Peaks over what is said of them; small ones do not count.
    for model, over, batch in (("gpt2", 0.9, 1), ("gpt2", 1.1, 2), ("gpt2", 1.2, 4), ("mlp", 3.0, 1)) * measured:
        peak(node, model, batch, over * (16 * PARAMETERS[model] + KEPT * batch), spread=1e-4)
    found = cases("ladder.training_memory_bytes", evidence(synthetic, node))
    (own,) = found.filter(model="gpt2").rows("low", "estimate", "high")
    said = 16 * PARAMETERS["gpt2"] + KEPT * 32
    assert own == pytest.approx([said * ratio for ratio in ((0.9, 1.1, 1.2) if measured else (0.5, 1, 2))], rel=1e-3)
    assert bool(found.filter(model="gpt2").value("source_rows", 0)) == measured
    assert found.filter(model="Llama 3.1 8B").rows("low", "estimate", "high") == [pytest.approx((16 * 8e9,) * 3)]


# FLOP/s, bytes/s: a balance of 16 FLOP/B.
PEAK, MOVED = 1.6e11, 1e10
CACHE = 2**25
LIMITS = [2.0**power for power in range(-2, 13)]


def machine(synthetic: Factory, name: str = "node-a", spread: float = 0.0) -> SyntheticNode:
    """A node whose multiply-add kernel and whose passes over memory show its ceilings."""
    node = synthetic(name, cache=CACHE).peak(PEAK, spread=spread)
    return passes(node, 8 * CACHE, MOVED, backend="llvm", dtype="float64", spread=spread)


def below(node: SyntheticNode, shares: dict[float, float], phase: str, spread: float = 0.0, **more: float) -> None:
    """A step of which so much of the time lies in operators of these intensities."""
    about: dict[str, Any] = {"params": {"model": "mlp", "batch": 8, "phase": phase}, "spread": spread}
    for limit in LIMITS:
        share = sum(part for intensity, part in shares.items() if intensity <= limit)
        node.point("roofline", {f"time_below.{limit:g}_share": share}, **about)
    node.point("roofline", more, unit="FLOP/B", **about)


def roofline(synthetic: Factory) -> list[SyntheticNode]:
    # The balance is 16 within some per cent: between the limits 8 and 32.
    node = machine(synthetic, spread=0.01)
    below(node, {0.25: 0.3, 8: 0.3, 64: 0.4}, "training", product_intensity=64.0)
    below(node, {0.5: 1.0}, "decode", product_intensity=0.5)
    below(node, {256: 1.0}, "prefill")
    # Operators at 16 may lie on either side of a balance of about 16.
    below(node, {1: 0.3, 16: 0.3, 64: 0.4}, "forward", spread=0.02)
    # A product that is faster than the kernel is the peak; no ceilings at all.
    faster = machine(synthetic, "node-b", spread=1e-3).gemm(64, clock=2.5e9, spread=1e-3)
    bare = synthetic("node-c")
    below(bare, {1: 1.0}, "training", product_intensity=1.0)
    return [node, faster, bare]


_ALL = {"sources": ("roofline", "peak", "bandwidth")}
test_roofline = holding(
    roofline,
    case("roofline.balance", PEAK / MOVED, node="node-a", rel=0.02, detail="multiply-adds in registers",
         sources=("peak", "bandwidth")),
    case("roofline.balance", 2 * 64 * 2.5e9 / MOVED, node="node-b", rel=0.01, detail="torch, 512x512x512"),
    case("roofline.intensity_over_balance", {"training": 4, "decode": 0.5 / 16}, by="phase", rel=0.05, **_ALL),
    # Equal rounds of something timed are no knowledge of its spread.
    case("roofline.memory_bound_share", 0.6, phase="training", width="unknown", **_ALL),
    # That every operator lies below the balance, or none, is counted.
    case("roofline.memory_bound_share", 1, phase="decode", width="exact", **_ALL),
    case("roofline.memory_bound_share", 0, phase="prefill", width="exact", **_ALL),
    case("roofline.memory_bound_share", 0.5, phase="forward", rel=0.25, **_ALL),
    case("roofline.memory_bound_share", None, node="node-c"),
    case("roofline.prediction_error", None),
)  # fmt: skip


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        # To the last limit that is surely below and the first that is surely above, with what rounds leave open there.
        ((6.0, 3.0, 12.0), (0.5 + 0.2 * np.log(1.5) / np.log(2), 0.35, 0.8)),
        ((4.0, 4.0, 8.0), (0.5, 0.45, 0.75)),
        ((1.0, 0.5, 2.0), (0.2, 0.0, 0.45)),
        ((64.0, 20.0, 80.0), (0.75, 0.7, 1.0)),
        ((6.0, NAN, NAN), (0.5 + 0.2 * np.log(1.5) / np.log(2), NAN, NAN)),
    ],
)
def test_the_share_below_a_balance_spans_its_interval(at: tuple[float, ...], expected: tuple[float, ...]) -> None:
    shares = np.array([0.2, 0.4, 0.5, 0.7, 0.75])
    part = {"limit": np.array([1.0, 2, 4, 8, 16]), "estimate": shares, "low": shares - 0.05, "high": shares + 0.05,
            "n_rounds": np.full(5, 3)}  # fmt: skip
    found = share_below(part, dict(zip(("estimate", "low", "high"), at, strict=True)))
    assert list(found.values()) == pytest.approx(expected, nan_ok=True)


def square(node: SyntheticNode, m: int, n: int, reached: float = 1.0, launch: float = 0.0, spread: float = 0.0) -> None:
    flop, moved = 2.0 * m * n * n, 4.0 * (2 * m * n + n * n)
    seconds = max(flop / PEAK, moved / MOVED) / reached + launch
    node.point("gemm", seconds, params={"m": m, "n": n, "k": n}, flop=flop, bytes=moved, spread=spread)


def predictable_kernels(
    synthetic: Factory, launch: float = 0.0, cache: float = 1.0, reached: float = 1.0, spread: float = 0.0
) -> SyntheticNode:
    """A machine on which every kernel takes exactly what the given numbers say.

    reached: share of both ceilings that kernels reach. cache: its bandwidth over that of memory.
    """
    node = machine(synthetic, spread=spread)
    for n in (64, 96, 128, 192, 256, 320, 384, 448, 512, 768, 1024, 1536):
        for m in (1, n):
            square(node, m, n, reached, launch, spread)
    for size in (2**14, 2**16, 2**18, 2**20, 2**22, 2**24, CACHE * 16, CACHE * 24):
        for op in ("copy", "add"):
            seconds = size / (MOVED * (cache if size <= CACHE else 1.0) * reached) + launch
            passes(node, size, size / seconds, op, backend="llvm", dtype="float64", spread=spread)
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        # Half of the bytes in operators of 1/4, half in operators of 64 FLOP/B: 16 FLOP/B is the balance.
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
def test_as_many_numbers_as_the_machine_has_predict_it(
    synthetic: Factory, about: dict[str, float], enough: int
) -> None:
    data = evidence(synthetic, predictable_kernels(synthetic, **about))
    found = cases("roofline.prediction_error", data)
    errors = {(numbers, by): error for numbers, by, error in found.rows("numbers", "ceilings", "estimate")}
    for numbers in (2, 3, 4):
        least, most = (0, 0.01) if numbers >= enough else (2 * errors[enough, "fitted"] + 0.01, 1e9)
        assert least <= errors[numbers, "fitted"] < most
    # A measured ceiling is what kernels reach only if they reach it.
    assert (errors[2, "measured"] < 0.01) == (about == {})


def test_rounds_give_the_interval_and_kernels_are_no_sample(synthetic: Factory) -> None:
    found = evidence(synthetic, predictable_kernels(synthetic, reached=0.7, spread=0.03))
    row = only("roofline.prediction_error", found, numbers=2, ceilings="measured")
    assert row["low"] < 0.3 < row["high"] < row["low"] + 0.3 and row["n_rounds"] == 3


def chain(
    node: SyntheticNode, seconds: float, kernel: str = "chain", kind: str = "random", footprint: int = 4,
    count: int = 1, device: str = "cpu", spread: float = 1e-4,
) -> SyntheticNode:  # fmt: skip
    """One chain, or `count` chains that fill the device."""
    params = {"kernel": kernel, "chains": "one" if count == 1 else "full", "footprint": footprint, "data": kind}
    about: dict[str, Any] = {"params": params, "dtype": "", "device": device, "threads": count}
    node.point("sequential", seconds, metric="step_time", spread=spread, **about)
    return node.point("sequential", float(count), metric="chains_in_flight", unit="1", spread=0, samples=1, **about)


def chains(synthetic: Factory) -> SyntheticNode:
    """Chains, branches of which every other guess is wrong, and a chase that no GPU ran."""
    node = synthetic("node-a", gpus=1).clock(3e9, spread=1e-4)
    chain(node, 1e-9)
    chain(node, 8e-9, **ONE_GPU)
    chain(node, 1.5e-9, count=2)
    chain(node, 2e-9, count=4)
    chain(node, 2e-8, count=1000, **ONE_GPU)
    for device, predictable, random in (("cpu", 1e-9, 4e-9), ("cuda:0", 1e-8, 1.05e-8)):
        for kind, seconds in (("predictable", predictable), ("random", random)):
            chain(node, seconds, "branches", kind, 2**19, device=device, spread=0.01)
    for footprint, seconds in ((2**14, 1e-9), (2**18, 4e-9)):
        chain(node, seconds, "chase", "random", footprint)
    return node


_CHAIN = {"node": "node-a", "device": "cuda:0", "kernel": "chain", "data": "random", "footprint": 4}
test_chains = holding(
    chains,
    case("sequential.chain_speed_ratio", 8, kernel=["chain", "chase"], labels=_CHAIN),
    case("sequential.gpu_over_cpu_one_thread", 1 / 8, kernel="chain", labels=_CHAIN),
    # 1000 chains at 20 ns a step, against four at 2 ns: those of two threads are not all.
    case("sequential.gpu_over_cpu_full_chip", (1000 / 20) / (4 / 2), labels=_CHAIN),
    case("sequential.prediction_gain", {"cpu": 4, "cuda:0": 1.05}, by="device", chains="one", rel=0.02),
    # 3 ns more a step are 6 ns a wrong guess, 18 cycles at 3 GHz.
    case("sequential.mispredict_cycles", 18, rel=0.02),
    case("sequential.load_cycles", {2**14: 3, 2**18: 12}, by="footprint"),
    case("sequential.cache_gain", None),
)


def caches(synthetic: Factory, level_2: int | None = MIB, flat: bool = False) -> Dataset:
    """Caches of 32 KiB, 1 MiB and 16 MiB at 2, 6 and 24 ns, and memory at 150 ns."""
    levels = {"L3": (16 * MIB, 1), **({"L2": (2 * level_2, 2)} if level_2 else {})}
    told = {name: {"bytes": size, "instances": number} for name, (size, number) in levels.items()}
    node = synthetic("node-a", cpu={"caches": told})
    for size in (2**power for power in range(12, 28)):
        nanoseconds = 2 if flat or size <= 2**15 else 6 if size <= MIB else 24 if size <= 16 * MIB else 150
        chain(node, nanoseconds * 1e-9, "chase", footprint=size, spread=0.01)
    return evidence(synthetic, node)


@pytest.mark.parametrize(
    ("level_2", "flat", "gain", "near"),
    [(MIB, False, 25, "262 kB"), (None, False, 25, "262 kB"), (2**15, False, 75, "32.8 kB"), (MIB, True, 1, "262 kB")],
)
def test_memory_is_compared_with_what_is_near_a_core(
    synthetic: Factory, level_2: int | None, flat: bool, gain: float, near: str
) -> None:
    found = caches(synthetic, level_2, flat)
    case("sequential.cache_gain", gain, rel=0.05, detail=f"134 MB over {near}").check(found)


DENSE: dict[str, Any] = {"op": "mlp", "m": 64, "n": 1024, "k": 1024}
TINY: dict[str, Any] = {"op": "elementwise", "m": 8, "n": 1, "k": 1}


def requests(synthetic: Factory) -> SyntheticNode:
    node = synthetic("node-a", gpus=1)
    on_cpu(node, 10e-3)
    on_cpu(node, 8e-3, backend="onednn")
    on_cpu(node, 5e-3, threads=2)
    # What the experiment gemm measured counts too, in a number format that requests have.
    product: dict[str, Any] = {"params": {"m": 500, "n": 500, "k": 500}, "spread": 1e-4, "backend": "numpy"}
    node.point("gemm", 4e-3, **product)
    node.point("gemm", 1e-6, dtype="int8", **ONE_GPU, **product)
    to_gpu(node, 1e-3, (0.4e-3, 0.1e-3, 0.3e-3))
    to_gpu(node, 0.5e-3, launch="graph", op="gemv")
    to_gpu(node, 0.5e-3, launch="graph", dtype="bfloat16")  # no core has measured this format
    to_gpu(node, 4e-3, host_memory="pageable")
    to_gpu(node, 2e-3, m=500, n=500, k=500)
    on_cpu(node, 1e-6, **TINY)
    to_gpu(node, 1e-5, (1e-6, 4e-6, 1e-6), **TINY)
    to_gpu(node, 100e-6, (20e-6, 10e-6, 30e-6), **DENSE)
    to_gpu(node, 1000e-6, (20e-6, 900e-6, 30e-6), uses=100, **DENSE)
    # Noise makes the rest negative.
    to_gpu(node, 100e-6, (50e-6, 30e-6, 25e-6), **{**DENSE, "m": 65})
    return node


_SQUARE: dict[str, Any] = {"op": "gemm", "m": 1000, "dtype": "float32"}
_EAGER = {**_SQUARE, "launch": "eager", "host_memory": "pinned"}
_ONLY = {"sources": ("offload",)}
test_requests = holding(
    requests,
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
    # One thread stands for a node only where all were tried as well.
    case("offload.speedup", {"core": 0.1}, by="baseline", op="elementwise"),
    case("offload.speedup_over_100_cores", 0.08, m=1000, transfers="included", **_ONLY,
         detail="pinned, eager over onednn, 1 thread"),
    case("offload.speedup_over_100_cores", 0.8, transfers="excluded", detail="pinned over onednn, 1 thread", **_ONLY),
)  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({1000: 2e-5, 10_000: 2e-5, 100_000: 2e-5, 1_000_000: 2e-5}, (80_000, 160_000, 800_000)),
        *(({1000: few, 10_000: many}, (NAN,) * 3) for few, many in ((1e-7, 1e-7), (1e-3, 1e-3), (1e-8, 1e-3))),
    ],
    ids=["overtakes", "always ahead", "never ahead", "falls behind"],
)
def test_where_the_gpu_overtakes(synthetic: Factory, gpu: dict[int, float], expected: tuple[float, ...]) -> None:
    node = synthetic("node-a", gpus=1)
    for m in (1000, 10_000, 100_000):
        on_cpu(node, 1e-9 * m, **{**TINY, "m": m}, spread=0.01)
    for m, seconds in gpu.items():
        to_gpu(node, seconds, **{**TINY, "m": m}, spread=0.01)
    found = only("offload.crossover", evidence(synthetic, node), baseline="core")
    assert [found[end] for end in ("low", "estimate", "high")] == pytest.approx(expected, rel=0.1, nan_ok=True)
    assert found["detail"]


def services(synthetic: Factory) -> SyntheticNode:
    node = tails(synthetic("node-a", gpus=1), {100: 0.03, 5: 0.01, 300: 1.5})
    under(node, 20, seconds=60, p99_latency=0.02)
    tails(node, {5: 0.01, 20: 0.01}, service="embedding")
    tails(node, {5: 1.0, 20: 2.0}, cores=1)
    # A lower rate that fails is not made up for by a higher one that does not.
    return tails(node, {5: 0.01, 20: 0.5, 100: 0.02}, service="int8")


_TWO = {"cores": 2, "service": "classifier"}
test_services = holding(
    services,
    case("serving.capacity", 100, low=100, high=300, detail="offered: 5 to 300", **_TWO),
    case("serving.capacity", 20, low=20, service="embedding"),
    case("serving.capacity", 0, low=0, high=5, cores=1),
    case("serving.capacity", 5, low=5, high=20, service="int8"),
)


def test_what_scatters_about_the_limit_widens_the_capacity(synthetic: Factory) -> None:
    node = tails(tails(synthetic("node-a"), {5: 0.01, 1000: 3.0}), {20: 0.08, 100: 0.15}, spread=0.5)
    found = only("serving.capacity", evidence(synthetic, node))
    assert (found["low"], found["high"]) == (5, 1000) and 5 <= found["estimate"] <= 100
