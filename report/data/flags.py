"""What disturbed a point: its samples' flags counted, and rounds that differ. Such points are kept and told."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from contract.flags import FLAGS, Flag, parse, worst
from report.data import groups

# What a summary row may say besides its samples' flags.
UNSTABLE, EXACT = "unstable", "exact"
MEANING = {
    **FLAGS,
    UNSTABLE: "rounds differ by more than their own samples explain",
    EXACT: "no disturbance: counted, and equal in all rounds",
}
# Half-width of a round's median, relative, that the study is content with: the coarsest target of its presets.
CONTENT = 0.05
# Old data has bare names; these columns hold the figure.
_FIGURES = {"busy": ("other_load", " other load"), "steal": ("steal", "")}
# The columns of the samples that are read.
COLUMNS = ["flags", *(column for column, _ in _FIGURES.values())]
_SAID = re.compile(
    r"(?P<name>\w+)(?: in (?P<n>\d+) of (?P<of>\d+) samples?)?(?: \((?:most: )?(?P<most>.*)\)|: (?P<what>.*))?"
)


@dataclass(frozen=True)
class Seen:
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


def read(text: str) -> list[Seen]:
    """The flags of a summary row; a text without figures, of earlier data, gives their names."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        said = _SAID.fullmatch(part)
        if said is None:
            found += [Seen(word) for word in part.split()]
            continue
        found.append(Seen(said["name"], int(said["n"] or 0), int(said["of"] or 0), said["most"] or said["what"] or ""))
    return found


def text(flags: Iterable[Seen]) -> str:
    """Flags as the summary holds them: `read` reads them back."""
    return "; ".join(map(str, flags))


def of_samples(samples: pd.DataFrame) -> list[Seen]:
    """Each flag of some samples of one point and metric, with how many of them bear it and the worst that was seen."""
    return of_points(samples, np.zeros(len(samples), dtype=np.int64)).get(0, [])


def of_points(samples: pd.DataFrame, point: groups.Ints) -> dict[int, list[Seen]]:
    """What `of_samples` says of every point that has a flag.

    samples: the columns COLUMNS; point: of shape (samples,), the number of each sample's point, from 0.
    """
    told = groups.text(samples["flags"])
    flagged = np.flatnonzero(told.codes)
    if not len(flagged):
        return {}
    of = np.bincount(point)
    pairs, _ = groups.fold([(point[flagged], len(of)), (told.codes[flagged], len(told.words))])
    order = np.argsort(pairs, kind="stable")
    runs = groups.Runs.of(pairs[order])
    flagged = flagged[order]
    most = {
        column: np.fmax.reduceat(samples[column].to_numpy(float)[flagged], runs.start).tolist()
        for column, _ in _FIGURES.values()
    }
    heads = flagged[runs.start]
    parsed = [parse(str(words)) for words in told.words]
    borne: dict[int, Counter[str]] = defaultdict(Counter)
    seen: dict[int, list[Flag]] = defaultdict(list)
    for run, (number, code, count) in enumerate(
        zip(point[heads].tolist(), told.codes[heads].tolist(), runs.length.tolist(), strict=True)
    ):
        for flag in parsed[code]:
            borne[number][flag.name] += count
            seen[number].append(flag if flag.detail or flag.name not in _FIGURES else _with_figure(flag, most, run))
    return {
        number: [Seen(flag.name, borne[number][flag.name], int(of[number]), flag.detail) for flag in worst(flags)]
        for number, flags in seen.items()
    }


def _with_figure(flag: Flag, most: dict[str, list[float]], run: int) -> Flag:
    column, words = _FIGURES[flag.name]
    figure = most[column][run]
    return flag if math.isnan(figure) else Flag(flag.name, f"{figure:.0%}{words}")


def of_rounds(medians: groups.Floats, half_widths: groups.Floats, points: groups.Runs) -> dict[int, Seen]:
    """`unstable`, by the point's place, where the medians of a point's rounds lie further apart than chance puts them.

    Two medians that are each known to within h may differ by 2 h with nothing having changed between them. h is the
    half-width that the rounds' own samples give, but no less than what the study is content with, at which it stops
    sampling. What lies beyond came with the process or with the time of day; the interval, which rests on the rounds,
    holds it. Not for shares, which have no scale of their own.

    medians, half_widths: of shape (rounds,), the latter relative. points: the rounds of each point, one after another.
    """
    if not len(medians):
        return {}
    least, largest = np.minimum.reduceat(medians, points.start), np.maximum.reduceat(medians, points.start)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = largest / least - 1
    explained = 2 * np.maximum(CONTENT, np.maximum.reduceat(half_widths, points.start))
    unstable = np.flatnonzero((points.length > 1) & (least > 0) & (spread > explained))
    return {int(at): Seen(UNSTABLE, most=f"rounds differ by {spread[at]:.0%}") for at in unstable}


def half_widths(ordered: groups.Floats, rounds: groups.Runs) -> groups.Floats:
    """Relative half-widths of the 95% intervals of positive medians, by order statistics; 0 from fewer than 6 values.

    ordered: of shape (samples,), the values of one round after another, which ascend within each.
    Source: Hoefler & Belli, Scientific Benchmarking of Parallel Computing Systems (SC15).
    """
    n = rounds.length
    reach = 1.96 * np.sqrt(n)
    low = np.maximum(0, np.floor((n - reach) / 2)).astype(np.int64)
    high = np.minimum(n - 1, np.ceil((n + reach) / 2)).astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (ordered[rounds.start + high] - ordered[rounds.start + low]) / 2 / groups.medians(ordered, rounds)
    return np.where(n < 6, 0.0, found)
