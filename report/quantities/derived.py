"""Quantities that follow from published figures by arithmetic, and the decorator for such quantities."""

from __future__ import annotations

import math
from functools import partial

from report.data.dataset import Dataset
from report.derivations import Formula, Input, assumed_input, computed_input, documented_input
from report.derived_estimates import Derivation, DerivedEstimates, derive
from report.outcomes import ARITHMETIC
from report.quantities import quantity

_MODEL = "llama31-405b"

# Reason for six FLOP per parameter and token in training.
SIX = "two operations forward and four backward for each weight and token (Kaplan et al. 2020, section 2.1)"
# Decorator for quantities that combine published or measured figures. No measurement needs to check this arithmetic.
arithmetic_quantity = partial(quantity, tier="derived", checked=ARITHMETIC)


def six_flop() -> Input:
    """Return 6 FLOP per parameter and token. Attention scores, which grow with the context, are left out."""
    return assumed_input(6.0, "FLOP", SIX)


def utilisation(data: Dataset, spans: bool = True) -> Input:
    """Return the share of the rated peak that Llama 3.1 405B reached in training.

    The value is the geometric mean of the lowest and the highest share reported. spans: if True, the range between
    these two contributes to the intervals of results.
    """
    names = [f"{_MODEL}.mfu_low", f"{_MODEL}.mfu_high"]
    low, high = (data.figure(name) for name in names)
    what = "Lowest to highest reported configuration, and their geometric mean"
    return computed_input(data, names, math.sqrt(low * high), "1", what, low=low, high=high, in_interval=spans)


GPU_HOURS = Formula("T = G / n", "d", {"G": ("GPU hours of the run", "h"), "n": ("GPUs at work all the time", "1")})


@arithmetic_quantity("llama405b.days_from_gpu_hours", "d", formulas=(GPU_HOURS,))
def days_from_gpu_hours(data: Dataset) -> DerivedEstimates:
    """Days to train Llama 3.1 405B, from its GPU hours: gpu_hours / gpus / 24.

    This is a lower bound on calendar time, because all GPUs are taken to be always busy.
    """
    # According to the paper, part of the run used only half the GPUs.
    gpus = data.figure(f"{_MODEL}.gpus")
    inputs = {
        "G": documented_input(data, f"{_MODEL}.gpu_hours"),
        "n": documented_input(data, f"{_MODEL}.gpus", low=gpus / 2),
    }
    return derive([Derivation({}, GPU_HOURS, inputs, "GPU hours / GPUs / 24")])


FLOP_DAYS = Formula(
    "T = w * N * D / (n * u * P)",
    "d",
    {
        "w": ("operations for each parameter and token", "FLOP"),
        "N": ("parameters", "1"),
        "D": ("training tokens", "1"),
        "n": ("GPUs at work all the time", "1"),
        "u": ("share of the rated peak that training kept", "1"),
        "P": ("rated peak of one GPU in bfloat16", "FLOP/s"),
    },
)


@arithmetic_quantity("llama405b.days_from_flop", "d", formulas=(FLOP_DAYS,))
def days_from_flop(data: Dataset) -> DerivedEstimates:
    """Days to train Llama 3.1 405B: 6 * parameters * tokens / (gpus * utilisation * rated peak) / 86400.

    low uses the highest reported utilisation, high the lowest, and the estimate their geometric mean. The 6 FLOP per
    parameter and token are from Kaplan et al. 2020, section 2.1.
    """
    inputs = {
        "w": six_flop(),
        "N": documented_input(data, f"{_MODEL}.parameters"),
        "D": documented_input(data, f"{_MODEL}.tokens", alternatives=[f"{_MODEL}.tokens_card"]),
        "n": documented_input(data, f"{_MODEL}.gpus", low=data.figure(f"{_MODEL}.gpus") / 2),
        "u": utilisation(data),
        "P": documented_input(data, "h100-sxm.bf16_flops"),
    }
    return derive([Derivation({}, FLOP_DAYS, inputs, "6ND / (GPUs x utilisation x rated peak)")])


LAYER = Formula(
    "M = (3 * h * f + 2 * h**2 + 2 * h**2 * k / a) * MAC",
    "MAC",
    {
        "h": ("model dimension", "1"),
        "f": ("feed-forward dimension", "1"),
        "k": ("heads of keys and values", "1"),
        "a": ("attention heads", "1"),
    },
)


@arithmetic_quantity("llama405b.layer_mac_per_token", "MAC", formulas=(LAYER,))
def layer_mac_per_token(data: Dataset) -> DerivedEstimates:
    """Multiply-adds per token in a layer of Llama 3.1 405B: 3*hidden*ffn + 2*hidden^2 + 2*hidden^2*kv_heads/heads.

    The three terms are the gate, up and down projections in the feed-forward block; the queries and the output; and the
    keys and values, which groups of heads share. Attention scores, which grow with the context, are left out.
    """
    names = {"h": "hidden", "f": "ffn", "k": "kv_heads", "a": "heads"}
    inputs = {symbol: documented_input(data, f"{_MODEL}.{name}") for symbol, name in names.items()}
    return derive([Derivation({}, LAYER, inputs, "weights of one layer, each used once per token")])


PRODUCT = Formula(
    "M = m * n * k * MAC",
    "MAC",
    {
        "m": ("rows of the left matrix", "1"),
        "n": ("columns of the right one", "1"),
        "k": ("products in the sum of each entry", "1"),
    },
)


@arithmetic_quantity("product1000.mac", "MAC", formulas=(PRODUCT,))
def product1000_mac(_: Dataset) -> DerivedEstimates:
    """Multiply-adds in the product of two 1000 x 1000 matrices: m * n * k = 1000 * 1000 * 1000.

    The product has a million entries, and each is a sum over a thousand products.
    """
    inputs = {symbol: assumed_input(1000.0, "1", "the article's example") for symbol in PRODUCT.symbols}
    return derive([Derivation({}, PRODUCT, inputs, "1000 x 1000 x 1000")])
