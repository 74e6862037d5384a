"""Steps, requests and texts of the models on the machine that is played, from what was counted of each model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.workflow.standin.answers import Answer, Observed, Series, shares
from tests.workflow.standin.chips import ITEMSIZE, Chip, Lack
from tests.workflow.standin.machine import GPU_MEMORY

Params = Mapping[str, Any]
Models = Mapping[str, Mapping[str, float]]
# Share of a product's rate that those of models reach; and operators for each level of a model's graph, by pass.
SHARE, OPERATORS = 0.55, 1.6
# Levels of a network whose graph was not counted.
UNTRACED = 150.0
PASSES = {"training": 3.5, "forward": 1.0}
# Intensities up to which the real experiment tells its distributions, in FLOP/B.
BELOW = [2.0**power for power in range(-2, 13)]
PASSES_OVER_MEMORY = 0.25


@dataclass(frozen=True)
class Step:
    """What one step of a model takes: computing, moving and launching it; all of it is `seconds`."""

    flop: float
    moved: float
    kernels: float
    products_s: float
    passes_s: float
    host_s: float

    @property
    def kernel_s(self) -> float:
        """Seconds in which the device works."""
        return self.products_s + self.passes_s

    @property
    def seconds(self) -> float:
        """Seconds of a step; the host launches beside the device."""
        return max(self.kernel_s, self.host_s) + 3e-6


def step(chip: Chip, model: Mapping[str, float], p: Params, kind: str, samples: float) -> Step:
    """A step of a model on so many samples. kind: training, forward."""
    dtype, batch = str(p["dtype"]), samples
    size = ITEMSIZE[dtype]
    train = kind == "training"
    flop = model["step_flop" if train else "forward_flop"] * batch
    weights = model["parameters"] * (32 if train else size)
    moved = weights + model["activation_bytes"] * batch * (2.5 if train else 0.5) * (0.6 if size < 4 else 1.0)
    # A library does a recurrence in a few kernels a step of it.
    levels = model.get("levels", UNTRACED)
    levels = min(levels, 2 * model["length"] + 10) if levels > 500 else levels
    kernels = OPERATORS * PASSES[kind] * levels * (1.3 if train and size < 4 else 1.0)
    how = {"python": 2e-4, "scalar": 0.03, "simd": 0.3, "onednn": 1.3, "inductor": 1.5, "onnx": 1.5, "graph": 1.0,
           "channels_last": 1.2, "openvino": 1.7}  # fmt: skip
    share = SHARE * how.get(str(p.get("backend")), 1.0)
    if dtype not in chip.flops:
        raise Lack(f"no {dtype} on this device")
    products_s = (flop + chip.half * kernels / 60) / (chip.flops[dtype] * share)
    launch = {"graph": 0.1, "inductor": 0.3, "onnx": 0.4}.get(str(p.get("backend")), 1.0)
    each = 1.5e-6 if chip.kind == "gpu" else chip.launch_s
    host_s = kernels * chip.host_s * launch if chip.kind == "gpu" else 0.0
    return Step(flop, moved, kernels, products_s, chip.moved_s(moved, moved) + kernels * each * launch, host_s)


def training(chip: Chip, p: Params, models: Models) -> Answer:
    model = models[p["model"]]
    held = 16 * model["parameters"] + p["batch"] * model["activation_bytes"] * (0.6 if p["dtype"] == "bfloat16" else 1)
    if chip.kind == "gpu" and held > 0.95 * GPU_MEMORY:
        raise MemoryError(f"Tried to allocate {held / 2**30:.2f} GiB.")
    if chip.kind == "cpu" and p["dtype"] == "tf32":
        raise Lack("TF32 exists only inside matrix units of NVIDIA GPUs")
    made = step(chip, model, p, "training", p["batch"])
    phases = {"forward": 0.32, "backward": 0.55, "update": 0.13}
    found = Answer([Series({name: made.seconds * part for name, part in phases.items()})], flop=p["flop"])
    found.observed = {"peak_memory": (held, "B")}
    if chip.kind == "gpu" or p["backend"] == "torch":
        found.observed["kernel_time"] = (min(made.kernel_s, made.seconds), "s")
    if p["backend"] == "torch":
        time_share = made.products_s / made.kernel_s
        found.observed |= shares(repeat_share=1.0, matmul_flop_share=0.99, matmul_time_share=time_share)
    return found


def roofline(chip: Chip, p: Params, models: Models) -> Answer:
    model, phase = models[p["model"]], p["phase"]
    if phase in ("prefill", "decode") and not p["model"].startswith(("gpt2", "llama")):
        raise Lack(f"{p['model']} answers all at once: its phases are training and forward")
    samples = p["batch"] / (model["length"] if phase == "decode" else 1.0)
    made = step(chip, model, p, "training" if phase == "training" else "forward", samples)
    # Products read weights and data once, and passes over memory the rest.
    of_products = 0.5 * made.moved if phase != "decode" else 0.97 * made.moved
    intensity = made.flop / of_products
    time_share = made.products_s / made.kernel_s if phase != "decode" else 0.85
    flop = made.flop + PASSES_OVER_MEMORY * (made.moved - of_products)
    found = Answer([Series({"": made.seconds})], flop=flop, bytes=made.moved)
    found.observed = shares(
        kernels=float(round(made.kernels)), matmul_flop_share=made.flop / flop, matmul_time_share=time_share,
        cached_bytes_share=min(1.0, chip.cache / made.moved),
    )  # fmt: skip
    found.observed |= {"product_intensity": (intensity, "FLOP/B")}
    low = {"time": 1 - time_share, "bytes": 1 - of_products / made.moved, "flop": 1 - made.flop / flop}
    for measure, share in low.items():
        found.observed |= _below(measure, share, intensity)
    return found


def _below(measure: str, passes: float, intensity: float) -> Observed:
    """The distribution of operators that are passes over memory or products of one intensity."""
    return shares(**{f"{measure}_below.{limit:g}_share": 1.0 if intensity <= limit else passes for limit in BELOW})


def inference(chip: Chip, p: Params, models: Models) -> Answer:
    if p["backend"] == "onnx" and chip.kind == "gpu":
        raise Lack("backend onnx does not run on cuda:0")
    model = models[p["model"]]
    made = step(chip, model, p, "forward", p["batch"])
    moved = model["parameters"] * ITEMSIZE[p["dtype"]] + 1e3 * p["batch"]
    if chip.kind == "cpu":
        return Answer([Series({"": made.seconds + 6e-6}, single=True)], {}, p["flop"], moved)
    parts = {"h2d": 2.5e-6, "compute": made.kernel_s, "d2h": 2.2e-6}
    whole = made.seconds + sum(parts.values()) - made.kernel_s + 22e-6
    return Answer([Series({"": whole}, single=True), Series(parts, "device_time")], {}, p["flop"], moved)


def language_models(chip: Chip, p: Params, models: Models) -> Answer:
    if chip.kind == "gpu" and not p["backend"].startswith("transformers"):
        raise Lack(f"backend {p['backend']} does not run on cuda:0")
    if chip.kind == "cpu" and p["backend"] in ("llama-cpp-python", "llama-bench"):
        raise Lack(f"{p['backend']} is not installed")
    parameters = {"llama-0.5b": 0.49e9, "llama-1b": 1.24e9, "llama-3b": 3.2e9, "llama-8b": 8.0e9}.get(p["model"], 4e6)
    moved = parameters * {"Q4_K_M": 0.65, "Q8_0": 1.06}.get(p["format"], 2.0)
    share = {"xllamacpp": 0.8, "transformers": 0.5}.get(p["backend"], 0.9)
    if p["phase"] == "decode":
        return Answer([Series({"": 8 * moved / chip.memory / share}, per=8.0)], {}, 2 * parameters, moved)
    flop = 2 * parameters * p["tokens"]
    return Answer([Series({"": chip.product_s(flop, moved, "bfloat16", 0.5 * share)})], {}, flop, moved)
