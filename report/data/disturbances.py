"""What disturbed a point: its samples' flags counted, and rounds that differ. Such points are kept and told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl

from contract.sample_flags import FLAGS, Flag, parse, worst

# What a summary row may say besides its samples' flags.
UNSTABLE, EXACT, EXCEEDED = "unstable", "exact", "exceeded"
MEANING = {
    **FLAGS,
    UNSTABLE: "rounds differ by more than their own samples explain",
    EXCEEDED: "other work ran faster than this measured peak, which was measured too low",
    EXACT: "no disturbance: counted, and equal in all rounds",
}
# A sample with this flag is no measurement of the work alone: its threads waited for the one beside another process.
DISTURBING = "crowded"
# Half-width of a round's median, relative, that the study is content with: the coarsest target of its presets.
TARGET_HALF_WIDTH = 0.05
# A rate without an interval exceeds a peak if it is above it by this factor.
_SURELY = 1.05
_PLACE = ["node", "device", "dtype", "threads"]
# Old data has bare names; these columns hold the figure.
_FIGURES = {"busy": ("other_load", " other load"), "steal": ("steal", "")}
FIGURES = [column for column, _ in _FIGURES.values()]
_FLAG_TEXT = re.compile(
    r"(?P<name>\w+)(?: in (?P<n>\d+) of (?P<of>\d+) samples?)?(?: \((?:most: )?(?P<most>.*)\)|: (?P<what>.*))?"
)


@dataclass(frozen=True)
class FlagSummary:
    """One flag of a point: in `n` of its `of` samples (0 of 0 if it is about the rounds), and the worst of it."""

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
        """How bad it is beside others of the same name: share of the samples, or percent between rounds."""
        return self.n / self.of if self.of else Flag(self.name, self.most).figure


def parse_flags(text: str) -> list[FlagSummary]:
    """The flags of a summary row; a text without figures, of earlier data, gives their names."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        said = _FLAG_TEXT.fullmatch(part)
        if said is None:
            found += [FlagSummary(word) for word in part.split()]
            continue
        found.append(
            FlagSummary(said["name"], int(said["n"] or 0), int(said["of"] or 0), said["most"] or said["what"] or "")
        )
    return found


def format_flags(flags: Iterable[FlagSummary]) -> str:
    """Flags as the summary holds them: `read` reads them back."""
    return "; ".join(map(str, flags))


def flags_by_series(samples: pl.DataFrame) -> dict[int, list[FlagSummary]]:
    """Each flag of every series that has one, with how many samples bear it and the worst that was seen.

    samples: series (a number), flags and the columns FIGURES.
    """
    of = dict(samples.group_by("series").len().iter_rows())
    found: dict[int, list[tuple[Flag, int]]] = {}
    borne = samples.filter(pl.col("flags") != "").group_by("series", "flags")
    counted = borne.agg(pl.len().alias("n"), *(pl.col(name).drop_nans().max() for name in FIGURES))
    # Which of equally bad ones is told first must not change from run to run.
    for row in counted.sort("series", "flags").iter_rows(named=True):
        found.setdefault(row["series"], []).extend(
            (_add_old_figure(flag, row), row["n"]) for flag in parse(row["flags"])
        )
    return {
        series: [
            FlagSummary(one.name, sum(n for flag, n in seen if flag.name == one.name), of[series], one.detail)
            for one in worst(flag for flag, _ in seen)
        ]
        for series, seen in found.items()
    }


def disturbed_rounds(samples: pl.DataFrame) -> dict[int, int]:
    """How many rounds of a series are disturbed: most of their samples bear DISTURBING; series without are left out.

    samples: series (a number), round and flags.
    """
    texts = samples.select("flags").unique()["flags"]
    bad = [text for text in texts if any(flag.name == DISTURBING for flag in parse(text))]
    if not bad:
        return {}
    rounds = samples.group_by("series", "round").agg(share=pl.col("flags").is_in(bad).mean())
    return dict(rounds.filter(pl.col("share") > 0.5).group_by("series").len().iter_rows())


def sample_flags(samples: pd.DataFrame) -> list[FlagSummary]:
    """The same of some samples of one point and metric."""
    table = pl.from_pandas(samples[["flags", *FIGURES]]).with_columns(pl.col("flags").cast(pl.String), series=0)
    return flags_by_series(table).get(0, [])


def _add_old_figure(flag: Flag, row: Mapping[str, Any]) -> Flag:
    """A flag of old data, which is a bare name, with the largest figure of its column."""
    if flag.detail or flag.name not in _FIGURES:
        return flag
    column, words = _FIGURES[flag.name]
    return flag if row[column] is None else Flag(flag.name, f"{row[column]:.0%}{words}")


def unstable_series(rounds: pl.DataFrame) -> dict[int, FlagSummary]:
    """`unstable`, by series, where the medians of its rounds lie further apart than chance puts them.

    Two medians that are each known to within h may differ by 2 h with nothing having changed between them. h is the
    half-width that the rounds' own samples give, but no less than what the study is content with, at which it stops
    sampling. What lies beyond came with the process or with the time of day; the interval, which rests on the rounds,
    holds it. Not for shares, which have no scale of their own.

    rounds: series, median, half_width (relative).
    """
    spread = pl.col("median").max() / pl.col("median").min() - 1
    found = rounds.group_by("series").agg(
        spread=spread,
        differ=(pl.len() > 1)
        & (pl.col("median").min() > 0)
        & (spread > 2 * pl.max_horizontal(pl.lit(TARGET_HALF_WIDTH), pl.col("half_width").max())),
    )
    return {
        series: FlagSummary(UNSTABLE, most=f"rounds differ by {by:.0%}")
        for series, by in found.filter("differ").select("series", "spread").iter_rows()
    }


def exceeded_peaks(points: pl.DataFrame) -> dict[int, FlagSummary]:
    """`exceeded`, by series, for peaks of multiply-adds that other work of the same format and threads surpasses.

    It does where even the lower end of its rate is above the peak; without an interval, its rate over _SURELY.

    points: series, experiment, metric, params, the columns _PLACE, flop, estimate, low and high (of a time).
    """
    times = points.filter(pl.col("metric") == "time", pl.col("flop") > 0, pl.col("estimate") > 0)
    rate, high = pl.col("flop") / pl.col("estimate"), pl.col("high").fill_nan(None)
    times = times.with_columns(rate=rate, least=pl.coalesce(pl.col("flop") / high, rate / _SURELY))
    peak = pl.col("experiment") == "peak"
    peaks = times.filter(peak, pl.col("params").str.contains('"fma"', literal=True))
    # Only what runs on the processor: a GPU's peak is a product itself.
    work = times.filter(~peak, pl.col("device") == "cpu").sort("least", "series").group_by(_PLACE).last()
    found = peaks.join(work, on=_PLACE, suffix="_of_work").filter(pl.col("least_of_work") > pl.col("rate"))
    return {
        row["series"]: FlagSummary(
            EXCEEDED, most=f"{row['experiment_of_work']} came to {row['rate_of_work'] / row['rate']:.2g} times it"
        )
        for row in found.iter_rows(named=True)
    }
