"""The load: requests at random times that do not wait for answers, counted from when they were due.

Arrivals are a Poisson process (an open loop): users who do not know of each other. A client that
asked again only after an answer would ask less of a slow server, and would leave out the very
requests that had to wait (Tene, "How NOT to measure latency": coordinated omission). A request
that finds all connections taken waits for one, and this counts as well.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import json
import random
import selectors
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contract.running_time import RunningTime
from experiments.serving import limits
from experiments.serving.process import orders
from experiments.work import HarnessError, not_installed

if TYPE_CHECKING:
    import aiohttp

# Requests before the first that counts, one after the other, and seconds before the first arrival.
WARM_UP, LEAD_S = 20, 0.05


@dataclass
class Seen:
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


async def offer(asked: dict[str, Any]) -> Seen:
    """Offer the load. asked: port, rate, count, seed, timeout_s, bodies (hexadecimal), expected (their answers).

    Raises HarnessError where the system's limits leave no room for its connections, or no request can be made at all.
    """
    import aiohttp

    bodies = [bytes.fromhex(body) for body in asked["bodies"]]
    times = arrivals(asked["rate"], asked["count"], asked["seed"])
    which = random.Random(~asked["seed"]).choices(range(len(bodies)), k=len(times))
    most = limits.connections(len(times))
    limits.require(most, "the load", limits.make_room(most))
    connector = aiohttp.TCPConnector(limit=most)
    # Each request has a time-out of its own, from when it is due.
    unlimited = aiohttp.ClientTimeout(total=None)
    base = f"http://127.0.0.1:{asked['port']}"
    clock = asyncio.get_running_loop().time
    async with aiohttp.ClientSession(base, connector=connector, timeout=unlimited) as session:
        for turn in range(WARM_UP):
            body = turn % len(bodies)
            await _asked(session, bodies[body], asked["expected"][body], clock() + asked["timeout_s"])
        gc.collect()
        gc.freeze()
        begin, used = clock() + LEAD_S, time.process_time()
        found: list[tuple[float, float, bool] | None] = [None] * len(times)
        seen = Seen()

        async def one(place: int, due: float) -> None:
            late = clock() - due
            body = which[place]
            try:
                good = await _asked(session, bodies[body], asked["expected"][body], due + asked["timeout_s"])
            except HarnessError as trouble:
                seen.trouble[str(trouble)] = seen.trouble.get(str(trouble), 0) + 1
                return
            took = clock() - due
            found[place] = took if good else max(took, asked["timeout_s"]), late, good

        tasks = []
        with RunningTime(limits.TICK_S) as running:
            for place, at in enumerate(times):
                # Asleep for 0 s where it is late already: answers must be read meanwhile.
                await asyncio.sleep(max(0.0, begin + at - clock()))
                tasks.append(asyncio.create_task(one(place, begin + at)))
            await asyncio.gather(*tasks)
            seen.stood_s = running.stood_s()
        seen.span_s, seen.cpu_s = clock() - begin, time.process_time() - used
    kept = [entry for entry in found if entry is not None]
    seen.latency, seen.late = [latency for latency, _, _ in kept], [late for _, late, _ in kept]
    seen.good = [good for _, _, good in kept]
    return seen


async def _asked(session: aiohttp.ClientSession, body: bytes, expected: int, until: float) -> bool:
    """True if a request was answered rightly in time. Raises HarnessError where that is not the server's to answer for.

    The server failed where it gave no answer in time, a wrong one, none that can be read, or said that it cannot
    (status 5xx, or 429 Too Many Requests), and where it closed or reset a connection that it had: each is what
    somebody who asks an overloaded or broken server sees. Everything else is the harness's: a file, port, buffer or
    address that the system did not give, a name or proxy that came in between, a refused connection (nobody listens
    any more: connections that an overloaded server has not taken yet wait, and are never more than may), or
    another status (the request was wrong, which a right one of the harness never is).
    """
    import aiohttp

    try:
        async with asyncio.timeout_at(until), session.post("/answer", data=body) as response:
            told, status = await response.read(), response.status
    except (TimeoutError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, *_CLOSED):
        return False
    except (aiohttp.ClientError, OSError) as error:
        if getattr(error, "errno", None) in _CLOSED_NUMBERS:
            return False
        raise HarnessError(limits.refusal(error)) from None
    if status >= 500 or status == 429:
        return False
    if status != 200:
        raise HarnessError(f"the server said {status}: {told[:200].decode(errors='replace')}")
    try:
        return bool(json.loads(told)["answer"] == expected)
    except (ValueError, KeyError, TypeError):
        return False


_CLOSED = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_CLOSED_NUMBERS = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ESHUTDOWN}


def exact_loop() -> asyncio.AbstractEventLoop:
    """An event loop that wakes up in time: epoll, the default, rounds up to whole milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main() -> None:
    """Offer the load that is asked for, and tell what became of it."""
    asked, tell = orders()
    with asyncio.Runner(loop_factory=exact_loop) as runner:
        try:
            tell(vars(runner.run(offer(asked))))
        except ModuleNotFoundError as absent:
            tell({"unsupported": str(not_installed(absent))})
        except HarnessError as trouble:
            tell({"harness": str(trouble)})


if __name__ == "__main__":
    main()
