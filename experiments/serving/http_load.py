"""Open-loop load: requests at random arrival times, with latency measured from arrival.

Arrivals are a Poisson process, as from independent users. A closed-loop client would send fewer
requests to a slow server, and omit requests that had to wait (Tene, "How NOT to measure latency":
coordinated omission). Waiting for a free connection counts in the latency.

The load runs in one thread with plain sockets, since HTTP libraries add up to a millisecond per answer.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import gc
import itertools
import json
import random
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from contract.running_time import RunningTime
from experiments.children import read_order
from experiments.serving import connection_limits
from experiments.workload import HarnessError, missing_library

# WARM_UP: number of warm-up requests, sent one after the other.
# LEAD_S: seconds between the start of the load and time 0 of the arrivals.
WARM_UP, LEAD_S = 20, 0.05
# For this many seconds before a request is due, the client polls without sleeping, because a sleeping core wakes up
# about this late.
AWAKE_S = 1e-4
# Maximum number of bytes in one read, and in one accepted answer; correct answers are shorter.
MOST_BYTES = 1 << 16
CONNECT_S = 1.0
# Errors on connections closed or reset by the server.
CLOSED = (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ESHUTDOWN)
clock = time.perf_counter


@dataclass
class LoadResult:
    """Results per request, in arrival order.

    latency: seconds from arrival until the answer was read; for failed requests, at least the
    timeout. late: the client's own delay, in seconds from arrival until sending or queueing.
    good: True for correct answers. trouble: number of requests that failed through the harness, by
    cause; the lists omit these requests. stood_s: seconds for which this process was suspended.
    """

    latency: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)
    trouble: dict[str, int] = field(default_factory=dict)
    span_s: float = 0.0
    cpu_s: float = 0.0
    stood_s: float = 0.0


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Draw `count` arrival times from a Poisson process with `rate` per second, from 0 on."""
    draw = random.Random(seed)
    return list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))


class Connection:
    """Persistent connection for one request at a time. Raises OSError if the system refuses it.

    number: number of the current request, None if idle. unsent: request bytes not sent yet. answers: number of complete
    answers parsed. body: answer body. is_kept: True if the server keeps the connection open.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), CONNECT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.number: int | None = None
        self.unsent = memoryview(b"")

    def fileno(self) -> int:
        """Return the socket's file descriptor for `select`."""
        return self.socket.fileno()

    def begin(self, number: int, request: bytes) -> None:
        """Take a request as the current request; `send` sends its bytes."""
        import httptools

        self.number, self.unsent = number, memoryview(request)
        self.parser, self.body, self.answers, self.is_kept = httptools.HttpResponseParser(self), b"", 0, False

    def send(self) -> None:
        """Send without blocking. Raises OSError."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            self.unsent = self.unsent[self.socket.send(self.unsent) :]

    def read(self) -> None:
        """Read available data. Raises OSError, UnreadableError."""
        import httptools

        try:
            received = self.socket.recv(MOST_BYTES)
            self.parser.feed_data(received)
        except (BlockingIOError, InterruptedError):
            return
        except httptools.HttpParserError as fault:
            raise UnreadableError from fault
        if self.answers > 1 or len(self.body) > MOST_BYTES or not (received or self.answers):
            raise UnreadableError

    # The HTTP parser calls these two methods.
    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.answers += 1
        self.is_kept = self.parser.should_keep_alive()  # the parser knows this only until the next message


class UnreadableError(Exception):
    """A truncated, oversized or non-HTTP answer."""


def is_right(status: int, body: bytes, expected: int) -> bool:
    """Return True if an answer is correct, and False if it is wrong or has status 429 or 5xx.

    Raises HarnessError for any other status except 200.
    """
    if status >= 500 or status == 429:
        return False
    if status != 200:
        raise HarnessError(f"the server said {status}: {body[:200].decode(errors='replace')}")
    try:
        return bool(json.loads(body)["answer"] == expected)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


class Load:
    """Requests to a server, over a limited number of connections.

    A request fails if users of an overloaded or broken server would see a failure: a timeout, a wrong or unreadable
    answer, status 5xx or 429 (Too Many Requests), or a closed or reset connection. Every other error is trouble in the
    harness, for example if the system refuses a file, port, buffer or address. A refused connection means that the
    server is gone, since an overloaded server queues connections, and `connection_count` never exceeds its queue. Any
    other status means that the request was malformed.
    """

    def __init__(
        self, port: int, bodies: Sequence[bytes], expected: Sequence[int], timeout_s: float, most: int
    ) -> None:
        """expected: the correct answer to each body. most: maximum connections."""
        head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: "
        self.requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.port, self.expected, self.timeout_s, self.most = port, expected, timeout_s, most
        self.connections: set[Connection] = set()
        self.free: list[Connection] = []

    def offer(self, times: Sequence[float], which: Sequence[int], lead_s: float = 0.0) -> LoadResult:
        """Send a request at each of `times`, which are seconds after `lead_s` in ascending order.

        which: index in `bodies` for each request.
        """
        begin = clock() + lead_s
        self.due, self.which = [begin + seconds for seconds in times], which
        self.late = [0.0] * len(self.due)
        self.outcomes: list[tuple[float, bool] | None] = [None] * len(self.due)
        self.trouble: dict[str, int] = {}
        # pending: unanswered requests in arrival order, with their connections (None for a request that waits for a
        # connection).
        # waiting: requests that wait for a connection.
        self.pending: dict[int, Connection | None] = {}
        self.waiting: collections.deque[int] = collections.deque()
        number, cpu_s = 0, time.process_time()
        with RunningTime(connection_limits.TICK_S) as running:
            while number < len(self.due) or self.pending:
                while number < len(self.due) and (late := clock() - self.due[number]) >= 0:
                    self.late[number], self.pending[number] = late, None
                    self.waiting.append(number)
                    self._send()
                    number += 1
                self._expire()
                ends = [self.due[number] - AWAKE_S] if number < len(self.due) else []
                ends += [self.due[oldest] + self.timeout_s for oldest in itertools.islice(self.pending, 1)]
                self._serve(max(0.0, min(ends, default=0.0) - clock()))
            stood_s = running.stood_s()
        results = [
            (outcome, late) for outcome, late in zip(self.outcomes, self.late, strict=True) if outcome is not None
        ]
        return LoadResult(
            latency=[took for (took, _), _ in results], late=[late for _, late in results],
            good=[good for (_, good), _ in results], trouble=self.trouble,
            span_s=clock() - begin, cpu_s=time.process_time() - cpu_s, stood_s=stood_s,
        )  # fmt: skip

    def _send(self) -> None:
        """Send waiting requests while connections are available."""
        while self.waiting and (self.free or len(self.connections) < self.most):
            number = self.waiting.popleft()
            if number not in self.pending:  # the request has timed out
                continue
            try:
                connection = self.free.pop() if self.free else Connection(self.port)
            except OSError as refusal:
                self._settle(number, HarnessError(connection_limits.describe_refusal(refusal)))
                continue
            self.connections.add(connection)
            self.pending[number] = connection
            connection.begin(number, self.requests[self.which[number]])
            self._advance(connection, connection.send)

    def _expire(self) -> None:
        """Fail requests that have timed out."""
        while self.pending and clock() >= self.due[oldest := next(iter(self.pending))] + self.timeout_s:
            self._settle(oldest, False)

    def _serve(self, pause_s: float) -> None:
        """Wait up to `pause_s`, then read and send; close idle connections that the server has ended."""
        sending = [connection for connection in self.connections if connection.unsent]
        readable, writable, _ = select.select(self.connections, sending, [], pause_s)
        for connection in writable:
            self._advance(connection, connection.send)
        for connection in readable:
            if connection.number is not None:
                self._advance(connection, connection.read)
            elif connection in self.connections:
                self._close(connection)
        self._send()

    def _advance(self, connection: Connection, step: Callable[[], None]) -> None:
        """Send or read on a connection; end its request if the answer is complete or the request has failed."""
        assert connection.number is not None
        number = connection.number
        try:
            step()
            if not connection.answers:
                return
            expected = self.expected[self.which[number]]
            outcome: bool | HarnessError = is_right(connection.parser.get_status_code(), connection.body, expected)
        except UnreadableError:
            outcome, connection.is_kept = False, False
        except OSError as refusal:
            outcome = refusal.errno not in CLOSED and HarnessError(connection_limits.describe_refusal(refusal))
        except HarnessError as trouble:
            outcome = trouble
        self._settle(number, outcome)

    def _settle(self, number: int, outcome: bool | HarnessError) -> None:
        """Record a request's outcome. Keep its connection if it can be reused, else close it.

        outcome: True if the answer is correct, False if the request failed, a HarnessError for trouble in the harness.
        """
        connection = self.pending.pop(number)
        if isinstance(outcome, HarnessError):
            self.trouble[str(outcome)] = self.trouble.get(str(outcome), 0) + 1
        else:
            took = clock() - self.due[number]
            self.outcomes[number] = took if outcome else max(took, self.timeout_s), outcome
        if connection is None:
            return
        connection.number = None
        if connection.is_kept and not connection.unsent:
            self.free.append(connection)
        else:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        connection.socket.close()
        self.connections.discard(connection)
        if connection in self.free:
            self.free.remove(connection)


def offer_load(order: dict[str, Any]) -> LoadResult:
    """Offer the load.

    order: port, rate (requests per second), count (number of requests), seed, timeout_s, bodies (hexadecimal), expected
    (the correct answer to each body).

    Raises HarnessError if system limits are too low for the load's connections, or a warm-up request cannot be sent.
    """
    bodies = [bytes.fromhex(body) for body in order["bodies"]]
    times = arrivals(order["rate"], order["count"], order["seed"])
    which = random.Random(~order["seed"]).choices(range(len(bodies)), k=len(times))
    most = connection_limits.connection_count(len(times))
    connection_limits.require_connections(most, "the load", connection_limits.raise_file_limit(most))
    load = Load(order["port"], bodies, order["expected"], order["timeout_s"], most)
    for turn in range(WARM_UP):
        for trouble in load.offer([0.0], [turn % len(bodies)]).trouble:
            raise HarnessError(trouble)
    gc.collect()
    gc.freeze()
    return load.offer(times, which, LEAD_S)


def main() -> None:
    """Offer the ordered load and reply with its results."""
    order, reply = read_order()
    try:
        reply(vars(offer_load(order)))
    except ModuleNotFoundError as absent:
        reply({"unsupported": str(missing_library(absent))})
    except HarnessError as trouble:
        reply({"harness": str(trouble)})


if __name__ == "__main__":
    main()
