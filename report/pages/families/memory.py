"""Memory: bandwidth and load latency by footprint (data size)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from report.data.table_rows import row_dicts
from report.estimates import device_kind
from report.formatting import format_count, join_words, two_digits, with_unit
from report.pages.chart_rows import (
    alt_text,
    device_suffix,
    estimate_row,
    format_rough,
    library_name,
    line_points,
)
from report.pages.charts import Chart, estimate_chart, line_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, format_estimate, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Number, amounts, as_number, divide_cases, filled_texts, ratios, sentence
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.memory import last_level_cache

# The study's own kernel: _PLAIN uses regular stores, _PAST non-temporal stores, which bypass the caches.
_PLAIN, _PAST = "llvm", "llvm-nt"
_OWN = {_PLAIN: "", _PAST: "stores past the caches", "cupy": ""}
_CLAIMS = ["G06", "N07", "W07"]


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show bandwidth by footprint, main memory bandwidth, and load latency, for each node."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    for device in view.devices():
        yield from _bandwidth_exhibit(view, device, f"memory-bandwidth-{place}-{device.replace(':', '-')}")
    yield from _main_memory_exhibit(view, f"memory-main-{place}")
    yield from _latency_exhibit(view, f"memory-latency-{place}")


def _format_size(value: float) -> str:
    """Format a size in binary units: '48 KiB', '32 MiB'."""
    power = min(3, max(0, int(np.log2(max(value, 1)) // 10)))
    return f"{two_digits(value / 2 ** (10 * power))} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def _bandwidth_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show triad bandwidth by footprint and thread count, if a footprint fits into the caches."""
    cases = view.quantity("bandwidth.by_footprint", device=device, op="triad", backend=[_PLAIN, "cupy"])
    if not len(cases) or cases["footprint"].nunique() < 2:
        return
    table = cases.frame
    many = sorted(set(map(int, table["threads"])))
    thread_counts = [many[0], many[-1]] if len(many) > 1 else many
    rows = [
        {"threads": format_count(threads, "thread"), **point}
        for threads in thread_counts
        for point in line_points(row_dicts(table[table["threads"] == threads]), "footprint", 1e9, 2**20)
    ]
    alone = sorted(records(cases.filter(threads=thread_counts[0])), key=lambda case: float(case["footprint"]))
    near, far = alone[0], alone[-1]
    if float(near["footprint"]) > last_level_cache(view.data, view.node, device):
        return
    first = "The first cache gives one core" if device_kind(device) == "cpu" else "The caches give the GPU"
    memory = "main memory" if device_kind(device) == "cpu" else "its memory"
    title = sentence(
        f"{first} {{gain}} the bandwidth of {memory}",
        f"This run does not show how many times the bandwidth of {memory} caches give",
        gain=amounts([divide_cases(near, far)], lambda gain: f"{format_rough(gain)} times"),
    )
    yield Exhibit(
        Chart(
            name,
            str(title),
            line_chart(pd.DataFrame(rows), "x", "y", "threads" if len(thread_counts) > 1 else None,
                       axis=("size of all three arrays, MiB", "GB/s (higher is faster)")),
            f"● measured on {view.device_name(device)}: triad reads two arrays and writes a third. {BARS}.",
            "; ".join(f"{format_count(int(record['threads']), 'thread')}, {_format_size(record['footprint'])}: "
                      f"{with_unit(record['estimate'], 'B/s')}" for record in records(cases)),
        ),
        [*_cache_sentences(view, device)],
        Table(
            ["Size of all arrays", *(format_count(threads, "thread") for threads in thread_counts)],
            [
                [_format_size(size), *(next((format_estimate(case, "B/s")
                                      for case in records(cases.filter(footprint=size, threads=threads))),
                                     NOTHING) for threads in thread_counts)]
                for size in sorted(set(table["footprint"]))
            ],
            "r" * (1 + len(thread_counts)),
            f"Bandwidth by footprint on {view.device_name(device)}",
        ),
        heading=title,
    )  # fmt: skip


def _cache_sizes(view: View) -> dict[str, float]:
    """Return the bytes of each level of the processor's caches, such as L1, as reported by the system."""
    cpu = (view.record.get("hardware") or {}).get("cpu")
    caches = cpu.get("caches") if isinstance(cpu, Mapping) else None
    return {
        level.removesuffix("d"): cache["bytes"] / cache["instances"]
        for level, cache in (caches or {}).items()
        if level != "L1i"
    }


def _cache_sentences(view: View, device: str) -> Iterable[str]:
    """List a processor's cache sizes as reported by the system."""
    sizes = [f"{level} of {_format_size(size)}" for level, size in _cache_sizes(view).items() if device == "cpu"]
    if sizes:
        yield f"The caches, as the system reports them: {join_words(sizes)}."


def _main_memory_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show triad bandwidth from main memory, for one and all threads, by store type and library."""
    rates = view.quantity("bandwidth.rate", op="triad")
    best = rates.take(rates["backend"] == "best") if len(rates) else rates
    if not len(best):
        return
    largest = rates.take(
        rates["footprint"] == rates["footprint"].groupby(rates["device"], observed=True).transform("max")
    )
    cases = sorted(records(largest), key=lambda case: (str(case["device"]), -float(case["estimate"])))
    rows = [estimate_row(_way_label(view, case), case, "B/s", 1e9) for case in cases]
    tops = _fastest_per_device(best.frame)
    moved = [f"{{d{at}}}" + (f" {_device_phrase(view, str(top['device']))}" if len(tops) > 1 else "")
             for at, top in enumerate(tops)]  # fmt: skip
    memory = "Main memory" if len(tops) == 1 else "Memory"
    title = sentence(
        f"{memory} moves {join_words(moved)}",
        "This run does not show how many bytes a second memory moves",
        **{f"d{at}": amounts([top], "B/s") for at, top in enumerate(tops)},
    )
    yield Exhibit(
        Chart(
            name, str(title),
            estimate_chart(rows, "GB/s, counted as triad's loads and stores"),
            f"● measured on {view.name} with arrays too large for every cache. {BARS}.", alt_text(rows),
        ),
        [*_core_gain_sentences(view), *_streaming_store_sentences(largest.frame)],
        Table(
            ["Way", "Rate"],
            [[row["label"], format_estimate(case, "B/s")] for row, case in zip(rows, cases, strict=True)],
            "lr", f"Triad from main memory on {view.name}",
        ),
        _CLAIMS,
        title,
    )  # fmt: skip


def _device_phrase(view: View, device: str) -> str:
    return "on the processor" if device_kind(device) == "cpu" else f"on {view.device_name(device)}"


def _core_gain_sentences(view: View) -> list[str]:
    """Compare main memory bandwidth on all cores to one core; return no sentence unless both were measured."""
    shared = records(view.quantity("bandwidth.scaling_efficiency", op="triad", backend="best", device="cpu"))
    if not shared:
        return []
    most = max(shared, key=lambda case: (int(case["threads"]), float(case["estimate"])))
    cores = int(most["threads"])
    share = as_number(most)
    if share.low is not None and share.low * cores > 1:
        gain = ratios([Number(share.value * cores, share.low * cores, share.high and share.high * cores)], "as many")
        return filled_texts([sentence(f"{cores} cores together get {{gain}} bytes a second as one core.", gain=gain)])
    return [f"{cores} cores together get no more for certain than one core does."]


def _fastest_per_device(best: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the fastest case per device, CPU first."""
    tops = best.sort_values("estimate").groupby("device", observed=True).tail(1)
    return sorted(row_dicts(tops), key=lambda case: (case["device"] != "cpu", case["device"]))


def _way_label(view: View, case: Mapping[str, Any]) -> str:
    """Name a triad measurement: '2 threads, float64, stores past the caches'."""
    threads = format_count(int(case["threads"]), "thread") if case["threads"] else ""
    own = _OWN.get(str(case["backend"]), library_name(str(case["backend"])))
    return ", ".join(filter(None, [threads, str(case["dtype"]), own])) + device_suffix(view, str(case["device"]))


def _streaming_store_sentences(largest: pd.DataFrame) -> Iterable[str]:
    """Compare non-temporal stores with regular stores on all threads, in the format that gains most."""
    same = largest[(largest["device"] == "cpu") & (largest["threads"] == largest["threads"].max())]
    rates = same.pivot_table(index="dtype", columns="backend", values="estimate")
    if {_PLAIN, _PAST} <= set(rates):
        best = (rates[_PAST] / rates[_PLAIN]).dropna().idxmax()
        ways = [row_dicts(same[(same["dtype"] == best) & (same["backend"] == way)])[0] for way in (_PAST, _PLAIN)]
        yield from filled_texts([sentence(
            "Stores past the caches are {gain} as regular stores, which first read the memory that they overwrite.",
            gain=ratios([divide_cases(*ways)], "as fast"),
        )])  # fmt: skip


def _latency_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show the time per dependent load, by footprint."""
    steps = view.points("sequential", "step_time")
    steps = steps[(steps["kernel"] == "chase") & (steps["chains"] == "one")] if len(steps) else steps
    if not len(steps):
        return
    rows = [
        {"device": view.device_name(device), **point}
        for device in view.devices()
        for point in line_points(row_dicts(steps[steps["device"] == device]), "footprint", 1e-9, 2**20)
    ]
    walk = [row for row in rows if row["device"] == rows[0]["device"]]
    near, far = ({**walk[at], "estimate": walk[at]["y"]} for at in (0, -1))
    title = sentence(
        "A load takes {near} from the first cache and {far} from main memory"
        if near != far
        else "A load from main memory takes {near}",
        "This run does not show how long a load takes",
        near=amounts([near], lambda value: f"{two_digits(value)} ns"),
        far=amounts([far], lambda value: f"{two_digits(value)} ns"),
    )
    several_devices = len({row["device"] for row in rows}) > 1
    regions = [(level, size / 2**20) for level, size in _cache_sizes(view).items()]
    yield Exhibit(
        Chart(
            name, str(title),
            line_chart(pd.DataFrame(rows), "x", "y", "device" if several_devices else None,
                       axis=("size of the array, MiB", "ns per load (lower is faster)"), regions=regions),
            f"● measured on {view.name}, in random order, each load at the address that the last load read. {BARS}."
            + (f" Shaded: {join_words([name for name, _ in regions])}, as the system reports them." if regions else ""),
            "; ".join(f"{_format_size(row['x'] * 2**20)}: {two_digits(row['y'])} ns" for row in rows),
        ),
        filled_texts(
            sentence("A load from main memory takes {gain} as one from the core's own caches.",
                     gain=ratios([gain], "as long"))
            for gain in records(view.quantity("sequential.cache_gain"))
        ),
        Table(
            ["Size", "Time of a load"],
            [[_format_size(case["footprint"]) + device_suffix(view, str(case["device"])), format_estimate(case, "s")]
             for case in row_dicts(steps.sort_values(["device", "footprint"]))],
            "lr", f"Loads that wait for each other on {view.name}",
        ),
        ["W10"],
        title,
    )  # fmt: skip


FAMILY = Family(
    "memory", "Memory: bandwidth and latency",
    "How many bytes a second do caches and main memory give, and how long does a load wait for them?", show,
)  # fmt: skip
