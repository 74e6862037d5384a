"""The load: requests at random times that do not wait for answers, counted from when they were due.

Arrivals are a Poisson process (an open loop): users who do not know of each other. A client that
asked again only after an answer would ask less of a slow server, and would leave out the very
requests that had to wait (Tene, "How NOT to measure latency": coordinated omission). A request
that finds all connections taken waits for one, and this counts as well.

One thread with plain sockets: a library for HTTP adds up to a millisecond to each answer.
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

# Requests before the first that counts, one after the other, and seconds before the first arrival.
WARM_UP, LEAD_S = 20, 0.05
# Seconds before a request is due in which the client stays awake: a sleeping core wakes up so late.
AWAKE_S = 1e-4
# Bytes read at a time; no right answer is longer.
MOST_BYTES = 1 << 16
# Seconds that a connection on loopback may take.
CONNECT_S = 1.0
# Errors of a connection that the server has closed or reset.
CLOSED = (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ESHUTDOWN)
clock = time.perf_counter


@dataclass
class LoadResult:
    """What became of the requests; one entry each, in the order of their arrival.

    latency: seconds from when a request was due until its answer was read; of one that failed,
    the time-out at least. late: seconds from when it was due until it was sent or stood in
    the queue for a connection: the client's own delay. good: answered, and rightly.
    trouble: by cause, how many requests the harness failed; they have no entries. stood_s: seconds in which
    this process stood still.
    """

    latency: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)
    trouble: dict[str, int] = field(default_factory=dict)
    span_s: float = 0.0
    cpu_s: float = 0.0
    stood_s: float = 0.0


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Times of `count` arrivals of a Poisson process of so many a second, from 0 on."""
    draw = random.Random(seed)
    return list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))


class Connection:
    """A kept connection to the server, for one request at a time. Raises OSError where the system refuses it.

    place: number of the request; None while there is none. left: bytes of it that the system has not taken yet.
    answers: whole answers to it, which `parser` has read. body: of the answer. is_kept: the server keeps it as well.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), CONNECT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.place: int | None = None
        self.left = memoryview(b"")

    def fileno(self) -> int:
        """The socket's number, by which the system waits for it."""
        return self.socket.fileno()

    def begin(self, place: int, request: bytes) -> None:
        """Give the connection a request."""
        import httptools

        self.place, self.left = place, memoryview(request)
        self.parser, self.body, self.answers, self.is_kept = httptools.HttpResponseParser(self), b"", 0, False

    def send(self) -> None:
        """Send as much as the system takes now. Raises OSError."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            self.left = self.left[self.socket.send(self.left) :]

    def read(self) -> None:
        """Read what has come. Raises OSError, UnreadableError."""
        import httptools

        try:
            told = self.socket.recv(MOST_BYTES)
            self.parser.feed_data(told)
        except (BlockingIOError, InterruptedError):
            return
        except httptools.HttpParserError as fault:
            raise UnreadableError from fault
        if self.answers > 1 or len(self.body) > MOST_BYTES or not (told or self.answers):
            raise UnreadableError

    # The parser calls these two.
    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.answers += 1
        self.is_kept = self.parser.should_keep_alive()  # it forgets


class UnreadableError(Exception):
    """An answer that is cut off, without end, or no answer by HTTP."""


def is_right(status: int, body: bytes, expected: int) -> bool:
    """True if an answer is right, False if the server failed. Raises HarnessError for a status that is neither."""
    if status >= 500 or status == 429:
        return False
    if status != 200:
        raise HarnessError(f"the server said {status}: {body[:200].decode(errors='replace')}")
    try:
        return bool(json.loads(body)["answer"] == expected)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


class Load:
    """Requests to a server, over a number of connections at most.

    A server failed where it gave no answer in time, a wrong one, none that can be read, or said that it cannot
    (status 5xx, or 429 Too Many Requests), and where it closed or reset a connection that it had: each is what
    somebody who asks an overloaded or broken server sees. Everything else is trouble of the harness: a file, port,
    buffer or address that the system did not give, a refused connection (nobody listens any more: connections that an
    overloaded server has not taken yet wait, and are never more than may), or another status (the request was wrong,
    which a right one of the harness never is).
    """

    def __init__(
        self, port: int, bodies: Sequence[bytes], expected: Sequence[int], timeout_s: float, most: int
    ) -> None:
        """expected: right answers to the bodies. most: number of connections."""
        head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: "
        self.requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.port, self.expected, self.timeout_s, self.most = port, expected, timeout_s, most
        self.lines: set[Connection] = set()
        self.free: list[Connection] = []

    def offer(self, times: Sequence[float], which: Sequence[int], lead_s: float = 0.0) -> LoadResult:
        """Ask at these times (seconds from the end of the lead, rising) for answers to the bodies of these numbers."""
        begin = clock() + lead_s
        self.due, self.which = [begin + at for at in times], which
        self.late = [0.0] * len(self.due)
        self.fates: list[tuple[float, bool] | None] = [None] * len(self.due)
        self.trouble: dict[str, int] = {}
        # Requests without an answer as they were due, with their connections; and those that wait for one.
        self.open: dict[int, Connection | None] = {}
        self.waiting: collections.deque[int] = collections.deque()
        place, used = 0, time.process_time()
        with RunningTime(connection_limits.TICK_S) as running:
            while place < len(self.due) or self.open:
                while place < len(self.due) and (late := clock() - self.due[place]) >= 0:
                    self.late[place], self.open[place] = late, None
                    self.waiting.append(place)
                    self._send()
                    place += 1
                self._expire()
                ends = [self.due[place] - AWAKE_S] if place < len(self.due) else []
                ends += [self.due[oldest] + self.timeout_s for oldest in itertools.islice(self.open, 1)]
                self._serve(max(0.0, min(ends, default=0.0) - clock()))
            stood_s = running.stood_s()
        kept = [(fate, late) for fate, late in zip(self.fates, self.late, strict=True) if fate is not None]
        return LoadResult(
            latency=[took for (took, _), _ in kept], late=[late for _, late in kept],
            good=[good for (_, good), _ in kept], trouble=self.trouble,
            span_s=clock() - begin, cpu_s=time.process_time() - used, stood_s=stood_s,
        )  # fmt: skip

    def _send(self) -> None:
        """Send the requests that wait, as far as there are connections."""
        while self.waiting and (self.free or len(self.lines) < self.most):
            place = self.waiting.popleft()
            if place not in self.open:  # its time is over
                continue
            try:
                line = self.free.pop() if self.free else Connection(self.port)
            except OSError as refusal:
                self._settle(place, HarnessError(connection_limits.describe_refusal(refusal)))
                continue
            self.lines.add(line)
            self.open[place] = line
            line.begin(place, self.requests[self.which[place]])
            self._advance(line, line.send)

    def _expire(self) -> None:
        """Give up requests whose time is over."""
        while self.open and clock() >= self.due[oldest := next(iter(self.open))] + self.timeout_s:
            self._settle(oldest, False)

    def _serve(self, pause_s: float) -> None:
        """Read what comes within a pause, and send what the system takes; a kept connection may end meanwhile."""
        sending = [line for line in self.lines if line.left]
        readable, writable, _ = select.select(self.lines, sending, [], pause_s)
        for line in writable:
            self._advance(line, line.send)
        for line in readable:
            if line.place is not None:
                self._advance(line, line.read)
            elif line in self.lines:
                self._close(line)
        self._send()

    def _advance(self, line: Connection, step: Callable[[], None]) -> None:
        """Take a step of the request on a connection, and settle it where that ends it."""
        assert line.place is not None
        place = line.place
        try:
            step()
            if not line.answers:
                return
            expected = self.expected[self.which[place]]
            fate: bool | HarnessError = is_right(line.parser.get_status_code(), line.body, expected)
        except UnreadableError:
            fate, line.is_kept = False, False
        except OSError as refusal:
            fate = refusal.errno not in CLOSED and HarnessError(connection_limits.describe_refusal(refusal))
        except HarnessError as trouble:
            fate = trouble
        self._settle(place, fate)

    def _settle(self, place: int, fate: bool | HarnessError) -> None:
        """Note the fate of a request: right, failed, or trouble. Keep a connection that was written and read whole."""
        line = self.open.pop(place)
        if isinstance(fate, HarnessError):
            self.trouble[str(fate)] = self.trouble.get(str(fate), 0) + 1
        else:
            took = clock() - self.due[place]
            self.fates[place] = took if fate else max(took, self.timeout_s), fate
        if line is None:
            return
        line.place = None
        if line.is_kept and not line.left:
            self.free.append(line)
        else:
            self._close(line)

    def _close(self, line: Connection) -> None:
        line.socket.close()
        self.lines.discard(line)
        if line in self.free:
            self.free.remove(line)


def offer_load(asked: dict[str, Any]) -> LoadResult:
    """Offer the load. asked: port, rate, count, seed, timeout_s, bodies (hexadecimal), expected (their answers).

    Raises HarnessError where the system's limits leave no room for its connections, or no request can be made at all.
    """
    bodies = [bytes.fromhex(body) for body in asked["bodies"]]
    times = arrivals(asked["rate"], asked["count"], asked["seed"])
    which = random.Random(~asked["seed"]).choices(range(len(bodies)), k=len(times))
    most = connection_limits.connection_count(len(times))
    connection_limits.require_connections(most, "the load", connection_limits.raise_file_limit(most))
    load = Load(asked["port"], bodies, asked["expected"], asked["timeout_s"], most)
    for turn in range(WARM_UP):
        for trouble in load.offer([0.0], [turn % len(bodies)]).trouble:
            raise HarnessError(trouble)
    gc.collect()
    gc.freeze()
    return load.offer(times, which, LEAD_S)


def main() -> None:
    """Offer the load that is asked for, and tell what became of it."""
    asked, tell = read_order()
    try:
        tell(vars(offer_load(asked)))
    except ModuleNotFoundError as absent:
        tell({"unsupported": str(missing_library(absent))})
    except HarnessError as trouble:
        tell({"harness": str(trouble)})


if __name__ == "__main__":
    main()
