"""Sustained load: rate drift over minutes, final clock and power, and the driver's readings."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from report import statistics
from report.data.dataset import Dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat_estimates
from report.quantities import gemm, quantity

# Shortest run that shows the effect of heat.
MINUTES_S = 120.0
TENTHS = 10
# Readings after this share of a run's time count as readings at its end.
END = 0.9
# A load with a rate below this share of the fastest product's rate leaves most arithmetic units idle.
LOW_SHARE = 0.2
# Half the driver's resolution: it reports utilisation in whole per cent.
HALF_A_PER_CENT = 0.005
_RUN = [*POINT, "round"]
_LABELS = ("load", "extent", "dtype", "backend", "threads")


def runs(data: Dataset) -> pd.DataFrame:
    """Return all runs' samples, one per row in time order; the column `round` tells runs at the same point apart.

    Column `run_s`: seconds from the run's start to the sample's end.
    """
    samples = data.samples("sustained")
    timed = samples[(samples["metric"] == "time") & (samples["status"] == "ok")]
    ran = timed.sort_values([*_RUN, "sample"], kind="stable")
    first = ran.groupby(_RUN, observed=True)[["elapsed_s", "value", "calls"]].transform("first")
    return ran.assign(run_s=ran["elapsed_s"] - first["elapsed_s"] + first["value"] * first["calls"])


def rate_drift(run: pd.DataFrame) -> dict[str, float]:
    """Compute the share of its rate that a run lost from its first to its last tenth: estimate, low, high, se and df.

    The error is the root mean square difference between neighbouring tenths, which is robust to slow trends (von
    Neumann 1941, Ann. Math. Stat. 12(4):367). It leaves out the first tenth, because the device may warm up in it. df
    follows from the relative variance of that mean square, (3n - 4) / (n - 1)^2 for n tenths.
    """
    tenths = np.array([np.log(part).mean() for part in np.array_split(run["value"].to_numpy(float), TENTHS)])
    ratio, n = float(np.exp(tenths[0] - tenths[-1])), TENTHS - 1
    se, df = float(np.sqrt(np.mean(np.diff(tenths[1:]) ** 2))), 2 * (n - 1) ** 2 / (3 * n - 4)
    half = float(statistics.half_width(se, df))
    ends = {"estimate": 1 - ratio, "low": 1 - ratio * np.exp(half), "high": 1 - ratio * np.exp(-half)}
    return {**ends, "se": ratio * se, "df": df, "n_samples": len(run)}


@quantity("sustained.throughput_drift", "1", (*_LABELS, "round"))
def throughput_drift(data: Dataset) -> Estimates:
    """Share of the rate lost from a run's first to its last tenth; negative for a gain.

    Each run of at least 120 s (MINUTES_S) is a case. Both tenths are from one process, so variation between processes
    cancels. The interval covers only the scatter within the run: in another room or on another day, the result may
    differ.
    """
    rows = []
    for key, run in runs(data).groupby(_RUN, sort=True, observed=True):
        lasted = float(run["run_s"].iloc[-1])
        if lasted >= MINUTES_S and len(run) >= 2 * TENTHS:
            labels = dict(zip(_RUN, key, strict=True))
            del labels["experiment"]
            labels |= json.loads(str(labels.pop("params")))
            (source_rows,) = data.source_rows(run.iloc[:1])
            about = {"n_rounds": 1, "detail": f"in {lasted:.0f} s", "source_rows": source_rows}
            rows.append({**labels, **rate_drift(run), **about})
    return Estimates.from_rows(rows)


@quantity("sustained.clock", "Hz", _LABELS)
def sustained_clock(data: Dataset) -> Estimates:
    """Median clock in a run's last tenth."""
    return data.readings("sustained", "clock_mhz", settled=END) * 1e6


@quantity("sustained.power", "W", _LABELS)
def sustained_power(data: Dataset) -> Estimates:
    """Median power in a run's last tenth: for the whole board on a GPU, for the packages on a CPU."""
    return data.readings("sustained", "power_w", settled=END)


@quantity("sustained.utilisation_at_low_mfu", "1", _LABELS, device="gpu", reads=("gemm",))
def utilisation_at_low_mfu(data: Dataset) -> Estimates:
    """Utilisation that the driver reports under loads with a rate below 20% (LOW_SHARE) of the fastest product's rate.

    The fastest product of any shape, in the same format on the same device, stands in for the peak. Relative to the
    maker's rated peak, the share would be lower still. The driver reports whole per cent, so the interval includes half
    a per cent on both sides even if all rounds agree. `detail` gives the share of the fastest product's rate.
    """
    used, rates = data.readings("sustained", "utilisation"), data.summary("sustained", value="flop_per_s")
    shares = rates / concat_estimates([rates, gemm.product_rate(data)]).best_per_group(["node", "device", "dtype"])
    low_shares = shares.take(shares["estimate"] < LOW_SHARE)
    place = ["node", "device", *_LABELS]
    shares_by_point = dict(zip(low_shares.rows(*place), low_shares.rows("estimate", "source_rows"), strict=True))
    used = used.take([row for row, point in enumerate(used.rows(*place)) if point in shares_by_point])
    beside = [shares_by_point[point] for point in used.rows(*place)]
    estimate, low, high = (used.numbers(name) for name in ("estimate", "low", "high"))
    utilisation = used.label(
        low=np.fmin(low, estimate - HALF_A_PER_CENT).clip(0, 1),
        high=np.fmax(high, estimate + HALF_A_PER_CENT).clip(0, 1),
        detail=[f"at {100 * share:.2g}% of the fastest product's rate" for share, _ in beside],
        source_rows=[rows + more for rows, (_, more) in zip(used["source_rows"], beside, strict=True)],
    )
    return Estimates(utilisation.set_unknown(utilisation["n_rounds"] < 2, "low", "high").frame, log=False)


@quantity("sustained.telemetry_share", "1", _LABELS, device="gpu")
def telemetry_share(data: Dataset) -> Estimates:
    """Share of the samples under sustained load that have readings of both utilisation and temperature."""
    samples = data.samples("sustained")
    samples = samples[(samples["metric"] == "time") & (samples["status"] == "ok") & (samples["device"] != "cpu")]
    if not len(samples):
        return Estimates.empty()
    readable = samples["utilisation"].notna() & (samples["temperature_c"] > 0)
    keys = [samples[name] for name in [*POINT, "round"]]
    share = readable.astype(float).groupby(keys, observed=True).transform("mean")
    return data.estimates_from_samples(samples.assign(metric="reached_share", value=share, unit="1"))
