"""Whole training runs by batch size: accuracy, its spread over seeds, and the time to a target accuracy.

The page also compares each device's losses to PyTorch's on the CPU in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from report.data.table_rows import row_dicts
from report.estimates import device_kind
from report.formatting import capitalize, format_count, format_number, join_words, two_digits, with_unit
from report.pages.chart_rows import alt_text, figure_suffix, percent_case
from report.pages.charts import Chart, estimate_chart, line_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import sentence, shares
from report.pages.verdict_words import BARS
from report.quantities.convergence import FEWEST_BATCHES, RULES

_NET = ["data", "model", "epochs", "dtype", "backend", "threads"]
# Smallest lower bound to draw for an interval: the logarithmic axis has no zero.
_NEXT_TO_NOTHING = 1e-3
_RATES = (
    "The learning rate is fixed, linear in the batch, or tuned: the best of several for each batch, chosen on a "
    "separate validation set."
)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each device the test error, accuracy spread, time to a target accuracy, and agreement of losses."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        name = figure_suffix(place, device)
        yield from _accuracy_exhibit(view, device, name)
        yield from _spread_exhibit(view, device, name)
        yield from _time_exhibit(view, device, name)
        yield from _agreement_exhibit(view, device, name)


def _values_by_batch(view: View, device: str, what: str) -> pd.DataFrame:
    """Return the quantity `what` by network, learning-rate rule and batch size.

    Networks measured at fewer than FEWEST_BATCHES batch sizes are left out.
    """
    table = pd.DataFrame(records(view.quantity(f"convergence.{what}", device=device)))
    if not len(table):
        return table
    table = table[table.groupby(_NET, observed=True)["batch"].transform("nunique") >= FEWEST_BATCHES]
    table = table.assign(net=table["data"] + ", " + table["model"], batch=table["batch"].astype(int))
    return table.sort_values(["net", "batch"])


def _slopes(view: View, device: str, what: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return how `what` changes when the batch size doubles, with tuned learning rates.

    The first list is for equally many passes over the images, the second for equally many weight updates.
    """
    slopes = []
    for name in (f"convergence.{what}_per_doubling", f"convergence.{what}_per_doubling_of_equal_updates"):
        slopes.append(records(view.quantity(name, device=device, learning_rate="tuned")))
    return slopes[0], slopes[1]


def _slope_table(passes: list[dict[str, Any]], updates: list[dict[str, Any]], of: str) -> Table:
    rows = [[f"{case['data']}, {case['model']}", fixed, str(case["detail"]),
             format_estimate(percent_case(case), "points")]
            for fixed, cases in (("passes over the images", passes), ("updates", updates))
            for case in cases]  # fmt: skip
    return Table(["Data, model", "Equal", "Batches", "A doubling changes it by"], rows, "lllr",
                 f"{of} with the learning rate tuned")  # fmt: skip


def _accuracy_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    table = _values_by_batch(view, device, "accuracy")
    passes, updates = _slopes(view, device, "accuracy")
    if not len(table) or not passes:
        return
    errors = table.assign(estimate=100 * (1 - table["estimate"]), low=100 * (1 - table["high"]),
                          high=100 * (1 - table["low"]))  # fmt: skip
    errors["low"] = errors["low"].clip(lower=_NEXT_TO_NOTHING)
    tuned = errors[errors["learning_rate"] == "tuned"]
    # Sort the learning-rate rules as in RULES, because the legend follows the row order.
    panels = errors.assign(rule=errors["learning_rate"].map(RULES.index)).sort_values(["net", "rule", "batch"])
    panels = panels.rename(columns={"learning_rate": "learning rate"})
    ends = {
        str(net): (row_dicts(group)[0], row_dicts(group)[-1])
        for net, group in tuned.groupby("net", sort=False, observed=True)
    }
    worse = sum(case["high"] < 0 for case in passes)
    network = str(tuned["net"].mode()[0])
    first, last = ends[network]
    n_worse_updates = sum(case["high"] < 0 for case in updates)
    worse_in = (
        f"{capitalize(_count_networks(worse, len(passes)))} {'makes' if len(passes) == 1 else 'make'} more errors when "
        "trained in larger batches, even with the learning rate tuned"
        if worse
        else "With the learning rate tuned, larger batches do not certainly bring more errors"
    )
    title = sentence(
        f"{worse_in}: {{first}} with {first['batch']:,} images, {{last}} with {last['batch']:,} ({network})",
        worse_in,
        **{name: shares([_percent_to_share(end)]) for name, end in (("first", first), ("last", last))},
    )
    yield Exhibit(
        Chart(
            f"convergence-error-{name}",
            str(title),
            line_chart(panels, "batch", "estimate", "learning rate", "net",
                       ("images in a batch", "test images classified wrongly (%)")),
            f"● measured on {view.device_name(device)}, after equal passes over the images. {BARS} over "
            "seeds.",
            _alt_text(tuned, "%"),
        ),
        [_RATES,
         *([f"After equally many updates, so that larger batches see more images, accuracy certainly falls in "
            f"{_count_networks(n_worse_updates, len(updates))}."] if updates else [])],
        _slope_table(passes, updates, "Accuracy"),
        ["G13"],
        title,
    )  # fmt: skip


def _percent_to_share(case: Mapping[str, Any]) -> dict[str, float]:
    """Convert a case's estimate and bounds from percent to fractions."""
    return {end: float(case[end]) / 100 for end in ("estimate", "low", "high")}


def _count_networks(many: int, total: int) -> str:
    """Format a count: 'both networks', '2 of 3 networks', 'none of 3 networks', 'the network tried'."""
    if total == 1:
        return "the network tried" if many else "no network tried"
    if many == total:
        return "both networks" if total == 2 else f"all {total} networks"
    return f"{many or 'none'} of {total} networks"


def _alt_text(table: pd.DataFrame, unit: str) -> str:
    return "; ".join(
        f"{net}: "
        + join_words([f"{two_digits(row['estimate'])}{unit} at {row['batch']:,}" for row in row_dicts(group)])
        for net, group in table.groupby("net", sort=False, observed=True)
    )


def _spread_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    table = _values_by_batch(view, device, "spread")
    passes, updates = _slopes(view, device, "spread")
    if not len(table) or not passes:
        return
    ends = ("estimate", "low", "high")
    points = table.assign(**{end: 100 * table[end] for end in ends})
    points = points[(points["estimate"] > 0) & (points["learning_rate"] == "tuned")]
    points["low"] = points["low"].clip(lower=_NEXT_TO_NOTHING)
    more, less = sum(case["low"] > 0 for case in passes), sum(case["high"] < 0 for case in passes)
    yield Exhibit(
        Chart(
            f"convergence-spread-{name}",
            _spread_title(more, less, len(passes)),
            line_chart(points, "batch", "estimate", "net", axis=("images in a batch", "spread of accuracy (points)")),
            f"● measured on {view.device_name(device)}: standard deviation of the test accuracy over "
            f"{format_count(int(table['n_samples'].max()), 'seed')}, in percentage points, with the learning rate "
            f"tuned. {BARS}.",
            _alt_text(points, " points"),
        ),
        ["A network counts if doubling the batch clearly helps or clearly hurts: the whole interval lies on one side "
         "of 0."],
        _slope_table(passes, updates, "Spread of accuracy"),
        ["G13"],
    )  # fmt: skip


def _spread_title(more: int, less: int, total: int) -> str:
    """Return a title on how many of `total` networks get a larger or smaller spread; the larger count comes first."""
    if not more and not less:
        return "Larger batches make accuracy neither certainly steadier nor certainly less steady"
    first, second = sorted(((more, "less steady"), (less, "steadier")), reverse=True)
    rest = f" and {second[1]} in {second[0] or 'none'}" if total > 1 else ""
    return f"Larger batches make accuracy {first[1]} in {_count_networks(first[0], total)}{rest}"


def _time_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    table = _values_by_batch(view, device, "time_to_target_s")
    table = table[table["learning_rate"] == "tuned"] if len(table) else table
    table = (
        table[table.groupby(_NET, observed=True)["batch"].transform("nunique") >= FEWEST_BATCHES]
        if len(table)
        else table
    )
    if not len(table):
        return
    best = table.loc[table.groupby("net", observed=True)["estimate"].idxmin()]
    batches = [f"{row['batch']:,} ({row['net']})" for row in row_dicts(best)]
    batches = [f"{best['batch'].iloc[0]:,} images"] if best["batch"].nunique() == 1 else batches
    title = sentence(f"The target accuracy is reached soonest with batches of {join_words(batches)}")
    yield Exhibit(
        Chart(
            f"convergence-time-{name}",
            str(title),
            line_chart(table[["net", "batch", "estimate", "low", "high"]], "batch", "estimate", "net",
                       axis=("images in a batch", "seconds to the target")),
            f"● measured on {view.device_name(device)}, with the learning rate tuned for each batch. Bars: 99% "
            "intervals over seeds.",
            _alt_text(table, " s"),
        ),
        ["A batch size is left out if any seed never reached the target."],
        Table(["Data, model", "Batch", "Time to the target"],
              [[row["net"], f"{row['batch']:,}", format_estimate(row, "s")] for row in row_dicts(table)], "lrr",
              "Time to the target accuracy"),
        heading=title,
    )  # fmt: skip


def _agreement_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show how far losses lie from PyTorch's on the CPU in float32, as a percentage of the tolerance."""
    keys = ["model", "dtype", "backend"]
    deviations = pd.DataFrame(records(view.cases("equivalence", "loss_deviation", device=device)))
    allowed = pd.DataFrame(records(view.cases("equivalence", "loss_tolerance", device=device)))
    if not len(deviations) or not len(allowed):
        return
    merged = deviations.merge(allowed.groupby(keys, observed=True)["estimate"].max().rename("allowed"), on=keys)
    merged["share"] = 100 * merged["estimate"] / merged["allowed"]
    merged = (
        merged.groupby(keys, observed=True)[["estimate", "allowed", "share"]].max().reset_index().sort_values("share")
    )
    beyond = int((merged["share"] > 100).sum())
    rows = [{"label": f"{row['model']}, {row['dtype']}, {row['backend']}", "estimate": max(row["share"], 1e-3),
             "low": None, "high": None, "text": f"{format_number(row['share'], 2)}%"}
            for row in row_dicts(merged)]  # fmt: skip
    gpu, exact = device_kind(device) == "gpu", float(merged["share"].max()) / 100
    where = "The GPU" if gpu else "Other libraries and number formats"
    title = sentence(
        f"In {beyond} of {len(rows)} comparisons the losses lie further from plain PyTorch's on the CPU than is allowed"
        if beyond else
        f"{where} {'trains' if gpu else 'train'} as PyTorch on the CPU does: losses differ by at most {{share}} of "
        "what is allowed",
        **({} if beyond else {"share": shares([{"estimate": exact, "low": exact, "high": exact}])}),
    )  # fmt: skip
    yield Exhibit(
        Chart(
            f"convergence-losses-{name}",
            str(title),
            estimate_chart(rows, "largest difference of the losses, over what is allowed (%)", [100.0],
                           "what is allowed",
                           log=True),
            f"● measured on {view.device_name(device)} over {deviations['steps'].astype(int).max()} steps from equal "
            "weights with equal batches, against plain PyTorch in float32.",
            alt_text(rows),
        ),
        [],
        Table(["Model", "Format", "Library", "Difference", "Allowed"],
              [[row["model"], row["dtype"], row["backend"], with_unit(row["estimate"], "1", 2),
                with_unit(row["allowed"], "1", 2)] for row in row_dicts(merged)], "lllrr",
              "Largest difference of the losses, over the first loss"),
        ["G23"] if gpu else [],
        title,
    )  # fmt: skip


FAMILY = Family(
    "convergence", "The batch, the accuracy and its steadiness",
    "Do larger batches make training more accurate, steadier or faster?", show,
)  # fmt: skip
