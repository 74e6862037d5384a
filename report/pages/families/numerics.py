"""Rounding: how the summation order changes matrix products, and the error per number format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from report.data.table_rows import row_dicts
from report.estimates import Estimates, concat_estimates
from report.formatting import capitalize, format_number
from report.pages.chart_rows import alt_text, device_suffix, format_rough, library_name
from report.pages.charts import Chart, estimate_chart
from report.pages.exhibit_types import Exhibit, Family, Table, exhibits_per_machine, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import Number, Place, Sentence, sentence
from report.quantities.ladder import LOOPS

# Labels for changes in how a product is computed. The first change should not alter the result; the last is expected
# to alter it.
_METHODS = {
    "cell_order": "entries computed in another order",
    "permuted": "rows and columns permuted, by a library",
    "threads": "another number of threads, by a library",
    "libraries": "another library",
    "split_k": "sums added in parts",
    "summation": "sums added in another order",
}
_ORDER = list(_METHODS)


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show for each node how far results for the same product differ, and the error per number format."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    yield from _spread_exhibit(view, f"numerics-order-{place}")
    yield from _format_exhibit(view, f"numerics-formats-{place}")


def _format_ulp(value: float) -> str:
    return format_rough(value) if value else "0"


def _spread_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show the largest difference that each change makes to a product's entries, as a range over all cases."""
    parts = [
        view.quantity(f"numerics.spread_{which}_cell{end}_ulp") for which, end in (("across", "s"), ("within", ""))
    ]
    cells = concat_estimates([part for part in parts if len(part)]) if any(map(len, parts)) else Estimates.empty()
    if not len(cells):
        return
    table = cells.frame.assign(detail="")
    ends = table.groupby("method", observed=True)["estimate"].agg(["min", "max", "size"]).reindex(_ORDER).dropna()
    rows = [
        {"label": _METHODS[str(method)], "estimate": high, "other": low, "low": low, "high": high,
         "text": _format_ulp(high) if low == high else f"{_format_ulp(low)} to {_format_ulp(high)}"}
        for method, low, high in zip(ends.index, ends["min"], ends["max"], strict=True)
    ]  # fmt: skip
    title = _spread_title(ends["max"])
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, "largest difference in an entry, units in the last place", log=False),
            f"● measured on {view.name}: smallest and largest difference over libraries, number formats and shapes.",
            alt_text(rows),
        ),
        [
            "A unit in the last place is the step between two neighbouring numbers of a format, here at the root mean "
            "square of the result.",
            *_repeat_sentences(view),
        ],
        Table(
            ["Change", "Library, format", "Shape, m × n × k", "Largest difference"],
            [
                [_METHODS[str(case["method"])],
                 f"{library_name(str(case['backend']))}, {case['dtype']}{device_suffix(view, str(case['device']))}",
                 str(case["shape"]).replace("x", " × "), _format_ulp(case["estimate"])]
                for case in sorted(row_dicts(table), key=lambda case: (_ORDER.index(case["method"]), case["dtype"]))
            ],
            "lllr",
            f"Largest difference in an entry, in units in the last place, on {view.name}",
        ),
        ["W13"],
        title,
    )  # fmt: skip


def _spread_title(most: Any) -> Sentence:
    """Return a title on how far results change with the order in which entries are computed or terms are added."""
    parts: list[str] = []
    units: dict[str, float] = {}
    if "cell_order" in most:
        moved = "changes them by up to {order} units in the last place" if most["cell_order"] else "changes no bit"
        parts.append(f"The order in which a product's entries are computed {moved}")
        units |= {"order": most["cell_order"]} if most["cell_order"] else {}
    if "summation" in most:
        parts.append("the order of addition within an entry changes it by up to {sum} units in the last place")
        units["sum"] = most["summation"]
    if not parts:
        parts, units = (
            ["Another way of computing changes an entry by up to {any} units in the last place"],
            {"any": most.max()},
        )
    return sentence(
        capitalize("; ".join(parts)), **{name: _exact_place(value, _format_ulp) for name, value in units.items()}
    )


def _exact_place(value: float, words: Callable[[float], str]) -> Place:
    """Return the `Place` for a number that has no uncertainty."""
    return Place(((Number(float(value), float(value), float(value), most=math.inf),),), words)


def _repeat_sentences(view: View) -> Iterable[str]:
    """Report if repeated products are bitwise equal."""
    cells = records(view.quantity("numerics.determinism"))
    products = len({(cell["device"], cell["dtype"], cell["backend"], cell["shape"]) for cell in cells})
    if cells and all(cell["estimate"] == 1 for cell in cells):
        each = f"each of {products} products" if products > 1 else "the product"
        yield f"Repeated in the same process or in another, {each} gave the same bits."
    elif cells:
        most = format_rough(max(float(cell["estimate"]) for cell in cells))
        yield f"Repeated, a product of the same numbers gave up to {most} different results."


def _format_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show the largest error in library products, per number format.

    Omits float64, the reference format for the errors.
    """
    products = view.points("gemm")
    products = (
        products[~products["backend"].isin(LOOPS) & (products["error"] > 0) & (products["dtype"] != "float64")]
        if len(products)
        else products
    )
    if not len(products):
        return
    worst = products.loc[products.groupby(["device", "dtype"], observed=True)["error"].idxmax()].sort_values(
        "error", ascending=False
    )
    cells = row_dicts(worst)
    rows = [
        {"label": f"{cell['dtype']}{device_suffix(view, str(cell['device']))}", "estimate": 1e6 * float(cell["error"]),
         "low": None, "high": None, "text": f"1 in {format_rough(1 / float(cell['error']))}"}
        for cell in cells
    ]  # fmt: skip
    ends = [cells[0], *(cells[-1:] if len(cells) > 1 else [])]
    text = [
        f"A product in {rows[0]['label']} is off by one part in {{first}}",
        f"a product in {rows[-1]['label']} by one in {{last}}",
    ]
    title = sentence(
        ", ".join(text[: len(ends)]),
        **{
            name: _exact_place(1 / float(cell["error"]), format_rough)
            for name, cell in zip(("first", "last"), ends, strict=False)
        },
    )
    sums = view.points("numerics", "spread_relative")
    sums = sums[(sums["method"] == "summation") & (sums["dtype"] == "bfloat16")] if len(sums) else sums
    yield Exhibit(
        Chart(
            name,
            str(title),
            estimate_chart(rows, "error, millionths of the result", log=True),
            f"● measured on {view.name}: the library and shape with the largest error in each format; a product "
            "times a random vector, checked in float64.",
            alt_text(rows),
        ),
        [
            "Libraries add products of 16-bit numbers in float32. Sums that are rounded to bfloat16 at every step and "
            f"added in other orders differ by up to {format_number(100 * float(sums['estimate'].max()), 2)}%."
        ]
        if len(sums)
        else [],
        Table(
            ["Format", "Library", "Error"],
            [[str(row["label"]), library_name(str(cell["backend"])), str(row["text"])]
             for row, cell in zip(rows, cells, strict=True)],
            "llr",
            f"Error of matrix products by format on {view.name}",
        ),
        heading=title,
    )  # fmt: skip


FAMILY = Family(
    "numerics", "Rounding: the order of the work, and number formats",
    "Does the order of the work change the result, and how large is the error of each number format?", show,
)  # fmt: skip
