"""Model steps: time in matrix products, chains of dependent operators, and how matrix content affects rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd

from report.formatting import format_number, label_value
from report.pages.chart_rows import alt_text, estimate_row, figure_suffix, model_and_batch, percent_case
from report.pages.charts import Chart, bar_chart, estimate_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import as_number, ratios, sentence, shares
from report.pages.verdict_words import BARS

OPERATIONS, TIME = "of the operations", "of the time"
# The last exhibit's title counts a model if its median layer can do at least this many calculations at once.
MANY = 1000
_PHASES = {"forward": "answering", "prefill": "reading a prompt", "decode": "writing text"}
_PRODUCTS = "Matrix products include convolutions and attention."
Case = dict[str, Any]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each device the share of matrix products in steps, and how matrix content affects rates.

    A last exhibit shows how many calculations the models can do at once.
    """
    yield from exhibits_per_machine(evidence, _machine_exhibits)
    # Calculation counts are the same on all machines, so take them from the machine with the most counted models.
    most, widest = 0, None
    for view in evidence.views:
        widths = records(view.quantity("sequential.parallel_width", level="median"))
        if len(widths) > most:
            most = len(widths)
            levels = records(view.quantity("sequential.dependent_levels", counted="operators"))
            widest = replace(_width_exhibit(widths, levels), nodes=(view.node,))
    if widest:
        yield widest


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        name = figure_suffix(place, device)
        yield from _training_exhibit(view, device, name)
        yield from _inference_exhibit(view, device, name)
        yield from _content_exhibit(view, device, name)


def _usual_cases(cases: list[Case]) -> list[Case]:
    """Select the cases with the most threads and, among these, those in the most common number format."""
    most = max((int(case["threads"]) for case in cases), default=0)
    cases = [case for case in cases if int(case["threads"]) == most]
    usual = pd.Series([case["dtype"] for case in cases], dtype=object).mode()
    return [case for case in cases if case["dtype"] == usual[0]]


def _percent_text(share: float) -> str:
    return f"{format_number(100 * share, 2 if share < 0.995 else 3).removesuffix('.0')}%"


def _training_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show the share of training steps' operations and time that matrix products take.

    The chart has only each model's largest batch.
    """
    counts = {
        model_and_batch(case): case
        for case in _usual_cases(records(view.quantity("training.matmul_flop_share", device=device)))
    }
    times = {
        model_and_batch(case): case
        for case in _usual_cases(records(view.quantity("training.matmul_time_share", device=device)))
    }
    measured = sorted((case for at, case in times.items() if at in counts), key=lambda case: -float(case["estimate"]))
    largest = {
        str(case["model"]): model_and_batch(case) for case in sorted(measured, key=lambda case: int(case["batch"]))
    }
    labels = [model_and_batch(case) for case in measured if largest[str(case["model"])] == model_and_batch(case)]
    # Skip devices with only a few models.
    if len(labels) < 3:
        return
    rows = [{"step": at, "share": 100 * cases[at]["estimate"], "of": of}
            for at in labels for of, cases in ((OPERATIONS, counts), (TIME, times))]  # fmt: skip
    nearly = sum(counts[at]["estimate"] >= 0.99 for at in labels)
    many = "all" if nearly == len(labels) else f"{nearly or 'none'} of"
    models = f"{many} {len(labels)} models"
    counted = f"Matrix products are 99% or more of a training step's operations in {models}"
    title = sentence(f"{counted}, and {{share}} of its time", counted, share=shares(times[at] for at in labels))
    yield Exhibit(
        Chart(
            f"model-steps-training-{name}",
            str(title),
            bar_chart(pd.DataFrame(rows), "share", "step", "share of matrix products (%)", hue="of"),
            f"● measured on {view.device_name(device)}, in {measured[0]['dtype']}. The intervals are in the table.",
            "; ".join(f"{at}: {_percent_text(counts[at]['estimate'])} {OPERATIONS}, "
                      f"{_percent_text(times[at]['estimate'])} {TIME}" for at in labels),
        ),
        [f"{_PRODUCTS} The rest are operations on single elements, which need little arithmetic and much memory."],
        Table(["Training step", "Of the operations", "Of the time"],
              [[model_and_batch(case), _percent_text(counts[model_and_batch(case)]["estimate"]),
                format_estimate(percent_case(case), "%")] for case in measured],
              "lrr",
              f"Matrix products in training steps on {view.device_name(device)}"),
        ["N01", "W11"],
        title,
    )  # fmt: skip


def _inference_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    cases = records(view.quantity("inference.matmul_time_share", device=device))
    cases.sort(key=lambda case: -float(case["estimate"]))
    if not cases:
        return
    rows = [
        estimate_row(
            f"{_PHASES[case['phase']]}: {model_and_batch(case)}", case, "1", 0.01, _percent_text(case["estimate"])
        )
        for case in _usual_cases(cases)
    ]
    title = sentence(
        "In inference, matrix products take {share} of the time",
        "This run does not show how much of the time of inference matrix products take",
        share=shares(_usual_cases(cases)),
    )
    yield Exhibit(
        Chart(
            f"model-steps-inference-{name}",
            str(title),
            estimate_chart(rows, "share of the time (%)", log=False),
            f"● measured on {view.device_name(device)}, in {_usual_cases(cases)[0]['dtype']}. {BARS}.",
            alt_text(rows),
        ),
        [],
        Table(["Work", "Format", "Of the time"],
              [[f"{_PHASES[case['phase']]}: {model_and_batch(case)}", case["dtype"],
                format_estimate(percent_case(case), "%")] for case in cases],
              "llr",
              f"Matrix products in inference on {view.device_name(device)}"),
        ["W11"],
        title,
    )  # fmt: skip


def _width_exhibit(widths: list[Case], levels: list[Case]) -> Exhibit:
    """Show per model how many calculations can run in parallel and how many operators depend on each other."""
    widths.sort(key=lambda case: -float(case["estimate"]))
    deep = {str(case["model"]): float(case["estimate"]) for case in levels}
    rows = [{"label": case["model"], "estimate": float(case["estimate"]), "low": None, "high": None,
             "text": format_number(case["estimate"]) if case["estimate"] >= 1e6 else f"{case['estimate']:,.0f}"}
            for case in widths]  # fmt: skip
    many = sum(case["estimate"] >= MANY for case in widths)
    return Exhibit(
        Chart(
            "model-steps-width",
            f"In {many} of {len(widths)} models, {MANY:,} calculations or more of the median layer can run at "
            "once",
            estimate_chart(rows, "calculations at once in the median layer, for one sample", [float(MANY)],
                           f"{MANY:,} calculations", log=True),
            "● counted from the models' graphs, for one forward pass of one sample; the same on every machine.",
            alt_text(rows),
        ),
        ["A batch multiplies the calculations. Operators, however, wait for one another: the longest chain has "
         f"{min(deep.values()):,.0f} ({min(deep, key=lambda model: deep[model])}) to {max(deep.values()):,.0f} of them "
         f"({max(deep, key=lambda model: deep[model])})."] if deep else [],
        Table(["Model", "Calculations at once", "Operators that wait for one another"],
              [[row["label"], row["text"], f"{deep[row['label']]:,.0f}"] for row in rows if row["label"] in deep],
              "lrr", "How wide and how deep the models are"),
        ["W03"],
    )  # fmt: skip


def _content_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Compare product rates by matrix content, relative to the rate with random normal numbers."""
    cases = sorted(records(view.quantity("content.speed_ratio", device=device)),
                   key=lambda case: (case["dtype"], case["backend"], case["content"]))  # fmt: skip
    if not cases:
        return
    rows = [
        estimate_row(
            f"{case['content']}, {case['dtype']}, {case['backend']}", case, "1", 0.01, f"{100 * case['estimate']:.0f}%"
        )
        for case in cases
    ]
    numbers = [as_number(case) for case in cases]
    changed = [
        number
        for number in numbers
        if number.low is not None and number.high is not None and not number.low <= 1 <= number.high
    ]
    title = sentence(
        f"The content of matrices changes the rate in {len(changed)} of {len(cases)} comparisons: {{rates}} as "
        "random numbers"
        if changed
        else "The content of matrices changes the rate in no comparison for certain",
        "This run does not show how the content of matrices changes the rate",
        **({"rates": ratios(cases, "as fast")} if changed else {}),
    )
    yield Exhibit(
        Chart(
            f"model-steps-content-{name}",
            str(title),
            estimate_chart(rows, "rate over that on random normal numbers (%)", [100.0],
                           "as on random normal numbers",
                           log=False),
            f"● measured on {view.device_name(device)}: products of {cases[0]['shape'].replace('x', ' × ')}, "
            f"{label_value('threads', cases[0]['threads'])}. {BARS}.",
            alt_text(rows),
        ),
        heading=title,
    )  # fmt: skip


FAMILY = Family(
    "model-steps", "What a model's steps are made of",
    "How much of training and inference is matrix products, by operations and by time?", show,
)  # fmt: skip
