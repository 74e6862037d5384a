"""Server with one service: uvicorn and starlette on loopback, computing in threads outside the event loop.

POST /answer computes an answer; GET /usage reports resource usage.
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
# BACKLOG: length of the accept queue.
# KEEP_ALIVE_S: seconds until the server closes an idle connection; so many that clients close connections first.
BACKLOG, KEEP_ALIVE_S = 4096, 120
# Timeout for starting threads, in seconds.
START_S = 20.0


class Dispatcher:
    """Request queue and worker threads.

    threads: number of CPU threads per computation. workers: number of concurrent computations; 1 on an accelerator.
    busy_s: seconds from a request's first to its last operation on the accelerator, by the accelerator's
    clock, summed over requests; includes idle gaps within requests.
    """

    def __init__(self, service: Service, device: Device, kind: str, threads: int, workers: int) -> None:
        self.service, self.device, self.accelerator = service, device, kind != "cpu"
        self.busy_s, self.open = 0.0, 0
        self._threads, self._accelerator_lock = threads, threading.Lock()
        workers = 1 if self.accelerator else workers
        self._pool = ThreadPoolExecutor(workers, initializer=self._set_up_thread)
        # Start all threads now: if the system refused a thread later, a request would fail.
        barrier = threading.Barrier(workers)
        try:
            started = [self._pool.submit(barrier.wait, START_S) for _ in range(workers)]
        except RuntimeError as refusal:
            raise HarnessError(f"cannot start {workers} threads: {refusal} (see ulimit -u)") from None
        for future in started:
            future.result()
        # Admit one request more than there are workers, so that a worker finds the next request ready.
        self._slots = asyncio.Semaphore(workers + 1)

    def _set_up_thread(self) -> None:
        """Set thread-local state: accelerator and thread count."""
        import torch

        torch.set_num_threads(self._threads)
        self.device.open()

    async def answer(self, body: bytes, gone: Callable[[], Awaitable[bool]]) -> Answer | None:
        """Wait for a worker and compute an answer; return None if the client has disconnected while waiting.

        gone: function that tells if the client has disconnected. Raises ValueError for a malformed request.
        """
        inputs = self.service.inputs(body)
        self.open += 1
        try:
            must_wait = self._slots.locked()
            async with self._slots:
                if must_wait and await gone():
                    return None
                return await asyncio.get_running_loop().run_in_executor(self._pool, self._compute, inputs)
        finally:
            self.open -= 1

    def _compute(self, inputs: Any) -> Answer:
        if not self.accelerator:
            return self.service.answer(inputs)
        answers: list[Answer] = []
        with self._accelerator_lock:
            (seconds,) = self.device.time_launches([lambda: answers.append(self.service.answer(inputs))])
            self.busy_s += seconds
        return answers[0]

    def usage(self) -> dict[str, Any]:
        """Report the CPU, accelerator and suspended seconds so far, and the number of unanswered requests."""
        return {
            "cpu_s": time.process_time(), "busy_s": self.busy_s, "open": self.open, "stood_s": running_time.paused_s(),
        }  # fmt: skip


def make_application(dispatcher: Dispatcher) -> Starlette:
    """Make the application with its routes."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        try:
            return JSONResponse(await dispatcher.answer(await request.body(), request.is_disconnected))
        except ValueError as mistake:
            return PlainTextResponse(str(mistake), 400)
        except OSError as refusal:
            asyncio.get_running_loop().call_exception_handler({"message": "no answer", "exception": refusal})
            return PlainTextResponse(str(refusal), 500)

    async def usage(_: Request) -> Response:
        return JSONResponse(dispatcher.usage())

    return Starlette(routes=[Route("/answer", answer, methods=["POST"]), Route("/usage", usage)])


def make_server(dispatcher: Dispatcher) -> uvicorn.Server:
    """Make a server that runs the routes on one event loop."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            make_application(dispatcher), loop="asyncio", http="httptools", lifespan="off", access_log=False,
            log_level="warning", timeout_keep_alive=KEEP_ALIVE_S,
        )
    )  # fmt: skip


async def serve(running: uvicorn.Server, listener: socket.socket, reply: Callable[[Mapping[str, Any]], None]) -> None:
    """Serve on a socket until the process is stopped.

    Exit if the system refuses a resource: measurements would be wrong, and asyncio, which accepts connections outside
    the routes, would log thousands of errors per second.
    """

    def handle_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        refusal = context.get("exception")
        if not isinstance(refusal, OSError):
            loop.default_exception_handler(context)
        elif not isinstance(refusal, ConnectionError):  # disconnected clients cause a ConnectionError
            print(f"the server: {connection_limits.describe_refusal(refusal)}", file=sys.stderr)
            reply({"harness": f"the server: {connection_limits.describe_refusal(refusal)}"})
            os._exit(1)

    asyncio.get_running_loop().set_exception_handler(handle_error)
    with running_time.RunningTime(connection_limits.TICK_S):
        await running.serve(sockets=[listener])


def listening_socket(port: int) -> socket.socket:
    """Open a listening socket on loopback; port 0 lets the system choose. Raises HarnessError."""
    # asyncio sets TCP_NODELAY only on sockets with an explicit TCP protocol. Without it, an answer's body waits until
    # the client acknowledges the header, up to 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(BACKLOG)
    except OSError as refusal:
        listener.close()
        where = f"port {port} of {LOOPBACK}" if port else LOOPBACK
        raise HarnessError(f"no server can listen on {where}: {refusal.strerror}") from None
    return listener


def main() -> None:
    """Serve until the parent process ends."""
    order, reply = read_order()
    try:
        listener = listening_socket(order["port"])
        from experiments.devices import open_device
        from experiments.serving.services import SERVICES

        device = open_device(order["device"])
        device.set_threads(order["threads"])
        service = SERVICES[order["service"]](
            device, Dtype(order["dtype"]), order["backend"], order["threads"], order["workers"]
        )
        # Warm up: libraries initialise on first use.
        service.answer(service.inputs(service.requests()[0]))
        dispatcher = Dispatcher(service, device, order["kind"], order["threads"], order["workers"])
        running = make_server(dispatcher)
    except ModuleNotFoundError as absent:
        reply({"unsupported": str(missing_library(absent))})
        return
    except (Unsupported, StudyError, NotImplementedError, ImportError) as lack:
        reply({"unsupported": str(lack).splitlines()[0]})
        return
    except HarnessError as trouble:
        reply({"harness": f"the server: {trouble}"})
        return
    except OSError as refusal:
        reply({"harness": f"the server: {connection_limits.describe_refusal(refusal)}"})
        return
    # From now on clients may connect; their requests wait until the event loop runs.
    reply(
        {"port": listener.getsockname()[1], "room": connection_limits.raise_file_limit(connection_limits.CONNECTIONS)}
    )
    asyncio.run(serve(running, listener, reply))


if __name__ == "__main__":
    main()
