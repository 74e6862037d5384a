"""Quantities of answering as much as can be, whenever it comes: a GPU beside the CPU of its host."""

from __future__ import annotations

from collections.abc import Sequence

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import inference, quantity, says
from report.quantities.comparing import over


def _gpu_over_cpu(rates: Estimates, by: Sequence[str], of: Sequence[str]) -> Estimates:
    """The most that each GPU does over the most of its node's CPU; `detail` says by what the GPU does it."""
    gpu, cpu = rates.only(device="gpu"), rates.only(device="cpu")
    return gpu.best(["node", "device", *by], of=of) / cpu.best(["node", *by], of=of)


@quantity(
    "inference.gpu_over_cpu",
    "1",
    ("model", "precision", "dtype", "runtime", "cpu_runtime"),
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
    rates = rates.scaled_by(rates.numbers("batch")).without("parameters")
    rates = rates.label(batch=[f"batch {int(size)}" for size in rates["batch"]])
    equal, best = ["model", "dtype"], ["model"]
    return concat([_by_runtime(rates, by).label(precision=name) for name, by in (("equal", equal), ("best", best))])


def _by_runtime(rates: Estimates, by: Sequence[str]) -> Estimates:
    """The most of each GPU over the most of its host's CPU, with the runtime of each side as a label."""
    of, keep = ["batch", "dtype"], ["backend"]
    gpu = rates.only(device="gpu").best(["node", "device", *by], of, keep)
    cpu = rates.only(device="cpu").best(["node", *by], of, keep)
    gpu, cpu = (side.label(**{name: side["backend"]}).without("backend")
                for side, name in ((gpu, "runtime"), (cpu, "cpu_runtime")))  # fmt: skip
    return over(gpu, cpu)


@quantity("generation.gpu_over_cpu", "1", ("model", "phase"), experiments=["generation"], device="both")
@says("On {node}, one GPU reads or writes {value} times as many tokens as all cores of its host ({labels})")
def tokens(data: Dataset) -> Estimates:
    """Most tokens per second of one GPU over the most of its host's CPU, each at its own best batch and format."""
    return _gpu_over_cpu(inference.tokens_per_s(data), ["model", "phase"], ["context", "batch", "dtype"])
