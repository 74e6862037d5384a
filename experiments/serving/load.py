"""The load: requests at random times that do not wait for answers, counted from when they were due.

Arrivals are a Poisson process (an open loop): users who do not know of each other. A client that
asked again only after an answer would ask less of a slow server, and would leave out the very
requests that had to wait (Tene, "How NOT to measure latency": coordinated omission). A request
that finds all connections taken waits for one, and this counts as well.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import random
import selectors
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.serving.process import orders
from experiments.work import not_installed

if TYPE_CHECKING:
    import aiohttp

# Connections at most: more than this many requests at a time are in a queue, whoever keeps it.
CONNECTIONS = 256
# Requests before the first that counts, one after the other, and seconds before the first arrival.
WARM_UP, LEAD_S = 20, 0.05


@dataclass
class Seen:
    """What became of the requests; one entry each, in the order of their arrival.

    latency: seconds from when a request was due until its answer was read; of one that failed,
    the time-out at least. late: seconds from when it was due until it was sent or stood in
    the queue for a connection: the client's own delay. good: answered, and rightly.
    """

    latency: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)
    span_s: float = 0.0
    cpu_s: float = 0.0


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Times of `count` arrivals of a Poisson process of so many a second, from 0 on."""
    draw = random.Random(seed)
    return list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))


async def offer(asked: dict[str, Any]) -> Seen:
    """Offer the load. asked: port, rate, count, seed, timeout_s, bodies (hexadecimal), expected (their answers)."""
    import aiohttp

    bodies = [bytes.fromhex(body) for body in asked["bodies"]]
    times = arrivals(asked["rate"], asked["count"], asked["seed"])
    which = random.Random(~asked["seed"]).choices(range(len(bodies)), k=len(times))
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
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
        seen = Seen([0.0] * len(times), [0.0] * len(times), [False] * len(times))

        async def one(place: int, due: float) -> None:
            seen.late[place] = clock() - due
            body = which[place]
            good = await _asked(session, bodies[body], asked["expected"][body], due + asked["timeout_s"])
            took = clock() - due
            seen.good[place], seen.latency[place] = good, took if good else max(took, asked["timeout_s"])

        tasks = []
        for place, at in enumerate(times):
            # Asleep for 0 s where it is late already: answers must be read meanwhile.
            await asyncio.sleep(max(0.0, begin + at - clock()))
            tasks.append(asyncio.create_task(one(place, begin + at)))
        await asyncio.gather(*tasks)
        seen.span_s, seen.cpu_s = clock() - begin, time.process_time() - used
    return seen


async def _asked(session: aiohttp.ClientSession, body: bytes, expected: int, until: float) -> bool:
    """Whether a request was answered rightly in time."""
    import aiohttp

    try:
        async with asyncio.timeout_at(until), session.post("/answer", data=body) as response:
            told = await response.read()
            return response.status == 200 and json.loads(told)["answer"] == expected
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError):
        return False


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


if __name__ == "__main__":
    main()
