"""Count the disturbance flags on each point's samples, and flag points whose rounds differ.

No flag causes a sample or point to be left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl

from contract.sample_flags import FLAGS, Flag, parse_sample_flags, worst_flags

# Flags that only summary rows have, not samples.
UNSTABLE, EXACT, EXCEEDED = "unstable", "exact", "exceeded"
MEANING = {
    **FLAGS,
    UNSTABLE: "rounds differ by more than their own samples explain",
    EXCEEDED: "other work ran faster than this measured peak, which was measured too low",
    EXACT: "no disturbance: counted, and equal in all rounds",
}
# Flag for samples that count as disturbed, because other processes used cores that the work's threads needed.
DISTURBING = "crowded"
# Largest `target` in all presets. Sampling stops when the interval's relative half-width reaches the target.
TARGET_HALF_WIDTH = 0.05
# A rate that has no interval must exceed a peak by this factor, for the peak to be flagged.
_SURELY = 1.05
_PLACE = ["node", "device", "dtype", "threads"]
# In old data, these flags have no detail. For each flag, the column with the detail's number, and the detail's words.
_FIGURES = {"busy": ("other_load", " other load"), "steal": ("steal", "")}
FIGURES = [column for column, _ in _FIGURES.values()]
_FLAG_TEXT = re.compile(
    r"(?P<name>\w+)(?: in (?P<n>\d+) of (?P<of>\d+) samples?)?(?: \((?:most: )?(?P<most>.*)\)|: (?P<what>.*))?"
)


@dataclass(frozen=True)
class FlagSummary:
    """Flag on a point, from the flags on its samples or rounds.

    n: number of samples with the flag. of: number of all samples at the point. Both are 0 for a flag on rounds. most:
    the flag's detail; if details have numbers, the detail with the largest number.
    """

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
        """Severity, to compare flags with the same name.

        This is the fraction of samples with the flag, or, for a flag on rounds, the number in its detail.
        """
        return self.n / self.of if self.of else Flag(self.name, self.most).figure

    @property
    def amount(self) -> float | None:
        """The largest number in the details, a percentage as a share; None if they have no number."""
        return Flag(self.name, self.most).amount


def parse_flags(text: str) -> list[FlagSummary]:
    """Parse a summary row's flags. In old data, the text contains only names."""
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
    """Format flags as the text in a summary row, which `parse_flags` reads."""
    return "; ".join(map(str, flags))


def flags_by_series(samples: pl.DataFrame) -> dict[int, list[FlagSummary]]:
    """Return each series' flags. A flag has the number of samples that it marks, and the worst figure among them.

    Series without flags are omitted. samples: table with the columns series (a number), flags, and FIGURES.
    """
    sizes = dict(samples.group_by("series").len().iter_rows())
    flags_of: dict[int, list[tuple[Flag, int]]] = {}
    groups = samples.filter(pl.col("flags") != "").group_by("series", "flags")
    counted = groups.agg(pl.len().alias("n"), *(pl.col(name).drop_nans().max() for name in FIGURES))
    # Sort the rows, so that the order of equally bad flags is the same in every run.
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
    """Count for each series the disturbed rounds, in which most samples have the flag DISTURBING.

    Series without disturbed rounds are omitted. samples: table with the columns series (a number), round and flags.
    """
    texts = samples.select("flags").unique()["flags"]
    bad = [text for text in texts if any(flag.name == DISTURBING for flag in parse_sample_flags(text))]
    if not bad:
        return {}
    rounds = samples.group_by("series", "round").agg(share=pl.col("flags").is_in(bad).mean())
    return dict(rounds.filter(pl.col("share") > 0.5).group_by("series").len().iter_rows())


def sample_flags(samples: pd.DataFrame) -> list[FlagSummary]:
    """Return the flags that `flags_by_series` finds, for samples that are all from one point and metric."""
    table = pl.from_pandas(samples[["flags", *FIGURES]]).with_columns(pl.col("flags").cast(pl.String), series=0)
    return flags_by_series(table).get(0, [])


def _add_old_figure(flag: Flag, row: Mapping[str, Any]) -> Flag:
    """Return a flag from old data with a detail: the largest value in the flag's column.

    row: the largest values in the columns FIGURES. Other flags are returned unchanged.
    """
    if flag.detail or flag.name not in _FIGURES:
        return flag
    column, words = _FIGURES[flag.name]
    return flag if row[column] is None else Flag(flag.name, f"{row[column]:.0%}{words}")


def unstable_series(rounds: pl.DataFrame) -> dict[int, FlagSummary]:
    """Flag series as `unstable` if their round medians differ by more than chance explains.

    Two medians that are each known to within h may differ by 2 h by chance. h is the largest half-width of the medians'
    intervals within the rounds, but at least TARGET_HALF_WIDTH, at which sampling stops. If the medians differ by more,
    the process or the time of day affects them. The series' interval includes this effect, because it is computed from
    the spread between rounds. The caller must leave out shares, because a relative difference between small shares
    means nothing.

    rounds: table with the columns series, median and half_width (relative).
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
    """Flag measured multiply-add peaks as `exceeded` if other work with the same _PLACE ran faster.

    The other work ran faster if the lower end of the interval for its rate is above the peak. If it has no interval,
    its rate divided by _SURELY must be above the peak.

    points: table with the columns series, experiment, metric, params, _PLACE and flop, and with estimate, low and high
    in seconds.
    """
    times = points.filter(pl.col("metric") == "time", pl.col("flop") > 0, pl.col("estimate") > 0)
    rate, high = pl.col("flop") / pl.col("estimate"), pl.col("high").fill_nan(None)
    times = times.with_columns(rate=rate, least=pl.coalesce(pl.col("flop") / high, rate / _SURELY))
    peak = pl.col("experiment") == "peak"
    peaks = times.filter(peak, pl.col("params").str.contains('"fma"', literal=True))
    # Flag only CPU peaks. A GPU's peak is itself measured with a matrix product, so other products may be as fast.
    work = times.filter(~peak, pl.col("device") == "cpu").sort("least", "series").group_by(_PLACE).last()
    flagged = peaks.join(work, on=_PLACE, suffix="_of_work").filter(pl.col("least_of_work") > pl.col("rate"))
    return {
        row["series"]: FlagSummary(
            EXCEEDED, most=f"{row['experiment_of_work']} came to {row['rate_of_work'] / row['rate']:.2g} times it"
        )
        for row in flagged.iter_rows(named=True)
    }
