"""Small requests taken apart: to a GPU by what host, GPU and CPU do; to a CPU by what another library does not need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report import statistics
from report.formatting import count, several, with_unit
from report.quantities.offload import PARTS, host_rates, on_device, on_gpu, per_second, requests
from report.render.central.base import Machine
from report.render.measurements.base import View
from report.render.measurements.marks import known, records, stated
from report.render.measurements.offload import OPS

# What is asked of a request by preference: the work of a network, in the format and on the way that most programs use.
_ASKED = ("mlp", "gemm", "gemv", "elementwise")
_PLAIN = {"uses": 1, "dtype": "float32"}
_USUAL = {"host_memory": "pinned", "launch": "eager"}
HOST = {"enqueue_h2d": "launching the copy there", "enqueue_compute": "launching the computation",
        "enqueue_d2h": "launching the copy back", "synchronise": "waiting for the GPU"}  # fmt: skip
CARD = {"h2d": "copying there", "compute": "computing", "d2h": "copying back"}
# Of what is told apart, what the figure shows in one colour.
KINDS = {HOST["enqueue_h2d"]: "launching a copy", HOST["enqueue_d2h"]: "launching a copy"}
CPU, WHOLE = "computing on the CPU", "not told apart"
QUICKEST, REST = "as long as the quickest library takes", "what that one does without"
_BASELINES = {"node": "CPU, all cores", "core": "CPU, one core"}
_LIBRARIES = {"onnx": "ONNX Runtime", "inductor": "PyTorch, compiled", "torch": "PyTorch"}
_ANSWER = {"batch": 1, "dtype": "float32"}
MOST_MODELS = 4
# A model whose answer takes more times the quickest one's would leave the others no room.
_WITHIN = 10.0

# machine, work, request (the whole), parts by what they are, lanes as `lanes.drawing` takes them, and what is told of.
Group = dict[str, Any]


def smallest(view: View, device: str) -> dict[str, Any] | None:
    """The smallest request to a GPU whose parts were all measured, of the first kind in _ASKED that was."""
    whole = view.pick(on_gpu(view.data), device=device, **_PLAIN, **_USUAL)
    for op in _ASKED:
        for one in sorted(records(whole.only(op=op)) if len(whole) else [], key=lambda one: float(one["size"])):
            if all(_part(view, device, one, name) for name in (*PARTS, *HOST)):
                return one
    return None


def _part(view: View, device: str, request: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What a part of a request takes: of PARTS on the GPU's clock, of HOST on the host's."""
    cells = on_device(view.data, name) if name in PARTS else requests(view.data, f"time.{name}")
    wanted = {key: request[key] for key in ("op", "m", "n", "k", "uses", "dtype")}
    wanted |= {"host_memory": request["host_memory"]} if name in PARTS else dict(_USUAL)
    found = records(view.pick(cells, device=device, **wanted))
    return found[0] if found else None


def to_gpu(view: View, device: str) -> Group | None:
    """The lanes of a request: what the host does, what the GPU does of it, and the CPU without a GPU."""
    request = smallest(view, device)
    if request is None:
        return None
    host = [(words, _part(view, device, request, name)) for name, words in HOST.items()]
    card = [(words, _part(view, device, request, name)) for name, words in CARD.items()]
    whole = float(request["estimate"])
    # The last copy ends the request; what comes before on the GPU is drawn as late as it can have been.
    busy = sum(float(part["estimate"]) for _, part in card if part)
    group: Group = {
        "machine": (view.node, device),
        "work": _named(request),
        "request": request,
        "parts": dict([*host, *card]),
        "lanes": [
            _lane("host", host, 0.0, request),
            {**_lane("GPU", card, max(0.0, whole - busy), None), "told": f"busy {with_unit(busy, 's')}"},
        ],
        "cpu": {},
    }
    same = {key: request[key] for key in ("op", "m", "n", "k", "uses", "dtype")}
    for cell in records(view.pick(per_second(host_rates(view.data)), **same)):
        name = _BASELINES[str(cell["baseline"])]
        group["lanes"].append(_lane(name, [(CPU, cell)], 0.0, cell))
        group["cpu"][str(cell["baseline"])] = cell
    group["lanes"].sort(key=lambda lane: ["host", "GPU", *_BASELINES.values()].index(lane["label"]))
    return group


def _named(request: Mapping[str, Any]) -> str:
    """'two layers of a network, batch 1 (8.19 kB there and back)'."""
    shape = f", batch {int(request['m']):,}" if request["op"] == "mlp" else ""
    return f"{OPS[request['op']]}{shape} ({with_unit(float(request['size']), 'B')} there and back)"


def _lane(
    label: str, parts: Iterable[tuple[str, Any]], start: float, whole: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Parts one after the other; the end of the whole with its interval, where it is known."""
    drawn, at = [], start
    for words, part in parts:
        if part is None:
            continue
        length = float(part["estimate"])
        told = stated(part, "s")
        drawn.append(
            {
                "start": at,
                "length": length,
                "kind": KINDS.get(words, words),
                "what": words,
                "told": told,
                "words": f"{label}, {words}: {told}",
            }
        )
        at += length
    lane: dict[str, Any] = {"label": label, "parts": drawn, "told": "", "mark": None}
    if whole:
        ends = {name: known(whole[name]) for name in ("estimate", "low", "high")}
        told = stated(whole, "s")
        lane |= {"told": with_unit(ends["estimate"], "s"), "mark": {**ends, "told": told, "words": f"{label}: {told}"}}
    return lane


def of_gpus(groups: Sequence[Group], machines: Mapping[Machine, str]) -> tuple[str, list[str]]:
    """Of the first GPU how little of the request is computing; and of all whether the CPU is done before."""
    first = groups[0]
    title = (
        f"{machines[first['machine']]} computes for {stated(first['parts'][CARD['compute']], 's')} of the "
        f"{stated(first['request'], 's')} that a small request takes"
    )
    lines = []
    for group in groups:
        cpu = group["cpu"].get("node")
        if cpu is not None:
            lines.append(_against(group["request"], cpu, machines[group["machine"]]))
    return title, lines


def _against(request: Mapping[str, Any], cpu: Mapping[str, Any], name: str) -> str:
    """Whether the CPU is done before a GPU is."""
    times = f"{stated(cpu, 's')} ({cpu['detail']}) against {stated(request, 's')}"
    if float(cpu["high"]) < float(request["low"]):
        return f"The CPU alone is done before {name}: {times}."
    if float(cpu["low"]) > float(request["high"]):
        return f"{name} is done before the CPU alone would be: {times}."
    return f"The CPU alone and {name} cannot be told apart: {times}."


def answers(view: View) -> list[Group]:
    """The models that PyTorch answers soonest, each by PyTorch as it comes and by the quickest other library."""
    cells = view.quantity("inference.latency_s", device="cpu", **_ANSWER)
    cells = cells.only(backend=list(_LIBRARIES)) if len(cells) else cells
    if not len(cells):
        return []
    most = int(cells.frame["threads"].max())
    cells = cells.only(threads=most)
    torch = {str(one["model"]): one for one in records(cells.only(backend="torch"))}
    others = per_second(cells.only(backend=[name for name in _LIBRARIES if name != "torch"]))
    quickest = records(per_second(others.best(["model"], of=["backend"])))
    pairs = [(torch[str(one["model"])], one) for one in quickest if str(one["model"]) in torch]
    groups = sorted((_answer(view, *pair, most) for pair in pairs), key=_taken)
    return [group for group in groups[:MOST_MODELS] if _taken(group) <= _WITHIN * _taken(groups[0])]


def _taken(group: Group) -> float:
    return float(group["request"]["estimate"])


def _answer(view: View, torch: Mapping[str, Any], quickest: Mapping[str, Any], threads: int) -> Group:
    """Two lanes: PyTorch, taken apart where another library surely needs less; and that library."""
    name, less = _LIBRARIES[str(quickest["detail"])], _difference(torch, quickest)
    rest = less if less["low"] > 0 else None
    parts = [(QUICKEST, quickest), (REST, rest)] if rest else [(WHOLE, torch)]
    return {
        "machine": (view.node, "cpu"),
        "work": f"{torch['model']}: one answer on {count(threads, 'thread')}",
        "model": str(torch["model"]),
        "library": name,
        "request": torch,
        "parts": {REST: rest},
        "lanes": [_lane(_LIBRARIES["torch"], parts, 0.0, torch), _lane(name, [(QUICKEST, quickest)], 0.0, quickest)],
    }


def _difference(above: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, float]:
    """One time less another, with its interval; that is nan where either has no error."""
    times = [float(one["estimate"]) for one in (above, below)]
    # The column of a table that holds no errors holds no numbers either.
    errors, dfs = ([math.nan if pd.isna(one[name]) else float(one[name]) for one in (above, below)]
                   for name in ("se", "df"))  # fmt: skip
    se, df = statistics.combine(times[0] * errors[0], dfs[0], times[1] * errors[1], dfs[1])
    half, left = float(statistics.half_width(se, df)), times[0] - times[1]
    return {"estimate": left, "low": left - half, "high": left + half}


def of_answers(groups: Sequence[Group], machines: Mapping[Machine, str]) -> tuple[str, list[str]]:
    """The largest share of PyTorch's time that another library surely does without; and that no GPU was asked."""
    split = [group for group in groups if group["parts"][REST]]
    title, lines = "How long the answer of a small model takes on a CPU, library by library", []
    if split:
        top = max(split, key=lambda group: group["parts"][REST]["low"] / float(group["request"]["high"]))
        title = (
            f"One answer of {top['model']} takes PyTorch {stated(top['request'], 's')}; {top['library']} does without "
            f"{stated(top['parts'][REST], 's')} of these"
        )
        told = [f"{group['model']} {stated(group['parts'][REST], 's')}" for group in split]
        lines.append(
            "What another library does without is not what the answer itself costs. On "
            f"{several(list(machines.values()))} that is {several(told)}."
        )
    lines.append(
        "No GPU was asked: what launching, copying and waiting would add to a request is not known, and the CPU's side "
        "stands alone."
    )
    return title, lines
