"""The server: uvicorn and starlette on loopback, one service, requests computed beside the event loop.

POST /answer takes a request and gives its answer; GET /usage tells what the process has used.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from contract import running_time
from contract.errors import StudyError
from experiments.children import read_order
from experiments.serving import connection_limits
from experiments.workload import Dtype, HarnessError, Unsupported, missing_library

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import uvicorn
    from starlette.applications import Starlette

    from experiments.devices.base import Device
    from experiments.serving.services import Answer, Service

LOOPBACK = "127.0.0.1"
# Connections that wait to be taken, and seconds for which an idle one is kept: longer than the clients keep theirs.
BACKLOG, KEEP_ALIVE_S = 4096, 120
# Seconds that its threads have to start.
START_S = 20.0


class Dispatcher:
    """Where requests wait for a thread that computes.

    threads: for each computation. workers: computations at the same time; on an accelerator, one
    after the other. busy_s: seconds that an accelerator took from the first to the last operation
    of each request, by its own clock: its idle moments in between count as work.
    """

    def __init__(self, service: Service, device: Device, kind: str, threads: int, workers: int) -> None:
        self.service, self.device, self.accelerator = service, device, kind != "cpu"
        self.busy_s, self.open = 0.0, 0
        self._threads, self._one = threads, threading.Lock()
        workers = 1 if self.accelerator else workers
        self._pool = ThreadPoolExecutor(workers, initializer=self._set_up_thread)
        # All threads now: one that the system refuses later would be a request that failed.
        together = threading.Barrier(workers)
        try:
            started = [self._pool.submit(together.wait, START_S) for _ in range(workers)]
        except RuntimeError as refusal:
            raise HarnessError(f"{workers} threads are wanted: {refusal} (see ulimit -u)") from None
        for one in started:
            one.result()
        # One more than are computed, so that the next is at hand.
        self._turn = asyncio.Semaphore(workers + 1)

    def _set_up_thread(self) -> None:
        """For each thread of its own: which accelerator is meant, and how many threads it may start."""
        import torch

        torch.set_num_threads(self._threads)
        self.device.open()

    async def answer(self, body: bytes, gone: Callable[[], Awaitable[bool]]) -> Answer | None:
        """The answer to a request when its turn has come; None if by then nobody waits for it any more.

        gone: whether who asked has left. Raises ValueError for what is no request.
        """
        inputs = self.service.inputs(body)
        self.open += 1
        try:
            waits = self._turn.locked()
            async with self._turn:
                if waits and await gone():
                    return None
                return await asyncio.get_running_loop().run_in_executor(self._pool, self._compute, inputs)
        finally:
            self.open -= 1

    def _compute(self, inputs: Any) -> Answer:
        if not self.accelerator:
            return self.service.answer(inputs)
        found: list[Answer] = []
        with self._one:
            (seconds,) = self.device.time_launches([lambda: found.append(self.service.answer(inputs))])
            self.busy_s += seconds
        return found[0]

    def usage(self) -> dict[str, Any]:
        """Seconds of CPUs, of the accelerator at work, and of standing still, so far; requests without answer now."""
        return {
            "cpu_s": time.process_time(), "busy_s": self.busy_s, "open": self.open, "stood_s": running_time.paused_s(),
        }  # fmt: skip


def make_application(desk: Dispatcher) -> Starlette:
    """The routes of one desk."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        try:
            return JSONResponse(await desk.answer(await request.body(), request.is_disconnected))
        except ValueError as mistake:
            return PlainTextResponse(str(mistake), 400)
        except OSError as refusal:
            asyncio.get_running_loop().call_exception_handler({"message": "no answer", "exception": refusal})
            return PlainTextResponse(str(refusal), 500)

    async def usage(_: Request) -> Response:
        return JSONResponse(desk.usage())

    return Starlette(routes=[Route("/answer", answer, methods=["POST"]), Route("/usage", usage)])


def make_server(desk: Dispatcher) -> uvicorn.Server:
    """What runs these routes, on one event loop."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            make_application(desk), loop="asyncio", http="httptools", lifespan="off", access_log=False,
            log_level="warning", timeout_keep_alive=KEEP_ALIVE_S,
        )
    )  # fmt: skip


async def serve(running: uvicorn.Server, held: socket.socket, tell: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer on a socket until the process is told to end, or the system refuses it something: no number is worth that.

    asyncio accepts connections outside of any request. Where it cannot, it would complain thousands of times a second.
    """

    def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        refusal = context.get("exception")
        if not isinstance(refusal, OSError):
            loop.default_exception_handler(context)
        elif not isinstance(refusal, ConnectionError):  # of a client that has left
            print(f"the server: {connection_limits.describe_refusal(refusal)}", file=sys.stderr)
            tell({"harness": f"the server: {connection_limits.describe_refusal(refusal)}"})
            os._exit(1)

    asyncio.get_running_loop().set_exception_handler(unhandled)
    with running_time.RunningTime(connection_limits.TICK_S):
        await running.serve(sockets=[held])


def listening_socket(port: int) -> socket.socket:
    """A socket on loopback; port 0 is one that the system chooses. Raises HarnessError."""
    # asyncio sends at once (TCP_NODELAY) only on sockets that say that they are TCP. Otherwise an answer's body waits
    # until its header has been acknowledged, which takes the other side up to 40 ms.
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, port))
        held.listen(BACKLOG)
    except OSError as refusal:
        held.close()
        where = f"port {port} of {LOOPBACK}" if port else LOOPBACK
        raise HarnessError(f"no server can listen on {where}: {refusal.strerror}") from None
    return held


def main() -> None:
    """Serve until the parent is gone."""
    asked, tell = read_order()
    try:
        held = listening_socket(asked["port"])
        from experiments.devices import open_device
        from experiments.serving.services import SERVICES

        device = open_device(asked["device"])
        device.set_threads(asked["threads"])
        service = SERVICES[asked["service"]](
            device, Dtype(asked["dtype"]), asked["backend"], asked["threads"], asked["workers"]
        )
        # The first request would wait for libraries that set themselves up.
        service.answer(service.inputs(service.requests()[0]))
        desk = Dispatcher(service, device, asked["kind"], asked["threads"], asked["workers"])
        running = make_server(desk)
    except ModuleNotFoundError as absent:
        tell({"unsupported": str(missing_library(absent))})
        return
    except (Unsupported, StudyError, NotImplementedError, ImportError) as lack:
        tell({"unsupported": str(lack).splitlines()[0]})
        return
    except HarnessError as trouble:
        tell({"harness": f"the server: {trouble}"})
        return
    except OSError as refusal:
        tell({"harness": f"the server: {connection_limits.describe_refusal(refusal)}"})
        return
    # Whoever connects now waits until the loop runs.
    tell({"port": held.getsockname()[1], "room": connection_limits.raise_file_limit(connection_limits.CONNECTIONS)})
    asyncio.run(serve(running, held, tell))


if __name__ == "__main__":
    main()
