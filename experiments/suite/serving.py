"""Models behind a real HTTP server under random arrivals: latency, failures, and what a request costs.

`experiments.serving` has the services, the server and the load; the clocks are the load's own.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from experiments.children import Child
from experiments.devices import Device
from experiments.registry import experiment
from experiments.serving import connection_limits
from experiments.serving.server_processes import split_cores, start, wait_until
from experiments.workload import Dtype, HarnessError, Observed, Threads, Unsupported, Workload, largest_error

if TYPE_CHECKING:
    from experiments.serving.services import Answer, Service

# A request that has no answer after this has failed: nobody waits twenty times as long as is comfortable.
TIMEOUT_S = 2.0
# Seconds that a server has to start, and to finish what is left over from the last point.
START_S, DRAIN_S = 50.0, 10.0
# Seconds in which a process that gives up its socket has ended.
END_S = 1.0
# Servers that are kept at a time; each needs memory, and nothing else while nobody asks it.
MOST_SERVERS = 6
# Requests a second up to which a point is taken to start its server.
STARTING = 20
# Latencies kept of a round; percentiles are those of all.
MOST_SAMPLES = 500
# Share of the requests that the harness may fail, and that are left out. Beyond it, the load failed.
HARNESS_SHARE = 0.001
# A load that sends more than LATE_SHARE of its requests so late measures itself: half of what is comfortable to wait.
LATE_S, LATE_SHARE = 0.05, 0.01
# A load is offered so often until nothing disturbs it.
TRIES = 3
# Percentiles, and the requests without which they say nothing.
PERCENTILES = (("p50_latency", 50.0, 1), ("p99_latency", 99.0, 100), ("p999_latency", 99.9, 1000))


def memory(service: str, dtype: str, backend: str, **_: Any) -> float:
    """As the service says."""
    from experiments.serving.services import SERVICES

    return SERVICES[service].memory(Dtype(dtype), backend)


@dataclass(frozen=True)
class Kept:
    """A server that lives on for the next points: it takes seconds to start."""

    child: Child
    port: int
    room: connection_limits.Room

    def ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """The server's answer, in JSON. Raises HarnessError where nobody answers, RuntimeError if it is no answer."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_S)
        try:
            line.request(method, path, body)
            response = line.getresponse()
            told = response.read()
        except (OSError, http.client.HTTPException) as silence:
            self.raise_end()
            raise HarnessError(f"the server does not answer: {connection_limits.refusal(silence)}") from None
        finally:
            line.close()
        if response.status >= 500:
            self.child.stop()  # an error of its device would fail the next points as well
        if response.status != 200:
            raise RuntimeError(f"the server said {response.status}: {told[:200].decode(errors='replace')}")
        found: dict[str, Any] = json.loads(told)
        return found

    def raise_end(self) -> None:
        """Raise HarnessError, with the server's last word if it had one, where it has ended or is about to."""
        if wait_until(lambda: not self.child.alive, END_S):
            self.child.answer(1.0)


_SERVERS: dict[str, Kept] = {}


def server(orders: Mapping[str, Any]) -> Kept:
    """A server with these orders: one that runs, or a new one. Raises Unsupported, ChildError."""
    key = json.dumps(orders, sort_keys=True)
    kept = _SERVERS.pop(key, None)
    if kept is not None and not kept.child.alive:
        kept.child.stop()
        kept = None
    while len(_SERVERS) >= MOST_SERVERS:
        _SERVERS.pop(next(iter(_SERVERS))).child.stop()
    if kept is None:
        child = start("server", orders)
        told = child.answer(START_S)
        kept = Kept(child, int(told["port"]), connection_limits.Room(*told["room"]))
    _SERVERS[key] = kept  # the last in order is the one used last
    return kept


def close() -> None:
    """End all servers; the end of this process does that as well."""
    while _SERVERS:
        _SERVERS.popitem()[1].child.stop()


def extra_s(threads: int, service: str, requests_per_s: int, **_: Any) -> float:
    """Starting the client; at loads of which most servers have one, the server's start and the check as well."""
    if not threads:  # torch, the runtime and a million vectors take a GPU as long as a measuring process
        return 7.0
    if requests_per_s > STARTING:
        return 0.5
    return 5.0 if service.endswith("classifier") else 6.0


@experiment("serving", memory=memory, observed=True, extra_s=extra_s)
def serving(
    device: Device,
    service: Literal["text-classifier", "image-classifier", "lookup", "embedding"],
    requests_per_s: int,
    cores: int,
    seconds: int,
    dtype: Dtype,
    backend: Literal["torch", "onnx", "openvino"],
    threads: Threads,
) -> Workload:
    """A server under `seconds` of load, or as long as `requests_per_s * seconds` random arrivals take.

    cores: the server is held to so many; 0: all. What asks has others, or where there are none the same.
    threads: of one computation; the server does as many at a time as its cores have room for.
    Error: of the scores of eight answers that came through the server, see `experiments.serving.services`.
    Observed: latency from when a request was due, with its percentiles; a request that failed
    (no answer within TIMEOUT_S, or a wrong one) counts with that time at least, so that they are
    lower bounds where many fail. achieved_rate: right answers per second. cpu_per_request: CPU
    seconds of the server, its idle moments included. client_share: of the time of the server's
    cores, what the load took from it. client_delay: 99th percentile of how late the load was itself.
    gpu_busy_share: of the time, what the accelerator spent on requests, gaps between operations included.
    Unsupported: more cores than there are; a format that a service does not come in. Failed, with a reason that
    begins with `harness:`, where limits of the system, a pause or a load that is late itself spoil it, TRIES times
    for what may pass.
    """
    from experiments.serving.services import SERVICES, error

    kind = SERVICES[service]
    tolerance = kind.right(dtype, backend)
    device.torch_dtype(dtype)
    if requests_per_s < 1 or seconds < 1:
        raise Unsupported("a load has a request a second at least, and lasts a second")
    cpus, others = split_cores(cores)
    room = max(1, len(cpus))
    if threads > room:
        raise Unsupported(f"{threads} threads for a computation are more than the {room} cores of the server")
    each = max(1, threads)
    orders = {
        "service": service, "device": device.name, "kind": device.kind, "dtype": str(dtype), "backend": backend,
        "threads": each, "workers": room // each if device.kind == "cpu" else 1, "cpus": cpus, "port": 0,
    }  # fmt: skip
    expected: list[int] = []

    def check() -> float:
        answers: list[Answer] = [server(orders).ask("POST", "/answer", body) for body in kind.requests()]
        expected[:] = [answer["answer"] for answer in answers]
        return largest_error(*(error(answer, exact) for answer, exact in zip(answers, kind.exact(), strict=True)))

    def observe() -> dict[str, Observed]:
        load = {
            "rate": requests_per_s, "count": requests_per_s * seconds, "seed": random.getrandbits(32),
            "timeout_s": TIMEOUT_S, "cpus": others or cpus,
        }  # fmt: skip
        return _observed(server(orders), load, kind, expected, room if not others else 0, device.kind)

    return Workload(observe=lambda: repeat_if_disturbed(observe), check=check, tolerance=tolerance)


class DisturbedError(HarnessError):
    """Something passing spoilt a load: the next try may be better."""


def repeat_if_disturbed(offer: Callable[[], dict[str, Observed]]) -> dict[str, Observed]:
    """Metrics of a load that is offered again where something passing spoilt it, TRIES times at most."""
    for _ in range(TRIES - 1):
        try:
            return offer()
        except DisturbedError as trouble:
            print(f"{trouble}: the load is offered again", file=sys.stderr)
    return offer()


def _observed(
    kept: Kept, load: Mapping[str, Any], kind: type[Service], expected: list[int], shared: int, device_kind: str
) -> dict[str, Observed]:
    """Offer a load to a server, and say what became of it. shared: cores that client and server have in common.

    Raises HarnessError for trouble that is not the server's.
    """
    connection_limits.require(connection_limits.connections(load["count"]), "the server", kept.room)
    bodies = [body.hex() for body in kind.requests()]
    before = kept.ask("GET", "/usage")
    child = start("http_load", {**load, "port": kept.port, "bodies": bodies, "expected": expected})
    try:
        # Its own start, the requests before the first, arrivals that come late by chance.
        seen = child.answer(START_S + 2 * load["count"] / load["rate"])
    finally:
        child.stop()
    try:
        raise_lost(seen)
    except HarnessError:
        kept.raise_end()
        kept.child.stop()  # requests without an answer would be in the way of the next point
        raise
    after = kept.ask("GET", "/usage")
    if not wait_until(lambda: not kept.ask("GET", "/usage")["open"], DRAIN_S):
        # Overrun: as above.
        kept.child.stop()
    raise_disturbed(seen, before, after)
    return _metrics(seen, before, after, shared, device_kind)


def raise_lost(seen: Mapping[str, Any]) -> None:
    """Raise HarnessError where more than HARNESS_SHARE of the requests failed for no fault of the server.

    Whose a failed request is decides `experiments.serving.http_load.Load`.
    """
    lost = sum(seen["trouble"].values())
    offered = lost + len(seen["good"])
    if lost > HARNESS_SHARE * offered:
        most = max(seen["trouble"], key=seen["trouble"].__getitem__)
        raise HarnessError(f"{lost} of {offered} requests were not the server's to answer, most for {most}")


def raise_disturbed(seen: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise DisturbedError where a pause, or a load that was late itself, spoilt what was seen."""
    for who, stood in (("load", seen["stood_s"]), ("server", after["stood_s"] - before["stood_s"])):
        if stood:
            raise DisturbedError(f"the {who} stood still for {stood:.1f} s")
    count, late = len(seen["late"]), sum(one > LATE_S for one in seen["late"])
    if late > max(1.0, LATE_SHARE * count):
        raise DisturbedError(
            f"the load sent {late} of {count} requests over {LATE_S:g} s late: other work on its cores, or a quota?"
        )


def _metrics(
    seen: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any], shared: int, device_kind: str
) -> dict[str, Observed]:
    latency, good, span = np.array(seen["latency"]), np.array(seen["good"]), float(seen["span_s"])
    found: dict[str, Observed] = {
        "latency": ([float(one) for one in latency[:: -(-len(latency) // MOST_SAMPLES)]], "s"),
        "failed_share": (float(1 - good.mean()), "1"),
        "client_delay": (percentile(np.array(seen["late"]), 99.0), "s"),
        "client_share": (min(1.0, seen["cpu_s"] / (span * shared)) if shared else 0.0, "1"),
        "requests": (float(len(latency)), "1"),
    }
    for name, percent, least in PERCENTILES:
        if len(latency) >= least:
            found[name] = (percentile(latency, percent), "s")
    if good.any():
        found["achieved_rate"] = (float(good.sum() / span), "1/s")
        found["cpu_per_request"] = (float((after["cpu_s"] - before["cpu_s"]) / good.sum()), "s")
    if device_kind != "cpu":
        found["gpu_busy_share"] = (min(1.0, (after["busy_s"] - before["busy_s"]) / span), "1")
    return found


def percentile(values: Any, percent: float) -> float:
    """A percentile, median-unbiased whatever the distribution (Hyndman & Fan 1996, definition 8)."""
    return float(np.percentile(values, percent, method="median_unbiased"))
