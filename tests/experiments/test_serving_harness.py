"""Trouble in the harness (limits, refused files and ports, pauses, late requests) never counts as a server failure."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.files import write_json
from experiments import children, worker
from experiments.children import Child, ChildError
from experiments.doctor import plan_checks
from experiments.doctor.finding import Level
from experiments.jobs import Job, Plan, Point
from experiments.machine_state import Watch
from experiments.serving import connection_limits, http_load, server, server_processes
from experiments.serving.connection_limits import CONNECTIONS, MARGIN, Room
from experiments.suite import serving
from experiments.workload import HarnessError, Unsupported
from tests.experiments.conftest import Tree
from tests.experiments.echoing.service import Echo
from tests.experiments.point_runs import CPU, build_work, point_params
from tests.experiments.test_serving import ORDERS, echo_service, load_result, make_dispatcher, run_load, start_stand_in

__all__ = ["echo_service", "start_stand_in"]  # fixtures that tests here request by name
USED = {"cpu_s": 1.0, "busy_s": 0.5, "open": 0, "stood_s": 0.25}
RANGE = "proc/sys/net/ipv4/ip_local_port_range"


@pytest.fixture
def few_files() -> Iterator[Callable[[int], None]]:
    """Yield a function that sets the soft limit so that this process can open `free` more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave(free: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + free, hard))

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# The tests below check what the harness does before the load starts.


def test_soft_file_limit_is_raised_only_as_needed(few_files: Callable[[int], None]) -> None:
    few_files(5)
    room = connection_limits.raise_file_limit(40)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert room == (40 + MARGIN, soft)
    assert connection_limits.file_shortage(40, room) == ""
    assert connection_limits.raise_file_limit(10) == room


def test_hard_file_limit_error_says_what_to_do(
    few_files: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few_files(5)
    soft, _ = connection_limits.file_limits()
    monkeypatch.setattr(connection_limits, "file_limits", lambda: (soft, soft))
    assert connection_limits.raise_file_limit(40) == (5, soft)
    with pytest.raises(
        HarnessError, match=rf"the load: 40 connections need 72 files, 5 of the limit of {soft} .*ulimit"
    ):
        connection_limits.require_connections(40, "the load", connection_limits.raise_file_limit(40))


@pytest.mark.parametrize(("soft", "hard"), [(resource.RLIM_INFINITY,) * 2, (connection_limits.sys.maxsize,) * 2])
def test_unlimited_files_fit_all_connections(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    assert connection_limits.file_limits() == (connection_limits.sys.maxsize,) * 2
    assert not connection_limits.file_shortage(CONNECTIONS, connection_limits.raise_file_limit(CONNECTIONS))


@pytest.mark.parametrize(
    ("text", "lacks"),
    [("32768\t60999\n", False), ("32768 32800", True), (f"40000 {40000 + CONNECTIONS + MARGIN - 1}", False),
     ("", False), (None, False)],
)  # fmt: skip
def test_narrow_port_range_is_reported(tree: Tree, text: str | None, lacks: bool) -> None:
    reason = connection_limits.port_shortage(CONNECTIONS, tree({} if text is None else {RANGE: text}))
    assert bool(reason) == lacks
    assert not lacks or ("ip_local_port_range" in reason and "33" in reason)


@pytest.mark.parametrize(
    ("backlog", "requests", "wanted"), [(4096, 9000, CONNECTIONS), (128, 9000, 128), (4096, 15, 15), (None, 1, 1)]
)
def test_connection_count_fits_the_load_and_the_accept_queue(
    tree: Tree, backlog: int | None, requests: int, wanted: int
) -> None:
    root = tree({"proc/sys/net/core/somaxconn": f"{backlog}"} if backlog else {})
    assert connection_limits.connection_count(requests, root) == wanted


def test_load_beyond_the_file_limit_is_refused(start_stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "raise_file_limit", lambda _: Room(20, 64))
    with pytest.raises(HarnessError, match="the load: 30 connections need 62 files, 20 of the limit of 64 are free"):
        run_load(start_stand_in(), rate=300, count=30)
    running = serving.RunningServer(Child.__new__(Child), 0, Room(20, 64))
    with pytest.raises(HarnessError, match="the server: 30 connections"):
        serving._measure_load(running, {"count": 30}, None, [], 0, "cpu")  # type: ignore[arg-type]


def test_refused_threads_fail_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(server.ThreadPoolExecutor, "submit", refuse)
    with pytest.raises(HarnessError, match=r"cannot start 2 threads: can't start new thread \(see ulimit -u\)"):
        make_dispatcher(workers=2)


def test_process_that_cannot_start_is_a_harness_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(children.subprocess, "Popen", refuse)
    with pytest.raises(ChildError, match="the http load could not be started: Resource temporarily unavailable"):
        server_processes.start_process("http_load", {})


@pytest.mark.parametrize(
    ("free", "planned", "level"),
    [(None, None, Level.OK), (5, None, Level.NOTE), (5, 5, Level.OK), (5, 600, Level.WARNING), (5, 0, None)],
)
def test_doctor_reports_loads_that_do_not_fit(
    few_files: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int | None,
    planned: int | None, level: Level | None,
) -> None:  # fmt: skip
    if planned is not None:
        point = Point.from_params("serving" if planned else "gemm", {"requests_per_s": max(planned, 1), "seconds": 4})
        jobs = (Job(point.experiment, "cpu", "cpu", 0.1, 10.0, 30, (point,)),)
        write_json(tmp_path / "plan.json", Plan(jobs, 1).as_json)
    if free is not None:
        few_files(CONNECTIONS // 2)
        soft, _ = connection_limits.file_limits()
        monkeypatch.setattr(connection_limits, "file_limits", lambda: (soft, soft))
    finding = plan_checks.server_load(tmp_path)
    assert (finding and finding.level) == level
    assert not finding or finding.level is Level.OK or "ulimit -n" in finding.mend


# The tests below distinguish failures of the server from failures of the harness.


def http_response(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


ANSWERS: list[tuple[bytes | str, bool | str]] = [
    (http_response("200 OK", b'{"answer":7}'), True),
    (http_response("200 OK", b'{"answer":8}'), False),
    (http_response("200 OK", b"null"), False),
    (http_response("200 OK", b"seven"), False),
    (http_response("200 OK", b'{"other":7}'), False),
    (http_response("500 Internal Server Error"), False),
    (http_response("503 Service Unavailable"), False),
    (http_response("429 Too Many Requests"), False),
    (http_response("200 OK", b'{"answer":7}')[:-5], False),
    (b"", False),
    ("reset", False),
    ("silent", False),
    (http_response("400 Bad Request", b"an image is 784 bytes"), "the server said 400: an image is 784 bytes"),
    (http_response("404 Not Found"), "the server said 404"),
    ("nobody listens", "ECONNREFUSED"),
]


Script = bytes | str


@contextlib.contextmanager
def scripted_server(*answers: Script) -> Iterator[int]:
    """Start a server that gives `answers` in turn and repeats the last, and yield its port.

    An answer is 'reset', 'silent', or bytes to send before closing the connection.
    """
    listening, remaining = socket.create_server(("127.0.0.1", 0)), list(answers)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                serve_one(listening.accept()[0])

    def serve_one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = b""
            while not request.endswith(b"\r\n\r\nx"):
                request += connection.recv(1 << 16)
            answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if answer == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif answer == "silent":
                connection.recv(1)  # wait until the client closes the connection
            else:
                assert isinstance(answer, bytes)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        # Unlike `close`, `shutdown` also ends the wait in `accept`.
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


@pytest.mark.parametrize(("answer", "outcome"), ANSWERS, ids=[str(answer)[:60] for answer, _ in ANSWERS])
def test_only_overload_counts_as_a_server_failure(answer: Script, outcome: bool | str) -> None:
    with scripted_server(answer) as port:
        if answer == "nobody listens":
            with socket.create_server(("127.0.0.1", 0)) as closed:
                port = closed.getsockname()[1]
        result = http_load.Load(port, [b"x"], [7], 0.2 if answer == "silent" else 20.0, 4).offer([0.0], [0])
    if isinstance(outcome, str):
        ((trouble, count),) = result.trouble.items()
        assert trouble.startswith(outcome) and count == 1
        assert not result.good
    else:
        assert (result.good, result.trouble) == ([outcome], {})
        assert outcome or result.latency[0] >= (0.2 if answer == "silent" else 20.0)


RIGHT = http_response("200 OK", b'{"answer":7}')
MANGLED = st.one_of(
    st.binary(max_size=300),
    st.integers(0, len(RIGHT) - 1).map(lambda end: RIGHT[:end]),
    st.tuples(st.integers(0, len(RIGHT) - 1), st.binary(min_size=1, max_size=4)).map(
        lambda edit: RIGHT[: edit[0]] + edit[1] + RIGHT[edit[0] + 1 :]
    ),
    st.binary(min_size=1, max_size=20).map(lambda more: RIGHT + more),
    st.integers(100, 999).map(lambda status: http_response(f"{status} Odd", b'{"answer":7}')),
    st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda content: http_response("200 OK", json.dumps(content).encode())
    ),
    st.just(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 200_000),
    st.just(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    st.just(http_response("200 OK", b"[" * 50_000)),
)


@given(MANGLED)
@settings(max_examples=150, deadline=None)
def test_malformed_answer_neither_stops_the_load_nor_is_lost(answer: bytes) -> None:
    with scripted_server(answer, RIGHT) as port:
        client = http_load.Load(port, [b"x"], [7], 5.0, 4)
        first = client.offer([0.0], [0])
        # The server closes the first connection a moment after its answer, so the next requests may still fail.
        assert any(client.offer([0.01], [0]).good == [True] for _ in range(20))
    assert len(first.good) + sum(first.trouble.values()) == 1
    assert len(first.good) == len(first.latency) == len(first.late)


@given(st.integers(1, len(RIGHT) - 1))
@settings(max_examples=10, deadline=None)
def test_answer_in_pieces_is_joined(cut: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(RIGHT[:cut])
                time.sleep(0.01)
                connection.sendall(RIGHT[cut:])

        thread = threading.Thread(target=serve)
        thread.start()
        assert http_load.Load(listening.getsockname()[1], [b"x"], [7], 20.0, 4).offer([0.0], [0]).good == [True]
        thread.join(30)


def test_large_request_is_sent_completely() -> None:
    body = os.urandom(30_000_000)
    complete: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                request = connection.recv(1 << 16)
                while not request.endswith(body[-100:]):
                    request += connection.recv(1 << 20)
                complete.append(request.endswith(body))
                connection.sendall(RIGHT)

        thread = threading.Thread(target=serve)
        thread.start()
        assert http_load.Load(listening.getsockname()[1], [body], [7], 20.0, 4).offer([0.0], [0]).good == [True]
        thread.join(30)
    assert complete == [True]


def test_closed_connection_is_not_reused() -> None:
    with scripted_server(RIGHT) as port:
        result = http_load.Load(port, [b"x"], [7], 20.0, 4).offer([0.0, 0.3, 0.6], [0, 0, 0])
    assert (result.good, result.trouble) == ([True] * 3, {})


def test_client_file_limit_is_not_a_server_failure(
    start_stand_in: Any, few_files: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "raise_file_limit", lambda _: Room(1000, 1000))
    monkeypatch.setattr(http_load, "WARM_UP", 1)
    port = start_stand_in(seconds=0.02)
    few_files(16)
    result = run_load(port, rate=2000, count=80, timeout_s=2.0)
    # Some connections may time out instead, so take the most frequent reason.
    trouble = max(result.trouble, key=lambda reason: result.trouble[reason])
    assert trouble.startswith("EMFILE: Too many open files; raise it in the shell")
    assert sum(result.trouble.values()) + len(result.good) == 80
    assert len(result.good) == len(result.latency) == len(result.late)
    with pytest.raises(HarnessError, match="requests failed outside the server, most because of EMFILE"):
        serving.raise_if_lost(vars(result))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux changes another process's limits")
def test_server_file_limit_fails_the_run_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    running = serving.get_server(ORDERS)
    kind = Echo
    expected = [running.ask("POST", "/answer", body)["answer"] for body in kind.requests()]
    limit = psutil.Process(running.child.pid).num_fds() + 4
    resource.prlimit(running.child.pid, resource.RLIMIT_NOFILE, (limit, limit))
    load = {"rate": 3000, "count": 30, "seed": 1, "timeout_s": 0.5, "cpus": []}
    with pytest.raises(HarnessError, match=r"the server: EMFILE: Too many open files; raise it in the shell"):
        serving._measure_load(running, load, kind, expected, 0, "cpu")
    _, complaints = capfd.readouterr()
    assert complaints.count("Too many open files") == 1
    assert "Traceback" not in complaints
    running.child.stop()


@pytest.mark.parametrize(("number", "ends"), [("EMFILE", True), ("ENFILE", True), ("ECONNRESET", False)])
def test_server_ends_if_the_system_refuses_a_file(monkeypatch: pytest.MonkeyPatch, number: str, ends: bool) -> None:
    output: list[Any] = []
    monkeypatch.setattr(server.os, "_exit", output.append)

    class Running:
        async def serve(self, **_: Any) -> None:
            refusal = OSError(getattr(errno, number), "refused")
            asyncio.get_running_loop().call_exception_handler({"message": "", "exception": refusal})

    with server.listening_socket(0) as listening:
        asyncio.run(server.serve(Running(), listening, output.append))  # type: ignore[arg-type]
    assert [str(word)[:40] for word in output] == (
        [f"{{'harness': 'the server: {number}: refused'"[:40], "1"] if ends else []
    )


def test_server_death_is_a_harness_error() -> None:
    running = serving.get_server(ORDERS)
    os.kill(running.child.pid, signal.SIGKILL)
    assert server_processes.wait_until(lambda: not running.child.is_alive, 10)
    with pytest.raises(HarnessError, match="the server was ended by SIGKILL"):
        running.ask("GET", "/usage")
    with pytest.raises(HarnessError, match="ECONNREFUSED"):
        serving.raise_if_lost({**load_result(10), "trouble": {"ECONNREFUSED: Connection refused": 3}})


# The tests below check disturbances during the load.


def test_stopped_server_reports_its_pause() -> None:
    running = serving.get_server(ORDERS)
    before = running.ask("GET", "/usage")["stood_s"]
    os.kill(running.child.pid, signal.SIGSTOP)
    time.sleep(1.2)
    os.kill(running.child.pid, signal.SIGCONT)
    assert running.ask("GET", "/usage")["stood_s"] - before > 0.5


TROUBLE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"trouble": {"EMFILE": 2, "EADDRNOTAVAIL": 9}}, {}, "11 of 1011 requests .*, most because of EADDRNOTAVAIL"),
    ({"stood_s": 2.0}, {}, "the load generator was paused for 2.0 s"),
    ({}, {"stood_s": 3.25}, "the server was paused for 3.0 s"),
    ({"late": [0.2] * 11 + [0.0] * 989}, {}, "the load sent 11 of 1000 requests over 0.05 s late"),
    ({"late": [0.2] * 2 + [0.0] * 4}, {}, "the load sent 2 of 6 requests"),
]


@pytest.mark.parametrize(("changes", "after", "words"), TROUBLE)
def test_harness_trouble_is_an_error(changes: dict[str, Any], after: dict[str, Any], words: str) -> None:
    with pytest.raises(HarnessError, match=words):
        serving.raise_if_lost({**load_result(1000), **changes})
        serving.raise_if_disturbed({**load_result(1000), **changes}, USED, {**USED, **after})


@pytest.mark.parametrize("changes", [{}, {"trouble": {"EMFILE": 1}}, {"late": [0.2] * 10 + [0.0] * 990}])
def test_server_failures_are_measured(changes: dict[str, Any]) -> None:
    serving.raise_if_lost({**load_result(1000, failing=900), **changes})
    serving.raise_if_disturbed({**load_result(1000, failing=900), **changes}, USED, USED)
    serving.raise_if_disturbed({**load_result(5, failing=5), "late": [0.0] * 4 + [0.2]}, USED, USED)


PASSING = serving.DisturbedError("the load generator was paused")
SEEN = {"failed_share": (0.0, "1")}


@pytest.mark.parametrize(
    ("attempts", "tries"),
    [([PASSING, PASSING, SEEN], 3), ([PASSING] * 9, 3), ([HarnessError("the load generator was paused")] * 9, 1)],
)
def test_disturbed_load_is_retried(monkeypatch: pytest.MonkeyPatch, attempts: list[Any], tries: int) -> None:
    monkeypatch.setattr(serving, "get_server", lambda _: None)
    monkeypatch.setattr(serving, "_measure_load", measure_load := Mock(side_effect=attempts))
    workload = build_work("serving", threads=1)
    assert workload.observe
    with (
        contextlib.nullcontext()
        if SEEN in attempts
        else pytest.raises(HarnessError, match="the load generator was paused")
    ):
        assert workload.observe() == SEEN
    assert measure_load.call_count == tries


def test_harness_error_fails_the_point_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise HarnessError("the load: 256 connections need 288 files")

    monkeypatch.setattr(serving, "get_server", refuse)
    order = {"experiment": "serving", "device": "cpu", "params": point_params("serving"),
             "policy": {"target": 0.1, "budget_s": 1.0, "max_samples": 6}}  # fmt: skip
    answer = worker.answer_order(order, CPU, Watch("cpu"))
    assert answer == {"status": "failed", "reason": "harness: the load: 256 connections need 288 files"}


@pytest.mark.parametrize(("word", "kind"), [("harness", HarnessError), ("unsupported", Unsupported)])
def test_child_errors_are_raised(monkeypatch: pytest.MonkeyPatch, word: str, kind: type[Exception]) -> None:
    script = f'import sys; sys.stdin.readline(); print(\'{{"{word}": "no files"}}\', flush=True)'
    popen = children.subprocess.Popen
    monkeypatch.setattr(
        children.subprocess, "Popen", lambda command, **options: popen([command[0], "-c", script], **options)
    )
    with pytest.raises(kind, match="no files"):
        server_processes.start_process("http_load", {}).answer(30)


def test_child_ends_if_its_parent_ended_before_the_order() -> None:
    program = "from experiments.children import read_order; read_order()[1]({'at': 'work'})"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.communicate("{}\n", timeout=60)[0] == ""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write("{}\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline()) == {"at": "work"}


def test_signal_that_reaches_the_child_first_interrupts_its_parent_too() -> None:
    """The child's end by a signal is no failure if the parent receives the signal shortly after."""
    dying = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    program = (
        "import os, signal, sys, threading\n"
        "from contract.child_processes import interrupt_on_signal\n"
        "from experiments.children import Child\n"
        "interrupt_on_signal()\n"
        f"child = Child('child', [sys.executable, '-c', {dying!r}])\n"
        "threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()\n"
        "try:\n"
        "    child.answer(30)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "    os._exit(0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == ("interrupted\n", 0)
