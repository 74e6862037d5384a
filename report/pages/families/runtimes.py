"""The ladder of each network: PyTorch as it comes, tuned, the fastest runtime, the fastest number format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report.data.network_labels import GROUPS, group, is_known, title
from report.estimates import device_kind
from report.formatting import first_items, format_count, format_number, join_words, range_words, with_unit
from report.pages.chart_rows import figure_suffix, is_single_round, library_name, scale_case
from report.pages.charts import Chart
from report.pages.estimate_list import cases_with_most_threads
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Sentence, as_number, filled_texts, ratios, sentence
from report.pages.step_chart import step_chart
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.inference import BEST, DEFAULT, RUNTIME, TUNED

Case = dict[str, Any]
# Rungs that the figure shows; the table has all of them.
DRAWN = (TUNED, RUNTIME, BEST)
_REQUEST = ("model", "batch", "threads")
_MOST_REASONS = 3
CLAIMS = ["G30"]


def weights(case: Mapping[str, Any]) -> float | None:
    """The number of a network's weights; None where the study did not count them."""
    counted = case.get("parameters")
    return None if counted is None or pd.isna(counted) else float(counted)


def order(case: Mapping[str, Any]) -> tuple[int, float, str]:
    """Orders networks by what they take, then from the fewest weights to the most."""
    return GROUPS.index(group(str(case["model"]))), weights(case) or 0.0, str(case["model"])


def by_request(cases: Iterable[Case]) -> dict[tuple[Any, ...], dict[str, Case]]:
    """The rungs of each request by their names, networks in the order of the page."""
    found: dict[tuple[Any, ...], dict[str, Case]] = {}
    for case in sorted(cases, key=lambda one: (order(one), one["batch"], -one["threads"], one["place"])):
        found.setdefault(tuple(case[name] for name in _REQUEST), {})[str(case["rung"])] = case
    return found


def single_requests(cases: Sequence[Case]) -> list[Case]:
    """Those of one sample in a request, with the most threads that each device was measured with."""
    return cases_with_most_threads([case for case in cases if int(case["batch"]) == 1])


def by(case: Mapping[str, Any]) -> str:
    """Runtime and number format of a rung: 'OpenVINO in bfloat16'."""
    return f"{library_name(str(case['runtime']))} in {case['dtype']}"


def ladder_chart(view: View, device: str, name: str, heading: str, short: bool = False) -> Chart | None:
    """The figure of one device: a row for each network, single requests; None where nothing was tried.

    short: of the networks that people know by a name, those of each kind that gain least and most.
    """
    wanted = {name: by_request(single_requests(records(view.quantity(f"inference.{name}", device=device))))
              for name in ("ladder", "ladder_gain")}  # fmt: skip
    every = wanted["ladder_gain"]
    shown = _ends(every) if short else every
    rows = [_row(wanted["ladder"][request], gains) for request, gains in every.items() if request in shown]
    if not rows:
        return None
    chosen = f" {len(rows)} of {format_count(len(every), 'network')}: of each kind those that gain least and most."
    if len({row["group"] for row in rows}) == 1:
        rows = [{**row, "group": ""} for row in rows]
    steps = [step for step in DRAWN if any(mark["step"] == step for row in rows for mark in row["marks"])]
    hollow = " Hollow marks: one round, without an interval."
    alone = any(mark["one_round"] for row in rows for mark in row["marks"])
    return Chart(
        name, heading,
        step_chart(rows, steps, "times as fast as PyTorch as it comes", "1: PyTorch as it comes, in float32"),
        f"● measured on {view.device_name(device)}: one sample in a request, all threads. On the right the times of "
        f"PyTorch as it comes and of the fastest of all. {BARS}.{hollow if alone else ''}"
        f"{chosen if len(rows) < len(every) else ''}",
        "; ".join(f"{row['label']}: {row['told']}" for row in rows),
    )  # fmt: skip


def _ends(gains: Mapping[tuple[Any, ...], Mapping[str, Case]]) -> set[tuple[Any, ...]]:
    """The requests of known networks that gain least and most, of each kind of input."""
    known = [request for request in gains if is_known(str(request[0]))]
    kinds = {group(str(request[0])) for request in known}
    alike = [[one for one in known if group(str(one[0])) == kind] for kind in kinds]
    return {end(some, key=lambda one: float(gains[one][BEST]["estimate"])) for some in alike for end in (min, max)}


def _row(times: Mapping[str, Case], gains: Mapping[str, Case]) -> dict[str, Any]:
    """One network's row of the figure; a rung that is the same measurement as the one below has no mark."""
    by_step: dict[str, Case] = {}
    told = {by(times[DEFAULT]): times[DEFAULT]}
    for step in DRAWN:
        if step in gains and by(gains[step]) not in told:
            by_step[step] = gains[step]
            told[by(gains[step])] = times[step]
    # Nothing is faster than the default.
    drawn = by_step or {BEST: gains[BEST]}
    marks = [
        {"step": step, "one_round": is_single_round(case), **scale_case(case, 1.0)} for step, case in drawn.items()
    ]
    first, last = times[DEFAULT], times[BEST]
    short = range_words(_time(first), _time(last)).replace(" to ", " → ")
    return {
        "label": title(str(first["model"])),
        "group": group(str(first["model"])),
        "marks": marks,
        "short": short,
        "text": f"{short}, {by(last)}",
        "told": ", ".join(f"{name} {_time(case)}" for name, case in told.items()),
    }


def _time(case: Mapping[str, Any]) -> str:
    return with_unit(float(case["estimate"]), "s", 2)


def single_gains(view: View, device: str) -> list[Case]:
    """Gains of the fastest of all over PyTorch as it comes: single requests, networks in the order of the page."""
    cases = single_requests(records(view.quantity("inference.ladder_gain", device=device, rung=BEST)))
    return sorted(cases, key=order)


def known_gains(evidence: Evidence) -> tuple[View, list[Case]] | None:
    """Single requests to networks that people know, and the machine whose CPU has most that surely gain.

    The user's own machines come first. None where no gain is sure and narrow enough to be told.
    """
    found = [
        (view, [single_gain for single_gain in single_gains(view, "cpu") if is_known(str(single_gain["model"]))])
        for view in evidence.views
    ]
    best = max(found, key=lambda one: (bool(sure_gains(one[1])), one[0].own, len(sure_gains(one[1]))), default=None)
    return best if best and sure_gains(best[1]) else None


def sure_gains(cases: Iterable[Case]) -> list[Case]:
    """Those whose whole interval lies above 1 and is narrow."""
    return [case for case in cases if (told := as_number(case)).is_narrow and told.low is not None and told.low > 1]


def _ladder(view: View, device: str, name: str) -> Iterable[Exhibit]:
    gains = single_gains(view, device)
    where = "" if device_kind(device) == "cpu" else " on the GPU"
    heading = sentence(
        f"The fastest runtime and number format answer {{gain}} as PyTorch as it comes{where}",
        f"What runtimes and number formats gain over PyTorch as it comes{where} cannot be told from this run",
        gain=ratios(gains, "as fast"),
    )
    chart = ladder_chart(view, device, name, str(heading))
    if chart is None:
        return
    all_rungs = by_request(records(view.quantity("inference.ladder", device=device)))
    all_gains = by_request(records(view.quantity("inference.ladder_gain", device=device)))
    errors = _errors(view, device)
    table = [
        _line(case, all_gains[request].get(rung), errors)
        for request, steps in all_rungs.items()
        for rung, case in steps.items()
    ]
    yield Exhibit(
        chart,
        [*filled_texts(_gains(view, device)), *_fastest(view, device), *_accuracy(view, device),
         *unmeasured(view, device, "inference", "request")],
        Table(["Network", "Batch", "Threads", "Rung", "By", "Time", "Gain", "Error"], table, "lrrllrrr",
              f"Requests on {view.device_name(device)}; gain over PyTorch as it comes; error against float64"),
        CLAIMS, heading,
    )  # fmt: skip


def _line(case: Case, gain: Case | None, errors: Mapping[tuple[Any, ...], float]) -> list[str]:
    """One rung of one request as a line of the table."""
    error = errors.get((case["model"], case["batch"], case["threads"], case["runtime"], case["dtype"]))
    threads = int(case["threads"])
    return [
        title(str(case["model"])), f"{int(case['batch']):,}", str(threads) if threads else NOTHING, str(case["rung"]),
        by(case), format_estimate(case, "s"), format_estimate(gain, "1") if gain else NOTHING,
        NOTHING if error is None else format_number(error, 2),
    ]  # fmt: skip


def _points(view: View, device: str) -> pd.DataFrame:
    """All requests that this device answered: points of the summary."""
    return view.points("inference", device=device)


def _errors(view: View, device: str) -> dict[tuple[Any, ...], float]:
    """The largest relative error of each point's answers, where they were checked."""
    points = _points(view, device)
    points = points[points["error"].notna()]
    keys = zip(*(points[name] for name in (*_REQUEST, "backend", "dtype")), strict=True)
    return dict(zip(keys, points["error"], strict=True))


def _gains(view: View, device: str) -> list[Sentence]:
    """Gains at equal precision, and of the number format alone."""
    equal = single_requests(records(view.quantity("inference.runtime_gain", device=device)))
    formats = single_requests(records(view.quantity("inference.format_gain", device=device)))
    lows = [low for one in equal if (low := as_number(one).low) is not None]
    surely = sum(low > 1 for low in lows)
    sure = f"; for {surely or 'none'} of {len(lows)} networks the whole interval lies above 1" if len(lows) > 1 else ""
    told = [
        sentence(f"In float32 on both sides, the fastest runtime answers {{gain}} as PyTorch as it comes{sure}.",
                 gain=ratios(equal, "as fast")),
        sentence("The fastest number format answers {gain} as float32, each in its fastest runtime.",
                 gain=ratios(formats, "as fast")),
    ]  # fmt: skip
    return [one for one, cases in zip(told, (equal, formats), strict=True) if cases]


def _fastest(view: View, device: str) -> list[str]:
    """How often each runtime is the fastest, in float32 and in all."""
    told = []
    for which, cases in (
        ("in float32", records(view.quantity("inference.runtime_gain", device=device))),
        ("of all", records(view.quantity("inference.ladder_gain", device=device, rung=BEST))),
    ):
        most = Counter(
            by(single_request) if which == "of all" else library_name(str(single_request["runtime"]))
            for single_request in single_requests(cases)
        )
        if most:
            parts = [f"{name} for {format_count(times, 'network')}" for name, times in most.most_common()]
            told.append(f"Fastest {which}: {join_words(parts)}.")
    return told


def _accuracy(view: View, device: str) -> list[str]:
    """Runtimes and formats that were tried, and the largest error of each format."""
    points = _points(view, device)
    if not len(points):
        return []
    formats = {
        library_name(str(backend)): join_words(sorted(map(str, some["dtype"].unique())))
        for backend, some in points.groupby("backend", observed=True)
    }
    worst = points.groupby("dtype", observed=True)["error"].max().dropna().sort_values()
    errors = [f"{format_number(float(error), 2)} in {dtype}" for dtype, error in worst.items()]
    return [
        f"Tried: {'; '.join(f'{name} in {some}' for name, some in formats.items())}.",
        *([f"Largest relative error of an answer against float64: {join_words(errors)}."] if errors else []),
    ]


def unmeasured(view: View, device: str, experiment: str, noun: str) -> list[str]:
    """Points of an experiment that were not measured, counted by reason. noun: one point, as in 'request'."""
    table = view.data.table
    rows = table[
        (table["node"] == view.node) & (table["experiment"] == experiment) & (table["device"] == device)
        & (table["status"] != "ok")
    ]  # fmt: skip
    if not len(rows):
        return []
    lost = rows.groupby(["backend", "status", "reason"], observed=True, sort=False).size().sort_values(ascending=False)
    told = [
        f"{library_name(backend)}, {format_count(int(points), noun)} {status}: {reason}"
        for (backend, status, reason), points in zip(lost.index.tolist(), lost, strict=True)
    ]
    return [f"Not measured here: {first_items(told, _MOST_REASONS, '; ')}."]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """For each device of each node the ladder of its networks."""
    return exhibits_per_machine(evidence, _machine)


def _machine(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        yield from _ladder(view, device, f"runtimes-{figure_suffix(place, device)}")


FAMILY = Family(
    "runtimes", "From PyTorch as it comes to the fastest runtime",
    "How much sooner does the same network answer when it is tuned, run elsewhere, or computed in another format?",
    show,
)  # fmt: skip
