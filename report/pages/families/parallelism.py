"""Parallelism: gain from more cores, thread divergence, and sustained load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.estimates import device_kind
from report.formatting import format_count, join_words, two_digits
from report.pages.chart_rows import alt_text, device_suffix, estimate_row, format_rough, line_points, percent_case
from report.pages.charts import Chart, estimate_chart, line_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Sentence, amounts, as_number, as_share, ratios, sentence, shares
from report.pages.verdict_words import BARS
from report.quantities.sustained import MINUTES_S

_LOADS = {"products": "matrix products", "triad": "triad from main memory", "one_block": "products in one block"}
_LINEAR = "n times as long for n paths"


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node the gain from cores and threads, and the cost of divergence and sustained load."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _core_exhibit(view, f"parallelism-cores-{place}")
    for device in view.devices():
        yield from _thread_exhibit(view, device, f"parallelism-threads-{place}-{device.replace(':', '-')}")
    yield from _path_exhibit(view, f"parallelism-paths-{place}")
    yield from _sustained_exhibit(view, f"parallelism-sustained-{place}")


def _core_gains(view: View) -> list[dict[str, Any]]:
    """Return the gain of all cores over one core for each kind of work.

    The gain is the parallel efficiency times the thread count.
    """
    works = [
        ("gemm.scaling_efficiency", {"backend": "best", "shape": "best"}, "matrix products in {dtype}"),
        ("bandwidth.scaling_efficiency", {"backend": "best", "op": "triad"}, "triad from main memory in {dtype}"),
        ("training.scaling_efficiency", {"backend": "torch", "dtype": "float32"}, "training {model}, batch {batch}"),
    ]  # fmt: skip
    cases = [
        {**case, "label": label.format(**case)}
        for name, wanted, label in works
        for case in records(view.quantity(name, device="cpu", **wanted))
    ]
    most = max((int(case["threads"]) for case in cases), default=0)
    gains = [
        {**case, **{end: float(case[end]) * most for end in ("estimate", "low", "high") if case[end] is not None}}
        for case in cases
        if int(case["threads"]) == most
    ]
    return sorted(gains, key=lambda case: float(case["estimate"]))


def _core_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare all cores with one core, for matrix products, memory bandwidth and training."""
    cases = _core_gains(view)
    if not cases:
        return
    most = int(cases[0]["threads"])
    rows = [estimate_row(str(case["label"]), case, "1", text=f"×{format_rough(case['estimate'])}") for case in cases]
    title = _gain_title(cases, most)
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, f"rate on {format_count(most, 'core')} over that on one", [1.0, float(most)],
                           f"from no gain to {most} times", log=most > 8),
            f"● measured on {view.name}. {BARS}.",
            alt_text(rows),
        ),
        ["Triad reads two arrays from main memory and writes a third; training is in PyTorch, float32."],
        Table(
            ["Work", "Gain"],
            [[str(case["label"]), format_estimate(case, "")] for case in cases],
            "lr",
            f"Rate on {format_count(most, 'core')} over that on one, on {view.name}",
        ),
        heading=title,
    )  # fmt: skip


def _gain_title(cases: list[dict[str, Any]], most: int) -> Sentence:
    """Return a title with the largest and the smallest certain gain, and the kinds of work without a certain gain.

    A gain is certain if its interval lies above 1.
    """
    otherwise = f"This run does not show what {format_count(most, 'core')} gain over one"
    certain = [case for case in cases if (as_number(case).low or 0) > 1]
    if not certain:
        return sentence(otherwise)
    ends = list({format_rough(case["estimate"]): case for case in (certain[0], certain[-1])}.values())[::-1]
    gains = join_words([f"{case['label']} {{gain{at}}}" for at, case in enumerate(ends)])
    unsure = [str(case["label"]) for case in cases if case not in certain]
    rest = join_words(unsure, "or") if len(unsure) < 3 else f"{len(unsure)} of {len(cases)} kinds of work"
    return sentence(
        f"{format_count(most, 'core')} run {gains} as one core"
        + (f"; no gain is certain for {rest}" if unsure else ""),
        otherwise,
        **{f"gain{at}": ratios([as_number(case)], "as fast", words=format_rough) for at, case in enumerate(ends)},
    )


def _thread_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show GPU throughput by threads in flight."""
    line = line_points(records(view.quantity("parallelism.throughput", device=device)), "in_flight", 1e9)
    if len(line) < 2:
        return
    enough = records(view.quantity("parallelism.threads_for_90_percent", device=device))
    best = max(line, key=lambda point: float(point["y"]))
    title = sentence(
        "With enough threads in flight, throughput reaches {rate} GFLOP/s",
        "Throughput by threads in flight",
        rate=amounts([{**best, "estimate": best["y"]}], format_rough),
    )
    if enough:
        title = sentence(
            "The GPU needs {threads} threads in flight for nine tenths of its throughput",
            str(title),
            threads=amounts(enough[:1], format_rough),
        )
    yield Exhibit(
        Chart(
            name,
            str(title),
            line_chart(pd.DataFrame(line), "x", "y", axis=("threads in flight", "GFLOP/s")),
            f"● measured on {view.device_name(device)}: each thread does multiply-adds, one after the other. {BARS}.",
            "; ".join(f"{point['x']:,.0f} threads: {two_digits(point['y'])} GFLOP/s" for point in line),
        ),
        claims=["N05"],
        heading=title,
    )


def _path_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show for each device how much longer work takes if elements in a group of 32 branch differently."""
    cases = records(view.quantity("parallelism.divergence_cost"))
    if not cases:
        return
    devices = [device for device in view.devices() if any(case["device"] == device for case in cases)]
    single_path = {"paths": 1, "estimate": 1.0, "low": 1.0, "high": 1.0}
    rows = [
        {"device": view.device_name(device), **point}
        for device in devices
        for point in line_points([single_path, *(case for case in cases if case["device"] == device)], "paths")
    ]
    most = max(int(case["paths"]) for case in cases)
    rows += [{"device": _LINEAR, "x": x, "y": x, "low": None, "high": None} for x in (1.0, float(most))]
    ends = [case for case in cases if int(case["paths"]) == most]
    where = ["one core" if case["device"] == "cpu" else view.device_name(str(case["device"])) for case in ends]
    title = sentence(
        f"Work takes {join_words([f'{{cost{at}}} on {name}' for at, name in enumerate(where)])} if {most} neighbours "
        f"take {most} paths through it, not one",
        "This run does not show what different paths of neighbours cost",
        **{f"cost{at}": ratios([case], "as long") for at, case in enumerate(ends)},
    )
    gpu = any(device_kind(device) == "gpu" for device in devices)
    yield Exhibit(
        Chart(
            name,
            str(title),
            line_chart(pd.DataFrame(rows), "x", "y", "device",
                       axis=("different paths in a group of 32", "time over that of one path")),
            f"● measured on {view.name}. The CPU: one core, by vectors with masks or one element at a time, whichever "
            f"is faster. {BARS}.",
            "; ".join(f"{case['paths']} paths{device_suffix(view, str(case['device']))}: {two_digits(case['estimate'])}"
                      for case in cases),
        ),
        ["One instruction works on a whole group of neighbours. If they take different paths, the group runs each path "
         "in turn."],
        claims=["N06"] if gpu else [],
        heading=title,
    )  # fmt: skip


def _sustained_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show the rate lost under minutes of sustained load, in a row per run."""
    cases = records(view.quantity("sustained.throughput_drift"))
    if not cases:
        return
    rows = [
        estimate_row(
            f"{_LOADS.get(case['load'], case['load'])}, {case['dtype']}{device_suffix(view, str(case['device']))}",
            percent_case(case),
            "%",
        )
        for case in cases
    ]
    lost = [share for case in cases if (share := as_share(case)).low is not None and share.low > 0]
    title = sentence(
        "Minutes of load cost up to {share} of the rate" if lost else "Minutes of load cost nothing for certain",
        "This run does not show what minutes of load cost",
        **({"share": shares(lost, most=True)} if lost else {}),
    )
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, "% of the rate lost from a run's first to its last tenth", [0.0], "none", log=False),
            f"● measured on {view.name} in runs of at least {MINUTES_S / 60:.0f} minutes. {BARS}.",
            alt_text(rows),
        ),
        heading=title,
    )


FAMILY = Family(
    "parallelism", "Side by side: cores, threads and paths",
    "What do more cores gain, what do different paths cost, and does the rate last?", show,
)  # fmt: skip
