"""Trained models that answer: how long single requests wait, what other libraries save, and many samples at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report.estimates import device_kind
from report.formatting import count, label_value, several, with_unit
from report.render import dots, sweep
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import colours, filled, known, mark, multiple, over, records, series, stated
from report.render.words import LEVEL

# Budgets of claim G15: a control loop, a video frame, a conversation.
BUDGETS = {0.01: "10 ms", 0.033: "33 ms", 0.1: "100 ms"}
_ONE = {"batch": 1}
_PLAIN = {**_ONE, "dtype": "float32"}
_WAYS = {"torch": "PyTorch", "inductor": "PyTorch, compiled", "graph": "PyTorch, one graph", "onnx": "ONNX Runtime"}
_GAINS = {"onnx_gain": "ONNX Runtime", "compile_gain": "compiled", "int8_gain": "int8 over float32"}


def show(view: View) -> Iterable[Exhibit]:
    """Single requests by model on all devices, what libraries save, and the rate over the batch."""
    medians = _requests(view, "inference.latency_s")
    if medians:
        tails = _requests(view, "inference.p99_latency_s")
        lines = [*_served(view), *_sooner(view)]
        yield Exhibit(lines, _waits(view, medians, tails), _saved(view))
    yield from _many(view)


def _requests(view: View, name: str) -> list[dict[str, Any]]:
    """Single requests in float32, each device with all the threads that it was measured with."""
    found = [one for one in records(view.quantity(name, **_PLAIN)) if one["backend"] != "best"]
    most = {device: max(int(one["threads"]) for one in found if one["device"] == device) for device in _devices(found)}
    return [one for one in found if int(one["threads"]) == most[str(one["device"])]]


def _devices(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({str(one["device"]) for one in found}, key=lambda device: (device != "cpu", device))


def _by_size(found: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Models from the smallest to the largest, with the number of their weights; those of unknown size first."""
    sizes = {str(one["model"]): known(one.get("parameters")) for one in found}
    return dict(sorted(sizes.items(), key=lambda item: (item[1] or 0.0, item[0])))


def _waits(view: View, medians: Sequence[Mapping[str, Any]], tails: Sequence[Mapping[str, Any]]) -> dots.Drawing:
    """A row for each model, a mark for each device and library: median filled, 99th percentile hollow."""
    ways = {(device, backend): f"{label_value('kind', device_kind(device))}, {name}"
            for device in _devices(medians) for backend, name in _WAYS.items()
            if any((one["device"], one["backend"]) == (device, backend) for one in medians)}  # fmt: skip
    looks = colours(list(ways))
    rows = []
    for model, size in _by_size(medians).items():
        mine = [(one, False) for one in medians if one["model"] == model]
        mine += [(one, True) for one in tails if one["model"] == model]
        marks = [mark(one, looks[one["device"], one["backend"]], hollow) for one, hollow in mine]
        quickest = min((one for one, hollow in mine if not hollow), key=lambda one: float(one["estimate"]))
        told = f"{with_unit(quickest['estimate'], 's')}"
        below = label_value("parameters", size) if size else ""
        rows.append({"label": model, "below": below, "marks": marks, "told": told})
    legend = [{"label": name, "look": looks[way], "hollow": False} for way, name in ways.items()]
    if tails:
        legend.append({"label": "99th percentile", "look": next(iter(looks.values())), "hollow": True})
    group = {"title": "", "rows": rows, "lines": [{"x": x, "label": ""} for x in BUDGETS]}
    shows = {"groups": [group], "x": "time of one request", "unit": "s", "scale": "log", "legend": legend}
    caption = (
        f"Time of single requests in float32, from inputs in host memory to the answer there, models by the number of "
        f"their weights; {view.label}. Filled: median; hollow: 99th percentile, where a round has enough requests; "
        f"with {LEVEL} intervals over rounds. At the right the quickest median. Broken lines: 10, 33 and 100 ms."
    )
    about = f"Time of single requests by model on {view.label}; the quickest way of each is told."
    return dots.drawing(view.name("inference-latency"), shows, caption, about)


def _served(view: View) -> list[str]:
    """Which models each device serves within each budget, by the quickest library's 99th percentile."""
    lines = []
    tails = records(view.quantity("inference.p99_latency_s", **_PLAIN, backend="best"))
    for device in _devices(tails):
        mine = [one for one in tails if one["device"] == device]
        parts, before = [], 0
        for budget, name in BUDGETS.items():
            within = [one for one in mine if known(one["high"]) is not None and float(one["high"]) < budget]
            if len(within) > before or budget == max(BUDGETS):
                parts.append(f"within {name} {_all_of(within, mine)}")
            before = len(within)
        lines.append(view.say(f"99% of single requests are answered {'; '.join(parts)}.", device))
    return lines


def _all_of(within: Sequence[Mapping[str, Any]], every: Sequence[Mapping[str, Any]]) -> str:
    """How many of the models, and which are not among them."""
    missed = [model for model in _by_size(every) if model not in {one["model"] for one in within}]
    if not missed:
        return f"by all {count(len(every), 'model')}"
    return f"by {len(within)} of {count(len(every), 'model')} (not surely: {several(missed)})"


def _sooner(view: View) -> list[str]:
    """On a node with a GPU: which models the CPU answers first."""
    best = records(view.quantity("inference.latency_s", **_PLAIN, backend="best"))
    cpu = {str(one["model"]): one for one in best if one["device"] == "cpu"}
    lines = []
    for device in _devices(best):
        pairs = [
            (one, cpu[str(one["model"])]) for one in best if one["device"] == device != "cpu" and one["model"] in cpu
        ]
        if not pairs:
            continue
        first = [host for one, host in pairs if float(host["high"]) < float(one["low"])]
        names = several(list(_by_size(first))) if first else "none"
        lines.append(
            view.say(
                f"Of {count(len(pairs), 'model')} measured on both, the CPU surely answers sooner for: {names}.",
                device,
            )
        )
    return lines


def _saved(view: View) -> Table | None:
    """How many times as fast other libraries answer single requests, model by model and device by device."""
    gains = {name: records(view.quantity(f"inference.{name}", **_ONE)) for name in _GAINS}
    every = [one for found in gains.values() for one in found if one.get("dtype", "float32") == "float32"]
    rows = []
    for device in _devices(every):
        mine = [one for one in every if one["device"] == device]
        most = max(int(one["threads"]) for one in mine)
        for model in _by_size(mine):
            cells = []
            for found in gains.values():
                wanted = {"model": model, "device": device, "threads": most}
                hit = [one for one in found if wanted.items() <= one.items() and one.get("dtype") in (None, "float32")]
                cells.append(stated(hit[0], "1") if hit else NOTHING)
            if any(cell != NOTHING for cell in cells):
                rows.append([model, view.where(device), *cells])
    if not rows:
        return None
    return Table(
        "Single requests in float32: how many times as fast as PyTorch as it comes; the last column against float32 in "
        f"ONNX Runtime. {LEVEL} intervals.",
        ["Model", "On", *_GAINS.values()],
        rows,
        "ll" + "r" * len(_GAINS),
        [2, 3, 3, 3, 3],
    )


def _many(view: View) -> Iterable[Exhibit]:
    """Samples answered a second over the batch, a panel per model."""
    found = [one for one in records(view.quantity("inference.throughput")) if one["backend"] != "best"]
    for device in _devices(found):
        mine = [one for one in found if one["device"] == device]
        most = max(int(one["threads"]) for one in mine)
        lines: dict[str, dict[str, list[dict[str, Any]]]] = {model: {} for model in _by_size(mine)}
        for one in sorted(mine, key=lambda one: int(one["batch"])):
            if int(one["threads"]) == most:
                lines[str(one["model"])].setdefault(_line(one), []).append(one)
        lines = {model: {name: line for name, line in these.items() if len(line) > 1} for model, these in lines.items()}
        lines = {model: these for model, these in lines.items() if these}
        if lines:
            drawing = _rates(view, device, lines)
            yield Exhibit([view.say(_grown(lines), device)], drawing, wide=True)


def _line(one: Mapping[str, Any]) -> str:
    return f"{_WAYS.get(str(one['backend']), one['backend'])}, {one['dtype']}"


def _rates(view: View, device: str, lines: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> sweep.Drawing:
    looks = colours(name for these in lines.values() for name in these)
    panels = [
        {"title": model, "series": filled(series(_points(line), name, looks[name]) for name, line in these.items())}
        for model, these in lines.items()
    ]
    shows = {
        "panels": panels,
        "along": "batch",
        "x": "samples in a request",
        "y": "rate",
        "unit": "samples/s",
        "base": 2,
    }
    told = f"Samples answered a second by one caller who waits for each request, with {LEVEL} intervals."
    return sweep.drawing(view.name("inference-throughput", device), shows, told, view.where(device))


def _points(line: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    columns = {"y": "estimate", "low": "low", "high": "high"}
    values = {name: [known(one[column]) for one in line] for name, column in columns.items()}
    return {"xs": [float(one["batch"]) for one in line], **values}


def _grown(lines: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """The rate of the quickest way with the largest batch over that with the smallest, model by model."""
    told = []
    for model, these in lines.items():
        first, top = (max((line[at] for line in these.values()), key=_rate) for at in (0, -1))
        gain = multiple(over(top, first))
        told.append(f"{model} {gain} as many (batch {top['batch']} against {first['batch']})")
    return f"Samples answered a second with many in a request, against few: {'; '.join(told)}."


def _rate(one: Mapping[str, Any]) -> float:
    return float(one["estimate"])


FAMILY = Family("inference", "Answers of trained models", show)
