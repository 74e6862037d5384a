"""Roofline: the highest rate that memory and arithmetic allow a step, and times predicted from few numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from report.data.table_rows import row_dicts
from report.formatting import format_part, join_words, two_digits, with_unit
from report.pages.chart_rows import alt_text, as_percent, estimate_row, figure_suffix, percent_case
from report.pages.charts import INK, Chart, estimate_chart, heat_map, line_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Number, amounts, as_share, filled_texts, ratios, sentence, shares
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.prediction import predict_places
from report.quantities.roofline import peak_arithmetic, peak_bandwidth

PHASES = {
    "training": "training", "forward": "answering", "prefill": "reading prompts", "decode": "writing text",
}  # fmt: skip
WORKS = {
    "gemm": "products", "bandwidth": "passes over memory", "offload": "requests",
    "training": "training steps", "forward": "answers", "prefill": "prompts", "decode": "tokens",
}  # fmt: skip
_NUMBERS = {2: "two", 3: "three", 4: "four"}
Ceilings = dict[str, dict[str, float]]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show per device the roofline, the time share of memory-bound operators, and predictions from few properties."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        name = figure_suffix(place, device)
        steps = view.points("roofline", "time", device)
        steps = steps[(steps["flop"] > 0) & (steps["bytes"] > 0)] if len(steps) else steps
        if len(steps):
            steps = steps[steps["threads"] == steps["threads"].max()]
            ceilings = _ceilings(view, device, int(steps["threads"].max()))
            steps = steps[steps["dtype"].isin(list(ceilings))]
        if len(steps):
            yield _roofline_exhibit(view, device, name, steps, ceilings)
            yield from _memory_bound_exhibit(view, device, name, int(steps["threads"].max()))
        yield from _prediction_exhibit(view, device, name)


def _ceilings(view: View, device: str, threads: int) -> Ceilings:
    """Return peak, bandwidth and balance (peak / bandwidth) per number format, for a thread count."""
    at = {"node": view.node, "device": device, "threads": threads}
    moved = [float(case["estimate"]) for case in records(peak_bandwidth(view.data).filter(**at))]
    peaks = {str(case["dtype"]): float(case["estimate"]) for case in records(peak_arithmetic(view.data).filter(**at))}
    return {
        dtype: {"peak": peak, "bandwidth": moved[0], "balance": peak / moved[0]}
        for dtype, peak in peaks.items()
        if moved
    }


def _roofline_exhibit(view: View, device: str, name: str, steps: pd.DataFrame, ceilings: Ceilings) -> Exhibit:
    steps = steps.sort_values(["dtype", "phase", "flop"], ascending=[False, True, True])
    table = steps.assign(x=steps["flop"] / steps["bytes"], rate=steps["flop"] / steps["estimate"] / 1e9)
    table = table.assign(low=steps["flop"] / steps["high"] / 1e9, high=steps["flop"] / steps["low"] / 1e9)
    table["kind"] = table["phase"].map(PHASES)
    table["ceiling"] = [
        min(ceilings[dtype]["peak"], x * ceilings[dtype]["bandwidth"]) / 1e9
        for dtype, x in zip(table["dtype"], table["x"], strict=True)
    ]
    table["share"] = table["rate"] / table["ceiling"]
    reached = [_limit_share(row, ceilings[row["dtype"]]) for row in row_dicts(table)]
    title = sentence(
        "Whole steps reach {share} of the rate that memory and arithmetic allow",
        "What whole steps reach of the rate that memory and arithmetic allow cannot be told from this run",
        share=shares(reached),
    )
    cached = sum(share.value > 1 and not share.impossible for share in reached)
    balances = [f"{two_digits(ceilings[dtype]['balance'])} FLOP/B in {dtype}" for dtype in table["dtype"].unique()]
    rows = [
        [_step_label(row), with_unit(row["x"], "FLOP/B"), with_unit(row["rate"] * 1e9, "FLOP/s"), _format_share(share)]
        for row, share in zip(row_dicts(table), reached, strict=True)
    ]
    return Exhibit(
        Chart(
            f"roofline-{name}",
            str(title),
            _draw_roofline(table, ceilings),
            f"● measured on {view.device_name(device)}. {BARS}. The black line is the highest rate that "
            "the measured bandwidth of memory (slope) and the measured peak of arithmetic (level) allow; what caches "
            "hold may lie above the slope.",
            "; ".join(f"{row[0]}: {row[2]} at {row[1]}, {row[3]} of the limit" for row in rows),
        ),
        [f"Slope and level meet at {join_words(balances)}. Work that does fewer operations for each byte is limited by "
         "memory, other work by arithmetic.",
         *([f"{format_part(cached, len(reached), 'steps', 'runs', 'run')} faster than main memory allows: caches hold "
            "a part of the data."] if cached else [])],
        Table(["Step", "Operations for each byte", "Rate", "Of the limit"], rows, "lrrr",
              f"Whole steps on {view.device_name(device)}"),
        ["G01"],
        title,
    )  # fmt: skip


def _limit_share(row: Mapping[Any, Any], roof: Mapping[str, float]) -> Number:
    """Return a step's rate as a fraction of its roofline limit.

    A rate above the arithmetic peak is impossible. A rate that is only above what main memory allows is possible,
    because caches may hold data.
    """
    limit = min(roof["peak"], row["x"] * roof["bandwidth"]) / 1e9
    ends = {"estimate": row["rate"] / limit, **{end: row[end] / limit for end in ("low", "high")}}
    over_peak = {end: value * limit * 1e9 / roof["peak"] for end, value in ends.items()}
    whole = as_share(over_peak, _step_label(dict(row)), "the measured peak of arithmetic")
    share = as_share(ends)
    return whole if whole.impossible else replace(share, most=math.inf) if share.impossible else share


def _format_share(share: Number) -> str:
    """Format a fraction from `_limit_share` for a table; a fraction above 1 is replaced by words."""
    if share.impossible:
        return "more than the peak: disturbed"
    return "beyond memory: cached" if share.value > 1 else as_percent(share.value)


def _draw_roofline(table: pd.DataFrame, ceilings: Ceilings) -> Callable[[float], Figure]:
    """Return a function that draws steps as points and the ceilings as a line, a panel per number format."""
    chart = line_chart(table, "x", "rate", "kind", "dtype", ("operations for each byte moved (FLOP/B)", "GFLOP/s"),
                       joined=False)  # fmt: skip

    def draw(width: float) -> Figure:
        figure = chart(width)
        panels = list(dict.fromkeys(table["dtype"]))
        balances = [ceilings[dtype]["balance"] for dtype in panels]
        first, last = min([*table["x"], *balances]) / 1.6, max([*table["x"], *balances]) * 1.6
        for axes, dtype in zip(figure.axes, panels, strict=False):
            roof = ceilings[dtype]
            xs = np.array([first, roof["balance"], last])
            axes.plot(xs, np.minimum(xs * roof["bandwidth"], roof["peak"]) / 1e9, color=INK, linewidth=1.4, zorder=1)
            axes.set_xlim(first, last)
            axes.set_ylim(top=max(roof["peak"] for roof in ceilings.values()) / 1e9 * 1.4)
        return figure

    return draw


def _step_label(row: dict[Any, Any], dtype: bool = True) -> str:
    batch = f", batch {int(row['batch']):,}" if row["batch"] > 1 else ""
    return f"{PHASES[row['phase']]}: {row['model']}{batch}{', ' + row['dtype'] if dtype else ''}"


def _memory_bound_exhibit(view: View, device: str, name: str, threads: int) -> Iterable[Exhibit]:
    """Show for each step the share of time in operators that memory limits.

    The chart has only the steps in the most common number format.
    """
    cases = records(view.quantity("roofline.memory_bound_share", device=device, threads=threads))
    cases = sorted(cases, key=lambda case: (list(PHASES).index(case["phase"]), -case["estimate"], case["model"]))
    if not cases:
        return
    usual = pd.Series([case["dtype"] for case in cases]).mode()[0]
    shown = [case for case in cases if case["dtype"] == usual]
    text, places = [], {}
    for phase, words in (("decode", "writing text"), ("training", "training steps")):
        in_phase = [case for case in shown if case["phase"] == phase]
        if in_phase:
            text.append(f"{{{phase}}} of the time of {words}")
            places[phase] = shares(in_phase)
    title = sentence(
        f"Memory limits {join_words(text or ['{time} of the time'])}",
        "How much of the time memory limits cannot be told from this run",
        **(places or {"time": shares(shown[:1])}),
    )
    rows = [
        estimate_row(_step_label(case, dtype=False), case, "1", 0.01, as_percent(case["estimate"])) for case in shown
    ]
    yield Exhibit(
        Chart(
            f"roofline-memory-{name}",
            str(title),
            estimate_chart(rows, "share of the operators' time (%)", log=False),
            f"● measured on {view.device_name(device)}, in {usual}. {BARS}. Counted is the time in "
            "operators for which memory is the lower of the two limits, whether they reach it or not.",
            alt_text(rows),
        ),
        [],
        Table(["Step", "Time that memory limits"],
              [[_step_label(case), format_estimate(percent_case(case), "%")] for case in cases], "lr",
              f"What memory limits on {view.device_name(device)}"),
        ["G11", "W06"],
        title,
    )  # fmt: skip


def _prediction_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show the median prediction error, by kind of work and by how many machine properties are known.

    The first two properties are peak arithmetic and memory bandwidth; the third is launch time, the fourth cache
    bandwidth.
    """
    fits = [prediction for prediction in predict_places(view.data, view.node)
             if prediction.labels["device"] == device and prediction.labels["ceilings"] == "fitted"]  # fmt: skip
    if not fits:
        return
    threads = max(fit.labels["threads"] for fit in fits)
    models = {int(fit.labels["numbers"]): fit for fit in fits if fit.labels["threads"] == threads}
    cases = view.quantity("roofline.prediction_error", device=device, threads=threads, ceilings="fitted")
    errors = {int(case["numbers"]): case for case in records(cases)}
    rows: list[dict[str, Any]] = []
    for numbers, fit in models.items():
        each = np.median(fit.errors, axis=0)
        total = len(each)
        kinds = {f"all {total}": errors[numbers]["estimate"]}
        kinds |= {f"{words} ({(fit.work == work).sum()})": float(np.median(each[fit.work == work]))
                  for work, words in WORKS.items() if (fit.work == work).any()}  # fmt: skip
        rows += [{"work": kind, "by": numbers, "error": float(error), "text": as_percent(float(error))}
                 for kind, error in kinds.items()]  # fmt: skip
    table = pd.DataFrame(rows)
    order = list(dict.fromkeys(table["work"]))
    ordered = table.assign(work=pd.Categorical(table["work"], order))
    each_error = {f"by{n}": amounts([errors[n]], _format_error, limit=math.inf, most=True) for n in (2, 4)}
    title = sentence(
        f"Two numbers of a machine predict half of {total} kernels and steps to within {{by2}}, four to within {{by4}}",
        "How well few numbers of a machine predict kernels and steps cannot be told from this run",
        **each_error,
    )
    alone = records(view.quantity("roofline.bandwidth_error_over_compute_error", device=device, threads=threads))
    text = table.pivot(index="work", columns="by", values="text").reindex(order)
    yield Exhibit(
        Chart(
            f"roofline-predicted-{name}",
            str(title),
            heat_map(ordered, "by", "work", "error", ("numbers that are known", ""), "median error", "text"),
            f"◑ derived from measurements on {view.device_name(device)}. Half of the kernels of a kind lie below "
            "its median error; the numbers were fitted on other kernels.",
            "; ".join(f"{kind}: {join_words(list(map(str, text.loc[kind])))} with "
                      f"{join_words([_NUMBERS[n] for n in models])} numbers" for kind in order),
        ),
        ["Two numbers are the peak of arithmetic and the bandwidth of memory. The third is the time that a launch "
         "costs, the fourth the bandwidth of the last cache.",
         *filled_texts(sentence("From one number alone, bandwidth errs {ratio} as arithmetic.",
                                ratio=ratios([case], "as much")) for case in alone)],
        Table(["Numbers", "Median error", "Which"],
              [[_NUMBERS[n], format_estimate(percent_case(errors[n]), "%"),
                str(errors[n]["detail"]).partition("; ")[2] or NOTHING] for n in models], "lrl",
              "Errors over all kernels, and the numbers as fitted"),
        ["W35", "G18"],
        title,
    )  # fmt: skip


def _format_error(value: float) -> str:
    """Format a relative error: '29%', 'a factor of 2.5'."""
    return as_percent(value) if value < 0.995 else f"a factor of {two_digits(1 + value)}"


FAMILY = Family(
    "roofline", "The roofline: what limits a step",
    "Does memory or arithmetic limit a step, and how much does that predict?", show,
)  # fmt: skip
