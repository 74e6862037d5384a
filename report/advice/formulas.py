"""Formulas for the time of each kind of job, declared once for Python and for the page.

A formula is an expression in inputs (see `report.advice.jobs`) and constants. SymPy reads it, makes a NumPy function for
the fit and for Python's answers, and JavaScript for the page. Times are in seconds, for one natural item of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import sympy


@dataclass(frozen=True)
class Constant:
    """A constant of a formula. centre: usual value; factor: by how much it may differ (one standard deviation).

    between: by how much it differs between classes of hardware; 1 for the same value in all classes.
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
    """Time of one item. item: what it is; steps: named intermediate expressions, in order; the last is the time.

    programs: usual speed of programs over the others'; program_factor: by how much these differ (one standard deviation).
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
        """The time as a NumPy function of the inputs and the constants, in this order."""
        return sympy.lambdify([sympy.Symbol(name) for name in (*self.inputs, *self.constants)], self.expression, "numpy")

    def time(self, inputs: Mapping[str, float], constants: Mapping[str, float]) -> float:
        """Return the time in seconds."""
        values = [inputs[name] for name in self.inputs] + [constants[name] for name in self.constants]
        return float(self.function(*values))

    def javascript(self) -> str:
        """Return the body of a JavaScript function of `x` (inputs) and `c` (constants)."""
        names = {name: f"x.{name}" for name in self.inputs} | {name: f"c.{name}" for name in self.constants}
        symbols = {sympy.Symbol(name): sympy.Symbol(text) for name, text in names.items()}
        return f"return {sympy.jscode(self.expression.xreplace(symbols))};"


@cache
def _parse(text: str) -> sympy.Expr:
    from sympy.parsing.sympy_parser import parse_expr

    return parse_expr(text, local_dict={name: sympy.Symbol(name) for name in _names(text)}, evaluate=True)


def _names(text: str) -> set[str]:
    import ast

    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)} - {"Max", "Min", "log", "sqrt"}


_REACH = Constant(0.6, 1.2, 1.25, "share of the rated bandwidth that is reached", {"cpu": 0.6, "datacentre": 0.5})
_DEVICES = Constant(0.7, 1.1, 1.0, "exponent of the number of devices")

FORMULAS: Mapping[str, Formula] = {
    "decode": Formula(
        "token",
        {
            "bytes": "weight_bytes + context * kv_bytes",
            "read": "bytes / (reach * bandwidth * devices ** (parallel * spread))",
            "work": "processor * 2 * active / (use * flops)",
            "time": "sqrt(read ** 2 + work ** 2) + layers * layer_s * (1 + experts * experts_more)",
        },
        {
            "reach": Constant(0.75, 1.2, 1.25, "share of the rated bandwidth that is reached", {"cpu": 0.75, "datacentre": 0.6}),
            "layer_s": Constant(5e-5, 1.5, 1.6, "time of a layer beside reading, in s", {"apple": 8e-5, "cpu": 5e-5}),
            "use": Constant(0.3, 1.7, 1.0, "share of a processor's rated FLOP/s that is reached"),
            "experts_more": Constant(1.5, 1.7, 1.0, "further time of a layer with experts"),
            "spread": Constant(0.6, 1.2, 1.0, "exponent of the number of devices that work on one layer at once"),
        },
    ),
    "prompt": Formula(
        "prompt",
        {
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
        "step of all users",
        {
            "read": "(all_bytes + users * context * kv_bytes) / (reach * bandwidth * devices ** spread)",
            "work": "users * (1 + prompt_share) * 2 * active / (use * flops * devices ** spread)",
            "step": "read + work + layers * layer_s + users * user_s",
            "time": "step / users",
        },
        {
            "reach": Constant(0.55, 1.2, 1.1, "share of the rated bandwidth that is reached"),
            "use": Constant(0.3, 1.4, 1.2, "share of the rated FLOP/s that is reached"),
            "layer_s": Constant(2e-4, 1.6, 1.2, "time of a layer beside reading and arithmetic, in s"),
            "user_s": Constant(5e-5, 1.6, 1.2, "time of a user's token in the program, in s"),
            "spread": _DEVICES,
        },
    ),
    "train": Formula(
        "sample",
        {
            "bandwidth_exponent": "bandwidth_power + convolution * bandwidth_more",
            "rate": "speed * convolution_speed ** convolution / depthwise_slow ** depthwise / speech_slow ** speech * 1e12 * (bandwidth / 1e12) ** bandwidth_exponent"
            " * (flops / 1e14) ** (flops_power - convolution * bandwidth_more) * devices ** spread",
            "time": "sample_flop / rate + step_s / batch",
        },
        {
            "speed": Constant(30.0, 2.0, 1.5, "TFLOP/s on a GPU of 1 TB/s and rated 100 TFLOP/s"),
            "convolution_speed": Constant(0.4, 1.6, 1.0, "factor for convolutions"),
            "depthwise_slow": Constant(3.0, 1.5, 1.0, "factor for convolutions that take each channel by itself"),
            "speech_slow": Constant(3.0, 1.5, 1.0, "factor for speech, which programs prepare on the processor"),
            "bandwidth_power": Constant(0.35, 1.25, 1.0, "exponent of the bandwidth"),
            "bandwidth_more": Constant(0.25, 1.25, 1.0, "what convolutions add to it, and take from the arithmetic's"),
            "flops_power": Constant(0.45, 1.25, 1.0, "exponent of the rated FLOP/s"),
            "step_s": Constant(0.03, 2.0, 1.3, "time of a step beside arithmetic, in s"),
            "spread": Constant(0.85, 1.08, 1.0, "exponent of the number of devices"),
        },
    ),
    "classify": Formula(
        "picture",
        {
            "bandwidth_exponent": "bandwidth_power + convolution * bandwidth_more",
            "rate": "speed * convolution_speed ** convolution / depthwise_slow ** depthwise * 1e12"
            " * (bandwidth / 1e12) ** bandwidth_exponent * (flops / 1e14) ** (flops_power - convolution * bandwidth_more)"
            " * devices ** spread",
            "time": "item_flop / rate + call_s / batch + pixel_s * pixels / 1e6",
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
    ),
    "embed": Formula(
        "text",
        {
            "rate": "speed * 1e12 * (flops / 1e14) ** flops_power * devices ** spread",
            "time": "item_flop / rate + call_s / batch",
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
            "rate": "speed * 1e12 * (flops / 1e14) ** flops_power",
            "token": "decoder_bytes / (reach * bandwidth) + decoder_flop / rate + decoder_layers * layer_s",
            "time": "encoder_flop / rate + whole * (spoken * token / batch ** batch_power + file_bytes / load_rate)",
        },
        {
            "speed": Constant(25.0, 2.0, 1.5, "TFLOP/s at rated 100 TFLOP/s"),
            "flops_power": Constant(0.7, 1.15, 1.0, "exponent of the rated FLOP/s"),
            "reach": Constant(0.3, 1.5, 1.2, "share of the rated bandwidth that is reached"),
            "layer_s": Constant(2e-4, 1.8, 1.4, "time of a decoder's layer, in s"),
            "batch_power": Constant(0.7, 1.1, 1.0, "exponent of the recordings at once"),
            "load_rate": Constant(1e9, 2.0, 1.0, "rate to load the model, in B/s"),
        },
        {"openai-whisper": 0.6, "faster-whisper": 1.4, "insanely-fast-whisper": 1.3},
        1.5,
    ),
    "pictures": Formula(
        "picture",
        {
            "rate": "speed * 1e12 * (bandwidth / 1e12) ** bandwidth_power * (flops / 1e14) ** flops_power",
            "time": "steps * (step_flop / rate + call_s / batch) + pixel_s * pixels / 1e6 * (1e14 / flops) ** flops_power",
        },
        {
            "speed": Constant(30.0, 2.0, 1.5, "TFLOP/s on a GPU of 1 TB/s and rated 100 TFLOP/s"),
            "bandwidth_power": Constant(0.2, 1.3, 1.0, "exponent of the bandwidth"),
            "flops_power": Constant(0.65, 1.2, 1.0, "exponent of the rated FLOP/s"),
            "call_s": Constant(0.01, 2.0, 1.3, "time of a step beside arithmetic, in s"),
            "pixel_s": Constant(0.3, 2.0, 1.3, "time to decode a million pixels, in s"),
        },
    ),
    "tables": Formula(
        "run",
        {
            "visits": "rows * columns ** column_power * trees * depth * exact_slow ** exact * forest_slow ** forest",
            "rate": "speed * 1e9 * (cores / 16) ** core_power * (bandwidth / 1e11) ** bandwidth_power / leaf_slow ** leafwise_gpu",
            "time": "visits / rate + trees * (tree_s + leafwise * leaves * leaf_s) + start_s",
        },
        {
            "speed": Constant(2.0, 2.0, 2.0, "1e9 visits of a row, a column and a level per second on 16 cores"),
            "column_power": Constant(0.9, 1.2, 1.0, "exponent of the columns"),
            "core_power": Constant(0.45, 1.3, 1.0, "exponent of the cores"),
            "bandwidth_power": Constant(0.5, 1.3, 1.0, "exponent of the bandwidth"),
            "exact_slow": Constant(6.0, 1.5, 1.0, "factor for exact splits"),
            "forest_slow": Constant(6.0, 2.0, 1.0, "factor for forests"),
            "leaf_slow": Constant(4.0, 1.6, 1.0, "factor for trees that grow by leaf on a GPU"),
            "tree_s": Constant(0.005, 1.6, 1.6, "time of a tree, in s"),
            "leaf_s": Constant(4e-5, 1.6, 1.6, "time of a leaf that is grown by itself, in s"),
            "start_s": Constant(0.3, 1.6, 1.0, "time to start, in s"),
        },
    ),
}
# Kinds that share a formula; each kind has constants of its own.
FORMULAS = {**FORMULAS, "fine-tune": FORMULAS["train"], "lora": FORMULAS["train"], "detect": FORMULAS["classify"]}
