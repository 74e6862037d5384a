"""Transfers: copy rates, time per request phase, and requests on the CPU without transfers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report.data.table_rows import row_dicts
from report.estimates import device_kind
from report.formatting import join_words, two_digits, with_unit
from report.pages.chart_rows import line_points
from report.pages.charts import Chart, bar_chart, line_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import amounts, as_number, filled_texts, ratios, sentence, shares
from report.pages.verdict_words import BARS
from report.quantities.offload import REST, host_rates, per_second

WAYS = {"host_to_device": "to the GPU", "device_to_host": "from the GPU", "both": "both ways at once",
        "device_to_device": "within the GPU", "peer": "to another GPU"}  # fmt: skip
ONE_WAY = ("host_to_device", "device_to_host")
MEMORIES = {"pinned": "pinned host memory", "pageable": "pageable host memory"}
OPS = {"elementwise": "sigmoid", "gemv": "matrix times vector", "gemm": "matrix product", "mlp": "two layers"}
PARTS = {REST: "launching and waiting", "h2d": "copying there", "compute": "computing", "d2h": "copying back"}
PLAIN = {"uses": 1, "dtype": "float32"}
# Settings of the usual request: the data are in pinned host memory, and kernels are launched one by one.
USUAL = {"host_memory": "pinned", "launch": "eager"}
BASELINES = {"core": "CPU, one core", "node": "CPU, all cores"}
KILO, MICRO = 1e3, 1e-6
MOST_SIZES = 3


def _copy_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show copy rates by size, with a panel for each kind of host memory."""
    rates = records(view.quantity("transfer.rate", device=device))
    cases = [case for memory in MEMORIES for way in WAYS for case in rates
             if (case["host_memory"], case["direction"]) == (memory, way)]  # fmt: skip
    if not cases:
        return
    table = pd.DataFrame(
        {**point, "way": WAYS[str(case["direction"])], "memory": MEMORIES[str(case["host_memory"])]}
        for case in cases
        for point in line_points([case], "size", 1e9, KILO)
    )
    half = records(view.quantity("transfer.half_rate_size", device=device, host_memory="pinned"))
    # If even the smallest copy exceeds half the best rate, the size from which copies reach half the best rate is
    # unknown.
    known = [case for case in half if amounts([case], "B").text]
    best = max((case for case in cases if case["direction"] in ONE_WAY), key=lambda case: float(case["estimate"]))
    text = f"Copies between the host and {view.device_name(device)} reach {{rate}}"
    title = sentence(
        f"{text}, half of their best rate from {{half}} on" if known else text,
        f"This run does not show how fast copies between the host and {view.device_name(device)} are",
        rate=amounts([best], "B/s"),
        **({"half": amounts(known, "B")} if known else {}),
    )
    own = records(view.quantity("transfer.memory_ratio", device=device, host_memory="pinned"))
    large = [case for case in own if case["size"] == max(other["size"] for other in own)]
    says = filled_texts([sentence("The GPU's own memory moves {gain} bytes a second as the largest copies.",
                                 gain=ratios(large, "as many"))] if large else [])  # fmt: skip
    yield Exhibit(
        Chart(
            name, str(title), line_chart(table, "x", "y", "way", "memory", ("size of a copy, kB", "GB/s (higher is "
                                                                                                  "faster)")),
            f"● measured on {view.name}, copies one after the other. {BARS}.",
            "; ".join(f"{case['way']}, {case['memory']}, {two_digits(case['x'])} kB: {two_digits(case['y'])} GB/s"
                      for case in row_dicts(table)),
        ),
        says,
        Table(["Copy", "Memory", "Size", "Rate"],
              [[WAYS[str(case["direction"])], MEMORIES[str(case["host_memory"])], with_unit(float(case["size"]), "B"),
                format_estimate(case, "B/s")] for case in cases], "llrr", f"Copies on {view.name}"),
        ["W22"],
        title,
    )  # fmt: skip


def _request_name(request: Mapping[str, Any]) -> str:
    """Name a request by its operation and size: 'matrix product, n = 512'."""
    op = str(request["op"])
    about = {"mlp": f"batch {int(request['m']):,}", "gemm": f"n = {int(request['n']):,}"}
    return f"{OPS[op]}, {about.get(op, with_unit(float(request['size']), 'B'))}"


def _pick_sizes(requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pick up to MOST_SIZES requests, spread from smallest to largest."""
    ordered = sorted(requests, key=lambda case: float(case["size"]))
    if len(ordered) <= MOST_SIZES:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / (MOST_SIZES - 1))] for place in range(MOST_SIZES)]


def _phase_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show how a request's time splits into phases."""
    whole = records(view.quantity("offload.request_time", device=device, **PLAIN, **USUAL))
    phases = records(view.quantity("offload.phase_share", device=device, **PLAIN, **USUAL, clock="device"))
    bars: list[dict[str, Any]] = []
    table = []
    for request in [request for op in OPS for request in _pick_sizes([each for each in whole if each["op"] == op])]:
        same = [phase for phase in phases if all(phase[key] == request[key] for key in ("op", "m", "n", "k"))]
        parts = {str(case["phase"]): case for case in same}
        if parts.keys() == PARTS.keys():
            # Divide by the sum: phases are timed by another clock than requests, so the fractions do not add up to
            # exactly 1.
            total = sum(float(case["estimate"]) for case in same)
            bars += [{"case": _request_name(request), "share": 100 * float(parts[key]["estimate"]) / total,
                       "part": part, "time": float(request["estimate"]), "whole": request, "of": parts[key]}
                      for key, part in PARTS.items()]  # fmt: skip
            table.append(
                [
                    _request_name(request),
                    format_estimate(request, "s"),
                    *(format_estimate(parts[key], "1") for key in PARTS),
                ]
            )
    if not bars:
        return
    least = min(bars, key=lambda row: row["time"])
    computing = next(row for row in bars if (row["case"], row["part"]) == (least["case"], PARTS["compute"]))
    shown = pd.DataFrame(bars)[["case", "share", "part"]]
    title = sentence(
        f"In the quickest request, which takes {{time}}, {view.device_name(device)} computes for only {{share}} of the "
        "time",
        f"This run does not show for which part of a request {view.device_name(device)} computes",
        share=shares([computing["of"]]),
        time=amounts([least["whole"]], "s"),
    )
    yield Exhibit(
        Chart(
            name,
            str(title),
            bar_chart(shown, "share", "case", "part of a request's time (%)", "part", stacked=True),
            f"● measured on {view.name}, float32, from pinned host memory and back; the table has the intervals.",
            "; ".join(f"{row['case']}, {row['part']}: {two_digits(row['share'])}%" for row in bars),
        ),
        ["While the host launches a request and waits for it, the GPU idles."],
        Table(["Request", "Time", *PARTS.values()], table, "lrrrrr", f"Requests on {view.name}, shares of the time"),
        ["W23", "W24"],
        title,
    )  # fmt: skip


def _request_exhibit(view: View, devices: Sequence[str], name: str) -> Iterable[Exhibit]:
    """Show request times by data size, for each GPU and for the CPU alone."""
    hosts = per_second(host_rates(view.data))
    # Keep only square products, because other shapes do not lie on the same curve.
    alone = [case for case in (records(hosts.filter(node=view.node, **PLAIN)) if len(hosts) else [])
             if case["op"] != "gemm" or case["m"] == case["n"] == case["k"]]  # fmt: skip
    gpu_requests = records(view.quantity("offload.request_time", **PLAIN, **USUAL)) if devices else []
    requests: list[tuple[str, dict[str, Any]]] = [
        (view.device_name(str(case["device"])), case) for case in gpu_requests
    ]
    requests += [(BASELINES[str(case["baseline"])], case) for case in alone]
    table = pd.DataFrame(
        {**point, "who": who, "op": OPS[str(case["op"])]}
        for op in OPS
        for who, case in requests
        if case["op"] == op
        for point in line_points([case], "size", MICRO, KILO)
    )
    if not len(table):
        return
    quickest = {
        words: min(cases, key=lambda case: float(case["estimate"]))
        for words, cases in (("on the CPU", alone), ("on the GPU, copies included", gpu_requests))
        if cases
    }
    title = sentence(
        f"The quickest request takes {join_words([f'{{time{at}}} {words}' for at, words in enumerate(quickest)])}",
        "This run does not show how long the quickest request takes",
        **{f"time{at}": amounts([case], "s") for at, case in enumerate(quickest.values())},
    )
    yield Exhibit(
        Chart(
            name, str(title),
            line_chart(table, "x", "y", "who", "op", ("data of a request, to a GPU and back, kB", "µs (lower is "
                                                                                                  "faster)")),
            f"● measured on {view.name}, float32; the CPU by its fastest library, a GPU from pinned host memory and "
            f"back. {BARS}.",
            "; ".join(f"{case['op']}, {case['who']}, {two_digits(case['x'])} kB: {two_digits(case['y'])} µs"
                      for case in row_dicts(table)),
        ),
        _core_sentences(view)
        if gpu_requests else ["A GPU would have to copy the data there and back, and would have to be started."],
        Table(["Request", "By", "Data", "Time"],
              [[_request_name(case), who, with_unit(float(case["size"]), "B"), format_estimate(case, "s")]
               for who, case in requests],
              "llrr",
              f"Requests on {view.name}"),
        ["W18"] if gpu_requests else [],
        title,
    )  # fmt: skip


def _crossover_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show by size how many times as fast a GPU answers as all cores of the CPU."""
    cases = records(view.quantity("offload.speedup", **PLAIN, **USUAL, baseline="node"))
    cases = [case for op in OPS for case in cases
             if case["op"] == op and (op != "gemm" or case["m"] == case["n"] == case["k"])]  # fmt: skip
    if len({(case["op"], case["size"]) for case in cases}) < 2:
        return
    table = pd.DataFrame(
        {**point, "op": OPS[str(case["op"])]} for case in cases for point in line_points([case], "size", 1.0, KILO)
    )
    gpu, cpu = (
        sum(side(number) for number in map(as_number, cases))
        for side in (lambda number: (number.low or 0) > 1, lambda number: (number.high or math.inf) < 1)
    )
    counted = f"Of {len(cases)} requests, the GPU certainly answers {gpu} sooner and all cores of the CPU {cpu}"
    crossings = records(view.quantity("offload.crossover", **PLAIN, **USUAL, baseline="node"))
    known = {str(crossing["op"]): crossing for crossing in crossings if amounts([crossing], "B").text}
    title = sentence(
        f"The GPU answers sooner than all cores of the CPU: {join_words([f'{OPS[op]} from {{{op}}}' for op in known])} "
        "on"
        if known
        else counted,
        counted,
        **{op: amounts([case], "B") for op, case in known.items()},
    )
    yield Exhibit(
        Chart(
            name, str(title),
            line_chart(table, "x", "y", "op", axis=("data of a request, to the GPU and back, kB",
                                                    "CPU time over GPU time"), levels={"equal": 1.0}),
            f"● measured on {view.name}, float32, copies from and to pinned host memory included; the CPU by its "
            f"fastest library. Above the line the GPU answers sooner, below it the CPU. {BARS}.",
            "; ".join(f"{case['op']}, {two_digits(case['x'])} kB: "
                      f"×{two_digits(case['y'])}" for case in row_dicts(table)),
        ),
        [f"{counted}."] if known else [],
        Table(["Request", "Data", "CPU time over GPU time"],
              [[_request_name(case), with_unit(float(case["size"]), "B"), format_estimate(case, "")] for case in cases],
              "lrr", f"Requests on {view.name}"),
        ["W18", "W31"],
        title,
    )  # fmt: skip


def _core_sentences(view: View) -> list[str]:
    gains = records(view.quantity("offload.speedup_over_100_cores"))
    return filled_texts([sentence("A GPU computes a matrix product {gain} as 100 such cores would.",
                                  gain=ratios(gains, "as fast"))]
                       if gains else [])  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node copies and phases on the first GPU, where the GPU overtakes the CPU, and request times."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    devices = [device for device in view.devices() if device_kind(device) == "gpu"]
    for device in devices[:1]:
        yield from _copy_exhibit(view, device, f"transfers-copy-{place}")
        yield from _phase_exhibit(view, device, f"transfers-part-{place}")
    yield from _crossover_exhibit(view, f"transfers-crossover-{place}")
    yield from _request_exhibit(view, devices, f"transfers-request-{place}")


FAMILY = Family(
    "transfers", "To a GPU and back",
    "How fast are copies to a GPU, and from which size of a request on are they worth it?", show,
)  # fmt: skip
