"""What each experiment gives on the machine that is played: its own metrics, of times that a model predicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from experiments.language.shapes import SHAPES
from tests.workflow.standin.answers import Answer, Series, shares, timed
from tests.workflow.standin.chips import ITEMSIZE, Chip, Lack
from tests.workflow.standin.steps import (
    inference,
    language_models,
    orchestration,
    roofline,
    time_to_train,
    training,
)

Params = Mapping[str, Any]
# Seconds of one step of one chain: of a core and of a GPU's thread; and of one that main memory serves.
STEP_S = {"chain": (1.5e-9, 14e-9), "states": (2.2e-9, 38e-9), "branches": (0.8e-9, 22e-9), "chase": (1.6e-9, 40e-9)}
MEMORY_S = (110e-9, 620e-9)
MISPREDICTED_S = 3.2e-9
GPU_THREADS = 132 * 2048
LINK, LINK_PAGEABLE, LINK_S = 52e9, 11e9, 8e-6
REQUEST_S = {"text-classifier": 15e-3, "image-classifier": 40e-3, "lookup": 1.2e-3, "embedding": 6e-3}
POINTS: dict[str, Callable[[Chip, Params], Answer]] = {}
STEPS = {
    "training": training, "roofline": roofline, "inference": inference,
    "language-models": language_models,
    "orchestration": orchestration, "time-to-train": time_to_train,
}  # fmt: skip


def answer_of(name: str, chip: Chip, params: Params, models: Mapping[str, Mapping[str, float]]) -> Answer:
    """What a point measures. params: also its flop, as its experiment counts them. Raises Lack, MemoryError."""
    if name == "models":
        units = {"forward_flop": "FLOP", "step_flop": "FLOP", "activation_bytes": "B"}
        return Answer(
            [], {metric: (value, units.get(metric, "1")) for metric, value in models[params["model"]].items()}
        )
    if name in STEPS:
        return STEPS[name](chip, params, models)
    return POINTS[name](chip, params)


def point(name: str) -> Callable[[Callable[[Chip, Params], Answer]], Callable[[Chip, Params], Answer]]:
    """Register a function as the stand-in of an experiment."""

    def register(function: Callable[[Chip, Params], Answer]) -> Callable[[Chip, Params], Answer]:
        POINTS[name] = function
        return function

    return register


@point("clock")
def clock(chip: Chip, p: Params) -> Answer:
    return Answer([Series({"": p["chain"] / 2.9e9}, "clock", rate=float(p["chain"]), unit="Hz")])


@point("peak")
def peak(chip: Chip, p: Params) -> Answer:
    share = 1.15 if p["kernel"] == "fma" else 0.07
    flop = 2e3 * p["loops"] * p["threads"]
    return timed(flop / (chip.flops[p["dtype"]] * share), chip, flop)


@point("gemm")
def gemm(chip: Chip, p: Params) -> Answer:
    m, n, k = p["m"], p["n"], p["k"]
    moved = float((m * k + k * n + m * n) * ITEMSIZE[p["dtype"]])
    share = {"python": 2e-4, "scalar": 0.02, "simd": 0.2, "torch": 0.95, "onednn": 1.0}.get(p["backend"], 0.9)
    return timed(chip.product_s(p["flop"], moved, p["dtype"], share), chip, p["flop"], moved, graph=True)


@point("content")
def content(chip: Chip, p: Params) -> Answer:
    found = gemm(chip, p)
    if p["content"] == "denormal":
        found.observed = shares(flushed_share=0.0)
    return found


@point("bandwidth")
def bandwidth(chip: Chip, p: Params) -> Answer:
    passes = 1 if p["backend"] == "torch" else max(1, math.ceil(6e8 / p["footprint"]))
    moved = float(p["footprint"]) * passes
    share = {"torch": 0.95, "llvm": 0.8}.get(p["backend"], 1.0)
    seconds = chip.moved_s(moved, p["footprint"]) / share + chip.launch_s
    return timed(seconds, chip, None, moved, graph=p["backend"] == "torch")


@point("transfer")
def transfer(chip: Chip, p: Params) -> Answer:
    if p["direction"] == "peer":
        raise Lack("cuda:0 is the only GPU")
    rate = {"pinned": LINK, "pageable": LINK_PAGEABLE, "none": chip.memory}[p["host_memory"]]
    moved = p["size"] * (2.0 if p["direction"] in ("both", "device_to_device") else 1.0)
    found = timed(moved / rate + 2e-6, chip, None, moved, graph=p["host_memory"] != "pageable")
    found.series.append(Series({"enqueue": chip.host_s, "wait": moved / rate + LINK_S}, "request_time"))
    return found


@point("offload")
def offload(chip: Chip, p: Params) -> Answer:
    m, n, k, size = p["m"], p["n"], p["k"], ITEMSIZE[p["dtype"]]
    there = {"elementwise": m, "gemv": k, "gemm": m * k + k * n, "mlp": m * k}[p["op"]] * size
    back = {"elementwise": m, "gemv": m, "gemm": m * n, "mlp": m * k}[p["op"]] * size
    moved, kernels = float(there + back), 3 if p["op"] == "mlp" else 1
    one = p["flop"] / p["uses"]
    each = chip.product_s(one, moved, p["dtype"], 0.8) if one else chip.moved_s(moved) + chip.launch_s
    compute = p["uses"] * (each + (kernels - 1) * chip.launch_s)
    flop = p["flop"] or None
    if chip.kind == "cpu":
        return timed(compute, chip, flop, moved)
    link = LINK if p["host_memory"] == "pinned" else LINK_PAGEABLE
    parts = {"h2d": there / link + 1.5e-6, "compute": compute, "d2h": back / link + 1.5e-6}
    if p["launch"] == "graph":
        return Answer([Series({"launch": 9e-6, "synchronise": sum(parts.values()) + LINK_S})], {}, flop, moved)
    host = kernels * p["uses"] * chip.host_s
    phases = {
        "enqueue_h2d": 5e-6, "enqueue_compute": host, "enqueue_d2h": 5e-6,
        "synchronise": max(2e-6, sum(parts.values()) - host) + LINK_S,
    }  # fmt: skip
    found = Answer([Series(phases)], {}, flop, moved)
    if p["host_memory"] == "pinned":
        found.series.append(Series(parts, "device_time"))
    return found


@point("parallelism")
def parallelism(chip: Chip, p: Params) -> Answer:
    if p["kernel"] == "chains":
        waves = max(1.0, p["in_flight"] / (132 * 128 * 4))
        return timed((1 << 18) * 4 / 1.75e9 * waves + chip.launch_s, chip, p["flop"])
    slow = (1 if p["backend"] == "llvm-scalar" else p["paths"]) if chip.kind == "cpu" else 0.9 * p["paths"] + 0.1
    return timed((4e-3 if p["backend"] == "llvm-scalar" else 1e-3) * slow, chip)


@point("sequential")
def sequential(chip: Chip, p: Params) -> Answer:
    full, on_gpu = p["chains"] == "full", chip.kind == "gpu"
    count = 1 if not full else GPU_THREADS if on_gpu else p["threads"]
    seconds = STEP_S[p["kernel"]][on_gpu]
    if p["kernel"] == "branches" and p["data"] == "random":
        seconds += MISPREDICTED_S if not on_gpu else 12e-9 * full
    if p["kernel"] == "chase":
        seconds += MEMORY_S[on_gpu] / (1 + chip.cache / p["footprint"])
    # Threads of a full GPU wait for each other's turn.
    seconds *= 16 if full and on_gpu else 1
    steps = float(max(64, round(1e-3 / seconds)))
    found = Answer([Series({"": seconds * steps}, "step_time", per=steps)])
    found.observed = shares(chains_in_flight=float(count))
    return found


@point("sustained")
def sustained(chip: Chip, p: Params) -> Answer:
    extent, more = p["extent"], {"lasting": True}
    if p["load"] == "idle":
        return Answer([Series({"": 0.05}, power_w=75.0, utilisation=0.0, **more)])  # type: ignore[arg-type]
    if p["load"] == "triad":
        return Answer([Series({"": chip.moved_s(extent)}, power_w=420.0, **more)], {}, None, float(extent))  # type: ignore[arg-type]
    flop = 2.0 * extent**3 * (1000 if p["load"] == "one_block" else 1)
    if p["load"] == "one_block":
        return Answer([Series({"": 1000 * 2.5e-6}, power_w=130.0, **more)], {}, flop)  # type: ignore[arg-type]
    size = ITEMSIZE[p["dtype"]]
    lost = 0.03 if chip.kind == "gpu" else 0.0
    seconds = chip.product_s(flop, 3.0 * extent**2 * size, p["dtype"])
    return Answer([Series({"": seconds}, lost=lost, **more)], {}, flop, 3.0 * extent**2 * size)  # type: ignore[arg-type]


@point("without-cuda")
def without_cuda(chip: Chip, p: Params) -> Answer:
    slower = {"cuda": 1.0, "vulkan": 1.15, "webgpu": 1.4}[p["backend"]]
    n = p["n"]
    flop, moved = (2.0 * n, 12.0 * n) if p["kernel"] == "triad" else (2.0 * n**3, 12.0 * n * n)
    share = {"naive": 0.09, "tiled": 0.25}.get(p["kernel"])
    seconds = slower * (chip.product_s(flop, moved, "float32", share) if share else chip.moved_s(moved))
    launches = max(1, math.ceil(10e-3 / seconds))
    return Answer([Series({"": seconds * launches}, per=float(launches))], {}, flop, moved)


@point("libraries")
def libraries(chip: Chip, p: Params) -> Answer:
    if p["shape"] == "operators":
        kernels = {f"{prefix}kernels_{key}": 1000.0 for prefix in ("", "public_") for key in ("cpu", "cuda")}
        return Answer([], shares(operators=3110.0, public_operators=2270.0, **kernels))
    if p["shape"] == "loaded":
        if chip.kind == "cpu":
            raise Lack("NVIDIA's libraries are not needed on a CPU")
        loaded = {"system_driver_loaded": 1.0, "system_toolkit_loaded": 0.0, "toolkit_libraries_loaded": 11.0}
        return Answer([], shares(**loaded, toolkit_libraries_from_system=0.0))
    share = {"library": 0.85, "native": 0.35, "naive": 0.09, "tiled": 0.25}
    if p["layer"] == "lstm":
        share = {"library": 0.2, "native": 0.05}
    seconds = chip.product_s(p["flop"], 0.0, p["dtype"], share[p["variant"]])
    return timed(seconds, chip, p["flop"], graph=p["passes"] == "forward")


@point("serving")
def serving(chip: Chip, p: Params) -> Answer:
    rate, each = p["requests_per_s"], REQUEST_S[p["service"]] * (1.0 if chip.kind == "cpu" else 0.4)
    count, load = rate * p["seconds"], min(0.95, rate * REQUEST_S[p["service"]] / p["cores"])
    middle = 2e-3 + each / (1 - load)
    latency = [middle * (0.8 + 0.05 * (at % 17)) for at in range(min(500, count))]
    found = shares(failed_share=0.0, client_share=0.01, requests=float(count))
    found |= {"latency": (latency, "s"), "client_delay": (1e-3, "s"), "p50_latency": (middle, "s")}
    found |= {"achieved_rate": (0.99 * rate, "1/s"), "cpu_per_request": (1.5 * each, "s")}
    if count >= 100:
        found["p99_latency"] = (2.2 * middle, "s")
    if chip.kind == "gpu":
        found["gpu_busy_share"] = (min(1.0, rate * 8e-4), "1")
    return Answer([], found)


@point("language-serving")
def language_serving(chip: Chip, p: Params) -> Answer:
    if (p["backend"] == "xllamacpp") == (chip.kind == "gpu"):
        raise Lack(f"{p['backend']} does not run on {chip.kind}")
    weights = SHAPES[p["model"]].parameters * (0.6 if p["format"] == "Q4_K_M" else 1.1)
    token_s = max(weights / (0.8 * chip.memory), 2 * p["users"] * weights / chip.flops["float32"])
    first_s = token_s + 2 * weights * p["prompt_tokens"] * (1 + p["users"] / 4) / chip.flops["float32"]
    answer_s, count = first_s + token_s * p["new_tokens"], 4.0 * p["users"]
    seconds = {"p50_first_token_latency": first_s, "p50_token_latency": token_s, "p99_token_latency": 3 * token_s,
               "p50_answer_latency": answer_s, "client_delay": 1e-4}  # fmt: skip
    if count >= 100:
        seconds |= {"p99_first_token_latency": 2 * first_s, "p99_answer_latency": 1.2 * answer_s}
    found = shares(failed_share=0.0, client_share=0.01, requests=count)
    found |= {name: (value, "s") for name, value in seconds.items()}
    found["user_tokens_per_s"] = (1 / token_s, "1/s")
    found["tokens_per_s"] = (p["users"] * p["new_tokens"] / answer_s, "1/s")
    return Answer([], found)


@point("equivalence")
def equivalence(chip: Chip, p: Params) -> Answer:
    loss = [2.3 - 0.02 * step for step in range(p["steps"])]
    found = shares(loss_deviation=2e-4, loss_tolerance=1e-3, agrees_share=1.0)
    return Answer([], {**found, "loss": (loss, "1"), "reference_loss": (loss, "1")})


@point("tabular")
def tabular(chip: Chip, p: Params) -> Answer:
    if p["op"].startswith("parse") and chip.kind == "gpu":
        raise Lack(f"{p['backend']} does not read text")
    rows = p["rows"]
    each = {"filter": 1.2e-9, "sort": 12e-9, "group_by": 6e-9, "join": 14e-9}.get(p["op"], 150e-9)
    if chip.kind == "cpu":
        slow = {"polars": 0.5, "numpy": 2.0, "pandas": 3.0, "torch": 1.5}.get(p["backend"], 40.0)
        return timed(6e-5 + rows * each * slow, chip)
    way = 24.0 * rows / LINK_PAGEABLE + 6e-5 if p["transfers"] == "included" else 0.0
    return timed(1.2e-4 + rows * each / 25 + way, chip)


@point("boosting")
def boosting(chip: Chip, p: Params) -> Answer:
    if chip.kind == "gpu" and p["backend"] != "xgboost":
        raise Lack("CUDA Tree Learner was not enabled in this build")
    slow = {"xgboost": 1.0, "lightgbm": 1.2, "sklearn": 1.3}[p["backend"]]
    if p["phase"] == "fit":
        row_s = 1.7e-7 * slow / (40 if chip.kind == "gpu" else min(p["threads"], 8) or 1)
        return timed(p["trees"] * (3e-3 + row_s * p["rows"]), chip)
    return timed(2.5e-4 * slow + p["rows"] * p["trees"] * 1.5e-8 / (10 if chip.kind == "gpu" else 1), chip)


@point("numerics")
def numerics(chip: Chip, p: Params) -> Answer:
    if p["method"] == "threads" and chip.kind == "gpu":
        raise Lack("there is no second number of threads to compare with")
    found = shares(spread_ulp=3.0, spread_median_ulp=0.5, spread_relative=1e-7, differing_share=0.4, error_ulp=6.0)
    if p["method"] == "repeat":
        found |= shares(distinct_results=1.0, fingerprint=12345.0)
    return Answer([], found)


@point("convergence")
def convergence(chip: Chip, p: Params) -> Answer:
    seeds, batch = p["seeds"], p["batch"]
    found = {name: ([0.96] * seeds, "1") for name in ("test_accuracy", "validation_accuracy")}
    found["time_to_target"] = ([2.0 / batch] * seeds, "s")
    return Answer([], {**found, **shares(updates=1000.0 / batch, reached_share=1.0)})


@point("several-devices")
def several_devices(chip: Chip, p: Params) -> Answer:
    if chip.kind == "gpu":
        raise Lack(f"{max(2, p['ranks'])} devices are needed to train on several, this node has 1")
    alone, together = 0.02, 0.02 * (1 + 0.1 * (p["ranks"] - 1))
    found: dict[str, tuple[Any, str]] = {"samples_per_s": (p["batch"] * p["ranks"] / together, "samples/s")}
    if p["ranks"] > 1:
        found["communication_share"] = ([1 - alone / together] * 10, "1")
    return Answer([], found)
