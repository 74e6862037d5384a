"""Memory bandwidth over the footprint: a panel per number of threads; on a GPU, down to the link to its host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report.formatting import count
from report.quantities.memory import TO_AND_FROM
from report.render import sweep
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.caches import bands, caches, steps, within_reach
from report.render.measurements.marks import colours, fewest_and_most, filled, rates, ratio, records, series, stated
from report.render.words import LEVEL, size

# What the study's own kernels need no name for; and those whose stores go past the caches.
_OWN = {"llvm": "", "llvm-nt": "past the caches", "cupy": ""}


def show(view: View) -> Iterable[Exhibit]:
    """A figure per device."""
    for device in view.devices():
        moved = fewest_and_most(view.of("bandwidth", device=device))
        if not len(moved):
            continue
        moved["x"] = moved["footprint"].astype(float)
        moved["line"] = _lines(moved)
        looks = colours(moved["line"])
        known = caches(view.record) if device == "cpu" else _shared_cache(view, device)
        found = bands(steps(view, device)) if device == "cpu" else []
        host = _link(view, device)
        panels = []
        for _, part in moved.groupby("threads"):
            threads = int(part["threads"].iloc[0])
            # The latency was measured on one core, with the caches that are in its reach.
            marks = within_reach(known, threads) + (found if threads == 1 else [])
            panels.append({**_panel(part, threads, looks, marks), "limits": host})
        shows = {
            "panels": panels, "along": "footprint",
            "x": "footprint of all arrays", "y": "bandwidth", "unit": "B/s", "base": 2, "sizes": True
        }  # fmt: skip
        caption = f"Memory bandwidth by operation over the footprint, with {LEVEL} intervals"
        if known and device != "cpu":
            caption += "; the upright line is the size of the cache that all multiprocessors share"
        elif known:
            caption += "; the upright lines are the sizes of the caches within reach of the threads"
        if host:
            caption += "; the level line, the best rate of a copy between the host and the device"
        if found:
            caption += "; the bands, the sizes found from the latency of one core's loads"
        yield Exhibit(
            _reading(view, device),
            sweep.drawing(view.name("bandwidth", device), shows, f"{caption}.", view.where(device)),
            wide=True,
        )


def _lines(moved: pd.DataFrame) -> list[str]:
    """The operation, the library, and the number format where a library was measured with several."""
    several = moved.groupby("backend")["dtype"].nunique() > 1
    return [
        ", ".join(filter(None, [str(op), _OWN.get(str(backend), str(backend)), str(dtype) if several[backend] else ""]))
        for op, backend, dtype in moved[["op", "backend", "dtype"]].itertuples(index=False)
    ]


def _shared_cache(view: View, device: str) -> list[tuple[str, float, int]]:
    """The last cache of a GPU as `caches` gives those of a CPU; none where the device does not tell."""
    told = next((one.get("l2_bytes") for one in view.record.get("devices", ()) if one["id"] == device), None)
    return [("L2", float(told), 1)] if told else []


def _link(view: View, device: str) -> list[dict[str, Any]]:
    """The best rate of a copy between the host and a GPU, as a level line."""
    rates = view.quantity("transfer.rate", device=device, direction=list(TO_AND_FROM))
    return [{"y": float(rates.frame["estimate"].max()), "label": "link to the host"}] if len(rates) else []


def _panel(
    part: pd.DataFrame, threads: int, looks: Mapping[str, list[str]], marks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    lines = [
        series(rates(line, "bytes"), str(name), looks[str(name)]) for name, line in part.groupby("line", sort=True)
    ]
    title = count(threads, "thread") if threads else "bandwidth"
    return {"title": title, "series": filled(lines), "marks": list(marks)}


def _reading(view: View, device: str) -> list[str]:
    """What main memory gives all threads, what the smallest footprint does, and what stores past the caches gain."""
    cells = view.cells("bandwidth", value="bytes_per_s", device=device, op="triad")
    cells = cells.only(threads=int(cells.frame["threads"].max())) if len(cells) else cells
    own = cells.only(backend=[*_OWN]) if len(cells) else cells
    cells = own if len(own) else cells
    if not len(cells):
        return []
    most = cells.frame["footprint"].max()
    far = cells.only(footprint=most)
    told = records(far)
    best = max(range(len(far)), key=lambda i: told[i]["estimate"])
    name = _OWN.get(told[best]["backend"], told[best]["backend"])
    text = (
        f"At a footprint of {size(float(most))}, triad moves {stated(told[best], 'B/s')}"
        f"{f' with stores {name}' if name else ''}"
    )
    near = cells.only(footprint=cells.frame["footprint"].min())
    if most > near.frame["footprint"].max():
        top = int(near.frame["estimate"].to_numpy(float).argmax())
        gain = records(near.at([top]).by("node") / far.at([best]).by("node"))[0]
        text += f"; at {size(float(near.frame['footprint'].iloc[0]))} it moves {stated(gain, '1')} times as much"
    plain = [i for i, one in enumerate(told) if one["backend"] == "llvm"]
    same = [told[i]["dtype"] for i in plain]
    past = [i for i, one in enumerate(told) if one["backend"] == "llvm-nt" and one["dtype"] in same[:1]]
    if plain and past:
        text += (
            f". Stores past the caches give {stated(ratio(far, past[0], plain[0]), '1')} times the bandwidth of plain "
            "ones there, which first read each line that they write"
        )
    return [view.say(f"{text}.", device)]


FAMILY = Family("bandwidth", "Memory bandwidth", show)
