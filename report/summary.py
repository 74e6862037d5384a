"""From samples to one row per point and metric: estimate, interval, rates, and how they came about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from report import flags, stats

POINT = ["node", "experiment", "device", "backend", "dtype", "threads", "params"]
SERIES = [*POINT, "metric"]
# Points that share a variance: one experiment and metric on one device of one node.
GROUP = ["node", "experiment", "device", "metric"]
# What is counted or computed, not timed: equal values in every round are exact.
COUNTED = {
    "repeat_share", "matmul_flop_share", "differing_share", "flushed_share", "distinct_results", "fingerprint",
    "spread_ulp", "spread_median_ulp", "spread_relative", "error_ulp",
    "system_driver_loaded", "system_toolkit_loaded", "toolkit_libraries_loaded", "toolkit_libraries_from_system",
    *(f"{names}operators" for names in ("", "public_")),
    *(f"{names}kernels_{key}" for names in ("", "public_") for key in ("cpu", "cuda", "mps", "xpu")),
}  # fmt: skip

# What a row of the summary is made of, besides the key.
_HELD = (
    "round", "value", "unit", "status", "reason", "stop_reason", "flop", "bytes", "error", "tolerance", "flags",
    "origin",
)  # fmt: skip
Array = NDArray[Any]

COLUMNS = {
    "metric": "What was measured",
    "unit": "Unit of estimate, low and high",
    "status": "ok if at least one round is; else the commonest outcome",
    "reason": "Why it is not ok, or what befell single rounds",
    "stop_reason": "Why sampling ended, the commonest",
    "n_rounds": "Rounds that are ok",
    "n_samples": "Samples in those rounds",
    "estimate": "exp of the mean log of the rounds' medians; mean of the rounds' medians for shares",
    "low": "Lower end of the 95% interval",
    "high": "Upper end of the 95% interval",
    "log_se": "Standard error of log estimate; of the estimate itself for shares",
    "df": "Degrees of freedom of the interval",
    "flop": "Floating-point operations of one call",
    "bytes": "Least memory traffic of one call",
    "flop_per_s": "flop / estimate, for times",
    "bytes_per_s": "bytes / estimate, for times",
    "error": "Largest relative error of the result against float64",
    "tolerance": "Largest error that counts as right",
    "flags": "What may have spoilt samples, in how many of them and the worst of it; unstable: rounds differ by more "
    "than their own samples explain; exact: counted and equal in all rounds",
    "origin": "measured, or synthetic (tests only)",
}


def summarise(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per point and metric of a table of samples; columns POINT and COLUMNS, in order."""
    columns = [*POINT, *COLUMNS]
    if not len(samples):
        return pd.DataFrame(columns=columns)
    # Arrays by position: thousands of small frames would take ten times as long.
    held = {name: samples[name].to_numpy() for name in _HELD}
    places: Any = samples.groupby(SERIES, sort=True).indices
    rows = [
        {**dict(zip(SERIES, key, strict=True)), **_row(samples, held, np.sort(places[key]))} for key in sorted(places)
    ]
    table = pd.DataFrame(rows)
    for name in ("estimate", "low", "high", "log_se", "df"):
        table[name] = np.nan
    for _, index in table[table["status"] == "ok"].groupby(GROUP, sort=True).groups.items():
        _estimate(table, index)
    times = table["unit"] == "s"
    table["flop_per_s"] = (table["flop"] / table["estimate"]).where(times)
    table["bytes_per_s"] = (table["bytes"] / table["estimate"]).where(times)
    return table[columns]


def _commonest(values: Array) -> str:
    seen = values[values != ""]
    if not len(seen):
        return ""
    words, counts = np.unique(seen.astype(str), return_counts=True)
    # Sorted, so that ties are broken the same way every time.
    return str(words[np.argmax(counts)])


def _known(values: Array) -> Array:
    return values[~np.isnan(values)]


def _row(samples: pd.DataFrame, held: dict[str, Array], at: Array) -> dict[str, Any]:
    """What the summary says of the samples of one point and metric, which lie at these positions."""
    good = held["status"][at] == "ok"
    ok, failed = at[good], at[~good]
    used = ok if len(ok) else at
    reason = _commonest(held["reason"][failed])
    if len(ok) and len(failed):
        rounds = len(np.unique(held["round"][failed]))
        every, status = len(np.unique(held["round"][at])), _commonest(held["status"][failed])
        reason = f"{rounds} of {every} rounds {status}: {reason}"
    of_round = held["round"][ok]
    by_round = [held["value"][ok][of_round == number] for number in np.unique(of_round)]
    flagged = bool((held["flags"][used] != "").any())
    share = bool((held["unit"][ok] == "1").any())
    flop, moved, error, tolerance = (_known(held[name][used]) for name in ("flop", "bytes", "error", "tolerance"))
    return {
        "unit": _commonest(held["unit"][used]),
        "status": "ok" if len(ok) else _commonest(held["status"][at]),
        "reason": reason,
        "stop_reason": _commonest(held["stop_reason"][used]),
        "n_rounds": len(by_round),
        "n_samples": len(ok),
        "flop": np.median(flop) if len(flop) else np.nan,
        "bytes": np.median(moved) if len(moved) else np.nan,
        "error": error.max() if len(error) else np.nan,
        "tolerance": tolerance.max() if len(tolerance) else np.nan,
        "flags": flags.text(
            [
                *(flags.of_samples(samples.iloc[used]) if flagged else []),
                *([] if share else flags.of_rounds(by_round)),
            ]
        ),
        "origin": _commonest(held["origin"][used]),
        "_rounds": np.array([np.median(values) for values in by_round]) if len(ok) else None,
    }


def _estimate(table: pd.DataFrame, index: pd.Index) -> None:
    """Fill in estimates and intervals of the points of one group."""
    rounds = list(table.loc[index, "_rounds"])
    metric = str(table.loc[index[0], "metric"])
    share = bool((table.loc[index, "unit"] == "1").all())
    linear = share or any((values <= 0).any() for values in rounds)
    if linear:
        within = share and metric.endswith("share")
        found = stats.on_linear_scale(rounds, counted=metric in COUNTED, share=within)
    else:
        found = stats.on_log_scale(rounds)
    for name, values in (("estimate", found.estimate), ("low", found.low), ("high", found.high), ("df", found.df)):
        table.loc[index, name] = values
    table.loc[index, "log_se"] = found.se
    for position, exact in zip(index, found.exact, strict=True):
        if exact:
            said = flags.read(str(table.loc[position, "flags"]))
            table.loc[position, "flags"] = flags.text([*said, flags.Seen(flags.EXACT)])
