"""Quantities of what is in the matrices: rate and power of a product against those on random normal data."""

from __future__ import annotations

from functools import partial

from report.data.dataset import Dataset
from report.estimates import Estimates
from report.quantities import gemm, quantity, says

# What others are held against, for it is what the other experiments multiply.
BASE = "normal"
_of_content = partial(
    quantity, experiments=["content"], labels=("content", "dtype", "backend", "threads", "shape", "m", "n", "k")
)


def of(data: Dataset, what: str) -> Estimates:
    """What is compared: the rate in FLOP/s, or the power in W."""
    return data.readings("content", "power_w") if what == "power" else data.summary("content", value="flop_per_s")


def _against_base(found: Estimates) -> Estimates:
    """Each content over the base on the same device, library, format, threads and shape."""
    products = gemm.shaped(found)
    return products.at(products["content"] != BASE) / products.only(content=BASE).without("content")


@_of_content("content.speed_ratio", "1")
@says("On {node}, a matrix product ({labels}) runs at {value} times its rate on random normal data")
def speed_ratio(data: Dataset) -> Estimates:
    """Rate on some content over the rate on random normal data; everything else equal."""
    return _against_base(of(data, "rate"))
