"""Quantities of a load without a pause: what minutes of it cost, where the device ends up, what its driver says."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from report import statistics
from report.data.dataset import Dataset
from report.data.summary import POINT
from report.estimates import Estimates, concat_estimates
from report.quantities import gemm, quantity

# Heat takes its time: a run must last so long to say what it costs.
MINUTES_S = 120.0
TENTHS = 10
# Past this share of a run is its end.
END = 0.9
# Below this share of the fastest product's rate, most arithmetic units have nothing to do.
LOW_SHARE = 0.2
# Half of the whole per cents in which a driver tells utilisation.
HALF_A_PER_CENT = 0.005
_RUN = [*POINT, "round"]
_LABELS = ("load", "extent", "dtype", "backend", "threads")


def runs(data: Dataset) -> pd.DataFrame:
    """The samples of every run, one row each in the order of time; a point's runs are told apart by `round`.

    Column `run_s`: seconds from the beginning of the run to the end of the sample.
    """
    samples = data.samples("sustained")
    timed = samples[(samples["metric"] == "time") & (samples["status"] == "ok")]
    ran = timed.sort_values([*_RUN, "sample"], kind="stable")
    first = ran.groupby(_RUN)[["elapsed_s", "value", "calls"]].transform("first")
    return ran.assign(run_s=ran["elapsed_s"] - first["elapsed_s"] + first["value"] * first["calls"])


def rate_drift(run: pd.DataFrame) -> dict[str, float]:
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
    ends = {"estimate": 1 - kept, "low": 1 - kept * np.exp(half), "high": 1 - kept * np.exp(-half)}
    return {**ends, "se": kept * se, "df": df, "n_samples": len(run)}


@quantity("sustained.throughput_drift", "1", (*_LABELS, "round"))
def throughput_drift(data: Dataset) -> Estimates:
    """Share of the rate lost from the first to the last tenth of each run of at least MINUTES_S; a gain is negative.

    One case for each run. Both tenths are of one process, so what differs between processes
    drops out, and the interval is that of the run's own scatter: another room or day may differ.
    """
    rows = []
    for key, run in runs(data).groupby(_RUN, sort=True):
        lasted = float(run["run_s"].iloc[-1])
        if lasted >= MINUTES_S and len(run) >= 2 * TENTHS:
            labels = dict(zip(_RUN, key, strict=True))
            del labels["experiment"]
            labels |= json.loads(str(labels.pop("params")))
            (source_rows,) = data.source_rows(run.iloc[:1])
            about = {"n_rounds": 1, "detail": f"in {lasted:.0f} s", "source_rows": source_rows}
            rows.append({**labels, **rate_drift(run), **about})
    return Estimates.of(rows)


@quantity("sustained.clock", "Hz", _LABELS)
def sustained_clock(data: Dataset) -> Estimates:
    """Median clock in the last tenth of a run."""
    return data.readings("sustained", "clock_mhz", settled=END) * 1e6


@quantity("sustained.power", "W", _LABELS)
def sustained_power(data: Dataset) -> Estimates:
    """Median power in the last tenth of a run: of a GPU's whole board, of a CPU's packages."""
    return data.readings("sustained", "power_w", settled=END)


@quantity("sustained.utilisation_at_low_mfu", "1", _LABELS, device="gpu", reads=("gemm",))
def utilisation_at_low_mfu(data: Dataset) -> Estimates:
    """Utilisation that the driver tells under loads whose rate stays below LOW_SHARE of the fastest product's.

    The fastest product of any shape, in the same format on the same device, stands for the chip's
    peak: against what the maker promises, the share would be lower still. Rounds that agree are
    known to half of the per cent that the driver counts in. `detail` holds the share.
    """
    used, rates = data.readings("sustained", "utilisation"), data.summary("sustained", value="flop_per_s")
    shares = rates / concat_estimates([rates, gemm.product_rate(data)]).best(["node", "device", "dtype"])
    low_shares = shares.at(shares["estimate"] < LOW_SHARE)
    place = ["node", "device", *_LABELS]
    known = dict(zip(low_shares.rows(*place), low_shares.rows("estimate", "source_rows"), strict=True))
    used = used.at([row for row, point in enumerate(used.rows(*place)) if point in known])
    beside = [known[point] for point in used.rows(*place)]
    estimate, low, high = (used.numbers(name) for name in ("estimate", "low", "high"))
    found = used.label(
        low=np.fmin(low, estimate - HALF_A_PER_CENT).clip(0, 1),
        high=np.fmax(high, estimate + HALF_A_PER_CENT).clip(0, 1),
        detail=[f"at {100 * share:.2g}% of the fastest product's rate" for share, _ in beside],
        source_rows=[rows + more for rows, (_, more) in zip(used["source_rows"], beside, strict=True)],
    )
    return Estimates(found.unknown(found["n_rounds"] < 2, "low", "high").frame, log=False)


@quantity("sustained.telemetry_share", "1", _LABELS, device="gpu")
def telemetry_share(data: Dataset) -> Estimates:
    """Share of the samples of a load without a pause beside which both utilisation and temperature were read."""
    samples = data.samples("sustained")
    samples = samples[(samples["metric"] == "time") & (samples["status"] == "ok") & (samples["device"] != "cpu")]
    if not len(samples):
        return Estimates.empty()
    told = samples["utilisation"].notna() & (samples["temperature_c"] > 0)
    keys = [samples[name] for name in [*POINT, "round"]]
    share = told.astype(float).groupby(keys, observed=True).transform("mean")
    return data.estimates_from_samples(samples.assign(metric="reached_share", value=share, unit="1"))
