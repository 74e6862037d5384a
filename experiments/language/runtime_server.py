"""Client for llama.cpp's server: it starts the server with a GGUF file, sends requests to it, and stops it."""

from __future__ import annotations

import http.client
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil

from experiments.children import Child, ChildError
from experiments.language.runtimes import Ids, NextTokens, XLlamaCpp
from experiments.serving import simulated_users
from experiments.serving.server_processes import start_process, wait_until
from experiments.workload import HarnessError

# Timeout in seconds for loading a model (up to 5 GB).
START_S = 60.0


class Server:
    """Server process that listens on a loopback port.

    letter: token id of `simulated_users.LETTER` in the model's vocabulary.
    """

    def __init__(self, child: Child, log: IO[bytes]) -> None:
        self.child, self.log, self.port, self.letter = child, log, 0, 0

    def wait(self) -> None:
        """Wait until the server is ready.

        Raises Unsupported if the server is not installed or does not support the device, HarnessError (usually with the
        last log line) if it does not start.
        """
        try:
            self.port = int(self.child.answer(START_S)["port"])
        except ChildError as end:
            raise HarnessError(f"{end}{self.last_log_line()}") from None
        if not wait_until(self._is_ready, START_S):
            raise HarnessError(f"the server did not answer within {START_S:g} s{self.last_log_line()}")
        self.letter = int(
            self._post("/tokenize", json.dumps({"content": simulated_users.LETTER}).encode())["tokens"][0]
        )

    def _is_ready(self) -> bool:
        self.require_alive()
        self.port = self.port or listening_port(self.child.pid)
        if not self.port:
            return False
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_S)) as connection:
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def require_alive(self) -> None:
        """Raise HarnessError, with the last log line, if the server has ended."""
        if not self.child.is_alive:
            raise HarnessError(f"the server ended{self.last_log_line()}")

    def last_log_line(self) -> str:
        """Return ': ' and the last log line; '' if there is none."""
        self.log.seek(0)
        lines = [line for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1].strip()[:200]}" if lines else ""

    def next_tokens(self, prompts: list[Ids]) -> list[NextTokens]:
        """Send a request for each prompt, all at the same time, and return the candidate next tokens for each.

        Raises HarnessError if the server has ended, RuntimeError if its answer lacks the probabilities.
        """
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(self._likely_tokens, prompts))

    def _post(self, path: str, body: bytes) -> Any:
        """Send a request and return the parsed answer.

        Raises HarnessError if the server has ended, RuntimeError if it does not answer with JSON.
        """
        try:
            connection, response = simulated_users.open_response(self.port, body, START_S, path)
            with closing(connection):
                return json.load(response)
        except (OSError, http.client.HTTPException, ValueError) as fault:
            self.require_alive()
            raise RuntimeError(f"the server does not answer {path} ({type(fault).__name__}: {fault})") from None

    def _likely_tokens(self, prompt: Ids) -> NextTokens:
        answer = self._post(
            simulated_users.PATH,
            simulated_users.request_body(prompt.tolist(), 1, self.letter, stream=False, logprobs=XLlamaCpp.MOST),
        )
        try:
            likely = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        except (LookupError, TypeError):
            raise RuntimeError("the server returns no probabilities: its version is too old") from None
        return np.array([token["id"] for token in likely]), np.array([token["logprob"] for token in likely])


@contextmanager
def running_server(orders: Mapping[str, Any]) -> Iterator[Server]:
    """Run a server inside this context. Raises errors as `Server.wait` does.

    orders: settings for the server, as `experiments.serving.language_server.main` lists them, without `log`.
    """
    handle, name = tempfile.mkstemp(prefix="study-server-", suffix=".log")
    with os.fdopen(handle, "rb") as log:
        try:
            child = start_process("language_server", {**orders, "log": name})
            try:
                server = Server(child, log)
                server.wait()
                yield server
            finally:
                child.stop()
        finally:
            Path(name).unlink(missing_ok=True)


def listening_port(pid: int) -> int:
    """Return the port on which a process listens; 0 if it does not listen yet, or if the process does not exist."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return 0
    return next((each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN), 0)
