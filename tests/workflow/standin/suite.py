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
    roofline,
    training,
)

Params = Mapping[str, Any]
LINK, LINK_PAGEABLE, LINK_S = 52e9, 11e9, 8e-6
REQUEST_S = {"text-classifier": 15e-3, "image-classifier": 40e-3, "lookup": 1.2e-3, "embedding": 6e-3}
POINTS: dict[str, Callable[[Chip, Params], Answer]] = {}
STEPS = {
    "training": training, "roofline": roofline, "inference": inference,
    "language-models": language_models,
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


@point("parallelism")
def parallelism(chip: Chip, p: Params) -> Answer:
    if p["kernel"] == "chains":
        waves = max(1.0, p["in_flight"] / (132 * 128 * 4))
        return timed((1 << 18) * 4 / 1.75e9 * waves + chip.launch_s, chip, p["flop"])
    slow = (1 if p["backend"] == "llvm-scalar" else p["paths"]) if chip.kind == "cpu" else 0.9 * p["paths"] + 0.1
    return timed((4e-3 if p["backend"] == "llvm-scalar" else 1e-3) * slow, chip)


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
