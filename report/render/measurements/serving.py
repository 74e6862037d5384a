"""Services behind a server: how long requests wait at which load, what load each bears, and what a request costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report.estimates import Estimates
from report.formatting import SERVICES, capital, count, exactly, number, several, with_unit
from report.quantities.serving import LIMIT_S, SERVER, loads
from report.render import sweep
from report.render.figures import VERMILION, Drawing
from report.render.measurements.base import NOTHING, Exhibit, Family, Table, View
from report.render.measurements.marks import colours, known, records, series, stated
from report.render.words import LEVEL

_LINES = {"p50_latency": "median", "p99_latency": "99%", "p999_latency": "99.9%"}
# A load that takes more from the cores of the server than this is told.
_NOTICED = 0.01


def show(view: View) -> Iterable[Exhibit]:
    """A figure and a table for each device and number of the server's cores."""
    for device in view.devices():
        every = view.pick(loads(view.data, "p50_latency"), device=device)
        for cores in sorted(every.frame["cores"].unique()) if len(every) else ():
            found = {name: _of(view, name, device, cores) for name in (*_LINES, "failed_share")}
            servers = list(dict.fromkeys(map(_server, records(found["p50_latency"]))))
            reading = [*_borne(view, device, cores), *_failures(found["failed_share"]), *_client(view, device, cores)]
            yield Exhibit(
                [view.say(line, device) for line in reading],
                _drawing(view, device, cores, servers, found),
                _table(view, device, cores),
                wide=True,
            )


def _of(view: View, metric: str, device: str, cores: Any) -> Estimates:
    return view.pick(loads(view.data, metric), device=device, cores=cores)


def _server(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in SERVER)


def _name(cell: Mapping[str, Any]) -> str:
    """'search of a million vectors, float32': the format where the name does not say it."""
    service, dtype = str(cell["service"]), str(cell["dtype"])
    return SERVICES.get(service, service) + ("" if service == dtype else f", {dtype}")


def _held_to(cores: Any) -> str:
    return f"a server on {count(int(cores), 'core')}" if cores else "a server on all cores"


def _drawing(
    view: View, device: str, cores: Any, servers: Sequence[tuple[Any, ...]], found: Mapping[str, Estimates]
) -> Drawing:
    looks = colours(list(_LINES))
    failing = {(_server(cell), cell["requests_per_s"]) for cell in records(found["failed_share"]) if cell["estimate"]}
    panels = []
    for server in servers:
        lines, lost = [], []
        for metric, label in _LINES.items():
            cells = [cell for cell in records(found[metric]) if _server(cell) == server]
            if cells:
                lines.append(series(_points(cells), label, looks[metric]))
            lost += [cell for cell in cells if metric == "p50_latency" and (server, cell["requests_per_s"]) in failing]
        if lost:
            bare = [{**cell, "low": None, "high": None} for cell in lost]
            lines.append(series(_points(bare), "", [VERMILION, "X"], joined=False, told="loads at which some failed"))
        title = capital(_name(dict(zip(SERVER, server, strict=True))))
        panels.append({"title": title, "series": lines, "limits": [{"y": LIMIT_S, "label": "0.1 s"}]})
    shows = {
        "panels": panels,
        "along": "load",
        "x": "requests offered per second",
        "y": "time to the answer",
        "unit": "s",
        "base": 10,
        "bare": "the crosses stand on marks that have theirs",
    }
    caption = (
        f"Time from when a request was due until it was answered, over the load, of {_held_to(cores)}, with {LEVEL} "
        "intervals; arrivals are random and do not wait for answers. Crosses on the median: loads at which some "
        "requests failed, each of which counts with its time-out;"
    )
    return sweep.drawing(f"{view.name('serving', device)}-{cores}", shows, caption, view.where(device))


def _points(cells: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {
        "xs": [float(cell["requests_per_s"]) for cell in cells],
        "y": [float(cell["estimate"]) for cell in cells],
        "low": [known(cell["low"]) for cell in cells],
        "high": [known(cell["high"]) for cell in cells],
    }


def _borne(view: View, device: str, cores: Any) -> list[str]:
    """For each service the largest load that it bears, and what the next one does to it."""
    tails = records(view.quantity("serving.p99_latency_s", device=device, cores=cores))
    shares = records(view.quantity("serving.failed_share", device=device, cores=cores))
    failing = {(_server(one), one["requests_per_s"]) for one in shares if one["estimate"]}
    lines = []
    for cell in records(view.quantity("serving.capacity", device=device, cores=cores)):
        mine = {one["requests_per_s"]: one for one in tails if _server(one) == _server(cell)}
        borne, least = cell["estimate"], min(mine)
        at = borne or least
        text = (
            f"{capital(_name(cell))}: of {_rate(at)}, 99 in 100 are answered within {stated(mine[at], 's')}"
            f"{'' if borne else ', which is more than a tenth of a second'}"
        )
        more = [rate for rate in mine if rate > at]
        if borne and more:
            some = " or later, for some failed" if (_server(cell), min(more)) in failing else ""
            text += f"; of {_rate(min(more))}, within {stated(mine[min(more)], 's')}{some}"
        elif borne:
            text += ", and no larger load was offered"
        lines.append(f"{text}.")
    return lines


def _rate(rate: float) -> str:
    return f"{exactly(float(rate))} {'request' if rate == 1 else 'requests'} a second"


def _failures(shares: Estimates) -> list[str]:
    """The smallest load of each service at which some requests failed."""
    first: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for cell in records(shares):
        if cell["estimate"] > 0:
            first.setdefault(_server(cell), cell)
    told = [
        f"{number(100 * cell['estimate'], 2)}% at {_rate(cell['requests_per_s'])} ({_name(cell)})"
        for cell in first.values()
    ]
    return [f"Requests had no right answer in time from these loads on: {several(told)}."] if told else []


def _client(view: View, device: str, cores: Any) -> list[str]:
    """What the load itself cost, where it had no cores of its own, and how late it was."""
    shares, delays = (records(_of(view, name, device, cores)) for name in ("client_share", "client_delay"))
    taken = max((cell["estimate"] for cell in shares), default=0.0)
    late = max((cell["estimate"] for cell in delays), default=0.0)
    if taken < _NOTICED:
        return []
    return [
        f"The load ran on the server's own cores, took up to {number(100 * taken, 2)}% of their time, and sent 99 of "
        f"100 requests no later than {with_unit(late, 's')} after they were due; both count as waiting."
    ]


def _table(view: View, device: str, cores: Any) -> Table:
    """What each service bears, and the CPU and GPU time of a request at that load."""
    wanted = {"device": device, "cores": cores}
    borne = {_server(cell): cell for cell in records(view.quantity("serving.capacity", **wanted))}
    costs = records(view.quantity("serving.cpu_seconds_per_request", **wanted))
    busy = records(view.quantity("serving.gpu_busy_share", **wanted))
    rows = []
    for server in dict.fromkeys(map(_server, costs)):
        mine = [cell for cell in costs if _server(cell) == server]
        load = borne[server]["estimate"] if server in borne else 0.0
        cost = next((cell for cell in mine if cell["requests_per_s"] == load), mine[0])
        share = [cell for cell in busy if (_server(cell), cell["requests_per_s"]) == (server, cost["requests_per_s"])]
        rows.append(
            [
                _name(cost), _bears(borne.get(server)), f"{exactly(cost['requests_per_s'])}/s", stated(cost, "s"),
                stated(share[0], "1") if share else NOTHING,
            ]
        )  # fmt: skip
    return Table(
        f"The largest load at which 99 of 100 requests were answered within a tenth of a second, as far as loads were "
        f"offered, and what a request cost {_held_to(cores)} at the load named; {view.where(device)}",
        ["Service", "Bears", "At", "CPU time of a request", "GPU busy"],
        rows,
        "lrrrr",
        [30, 22, 10, 24, 14],
    )


def _bears(cell: Mapping[str, Any] | None) -> str:
    """'100 requests/s, fewer than 300'; unknown where no percentile is known."""
    if cell is None:
        return NOTHING
    more = "" if known(cell["high"]) is None else f", fewer than {exactly(cell['high'])}"
    return f"{exactly(cell['estimate'])}/s{more or ' or more'}"


FAMILY = Family("serving", "Services behind a server", show)
