"""From rows of the summary to what is drawn: points with their intervals, names, colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from report.estimates import Estimates
from report.formatting import count, interval, with_unit
from report.render.figures import MARKERS, SERIES

# Number formats in the order in which they are told.
FORMATS = ("float32", "float64", "tf32", "bfloat16", "float16")


def formats(names: Iterable[Any]) -> list[str]:
    """Number formats, each once and in order; others after them."""
    found = set(map(str, names))
    return [*(name for name in FORMATS if name in found), *sorted(found - set(FORMATS))]


def who(name: Any, threads: Any) -> str:
    """'torch, 2 threads'; the name alone where threads do not apply."""
    return f"{name}, {count(int(threads), 'thread')}" if threads else str(name)


def fewest_and_most(points: pd.DataFrame) -> pd.DataFrame:
    """The points with the fewest and the most threads: what lies between is told under scaling."""
    threads = points["threads"]
    return points[threads.isin([threads.min(), threads.max()])].copy()


def hollow(points: pd.DataFrame) -> str:
    """What hollow and filled marks mean in a figure of the fewest and the most threads, for its caption."""
    threads = sorted(set(points["threads"].astype(int)))
    if len(threads) < 2 or threads[0] != 1:
        return f", {count(threads[0], 'thread')}" if threads[0] else ""
    return f" (hollow: 1 thread, filled: {count(threads[-1], 'thread')})"


def colours(names: Iterable[Any]) -> dict[Any, list[str]]:
    """A colour and a mark for each name, the same in every panel; names that come with an order keep it."""
    found = list(names) if isinstance(names, Mapping | list | tuple) else sorted(set(names))
    return {name: [SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)]] for i, name in enumerate(found)}


def rates(line: pd.DataFrame, work: str) -> dict[str, list[Any]]:
    """Points along column x: work per second. The shortest time is the highest rate."""
    done = line.sort_values("x")[work].astype(float)
    return _points(line, lambda times: done / times, turned=True)


def times(line: pd.DataFrame) -> dict[str, list[Any]]:
    """Points along column x: what was measured, as it is."""
    return _points(line, lambda values: values, turned=False)


def _points(line: pd.DataFrame, value: Callable[[pd.Series], pd.Series], turned: bool) -> dict[str, list[Any]]:
    line = line.sort_values("x")
    low, high = ("high", "low") if turned else ("low", "high")
    columns = {"y": line["estimate"], "low": line[low], "high": line[high]}
    told = {name: [known(one) for one in value(column)] for name, column in columns.items()}
    return {"xs": [float(x) for x in line["x"]], **told}


def series(
    points: Mapping[str, list[Any]],
    label: str,
    look: list[str],
    hollow: bool = False,
    joined: bool = True,
    told: str = "",
) -> dict[str, Any]:
    """Points as a series of a sweep. hollow: marks and dashes; told: its label in words, where that says more."""
    return {**points, "label": label, "told": told or label, "look": look, "dashed": hollow, "joined": joined}


def filled(series: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The series that have points."""
    return [one for one in series if one["xs"]]


def records(cells: Estimates) -> list[dict[str, Any]]:
    """Cells one by one: their labels and values by name."""
    rows = zip(cells.frame.to_dict("records"), cells.all_label_values(), strict=True)
    return [{**{str(name): value for name, value in row.items()}, **labels} for row, labels in rows]


def mark(cell: Mapping[str, Any], look: list[str], hollow: bool = False) -> dict[str, Any]:
    """A cell or a row as a mark of a dot plot."""
    values = {name: known(cell[name]) for name in ("estimate", "low", "high")}
    return {**values, "look": look, "hollow": hollow}


def ratio(cells: Estimates, over: int, under: int) -> dict[str, Any]:
    """One cell of a node over another one, with the interval of the ratio."""
    quotient = cells.at([over]).by("node") / cells.at([under]).by("node")
    return dict(quotient.frame.iloc[0])


def over(above: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """The ratio of two records of times or rates, or of two rows of the summary, with its interval."""
    sides = [
        Estimates.from_estimates(
            pd.DataFrame(
                [
                    {
                        **{name: one[name] for name in ("estimate", "df", "n_rounds", "n_samples")},
                        "se": one["se"] if "se" in one else one["log_se"],
                    }
                ]
            )
        )
        for one in (above, below)
    ]
    return dict((sides[0] / sides[1]).frame.iloc[0])


def factor(cell: Mapping[str, Any]) -> str:
    """A ratio with its interval, '×1.90 [1.81, 1.99]'; says so where none is known, for a bare ratio says little."""
    return f"×{interval(float(cell['estimate']), known(cell['low']), known(cell['high']), '1')}"


def multiple(cell: Mapping[str, Any]) -> str:
    """The same in a sentence: '1.90 [1.81, 1.99] times'."""
    return f"{factor(cell).removeprefix('×')} times"


def known(value: Any) -> float | None:
    """A number, or None where a table has none."""
    return None if pd.isna(value) else float(value)


def stated(cell: Mapping[str, Any], unit: str) -> str:
    """An estimate with its interval in words, '4.42 [4.31, 4.53] GFLOP/s'; without one where none is known."""
    if pd.isna(cell["low"]) or pd.isna(cell["high"]):
        return with_unit(float(cell["estimate"]), unit)
    return interval(float(cell["estimate"]), float(cell["low"]), float(cell["high"]), unit)
