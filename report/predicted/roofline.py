"""The roofline of a chip: how long a point must take at the least, and how much of that measured chips have reached.

A point of F FLOP that moves M bytes takes at least max(F / P, (M - C) / B): P its rated arithmetic in that number
format, B its rated bandwidth, and C what its cache may keep between two calls. Measured chips take longer; the share
of the bound that they reach, point by point, is what a chip that was not measured is taken to reach. How far such
predictions miss is told by leaving out one measured chip after the other, with all nodes that have it, and
foretelling it from the rest: a chip would foretell itself.

Source of the bound: Williams, Waterman & Patterson 2009, "Roofline", Communications of the ACM 52(4):65.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from report.data.dataset import Dataset
from report.estimates import device_kind
from report.predicted.chips import PEAKS, Chip, measured
from report.quantities.memory import CACHE_MULTIPLE, GPU_CACHE_BYTES, last_level_cache

# Experiments whose points are foretold, all by the metric `time`.
EXPERIMENTS = ("training", "generation", "inference", "bandwidth")
# Adam reads the weight and two moments of each parameter and writes them, in float32 whatever the products are in.
STATE_TRAFFIC = 6 * 4
# Plain loops and interpreters are no work for a GPU.
_FORMATS = frozenset(PEAKS)
KEY = ["experiment", "params", "dtype"]


def points(data: Dataset) -> pd.DataFrame:
    """Everything that any node has timed and that a roofline speaks of: columns KEY, flop and bytes of one call.

    FLOP of a training step do not depend on its number format, so each step is a point in all of them; its bytes
    are those that its optimiser has to move. Passes over memory are one point for each operation and format, as
    large as a cache of any chip asks for.
    """
    rows = _timed(data)
    found = [rows[rows["experiment"].isin(("generation", "inference"))][[*KEY, "flop", "bytes"]]]
    steps = rows[(rows["experiment"] == "training") & (rows["flop"] > 0)]
    state = _state_bytes(data)
    for dtype in PEAKS:
        model = steps["params"].map(lambda text: json.loads(text)["model"])
        found.append(steps.assign(dtype=dtype, bytes=model.map(state).fillna(0.0))[[*KEY, "flop", "bytes"]])
    passes = rows[rows["experiment"] == "bandwidth"]
    size = float(CACHE_MULTIPLE * GPU_CACHE_BYTES)
    found.append(passes.assign(params=passes["params"].map(_operation), flop=0.0, bytes=size)[[*KEY, "flop", "bytes"]])
    whole = pd.concat(found, ignore_index=True)
    whole = whole[whole["dtype"].isin(_FORMATS)]
    return whole.groupby(KEY, as_index=False, sort=True)[["flop", "bytes"]].median()


def _timed(data: Dataset) -> pd.DataFrame:
    """Rows of times that are ok; what tells points apart as plain text, however the table keeps it."""
    table = data.table
    rows = table[(table["status"] == "ok") & (table["metric"] == "time") & table["experiment"].isin(EXPERIMENTS)]
    return rows.assign(**{name: rows[name].astype(str) for name in ("node", "device", *KEY)})


def _state_bytes(data: Dataset) -> dict[str, float]:
    """Bytes that the optimiser of each model moves in a step, by the number of its weights."""
    counted = data.summary("models", "parameters")
    if not len(counted):
        return {}
    return {
        str(model): STATE_TRAFFIC * float(weights)
        for model, weights in zip(counted.frame["model"], counted.frame["estimate"], strict=True)
    }


def _operation(params: str) -> str:
    """A pass over memory by its operation, at a size that no cache holds."""
    size = CACHE_MULTIPLE * GPU_CACHE_BYTES
    return json.dumps({"footprint": size, "op": json.loads(params)["op"]}, sort_keys=True, separators=(",", ":"))


def bounds(of: pd.DataFrame, chip: Chip) -> pd.DataFrame:
    """Points with `bound`, the seconds that each takes at the least, and `whole`: whether all that it needs is known.

    nan where the figures that were verified bound nothing: arithmetic without its peak, or bytes that a cache may keep.
    """
    peak = of["dtype"].map({dtype: chip.peak(dtype) for dtype in PEAKS}).astype(float)
    moved = (of["bytes"].astype(float) - (of["experiment"] != "bandwidth") * chip.cache).clip(lower=0.0)
    memory = moved / chip.figures.get("memory_bytes_per_s", math.nan)
    arithmetic = of["flop"].astype(float) / peak
    bound = np.fmax(arithmetic.to_numpy(float), memory.to_numpy(float))
    whole = ((of["flop"] == 0) | peak.notna()) & ((moved == 0) | memory.notna())
    return of.assign(bound=np.where(bound > 0, bound, np.nan), whole=whole.to_numpy(bool))


@dataclass(frozen=True)
class Reached:
    """What measured chips reach of their bounds.

    shares: log of bound over measured time, of shape (points, chips), index KEY, columns ids of chips; nan where a
    chip did not measure a point. errors: per experiment the root mean square of log(measured / foretold), and how
    many chips were left out in turn; none of fewer than two.
    """

    shares: pd.DataFrame
    errors: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def chips(self) -> list[str]:
        return list(self.shares.columns)

    @property
    def factors(self) -> dict[str, dict[str, float]]:
        """The errors as factors, by experiment, each with the number of chips that were left out in turn."""
        return {name: {"factor": math.exp(error), "chips": number} for name, (error, number) in self.errors.items()}


def reached(data: Dataset, known: Sequence[Chip]) -> Reached:
    """The shares of their bounds that measured chips reach, and how well those of some foretell another's."""
    places = measured(data, known)
    rows = _timed(data)
    rows = rows[rows["device"].map(device_kind) == "gpu"]
    bound_by = points(data)
    columns: dict[str, pd.Series] = {}
    for chip in {one.id: one for one in places.values()}.values():
        mine = [place for place, one in places.items() if one.id == chip.id]
        logs = [_of_node(rows, node, [d for n, d in mine if n == node], data) for node in sorted({n for n, _ in mine})]
        bounded = bounds(bound_by, chip)
        bound = bounded[bounded["whole"]].set_index(KEY)["bound"]
        shares = {str(k): (bound / seconds).map(math.log) for k, seconds in enumerate(logs) if len(seconds)}
        if shares:
            # Nodes of one chip are one chip: their mean stands for it.
            columns[chip.id] = pd.DataFrame(shares).mean(axis=1)
    whole = pd.DataFrame(columns)
    if not columns:
        return Reached(whole)
    whole = whole.dropna(how="all").rename_axis(index=KEY)
    return Reached(whole, left_out_errors(whole))


def _of_node(rows: pd.DataFrame, node: str, devices: Sequence[str], data: Dataset) -> pd.Series:
    """Seconds of the quickest library and device of a node, by KEY; passes over memory as long as no cache holds them,
    scaled to the size that all chips are asked for."""
    here = rows[(rows["node"] == node) & rows["device"].isin(devices)]
    passes = here["experiment"] == "bandwidth"
    floor = max((last_level_cache(data, node, device) for device in devices), default=0.0)
    large = passes & (here["bytes"] > 0)
    sizes = here["params"].where(large, "{}").map(lambda text: float(json.loads(text).get("footprint", 0)))
    large &= sizes >= CACHE_MULTIPLE * floor
    scaled = here["estimate"].astype(float)
    scaled = scaled.where(~large, scaled * CACHE_MULTIPLE * GPU_CACHE_BYTES / here["bytes"].astype(float))
    params = here["params"].where(~large, here["params"].where(large, '{"op":""}').map(_operation))
    kept = here.assign(params=params, estimate=scaled)[~passes | large]
    return kept.groupby(KEY)["estimate"].min()


def left_out_errors(shares: pd.DataFrame) -> dict[str, tuple[float, int]]:
    """Per experiment: root mean square over chips of how far each is missed by the mean of the others, in logarithms.

    shares: as of `Reached`. A chip's own miss is the root mean square over its points, for those go together.
    """
    found = {}
    for experiment, part in shares.groupby(level="experiment"):
        squares = []
        for chip in part.columns:
            others = part.drop(columns=chip).mean(axis=1)
            missed = (part[chip] - others).dropna()
            if len(missed):
                squares.append(float((missed**2).mean()))
        if len(squares) > 1:
            found[str(experiment)] = (math.sqrt(sum(squares) / len(squares)), len(squares))
    return found
