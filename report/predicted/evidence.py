"""Predictions as evidence: rows of a summary that a quantity takes like measured ones, on a device named predicted."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from report.data.dataset import Dataset, MissingSourceError
from report.estimates import Estimates, device_kind
from report.predicted import TIER
from report.predicted.chips import NARROW, Chip
from report.predicted.roofline import EXPERIMENTS, KEY, Reached, bounds, points
from report.quantities import Quantity

# How a prediction is made: an upper bound of the rate; scaled by what measured chips reach; and so with an error bar.
BOUND, SCALED, BARRED = "unscaled upper bound", "scaled, without an error bar", "scaled, with an error bar"
# Quantities that follow from times of points alone, and whether they rise (1) or fall (-1) as the GPU is quicker.
FORETOLD = {
    "training.speedup": 1,
    "training.rate": 1,
    "generation.tokens_per_s": 1,
    "bandwidth.rate": 1,
    "bandwidth.over_desktop": 1,
    "inference.latency_s": -1,
}
# What quantities read of a node beside the times: the counts of its models.
_BESIDE = ("models",)


@dataclass(frozen=True)
class Predicted:
    """What a chip is foretold to do beside the CPUs that were measured.

    data: the CPUs' rows and those of the chip, as a device of every node that has measured a CPU. how: of the
    predictions, by experiment, the weakest one. points: of shape (points,), with seconds and how.
    """

    chip: Chip
    data: Dataset
    points: pd.DataFrame

    def how(self, *experiments: str) -> str:
        """How the weakest prediction of these experiments is made; '' without any."""
        found = set(self.points.loc[self.points["experiment"].isin(experiments), "how"])
        return next((how for how in (BOUND, SCALED, BARRED) if how in found), "")

    def made(self, cells: Estimates) -> list[str]:
        """How each cell is made: as the weakest prediction behind it; '' where none is."""
        first = len(self.data.table) - self.n_rows
        hows = list(self.points["how"]) * (self.n_rows // max(1, len(self.points)))
        found = []
        for behind in cells.frame["source_rows"]:
            mine = {hows[number - first] for number in behind if number >= first}
            found.append(next((how for how in (BOUND, SCALED, BARRED) if how in mine), ""))
        return found

    @property
    def n_rows(self) -> int:
        """Rows of predictions, which are the last of the table: the points beside each host."""
        return int((self.data.table["device"] == self.chip.device).sum())

    def cells(self, quantity: Quantity) -> Estimates:
        """The quantity's cells of the chip, and of CPUs where it has them. Raises MissingSourceError."""
        if quantity.name not in FORETOLD:
            raise MissingSourceError(f"nothing foretells {quantity.name}")
        cells = quantity.cells(self.data)
        return self.known_best(cells) if "precision" in cells.labels else cells

    def known_best(self, cells: Estimates) -> Estimates:
        """Without predictions of a step at its best format where the quickest format is not foretold.

        A bound in NARROW holds for wider formats too: no chip's rated arithmetic is higher in them, and the
        optimiser moves as much.
        """
        steps = self.points[(self.points["experiment"] == "training") & (self.points["dtype"] == NARROW)]
        complete = {(one["model"], one["batch"]) for one in map(json.loads, steps["params"].astype(str))}
        frame = cells.frame
        single = frame["device"] != self.chip.device
        if "precision" in frame:
            single |= frame["precision"] != "best"
        known = [pair in complete for pair in zip(frame["model"], frame["batch"], strict=True)]
        return cells.at(single.to_numpy(bool) | np.array(known, bool))


def foretell(data: Dataset, chip: Chip, shares: Reached) -> Predicted:
    """The chip's times of all points that its verified figures bound, scaled where measured chips allow it."""
    found = _strongest(_seconds(bounds(points(data), chip), shares))
    table = data.table
    kept = table["experiment"].isin(EXPERIMENTS) & (table["device"].map(device_kind) == "cpu")
    cpu = table[(kept & (table["status"] == "ok")) | table["experiment"].isin(_BESIDE)]
    hosts = sorted(set(cpu["node"]))
    rows = [_rows(found, node, chip) for node in hosts]
    whole = pd.concat([cpu, *rows], ignore_index=True) if len(found) and rows else cpu.reset_index(drop=True)
    return Predicted(chip, Dataset(data.nodes, data.reference, whole), found)


def _seconds(bound: pd.DataFrame, shares: Reached) -> pd.DataFrame:
    """Points that are bounded, with seconds, log_se, df and how each is made."""
    found = bound[bound["bound"].notna()].reset_index(drop=True)
    keys = pd.MultiIndex.from_frame(found[KEY])
    mean = shares.shares.mean(axis=1) if len(shares.shares) else pd.Series(dtype=float)
    # What measured chips reach is a share of the whole bound; half a bound is not scaled by it.
    log = mean.reindex(keys).to_numpy(float) if len(mean) else np.full(len(found), np.nan)
    scaled = found["whole"].to_numpy(bool) & ~np.isnan(log)
    error = [shares.errors.get(str(name), (np.nan, 0)) for name in found["experiment"]]
    se, chips = (np.array([one[k] for one in error], float) for k in (0, 1))
    barred = scaled & (chips > 1)
    seconds = found["bound"].to_numpy(float) / np.exp(np.where(scaled, log, 0.0))
    return found.assign(
        seconds=seconds,
        # A bound is exact: its figures are rated and counted.
        log_se=np.where(barred, se, np.where(scaled, np.nan, 0.0)),
        df=np.where(barred, chips - 1, np.inf),
        how=np.where(barred, BARRED, np.where(scaled, SCALED, BOUND)),
    )


def _strongest(found: pd.DataFrame) -> pd.DataFrame:
    """Without bounds of a point in one format where another format's time is scaled: among both the bound, which is
    loose, would always be the best."""
    scaled = (found["how"] != BOUND).groupby([found["experiment"], found["params"]]).transform("any")
    return found[(found["how"] != BOUND) | ~scaled.astype(bool)].reset_index(drop=True)


def _rows(found: pd.DataFrame, node: str, chip: Chip) -> pd.DataFrame:
    """Predictions in the columns of the summary, beside a node's CPU."""
    seconds = found["seconds"].to_numpy(float)
    return found[KEY].assign(
        node=node, device=chip.device, backend=TIER, threads=0, metric="time", unit="s", status="ok", reason="",
        stop_reason="", n_rounds=0, n_samples=0, estimate=seconds, low=np.nan, high=np.nan, log_se=found["log_se"],
        df=found["df"], flop=found["flop"], bytes=found["bytes"], flop_per_s=found["flop"] / seconds,
        bytes_per_s=found["bytes"] / seconds, error=np.nan, tolerance=np.nan, flags="", origin=TIER,
    )  # fmt: skip
