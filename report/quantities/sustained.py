"""Quantities of a load without a pause: what minutes of it cost, where the device ends up, what its driver says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from report import statistics
from report.data.dataset import Dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat
from report.quantities import gemm, quantity

_LABELS = ("load", "extent", "dtype", "backend", "threads")
_NEEDS = {"experiments": ["sustained"], "device": "any"}
# Heat takes its time: a run must last so long to say what it costs.
MINUTES_S = 120.0
TENTHS = 10
# Past this share of a run is its end.
END = 0.9
# Below this share of the fastest product's rate, most arithmetic units have nothing to do.
LOW_SHARE = 0.2
# Half of the whole per cents in which a driver tells utilisation.
HALF_A_PER_CENT = 0.005


def runs(data: Dataset) -> pd.DataFrame:
    """The samples of every run, one row each in the order of time; a point's runs are told apart by `round`.

    Column `run_s`: seconds from the beginning of the run to the end of the sample.
    """
    samples = data.samples("sustained")
    timed = (samples["experiment"] == "sustained") & (samples["metric"] == "time") & (samples["status"] == "ok")
    ran = samples[timed].sort_values([*POINT, "round", "sample"], kind="stable")
    first = ran.groupby([*POINT, "round"])[["elapsed_s", "value", "calls"]].transform("first")
    return ran.assign(run_s=ran["elapsed_s"] - first["elapsed_s"] + first["value"] * first["calls"])


def drift(run: pd.DataFrame) -> dict[str, float]:
    """Share of its rate that a run has lost in its last tenth against its first: estimate, low, high, se and df.

    Means of tenths differ by chance as neighbours do; the first is left out of that, for the
    device may be warming up. Source: von Neumann 1941, Ann. Math. Stat. 12(4):367, the mean
    square successive difference, which a slow trend hardly touches; df after its variance,
    (3n - 4) / (n - 1)^2 of the squared one.
    """
    tenths = np.array([np.log(part).mean() for part in np.array_split(run["value"].to_numpy(float), TENTHS)])
    kept, n = float(np.exp(tenths[0] - tenths[-1])), TENTHS - 1
    se, df = float(np.sqrt(np.mean(np.diff(tenths[1:]) ** 2))), 2 * (n - 1) ** 2 / (3 * n - 4)
    half = float(statistics.half_width(se, df))
    return {
        "estimate": 1 - kept, "low": 1 - kept * np.exp(half), "high": 1 - kept * np.exp(-half), "se": kept * se,
        "df": df, "n_samples": len(run),
    }  # fmt: skip


@quantity(
    "sustained.throughput_drift",
    unit="1",
    needs=_NEEDS,
    labels=(*_LABELS, "round"),
    says="On {node}, minutes of load without a pause cost {value} of the rate ({labels})",
)
def throughput_drift(data: Dataset) -> Estimates:
    """Share of the rate lost from the first to the last tenth of each run of at least MINUTES_S; a gain is negative.

    One cell for each run. Both tenths are of one process, so what differs between processes
    drops out, and the interval is that of the run's own scatter: another room or day may differ.
    """
    rows: list[dict[str, Any]] = []
    for key, run in runs(data).groupby([*POINT, "round"], sort=True):
        lasted = float(run["run_s"].iloc[-1])
        if lasted >= MINUTES_S and len(run) >= 2 * TENTHS:
            point = dict(zip([*POINT, "round"], key, strict=True))
            params = json.loads(str(point.pop("params")))
            del point["experiment"]
            (source_rows,) = data.source_rows(run.iloc[:1])
            about = {"n_rounds": 1, "detail": f"in {lasted:.0f} s", "source_rows": source_rows}
            rows.append({**point, **params, **drift(run), **about})
    return Estimates(pd.DataFrame(rows), log=False) if rows else Estimates.empty()


@quantity(
    "sustained.clock",
    unit="Hz",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the clock is {value} at the end of a load without a pause ({labels})",
)
def clock(data: Dataset) -> Estimates:
    """Median clock in the last tenth of a run."""
    cells = data.readings("sustained", "clock_mhz", settled=END)
    return cells * 1e6 if len(cells) else cells


@quantity(
    "sustained.temperature",
    unit="°C",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the device is at {value} at the end of a load without a pause ({labels})",
)
def temperature(data: Dataset) -> Estimates:
    """Median temperature in the last tenth of a run."""
    return data.readings("sustained", "temperature_c", settled=END)


@quantity(
    "sustained.power",
    unit="W",
    needs=_NEEDS,
    labels=_LABELS,
    says="On {node}, the device draws {value} at the end of a load without a pause ({labels})",
)
def power(data: Dataset) -> Estimates:
    """Median power in the last tenth of a run: of a GPU's whole board, of a CPU's packages."""
    return data.readings("sustained", "power_w", settled=END)


@quantity(
    "sustained.utilisation_at_low_mfu",
    unit="1",
    needs={"experiments": ["sustained"], "device": "gpu"},
    labels=_LABELS,
    says="On {node}, the driver tells a utilisation of {value} while almost nothing is computed ({labels})",
)
def utilisation_at_low_mfu(data: Dataset) -> Estimates:
    """Utilisation that the driver tells under loads whose rate stays below LOW_SHARE of the fastest product's.

    The fastest product of any shape, in the same format on the same device, stands for the chip's
    peak: against what the maker promises, the share would be lower still. Rounds that agree are
    known to half of the per cent that the driver counts in. `detail` holds the share.
    """
    told, rates = data.readings("sustained", "utilisation"), data.summary("sustained", value="flop_per_s")
    if not len(told) or not len(rates):
        return Estimates.empty()
    peak = concat([rates, gemm.rate(data)]).best(["node", "device", "dtype"])
    share = (rates / peak).frame.rename(columns={"estimate": "share"})
    frame = told.frame.merge(share[["share", "source_rows", *told.labels]], on=told.labels, suffixes=("", "_share"))
    frame = frame[frame["share"] < LOW_SHARE].reset_index(drop=True)
    frame["source_rows"] += frame.pop("source_rows_share")
    estimate, low, high = (frame[name].to_numpy(float) for name in ("estimate", "low", "high"))
    alone = frame["n_rounds"].to_numpy(int) < 2
    low = np.where(alone, np.nan, np.fmin(low, estimate - HALF_A_PER_CENT).clip(0, 1))
    high = np.where(alone, np.nan, np.fmax(high, estimate + HALF_A_PER_CENT).clip(0, 1))
    detail = [f"at {100 * value:.2g}% of the fastest product's rate" for value in frame.pop("share")]
    return Estimates(frame.assign(low=low, high=high, detail=detail), log=False)
