"""Count the disturbance flags on the samples of each point, and flag points whose rounds differ; none is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl

from contract.sample_flags import FLAGS, Flag, parse_sample_flags, worst_flags

# Flags on summary rows only, not on samples.
UNSTABLE, EXACT, EXCEEDED = "unstable", "exact", "exceeded"
MEANING = {
    **FLAGS,
    UNSTABLE: "rounds differ by more than their own samples explain",
    EXCEEDED: "other work ran faster than this measured peak, which was measured too low",
    EXACT: "no disturbance: counted, and equal in all rounds",
}
# Flag that makes a sample disturbed: other processes used cores that the work's threads needed.
DISTURBING = "crowded"
# Relative half-width of the interval at which sampling stops: the coarsest target in all presets.
TARGET_HALF_WIDTH = 0.05
# Factor by which a rate without an interval must exceed a peak, for the peak to be flagged.
_SURELY = 1.05
_PLACE = ["node", "device", "dtype", "threads"]
# Flags in old data lack their figure; it is taken from these columns.
_FIGURES = {"busy": ("other_load", " other load"), "steal": ("steal", "")}
FIGURES = [column for column, _ in _FIGURES.values()]
_FLAG_TEXT = re.compile(
    r"(?P<name>\w+)(?: in (?P<n>\d+) of (?P<of>\d+) samples?)?(?: \((?:most: )?(?P<most>.*)\)|: (?P<what>.*))?"
)


@dataclass(frozen=True)
class FlagSummary:
    """Flag on a point, in `n` of its `of` samples (0 of 0 for a flag on rounds), with its worst figure."""

    name: str
    n: int = 0
    of: int = 0
    most: str = ""

    def __str__(self) -> str:
        if not self.of:
            return f"{self.name}: {self.most}" if self.most else self.name
        figure = "most: " if Flag(self.name, self.most).figure else ""
        samples = "sample" if self.of == 1 else "samples"
        return f"{self.name} in {self.n} of {self.of} {samples}" + (f" ({figure}{self.most})" if self.most else "")

    @property
    def weight(self) -> float:
        """Severity among flags with the same name: share of samples, or percent between rounds."""
        return self.n / self.of if self.of else Flag(self.name, self.most).figure


def parse_flags(text: str) -> list[FlagSummary]:
    """Parse flags from a summary row; text from old data has only names."""
    flags = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = _FLAG_TEXT.fullmatch(part)
        if match is None:
            flags += [FlagSummary(word) for word in part.split()]
            continue
        most = match["most"] or match["what"] or ""
        flags.append(FlagSummary(match["name"], int(match["n"] or 0), int(match["of"] or 0), most))
    return flags


def format_flags(flags: Iterable[FlagSummary]) -> str:
    """Format flags for a summary row, the inverse of `parse_flags`."""
    return "; ".join(map(str, flags))


def flags_by_series(samples: pl.DataFrame) -> dict[int, list[FlagSummary]]:
    """Count the flagged samples per series and flag, with the worst figure; series without flags are omitted.

    samples: columns series (number), flags, and FIGURES.
    """
    sizes = dict(samples.group_by("series").len().iter_rows())
    flags_of: dict[int, list[tuple[Flag, int]]] = {}
    groups = samples.filter(pl.col("flags") != "").group_by("series", "flags")
    counted = groups.agg(pl.len().alias("n"), *(pl.col(name).drop_nans().max() for name in FIGURES))
    # Sort, so that the order among equally bad flags is the same in every run.
    for row in counted.sort("series", "flags").iter_rows(named=True):
        flags = [(_add_old_figure(flag, row), row["n"]) for flag in parse_sample_flags(row["flags"])]
        flags_of.setdefault(row["series"], []).extend(flags)
    return {
        series: [
            FlagSummary(bad.name, sum(n for flag, n in flags if flag.name == bad.name), sizes[series], bad.detail)
            for bad in worst_flags(flag for flag, _ in flags)
        ]
        for series, flags in flags_of.items()
    }


def disturbed_rounds(samples: pl.DataFrame) -> dict[int, int]:
    """Count the disturbed rounds per series: rounds in which most samples have the flag DISTURBING.

    Omits series without disturbed rounds. samples: columns series (number), round and flags.
    """
    texts = samples.select("flags").unique()["flags"]
    bad = [text for text in texts if any(flag.name == DISTURBING for flag in parse_sample_flags(text))]
    if not bad:
        return {}
    rounds = samples.group_by("series", "round").agg(share=pl.col("flags").is_in(bad).mean())
    return dict(rounds.filter(pl.col("share") > 0.5).group_by("series").len().iter_rows())


def sample_flags(samples: pd.DataFrame) -> list[FlagSummary]:
    """Return the flags that `flags_by_series` counts, for samples from one point and metric."""
    table = pl.from_pandas(samples[["flags", *FIGURES]]).with_columns(pl.col("flags").cast(pl.String), series=0)
    return flags_by_series(table).get(0, [])


def _add_old_figure(flag: Flag, row: Mapping[str, Any]) -> Flag:
    """Give a flag from old data, which lacks its figure, the largest value in the flag's column."""
    if flag.detail or flag.name not in _FIGURES:
        return flag
    column, words = _FIGURES[flag.name]
    return flag if row[column] is None else Flag(flag.name, f"{row[column]:.0%}{words}")


def unstable_series(rounds: pl.DataFrame) -> dict[int, FlagSummary]:
    """Flag series as `unstable` where round medians differ by more than chance explains.

    Two medians, each known to within h, may differ by 2 h by chance. h is the largest half-width from the rounds' own
    samples, at least TARGET_HALF_WIDTH, where sampling stops. A larger spread comes with the process or the time of
    day; the interval, computed over rounds, includes it. Shares must be left out, because a relative difference between
    small shares means nothing.

    rounds: columns series, median, half_width (relative).
    """
    spread = pl.col("median").max() / pl.col("median").min() - 1
    flagged = rounds.group_by("series").agg(
        spread=spread,
        differ=(pl.len() > 1)
        & (pl.col("median").min() > 0)
        & (spread > 2 * pl.max_horizontal(pl.lit(TARGET_HALF_WIDTH), pl.col("half_width").max())),
    )
    return {
        series: FlagSummary(UNSTABLE, most=f"rounds differ by {by:.0%}")
        for series, by in flagged.filter("differ").select("series", "spread").iter_rows()
    }


def exceeded_peaks(points: pl.DataFrame) -> dict[int, FlagSummary]:
    """Flag multiply-add peaks as `exceeded` where other work with the same format and threads ran faster.

    The lower end of that work's rate must lie above the peak; without an interval, the rate divided
    by _SURELY must.

    points: columns series, experiment, metric, params, _PLACE, flop, and estimate, low and high in seconds.
    """
    times = points.filter(pl.col("metric") == "time", pl.col("flop") > 0, pl.col("estimate") > 0)
    rate, high = pl.col("flop") / pl.col("estimate"), pl.col("high").fill_nan(None)
    times = times.with_columns(rate=rate, least=pl.coalesce(pl.col("flop") / high, rate / _SURELY))
    peak = pl.col("experiment") == "peak"
    peaks = times.filter(peak, pl.col("params").str.contains('"fma"', literal=True))
    # Only CPU peaks can be flagged: a GPU's peak is itself a matrix product, so other products may run as fast.
    work = times.filter(~peak, pl.col("device") == "cpu").sort("least", "series").group_by(_PLACE).last()
    flagged = peaks.join(work, on=_PLACE, suffix="_of_work").filter(pl.col("least_of_work") > pl.col("rate"))
    return {
        row["series"]: FlagSummary(
            EXCEEDED, most=f"{row['experiment_of_work']} came to {row['rate_of_work'] / row['rate']:.2g} times it"
        )
        for row in flagged.iter_rows(named=True)
    }
