"""Side by side: what more cores gain, what it costs if threads part ways, and minutes of full load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from report.estimates import device_kind
from report.formatting import count, several, two_digits
from report.pages.charts import Chart, estimates, lines
from report.pages.evidence import Evidence, View
from report.pages.exhibit import Exhibit, Family, Table, records, stated, times
from report.pages.rows import alt_text, of_device, percent, points, rough, row
from report.pages.words import BARS
from report.quantities.sustained import MINUTES_S

_LOADS = {"products": "matrix products", "triad": "triad from main memory", "one_block": "products in one block"}
_LINEAR = "as many times as long as paths"


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """For each node its cores, its threads in flight, paths that part, and load without a pause."""
    for place, view in enumerate(evidence.views, start=1):
        yield from _cores(view, f"parallelism-cores-{place}")
        for device in view.devices():
            yield from _threads(view, device, f"parallelism-threads-{place}-{device.replace(':', '-')}")
        yield from _paths(view, f"parallelism-paths-{place}")
        yield from _sustained(view, f"parallelism-sustained-{place}")


def _gains(view: View) -> list[dict[str, Any]]:
    """All cores over one, by kind of work: the efficiency of each thread times their number."""
    works = [
        ("gemm.scaling_efficiency", {"backend": "best", "shape": "best"}, "matrix products in {dtype}"),
        ("bandwidth.scaling_efficiency", {"backend": "best", "op": "triad"}, "triad from main memory in {dtype}"),
        ("training.scaling_efficiency", {"backend": "torch", "dtype": "float32"}, "training {model}, batch {batch}"),
    ]  # fmt: skip
    cells = [
        {**cell, "label": label.format(**cell)}
        for name, wanted, label in works
        for cell in records(view.quantity(name, device="cpu", **wanted))
    ]
    most = max((int(cell["threads"]) for cell in cells), default=0)
    found = [
        {**cell, **{end: float(cell[end]) * most for end in ("estimate", "low", "high")}}
        for cell in cells
        if int(cell["threads"]) == most
    ]
    return sorted(found, key=lambda cell: float(cell["estimate"]))


def _cores(view: View, name: str) -> Iterable[Exhibit]:
    """What all cores do over what one does, for products, memory and training."""
    cells = _gains(view)
    if not cells:
        return
    most = int(cells[0]["threads"])
    rows = [row(str(cell["label"]), cell, "1", text=f"×{rough(cell['estimate'])}") for cell in cells]
    yield Exhibit(
        Chart(
            name,
            f"Over one core, {count(most, 'core')} gain {_gained(cells[-1])}, and {_gained(cells[0])}",
            estimates(rows, f"rate of {count(most, 'core')} over that of one", [1.0, float(most)],
                      "from no gain to as many times as cores", log=most > 8),
            f"● measured on {view.name}. {BARS}.",
            alt_text(rows),
        ),
        ["Triad reads two arrays and writes a third; training is that of PyTorch in float32."],
        Table(
            ["Work", "Gain"],
            [[str(cell["label"]), stated(cell, "")] for cell in cells],
            "lr",
            f"The rate of {count(most, 'core')} over that of one on {view.name}",
        ),
    )  # fmt: skip


def _gained(cell: dict[str, Any]) -> str:
    """What a kind of work gains, in a sentence."""
    if not cell["low"] > 1:
        return f"none for certain in {cell['label']}"
    return f"a factor of {rough(cell['estimate'])} in {cell['label']}"


def _threads(view: View, device: str, name: str) -> Iterable[Exhibit]:
    """Throughput of a GPU over the threads in flight."""
    line = points(records(view.quantity("parallelism.throughput", device=device)), "in_flight", 1e9)
    if len(line) < 2:
        return
    enough = records(view.quantity("parallelism.threads_for_90_percent", device=device))
    best = max(float(one["y"]) for one in line)
    title = f"Throughput grows with the threads in flight up to {rough(best)} GFLOP/s"
    if enough:
        title = f"It takes {rough(enough[0]['estimate'])} threads in flight to get nine tenths of the GPU's throughput"
    yield Exhibit(
        Chart(
            name,
            title,
            lines(pd.DataFrame(line), "x", "y", axis=("threads in flight", "GFLOP/s")),
            f"● measured on {view.device_name(device)}: each thread does multiply-adds, one after the other. {BARS}.",
            "; ".join(f"{one['x']:,.0f} threads: {two_digits(one['y'])} GFLOP/s" for one in line),
        ),
        claims=["N05"],
    )


def _paths(view: View, name: str) -> Iterable[Exhibit]:
    """Time over that of one path if a group of 32 takes different paths, device by device."""
    cells = records(view.quantity("parallelism.divergence_cost"))
    if not cells:
        return
    devices = [device for device in view.devices() if any(cell["device"] == device for cell in cells)]
    one = {"paths": 1, "estimate": 1.0, "low": 1.0, "high": 1.0}
    rows = [
        {"device": view.device_name(device), **point}
        for device in devices
        for point in points([one, *(cell for cell in cells if cell["device"] == device)], "paths")
    ]
    most = max(int(cell["paths"]) for cell in cells)
    rows += [{"device": _LINEAR, "x": x, "y": x, "low": None, "high": None} for x in (1.0, float(most))]
    ends = [
        f"{times(cell['estimate'])} as long on "
        f"{'one core' if cell['device'] == 'cpu' else view.device_name(str(cell['device']))}"
        for cell in cells
        if int(cell["paths"]) == most
    ]
    gpu = any(device_kind(device) == "gpu" for device in devices)
    yield Exhibit(
        Chart(
            name,
            f"Work takes {several(ends)} if {most} neighbours take {most} paths through it, not one",
            lines(pd.DataFrame(rows), "x", "y", "device",
                  axis=("different paths in a group of 32", "time over that of one")),
            f"● measured on {view.name}; on a processor one core, the faster of vectors with masks and of one element "
            f"after the other. {BARS}.",
            "; ".join(f"{cell['paths']} paths{of_device(view, str(cell['device']))}: {two_digits(cell['estimate'])}"
                      for cell in cells),
        ),
        ["One instruction works on a whole group. Where its members part ways, each path has to be run in turn."],
        claims=["N06"] if gpu else [],
    )  # fmt: skip


def _sustained(view: View, name: str) -> Iterable[Exhibit]:
    """What minutes of load without a pause cost of the rate, of each load and device the last run."""
    cells = records(view.quantity("sustained.throughput_drift"))
    if not cells:
        return
    rows = [
        row(
            f"{_LOADS.get(cell['load'], cell['load'])}, {cell['dtype']}{of_device(view, str(cell['device']))}",
            percent(cell),
            "%",
        )
        for cell in cells
    ]
    worst = max(100 * float(cell["estimate"]) for cell in cells)
    lost = f"costs at most {two_digits(worst)}% of the rate" if worst > 0 else "costs nothing of the rate"
    yield Exhibit(
        Chart(
            name,
            f"Load without a pause {lost}",
            estimates(rows, "% of the rate lost from a run's first to its last tenth", [0.0], "none", log=False),
            f"● measured on {view.name} in runs of at least {MINUTES_S / 60:.0f} minutes. {BARS}.",
            alt_text(rows),
        )
    )


FAMILY = Family(
    "parallelism", "Side by side: cores, threads and paths",
    "What do more cores gain, what does it cost if they part ways, and does the rate last?", show,
)  # fmt: skip
