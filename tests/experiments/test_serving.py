"""Servers answer correctly and end with their parent, and the load sends requests without waiting for answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from experiments import children, hardware, topology
from experiments.children import ChildError
from experiments.serving import http_load, server, server_processes, services
from experiments.suite import serving
from experiments.workload import Dtype, HarnessError, Unsupported
from tests.experiments.echoing.service import Echo
from tests.experiments.point_runs import CPU, GPU, build_work, observe, passes_check
from tests.experiments.stand_in_server import RequestHandler, StandInServer

ORDERS = {"service": "echo", "device": "cpu", "kind": "cpu", "dtype": "float32", "backend": "torch", "threads": 1,
          "workers": 1, "cpus": [], "port": 0}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def echo_service() -> Iterator[None]:
    """Add a service that starts at once, and stop all servers at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_processes, "_PACKAGE", "tests.experiments.echoing")
        patch.setitem(services.SERVICES, "echo", Echo)
        yield
    serving.close_servers()
    children.stop_all()
    assert not children._CHILDREN


class CudaTensor(torch.Tensor):
    """A CPU tensor that claims to be on a GPU."""

    is_cuda = True


def test_int8_product_on_cuda_pads_few_rows_with_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA, PyTorch's int8 product refuses a matrix with fewer than 17 rows."""
    rows, product = [], torch._int_mm
    monkeypatch.setattr(torch, "_int_mm", lambda left, right: rows.append(len(left)) or product(left, right))
    x, weight, scale = torch.randn(3, 16), torch.randint(-127, 128, (16, 8), dtype=torch.int8), torch.rand(8)
    expected = services.int8_product(x, weight, scale)
    assert torch.equal(services.int8_product(x.as_subclass(CudaTensor), weight, scale), expected)
    services.int8_product(torch.randn(40, 16).as_subclass(CudaTensor), weight, scale)
    assert rows == [3, services.LEAST_CUDA_ROWS, 40]


@pytest.fixture
def few_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services.Embedding, "ROWS", 2000)
    monkeypatch.setattr(services.Embedding, "CHUNK", 300)
    for kind in (services.Embedding, services.Lookup):
        kind.exact_scores.cache_clear()


CASES = [
    *((name, dtype, "torch") for name in ("lookup", "embedding") for dtype in services.SERVICES[name].tolerance),
    ("text-classifier", Dtype.FLOAT32, "torch"), ("text-classifier", Dtype.BFLOAT16, "torch"),
    ("text-classifier", Dtype.FLOAT32, "onnx"), ("text-classifier", Dtype.INT8, "onnx"),
    ("image-classifier", Dtype.FLOAT32, "openvino"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "backend"), CASES)
def test_service_answers_match_its_model(name: str, dtype: Dtype, backend: str, few_vectors: None) -> None:
    kind = services.SERVICES[name]
    service = kind(CPU, dtype, backend, 1, 2)
    bodies, exact = kind.requests(), kind.exact_scores()
    assert len(set(bodies)) == len(bodies) == len(exact) == services.REQUESTS
    for body, expected in zip(bodies, exact, strict=True):
        answer = service.answer(service.inputs(body))
        assert services.answer_error(answer, expected) <= kind.tolerance_for(dtype, backend)
        assert expected.argmax() in answer["best"]


@pytest.mark.parametrize(
    ("kind", "tokens", "beyond"), [(services.Lookup, 64, 2000), (services.TextClassifier, 128, 30_522)]
)
def test_invalid_word_ids_are_refused(kind: Any, tokens: int, beyond: int, few_vectors: None) -> None:
    for words in ([0] * (tokens - 1), [-1] * tokens, [beyond] * tokens):
        with pytest.raises(ValueError, match="word ids"):
            kind.inputs(torch.tensor(words, dtype=torch.int32).numpy().tobytes())


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda answer: answer["scores"].__setitem__(0, float("nan")), id="nan"),
        pytest.param(lambda answer: answer["scores"].__setitem__(3, answer["scores"][3] + 0.1), id="a wrong score"),
        pytest.param(lambda answer: answer["best"].__setitem__(9, 11), id="not among the best"),
        pytest.param(lambda answer: answer["best"].__setitem__(1, answer["best"][0]), id="one answer twice"),
        pytest.param(lambda answer: answer.update(answer=5), id="another answer than the best"),
    ],
)
def test_wrong_answer_is_detected(fault: Any) -> None:
    exact = torch.linspace(0, 1, 20, dtype=torch.float64)
    best = exact.topk(services.BEST)
    answer = {"answer": int(best.indices[0]), "best": best.indices.tolist(), "scores": best.values.tolist()}
    assert services.answer_error(answer, exact) == 0
    fault(answer)
    assert not services.answer_error(answer, exact) <= 0.01


def test_concurrent_callers_get_their_own_answers() -> None:
    kind = services.TextClassifier
    service, requests = kind(CPU, Dtype.FLOAT32, "onnx", 1, 2), [kind.inputs(body) for body in kind.requests()] * 4
    alone = [service.answer(inputs)["scores"] for inputs in requests]
    with ThreadPoolExecutor(2) as callers:
        assert [answer["scores"] for answer in callers.map(service.answer, requests)] == alone


class SlowService(services.Service):
    """A service that answers after a delay, or fails on request."""

    @classmethod
    def inputs(cls, body: bytes) -> Any:
        if not body:
            raise ValueError("a request asks for something")
        return body

    def scores(self, inputs: Any) -> Any:
        raise NotImplementedError

    def answer(self, inputs: Any) -> Any:
        if inputs == b"fail":
            raise RuntimeError("broken")
        time.sleep(0.05)
        return {"answer": len(inputs)}

    requests = exact_scores = memory_bytes = classmethod(lambda *_: [])  # type: ignore[assignment]


def make_dispatcher(kind: str = "cpu", workers: int = 2) -> server.Dispatcher:
    return server.Dispatcher(SlowService(CPU, Dtype.FLOAT32), CPU, kind, threads=1, workers=workers)


def test_server_answers_refuses_and_survives_a_failure() -> None:
    listening, running = server.listening_socket(0), server.make_server(make_dispatcher())
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    connection = http.client.HTTPConnection(*listening.getsockname(), timeout=30)

    def ask(method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()

    try:
        assert ask("POST", "/answer", b"four") == (200, '{"answer":4}')
        assert ask("POST", "/answer", b"") == (400, "a request asks for something")
        assert ask("POST", "/answer", b"fail")[0] == 500
        connection.close()  # the server ends a connection after a failure
        assert ask("GET", "/answer")[0] == 405
        assert ask("POST", "/answer", b"x") == (200, '{"answer":1}')
        used = json.loads(ask("GET", "/usage")[1])
        assert used["open"] == 0
        assert used["cpu_s"] > 0
    finally:
        running.should_exit = True
        connection.close()
        thread.join(30)
        listening.close()
    assert not thread.is_alive()


async def stays_connected() -> bool:
    return False


async def has_left() -> bool:
    return True


def test_waiting_requests_of_disconnected_clients_are_dropped() -> None:
    async def many(dispatcher: server.Dispatcher) -> list[Any]:
        return await asyncio.gather(*(dispatcher.answer(b"x", has_left) for _ in range(6)))

    dispatcher = make_dispatcher(workers=1)
    answers = asyncio.run(many(dispatcher))
    assert answers == [{"answer": 1}] * 2 + [None] * 4
    assert dispatcher.open == 0


def test_requests_run_in_parallel_on_cores_and_in_sequence_on_a_gpu() -> None:
    async def several(dispatcher: server.Dispatcher) -> tuple[float, int]:
        begun = time.perf_counter()
        tasks = [asyncio.create_task(dispatcher.answer(b"x", stays_connected)) for _ in range(4)]
        await asyncio.sleep(0.02)
        waiting = dispatcher.open
        await asyncio.gather(*tasks)
        return time.perf_counter() - begun, waiting

    gpu, cpu = make_dispatcher("gpu"), make_dispatcher(workers=2)
    took, waiting = asyncio.run(several(gpu))
    assert waiting == 4
    assert 4 * 0.05 <= gpu.busy_s <= took
    asyncio.run(several(cpu))
    assert (cpu.busy_s, cpu.open) == (0, 0)


def test_taken_port_is_reported() -> None:
    with server.listening_socket(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HarnessError, match=rf"port {port} of 127.0.0.1: Address already in use"):
            server_processes.start_process("server", {**ORDERS, "port": port}).answer(60)


@pytest.mark.parametrize(
    ("order", "within_s", "kind", "words"),
    [
        ({"device": "cuda:7"}, 60, Unsupported, "no device 'cuda:7' on this machine"),
        ({"service": "none such"}, 60, ChildError, "the server ended with exit code 1"),
        ({}, 0.01, ChildError, "no answer within 0 s from the server"),
    ],
)
def test_server_that_fails_to_start_is_reported_and_stopped(order: Any, within_s: float, kind: Any, words: str) -> None:
    child = server_processes.start_process("server", {**ORDERS, **order})
    with pytest.raises(kind, match=words):
        child.answer(within_s)
    assert not child.is_alive


def process_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def port_refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_server_outlives_its_parent(how: signal.Signals) -> None:
    # Restore SIGINT: a background shell makes tests and their children ignore it.
    code = (
        "import signal, time; from experiments.serving import server_processes\n"
        "server_processes._PACKAGE = 'tests.experiments.echoing'\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"child = server_processes.start_process('server', {ORDERS!r})\n"
        "print(child.pid, child.answer(60)['port'], flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    try:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        assert not process_ended(pid)
        parent.send_signal(how)
        parent.wait(30)
        assert server_processes.wait_until(lambda: process_ended(pid), 10)
        # Other threads of the ended server may hold its socket a moment longer.
        assert server_processes.wait_until(lambda: port_refuses(port), 10)
    finally:
        parent.kill()


def test_listening_socket_names_its_protocol() -> None:
    """asyncio disables Nagle's algorithm, which may delay an answer's body by 40 ms, only on sockets that name TCP."""
    with server.listening_socket(0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    ("usable", "siblings", "cores", "mine", "others"),
    [
        (2, [[0], [1]], 1, [0], [1]),
        (2, [[0], [1]], 2, [0, 1], []),
        (2, [[0], [1]], 0, [0, 1], []),
        (4, [[0, 4], [1, 5], [2, 6], [3, 7]], 2, [0, 1], [2, 6, 3, 7]),
        (2, [[0], [1], [2], [3]], 2, [0, 1], []),
    ],
    ids=["one of two", "both", "all", "siblings", "a quota of two"],
)
def test_server_and_load_use_separate_cores_if_possible(
    monkeypatch: pytest.MonkeyPatch, usable: int, siblings: Any, cores: int, mine: Any, others: Any
) -> None:
    monkeypatch.setattr(topology, "physical_cores", lambda _: SimpleNamespace(groups=siblings))
    monkeypatch.setattr(hardware, "usable_cores", lambda: usable)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {cpu for core in siblings for cpu in core})
    assert server_processes.split_cores(cores) == (mine, others)


def test_pinning_without_system_support_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.setattr(hardware, "usable_cores", lambda: 8)
    assert server_processes.split_cores(0) == ([], [])
    with pytest.raises(Unsupported, match="cannot pin a process to 2 of 8 cores"):
        server_processes.split_cores(2)


def test_arrivals_are_a_poisson_process() -> None:
    times = http_load.arrivals(50.0, 20_000, seed=1)
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    assert statistics.fmean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert times == http_load.arrivals(50.0, 20_000, seed=1) != http_load.arrivals(50.0, 20_000, seed=2)


class DelayedServer(StandInServer):
    """Server that answers one request after another, each after a delay, with an error for every `every`-th request."""

    def __init__(self, seconds: float = 0.0, every: int = 0, says: str = "7") -> None:
        self.seconds, self.every, self.says, self.count, self.lock = seconds, every, says, 0, threading.Lock()
        super().__init__()

    def answer(self, request: RequestHandler, _: bytes) -> None:
        with self.lock:
            time.sleep(self.seconds)
            self.count += 1
            fails = self.every and self.count > http_load.WARM_UP and self.count % self.every == 0
        body = f'{{"answer": {self.says}}}'.encode()
        request.send_response(500 if fails else 200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture
def start_stand_in() -> Iterator[Any]:
    servers: list[DelayedServer] = []

    def make(**options: Any) -> int:
        servers.append(DelayedServer(**options))
        return int(servers[-1].server_address[1])

    yield make
    for running in servers:
        running.shutdown()
        running.server_close()


def run_load(port: int, rate: float, count: int, timeout_s: float = 5.0) -> http_load.LoadResult:
    order = {"port": port, "rate": rate, "count": count, "seed": 3, "timeout_s": timeout_s, "bodies": ["00"],
             "expected": [7]}  # fmt: skip
    return http_load.offer_load(order)


def test_load_within_capacity_is_answered(start_stand_in: Any) -> None:
    result = run_load(start_stand_in(), rate=100, count=50)
    assert all(result.good) and result.cpu_s > 0
    assert len(result.latency) == len(result.late) == 50
    assert all(late <= took for late, took in zip(result.late, result.latency, strict=True))


def test_requests_that_do_not_overlap_share_a_connection(start_stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[int] = []
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *arguments: connections.append(1) or connect(*arguments))
    client = http_load.Load(start_stand_in(), [b"x"], [7], 5.0, 8)
    for _ in range(20):
        assert client.offer([0.0], [0]).good == [True]
    assert len(connections) == 1


def test_latency_grows_with_each_request_beyond_capacity(start_stand_in: Any) -> None:
    result = run_load(start_stand_in(seconds=0.02), rate=200, count=100)
    assert all(result.good)
    # The last request ends after 100 service times of 0.02 s, and it is sent after about 100 / 200 s. The factor 1.5 is
    # a margin.
    assert max(result.latency) > 100 * 0.02 - 1.5 * 100 / 200
    assert statistics.fmean(result.latency[-25:]) > 2 * statistics.fmean(result.latency[:25])


def test_timed_out_request_counts_with_its_full_latency(start_stand_in: Any) -> None:
    result = run_load(start_stand_in(seconds=0.05), rate=200, count=40, timeout_s=0.4)
    failed = [took for took, good in zip(result.latency, result.good, strict=True) if not good]
    assert failed
    assert min(failed) >= 0.4
    assert len(result.latency) == 40


@pytest.mark.parametrize(
    ("options", "failures"), [({"every": 4}, range(8, 13)), ({"says": "8"}, [40])], ids=["errors", "wrong answers"]
)
def test_failures_are_counted_not_dropped(start_stand_in: Any, options: Any, failures: Any) -> None:
    result = run_load(start_stand_in(**options), rate=400, count=40)
    assert result.good.count(False) in failures
    assert all(took >= 5.0 for took, good in zip(result.latency, result.good, strict=True) if not good)


def load_result(count: int, failing: int = 0, took: float = 0.01) -> dict[str, Any]:
    latency = [took * (1 + place / count) for place in range(count)]
    latency[:failing] = [2.0] * failing
    good = [place >= failing for place in range(count)]
    return {"latency": latency, "late": [1e-4] * count, "good": good, "trouble": {}, "span_s": count / 100,
            "cpu_s": count / 1000, "stood_s": 0.0}  # fmt: skip


USED = ({"cpu_s": 1.0, "busy_s": 0.5, "open": 0}, {"cpu_s": 2.0, "busy_s": 0.6, "open": 0})


@pytest.mark.parametrize(
    ("count", "percentiles"), [(99, {"p50"}), (100, {"p50", "p99"}), (1000, {"p50", "p99", "p999"})]
)
def test_percentiles_need_enough_requests(count: int, percentiles: set[str]) -> None:
    metrics = serving._metrics(load_result(count), *USED, 0, "cpu")
    assert {name for name in ("p50", "p99", "p999") if f"{name}_latency" in metrics} == percentiles
    if count == 1000:
        assert metrics["p99_latency"][0] == pytest.approx(0.0199, rel=1e-3)
        assert metrics["p999_latency"][0] == pytest.approx(0.01999, rel=1e-3)


def test_failures_affect_the_percentile_and_the_rate() -> None:
    metrics = serving._metrics(load_result(200, failing=20), *USED, 2, "cpu")
    assert metrics["failed_share"] == (pytest.approx(0.1), "1")
    assert metrics["p99_latency"][0] == 2.0
    assert metrics["achieved_rate"] == (pytest.approx(90), "1/s")
    assert metrics["cpu_per_request"] == (pytest.approx(1 / 180), "s")
    assert metrics["client_share"] == (pytest.approx(0.05), "1")
    assert "gpu_busy_share" not in metrics
    all_failed = serving._metrics(load_result(200, failing=200), *USED, 0, "gpu")
    assert (all_failed["failed_share"], all_failed["client_share"]) == ((1.0, "1"), (0.0, "1"))
    assert all_failed["gpu_busy_share"] == (pytest.approx(0.05), "1")
    assert not {"achieved_rate", "cpu_per_request"} & all_failed.keys()


def test_latencies_are_thinned_and_percentiles_are_not() -> None:
    result = load_result(5000)
    result["latency"][1:7] = [1.9] * 6
    metrics = serving._metrics(result, *USED, 0, "cpu")
    assert len(metrics["latency"][0]) <= serving.MOST_SAMPLES  # type: ignore[arg-type]
    assert metrics["p999_latency"][0] > 1.8


@pytest.mark.parametrize("device", [CPU, GPU])
def test_point_is_measured_and_its_server_is_pinned_and_kept(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LATE_S", 1.0)  # with other load on the machine, requests may be late
    serving.close_servers()
    workload = build_work("serving", device, threads=1, service="echo")
    assert passes_check(workload)
    (running,) = serving._SERVERS.values()
    if hasattr(os, "sched_setaffinity"):
        for thread in psutil.Process(running.child.pid).threads():
            assert os.sched_getaffinity(thread.id) == set(server_processes.split_cores(1)[0])
    metrics = observe(workload)
    assert (metrics["failed_share"], metrics["requests"]) == (0.0, 60.0)
    assert 0 < metrics["p50_latency"] < serving.TIMEOUT_S
    assert ("gpu_busy_share" in metrics) == (device.kind == "gpu")
    assert passes_check(build_work("serving", device, threads=1, service="echo", requests_per_s=1))
    assert list(serving._SERVERS.values()) == [running]
    serving.close_servers()
    assert not running.child.is_alive


def test_dead_server_is_restarted_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_SERVERS", 1)
    first = serving.get_server(ORDERS)
    assert serving.get_server(ORDERS) is first
    os.kill(first.child.pid, signal.SIGKILL)
    assert server_processes.wait_until(lambda: not first.child.is_alive, 10)
    second = serving.get_server(ORDERS)
    assert second is not first
    third = serving.get_server({**ORDERS, "workers": 2})
    assert not second.child.is_alive
    assert third.child.is_alive
    with pytest.raises(RuntimeError, match="the server said 400: scores are 80 bytes, not 3"):
        third.ask("POST", "/answer", b"abc")
    assert serving.get_server({**ORDERS, "workers": 2}) is third
    serving.close_servers()


def test_server_is_restarted_after_a_failed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    running = serving.get_server(ORDERS)
    response = SimpleNamespace(status=500, read=lambda: b"Internal Server Error")
    with monkeypatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "getresponse", lambda _: response)
        with pytest.raises(RuntimeError, match="the server said 500: Internal Server Error"):
            running.ask("GET", "/usage")
    assert serving.get_server(ORDERS) is not running, "an error of its device would stay"
    serving.close_servers()


def test_network_answers_through_its_server() -> None:
    serving.close_servers()
    assert passes_check(build_work("serving", threads=1, backend="onnx"))
    serving.close_servers()
