"""Models behind a real HTTP server under random arrivals: latency, failures, and cost per request.

`experiments.serving` holds the services, the server and the load generator, whose clocks time the requests.
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
from experiments.serving.server_processes import split_cores, start_process, wait_until
from experiments.workload import Dtype, HarnessError, Observed, Threads, Unsupported, Workload, largest_error

if TYPE_CHECKING:
    from experiments.serving.services import Answer, Service

# Seconds until a request times out: twenty times the longest comfortable wait, which is 0.1 s
# (`report.quantities.serving`).
TIMEOUT_S = 2.0
# START_S: maximum seconds for a server to start or to answer a request.
# DRAIN_S: maximum seconds for a server to finish requests that remain after a load.
START_S, DRAIN_S = 50.0, 10.0
# Maximum seconds for a process to end after it has closed its socket.
END_S = 1.0
# Maximum number of servers to keep for later points; an idle server costs memory but no CPU time.
MOST_SERVERS = 6
# Largest requests_per_s for which `extra_s` includes a server start. Several points share a server, and usually only
# one of them has so low a rate, so the start is counted once.
STARTING = 20
# Largest number of latencies to record per round: a longer list is thinned evenly. Percentiles use the whole list.
MOST_SAMPLES = 500
# Tolerated share of requests that the harness loses. The metrics leave lost requests out. If a larger share is lost,
# the load has failed.
HARNESS_SHARE = 0.001
# LATE_S: a request is late if the load generator sends it more than this many seconds after it was due. LATE_S is half
# the longest comfortable wait.
# LATE_SHARE: if a larger share of requests is late, the latencies show the load generator's own delays, and the load is
# repeated.
LATE_S, LATE_SHARE = 0.05, 0.01
# Maximum attempts for a disturbed load.
TRIES = 3
# Percentiles of latency, each with the smallest number of requests from which to compute the percentile.
PERCENTILES = (("p50_latency", 50.0, 1), ("p99_latency", 99.0, 100), ("p999_latency", 99.9, 1000))


def memory(service: str, dtype: str, backend: str, **_: Any) -> float:
    """Return the service's own estimate of its bytes."""
    from experiments.serving.services import SERVICES

    return SERVICES[service].memory_bytes(Dtype(dtype), backend)


@dataclass(frozen=True)
class RunningServer:
    """Server that stays alive for later points, because it takes seconds to start."""

    child: Child
    port: int
    room: connection_limits.Room

    def ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Return the server's JSON answer.

        Raises HarnessError if no answer comes, and RuntimeError if the answer has an error status.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_S)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as silence:
            self.raise_if_ended()
            raise HarnessError(f"the server does not answer: {connection_limits.describe_refusal(silence)}") from None
        finally:
            connection.close()
        if response.status >= 500:
            self.child.stop()  # a device error would fail the next points too
        if response.status != 200:
            raise RuntimeError(f"the server said {response.status}: {text[:200].decode(errors='replace')}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def raise_if_ended(self) -> None:
        """Raise HarnessError, with the server's last message if any, if the server has ended or ends within END_S."""
        if wait_until(lambda: not self.child.is_alive, END_S):
            self.child.answer(1.0)


_SERVERS: dict[str, RunningServer] = {}


def get_server(orders: Mapping[str, Any]) -> RunningServer:
    """Return the running server that was started with equal `orders`, or start one. Raises Unsupported, ChildError."""
    key = json.dumps(orders, sort_keys=True)
    running = _SERVERS.pop(key, None)
    if running is not None and not running.child.is_alive:
        running.child.stop()
        running = None
    while len(_SERVERS) >= MOST_SERVERS:
        _SERVERS.pop(next(iter(_SERVERS))).child.stop()
    if running is None:
        child = start_process("server", orders)
        started = child.answer(START_S)
        running = RunningServer(child, int(started["port"]), connection_limits.Room(*started["room"]))
    _SERVERS[key] = running  # reinsert as the most recently used
    return running


def close_servers() -> None:
    """End all servers now; otherwise they end with this process."""
    while _SERVERS:
        _SERVERS.popitem()[1].child.stop()


def extra_s(threads: int, service: str, requests_per_s: int, **_: Any) -> float:
    """Estimate the seconds to start the client and, at a low request rate, also to start and check the server.

    Several points share a server, and usually only one of them has a low rate, so the start is counted once.
    """
    if not threads:  # on a GPU, the server loads torch, the runtime and a million vectors
        return 7.0
    if requests_per_s > STARTING:
        return 0.5
    return 5.0 if service.endswith("classifier") else 6.0


@experiment("serving", memory=memory, observed=True, extra_s=extra_s, protocol=2)
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
    """Send a server `requests_per_s * seconds` requests at random times within about `seconds`.

    cores: number of cores for the server, 0 for all. The client gets the other cores; if none are left, it shares the
        server's cores.
    threads: number of threads per computation; the server runs as many computations at a time as fit its cores.
    Error: error in the scores of eight answers from the server, see `experiments.serving.services`.
    Observed: latency from the time a request was due, with percentiles; a failed request (no answer within TIMEOUT_S,
        or a wrong one) counts with at least TIMEOUT_S, so percentiles are lower bounds if many fail. achieved_rate:
        right answers per second. cpu_per_request: the server's CPU seconds during the load, per right answer.
        client_share: the client's share of CPU time on the server's cores. client_delay: 99th percentile of the
        client's delay in sending a request. gpu_busy_share: share of time that the accelerator spent on requests, gaps
        between operations included.
    Unsupported: more cores than the machine has; a format that the service lacks.
    Failed, with a reason that begins with `harness:`, if system limits, a pause or a late client spoil the load; after
        a passing disturbance, the load is offered again, up to TRIES times in all.
    """
    from experiments.serving.services import SERVICES, answer_error

    kind = SERVICES[service]
    tolerance = kind.tolerance_for(dtype, backend)
    device.torch_dtype(dtype)
    if requests_per_s < 1 or seconds < 1:
        raise Unsupported("requests_per_s and seconds must be at least 1")
    cpus, client_cpus = split_cores(cores)
    core_count = max(1, len(cpus))
    if threads > core_count:
        raise Unsupported(f"{threads} threads for a computation are more than the {core_count} cores of the server")
    per_call = max(1, threads)
    orders = {
        "service": service, "device": device.name, "kind": device.kind, "dtype": str(dtype), "backend": backend,
        "threads": per_call, "workers": core_count // per_call if device.kind == "cpu" else 1, "cpus": cpus, "port": 0,
    }  # fmt: skip
    expected: list[int] = []

    def check() -> float:
        answers: list[Answer] = [get_server(orders).ask("POST", "/answer", body) for body in kind.requests()]
        expected[:] = [answer["answer"] for answer in answers]
        return largest_error(
            *(answer_error(answer, exact) for answer, exact in zip(answers, kind.exact_scores(), strict=True))
        )

    def observe() -> dict[str, Observed]:
        load = {
            "rate": requests_per_s, "count": requests_per_s * seconds, "seed": random.getrandbits(32),
            "timeout_s": TIMEOUT_S, "cpus": client_cpus or cpus,
        }  # fmt: skip
        return _measure_load(
            get_server(orders), load, kind, expected, core_count if not client_cpus else 0, device.kind
        )

    return Workload(observe=lambda: repeat_if_disturbed(observe), check=check, tolerance=tolerance)


class DisturbedError(HarnessError):
    """Temporary disturbance during a load: a retry may succeed."""


def repeat_if_disturbed(offer: Callable[[], dict[str, Observed]]) -> dict[str, Observed]:
    """Return a load's metrics; if the load is disturbed, offer it again, up to TRIES times in all."""
    for _ in range(TRIES - 1):
        try:
            return offer()
        except DisturbedError as trouble:
            print(f"{trouble}: the load is offered again", file=sys.stderr)
    return offer()


def _measure_load(
    running: RunningServer,
    load: Mapping[str, Any],
    kind: type[Service],
    expected: list[int],
    shared: int,
    device_kind: str,
) -> dict[str, Observed]:
    """Offer a load to a server and return the metrics. shared: number of cores that client and server share.

    Raises HarnessError for trouble outside the server.
    """
    connection_limits.require_connections(connection_limits.connection_count(load["count"]), "the server", running.room)
    bodies = [body.hex() for body in kind.requests()]
    before = running.ask("GET", "/usage")
    child = start_process("http_load", {**load, "port": running.port, "bodies": bodies, "expected": expected})
    try:
        # The time limit allows for the client's start, the warm-up requests, and arrivals that come late by chance.
        records = child.answer(START_S + 2 * load["count"] / load["rate"])
    finally:
        child.stop()
    try:
        raise_if_lost(records)
    except HarnessError:
        running.raise_if_ended()
        running.child.stop()  # unanswered requests would disturb the next point
        raise
    after = running.ask("GET", "/usage")
    if not wait_until(lambda: not running.ask("GET", "/usage")["open"], DRAIN_S):
        # Unanswered requests would disturb the next point.
        running.child.stop()
    raise_if_disturbed(records, before, after)
    return _metrics(records, before, after, shared, device_kind)


def raise_if_lost(records: Mapping[str, Any]) -> None:
    """Raise HarnessError if over HARNESS_SHARE of the requests failed through no fault of the server.

    `experiments.serving.http_load.Load` decides for each failure if the server caused it.
    """
    lost = sum(records["trouble"].values())
    offered = lost + len(records["good"])
    if lost > HARNESS_SHARE * offered:
        most = max(records["trouble"], key=records["trouble"].__getitem__)
        raise HarnessError(f"{lost} of {offered} requests failed outside the server, most because of {most}")


def raise_if_disturbed(records: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise DisturbedError if a pause or a late load generator spoilt the result."""
    for who, stood in (("load generator", records["stood_s"]), ("server", after["stood_s"] - before["stood_s"])):
        if stood:
            raise DisturbedError(f"the {who} was paused for {stood:.1f} s")
    count, late = len(records["late"]), sum(delay > LATE_S for delay in records["late"])
    if late > max(1.0, LATE_SHARE * count):
        raise DisturbedError(
            f"the load sent {late} of {count} requests over {LATE_S:g} s late: other work on its cores, or a quota?"
        )


def _metrics(
    records: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any], shared: int, device_kind: str
) -> dict[str, Observed]:
    latency, good, span = np.array(records["latency"]), np.array(records["good"]), float(records["span_s"])
    metrics: dict[str, Observed] = {
        "latency": ([float(sample) for sample in latency[:: -(-len(latency) // MOST_SAMPLES)]], "s"),
        "failed_share": (float(1 - good.mean()), "1"),
        "client_delay": (percentile(np.array(records["late"]), 99.0), "s"),
        "client_share": (min(1.0, records["cpu_s"] / (span * shared)) if shared else 0.0, "1"),
        "requests": (float(len(latency)), "1"),
    }
    for name, percent, least in PERCENTILES:
        if len(latency) >= least:
            metrics[name] = (percentile(latency, percent), "s")
    if good.any():
        metrics["achieved_rate"] = (float(good.sum() / span), "1/s")
        metrics["cpu_per_request"] = (float((after["cpu_s"] - before["cpu_s"]) / good.sum()), "s")
    if device_kind != "cpu":
        metrics["gpu_busy_share"] = (min(1.0, (after["busy_s"] - before["busy_s"]) / span), "1")
    return metrics


def percentile(values: Any, percent: float) -> float:
    """Return a percentile, median-unbiased for any distribution (Hyndman & Fan 1996, definition 8)."""
    return float(np.percentile(values, percent, method="median_unbiased"))
