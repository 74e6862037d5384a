"""Quantities of the same kernels with and without CUDA: rates, and what is left of CUDA's without it."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import quantity, says

CUDA = "cuda"
_LABELS = ("kernel", "n", "backend")
_without_cuda = partial(quantity, experiments=["without-cuda"], device="gpu")


def rates(data: Dataset, value: str = "flop_per_s") -> Estimates:
    """Rates by device, kernel, n and interface. value: flop_per_s, or bytes_per_s of least traffic."""
    return data.summary("without-cuda", value=value).without("dtype", "threads")


@_without_cuda("without_cuda.rate_share", "1", _LABELS)
@says("On {node}, a kernel without CUDA ({labels}) runs at {value} times the rate of the same one in CUDA")
def rate_share(data: Dataset) -> Estimates:
    """Rate through another interface over that through CUDA, same chip, kernel and size."""
    found = rates(data)
    return found.at(found["backend"] != CUDA) / found.only(backend=CUDA).without("backend")


def library(data: Dataset) -> Estimates:
    """FLOP/s of the fastest library on float32 products of two n x n matrices on a GPU, by device and n."""
    products = data.without_launches("gemm", "flop_per_s").only(device="gpu", dtype="float32")
    square = products.at((products["m"] == products["n"]) & (products["n"] == products["k"]))
    return square.best(["node", "device", "n"], of=["backend"])


@_without_cuda("without_cuda.naive_over_library", "1", ("n",), experiments=["without-cuda", "gemm"])
@says("On {node}, a naive product in CUDA ({labels}) runs at {value} times the rate of the library's")
def naive_over_library(data: Dataset) -> Estimates:
    """Rate of the naive product in CUDA over that of the fastest library, both float32, same size."""
    return rates(data).only(kernel="naive", backend=CUDA).without("kernel", "backend") / library(data)
