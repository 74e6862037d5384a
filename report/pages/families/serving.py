"""Serving: latency by load, cost per request, and serving compared with training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from report.data.table_rows import row_dicts
from report.formatting import format_count, format_exact, format_number, join_words, two_digits, with_unit
from report.pages.chart_rows import library_name, line_points
from report.pages.charts import Chart, line_chart
from report.pages.estimate_list import estimate_list, gpu_suffix
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import amounts, filled_texts, sentence, shares
from report.pages.language_users import language_users
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.serving import LIMIT_S, SERVER

Server = tuple[Any, ...]
NAMES = {"text-classifier": "text classifier", "image-classifier": "photograph classifier", "lookup": "table look-up",
         "embedding": "vector search", "classifier": "image classifier", "int8": "8-bit language model"}  # fmt: skip
WHAT = {"text-classifier": "The text classifier is MiniLM-L6 on 128 tokens.",
        "image-classifier": "The photograph classifier is ResNet-50 on 224 × 224 pixels.",
        "embedding": "The vector search looks through a million vectors."}  # fmt: skip


def _server_key(case: Mapping[str, Any]) -> Server:
    return tuple(case[name] for name in SERVER)


def _service_name(case: Mapping[str, Any]) -> str:
    """Name a service, if needed with its library and number format: 'text classifier (ONNX Runtime, int8)'."""
    service, dtype = str(case["service"]), str(case["dtype"])
    name = NAMES.get(service, service)
    if service in ("text-classifier", "image-classifier"):
        name += f" ({library_name(str(case['backend']))}, {dtype})"
    elif service == "embedding":
        name += f", {dtype}"
    return name + gpu_suffix(str(case["device"]))


def _format_cores(cases: Iterable[Mapping[str, Any]]) -> str:
    """Format the servers' core counts."""
    return join_words(
        [format_count(int(cores), "core") if cores else "all cores" for cores in sorted({c["cores"] for c in cases})]
    )


def _load_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show the 99th percentile latency per service, by load."""
    cases = records(view.quantity("serving.p99_latency_s"))
    if not cases:
        return
    table = pd.DataFrame(
        {**point, "service": _service_name(case)}
        for case in cases
        for point in line_points([case], "requests_per_s", 1e-3)
    )  # fmt: skip
    capacities = sorted(records(view.quantity("serving.capacity")), key=lambda case: -float(case["estimate"]))
    most, least = capacities[0], capacities[-1]
    title = f"The {_service_name(most)} answers {_format_rate(most['estimate'])} within 0.1 s"
    if not least["estimate"]:
        title += f"; the {_service_name(least)}, not even {format_exact(_lowest_load(cases, least))}"
    failed = [record for record in records(view.quantity("serving.failed_share")) if record["estimate"] > 0]
    served = {str(case["service"]) for case in cases}
    what = [description for service, description in WHAT.items() if service in served]
    says = [" ".join(["Requests arrive at random times and do not wait for earlier answers. The figure shows the time "
                      "within which 99% of them are answered.", *what])]  # fmt: skip
    for failure in failed:
        at = _format_rate(failure["requests_per_s"])
        late = f"of the requests to the {_service_name(failure)} got no right answer in time."
        says.append(str(sentence(f"At {at}, {{share}} {late}", f"At {at}, some {late}", share=shares([failure]))))
    late = view.points("serving", "client_delay")["estimate"].max()
    if late > 0:
        says.append(
            f"The client sent 99% of the requests within {with_unit(float(late), 's')} of their due time; this delay "
            "counts."
        )
    client = view.points("serving", "client_share")["estimate"].max()
    if client >= 0.01:
        client_text = shares([{"estimate": float(client)}], most=True).text
        says.append(
            f"The clients ran on the server's own cores and took up to {client_text} of their time."
            if client_text
            else "The clients ran on the server's own cores; the system reported more of their time than these cores "
            "have."
        )
    yield Exhibit(
        Chart(
            name, title,
            line_chart(table, "x", "y", "service", axis=("requests offered per second", "99% answered within, ms"),
                       levels={"0.1 s": 1e3 * LIMIT_S}),
            f"● measured on {view.name}, a server on {_format_cores(cases)}. {BARS}.",
            "; ".join(f"{case['service']}, {format_exact(case['x'])} requests/s: {two_digits(case['y'])} ms"
                      for case in row_dicts(table)),
        ),
        says,
        Table(["Service", "Requests a second", "99% are answered within"],
              [[_service_name(case), format_exact(case["requests_per_s"]), format_estimate(case, "s")]
               for case in cases],
              "lrr",
              f"Loads on {view.name}"),
        ["W29"],
    )  # fmt: skip


def _format_rate(rate: float) -> str:
    return f"{format_exact(float(rate))} requests a second"


def _lowest_load(cases: Iterable[Mapping[str, Any]], of: Mapping[str, Any]) -> float:
    """Return the lowest load among the `cases` that have the same server as the case `of`."""
    return min(float(case["requests_per_s"]) for case in cases if _server_key(case) == _server_key(of))


def _cost_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show CPU time per request and GPU utilisation, at the largest load within the latency limit.

    If no load is within the limit, the smallest load is shown.
    """
    capacities = {
        _server_key(record): float(record["estimate"]) for record in records(view.quantity("serving.capacity"))
    }
    busy = {
        (_server_key(record), record["requests_per_s"]): record
        for record in records(view.quantity("serving.gpu_busy_share"))
    }
    chosen: dict[Server, dict[str, Any]] = {}
    for case in records(view.quantity("serving.cpu_seconds_per_request")):
        if _server_key(case) not in chosen or case["requests_per_s"] <= capacities.get(_server_key(case), 0.0):
            chosen[_server_key(case)] = case
    if not chosen:
        return
    cases = sorted(chosen.values(), key=lambda case: float(case["estimate"]))
    busy_shares = [busy.get((key, chosen[key]["requests_per_s"])) for key in map(_server_key, cases)]
    known_shares = [share for share in busy_shares if share]
    says = filled_texts(
        [sentence("The GPU is busy for {share} of the time at these loads.", share=shares(known_shares))]
        if known_shares
        else []
    )
    yield estimate_list(
        name,
        sentence(
            "A request costs the server {time} of CPU time",
            "This run does not show how much CPU time a request costs the server",
            time=amounts(cases, "s"),
        ),
        [
            (_service_name(case), case, [_format_capacity(capacities, case), format_exact(case["requests_per_s"]),
                                 format_estimate(share, "1") if share else NOTHING])
            for case, share in zip(cases, busy_shares, strict=True)
        ],
        "s", "CPU time of a request, ms",
        f"● measured on {view.name}, at the largest load whose 99th percentile stays below 0.1 s, or at the smallest "
        "offered.",
        ["Service", "Capacity", "At requests a second", "GPU busy, share", "CPU time of a request"],
        1e-3, log=True, says=says, claims=["W30"] if known_shares else [],
    )  # fmt: skip


def _format_capacity(capacities: Mapping[Server, float], case: Mapping[str, Any]) -> str:
    """Format a service's capacity: '300 requests/s'; NOTHING if unknown."""
    return with_unit(capacities[_server_key(case)], "requests/s") if _server_key(case) in capacities else NOTHING


def _break_even_exhibit(evidence: Evidence) -> Iterable[Exhibit]:
    """Show the days until serving uses as many GPU hours as training, by traffic."""
    cases = records(evidence.quantity("serving.break_even_days"))
    if not cases:
        return
    first = min(cases, key=lambda case: float(case["estimate"]))
    models = join_words(sorted({str(case["model"]) for case in cases}))
    yield estimate_list(
        "serving-outgrows",
        sentence(
            f"At the traffic that its maker documents, serving {first['model']} has used as many GPU hours as training "
            "it after {days}",
            f"No documented traffic shows when serving {first['model']} has used as many GPU hours as training it",
            days=amounts([first], "d", limit=math.inf),
        ),
        [(f"{format_number(float(case['traffic']), 3)} tokens a day", case, [str(case["detail"])]) for case in cases],
        "d", "days of serving that use as many GPU hours as training",
        f"◑ derived from what the maker of {models} documents: GPU hours of training, GPUs at work and tokens a day.",
        ["Traffic", "What", "Days"], log=True, claims=["W26"], tier="derived",
        says=[f"Training and traffic are both documented for {models} only."],
    )  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node loads, costs and language model users, then compare serving to training."""
    yield from exhibits_per_machine(evidence, _machine_exhibits)
    yield from _break_even_exhibit(evidence)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _load_exhibit(view, f"serving-load-{place}")
    yield from _cost_exhibit(view, f"serving-cost-{place}")
    yield from language_users(view, place)


FAMILY = Family(
    "serving", "Services behind a server",
    "How many requests does a server answer quickly, and what does each cost?", show,
)  # fmt: skip
