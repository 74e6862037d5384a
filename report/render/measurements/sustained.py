"""Load without a pause: a long run over time, what the driver says of an idle chip, and the energy of the work."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from contract.flags import parse
from report.data import flags
from report.estimates import Estimates, concat
from report.formatting import capital, count, interval, number, several, with_unit
from report.quantities.energy import least
from report.quantities.sustained import TENTHS, drift, runs
from report.render import dots, timeline
from report.render.figures import Drawing
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import colours, formats, mark, records, stated
from report.render.words import LEVEL

# A shorter run has nothing to show over time.
LEAST_S = 10.0
# What stood beside the samples: its column, its name, its unit, and what makes that of the column's.
_BESIDE = (
    ("clock_mhz", "clock", "Hz", 1e6),
    ("temperature_c", "temperature", "°C", 1.0),
    ("power_w", "power", "W", 1.0),
)
_LOADS = {"products": "matrix products", "triad": "triad", "one_block": "products in one block"}


def show(view: View) -> Iterable[Exhibit]:
    """The longest run of each device over time, then the energy of all devices side by side."""
    for device in view.devices():
        run = _longest(view, device)
        reading = [*(_course(run) if run is not None else []), *_driver(view, device), *_power(view, device)]
        if reading:
            drawing = _over_time(view, device, run) if run is not None else None
            yield Exhibit([view.say(line, device) for line in reading], drawing)
    yield from _energy(view)


def _longest(view: View, device: str) -> pd.DataFrame | None:
    """The samples of the longest run of a load; None if none is long enough."""
    every = runs(view.data)
    every = every[(every["node"] == view.node) & (every["device"] == device)]
    every = every.assign(load=[json.loads(params)["load"] for params in every["params"]])
    loaded = every[every["load"] != "idle"].groupby(["params", "backend", "dtype", "threads", "round"], sort=True)
    long = [run for _, run in loaded if run["run_s"].iloc[-1] >= LEAST_S and len(run) >= 2 * TENTHS]
    return max(long, key=lambda run: float(run["run_s"].iloc[-1])) if long else None


def _ends(run: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The first and the last tenth of a run."""
    tenth = len(run) // TENTHS
    return run.iloc[:tenth], run.iloc[-tenth:]


def _named(run: pd.DataFrame) -> str:
    load = str(run["load"].iloc[0])
    return f"{_LOADS.get(load, load)} in {run['dtype'].iloc[0]}"


def _course(run: pd.DataFrame) -> list[str]:
    """What a run has lost, from where to where its clock, temperature and power went, and what held the clock back."""
    lost, lasted = drift(run), run["run_s"].iloc[-1]
    what = "the rate did not change by more than it scatters,"
    if not lost["low"] <= 0 <= lost["high"]:
        low, high = sorted(100 * abs(lost[end]) for end in ("low", "high"))
        by = interval(100 * abs(lost["estimate"]), low, high, "1")
        what = f"the rate {'fell' if lost['estimate'] > 0 else 'rose'} by {by}%"
    said = [f"In {lasted:.0f} s of {_named(run)} without a pause {what} from the first tenth to the last."]
    first, last = _ends(run)
    went = []
    for column, name, unit, scale in _BESIDE:
        before, after = (part[column].median() * scale for part in (first, last))
        if pd.notna(before) and pd.notna(after):
            went.append(f"{name} {with_unit(before, unit)} to {with_unit(after, unit)}")
    said += [f"From the first tenth to the last: {several(went)}."] if went else []
    held = next((flag for flag in flags.of_samples(run) if flag.name == "throttled"), None)
    said += [f"The clock was held back in {held.n} of {count(held.of, 'sample')}: {held.most}."] if held else []
    return said


def _over_time(view: View, device: str, run: pd.DataFrame) -> Drawing:
    seconds, first = [float(x) for x in run["run_s"]], _ends(run)[0]
    panels: list[dict[str, Any]] = [
        {
            "title": "rate over that of the first tenth", "unit": "1", "level": 1.0, "xs": seconds,
            "ys": [float(y) for y in first["value"].median() / run["value"]],
        }
    ]  # fmt: skip
    for column, name, unit, scale in _BESIDE:
        seen = run[run[column].notna()]
        if len(seen) > 1:
            panels.append(
                {
                    "title": name, "unit": unit, "xs": [float(x) for x in seen["run_s"]],
                    "ys": [float(y) * scale for y in seen[column]],
                }
            )  # fmt: skip
    spans = _held(run)
    told = "; ".join(
        f"{panel['title']} from {with_unit(min(panel['ys']), panel['unit'])} to "
        f"{with_unit(max(panel['ys']), panel['unit'])}"
        for panel in panels
    )
    caption = f"{capital(_named(run))} without a pause{', shaded where the clock was held back' if spans else ''}"
    return Drawing(
        view.name("sustained", device),
        {"panels": panels, "x": "time of load", "x_unit": "s", "spans": spans},
        timeline.draw,
        f"{caption}, over {seconds[-1]:.0f} s on {view.where(device)}: {told}.",
        f"{caption}; {view.where(device)}. No interval is drawn: this is one run as it went.",
    )


def _held(run: pd.DataFrame) -> list[list[float]]:
    """Stretches of time in which something held the clock back."""
    spans: list[list[float]] = []
    begin = 0.0
    for end, words in zip(run["run_s"], run["flags"], strict=True):
        if any(flag.name == "throttled" for flag in parse(str(words))):
            if spans and spans[-1][1] == begin:
                spans[-1][1] = float(end)
            else:
                spans.append([begin, float(end)])
        begin = float(end)
    return spans


def _driver(view: View, device: str) -> list[str]:
    """What the driver calls use while almost nothing is computed."""
    said = []
    for cell in records(view.quantity("sustained.utilisation_at_low_mfu", device=device)):
        use, load = number(100 * cell["estimate"]), _LOADS.get(cell["load"], cell["load"])
        said.append(f"The driver told a utilisation of {use}% with {load} {cell['detail']}.")
    return said


def _power(view: View, device: str) -> list[str]:
    """What the device draws with nothing to do; or that nothing tells its power."""
    idle = records(view.quantity("energy.idle_power", device=device))
    if idle:
        return [f"With nothing to do it draws {stated(idle[0], 'W')}."]
    sustained = len(view.of("sustained", device=device)) > 0
    unknown = not len(view.quantity("sustained.power", device=device))
    where = "of the processor" if device == "cpu" else "of the device"
    return [f"No counter {where} can be read here that tells its power or energy."] if sustained and unknown else []


def _energy(view: View) -> Iterable[Exhibit]:
    """The least energy of an operation and of a byte, all devices side by side."""
    flop = least(view.quantity("energy.per_flop"), ["device", "dtype"])
    byte = least(view.quantity("energy.per_byte"), ["device", "dtype"])
    both = [cells for cells in (flop, byte) if len(cells)]
    if not both:
        return
    devices = [device for device in view.devices() if any(device in set(cells.frame["device"]) for cells in both)]
    looks = colours(devices)
    groups = [
        {"title": title, "rows": _rows(cells, looks)}
        for title, cells in (("a floating-point operation", flop), ("a byte of memory traffic", byte))
        if len(cells)
    ]
    marked = len(devices) > 1
    shows = {
        "groups": groups, "x": "energy", "unit": "J", "scale": "log",
        "legend": [{"label": device, "look": look} for device, look in looks.items()] if marked else [],
    }  # fmt: skip
    how = several(sorted(set(concat(both).frame["detail"])))
    caption = (
        f"Energy by number format, of the library and shape that take least, {how}, idle power included, with {LEVEL} "
        f"intervals{', ' + ' / '.join(devices) if marked else ''}; {view.label}."
    )
    yield Exhibit(_least_of(view, flop), dots.drawing(view.name("energy"), shows, caption, caption))


def _rows(cells: Estimates, looks: dict[Any, list[str]]) -> list[dict[str, Any]]:
    rows = []
    for dtype in formats(cells.frame["dtype"]):
        same = sorted(records(cells.only(dtype=dtype)), key=lambda cell: list(looks).index(cell["device"]))
        told = " / ".join(with_unit(cell["estimate"], "J") for cell in same)
        rows.append({"label": dtype, "marks": [mark(cell, looks[cell["device"]]) for cell in same], "told": told})
    return rows


def _least_of(view: View, flop: Estimates) -> list[str]:
    """The format that takes each device least, and the devices against each other."""
    said = [
        view.say(
            f"A floating-point operation of a matrix product takes at least {stated(cell, 'J')}, in {cell['dtype']}.",
            str(cell["device"]),
        )
        for cell in records(least(flop, ["device"]))
    ]
    for cell in records(view.quantity("energy.gpu_over_cpu")):
        said.append(
            view.say(
                f"In {cell['dtype']} the GPU spends {stated(cell, '1')} times the CPU's energy on an operation.",
                str(cell["device"]),
            )
        )
    return said


FAMILY = Family("sustained", "Minutes of full load, and energy", show)
