"""Repeatability: compare two runs on the same machine point by point (an A/A test).

The runs differ only in the time at which they were made. If intervals are right, the 95% interval for the ratio between
the two runs contains 1 at 95% of the points. If it contains 1 at fewer points, something drifts that the rounds in one
run do not show. The table therefore has the ratio between the runs' clocks and, per experiment, the shift common to its
timed points, and the number of points that agree after removing this shift.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contract.arguments import Parser, parse_path
from contract.errors import StudyError, run_command
from contract.files import write_json
from report import statistics
from report.data.dataset import Dataset
from report.data.node_reader import read_nodes
from report.data.summary import SERIES
from report.statistics import Floats

_NUMBERS = ["estimate", "low", "high", "log_se", "df"]

# Confidence level of the interval for the ratio between two runs. It is the customary level; verdicts use a higher one.
LEVEL = 0.95
# An experiment is listed as needing explanation if less than this fraction of its points agrees.
ENOUGH = 0.9


def compare_runs(first: Path, second: Path) -> dict[str, Any]:
    """Compare the folders from two runs on the same node; return the table to print in the report.

    Raises StudyError if a folder does not hold one node, the nodes differ, or they share no point.
    """
    runs = [read_nodes([folder]) for folder in (first, second)]
    for folder, run in zip((first, second), runs, strict=True):
        if len(run.nodes) != 1:
            raise StudyError(f"{folder}: holds {len(run.nodes)} nodes: give the folder of one run of one node")
    first_node, second_node = (run.nodes[0] for run in runs)
    if first_node.id != second_node.id:
        raise StudyError(
            f"{first} is of node {first_node.id}, {second} of {second_node.id}: give two runs of the same machine"
        )
    points = compare_points(*(Dataset(run).table for run in runs))
    if not len(points):
        raise StudyError(f"{first} and {second}: no point was measured in both")
    clock = points.loc[points["experiment"].eq("clock") & points["metric"].eq("clock"), "ratio"]
    return {
        "origin": "measured",
        "level": LEVEL,
        "node": first_node.id,
        "runs": [
            {
                "started_utc": record["started_utc"],
                "ended_utc": record.get("ended_utc"),
                "commit": record["study"]["commit"],
                "preset": record.get("options", {}).get("preset"),
            }
            for record in (first_node.record, second_node.record)
        ],
        # Ratio of the clock in the second run to the clock in the first run.
        "clock": float(clock.median()) if len(clock) else None,
        "experiments": [
            _summarise_experiment(str(name), part)
            for name, part in points.groupby("experiment", sort=True, observed=True)
        ],
        "all": _count_agreement(points),
    }


def compare_points(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Compare the series that have an interval in both summaries. Returns a table with SERIES and these columns.

    ratio: second to first value; for shares, 1 plus the difference.
    low, high: interval for the ratio, at LEVEL.
    agrees: the interval contains 1; exact values must be equal.
    timed: the values vary, and their intervals are on the log scale.
    agrees_beside: the series agrees after removing the shift common to the experiment's timed series.
    """
    ok = [table.loc[table["status"] == "ok", [*SERIES, *_NUMBERS]] for table in (first, second)]
    both = ok[0].merge(ok[1], on=SERIES, suffixes=("_a", "_b"))
    a, b = ({name: both[f"{name}_{side}"].to_numpy(float) for name in _NUMBERS} for side in "ab")
    log = _is_log_scale(a) & _is_log_scale(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(log, np.log(b["estimate"] / a["estimate"]), b["estimate"] - a["estimate"])
    se, df = statistics.combine(a["log_se"], a["df"], b["log_se"], b["df"])
    half = np.where(se == 0, 0.0, statistics.half_width(se, df, LEVEL))
    # Divide the difference between two counts (steps, passes) by the first count, to make it relative. Divide the
    # difference between two shares by 1, so that it stays absolute.
    of = np.maximum(np.abs(a["estimate"]), 1.0)
    ends = [np.where(log, np.exp(end), 1 + end / of) for end in (apart, apart - half, apart + half)]
    timed = log & (half > 0)
    table = both[SERIES].assign(ratio=ends[0], low=ends[1], high=ends[2], agrees=np.abs(apart) <= half, timed=timed)
    shared = (
        pd.Series(np.where(timed, apart, np.nan))
        .groupby(table["experiment"], observed=True)
        .transform("median")
        .fillna(0)
    )
    beside = np.where(timed, np.abs(apart - shared) <= half, table["agrees"])
    return table.assign(agrees_beside=beside)[~np.isnan(half)].reset_index(drop=True)


def _is_log_scale(side: dict[str, Floats]) -> NDArray[np.bool_]:
    """Tell for each interval if it was computed on the log scale, where log(high / estimate) equals its half-width."""
    half = np.where(side["log_se"] == 0, 0.0, statistics.half_width(side["log_se"], side["df"]))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.isclose(np.log(side["high"] / side["estimate"]), half, rtol=1e-6, atol=1e-12))


def _summarise_experiment(name: str, points: pd.DataFrame) -> dict[str, Any]:
    """Count an experiment's points that agree, before and after removing the shift common to its timed points.

    The result also has this shift, and the point whose two values differ most.
    """
    ratio = points["ratio"].to_numpy(float)
    worst = points.iloc[int(np.argmax(np.abs(np.log(np.where(ratio > 0, ratio, 1.0)))))]
    labels = {key: str(worst[key]) for key in SERIES if key not in ("node", "experiment") and str(worst[key])}
    timed = points.loc[points["timed"], "ratio"]
    return {
        "experiment": name,
        **_count_agreement(points),
        "shift": float(timed.median()) if len(timed) else 1.0,
        "agree_beside": int(points["agrees_beside"].sum()),
        "worst": {**labels, "ratio": float(worst["ratio"])},
    }


def _count_agreement(points: pd.DataFrame) -> dict[str, Any]:
    return {
        "points": len(points),
        "agree": int(points["agrees"].sum()),
        "median_apart": float((points["ratio"] - 1).abs().median()),
    }


def format_table(table: Mapping[str, Any]) -> str:
    """Format the table as plain text, with the least repeatable experiment first."""
    rows = pd.json_normalize(table["experiments"]).set_index("experiment")
    rows.insert(2, "share", rows["agree"] / rows["points"])
    rows = rows.sort_values(["share", "experiment"])
    few = rows.index[rows["share"] < ENOUGH]
    rows.loc["all"] = pd.Series({**table["all"], "share": table["all"]["agree"] / table["all"]["points"]})
    clock = f"clock of the second run over the first: x{table['clock']:.3f}\n" if table["clock"] is not None else ""
    table_text = rows.to_string(float_format="{:.4g}".format, na_rep="")
    return f"{table_text}\n{clock}below {ENOUGH:.0%}: {', '.join(few) or 'none'}"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two runs and print the table; with `--out`, also write it to a file."""
    parser = Parser(prog="python -m studies.repeatability", description=__doc__)
    parser.add_argument("first", type=parse_path, metavar="DIR", help="node folder from the first run")
    parser.add_argument("second", type=parse_path, metavar="DIR", help="node folder from the second run")
    parser.add_argument("--out", type=parse_path, metavar="FILE", help="JSON file for the table that the report shows")
    options = parser.parse_args(argv)
    table = compare_runs(options.first, options.second)
    if options.out:
        write_json(options.out, table)
    print(format_table(table))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
