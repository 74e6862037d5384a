"""Quantities of what is in the matrices: rate and power of a product against those on random normal data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from report import stats
from report.cells import Cells
from report.evidence import Data
from report.quantities import quantity
from report.summary import POINT

_LABELS = ("content", "dtype", "backend", "threads", "shape", "m", "n", "k")
# What others are held against, for it is what the other experiments multiply.
BASE = "normal"
# Counters average over up to a second, and the first readings of a point still hold its preparation.
SETTLED = 0.5


def _against_base(cells: Cells) -> Cells:
    """Each content over the base on the same device, library, format, threads and shape."""
    if not len(cells):
        return cells
    shape = [f"{m}x{n}x{k}" for m, n, k in cells.frame[["m", "n", "k"]].itertuples(index=False)]
    cells = cells.label(shape=shape)
    base = cells.only(content=BASE).without("content")
    return cells.at((cells.frame["content"] != BASE).to_numpy(bool)) / base


@quantity(
    "content.speed_ratio",
    unit="1",
    needs={"experiments": ["content"], "device": "any"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) runs at {value} times its rate on random normal data",
)
def speed_ratio(data: Data) -> Cells:
    """Rate on some content over the rate on random normal data; everything else equal."""
    return _against_base(data.summary("content", value="flop_per_s"))


@quantity(
    "content.power_ratio",
    unit="1",
    needs={"experiments": ["content"], "device": "any"},
    labels=_LABELS,
    says="On {node}, a matrix product ({labels}) draws {value} times the power that random normal data takes",
)
def power_ratio(data: Data) -> Cells:
    """Mean power on some content over that on random normal data; no cell where no counter tells it.

    A round's power is the mean over the later half of its samples; rounds are the unit
    of the interval, as for times.
    """
    return _against_base(power(data))


def power(data: Data) -> Cells:
    """Mean power in W of each point of the experiment that has readings."""
    samples = data.nodes.samples()
    read = samples[
        (samples["experiment"] == "content")
        & (samples["metric"] == "time")
        & (samples["status"] == "ok")
        & (samples["power_w"] > 0)
    ]
    if not len(read):
        return Cells.empty()
    place = read.groupby([*POINT, "round"])["elapsed_s"].rank(pct=True)
    settled = read[place > SETTLED]
    rounds = settled.groupby([*POINT, "round"])["power_w"].mean().reset_index()
    parts = [_estimated(part) for _, part in rounds.groupby(["node", "device"])]
    return Cells.from_estimates(pd.concat(parts, ignore_index=True))


def _estimated(rounds: pd.DataFrame) -> pd.DataFrame:
    """Estimates of one device's points from their rounds' means, on the log scale as times are."""
    points = [(key, part["power_w"].to_numpy(float)) for key, part in rounds.groupby(POINT, sort=True)]
    found = stats.on_log_scale([values for _, values in points])
    labels = pd.DataFrame([key for key, _ in points], columns=POINT).drop(columns=["experiment"])
    sizes = pd.DataFrame([json.loads(params) for params in labels.pop("params")])
    frame = pd.concat([labels, sizes], axis=1).astype(object)
    many = np.array([len(values) for _, values in points])
    return frame.assign(estimate=found.estimate, se=found.se, df=found.df, n_rounds=many, n_samples=many)
