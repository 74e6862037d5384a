"""Inference ladder: each network in default PyTorch, tuned PyTorch, the fastest runtime and the fastest format."""

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
# Ladder rungs that the figure shows; the table shows all rungs.
DRAWN = (TUNED, RUNTIME, BEST)
_REQUEST = ("model", "batch", "threads")
_MOST_REASONS = 3
CLAIMS = ["G30"]


def weight_count(case: Mapping[str, Any]) -> float | None:
    """Return a network's weight count; None if unknown."""
    counted = case.get("parameters")
    return None if counted is None or pd.isna(counted) else float(counted)


def network_order(case: Mapping[str, Any]) -> tuple[int, float, str]:
    """Return a key to sort networks by kind of input, then by weight count, then by name."""
    return GROUPS.index(group(str(case["model"]))), weight_count(case) or 0.0, str(case["model"])


def group_by_request(cases: Iterable[Case]) -> dict[tuple[Any, ...], dict[str, Case]]:
    """Map each request (model, batch and threads) to its cases by rung name.

    The requests are in page order.
    """
    groups: dict[tuple[Any, ...], dict[str, Case]] = {}
    for case in sorted(cases, key=lambda case: (network_order(case), case["batch"], -case["threads"], case["place"])):
        groups.setdefault(tuple(case[name] for name in _REQUEST), {})[str(case["rung"])] = case
    return groups


def single_requests(cases: Sequence[Case]) -> list[Case]:
    """Select single-sample requests with the most threads per device."""
    return cases_with_most_threads([case for case in cases if int(case["batch"]) == 1])


def runtime_label(case: Mapping[str, Any]) -> str:
    """Format a rung's runtime and number format: 'OpenVINO in bfloat16'."""
    return f"{library_name(str(case['runtime']))} in {case['dtype']}"


def ladder_chart(view: View, device: str, name: str, heading: str, short: bool = False) -> Chart | None:
    """Chart single requests on a device, with a row per network; return None if nothing was measured.

    short: True shows, for each kind of input, only the published networks with the smallest and the largest gain.
    """
    wanted = {name: group_by_request(single_requests(records(view.quantity(f"inference.{name}", device=device))))
              for name in ("ladder", "ladder_gain")}  # fmt: skip
    all_gains = wanted["ladder_gain"]
    shown = _extreme_requests(all_gains) if short else all_gains
    rows = [_network_row(wanted["ladder"][request], gains) for request, gains in all_gains.items() if request in shown]
    if not rows:
        return None
    networks = f"{len(rows)} of {format_count(len(all_gains), 'network')}"
    chosen = f" {networks}: for each kind, those with the smallest and the largest gain."
    if len({row["group"] for row in rows}) == 1:
        rows = [{**row, "group": ""} for row in rows]
    steps = [step for step in DRAWN if any(mark["step"] == step for row in rows for mark in row["marks"])]
    hollow = " Hollow marks: one round, without an interval."
    alone = any(mark["one_round"] for row in rows for mark in row["marks"])
    return Chart(
        name, heading,
        step_chart(rows, steps, "times as fast as plain PyTorch", "1: plain PyTorch, in float32"),
        f"● measured on {view.device_name(device)}: one sample in a request, all threads. On the right: the time in "
        f"plain PyTorch and the shortest time. {BARS}.{hollow if alone else ''}"
        f"{chosen if len(rows) < len(all_gains) else ''}",
        "; ".join(f"{row['label']}: {row['alt']}" for row in rows),
    )  # fmt: skip


def _extreme_requests(gains: Mapping[tuple[Any, ...], Mapping[str, Case]]) -> set[tuple[Any, ...]]:
    """Return the published networks' requests with the smallest and the largest gain for each kind of input."""
    known = [request for request in gains if is_known(str(request[0]))]
    kinds = {group(str(request[0])) for request in known}
    alike = [[request for request in known if group(str(request[0])) == kind] for kind in kinds]
    return {
        end(requests, key=lambda key: float(gains[key][BEST]["estimate"])) for requests in alike for end in (min, max)
    }


def _network_row(times: Mapping[str, Case], gains: Mapping[str, Case]) -> dict[str, Any]:
    """Return a network's row for the step chart.

    A rung gets no mark if a lower rung has the same runtime and number format.
    """
    by_step: dict[str, Case] = {}
    by_label = {runtime_label(times[DEFAULT]): times[DEFAULT]}
    for step in DRAWN:
        if step in gains and runtime_label(gains[step]) not in by_label:
            by_step[step] = gains[step]
            by_label[runtime_label(gains[step])] = times[step]
    # If no rung has another runtime or format than the default, draw BEST, so that the row has a mark.
    drawn_steps = by_step or {BEST: gains[BEST]}
    marks = [
        {"step": step, "one_round": is_single_round(case), **scale_case(case, 1.0)}
        for step, case in drawn_steps.items()
    ]
    first, last = times[DEFAULT], times[BEST]
    short = range_words(_format_time(first), _format_time(last)).replace(" to ", " → ")
    return {
        "label": title(str(first["model"])),
        "group": group(str(first["model"])),
        "marks": marks,
        "short": short,
        "text": f"{short}, {runtime_label(last)}",
        "alt": ", ".join(f"{name} {_format_time(case)}" for name, case in by_label.items()),
    }


def _format_time(case: Mapping[str, Any]) -> str:
    return with_unit(float(case["estimate"]), "s", 2)


def single_gains(view: View, device: str) -> list[Case]:
    """Return gains over default PyTorch in the fastest runtime and format, for single requests in `network_order`."""
    cases = single_requests(records(view.quantity("inference.ladder_gain", device=device, rung=BEST)))
    return sorted(cases, key=network_order)


def known_gains(evidence: Evidence) -> tuple[View, list[Case]] | None:
    """Return the machine with the largest number of sure CPU gains, and all published networks' gains on that CPU.

    Only published networks count, and `sure_gains` defines a sure gain. The user's own machines with a sure gain come
    before other machines. Returns None if no gain is sure.
    """
    by_view = [
        (view, [single_gain for single_gain in single_gains(view, "cpu") if is_known(str(single_gain["model"]))])
        for view in evidence.views
    ]
    best = max(
        by_view, key=lambda pair: (bool(sure_gains(pair[1])), pair[0].own, len(sure_gains(pair[1]))), default=None
    )
    return best if best and sure_gains(best[1]) else None


def sure_gains(cases: Iterable[Case]) -> list[Case]:
    """Select the cases whose interval is narrow and lies above 1."""
    return [case for case in cases if (gain := as_number(case)).is_narrow and gain.low is not None and gain.low > 1]


def _ladder_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    gains = single_gains(view, device)
    where = "" if device_kind(device) == "cpu" else " on the GPU"
    heading = sentence(
        f"The fastest runtime and number format answer {{gain}} as plain PyTorch{where}",
        f"This run does not show what runtimes and number formats gain over plain PyTorch{where}",
        gain=ratios(gains, "as fast"),
    )
    chart = ladder_chart(view, device, name, str(heading))
    if chart is None:
        return
    all_rungs = group_by_request(records(view.quantity("inference.ladder", device=device)))
    all_gains = group_by_request(records(view.quantity("inference.ladder_gain", device=device)))
    errors = _errors_by_point(view, device)
    table = [
        _table_line(case, all_gains[request].get(rung), errors)
        for request, steps in all_rungs.items()
        for rung, case in steps.items()
    ]
    yield Exhibit(
        chart,
        [*filled_texts(_gain_sentences(view, device)), *_fastest_sentences(view, device),
         *_accuracy_sentences(view, device), *unmeasured_sentences(view, device, "inference", "request")],
        Table(["Network", "Batch", "Threads", "Allowed", "Fastest", "Time", "Gain", "Error"], table, "lrrllrrr",
              f"Requests on {view.device_name(device)}; gain over plain PyTorch; error against float64"),
        CLAIMS, heading,
    )  # fmt: skip


def _table_line(case: Case, gain: Case | None, errors: Mapping[tuple[Any, ...], float]) -> list[str]:
    """Format a rung as a table line."""
    error = errors.get((case["model"], case["batch"], case["threads"], case["runtime"], case["dtype"]))
    threads = int(case["threads"])
    return [
        title(str(case["model"])), f"{int(case['batch']):,}", str(threads) if threads else NOTHING, str(case["rung"]),
        runtime_label(case), format_estimate(case, "s"), format_estimate(gain, "1") if gain else NOTHING,
        NOTHING if error is None else format_number(error, 2),
    ]  # fmt: skip


def _points(view: View, device: str) -> pd.DataFrame:
    """Return summary rows for inference points on a device."""
    return view.points("inference", device=device)


def _errors_by_point(view: View, device: str) -> dict[tuple[Any, ...], float]:
    """Map each point with checked answers to the largest relative error among these answers."""
    points = _points(view, device)
    points = points[points["error"].notna()]
    keys = zip(*(points[name] for name in (*_REQUEST, "backend", "dtype")), strict=True)
    return dict(zip(keys, points["error"], strict=True))


def _gain_sentences(view: View, device: str) -> list[Sentence]:
    """State what the fastest runtime gains in float32, and what the fastest number format gains over float32."""
    equal = single_requests(records(view.quantity("inference.runtime_gain", device=device)))
    formats = single_requests(records(view.quantity("inference.format_gain", device=device)))
    lows = [low for case in equal if (low := as_number(case).low) is not None]
    surely = sum(low > 1 for low in lows)
    sure = f"; the gain is certain for {surely or 'none'} of {len(lows)} networks" if len(lows) > 1 else ""
    sentences = [
        sentence(f"In float32 on both sides, the fastest runtime answers {{gain}} as plain PyTorch{sure}.",
                 gain=ratios(equal, "as fast")),
        sentence("The fastest number format answers {gain} as float32, each in its fastest runtime.",
                 gain=ratios(formats, "as fast")),
    ]  # fmt: skip
    return [text for text, cases in zip(sentences, (equal, formats), strict=True) if cases]


def _fastest_sentences(view: View, device: str) -> list[str]:
    """Count for how many networks each runtime is the fastest, in float32 and over all number formats."""
    sentences = []
    for which, cases in (
        ("in float32", records(view.quantity("inference.runtime_gain", device=device))),
        ("of all", records(view.quantity("inference.ladder_gain", device=device, rung=BEST))),
    ):
        most = Counter(
            runtime_label(single_request) if which == "of all" else library_name(str(single_request["runtime"]))
            for single_request in single_requests(cases)
        )
        if most:
            parts = [f"{name} for {format_count(times, 'network')}" for name, times in most.most_common()]
            sentences.append(f"Fastest {which}: {join_words(parts)}.")
    return sentences


def _accuracy_sentences(view: View, device: str) -> list[str]:
    """List the measured runtimes and formats, and the largest error per format."""
    points = _points(view, device)
    if not len(points):
        return []
    formats = {
        library_name(str(backend)): join_words(sorted(map(str, group["dtype"].unique())))
        for backend, group in points.groupby("backend", observed=True)
    }
    worst = points.groupby("dtype", observed=True)["error"].max().dropna().sort_values()
    errors = [f"{format_number(float(error), 2)} in {dtype}" for dtype, error in worst.items()]
    return [
        f"Tried: {'; '.join(f'{name} in {dtypes}' for name, dtypes in formats.items())}.",
        *([f"Largest relative error of an answer against float64: {join_words(errors)}."] if errors else []),
    ]


def unmeasured_sentences(view: View, device: str, experiment: str, noun: str) -> list[str]:
    """Return a sentence that counts an experiment's points without a result, by library, status and reason.

    noun: word for a point in the sentence, such as 'request'.
    """
    table = view.data.table
    rows = table[
        (table["node"] == view.node) & (table["experiment"] == experiment) & (table["device"] == device)
        & (table["status"] != "ok")
    ]  # fmt: skip
    if not len(rows):
        return []
    lost = rows.groupby(["backend", "status", "reason"], observed=True, sort=False).size().sort_values(ascending=False)
    parts = [
        f"{library_name(backend)}, {format_count(int(points), noun)} {status}: {reason}"
        for (backend, status, reason), points in zip(lost.index.tolist(), lost, strict=True)
    ]
    return [f"Not measured here: {first_items(parts, _MOST_REASONS, '; ')}."]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show the inference ladder for each device."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        yield from _ladder_exhibit(view, device, f"runtimes-{figure_suffix(place, device)}")


FAMILY = Family(
    "runtimes", "From plain PyTorch to the fastest runtime",
    "How much sooner does the same network answer when it is tuned, run elsewhere, or computed in another format?",
    show,
)  # fmt: skip
