"""Stand-in server, to test its clients."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RequestHandler(BaseHTTPRequestHandler):
    """Handler that passes request bodies to the server; it logs nothing and ignores clients that disconnect."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(ConnectionError):
            self.server.answer(self, body)  # type: ignore[attr-defined]

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class StandInServer(ThreadingHTTPServer):
    """Loopback server on a free port that handles each connection in a thread.

    A subclass must define the method `answer`, which gets a request's handler and body and sends the answer.
    """

    daemon_threads = True
    # Use a long backlog, because busy machines accept connections late, and a client retries a connection beyond the
    # backlog only after a second.
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RequestHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
