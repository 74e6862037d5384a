"""Matrix products, from a plain loop to the best library: rates, multiply-adds per cycle, sizes and formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from report.data.table_rows import row_dicts
from report.estimates import Estimates, device_kind
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
from report.pages.heading_numbers import (
    Place,
    Sentence,
    amounts,
    as_number,
    as_share,
    divide_cases,
    filled_texts,
    ratios,
    sentence,
    shares,
)
from report.pages.verdict_words import BARS
from report.quantities.ladder import DEFAULT, LOOPS, RUNGS

_LOOP = RUNGS[0][0]
_FORMATS = ("float64", "float32", "tf32", "bfloat16", "float16", "int8")
_TORCH, _MOST_LIBRARIES, _PEAK = "torch", 4, "measured peak"
# _CORE: quantity for multiply-adds per cycle on one core, in matrix products.
# _IN_REGISTERS: quantity for multiply-adds per cycle on numbers in registers.
# _CYCLE: ways to multiply on one core, slowest first; each has a label, a quantity and a filter on the quantity.
_CORE, _IN_REGISTERS = "gemm.mac_per_cycle_per_core", "peak.mac_per_cycle"
_CYCLE: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("interpreted loop", _CORE, {"backend": "python", "shape": "best"}),
    ("compiled loop, scalar", _CORE, {"backend": "scalar", "shape": "best"}),
    ("scalar instructions in registers", "peak.scalar_mac_per_cycle", {"dtype": "float32"}),
    ("compiled loop, vectors", _CORE, {"backend": "simd", "shape": "best"}),
    ("PyTorch, float32", _CORE, {"backend": _TORCH, "shape": "best", "dtype": "float32"}),
    ("best library, float32", _CORE, {"backend": "best", "dtype": "float32"}),
    ("vectors in registers, float32", _IN_REGISTERS, {"dtype": "float32"}),
    ("best library, bfloat16", _CORE, {"backend": "best", "dtype": "bfloat16"}),
    ("vectors in registers, bfloat16", _IN_REGISTERS, {"dtype": "bfloat16"}),
)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node one product computed in many ways, multiply-adds per cycle, rates by size, and layer gains."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _ladder_exhibit(view, f"matrix-products-ladder-{place}")
    yield from _cycle_exhibit(view, f"matrix-products-cycle-{place}")
    for device in view.devices():
        yield from _size_exhibit(view, device, f"matrix-products-sizes-{place}-{device.replace(':', '-')}")
    yield from _layer_exhibit(view, f"matrix-products-layers-{place}")


def _ladder_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show how fast a 1,000 by 1,000 product is computed in each way, from an interpreted loop to the best library."""
    cases = sorted(records(view.quantity("ladder.rate", work="product")), key=lambda case: float(case["estimate"]))
    rungs = {str(case["rung"]): case for case in cases}
    if DEFAULT not in rungs:
        return
    best, default = cases[-1], rungs[DEFAULT]
    gains = {"default": ratios([divide_cases(best, default)], "as fast")}
    text = "The fastest way to multiply matrices is {default} as plain PyTorch on all cores"
    if cases[0]["rung"] == _LOOP:
        gains["loop"] = ratios([divide_cases(best, cases[0])], "as fast", words=format_rough)
        text += f" and {{loop}} as an {_LOOP}"
    fallback = "This run does not show how much faster the fastest way to multiply matrices is"
    title = sentence(text, fallback, **gains)
    library, all_cores = rungs.get("best library, all cores"), rungs.get("bfloat16, all cores")
    says: list[Sentence] = []
    if library and all_cores:
        says.append(
            sentence(
                "On the same cores the best library is {library} as plain PyTorch, and 16-bit numbers are {format} as "
                "float32 in that library. Whoever compares a GPU with plain PyTorch on the CPU leaves out both.",
                library=ratios([divide_cases(library, default)], "as fast"),
                format=ratios([divide_cases(all_cores, library)], "as fast"),
            )
        )
    labels = [str(case["rung"]) + device_suffix(view, case["device"]) for case in cases]
    rows = [estimate_row(label, case, "FLOP/s", 1e9) for label, case in zip(labels, cases, strict=True)]
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, "GFLOP/s", log=True),
            f"● measured on {view.name}: a product of two matrices of 1,000 × 1,000. {BARS}.",
            alt_text(rows),
        ),
        filled_texts(says),
        Table(
            ["Way", "Library, format", "Rate"],
            [
                [label, str(case["detail"]), format_estimate(case, "FLOP/s")]
                for label, case in zip(labels, cases, strict=True)
            ],
            "llr",
            f"One product of two matrices of 1,000 × 1,000 on {view.name}",
        ),
        heading=title,
    )


def _cycle_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show the multiply-adds that one core finishes in a clock cycle."""
    fastest = [
        (label, max(cases, key=lambda case: float(case["estimate"])))
        for label, quantity, wanted in _CYCLE
        if (cases := records(view.quantity(quantity, threads=1, **wanted)))
    ]
    best = next((case for label, case in fastest if label == "best library, float32"), None)
    if best is None:
        return
    rows = [estimate_row(label, case, "MAC/cycle", text=two_digits(case["estimate"])) for label, case in fastest]
    title = sentence(
        "One core finishes {count} multiply-adds in a clock cycle" + _compare_with_one(best),
        "This run does not show how many multiply-adds one core finishes in a clock cycle",
        count=amounts([best]),
    )
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, "multiply-adds that one core finishes in a clock cycle", [1.0],
                           "one operation at a time", log=True),
            f"● measured on one core of {view.name}. {BARS}.",
            alt_text(rows),
        ),
        ["A core is parallel within itself: it starts several instructions in a cycle, and each works on a whole "
         "vector of numbers. \"In registers\" is the most that the core can do, with no memory in the way."],
        Table(
            ["Way", "Library, shape", "Multiply-adds a cycle"],
            [[label, str(case.get("detail") or ""), format_estimate(case, "")] for label, case in fastest],
            "llr",
            f"Multiply-adds in a clock cycle of one core of {view.name}",
        ),
        ["G02", "N03"],
        title,
    )  # fmt: skip


def _compare_with_one(case: Mapping[str, Any]) -> str:
    """Return a title ending that compares multiply-adds per cycle to 1; '' if the interval is unknown."""
    low, high = as_number(case).low, as_number(case).high
    if low is None or high is None:
        return ""
    return ", not one" if low > 1 else ", no more than one" if high <= 1 else ", about one"


def _size_exhibit(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Show rates for square products by size: a panel per format, a line per library, and the measured peak."""
    cases = view.quantity("gemm.rate", device=device)
    if not len(cases):
        return
    most = int(cases["threads"].max())
    shapes = cases.take((cases["shape"] != "best") & (cases["threads"] == most) & ~cases["backend"].isin(LOOPS))
    table = shapes.take((shapes["m"] == shapes["n"]) & (shapes["n"] == shapes["k"])).frame
    # Drop libraries that were measured at one size only, because a curve needs several.
    table = table[table.groupby(["dtype", "backend"], observed=True)["n"].transform("nunique") > 1]
    if not len(table):
        return
    formats = [dtype for dtype in _FORMATS if dtype in set(table["dtype"])]
    rows = [
        {"dtype": dtype, "library": library_name(name), **point}
        for name in sorted(table["backend"].value_counts().index[:_MOST_LIBRARIES])
        for dtype in formats
        for point in line_points(row_dicts(table[(table["backend"] == name) & (table["dtype"] == dtype)]), "n", 1e9)
    ]
    peaks = {str(case["dtype"]): float(case["estimate"]) / 1e9 for case in records(_peaks(view, device, most))}
    peaks = {dtype: peak for dtype, peak in peaks.items() if dtype in formats}
    rates = [row["y"] for row in rows]
    wide = max(*rates, *peaks.values()) > 20 * min(rates)
    on = f"{format_count(most, 'thread')} of {view.name}" if most else view.device_name(device)
    bests = {
        str(case["dtype"]): case
        for case in records(cases.filter(backend="best", threads=most))
        if case["dtype"] in formats
    }
    title = _size_title(view, device, most, bests)
    yield Exhibit(
        Chart(
            name,
            str(title),
            line_chart(pd.DataFrame(rows), "x", "y", "library", "dtype", ("rows and columns of each matrix", "GFLOP/s"),
                       levels={_PEAK: peaks}, log=(True, wide)),
            f"● measured on {on}. {BARS}. Measured peak: multiply-adds of numbers in registers.",
            "; ".join(f"{dtype}: {with_unit(case['estimate'], 'FLOP/s')} with {case['detail']}"
                      for dtype, case in bests.items()),
        ),
        [*_format_sentences(view, device, bests), *_single_shape_sentences(shapes)],
        Table(
            ["Format", "Library", "Shape, m × n × k", "Rate"],
            [
                [case["dtype"], library_name(case["backend"]), case["shape"].replace("x", " × "),
                 format_estimate(case, "FLOP/s")]
                for case in sorted(records(shapes), key=lambda case: (str(case["dtype"]), -float(case["estimate"])))
            ],
            "lllr",
            f"Matrix products on {on}, each format from the fastest on",
        ),
        ["W20"] if device_kind(device) == "gpu" else [],
        title,
    )  # fmt: skip


def _peaks(view: View, device: str, threads: int) -> Estimates:
    """Return the measured peak for fused multiply-adds per format, in FLOP/s."""
    cases = view.cases("peak", value="flop_per_s", device=device)
    return cases.filter(kernel="fma", threads=threads) if len(cases) else cases


def _size_title(view: View, device: str, threads: int, bests: Mapping[str, Any]) -> Sentence:
    """Return a title with the fractions of the peak that the best library and PyTorch reach.

    If a fraction is unknown, the title gives the fastest rate instead.
    """
    peak_shares = records(
        view.quantity("gemm.peak_share", device=device, threads=threads, dtype="float32", shape="best")
    )
    reached = {case["backend"]: case for case in peak_shares}
    top = max(bests.values(), key=lambda case: float(case["estimate"]))
    fastest = sentence(
        f"The fastest product runs at {{rate}}, in {top['dtype']}",
        "This run does not show how fast the fastest product runs",
        rate=amounts([top], "FLOP/s"),
    )
    if not {"best", _TORCH} <= set(reached):
        return fastest

    def place(backend: str) -> Place:
        by = "the best library" if backend == "best" else library_name(backend)
        return shares([as_share(reached[backend], f"products in float32 with {by}", "the measured peak")])

    return sentence(
        "In float32 the best library reaches {best} of the measured peak, plain PyTorch {torch}",
        str(fastest),
        best=place("best"),
        torch=place(_TORCH),
    )


def _single_shape_sentences(shapes: Estimates) -> Iterable[str]:
    """Yield a sentence for each shape that is the only measured shape in some formats."""
    single: dict[str, list[str]] = {}
    for dtype, sizes in shapes.frame.groupby(shapes.frame["dtype"].astype(str), observed=True)["shape"]:
        if sizes.nunique() == 1:
            single.setdefault(str(sizes.iloc[0]).replace("x", " × "), []).append(str(dtype))
    for shape, dtypes in single.items():
        yield f"In {join_words(dtypes)} only the shape {shape} was measured; another may be faster."


def _format_sentences(view: View, device: str, bests: Mapping[str, Any]) -> Iterable[str]:
    """Compare the rates in 16-bit formats with the rate in float32."""
    if {"float32", "bfloat16"} <= set(bests):
        gain = divide_cases(bests["bfloat16"], bests["float32"])
        text = "bfloat16, a 16-bit format, is {gain} as float32, each with its best library."
        yield from filled_texts([sentence(text, gain=ratios([gain], "as fast"))])
    alone = {
        case["dtype"]: case for case in records(view.quantity("gemm.rate", device=device, backend="best", threads=1))
    }
    if {"float16", "float32"} <= set(alone) and (share := divide_cases(alone["float16"], alone["float32"])).value < 1:
        text = "In float16, also a 16-bit format, one core reaches only {share} of its float32 rate."
        yield from filled_texts([sentence(text, share=shares([replace(share, most=1.0)]))])


def _layer_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show for each layer how much faster it runs with a neural network library than without."""
    cases = sorted(records(view.quantity("libraries.gain")), key=lambda case: float(case["estimate"]))
    if not cases:
        return
    rows = [
        estimate_row(f"{_layer_name(case)}{device_suffix(view, case['device'])}", case, "1",
                     text=f"×{two_digits(case['estimate'])}")
        for case in cases
    ]  # fmt: skip
    title = sentence(
        "A library for neural networks runs layers {gain} as PyTorch's own code",
        "This run does not show what a library for neural networks gains over PyTorch's own code",
        gain=ratios(cases, "as fast"),
    )
    on_gpu = any(device_kind(case["device"]) == "gpu" for case in cases)
    short = "; those that take a GPU less than 50 µs are timed in a graph, without their launch" if on_gpu else ""
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, "rate with the library over that without it", [1.0], "no gain", log=True),
            f"● measured on {view.name}, in float32, each layer called by itself (eager){short}. {BARS}.",
            alt_text(rows),
        ),
        claims=["G07"] if on_gpu else [],
        heading=title,
    )


def _layer_name(case: Mapping[str, Any]) -> str:
    """Name a layer with its shape and passes: 'LSTM, 256 cases, forward'."""
    kind, shape = str(case["layer"]).replace("lstm", "LSTM"), str(case["shape"]).replace("-", " ")
    return f"{kind}, {shape}, {'training' if case['passes'] == 'both' else 'forward'}"


FAMILY = Family(
    "matrix-products", "Matrix products, from a loop to the best library",
    "How fast does each way of multiplying matrices run, and how much of the machine does it use?", show,
)  # fmt: skip
