"""Roofline: the highest rate that memory and arithmetic allow a step, and times predicted from few numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from report.data.gpu_specs import PEAKS, GpuSpecs, gpu_specs
from report.data.table_rows import row_dicts
from report.formatting import format_part, host_label, join_words, two_digits, with_unit
from report.pages.chart_rows import alt_text, as_percent, estimate_row, figure_suffix, format_rough, percent_case
from report.pages.charts import (
    INK,
    MUTED,
    Chart,
    add_legend,
    estimate_chart,
    heat_map,
    is_narrow,
    line_chart,
    set_scale,
)
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Number, amounts, as_share, filled_texts, ratios, sentence, shares
from report.pages.verdict_words import BARS, NOTHING, TIERS
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
# Column headings by how many of a machine's numbers are known.
_KNOWN = {2: "peak and bandwidth", 3: "+ launch time", 4: "+ cache bandwidth"}
Ceilings = dict[str, dict[str, float]]
# Number format of the figure with GPUs' rated roofs, and the names of their figures in the reference.
ROOF_FORMAT = "float32"
_PEAK, _BANDWIDTH = PEAKS[ROOF_FORMAT], "memory_bytes_per_s"
# Steps with a number in a roofline figure, and line styles of rated roofs.
NAMED = 5
LINES: tuple[Literal["--", "-.", ":"], ...] = ("--", "-.", ":")


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show a CPU below the rated roofs of GPUs; then per device the roofline, memory-bound time and predictions."""
    yield from _gpu_roof_exhibit(evidence)
    yield from exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        name = figure_suffix(place, device)
        steps, ceilings = _steps_below_ceilings(view, device)
        if len(steps):
            yield _roofline_exhibit(view, device, name, steps, ceilings)
            yield from _memory_bound_exhibit(view, device, name, int(steps["threads"].max()))
        yield from _prediction_exhibit(view, device, name)


def _steps_below_ceilings(view: View, device: str) -> tuple[pd.DataFrame, Ceilings]:
    """Return a device's steps with the most threads whose number format has ceilings, a row per step; and the ceilings.

    The columns x (FLOP/B), rate, low, high and ceiling (GFLOP/s), kind and share are added.
    """
    steps = view.points("roofline", "time", device)
    steps = steps[(steps["flop"] > 0) & (steps["bytes"] > 0)] if len(steps) else steps
    if not len(steps):
        return steps, {}
    steps = steps[steps["threads"] == steps["threads"].max()]
    ceilings = _ceilings(view, device, int(steps["threads"].max()))
    steps = steps[steps["dtype"].isin(list(ceilings))]
    steps = steps.sort_values(["dtype", "phase", "flop"], ascending=[False, True, True])
    table = steps.assign(
        x=steps["flop"] / steps["bytes"],
        kind=steps["phase"].map(PHASES),
        **{rate: steps["flop"] / steps[time] / 1e9
           for rate, time in (("rate", "estimate"), ("low", "high"), ("high", "low"))},
    )  # fmt: skip
    table["ceiling"] = [
        min(ceilings[dtype]["peak"], x * ceilings[dtype]["bandwidth"]) / 1e9
        for dtype, x in zip(table["dtype"], table["x"], strict=True)
    ]
    return table.assign(share=table["rate"] / table["ceiling"]), ceilings


def _ceilings(view: View, device: str, threads: int) -> Ceilings:
    """Return peak, bandwidth and balance (peak / bandwidth) per number format, for a thread count.

    The bounds of peak and bandwidth have the keys peak_low, peak_high, bandwidth_low and bandwidth_high.
    """
    at = {"node": view.node, "device": device, "threads": threads}
    moved = records(peak_bandwidth(view.data).filter(**at))
    return {
        str(peak["dtype"]): {
            **_roof(float(peak["estimate"]), float(moved[0]["estimate"])),
            **{f"{name}_{end}": float(case["estimate"] if pd.isna(case[end]) else case[end])
               for name, case in (("peak", peak), ("bandwidth", moved[0])) for end in ("low", "high")},
        }
        for peak in records(peak_arithmetic(view.data).filter(**at))
        if moved
    }  # fmt: skip


def _gpu_roof_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Show a CPU's steps below its measured roof, and the rated roofs of GPUs, all in float32.

    The CPU is the one with the most steps. The user's own CPUs come first, then CPUs with narrow intervals of their
    limits.
    """
    known = [(view, *_steps_below_ceilings(view, "cpu")) for view in evidence.views]
    processors = [
        (view, steps[steps["dtype"] == ROOF_FORMAT], ceilings[ROOF_FORMAT])
        for view, steps, ceilings in known
        if ROOF_FORMAT in ceilings and (steps["dtype"] == ROOF_FORMAT).any()
    ]
    chips = _spread_gpus(evidence)
    if not processors or not chips:
        return
    view, steps, roof = max(processors, key=lambda cpu: (cpu[0].own, _is_precise(cpu[2]), len(cpu[1])))
    roofs = {chip.name: _roof(chip.figures[_PEAK], chip.figures[_BANDWIDTH]) for chip in chips}
    above = {
        name: [_divide_rating(chip.figures[figure], roof, name) for chip in chips]
        for name, figure in (("bandwidth", _BANDWIDTH), ("peak", _PEAK))
    }
    processor = host_label(view.record)
    title = sentence(
        f"GPUs are rated at {{bandwidth}} times the memory bandwidth and {{peak}} times the arithmetic of {processor}",
        f"The rated limits of GPUs lie above all steps of {processor}",
        **{name: amounts(numbers, format_rough) for name, numbers in above.items()},
    )
    rated = [[chip.name, with_unit(chip.figures[_BANDWIDTH], "B/s"), with_unit(chip.figures[_PEAK], "FLOP/s")]
             for chip in chips]  # fmt: skip
    measured, documented = TIERS["measured"].sign, TIERS["documented"].sign
    yield Exhibit(
        Chart(
            "roofline-gpus",
            str(title),
            _draw_roofline(steps, {ROOF_FORMAT: roof}, roofs),
            f"{measured} dots and solid line: measured on {view.name}. {documented} other lines: GPUs by their makers' "
            f"data sheets, with the lowest, a middle and the highest memory bandwidth, in {ROOF_FORMAT} without "
            f"matrix units. {BARS}.",
            f"Measured on {view.name}: {with_unit(roof['bandwidth'], 'B/s')}, {with_unit(roof['peak'], 'FLOP/s')}; "
            + "; ".join(f"{name}: {memory}, {peak}" for name, memory, peak in rated),
        ),
        ["The slope is the memory bandwidth, the level the peak of arithmetic: no step can lie above either for long."],
        Table(["GPU", "Rated memory bandwidth", f"Rated peak in {ROOF_FORMAT}"], rated, "lrr", "Ratings of the GPUs"),
        heading=title,
        nodes=(view.node,),
    )  # fmt: skip


def _spread_gpus(evidence: Evidence) -> list[GpuSpecs]:
    """Return the GPUs with the lowest and the highest rated bandwidth, and the GPU nearest to their geometric mean."""
    if evidence.data is None:
        return []
    chips = [chip for chip in gpu_specs(evidence.data.reference) if {_BANDWIDTH, _PEAK} <= set(chip.figures)]
    chips.sort(key=lambda chip: chip.figures[_BANDWIDTH])
    if not chips:
        return []
    rates = [chip.figures[_BANDWIDTH] for chip in chips]
    middle = min(chips, key=lambda chip: abs(math.log(chip.figures[_BANDWIDTH] ** 2 / (rates[0] * rates[-1]))))
    chosen = list({chip.id: chip for chip in (chips[0], middle, chips[-1])}.values())
    for chip in chosen:
        for figure in (_BANDWIDTH, _PEAK):
            evidence.data.entry(f"{chip.id}.{figure}")
    return chosen


def _divide_rating(rated: float, roof: Mapping[str, float], name: str) -> Number:
    """Divide a rating by the measured limit `name`."""
    return Number(rated / roof[name], rated / roof[f"{name}_high"], rated / roof[f"{name}_low"])


def _is_precise(roof: Mapping[str, float]) -> bool:
    """True if the intervals of peak and bandwidth are narrow."""
    return all(
        Number(roof[name], roof[f"{name}_low"], roof[f"{name}_high"]).is_narrow for name in ("peak", "bandwidth")
    )


def _roof(peak: float, bandwidth: float) -> dict[str, float]:
    return {"peak": peak, "bandwidth": bandwidth, "balance": peak / bandwidth}


def _roofline_exhibit(view: View, device: str, name: str, table: pd.DataFrame, ceilings: Ceilings) -> Exhibit:
    reached = [_limit_share(row, ceilings[row["dtype"]]) for row in row_dicts(table)]
    title = sentence(
        "Whole steps reach {share} of the rate that memory and arithmetic allow",
        "This run does not show how near whole steps come to the rate that memory and arithmetic allow",
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
            f"● measured on {view.device_name(device)}. {BARS}. The line is the highest rate that the "
            "measured memory bandwidth (slope) and the measured peak of arithmetic (level) allow; steps whose data fit "
            "into caches may lie above the slope.",
            "; ".join(f"{row[0]}: {row[2]} at {row[1]}, {row[3]} of the limit" for row in rows),
        ),
        [f"Slope and level meet at {join_words(balances)}. Memory limits work with fewer operations for each byte; "
         "arithmetic limits other work.",
         *([f"{format_part(cached, len(reached), 'steps', 'runs', 'run')} faster than main memory allows, because "
            "caches hold a part of the data."] if cached else [])],
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
        return "more than the peak, which was measured too low"
    return "more than memory allows: cached" if share.value > 1 else as_percent(share.value)


def _draw_roofline(table: pd.DataFrame, ceilings: Ceilings, rated: Ceilings | None = None) -> Callable[[float], Figure]:
    """Return a function that draws steps as points and the ceilings as a line, a panel per number format.

    Up to NAMED steps, spread from the lowest to the highest intensity, have a number that the legend explains.
    rated: further roofs to draw, by name.
    """
    ordered = row_dicts(table.sort_values("x"))
    named = [ordered[round(at * (len(ordered) - 1) / max(NAMED - 1, 1))] for at in range(min(NAMED, len(ordered)))]
    lines = dict(zip(rated or {}, itertools.cycle(LINES), strict=False))
    chart = line_chart(table, "x", "rate", "kind", "dtype", ("operations for each byte moved (FLOP/B)", "GFLOP/s"),
                       joined=False)  # fmt: skip

    def draw(width: float) -> Figure:
        figure = chart(width)
        panels = list(dict.fromkeys(table["dtype"]))
        balances = [roof["balance"] for roof in (*(ceilings[dtype] for dtype in panels), *(rated or {}).values())]
        peaks = [roof["peak"] / 1e9 for roof in (*ceilings.values(), *(rated or {}).values())]
        set_scale(figure.axes[0], "y", [*table["rate"], *peaks], True, width)
        first, last = min([*table["x"], *balances]) / 1.6, max([*table["x"], *balances]) * 1.6
        for axes, dtype in zip(figure.axes, panels, strict=False):
            roof = ceilings[dtype]
            xs = np.array([first, roof["balance"], last])
            axes.plot(xs, np.minimum(xs * roof["bandwidth"], roof["peak"]) / 1e9, color=INK, linewidth=1.4, zorder=1)
            for name, other in (rated or {}).items():
                xs = np.array([first, other["balance"], last])
                ys = np.minimum(xs * other["bandwidth"], other["peak"]) / 1e9
                axes.plot(xs, ys, color=MUTED, linewidth=1.4, linestyle=lines[name], zorder=1)
            axes.set_xlim(first, last)
            for number, row in enumerate(named, start=1):
                if row["dtype"] == dtype:
                    axes.annotate(str(number), (row["x"], row["rate"]), xytext=(0, 5), textcoords="offset points",
                                  ha="center", weight="bold", color=INK)  # fmt: skip
        handles = [
            Line2D([], [], color=MUTED, linestyle=style, label=f"{name}, rated") for name, style in lines.items()
        ]
        labels = [f"{number}: {_step_label(row, len(panels) > 1)}" for number, row in enumerate(named, start=1)]
        handles += [Line2D([], [], linestyle="none", label=label) for label in labels]
        figure.set_figheight(
            figure.get_figheight() + 0.22 * len(handles) / (1 if is_narrow(width) else 2) + 0.5 * bool(rated)
        )
        add_legend(figure, handles, width, below=True)
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
        "This run does not show for how much of the time memory is the limit",
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
            f"● measured on {view.device_name(device)}, in {usual}. {BARS}. A step's time counts in the "
            "operators for which memory is the lower of the two limits, even if they do not reach it.",
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
        rows += [{"work": kind, "by": _KNOWN[numbers], "error": float(error), "text": as_percent(float(error))}
                 for kind, error in kinds.items()]  # fmt: skip
    table = pd.DataFrame(rows)
    order = list(dict.fromkeys(table["work"]))
    columns = {"work": order, "by": list(_KNOWN.values())}
    ordered = table.assign(**{name: pd.Categorical(table[name], names) for name, names in columns.items()})
    each_error = {f"by{n}": amounts([errors[n]], _format_error, limit=math.inf, most=True) for n in (2, 4)}
    title = sentence(
        f"From two numbers of a machine, half of {total} kernels and steps are predicted to within {{by2}}; from four, "
        "to "
        "within {by4}",
        "This run does not show how well a few numbers of a machine predict kernels and steps",
        **each_error,
    )
    alone = records(view.quantity("roofline.bandwidth_error_over_compute_error", device=device, threads=threads))
    text = ordered.pivot(index="work", columns="by", values="text")
    yield Exhibit(
        Chart(
            f"roofline-predicted-{name}",
            str(title),
            heat_map(ordered, "by", "work", "error", ("known numbers of the machine", ""), "median error", "text"),
            f"◑ derived from measurements on {view.device_name(device)}. Half of the kernels of a kind lie below "
            "its median error; the numbers were fitted on other kernels.",
            "; ".join(f"{kind}: {join_words(list(map(str, text.loc[kind])))} with "
                      f"{join_words([_NUMBERS[n] for n in models])} numbers" for kind in order),
        ),
        ["The first two numbers are the peak of arithmetic and the bandwidth of memory.",
         *filled_texts(sentence("Predictions from bandwidth alone are {ratio} as those from arithmetic alone.",
                                ratio=ratios([case], "as far off")) for case in alone)],
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
