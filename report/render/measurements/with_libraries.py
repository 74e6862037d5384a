"""What a vendor's libraries gain, layer by layer; products by this project's kernels beside them; what is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from report.estimates import Estimates
from report.formatting import capital, number, several, with_unit
from report.quantities.libraries import KEYS, gains_over, rates
from report.render import dots
from report.render.figures import Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, formats, mark, records, stated
from report.render.words import LEVEL

_LAYERS = {"convolution": "Convolution", "lstm": "LSTM", "product": "Product"}
_USED = {"library": "as PyTorch calls it", "searched": "after a search for the fastest algorithm"}
_PRODUCTS = {"naive": "naive kernel", "tiled": "tiled kernel", "library": "library"}
_KEYS = {"cpu": "the CPU", "cuda": "CUDA", "mps": "Apple's GPUs", "xpu": "Intel's GPUs"}


def show(view: View) -> Iterable[Exhibit]:
    """Gains for each device, products where there are kernels to hold against the library, and what is installed."""
    for device in view.devices():
        every = view.pick(rates(view.data), device=device)
        gains = {used: cells for used in _USED if len(cells := gains_over(every, used))}
        if "library" in gains:
            lines = _gain_reading(view, device, gains["library"]) + _search_reading(view, device)
            yield Exhibit([view.say(line, device) for line in lines], _gain_drawing(view, device, gains))
        products = view.pick(every, layer="product", variant=list(_PRODUCTS), dtype=["float32", "tf32"])
        lines = _matrix_reading(view, device) + _own_reading(view, device) + _sums_reading(view, device)
        if len(products) and lines:
            yield Exhibit([view.say(line, device) for line in lines], _product_drawing(view, device, products))
    yield from _installed(view)


def _gain_drawing(view: View, device: str, gains: dict[str, Estimates]) -> Drawing:
    looks = colours(list(gains))
    rows: dict[tuple[str, str], dict[str, list[tuple[str, dict[str, Any]]]]] = {}
    for used, cells in gains.items():
        for cell in sorted(records(cells), key=_order):
            group = rows.setdefault((str(cell["layer"]), str(cell["dtype"])), {})
            group.setdefault(_case(cell), []).append((used, cell))
    order = formats(dtype for _, dtype in rows)
    groups: list[dict[str, Any]] = []
    for (layer, dtype), group in sorted(rows.items(), key=lambda one: (list(_LAYERS).index(one[0][0]),
                                                                       order.index(one[0][1]))):  # fmt: skip
        drawn = [
            {
                "label": label,
                "marks": [mark(cell, looks[used], hollow=used != "library") for used, cell in these],
                "told": " / ".join(f"×{number(cell['estimate'])}" for _, cell in these),
            }
            for label, these in group.items()
        ]
        line = {"x": 1.0, "label": "" if groups else "no gain"}
        groups.append({"title": f"{_LAYERS[layer]}, {dtype}", "rows": drawn, "lines": [line]})
    shows = {
        "groups": groups, "x": "time without over time with", "unit": "1", "scale": "log",
        "legend": [{"label": _USED[used], "look": looks[used], "hollow": used != "library"} for used in gains]
        if len(gains) > 1 else [],
    }  # fmt: skip
    instead = "PyTorch's own kernels"
    if "product" in {layer for layer, _ in rows}:
        instead += ", and for products the faster one of this project's"
    caption = (
        f"What the vendor's library gains by layer, shape and batch, with {LEVEL} intervals; without it work "
        f"{instead}; {view.where(device)}."
    )
    return dots.drawing(view.name("with-libraries", device), shows, caption, caption)


def _order(cell: dict[str, Any]) -> tuple[str, int, str]:
    """By name, where whole numbers in front count as such, then by batch."""
    leading = str(cell["shape"]).partition("-")[0].partition("x")[0]
    return leading.zfill(8), int(cell["batch"]), str(cell["shape"])


def _case(cell: dict[str, Any]) -> str:
    """'conv4-3x3, batch 32', and whether it is trained."""
    words = [f"{cell['shape']}, batch {int(cell['batch']):,}"]
    return ", ".join([*words, *(["training"] if cell["passes"] == "both" else [])])


def _span(cells: Sequence[dict[str, Any]], unit: str = "1") -> str:
    """The smallest and the largest, each with its case."""
    ends = [end(cells, key=lambda cell: float(cell["estimate"])) for end in (min, max)]
    told = [f"{stated(cell, unit)} ({', '.join([_case(cell), *_format(cell)])})" for cell in ends]
    return told[0] if len(cells) == 1 else f"{told[0]} to {told[1]}"


def _format(cell: dict[str, Any]) -> list[str]:
    return [str(cell["dtype"])] if "dtype" in cell else []


def _gain_reading(view: View, device: str, cells: Estimates) -> list[str]:
    """In how many cases the library is faster, slower, or neither for sure, how far it goes, and at what rates."""
    told = records(cells)
    faster = sum(cell["low"] > 1 for cell in told)
    slower = sum(cell["high"] < 1 for cell in told)
    text = f"The library is faster, interval and all, in {faster} of {len(told)} cases"
    text += f", and slower in {slower}" if slower else ""
    rates = records(view.quantity("libraries.rate", device=device, variant="library"))
    return [
        f"{text}: it does the same layer at {_span(told)} times the speed.",
        *([f"With the library layers run at {_span(rates, 'FLOP/s')}."] if rates else []),
    ]


def _search_reading(view: View, device: str) -> list[str]:
    found = records(view.quantity("libraries.search_gain", device=device))
    if not found:
        return []
    return [f"A search for its fastest algorithm makes the library {_span(found)} times as fast as its own choice."]


def _matrix_reading(view: View, device: str) -> list[str]:
    """What matrix units are worth, products first."""
    lines = []
    for layer in _LAYERS:
        found = records(view.quantity("libraries.matrix_unit_gain", device=device, layer=layer))
        what = "an LSTM" if layer == "lstm" else f"a {layer}"
        if found:
            lines.append(f"Matrix units make {what} of float32 numbers {_span(found)} times as fast.")
    return lines[::-1]


def _own_reading(view: View, device: str) -> list[str]:
    """What is left of the library's rate in kernels that are a few lines long."""
    parts = []
    for variant in ("naive", "tiled"):
        shares = records(view.quantity("libraries.own_kernel_share", device=device, variant=variant))
        if shares:
            low, high = (end(float(cell["estimate"]) for cell in shares) for end in (min, max))
            span = f"{number(100 * low)}%" if low == high else f"{number(100 * low)}% to {number(100 * high)}%"
            parts.append(f"the {_PRODUCTS[variant]} reaches {span}")
    return [f"{capital(several(parts))} of the library's rate in float32."] if parts else []


def _sums_reading(view: View, device: str) -> list[str]:
    """What it costs to keep partial sums whole."""
    found = records(view.quantity("libraries.float32_sums_cost", device=device))
    return [f"With partial sums in float32 alone, a product takes {_span(found)} times as long."] if found else []


def _product_drawing(view: View, device: str, products: Estimates) -> Drawing:
    looks = colours(["plain", "units"])
    groups = []
    told = sorted(records(products), key=_order)
    for case in dict.fromkeys(_case(cell) for cell in told):
        rows = []
        for variant, label in _PRODUCTS.items():
            for dtype in formats(cell["dtype"] for cell in told):
                these = [c for c in told if (_case(c), c["variant"], c["dtype"]) == (case, variant, dtype)]
                rows += [
                    {
                        "label": f"{label}, {dtype}",
                        "marks": [mark(cell, looks["units" if dtype not in ("float32", "float64") else "plain"])],
                        "told": with_unit(cell["estimate"], "FLOP/s"),
                        "strong": variant == "library",
                    }
                    for cell in these
                ]
        groups.append({"title": case, "rows": rows})
    shows = {
        "groups": groups, "x": "rate", "unit": "FLOP/s", "scale": "log",
        "legend": [
            {"label": "without matrix units", "look": looks["plain"]},
            {"label": "matrix units allowed", "look": looks["units"]},
        ],
    }  # fmt: skip
    caption = (
        "Rate of a product of a batch of rows by a matrix: kernels as one would first write them, and the library "
        f"(bold), with {LEVEL} intervals; {view.where(device)}."
    )
    return dots.drawing(view.name("own-products", device), shows, caption, caption)


def _installed(view: View) -> Iterable[Exhibit]:
    """Where the libraries come from, and for what PyTorch has kernels; the latter once for a node."""
    lines = []
    for device in view.devices():
        toolkit, driver = (
            records(view.quantity(f"libraries.system_{what}_loaded", device=device)) for what in ("toolkit", "driver")
        )
        if toolkit and driver:
            libraries = "came in part from the system" if toolkit[0]["estimate"] else "all came with Python packages"
            origin = "from the system" if driver[0]["estimate"] else "with Python packages"
            lines.append(view.say(f"The CUDA toolkit's libraries {libraries}; the driver came {origin}.", device))
    covered = [device for device in view.devices() if len(_counts(view, device, ""))]
    if covered:
        lines.append(view.say(_coverage(view, covered[-1])))
    if lines:
        yield Exhibit(lines)


def _counts(view: View, device: str, prefix: str) -> dict[str, float]:
    """Kernels by key, and of how many operators (under '')."""
    found = {}
    for key in ("", *KEYS):
        cells = view.cells("libraries", f"{prefix}kernels_{key}" if key else f"{prefix}operators", device=device)
        if len(cells):
            found[key] = float(cells.frame["estimate"].iloc[0])
    return found


def _coverage(view: View, device: str) -> str:
    every, public = (_counts(view, device, prefix) for prefix in ("", "public_"))

    def kernels(counts: dict[str, float]) -> str:
        return several([f"for {_KEYS[key]} of {int(counts[key]):,}" for key in KEYS if key in counts])

    text = f"Of {int(every['']):,} operators, counting all variants, the installed PyTorch has kernels of its own "
    text += kernels(every)
    return f"{text}; of the {int(public['']):,} with a public name, {kernels(public)}." if public else f"{text}."


FAMILY = Family("with-libraries", "With the vendor's libraries, and without", show)
