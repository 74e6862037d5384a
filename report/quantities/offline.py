"""Quantities of answering as much as can be, whenever it comes: a GPU beside the CPU of its host."""

from __future__ import annotations

from collections.abc import Sequence

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import inference, quantity, says


def _gpu_over_cpu(rates: Estimates, by: Sequence[str], of: Sequence[str]) -> Estimates:
    """The most that each GPU does over the most of its node's CPU; `detail` says by what the GPU does it."""
    gpu, cpu = rates.only(device="gpu"), rates.only(device="cpu")
    return gpu.best(["node", "device", *by], of=of) / cpu.best(["node", *by], of=of)


@quantity("inference.gpu_over_cpu", "1", ("model",), experiments=["inference"], device="both")
@says("On {node}, one GPU answers {value} times as many requests as all cores of its host ({labels})")
def answers(data: Dataset) -> Estimates:
    """Most samples per second of one GPU over the most of its host's CPU: the offline scenario of MLPerf Inference.

    Each side at its own best batch, number format, library and number of threads.
    """
    return _gpu_over_cpu(inference.throughput(data), ["model"], ["batch", "dtype"])


@quantity("generation.gpu_over_cpu", "1", ("model", "phase"), experiments=["generation"], device="both")
@says("On {node}, one GPU reads or writes {value} times as many tokens as all cores of its host ({labels})")
def tokens(data: Dataset) -> Estimates:
    """Most tokens per second of one GPU over the most of its host's CPU, each at its own best batch and format."""
    return _gpu_over_cpu(inference.tokens_per_s(data), ["model", "phase"], ["context", "batch", "dtype"])
