"""Quantities of answering as much as can be, whenever it comes: a GPU beside the CPU of its host."""

from __future__ import annotations

from collections.abc import Sequence

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import inference, language, quantity, says
from report.quantities.comparing import BEST_LABELS, best_ratios


@quantity(
    "inference.gpu_over_cpu",
    "1",
    ("model", *BEST_LABELS),
    experiments=["inference"],
    device="both",
)
@says("On {node}, one GPU answers {value} times as many requests as all cores of its host ({labels})")
def answers(data: Dataset) -> Estimates:
    """Most samples per second of one GPU over the most of its host's CPU: the offline scenario of MLPerf Inference.

    Each side at its own best batch, runtime and number of threads. precision: equal (the same dtype on both sides) or
    best (each side's fastest dtype). runtime, cpu_runtime: of the GPU and of the CPU; `detail` names both sides' batch
    and format.
    """
    rates = inference.requests(data).inverse()
    return _over_host(rates.scaled_by(rates.numbers("batch")), ["model"])


@quantity("generation.gpu_over_cpu", "1", ("model", "phase", *BEST_LABELS), experiments=["generation"], device="both")
@says("On {node}, one GPU reads or writes {value} times as many tokens as all cores of its host ({labels})")
def tokens(data: Dataset) -> Estimates:
    """Most tokens per second of one GPU over the most of its host's CPU, each at its own best batch and runtime.

    precision, runtime, cpu_runtime: as for `inference.gpu_over_cpu`.
    """
    return _over_host(inference.tokens_per_s(data).without("parameters"), ["model", "phase"], ["context"])


@quantity(
    "language.gpu_over_cpu", "1", ("model", "phase", "tokens", *BEST_LABELS), experiments=["language-models"],
    device="both",
)  # fmt: skip
@says("On {node}, one GPU reads or writes {value} times as many tokens a second as all cores of its host ({labels})")
def language_tokens(data: Dataset) -> Estimates:
    """Most tokens per second of one GPU over the most of its host's CPU, same model and tokens, one text at a time.

    precision: equal (the same format of the file on both sides, as `dtype`) or best (each side's fastest format).
    runtime, cpu_runtime: of the GPU and of the CPU.
    """
    rates = language.tokens_per_s(data)
    return _over_host(rates.label(dtype=rates["format"]), ["model", "phase", "tokens"])


def _over_host(rates: Estimates, by: Sequence[str], of: Sequence[str] = ()) -> Estimates:
    """The most of each GPU over the most of its host's CPU; `detail` names batches and formats."""
    if "batch" in rates.labels:
        rates = rates.label(batch=[f"batch {int(size)}" for size in rates["batch"]])
    gpu, cpu = rates.only(device="gpu"), rates.only(device="cpu").without("device")
    return concat(best_ratios(gpu, cpu, by, [*of, "batch"]))
