"""The same kernel on the same chip with and without CUDA, and beside it what a library makes of the product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from report.estimates import Estimates
from report.formatting import exactly, number, with_unit
from report.quantities.without_cuda import CUDA, library, rates
from report.render import dots
from report.render.figures import BLUE, GREEN, PURPLE, VERMILION, Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import factor, mark, records, stated
from report.render.words import LEVEL

_LIBRARY = "library"
_NAMES = {"vulkan": "Vulkan", "webgpu": "WebGPU", CUDA: "CUDA", _LIBRARY: "Library"}
_LOOKS = {"vulkan": [VERMILION, "s"], "webgpu": [PURPLE, "D"], CUDA: [BLUE, "o"], _LIBRARY: [GREEN, "^"]}
_UNITS = {"naive": "FLOP/s", "tiled": "FLOP/s", "triad": "B/s"}
# By kernel and size.
Rows = dict[tuple[str, int], dict[str, dict[str, Any]]]
Shares = dict[tuple[str, int], dict[str, Any]]


def show(view: View) -> Iterable[Exhibit]:
    """A figure of the products and a table of all kernels per accelerator."""
    for device in view.devices():
        rows = _rows(view, device)
        if rows:
            reading = [view.say(line, device) for line in _reading(view, device)]
            shares = {_key(cell): cell for cell in records(_shares(view, device, "vulkan"))}
            yield Exhibit(reading, _drawing(view, device, rows, shares), _table(view, device, rows, shares))


def _rows(view: View, device: str) -> Rows:
    """The rates of each kernel and size: by interface, and for products the library's."""
    found: Rows = {}
    for unit, value in (("FLOP/s", "flop_per_s"), ("B/s", "bytes_per_s")):
        for cell in records(view.pick(rates(view.data, value), device=device)):
            if _UNITS[cell["kernel"]] == unit:
                found.setdefault(_key(cell), {})[str(cell["backend"])] = cell
    for cell in records(view.pick(library(view.data), device=device)):
        for kernel in ("naive", "tiled"):
            if (kernel, int(cell["n"])) in found:
                found[kernel, int(cell["n"])][_LIBRARY] = cell
    return {key: found[key] for key in sorted(found, key=lambda key: (list(_UNITS).index(key[0]), key[1]))}


def _key(cell: Mapping[str, Any]) -> tuple[str, int]:
    return str(cell["kernel"]), int(cell["n"])


def _shares(view: View, device: str, interface: str) -> Estimates:
    """Rates through an interface over those through CUDA."""
    return view.quantity("without_cuda.rate_share", device=device, backend=interface)


def _name(kernel: str, n: int) -> str:
    return f"triad, {number(n)} elements" if kernel == "triad" else f"{kernel} product, {_square(n)}"


def _square(n: int) -> str:
    return f"n = {exactly(n)}"


def _drawing(view: View, device: str, rows: Rows, shares: Shares) -> Drawing | None:
    drawn, known = [], set()
    for (kernel, n), cells in rows.items():
        if kernel != "triad":
            shown = {who: cells[who] for who in _NAMES if who in cells}
            marks = [mark(cell, _LOOKS[who]) for who, cell in shown.items()]
            told = factor(shares[kernel, n]) if (kernel, n) in shares else ""
            drawn.append({"label": _name(kernel, n), "marks": marks, "told": told})
            known |= set(shown)
    if not drawn:
        return None
    order = [who for who in _NAMES if who in known]
    shows = {
        "groups": [{"title": "", "rows": drawn}], "x": "rate", "unit": "FLOP/s", "scale": "log",
        "legend": [{"label": _NAMES[who], "look": _LOOKS[who]} for who in order],
    }  # fmt: skip
    right = ", and at the right Vulkan's rate over CUDA's" if shares else ""
    caption = f"One kernel through several interfaces, float32, with {LEVEL} intervals{right}; {view.where(device)}."
    return dots.drawing(view.name("without-cuda", device), shows, caption, caption)


def _table(view: View, device: str, rows: Rows, shares: Shares) -> Table:
    def rate(cells: Mapping[str, Any], who: str, unit: str) -> str:
        return with_unit(float(cells[who]["estimate"]), unit) if who in cells else NOTHING

    return Table(
        f"Rates of one kernel through several interfaces, and of the library's product; {view.where(device)}",
        ["Kernel", *_NAMES.values(), "Vulkan over CUDA"],
        [
            [
                _name(*key),
                *(rate(cells, who, _UNITS[key[0]]) for who in _NAMES),
                stated(shares[key], "1") if key in shares else NOTHING,
            ]
            for key, cells in rows.items()
        ],
        "lrrrrr",
        [30, 14, 14, 14, 14, 24],
    )


def _reading(view: View, device: str) -> list[str]:
    lines = []
    for interface, told in (
        ("vulkan", "Through Vulkan, without CUDA, the same kernels run at {} times the rate that they have in CUDA."),
        ("webgpu", "With WebGPU's checks at run time they run at {} times that rate."),
    ):
        cells = _shares(view, device, interface)
        if len(cells):
            lines.append(told.format(_span(cells)))
    naive = view.quantity("without_cuda.naive_over_library", device=device)
    if len(naive):
        lines.append(f"In CUDA itself, the naive product runs at {_span(naive)} times the rate of the library.")
    return lines


def _span(cells: Estimates) -> str:
    """The lowest and the highest cell in words, each with what it is."""
    told = records(cells)
    ends = [end(told, key=lambda cell: float(cell["estimate"])) for end in (min, max)]
    texts = [
        f"{stated(cell, '1')} ({_name(*_key(cell)) if 'kernel' in cell else _square(int(cell['n']))})" for cell in ends
    ]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


FAMILY = Family("without-cuda", "The same kernel without CUDA", show)
