"""What disturbed a point: its samples' flags counted, and rounds that differ. Such points are kept and told."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from contract.flags import FLAGS, Flag, parse, worst

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
_COLUMNS = {"busy": ("other_load", " other load"), "steal": ("steal", "")}
_SAID = re.compile(
    r"(?P<name>\w+)(?: in (?P<n>\d+) of (?P<of>\d+) samples)?(?: \((?:most: )?(?P<most>.*)\)|: (?P<what>.*))?"
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
        return f"{self.name} in {self.n} of {self.of} samples" + (f" ({figure}{self.most})" if self.most else "")

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
    borne: dict[str, int] = {}
    seen: list[Flag] = []
    for words, part in samples[samples["flags"] != ""].groupby("flags", sort=True):
        for flag in parse(str(words)):
            borne[flag.name] = borne.get(flag.name, 0) + len(part)
            seen.append(flag if flag.detail else _from_columns(flag, part))
    return [Seen(flag.name, borne[flag.name], len(samples), flag.detail) for flag in worst(seen)]


def _from_columns(flag: Flag, samples: pd.DataFrame) -> Flag:
    column, words = _COLUMNS.get(flag.name, ("", ""))
    most = samples[column].max() if column else math.nan
    return flag if math.isnan(most) else Flag(flag.name, f"{most:.0%}{words}")


def of_rounds(rounds: Sequence[ArrayLike]) -> list[Seen]:
    """`unstable` if the medians of a point's rounds (each one's samples) lie further apart than chance puts them.

    Two medians that are each known to within h may differ by 2 h with nothing having changed between them. h is the
    half-width that the rounds' own samples give, but no less than what the study is content with, at which it stops
    sampling. What lies beyond came with the process or with the time of day; the interval, which rests on the rounds,
    holds it. Not for shares, which have no scale of their own.
    """
    medians = np.array([np.median(np.asarray(values, float)) for values in rounds])
    if len(medians) < 2 or (medians <= 0).any():
        return []
    spread = float(medians.max() / medians.min() - 1)
    explained = 2 * max(CONTENT, *(half_width(values) for values in rounds))
    return [Seen(UNSTABLE, most=f"rounds differ by {spread:.0%}")] if spread > explained else []


def half_width(values: ArrayLike) -> float:
    """Relative half-width of the 95% interval of a positive median, by order statistics; 0 from fewer than 6 values.

    Source: Hoefler & Belli, Scientific Benchmarking of Parallel Computing Systems (SC15).
    """
    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    if n < 6:
        return 0.0
    low = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    high = min(n - 1, math.ceil((n + 1.96 * math.sqrt(n)) / 2))
    return float((ordered[high] - ordered[low]) / 2 / np.median(ordered))
