"""Work on tables: operation rates, gains over pandas, boosted trees, and GPUs compared with their hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from report.data.table_rows import row_dicts
from report.formatting import capitalize, format_count, format_exact, format_number, two_digits
from report.pages.chart_rows import device_suffix, library_name, line_points
from report.pages.charts import Chart, line_chart
from report.pages.estimate_list import ListEntry, estimate_list, gpu_suffix
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import amounts, ratios, sentence
from report.pages.verdict_words import BARS
from report.quantities.tabular import DEFAULT

OPS = {"filter": "filtering", "group_by": "grouping", "join": "joining", "sort": "sorting", "parse_csv": "parsing CSV",
       "parse_json": "parsing JSON"}  # fmt: skip
WAYS = {"included": "copies included", "excluded": "data on the GPU"}
MILLION = 1e6


def _op_label(case: Mapping[str, Any]) -> str:
    return OPS.get(str(case["op"]), str(case["op"]).replace("_", " "))


def _sort_key(case: Mapping[str, Any]) -> tuple[int, int]:
    op = str(case["op"])
    return [*OPS].index(op) if op in OPS else len(OPS), int(case["rows"])


def _rate_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show rows per second by table size, for each operation in its fastest library."""
    all_rates = records(view.quantity("tabular.rate", backend="best"))
    cases = sorted((case for case in all_rates if case["transfers"] != "included"), key=_sort_key)
    if not cases:
        return
    table = pd.DataFrame(
        {
            **point,
            "op": _op_label(case),
            "on": "CPU" if case["device"] == "cpu" else view.device_name(str(case["device"])),
        }
        for case in cases
        for point in line_points([case], "rows", MILLION)
    )
    largest = {(_op_label(case), case["device"]): case for case in cases}.values()
    on_cpu = [case for case in largest if case["device"] == "cpu"] or list(largest)
    fast, slow = (end(on_cpu, key=lambda case: float(case["estimate"])) for end in (max, min))
    several_devices = len({case["device"] for case in cases}) > 1
    ends = {"fast": fast, "slow": slow}
    title = sentence(
        capitalize(f"{_op_label(fast)} runs at {{fast}} rows a second, {_op_label(slow)} at {{slow}}")
        if fast is not slow
        else capitalize(f"{_op_label(fast)} runs at {{fast}} rows a second"),
        "This run does not show how many rows a second libraries process",
        **{name: amounts([case], lambda rate: format_number(rate, 2)) for name, case in ends.items()},
    )
    yield Exhibit(
        Chart(
            name,
            str(title),
            line_chart(table, "x", "y", "op", "on" if several_devices else None,
                       ("rows of the table", "million rows/s")),
            f"● measured on {view.name}, by the fastest library at each size. {BARS}.",
            "; ".join(f"{row['op']}, {row['on']}, {format_exact(row['x'])} rows: {two_digits(row['y'])} million rows/s"
                      for row in row_dicts(table)),
        ),
        [f"The title gives the rates for the largest tables{' on the CPU' if several_devices else ''}."],
        Table(["Operation", "Rows", "Fastest", "Rate"],
              [[f"{_op_label(case)}{gpu_suffix(str(case['device']))}", f"{int(case['rows']):,}", str(case["detail"]),
                format_estimate(case, "rows/s")] for case in cases], "lrlr", f"Work on tables on {view.name}"),
        heading=title,
    )  # fmt: skip


def _pandas_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare the fastest CPU library with pandas, at every size measured with pandas."""
    rates = view.quantity("tabular.rate", device="cpu")
    usual = sorted(records(rates.filter(backend=DEFAULT)) if len(rates) else [], key=_sort_key)
    entries: list[ListEntry] = []
    for case in usual:
        at = {"op": case["op"], "rows": case["rows"]}
        best = rates.filter(backend="best", **at)
        for gain in records(best.keep_labels("node") / rates.filter(backend=DEFAULT, **at).keep_labels("node")):
            entries.append(
                (f"{_op_label(case)}, {int(case['rows']):,} rows", {**gain, **at}, list(map(str, best["detail"])))
            )
    if not entries:
        return
    gains = [gain for _, gain, _ in entries]
    sizes = {gain["op"]: [other["rows"] for other in gains if other["op"] == gain["op"]] for gain in gains}
    small, large = (
        ratios([gain for gain in gains if gain["rows"] == end(sizes[gain["op"]])], "as fast") for end in (min, max)
    )
    several_sizes = any(len(set(rows)) > 1 for rows in sizes.values())
    yield estimate_list(
        name,
        sentence(
            f"On the largest tables the fastest library is {{large}} as {DEFAULT}, on the smallest {{small}}"
            if several_sizes else f"The fastest library is {{large}} as {DEFAULT}",
            f"This run does not show what the fastest library gains over {DEFAULT}",
            **({"large": large, "small": small} if several_sizes else {"large": large}),
        ),
        entries, "1", f"rate of the fastest library over that of {DEFAULT}",
        f"● measured on {view.name}, at every size at which {DEFAULT} was measured.",
        ["Work", "Fastest", f"Over {DEFAULT}"], 1.0, [1.0], f"1: {DEFAULT}", True,
    )  # fmt: skip


def _gpu_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare a GPU with its host CPU on the largest tables."""
    cases = sorted(records(view.quantity("tabular.gpu_gain")), key=_sort_key)
    largest = list({(case["op"], case["transfers"], case["device"]): case for case in cases}.values())
    if not largest:
        return
    copied = [case for case in largest if case["transfers"] == "included"]
    included = ", copies included" if copied else ""
    yield estimate_list(
        name,
        sentence(
            f"A GPU processes the largest tables {{gain}} as its host's CPU{included}",
            "This run does not show what a GPU gains on the largest tables",
            gain=ratios(copied or largest, "as fast"),
        ),
        [(f"{_op_label(case)}, {int(case['rows']):,} rows, {WAYS.get(str(case['transfers']), str(case['transfers']))}",
          case, [str(case["detail"])]) for case in largest],
        "1", "rate, GPU over CPU", f"● measured on {view.name}.",
        ["Work", "Fastest libraries", "GPU over CPU"], 1.0, [1.0], "1: equally fast", True, claims=["W32"],
        ends=("CPU faster", "GPU faster"),
    )  # fmt: skip


def _boosting_exhibit(view: View, name: str, phase: str) -> Iterable[Exhibit]:
    """Show how long each library takes to fit boosted trees, or to predict with them.

    The title gives the fit on the most rows, or the prediction on the fewest rows.
    """
    cases = records(view.quantity(f"boosting.{phase}_s"))
    cases = [case for case in cases if case["backend"] != "best"]
    if not cases:
        return
    place = max if phase == "fit" else min
    rows = place(int(case["rows"]) for case in cases)
    at_rows = [case for case in cases if int(case["rows"]) == rows]
    trees = max(int(row["trees"]) for row in at_rows)
    largest = [row for row in at_rows if int(row["trees"]) == trees]
    largest = [case for case in largest if case["device"] == "cpu"] or largest
    best, slowest = (end(largest, key=lambda case: float(case["estimate"])) for end in (min, max))
    ends = {"best": amounts([best], "s")} | ({"slowest": amounts([slowest], "s")} if best is not slowest else {})
    what, does = (
        f"{trees:,} boosted trees",
        f"{'learn from' if phase == 'fit' else 'predict'} {format_count(rows, 'row')}",
    )
    cases.sort(key=lambda case: (int(case["trees"]) != trees, int(case["rows"]) != rows, int(case["rows"]),
                                float(case["estimate"])))  # fmt: skip
    yield estimate_list(
        name,
        sentence(
            f"{what} {does} in {{best}} with {library_name(str(best['backend']))}"
            + (", in {slowest} with the slowest choice" if "slowest" in ends else ""),
            f"This run does not show how long {what} take to {does}",
            **ends,
        ),
        [(f"{library_name(str(case['backend']))}, {_resource_label(view, case)}, "
          f"{format_count(int(case['rows']), 'row')}"
          + (f", {format_count(int(case['trees']), 'tree')}" if int(case["trees"]) != trees else ""), case, [])
         for case in cases],
        "s", f"time of one {'fit' if phase == 'fit' else 'prediction'}", f"● measured on {view.name}.",
        ["Library and table", "Time"], log=True,
        says=["XGBoost grows trees to depth 6, LightGBM and scikit-learn to 31 leaves: their work is similar, "
              "not equal. The table is synthetic, and each model was checked on rows that it had not seen."],
    )  # fmt: skip


def _resource_label(view: View, case: Mapping[str, Any]) -> str:
    """Format the threads or device: '2 threads', 'GPU'."""
    threads = int(case["threads"])
    return format_count(threads, "thread") if threads else device_suffix(view, str(case["device"])).removeprefix(", ")


def _boosting_gpu_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare a GPU with its host CPU for fitting and predicting."""
    cases = sorted(
        records(view.quantity("boosting.gpu_gain")), key=lambda case: (case["phase"], case["rows"], case["trees"])
    )
    if not cases:
        return
    fits = [case for case in cases if case["phase"] == "fit"]
    work = "learn" if fits else "predict"
    yield estimate_list(
        name,
        sentence(
            f"Boosted trees {work} {{gain}} on a GPU as on its host's CPU",
            "This run does not show what a GPU gains with boosted trees",
            gain=ratios(fits or cases, "as fast"),
        ),
        [(f"{'fitting' if case['phase'] == 'fit' else 'predicting'}, {format_count(int(case['rows']), 'row')}, "
          f"{format_count(int(case['trees']), 'tree')}", case, [str(case["detail"])]) for case in cases],
        "1", "speed, GPU over CPU", f"● measured on {view.name}.",
        ["Work", "Fastest libraries", "GPU over CPU"], 1.0, [1.0], "1: equally fast", True,
        ends=("CPU faster", "GPU faster"),
    )  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show rates, gains over pandas, boosted trees and GPU gains, for each node."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _rate_exhibit(view, f"tables-rate-{place}")
    yield from _pandas_exhibit(view, f"tables-library-{place}")
    yield from _gpu_exhibit(view, f"tables-gpu-{place}")
    yield from _boosting_exhibit(view, f"tables-boosted-fit-{place}", "fit")
    yield from _boosting_exhibit(view, f"tables-boosted-predict-{place}", "predict")
    yield from _boosting_gpu_exhibit(view, f"tables-boosted-gpu-{place}")


FAMILY = Family(
    "tables", "Work on tables",
    "How many rows a second does each library filter, group, join, sort and parse, and how long does it take to fit "
    "boosted trees?", show,
)  # fmt: skip
