"""The ladder: the same work from an interpreted loop up to all that a machine can do.

Half of "a GPU is N times faster" is the CPU that it is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from report.data.dataset import Dataset
from report.estimates import Estimates, concat
from report.quantities import quantity

LOOPS = ("python", "scalar", "simd")
# The article's own product, of which an interpreted loop does some rows, and a step of the MLP.
PRODUCT = {"n": 1000, "k": 1000}
ROWS = 1000
STEP = {"model": "mlp", "batch": 32}

# From the bottom to the top. backend None: the fastest library; threads None: all of them.
RUNGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("interpreted loop", {"device": "cpu", "backend": "python", "dtype": "float64", "threads": 1}),
    ("compiled loop, scalar", {"device": "cpu", "backend": "scalar", "dtype": "float32", "threads": 1}),
    ("compiled loop, vectors", {"device": "cpu", "backend": "simd", "dtype": "float32", "threads": 1}),
    ("PyTorch, one core", {"device": "cpu", "backend": "torch", "dtype": "float32", "threads": 1}),
    ("PyTorch as it comes", {"device": "cpu", "backend": "torch", "dtype": "float32", "threads": None}),
    ("best library, one core", {"device": "cpu", "backend": None, "dtype": "float32", "threads": 1}),
    ("best library, all cores", {"device": "cpu", "backend": None, "dtype": "float32", "threads": None}),
    ("bfloat16, one core", {"device": "cpu", "backend": None, "dtype": "bfloat16", "threads": 1}),
    ("bfloat16, all cores", {"device": "cpu", "backend": None, "dtype": "bfloat16", "threads": None}),
    ("GPU, float32", {"device": "gpu", "backend": None, "dtype": "float32"}),
    ("GPU, best format", {"device": "gpu", "backend": None, "dtype": ["float32", "tf32", "bfloat16", "float16"]}),
)
DEFAULT = "PyTorch as it comes"


@quantity(
    "ladder.rate",
    unit="FLOP/s",
    needs={"experiments": ["gemm", "training"], "device": "any"},
    labels=("work", "rung", "place"),
    says="On {node}, {labels} runs at {value}",
)
def ladder_rate(data: Dataset) -> Estimates:
    """FLOP/s of one product (1000 x 1000 by 1000 x 1000) and one training step (MLP, batch 32) on each rung.

    `place` counts the rungs from the bottom. The fastest library is the one measured to
    be, on this work; `detail` names it. On a GPU of both the device's own best.
    """
    parts = []
    products = data.summary("gemm", value="flop_per_s")
    if len(products):
        loops = products.frame["backend"].isin(LOOPS)
        here = (products.frame[list(PRODUCT)] == list(PRODUCT.values())).all(axis=1)
        whole = (products.frame["m"] == ROWS) | loops
        parts.append(_climb(products.at((here & whole).to_numpy(bool)), ["backend"]).label(work="product"))
    steps = data.summary("training", value="flop_per_s")
    if len(steps):
        parts.append(_climb(steps.only(**STEP), ["backend"]).label(work="training step"))
    filled = [part for part in parts if len(part)]
    return concat(filled) if filled else Estimates.empty()


def _climb(cells: Estimates, of: Sequence[str]) -> Estimates:
    found = []
    for place, (rung, wanted) in enumerate(RUNGS, start=1):
        these = cells.only(**{name: value for name, value in wanted.items() if value is not None})
        if wanted.get("backend", "") is None:
            these = these.at((~these.frame["backend"].isin(LOOPS)).to_numpy(bool))
        if "threads" in wanted and wanted["threads"] is None and len(these):
            threads = these.frame["threads"].astype(int)
            most = threads.groupby(these.frame["node"]).transform("max")
            these = these.at(((threads == most) & (threads > 1)).to_numpy(bool))
        if len(these):
            best = these.best(["node", "device"], of=[*of, "dtype"])
            found.append(best.label(rung=rung, place=place))
    return concat(found) if found else Estimates.empty()


@quantity(
    "ladder.gain",
    unit="1",
    needs={"experiments": ["gemm", "training"], "device": "any"},
    labels=("work", "rung", "place"),
    says="On {node}, {labels} runs at {value} times the rate of PyTorch as it comes",
)
def ladder_gain(data: Dataset) -> Estimates:
    """Rate of each rung over that of default PyTorch in float32 with all threads of the same node's CPU."""
    cells = ladder_rate(data)
    if not len(cells):
        return cells
    default = cells.only(rung=DEFAULT)
    others = cells.at((cells.frame["rung"] != DEFAULT).to_numpy(bool))
    return others / default.without("device", "rung", "place") if len(default) else Estimates.empty()
