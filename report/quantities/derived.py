"""Quantities by arithmetic on published figures. Each formula stands in its docstring."""

from __future__ import annotations

import math

from report.cells import Cells, exact
from report.evidence import Data
from report.quantities import quantity

_MODEL = "llama31-405b"
_DAY = 86400.0


@quantity(
    "llama405b.days_from_gpu_hours",
    unit="d",
    tier="derived",
    says="By the GPU hours of its model card, training Llama 3.1 405B took {value} on all its GPUs",
)
def days_from_gpu_hours(data: Data) -> Cells:
    """gpu_hours / gpus / 24, all GPUs at work all the time: a lower bound of the calendar time."""
    days = data.figure(f"{_MODEL}.gpu_hours") / data.figure(f"{_MODEL}.gpus") / 24
    return exact([{"estimate": days, "detail": "GPU hours / GPUs / 24"}])


@quantity(
    "llama405b.days_from_flop",
    unit="d",
    tier="derived",
    says="By its operations and the reported utilisation, training Llama 3.1 405B took {value} on all its GPUs",
)
def days_from_flop(data: Data) -> Cells:
    """6 * parameters * tokens / (gpus * utilisation * rated peak) / 86400.

    low and high are at the highest and lowest reported utilisation, the estimate
    at their geometric mean. 6ND: Kaplan et al. 2020, section 2.1.
    """
    flop = 6 * data.figure(f"{_MODEL}.parameters") * data.figure(f"{_MODEL}.tokens")
    peak = data.figure(f"{_MODEL}.gpus") * data.figure("h100-sxm.bf16_flops")
    slow, fast = data.figure(f"{_MODEL}.mfu_low"), data.figure(f"{_MODEL}.mfu_high")
    days = {"low": fast, "estimate": math.sqrt(slow * fast), "high": slow}
    cell = {name: flop / (peak * used) / _DAY for name, used in days.items()}
    return exact([{**cell, "detail": "6ND / (GPUs x utilisation x rated peak)"}])


@quantity(
    "llama405b.layer_mac_per_token",
    unit="MAC",
    tier="derived",
    says="One layer of Llama 3.1 405B does {value} per token",
)
def layer_mac_per_token(data: Data) -> Cells:
    """3*hidden*ffn + 2*hidden^2 + 2*hidden^2*kv_heads/heads.

    Gate, up and down of the feed-forward part; queries and output; keys and
    values (grouped). Attention scores, which grow with the context, are left out.
    """
    hidden, ffn = data.figure(f"{_MODEL}.hidden"), data.figure(f"{_MODEL}.ffn")
    grouped = data.figure(f"{_MODEL}.kv_heads") / data.figure(f"{_MODEL}.heads")
    mac = 3 * hidden * ffn + 2 * hidden**2 + 2 * hidden**2 * grouped
    return exact([{"estimate": mac, "detail": "weights of one layer, each used once per token"}])


@quantity(
    "product1000.mac",
    unit="MAC",
    tier="derived",
    says="The product of two 1,000 x 1,000 matrices takes {value}",
)
def product1000_mac(_: Data) -> Cells:
    """m * n * k = 1000 * 1000 * 1000: each of a million cells is a sum of a thousand products."""
    return exact([{"estimate": 1000.0**3, "detail": "1000 x 1000 x 1000"}])
