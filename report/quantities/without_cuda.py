"""Quantities of the same kernels with and without CUDA: rates, and what is left of CUDA's without it."""

from __future__ import annotations

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import quantity

CUDA = "cuda"
_LABELS = ("kernel", "n", "backend")


def rates(data: Dataset, value: str = "flop_per_s") -> Estimates:
    """Rates by device, kernel, n and interface. value: flop_per_s, or bytes_per_s of least traffic."""
    cells = data.summary("without-cuda", value=value)
    return cells.without("dtype", "threads") if len(cells) else cells


@quantity(
    "without_cuda.rate",
    unit="FLOP/s",
    needs={"experiments": ["without-cuda"], "device": "gpu"},
    labels=_LABELS,
    says="On {node}, a kernel ({labels}) runs at {value}",
)
def rate(data: Dataset) -> Estimates:
    """Rate of a kernel through one interface: 2*n^3 FLOP of a product, 2*n of a triad, over the time of a launch."""
    return rates(data)


@quantity(
    "without_cuda.rate_share",
    unit="1",
    needs={"experiments": ["without-cuda"], "device": "gpu"},
    labels=_LABELS,
    says="On {node}, a kernel without CUDA ({labels}) runs at {value} times the rate of the same one in CUDA",
)
def rate_share(data: Dataset) -> Estimates:
    """Rate through another interface over that through CUDA, same chip, kernel and size."""
    cells = rates(data)
    if not len(cells):
        return cells
    others = cells.at((cells.frame["backend"] != CUDA).to_numpy(bool))
    return others / cells.only(backend=CUDA).without("backend")


def library(data: Dataset) -> Estimates:
    """FLOP/s of the fastest library on float32 products of two n x n matrices on a GPU, by device and n."""
    cells = data.summary("gemm", value="flop_per_s")
    if not len(cells):
        return cells
    frame = cells.frame
    square = (frame["m"] == frame["n"]) & (frame["n"] == frame["k"])
    cells = cells.at(square.to_numpy(bool)).only(device="gpu", dtype="float32")
    return cells.best(["node", "device", "n"], of=["backend"])


@quantity(
    "without_cuda.naive_over_library",
    unit="1",
    needs={"experiments": ["without-cuda", "gemm"], "device": "gpu"},
    labels=("n",),
    says="On {node}, a naive product in CUDA ({labels}) runs at {value} times the rate of the library's",
)
def naive_over_library(data: Dataset) -> Estimates:
    """Rate of the naive product in CUDA over that of the fastest library, both float32, same size."""
    cells, best = rates(data), library(data)
    if not len(cells) or not len(best):
        return Estimates.empty()
    return cells.only(kernel="naive", backend=CUDA).without("kernel", "backend") / best
