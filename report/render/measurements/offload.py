"""One request to a GPU and back: where its time goes, and from which size on the GPU answers before the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report.estimates import Estimates, device_kind
from report.formatting import capital, number, with_unit
from report.quantities.offload import REST, host_rates, on_gpu, per_second
from report.render import stacks, sweep
from report.render.figures import AMBER, BLUE, GREEN, MUTED, Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, filled, known, records, series, stated
from report.render.words import LEVEL

OPS = {
    "elementwise": "sigmoid of each number",
    "gemv": "matrix times vector",
    "gemm": "matrix product",
    "mlp": "two layers of a network",
}
_PARTS = {REST: ("launching and waiting", MUTED), "h2d": ("copying there", AMBER), "compute": ("computing", BLUE),
          "d2h": ("copying back", GREEN)}  # fmt: skip
_PLAIN = {"uses": 1, "dtype": "float32"}
# What most programs do who know about pinned memory.
_USUAL = {"host_memory": "pinned", "launch": "eager"}
_BASELINES = {"core": "CPU, one core", "node": "CPU, all cores"}
_WAYS = {
    ("pinned", "eager"): "GPU, pinned",
    ("pinned", "graph"): "GPU, pinned, one graph",
    ("pageable", "eager"): "GPU, pageable",
}
MOST_ROWS = 4


def show(view: View) -> Iterable[Exhibit]:
    """For each GPU the parts of its requests, then the times over the size beside those of the CPU, or those alone."""
    for device in [one for one in view.devices() if device_kind(one) == "gpu"] or ["cpu"]:
        requests = _split(view, device)
        if requests:
            yield Exhibit([view.say(_parts_told(requests), device)], _stacks(view, device, requests))
        times = _times(view, device)
        if times:
            lines = [view.say(line, device) for line in _overtaking(view, device)]
            yield Exhibit(lines, _over_size(view, device, times), wide=True)


def _split(view: View, device: str) -> dict[str, list[dict[str, Any]]]:
    """By operation the requests by size, each with the shares of its parts and its whole time."""
    whole = records(view.quantity("offload.request_time", device=device, **_PLAIN, **_USUAL))
    shares = records(view.quantity("offload.phase_share", device=device, **_PLAIN, **_USUAL, clock="device"))
    found: dict[str, list[dict[str, Any]]] = {}
    for op in OPS:
        for request in sorted((one for one in whole if one["op"] == op), key=lambda one: float(one["size"])):
            same = [one for one in shares if all(one[name] == request[name] for name in ("op", "m", "n", "k"))]
            parts = {str(one["phase"]): float(one["estimate"]) for one in same}
            if parts.keys() == _PARTS.keys():
                found.setdefault(op, []).append({**request, "shares": [parts[name] for name in _PARTS]})
    return found


def _stacks(view: View, device: str, requests: Mapping[str, Sequence[Mapping[str, Any]]]) -> Drawing:
    groups = []
    for op, each in requests.items():
        rows = [
            {"label": _named(one), "told": with_unit(one["estimate"], "s"), "shares": _whole(one["shares"])}
            for one in _spread(each)
        ]
        groups.append({"title": OPS[op], "rows": rows})
    parts = [{"label": label, "colour": colour} for label, colour in _PARTS.values()]
    caption = (
        f"Where the time of one request goes, from data in pinned host memory to the result there, in float32; "
        f"{view.where(device)}. The parts are what the GPU takes for each; while it is launching and waiting it has "
        "nothing to do. The number at the right is the whole."
    )
    about = f"Parts of a request's time on {view.where(device)}."
    return stacks.drawing(
        view.name("offload-parts", device), {"groups": groups, "parts": parts, "x": "share of the time"}, caption, about
    )


def _whole(shares: Sequence[float]) -> list[float]:
    """Shares that fill the bar: two clocks may differ by a little."""
    return [share / sum(shares) for share in shares]


def _spread(each: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A few of the requests, from the smallest to the largest."""
    if len(each) <= MOST_ROWS:
        return list(each)
    return [each[round(i * (len(each) - 1) / (MOST_ROWS - 1))] for i in range(MOST_ROWS)]


def _named(request: Mapping[str, Any]) -> str:
    """A request by what it is about."""
    if request["op"] == "mlp":
        return f"batch {int(request['m']):,}"
    if request["op"] == "gemm":
        return f"n = {int(request['n']):,}"
    return with_unit(float(request["size"]), "B")


def _parts_told(requests: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Where the time of the quickest request goes, and that of the slowest."""
    every = sorted((one for each in requests.values() for one in each), key=lambda one: float(one["estimate"]))
    told = []
    for one in every[:1] + every[1:][-1:]:
        rest, there, compute, back = (number(100 * share, 2) for share in _whole(one["shares"]))
        told.append(
            f"{with_unit(one['estimate'], 's')} ({OPS[one['op']]}, {_named(one)}), of which launching and waiting are "
            f"{rest}%, the copies {there}% and {back}%, and computing {compute}%"
        )
    if len(told) == 1:
        return f"A request takes {told[0]}."
    return f"The quickest request takes {told[0]}; the slowest {told[1]}."


def _times(view: View, device: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By operation the lines of the figure: who answers, and after how long for each size."""
    host = view.pick(per_second(host_rates(view.data)), **_PLAIN)
    gpu = view.pick(on_gpu(view.data), device=device, **_PLAIN)
    lines: dict[str, Estimates] = {}
    for (host_memory, launch), name in _WAYS.items():
        lines[name] = gpu.only(host_memory=host_memory, launch=launch) if len(gpu) else gpu
    for baseline, name in _BASELINES.items():
        lines[name] = host.only(baseline=baseline) if len(host) else host
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for op in OPS:
        these = {name: records(cells.only(op=op)) for name, cells in lines.items() if len(cells)}
        these = {name: sorted(each, key=lambda one: float(one["size"])) for name, each in these.items() if each}
        if these:
            found[op] = these
    return found


def _over_size(view: View, device: str, times: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> Drawing:
    looks = colours([*_WAYS.values(), *_BASELINES.values()])
    panels = []
    for op, lines in times.items():
        drawn = [
            series(_points(each), name, looks[name], hollow=name == _BASELINES["core"]) for name, each in lines.items()
        ]
        panels.append({"title": OPS[op], "series": filled(drawn), "marks": _marks(view, device, op)})
    shows = {
        "panels": panels,
        "along": "size",
        "x": "data there and back",
        "y": "time",
        "unit": "s",
        "base": 2,
        "sizes": True,
    }
    caption = f"Time of one request by the size of its data, float32, with {LEVEL} intervals: "
    if device == "cpu":
        caption += "the CPU's fastest library, without a GPU."
    else:
        caption += (
            "the GPU from and to host memory, and the CPU's fastest library on the same data. The grey band is where "
            "the GPU, from pinned memory, overtakes all cores of the CPU."
        )
    return sweep.drawing(view.name("offload", device), shows, caption, view.where(device))


def _points(each: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    columns = {"y": "estimate", "low": "low", "high": "high"}
    return {
        "xs": [float(one["size"]) for one in each],
        **{name: [known(one[column]) for one in each] for name, column in columns.items()},
    }


def _crossings(view: View, device: str) -> dict[str, dict[str, Any]]:
    cells = records(view.quantity("offload.crossover", device=device, **_PLAIN, **_USUAL, baseline="node"))
    return {str(cell["op"]): cell for cell in cells}


def _marks(view: View, device: str, op: str) -> list[dict[str, Any]]:
    cell = _crossings(view, device).get(op)
    if cell is None or known(cell["estimate"]) is None:
        return []
    return [{"x": float(cell["estimate"]), "low": float(cell["low"]), "high": float(cell["high"]), "label": ""}]


def _overtaking(view: View, device: str) -> list[str]:
    """From which size on the GPU answers before all cores of the CPU, operation by operation."""
    found = _crossings(view, device)
    return [f"{capital(OPS[op])}, from pinned memory: {_from(found[op])}." for op in OPS if op in found]


def _from(cell: Mapping[str, Any]) -> str:
    if known(cell["estimate"]) is not None:
        return f"from {stated(cell, 'B')} on, there and back, the GPU answers before all cores of the CPU do"
    return f"with all its cores, {cell['detail']}" if str(cell["detail"]).startswith("the CPU") else str(cell["detail"])


FAMILY = Family("offload", "One request, there and back", show)
