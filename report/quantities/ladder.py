"""The ladder of compute rates: ways to do the same work, from an interpreted loop up to the fastest way on a machine.

The lower rungs matter because the answer to "how many times faster is a GPU" depends on the CPU rate to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from report.data.dataset import Dataset
from report.estimates import Estimates, concat_estimates
from report.quantities import quantity

LOOPS = ("python", "scalar", "simd")
# PRODUCT, ROWS: the article's matrix product. Interpreted loops compute only some rows. STEP: a training step of an
# MLP.
PRODUCT = {"n": 1000, "k": 1000}
ROWS = 1000
STEP = {"model": "mlp", "batch": 32}

# Rungs from bottom to top. Backend None stands for the fastest library, and threads None for all threads.
RUNGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("interpreted loop", {"device": "cpu", "backend": "python", "dtype": "float64", "threads": 1}),
    ("compiled loop, scalar", {"device": "cpu", "backend": "scalar", "dtype": "float32", "threads": 1}),
    ("compiled loop, vectors", {"device": "cpu", "backend": "simd", "dtype": "float32", "threads": 1}),
    ("PyTorch, one core", {"device": "cpu", "backend": "torch", "dtype": "float32", "threads": 1}),
    ("PyTorch, all cores", {"device": "cpu", "backend": "torch", "dtype": "float32", "threads": None}),
    ("best library, one core", {"device": "cpu", "backend": None, "dtype": "float32", "threads": 1}),
    ("best library, all cores", {"device": "cpu", "backend": None, "dtype": "float32", "threads": None}),
    ("bfloat16, one core", {"device": "cpu", "backend": None, "dtype": "bfloat16", "threads": 1}),
    ("bfloat16, all cores", {"device": "cpu", "backend": None, "dtype": "bfloat16", "threads": None}),
    ("GPU, float32", {"device": "gpu", "backend": None, "dtype": "float32"}),
    ("GPU, best format", {"device": "gpu", "backend": None, "dtype": ["float32", "tf32", "bfloat16", "float16"]}),
)
DEFAULT = "PyTorch, all cores"
_ladder_quantity = partial(quantity, experiments=["gemm", "training"], labels=("work", "rung", "place"))


@_ladder_quantity("ladder.rate", "FLOP/s")
def ladder_rate(data: Dataset) -> Estimates:
    """FLOP/s on each rung for one product (1000 x 1000 by 1000 x 1000) and one training step (MLP, batch 32).

    `place` is the rung's number, from the bottom. The fastest library is the library that was measured fastest on this
    work; `detail` names it. On a GPU, both kinds of work use the fastest library on that device, and products that take
    less than 50 microseconds are timed in a graph.
    """
    products = data.device_summary("gemm", "flop_per_s").filter(**PRODUCT)
    products = products.take((products["m"] == ROWS) | products["backend"].isin(LOOPS))
    steps = data.summary("training", value="flop_per_s").filter(**STEP)
    return concat_estimates(
        [_best_by_rung(products).label(work="product"), _best_by_rung(steps).label(work="training step")]
    )


def _best_by_rung(rates: Estimates) -> Estimates:
    """Select the best rate on each rung, by node and device."""
    libraries = rates.take(~rates["backend"].isin(LOOPS))
    selected = []
    for place, (rung, wanted) in enumerate(RUNGS, start=1):
        limits = {name: value for name, value in wanted.items() if value is not None}
        candidates = (rates if "backend" in limits else libraries).filter(**limits)
        if wanted.get("threads", 1) is None:
            threads = candidates.numbers("threads")
            most = threads.groupby(candidates["node"], observed=True).transform("max")
            candidates = candidates.take((threads == most) & (threads > 1))
        selected.append(
            candidates.best_per_group(["node", "device"], detail=["backend", "dtype"]).label(rung=rung, place=place)
        )
    return concat_estimates(selected)
