"""Summarise samples to one row per point and metric, with estimate, interval, rates and sample counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import polars as pl
from numpy.typing import NDArray

from contract.errors import StudyError
from report import statistics
from report.data import disturbances

POINT = ["node", "experiment", "device", "backend", "dtype", "threads", "params"]
SERIES = [*POINT, "metric"]
# Series that agree in these columns form a group. Each variance is shrunk towards the other variances in its group (see
# `report.statistics`).
GROUP = ["node", "experiment", "device", "metric"]
# Metrics that are counted or computed, not timed. Such a metric is exact if its value is equal in all rounds.
COUNTED = {
    "repeat_share", "matmul_flop_share", "differing_share", "flushed_share", "distinct_results", "fingerprint",
    "spread_ulp", "spread_median_ulp", "spread_relative", "error_ulp",
    "system_driver_loaded", "system_toolkit_loaded", "toolkit_libraries_loaded", "toolkit_libraries_from_system",
    *(f"{names}operators" for names in ("", "public_")),
    *(f"{names}kernels_{key}" for names in ("", "public_") for key in ("cpu", "cuda", "mps", "xpu")),
}  # fmt: skip

# Metrics that time a whole call, with all its operations and bytes. Other times are of parts of it.
WHOLE_CALLS = ("time", "graph_time")

COLUMNS = {
    "metric": "What was measured",
    "unit": "Unit of estimate, low and high",
    "status": "ok if at least one round is; else the commonest outcome",
    "reason": "Why it is not ok, or what befell single rounds",
    "stop_reason": "Why sampling ended, the commonest",
    "n_rounds": "Rounds that are ok",
    "n_samples": "Samples in those rounds",
    "n_sessions": "Sessions, at least an hour apart, with those rounds",
    "n_disturbed": "Those of the rounds of which most samples are crowded: other processes had cores that the work's "
    "threads needed",
    "estimate": "exp of the mean log of the rounds' medians; from their mean log odds or mean on other scales",
    "low": f"Lower end of the {100 * statistics.LEVEL:g}% interval",
    "high": f"Upper end of the {100 * statistics.LEVEL:g}% interval",
    "scale": "log, logit or linear: the scale of log_se and variance",
    "log_se": "Standard error on that scale: of the estimate's logarithm, of its log odds, or of the estimate itself",
    "df": "Degrees of freedom of the interval",
    "variance": "Variance between rounds on the same scale, before moderation",
    "prior_df": "Degrees of freedom of the prior that moderated the variance",
    "prior_variance": "Variance of that prior",
    "session_variance": "Variance between sessions on the same scale; unknown if the group was measured in one session",
    "session_df": "Degrees of freedom of that variance",
    "flop": "Floating-point operations of one call",
    "bytes": "Least memory traffic of one call",
    "flop_per_s": "flop / estimate, for times of whole calls",
    "bytes_per_s": "bytes / estimate, for times of whole calls",
    "error": "Largest relative error of the result against float64",
    "tolerance": "Largest error that counts as right",
    "flags": "What may have spoilt samples, in how many of them and the worst of it; unstable: rounds differ by more "
    "than their own samples explain; exceeded: other work ran faster than this measured peak; exact: counted and equal "
    "in all rounds",
    "origin": "measured, or synthetic (tests only)",
}
_TEXT = [*(name for name in SERIES if name != "threads"), "unit", "status", "reason", "stop_reason", "flags", "origin"]
_WORDS = ["unit", "stop_reason", "origin", "status", "reason"]
_NUMBERS = ["threads", "round", "attempt", "value", "flop", "bytes", "error", "tolerance", *disturbances.FIGURES]


# Variance between sessions, with its df, by the values of GROUP.
Spreads = Mapping[tuple[str, ...], statistics.SessionSpread]


def summarise(
    samples: pd.DataFrame, later_sessions: pd.DataFrame | None = None, spreads: Spreads | None = None
) -> pd.DataFrame:
    """Summarise samples to one row per point and metric, with the columns POINT and COLUMNS, sorted by SERIES.

    Text columns in `samples` may be strings, objects or categories; in the result, they are strings.
    later_sessions: the rounds outside their node's first session (`report.data.sessions`; default: none). spreads: the
    groups' spread between sessions, in place of that of these samples. Raises StudyError if a text is missing.
    """
    columns = [*POINT, *COLUMNS]
    if not len(samples):
        return pd.DataFrame(columns=columns)
    rows = _number_sessions(_number_series(samples), later_sessions)
    ok = pl.col("status") == "ok"
    series = (
        rows.group_by("series")
        .agg(
            *(pl.col(name).first() for name in SERIES),
            n_samples=ok.sum(),
            n_rounds=pl.col("round").filter(ok).n_unique(),
            n_sessions=pl.col("session").filter(ok).n_unique(),
            n_failed=pl.col("round").filter(~ok).n_unique(),
            n_every=pl.col("round").n_unique(),
        )
        .sort("series")
    )
    # Use samples with another status than ok only for series that have no sample with status ok.
    used = rows.filter(ok | (pl.col("n_ok") == 0))
    numbers = used.group_by("series").agg(
        *(pl.col(name).drop_nans().median() for name in ("flop", "bytes")),
        *(pl.col(name).drop_nans().max() for name in ("error", "tolerance")),
    )
    failed = rows.filter(~ok)
    for name in _WORDS:
        source = failed if name in ("status", "reason") else used
        series = series.join(_most_common(source, name), on="series", how="left")
    series = series.join(numbers, on="series", how="left").sort("series").with_columns(pl.col(_WORDS).fill_null(""))
    rounds = _round_medians(rows.filter(ok))
    estimates, scales, exact = _estimates(series, rounds, spreads or {})
    round_flags = _round_flags(series, rounds, exact)
    ends = {name: pl.Series(estimates[name]) for name in ("estimate", "low", "high")}
    for at, flag in disturbances.exceeded_peaks(series.with_columns(**ends).filter(pl.col("n_rounds") > 0)).items():
        round_flags.setdefault(at, []).append(flag)
    sample_flags, disturbed = disturbances.flags_by_series(used), disturbances.disturbed_rounds(rows.filter(ok))
    flags = [[*sample_flags.get(at, []), *round_flags.get(at, [])] for at in range(len(series))]
    whole_calls = series["metric"].is_in(WHOLE_CALLS) & (series["unit"] == "s")
    seconds = np.where(whole_calls, estimates["estimate"], np.nan)
    befell = pl.format("{} of {} rounds {}: {}", "n_failed", "n_every", "status", "reason")
    some_ok = pl.col("n_rounds") > 0
    table = series.with_columns(
        reason=pl.when(some_ok & (pl.col("n_failed") > 0)).then(befell).otherwise(pl.col("reason")),
        status=pl.when(some_ok).then(pl.lit("ok")).otherwise(pl.col("status")),
        scale=pl.Series(scales, dtype=pl.String),
        **{name: pl.Series(column) for name, column in estimates.items()},
        **{f"{name}_per_s": pl.Series(series[name].to_numpy() / seconds) for name in ("flop", "bytes")},
        n_disturbed=pl.Series([disturbed.get(at, 0) for at in range(len(series))], dtype=pl.Int64),
        flags=pl.Series([disturbances.format_flags(row) for row in flags], dtype=pl.String),
    )
    whole = pl.col("n_rounds", "n_samples", "n_sessions", "n_disturbed").cast(pl.Int64)
    return table.select(columns).with_columns(whole, pl.col(pl.Float64).fill_null(np.nan)).to_pandas()


def _number_series(samples: pd.DataFrame) -> pl.DataFrame:
    """Add the columns `series` and `n_ok` to the samples.

    series: the number of the sample's series, from 0 in SERIES order. n_ok: number of ok samples in this series.
    """
    for name in _TEXT:
        missing = samples[name].isna().to_numpy()
        if missing.any():
            row = int(np.argmax(missing))
            raise StudyError(f"column {name!r}, row {row}: the text is missing: write '' for no text")
    table = pl.from_pandas(samples[[*_TEXT, *_NUMBERS]], nan_to_null=False)
    table = table.with_columns(pl.col(*_TEXT).cast(pl.String), pl.col("threads").cast(pl.Int64))
    order = table.select(SERIES).unique().sort(SERIES).with_row_index("series")
    return table.join(order, on=SERIES, how="left").with_columns(
        n_ok=(pl.col("status") == "ok").sum().over("series"), series=pl.col("series").cast(pl.Int64)
    )


def _number_sessions(rows: pl.DataFrame, later_sessions: pd.DataFrame | None) -> pl.DataFrame:
    """Add the column `session`: the session's number, 1 for rounds that are not in `later_sessions`."""
    if later_sessions is None or not len(later_sessions):
        return rows.with_columns(session=pl.lit(1, pl.Int64))
    later = pl.from_pandas(later_sessions).cast({"round": rows.schema["round"], "attempt": rows.schema["attempt"]})
    joined = rows.join(later, on=[*later.columns[:-1]], how="left", maintain_order="left")
    return joined.with_columns(pl.col("session").fill_null(1))


def _most_common(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return each series' most common text that is not empty; among equally common texts, the alphabetically first."""
    return (
        table.filter(pl.col(name) != "")
        .group_by("series", name)
        .len()
        .sort("series", "len", name, descending=[False, True, False])
        .group_by("series", maintain_order=True)
        .agg(pl.col(name).first())
    )


def _round_medians(good: pl.DataFrame) -> pl.DataFrame:
    """Compute each round's median and the relative half-width of its 95% interval, sorted by series and round."""
    values, n = pl.col("value"), pl.len()
    reach = 1.96 * n.cast(pl.Float64).sqrt()
    low = ((n - reach) / 2).floor().clip(0).cast(pl.Int64)
    high = pl.min_horizontal(n - 1, ((n + reach) / 2).ceil().cast(pl.Int64))
    # The interval's ends are order statistics, from Hoefler & Belli, Scientific Benchmarking of Parallel Computing
    # Systems (SC15).
    half = (values.get(high) - values.get(low)) / 2 / values.median()
    # Sort all rounds at once, because sorting each round separately takes four times as long.
    return (
        good.sort("series", "round", "value")
        .group_by("series", "round", maintain_order=True)
        .agg(
            pl.col("session").first(),
            median=values.median(),
            half_width=pl.when(n < 6).then(0.0).otherwise(half),
        )
    )


def _estimates(
    series: pl.DataFrame, rounds: pl.DataFrame, spreads: Spreads
) -> tuple[dict[str, NDArray[np.float64]], list[str], set[int]]:
    """Compute each series' estimate and interval; also return their scales and the exact series."""
    counted = rounds.group_by("series", maintain_order=True).len()
    at, n = counted["series"].to_numpy(), counted["len"].to_numpy().astype(np.intp)
    medians, sessions = rounds["median"].to_numpy(), rounds["session"].to_numpy()
    here = series.select(*GROUP, "unit")[at]
    names, group = np.unique(
        here.select(pl.concat_str(GROUP, separator="\0")).to_series().to_numpy(), return_inverse=True
    )
    given = {at: spreads[key] for at, name in enumerate(names) if (key := tuple(name.split("\0"))) in spreads}
    least, most = np.ones(len(at)), np.zeros(len(at))
    if len(at):
        starts = np.cumsum(n) - n
        least, most = np.minimum.reduceat(medians, starts), np.maximum.reduceat(medians, starts)
    metrics = here["metric"].to_list()
    plain = _all_in_group(group, (here["unit"] == "1").to_numpy())
    share = plain & np.array([name.endswith("share") for name in metrics], dtype=bool)
    is_counted = np.array([name in COUNTED or name.startswith("attention.") for name in metrics], dtype=bool)
    # All series in a group have the same scale, because they moderate each other's variances. Shares without a median
    # of 0 or 1 have the logit scale, unless they are counted. Other numbers without a dimension, and groups with a
    # median that has no logarithm, have the linear scale.
    logit = share & ~is_counted & _all_in_group(group, (least > 0) & (most < 1))
    linear = (plain & ~logit) | ~_all_in_group(group, least > 0)
    scale = np.where(logit, "logit", np.where(linear, "linear", "log"))
    scales = np.full(len(series), "", dtype=object)
    scales[at] = scale
    table = {
        name: np.full(len(series), np.nan)
        for name in (
            "estimate",
            "low",
            "high",
            "log_se",
            "df",
            "variance",
            "prior_df",
            "prior_variance",
            "session_variance",
            "session_df",
        )
    }
    exact: set[int] = set()
    for name in ("linear", "log", "logit"):
        chosen = scale == name
        of_rounds, rounds_each = np.repeat(chosen, n), n[chosen]
        values = medians[of_rounds]
        if name == "linear":
            result = statistics.linear_estimates(values, rounds_each, is_counted[chosen], share[chosen])
        else:
            estimate = statistics.log_estimates if name == "log" else statistics.logit_estimates
            result = estimate(values, rounds_each, group[chosen], sessions[of_rounds], given)
        exact |= set(at[chosen][result.exact].tolist())
        columns = (result.estimate, result.low, result.high, result.se, result.df)
        variances = (
            result.variance,
            result.prior_df,
            result.prior_variance,
            result.session_variance,
            result.session_df,
        )
        for column_name, column in zip(table, (*columns, *variances), strict=True):
            table[column_name][at[chosen]] = column
    return table, scales.tolist(), exact


def _all_in_group(group: NDArray[np.int64], true: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell for each series if the condition is true for all series in its group."""
    return np.asarray(np.bincount(group, ~true)[group] == 0)


def _round_flags(
    series: pl.DataFrame, rounds: pl.DataFrame, exact: set[int]
) -> dict[int, list[disturbances.FlagSummary]]:
    """Return the flags `unstable` and `exact` by series, which come from comparing rounds."""
    scaled = series.filter(pl.col("unit") != "1").select("series")
    flags: dict[int, list[disturbances.FlagSummary]] = {
        at: [flag] for at, flag in disturbances.unstable_series(rounds.join(scaled, on="series", how="semi")).items()
    }
    for at in sorted(exact):
        flags.setdefault(at, []).append(disturbances.FlagSummary(disturbances.EXACT))
    return flags
