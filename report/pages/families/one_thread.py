"""Sequential work: time per dependent step, and branches too random to predict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from report.data.table_rows import row_dicts
from report.formatting import with_unit
from report.pages.chart_rows import alt_text, device_suffix, estimate_row, format_rough
from report.pages.charts import Chart, estimate_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import amounts, as_number, filled_texts, ratios, sentence
from report.pages.verdict_words import BARS

_KERNELS = {
    ("branches", "predictable"): "predictable branch",
    ("chain", "random"): "one step of a hash (arithmetic alone)",
    ("states", "text"): "one step of a state machine",
    ("branches", "random"): "unpredictable branch",
}
_NAMES = {"chain": "arithmetic", "states": "state machine", "chase": "loads", "branches": "branches"}


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node how long dependent steps take on one thread, and compare the GPU to its host."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _step_exhibit(view, f"one-thread-steps-{place}")
    yield from _device_exhibit(view, f"one-thread-gpu-{place}")


def _step_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show how long each kind of dependent step takes on one thread, by device."""
    steps = view.points("sequential", "step_time")
    if not len(steps):
        return
    steps = steps[steps["chains"] == "one"]
    cases = [
        {**case, "label": label + device_suffix(view, str(case["device"]))}
        for case in row_dicts(steps.sort_values("footprint"))
        if (label := _step_label(case, steps))
    ]
    if not cases:
        return
    cases.sort(key=lambda case: float(case["estimate"]))
    rows = [estimate_row(str(case["label"]), case, "s", 1e-9) for case in cases]
    gains = records(view.quantity("sequential.prediction_gain", chains="one", device="cpu"))
    costs = records(view.quantity("sequential.mispredict_cycles"))
    clocks = records(view.quantity("clock.rate"))
    title = sentence(
        "A step that has to wait for the one before takes {time}",
        "This run does not show how long a step takes that has to wait for the one before",
        time=amounts(cases, "s"),
    )
    if gains and (as_number(gains[0]).low or 0) > 1:
        text = "A step with an unpredictable branch takes {gain} as one with a predictable branch"
        places = {"gain": ratios(gains[:1], "as long")}
        if costs:
            text, places = f"{text}; a wrong prediction costs {{cost}} cycles", {**places, "cost": amounts(costs[:1])}
        branches = sentence(text, **places)
        title = branches if branches.is_complete else title
    says = ["Each step needs the result of the one before, so neither vectors nor more cores can shorten the chain."]
    if clocks:
        cycle = amounts(clocks[:1], lambda rate: with_unit(1 / rate, "s", 2))
        says += filled_texts([sentence("A clock cycle of this core takes {cycle}.", cycle=cycle)])
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, "ns per step (lower is faster)", log=True),
            f"● measured on one core of {view.name}. {BARS}.",
            alt_text(rows),
        ),
        says,
        Table(
            ["Step", "Time of a step"],
            [[str(case["label"]), format_estimate(case, "s")] for case in cases],
            "lr",
            f"Steps that wait for each other on {view.name}",
        ),
        ["W10"],
        title,
    )


def _step_label(case: Mapping[str, Any], steps: Any) -> str:
    """Return a label for a step; '' to omit the step.

    Loads are labelled only for the smallest and the largest array.
    """
    if case["kernel"] != "chase":
        return _KERNELS.get((str(case["kernel"]), str(case["data"])), "")
    sizes = steps[(steps["kernel"] == "chase") & (steps["device"] == case["device"])]["footprint"]
    ends = {sizes.min(): "load from the first cache", sizes.max(): "load from main memory"}
    return ends.get(case["footprint"], "")


def _device_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare one GPU thread with one core, and a whole GPU with all cores."""
    kinds = {"one_thread": "one thread over one core", "full_chip": "whole GPU over all cores"}
    cases = [
        {**case, "label": f"{_NAMES[str(case['kernel'])]}, {case['data']}: {kind}"}
        for key, kind in kinds.items()
        for case in records(view.quantity(f"sequential.gpu_over_cpu_{key}"))
        if case["kernel"] in _NAMES
    ]
    alone = [case for case in cases if str(case["label"]).endswith(kinds["one_thread"])]
    if not alone:
        return
    title = sentence(
        "One core of the CPU runs a chain of steps {gain} as one thread of the GPU",
        "This run does not show how much faster one core runs a chain of steps than one thread of the GPU",
        gain=ratios((as_number(case).inverse for case in alone), "as fast", words=format_rough),
    )
    rows = [estimate_row(str(case["label"]) + device_suffix(view, str(case["device"])), case, "1",
                         text=f"×{format_rough(case['estimate'])}") for case in cases]  # fmt: skip
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(
                rows, "steps a second, GPU over CPU", [1.0], "equal", log=True, ends=("CPU faster", "GPU faster")
            ),
            f"● measured on {view.name} and its GPU. {BARS}.",
            alt_text(rows),
        ),
        claims=["W09", "W34"],
        heading=title,
    )


FAMILY = Family(
    "one-thread", "One step after another",
    "How long does a step take that has to wait for the one before, and what does a wrongly predicted branch "
    "cost?", show,
)  # fmt: skip
