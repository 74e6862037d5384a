"""A server in the real one's place, for tests of what asks it."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RequestHandler(BaseHTTPRequestHandler):
    """Reads a request's body and has the server answer it. Silent: the client may leave, and nothing is logged."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(ConnectionError):
            self.server.answer(self, body)  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None:
        """Silence."""


class StandInServer(ThreadingHTTPServer):
    """A server of loopback, at a port that the system chooses, which answers from threads of its own.

    answer: what a subclass does with a request.
    """

    daemon_threads = True
    # Connections that may wait until the busy machine of a test accepts them: one past these takes a second.
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RequestHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
