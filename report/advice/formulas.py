"""Formulas for time and memory by kind, declared once for Python and for the page.

A formula is an expression in inputs (see `report.advice.jobs`) and constants. SymPy reads it, makes a NumPy function
for the fit and for Python's answers, and JavaScript for the page. Times are in seconds, for one natural item.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import sympy


@dataclass(frozen=True)
class Constant:
    """A constant in a formula. centre: usual value; factor: by how much it may differ (one standard deviation).

    between: by how much it differs between hardware classes; 1 for the same value in all.
    centres: usual values for classes that differ.
    """

    centre: float
    factor: float
    between: float
    meaning: str
    centres: Mapping[str, float] = field(default_factory=dict)

    def usual(self, hardware_class: str) -> float:
        return self.centres.get(hardware_class, self.centre)


@dataclass(frozen=True)
class Formula:
    """Time for one item. item: its name; steps: named intermediate expressions, in order; the last is the time.

    programs: programs' usual speed over others'; program_factor: by how much these differ.
    """

    item: str
    steps: Mapping[str, str]
    constants: Mapping[str, Constant]
    programs: Mapping[str, float] = field(default_factory=dict)
    program_factor: float = 1.3

    @cached_property
    def expression(self) -> sympy.Expr:
        """The time as one expression in inputs and constants."""
        values: dict[str, sympy.Expr] = {}
        for name, text in self.steps.items():
            values[name] = _parse(text).subs(values)
        return list(values.values())[-1]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        names = {str(symbol) for symbol in self.expression.free_symbols} - set(self.constants)
        return tuple(sorted(names))

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The time as a NumPy function: inputs, then constants."""
        return sympy.lambdify(
            [sympy.Symbol(name) for name in (*self.inputs, *self.constants)], self.expression, "numpy"
        )

    def time(self, inputs: Mapping[str, float], constants: Mapping[str, float]) -> float:
        """Return the time in seconds."""
        values = [inputs[name] for name in self.inputs] + [constants[name] for name in self.constants]
        return float(self.function(*values))

    def javascript(self) -> str:
        """Return a JavaScript function body with parameters `x` (inputs) and `c` (constants)."""
        names = {name: f"x.{name}" for name in self.inputs} | {name: f"c.{name}" for name in self.constants}
        symbols = {sympy.Symbol(name): sympy.Symbol(text) for name, text in names.items()}
        return f"return {sympy.jscode(self.expression.xreplace(symbols))};"

    def steps_javascript(self) -> str:
        """Return a JavaScript function body to compute all steps by name, from `x` (inputs) and `c` (constants)."""
        prefixes = dict.fromkeys(self.inputs, "x") | dict.fromkeys(self.constants, "c") | dict.fromkeys(self.steps, "s")
        symbols = {sympy.Symbol(name): sympy.Symbol(f"{prefix}.{name}") for name, prefix in prefixes.items()}
        lines = [f"s.{name} = {sympy.jscode(_parse(text).xreplace(symbols))};" for name, text in self.steps.items()]
        return " ".join(["const s = {};", *lines, "return s;"])

    def steps_text(self) -> dict[str, str]:
        """Return the steps as readers know formulas: `^` for powers, `if` for cases."""
        return {name: _readable(text) for name, text in self.steps.items()}


@dataclass(frozen=True)
class MemorySum:
    """Memory for a job as a sum. steps: shared expressions; parts: bytes by name; room: bytes that can be used."""

    steps: Mapping[str, str]
    parts: Mapping[str, str]
    room: str = "memory"

    @cached_property
    def expressions(self) -> Mapping[str, sympy.Expr]:
        """Each part, and the room, as an expression in inputs."""
        values: dict[str, sympy.Expr] = {}
        for name, text in {**self.steps, **self.parts, "room": self.room}.items():
            values[name] = _parse(text).subs(values)
        return {name: values[name] for name in (*self.parts, "room")}

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(sorted({str(symbol) for each in self.expressions.values() for symbol in each.free_symbols}))

    @cached_property
    def _function(self) -> Callable[..., Any]:
        symbols = [sympy.Symbol(name) for name in self.inputs]
        return sympy.lambdify(symbols, list(self.expressions.values()), "numpy")

    def bytes(self, inputs: Mapping[str, float]) -> dict[str, float]:
        """Return each part in bytes, and under `room` the bytes that can be used."""
        values = self._function(*(inputs[name] for name in self.inputs))
        return {name: float(value) for name, value in zip(self.expressions, values, strict=True)}

    def javascript(self) -> str:
        """Return a JavaScript function body with parameter `x` (inputs)."""
        symbols = {sympy.Symbol(name): sympy.Symbol(f"x.{name}") for name in self.inputs}
        parts = [f"{name}: {sympy.jscode(each.xreplace(symbols))}" for name, each in self.expressions.items()]
        return f"return {{{', '.join(parts)}}};"


@cache
def _parse(text: str) -> sympy.Expr:
    from sympy.parsing.sympy_parser import parse_expr

    return parse_expr(text, local_dict={name: sympy.Symbol(name) for name in _names(text)}, evaluate=True)


class _Cases(ast.NodeTransformer):
    """Change Piecewise((a, condition), (b, True)) to `a if condition else b`, and Max to max."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "Piecewise":
            cases = [case.elts for case in node.args if isinstance(case, ast.Tuple)]
            chosen = cases[-1][0]
            for value, condition in reversed(cases[:-1]):
                chosen = ast.IfExp(condition, value, chosen)
            return chosen
        if isinstance(node.func, ast.Name):
            node.func.id = node.func.id.lower()
        return node


def _readable(text: str) -> str:
    plain = ast.unparse(_Cases().visit(ast.parse(text, mode="eval"))).replace(" ** ", " ^ ")
    return re.sub(r"\b\d{5,}\.0\b", lambda number: f"{float(number[0]):g}".replace("+", ""), plain)


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} - {
        "Max",
        "Min",
        "log",
        "sqrt",
        "Piecewise",
    }


_DEVICES = Constant(0.7, 1.1, 1.0, "exponent of the number of devices")
# Steps that several formulas share.
_LANGUAGE = {
    "weight_bytes": "active * weight_bits / 8",
    # Keys and values for one token in 16 bits.
    "kv_bytes": "4 * layers * kv_width",
}
_PICTURE = {"picture_flop": "item_flop * pixels / item_pixels"}
# Without a count, a transformer computes its parameters for each patch, 16 x 16 pixels. Attention makes large
# pictures dearer than in proportion.
_DENOISING = {
    "counted_flop": "network_flop * (pixels / item_pixels) ** 1.1",
    "step_flop": "Piecewise((counted_flop, network_flop > 0), (2 * parameters * (pixels / 256 + 256), True))",
}

_TRAINING = Formula(
    "sample",
    {
        **_PICTURE,
        **_DENOISING,
        "attention": "4 * layers * hidden * tokens_per_sample * (1 - language / 2)",
        "text_flop": "tokens_per_sample * (2 * counted + attention)",
        "speech_flop": "2 * parameters * (whisper * 1000 + (1 - whisper) * audio_s * 60)",
        "pass_flop": "(language + encoder) * text_flop + picture * picture_flop + diffusion * step_flop"
        " + speech * speech_flop",
        "bandwidth_exponent": "bandwidth_power + convolution * bandwidth_more",
        "rate": "speed * convolution_speed ** convolution / depthwise_slow ** depthwise / speech_slow ** speech * 1e12"
        " * (bandwidth / 1e12) ** bandwidth_exponent * (flops / 1e14) ** (flops_power - convolution * bandwidth_more)"
        " * devices ** spread",
        "time": "passes * pass_flop / rate + step_s * (parameters / 1e8) ** size_power / at_once",
    },
    {
        "speed": Constant(30.0, 2.0, 1.5, "TFLOP/s on a GPU of 1 TB/s and rated 100 TFLOP/s"),
        "convolution_speed": Constant(0.4, 1.6, 1.0, "factor for convolutions"),
        "depthwise_slow": Constant(3.0, 1.5, 1.0, "factor for convolutions that take each channel by itself"),
        "speech_slow": Constant(3.0, 1.5, 1.0, "factor for speech, which programs prepare on the processor"),
        "bandwidth_power": Constant(0.35, 1.25, 1.0, "exponent of the bandwidth"),
        "bandwidth_more": Constant(0.25, 1.25, 1.0, "what convolutions add to it, and take from the arithmetic's"),
        "flops_power": Constant(0.45, 1.25, 1.0, "exponent of the rated FLOP/s"),
        "step_s": Constant(0.05, 2.0, 1.3, "time of a step beside arithmetic for 1e8 parameters, in s"),
        "size_power": Constant(0.15, 1.3, 1.0, "exponent of the parameters in that time"),
        "spread": Constant(0.85, 1.08, 1.0, "exponent of the number of devices"),
    },
)
_SEEING = Formula(
    "picture",
    {
        **_PICTURE,
        "bandwidth_exponent": "bandwidth_power + convolution * bandwidth_more",
        "rate": "speed * convolution_speed ** convolution / depthwise_slow ** depthwise * 1e12"
        " * (bandwidth / 1e12) ** bandwidth_exponent * (flops / 1e14) ** (flops_power - convolution * bandwidth_more)"
        " * devices ** spread",
        "time": "picture_flop / rate + call_s / batch / devices + pixel_s * pixels / 1e6",
    },
    {
        "speed": Constant(30.0, 2.0, 1.6, "TFLOP/s on a GPU of 1 TB/s and rated 100 TFLOP/s"),
        "convolution_speed": Constant(0.6, 1.5, 1.0, "factor for convolutions"),
        "depthwise_slow": Constant(3.0, 1.5, 1.0, "factor for convolutions that take each channel by itself"),
        "bandwidth_power": Constant(0.3, 1.25, 1.0, "exponent of the bandwidth"),
        "bandwidth_more": Constant(0.25, 1.25, 1.0, "what convolutions add to it, and take from the arithmetic's"),
        "flops_power": Constant(0.55, 1.25, 1.0, "exponent of the rated FLOP/s"),
        "call_s": Constant(0.006, 2.0, 1.5, "time of a call beside arithmetic, in s"),
        "pixel_s": Constant(0.001, 2.0, 1.3, "time of a million pixels beside the network, in s"),
        "spread": Constant(0.9, 1.05, 1.0, "exponent of the number of devices"),
    },
    {"tensorrt": 2.0, "openvino": 1.6, "onnx": 1.2},
    1.5,
)
# Passes in a training step: the pass back costs two passes forwards, or one where weights are fixed.
_PASSES = {"train": 3.0, "fine-tune": 3.0, "lora": 2.0}


def _training(kind: str) -> Formula:
    # By LoRA, large models take few texts at a time, and add up gradients until the batch is full.
    at_once = "Piecewise((Min(batch, 4), language * parameters > 1e9), (batch, True))" if kind == "lora" else "batch"
    return replace(_TRAINING, steps={"passes": str(_PASSES[kind]), "at_once": at_once, **_TRAINING.steps})


FORMULAS: Mapping[str, Formula] = {
    "decode": Formula(
        "token",
        {
            **_LANGUAGE,
            "bytes": "weight_bytes + (tokens_in + tokens_out / 2) * kv_bytes",
            "read": "bytes / (reach * bandwidth * devices ** (parallel * spread))",
            "work": "processor * 2 * active / (use * flops)",
            "time": "sqrt(read ** 2 + work ** 2) + layers * layer_s * (1 + experts * experts_more)",
        },
        {
            "reach": Constant(
                0.75, 1.2, 1.25, "share of the rated bandwidth that is reached", {"cpu": 0.75, "datacentre": 0.6}
            ),
            "layer_s": Constant(5e-5, 1.5, 1.6, "time of a layer beside reading, in s", {"apple": 8e-5, "cpu": 5e-5}),
            "use": Constant(0.3, 1.7, 1.0, "share of a processor's rated FLOP/s that is reached"),
            "experts_more": Constant(0.8, 1.7, 1.4, "further time of a layer with experts"),
            "spread": Constant(0.6, 1.2, 1.0, "exponent of the number of devices that work on one layer at once"),
        },
    ),
    "prompt": Formula(
        "prompt",
        {
            **_LANGUAGE,
            "work_flop": "tokens_in * (2 * active + 2 * layers * hidden * tokens_in)",
            "rate": "speed * 1e12 * (flops / 1e14) ** flops_power * devices ** spread",
            "time": "work_flop / rate + layers * layer_s + weight_bytes / bandwidth",
        },
        {
            "speed": Constant(25.0, 2.0, 1.6, "TFLOP/s at rated 100 TFLOP/s"),
            "flops_power": Constant(0.75, 1.15, 1.0, "exponent of the rated FLOP/s"),
            "layer_s": Constant(2e-4, 1.5, 1.5, "time of a layer beside arithmetic, in s"),
            "spread": Constant(0.2, 1.3, 1.0, "exponent of the number of devices"),
        },
    ),
    "serve": Formula(
        "token of any user",
        {
            **_LANGUAGE,
            "all_bytes": "parameters * weight_bits / 8",
            # Users whose keys and values find room beside the weights are served at once.
            "room": "Max((memory - all_bytes) / (kv_bytes * (tokens_in + tokens_out)), 1)",
            "at_once": "Max(Min(users, room, 256), 1)",
            # Each user's token takes its own experts; several tokens share some of them.
            "seen_bytes": "all_bytes * (1 - Max(1 - active / parameters, 0) ** at_once)",
            "read": "(seen_bytes + at_once * (tokens_in + tokens_out / 2) * kv_bytes)"
            " / (reach * bandwidth * devices ** spread)",
            "work": "at_once * (1 + tokens_in / tokens_out) * 2 * active / (use * flops * devices ** spread)",
            "time": "(read + work + layers * layer_s) / at_once + user_s",
        },
        {
            "reach": Constant(0.55, 1.2, 1.1, "share of the rated bandwidth that is reached"),
            "use": Constant(0.3, 1.4, 1.2, "share of the rated FLOP/s that is reached"),
            "layer_s": Constant(2e-4, 1.6, 1.2, "time of a layer beside reading and arithmetic, in s"),
            "user_s": Constant(5e-5, 1.6, 1.2, "time of a user's token in the program, in s"),
            "spread": _DEVICES,
        },
    ),
    "train": _training("train"),
    "fine-tune": _training("fine-tune"),
    "lora": _training("lora"),
    "classify": _SEEING,
    "detect": _SEEING,
    "embed": Formula(
        "text",
        {
            "text_flop": "tokens_per_sample * (2 * counted + 4 * layers * hidden * tokens_per_sample)",
            "rate": "speed * 1e12 * (flops / 1e14) ** flops_power * devices ** spread",
            "time": "text_flop / rate + call_s / batch / devices",
        },
        {
            "speed": Constant(35.0, 1.6, 1.4, "TFLOP/s at rated 100 TFLOP/s"),
            "flops_power": Constant(0.8, 1.15, 1.0, "exponent of the rated FLOP/s"),
            "call_s": Constant(0.01, 2.0, 1.3, "time of a call beside arithmetic, in s"),
            "spread": Constant(0.9, 1.05, 1.0, "exponent of the number of devices"),
        },
        {"text-embeddings-inference": 1.5, "onnx": 1.2},
        1.5,
    ),
    "transcribe": Formula(
        "recording",
        {
            # Whisper hears 30 s at once, as 1,500 positions; people say about 3.5 tokens a second.
            "windows": "Max(audio_s / 30, 1)",
            "spoken": "3.5 * Max(audio_s, 10)",
            "rate": "speed * units_speed ** matrix_units * 1e12 * (flops / 1e14) ** flops_power",
            "token": "decoder_parameters * weight_bits / 8 / (reach * bandwidth) + 2 * decoder_parameters / rate"
            " + decoder_layers * layer_s",
            "listen": "windows * 3000 * encoder_parameters / rate",
            "load": "parameters * weight_bits / 8 / load_rate",
            "time": "listen + whole * (spoken * token / batch ** batch_power + load * (1 - loaded))",
        },
        {
            "speed": Constant(25.0, 2.0, 1.5, "TFLOP/s at rated 100 TFLOP/s"),
            "flops_power": Constant(0.7, 1.15, 1.0, "exponent of the rated FLOP/s"),
            "reach": Constant(0.3, 1.5, 1.2, "share of the rated bandwidth that is reached"),
            "layer_s": Constant(2e-4, 1.8, 1.4, "time of a decoder's layer, in s"),
            "batch_power": Constant(0.7, 1.1, 1.0, "exponent of the recordings at once"),
            "units_speed": Constant(3.0, 1.4, 1.0, "factor for the matrix units in Apple's processors"),
            "load_rate": Constant(1e9, 2.0, 1.0, "rate to load the model, in B/s"),
        },
        {"openai-whisper": 0.6, "faster-whisper": 1.4, "insanely-fast-whisper": 1.3},
        1.5,
    ),
    "pictures": Formula(
        "picture",
        {
            **_DENOISING,
            "rate": "speed * 1e12 * (bandwidth / 1e12) ** bandwidth_power * (flops / 1e14) ** flops_power",
            "time": "steps * (guided * step_flop / rate + call_s / batch)"
            " + pixel_s * pixels / 1e6 * (1e14 / flops) ** flops_power",
        },
        {
            "speed": Constant(30.0, 2.0, 1.5, "TFLOP/s on a GPU of 1 TB/s and rated 100 TFLOP/s"),
            "bandwidth_power": Constant(0.2, 1.3, 1.0, "exponent of the bandwidth"),
            "flops_power": Constant(0.65, 1.2, 1.0, "exponent of the rated FLOP/s"),
            "call_s": Constant(0.01, 2.0, 1.3, "time of a step beside arithmetic, in s"),
            "pixel_s": Constant(0.3, 2.0, 1.3, "time to decode a million pixels, in s"),
        },
        {"directml": 0.5, "stable-diffusion.cpp": 0.6},
        1.6,
    ),
    "tables": Formula(
        "run",
        {
            "depth": "Max(log(Max(leaves, 2)) / log(2), 1)",
            "visits": "rows * columns ** column_power * trees * depth * exact_slow ** exact * forest_slow ** forest",
            "rate": "speed * 1e9 * (cores / 16) ** core_power * (bandwidth / 1e11) ** bandwidth_power"
            " / leaf_slow ** (opencl * (1 - processor))",
            "time": "visits / rate + trees * (tree_s + leafwise * Min(leaves, 4096) * leaf_s) + start_s",
        },
        {
            "speed": Constant(2.0, 2.0, 2.0, "1e9 visits of a row, a column and a level per second on 16 cores"),
            "column_power": Constant(0.9, 1.2, 1.0, "exponent of the columns"),
            "core_power": Constant(0.45, 1.3, 1.0, "exponent of the cores"),
            "bandwidth_power": Constant(0.5, 1.3, 1.0, "exponent of the bandwidth"),
            "exact_slow": Constant(6.0, 1.5, 1.0, "factor for exact splits"),
            "forest_slow": Constant(6.0, 2.0, 1.0, "factor for forests"),
            "leaf_slow": Constant(4.0, 1.6, 1.0, "factor for LightGBM's OpenCL on a GPU"),
            "tree_s": Constant(0.005, 1.6, 1.6, "time of a tree, in s"),
            "leaf_s": Constant(4e-5, 1.6, 1.6, "time of a leaf that is grown by itself, in s"),
            "start_s": Constant(0.3, 1.6, 1.0, "time to start, in s"),
        },
    ),
}

# The program itself, its libraries and what a driver keeps.
_PROGRAM = {"program": "2e8 + 5e8 * (1 - processor)"}
_TRAINED = MemorySum(
    {
        **_PICTURE,
        **_DENOISING,
        # In mixed precision, weights and gradients have 16 bits, beside a copy in 32.
        "mixed": "Piecewise((1, weight_bits <= 16), (0, True))",
        "kept": "Piecewise((34, parameters < 1e9), (10, True))",
        "text_kept": "tokens_per_sample * (layers * hidden * kept + vocab * 6)",
        "each": "Max(Min(batch / devices, 8), 1)",
        "seen": "picture * picture_flop / 100 + diffusion * step_flop / 1000 + speech * 2e8",
    },
    {
        "weights": "parameters * (4 - 2 * mixed)",
        "copy": "parameters * 4 * mixed",
        "gradients": "parameters * (4 - 2 * mixed)",
        "optimiser": "parameters * 8",
        "activations": "(language + encoder) * text_kept * Piecewise((each, parameters < 1e9), (1, True))"
        " + each * seen",
        **_PROGRAM,
    },
    # From a billion parameters on, models are spread over all devices; smaller ones are copied to each.
    "Piecewise((memory, parameters >= 1e9), (memory_each, True))",
)
_ANSWERED = MemorySum(
    _LANGUAGE,
    {
        "weights": "parameters * weight_bits / 8",
        "keys_and_values": "Max(users, 1) * (tokens_in + tokens_out) * kv_bytes",
        "activations": "512 * (4 * vocab + 16 * hidden)",
        **_PROGRAM,
    },
)
_SEEN = MemorySum(
    _PICTURE,
    {"weights": "parameters * weight_bits / 8", "activations": "Max(batch, 1) * picture_flop / 400", **_PROGRAM},
)
# Memory by kind. Where memory has no room for more, one user at a time is served.
MEMORY: Mapping[str, MemorySum] = {
    "decode": _ANSWERED,
    "prompt": _ANSWERED,
    "serve": replace(_ANSWERED, parts={**_ANSWERED.parts, "keys_and_values": "(tokens_in + tokens_out) * kv_bytes"}),
    "train": _TRAINED,
    "fine-tune": _TRAINED,
    "lora": MemorySum(
        _TRAINED.steps,
        {
            "weights": "(parameters + companions) * weight_bits / 8",
            # Adapters have about 0.4% as many parameters, with gradients, optimiser and a copy in 32 bits.
            "adapters": "0.004 * parameters * 16",
            "activations": "(language + encoder) * tokens_per_sample * (layers * hidden * 8 + vocab * 6) + each * seen",
            **_PROGRAM,
        },
    ),
    "classify": _SEEN,
    "detect": _SEEN,
    "embed": MemorySum(
        {},
        {
            "weights": "parameters * weight_bits / 8",
            "activations": "Max(batch, 1) * tokens_per_sample * hidden * 40",
            **_PROGRAM,
        },
    ),
    "transcribe": MemorySum(
        {}, {"weights": "parameters * weight_bits / 8", "activations": "4e8 * Max(batch, 1) ** 0.5", **_PROGRAM}
    ),
    "pictures": MemorySum(
        {},
        {
            # Programs hold the text encoders and the network one after the other.
            "weights": "Max(parameters, companions) * weight_bits / 8",
            "activations": "Max(batch, 1) * pixels * 2000",
            **_PROGRAM,
        },
    ),
    "tables": MemorySum({}, {"table": "rows * columns * (1 + 4 * processor) + rows * 16", **_PROGRAM}),
}
# The least time that physics allows, from rated bandwidth and FLOP/s, in seconds for one item.
BOUNDS: Mapping[str, Formula] = {
    "decode": Formula("token", {**_LANGUAGE, "time": "weight_bytes / (bandwidth * devices)"}, {}),
    "prompt": Formula("prompt", {"time": "tokens_in * 2 * active / (flops * devices)"}, {}),
    "serve": Formula("token of any user", {"time": "2 * active / (flops * devices)"}, {}),
    **{
        kind: Formula(
            "sample",
            {
                **{
                    name: text
                    for name, text in _training(kind).steps.items()
                    if name not in ("bandwidth_exponent", "rate", "time")
                },
                "time": "passes * pass_flop / (flops * devices)",
            },
            {},
        )
        for kind in _PASSES
    },
    "classify": Formula("picture", {**_PICTURE, "time": "picture_flop / (flops * devices)"}, {}),
    "detect": Formula("picture", {**_PICTURE, "time": "picture_flop / (flops * devices)"}, {}),
    "embed": Formula("text", {"time": "tokens_per_sample * 2 * counted / (flops * devices)"}, {}),
    "transcribe": Formula("recording", {"time": "Max(audio_s / 30, 1) * 3000 * encoder_parameters / flops"}, {}),
    "pictures": Formula("picture", {**_DENOISING, "time": "steps * step_flop / flops"}, {}),
    "tables": Formula("run", {"time": "rows * columns * trees / bandwidth"}, {}),
}
