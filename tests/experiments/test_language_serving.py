"""Serving a language model: a runtime's server answers simulated users, and each fault is reported with its reason."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import children
from experiments.language import gguf_files, runtime_server, token_check, weights
from experiments.language.shapes import SHAPES
from experiments.registry import get_experiment
from experiments.serving import simulated_users
from experiments.suite import language_serving
from experiments.workload import HarnessError, Unsupported
from tests.experiments.point_runs import CPU, GPU, build_work, observe, passes_check, point_params
from tests.experiments.stand_in_server import RequestHandler, StandInServer

NAME = "language-serving"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep model files in one folder for all tests in this module."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(gguf_files.FOLDER, str(folder))
        patch.setattr(weights, "POOL_BLOCKS", 8191)
        yield folder


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the test's temporary and home folders; check that no file and no process is left over."""
    (home := tmp_path / "home").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(home))
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not children._CHILDREN
    assert [*home.iterdir(), *tmp_path.glob("study-*")] == []


@pytest.mark.parametrize(
    ("log", "words"), [("", ""), ("\n \n", ""), ("no memory", ": no memory"), ("one\ntwo \n\n", ": two")]
)
def test_last_log_line_skips_blank_lines(log: str, words: str) -> None:
    child: Any = None
    assert runtime_server.Server(child, io.BytesIO(log.encode())).last_log_line() == words


def test_library_server_answers_users_rightly(models: Path, scratch: None) -> None:
    work = build_work(NAME, users=3)
    assert passes_check(work)
    values = observe(work)
    assert values["requests"] >= 3
    assert values["failed_share"] == 0
    assert min(values["tokens_per_s"], values["user_tokens_per_s"], values["p50_first_token_latency"]) > 0
    assert 0 < values["p50_token_latency"] <= values["p50_answer_latency"]


def server_orders(backend: str, model: str) -> dict[str, Any]:
    """Return server orders for one user on the CPU."""
    return {
        "backend": backend, "model": model, "slots": 1, "context": 256, "threads": 1, "gpu": None, "cpus": [],
    }  # fmt: skip


def install_llama_server(folder: Path, monkeypatch: pytest.MonkeyPatch, *devices: str) -> Path:
    """Put a `llama-server` on PATH that lists `devices` and runs xllamacpp's server; return its file of arguments."""
    folder.mkdir()
    program = folder / "llama-server"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, time\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path.cwd())!r})\n"
        "if sys.argv[1:] == ['--list-devices']:\n"
        f"    print('Available devices:', *{devices!r}, sep='\\n  ')\n"
        "    sys.exit()\n"
        f"Path({str(folder / 'arguments.json')!r}).write_text(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
        "options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))\n"
        "from experiments.serving.language_server import start_library_server\n"
        "slots = int(options['-np'])\n"
        "server = start_library_server({'model': options['-m'], 'slots': slots,\n"
        "    'context': int(options['-c']) // slots, 'threads': int(options.get('-t', 1))})\n"
        "time.sleep(600)\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "arguments.json"


@pytest.mark.parametrize(("device", "devices"), [(CPU, ()), (GPU, ("CUDA0: A GPU (81000 MiB, 80000 MiB free)",))])
def test_llama_server_on_path_serves(
    device: Any, devices: Any, models: Path, scratch: None, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments_file = install_llama_server(tmp_path_factory.mktemp("bin") / "bin", monkeypatch, *devices)
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "7")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    work = build_work(NAME, device, backend="llama-server")
    assert passes_check(work)
    assert observe(work)["requests"] >= 2
    arguments, environment = json.loads(arguments_file.read_text())
    layers = arguments[arguments.index("-ngl") + 1]
    assert (layers, "-mg" in arguments) == (("0", False) if device is CPU else ("999", True))
    assert (("--device", "none") in pairwise(arguments)) == (device is CPU)
    assert "LLAMA_ARG_CTX_SIZE" not in environment
    assert environment["LLAMA_ARG_CACHE_RAM"] == "0"


def test_missing_server_or_server_without_gpu_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = get_experiment(NAME).lacks
    with pytest.raises(Unsupported, match="xllamacpp does not run on"):
        build_work(NAME, GPU)
    install_llama_server(tmp_path / "bin", monkeypatch, "BLAS: OpenBLAS (0 MiB, 0 MiB free)", "(none)")
    with pytest.raises(Unsupported, match="supports only CPUs: build llama"):
        build_work(NAME, GPU, backend="llama-server")
    assert not lacks([], point_params(NAME, backend="llama-server"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="llama-server is not on PATH: install"):
        build_work(NAME, backend="llama-server")
    assert "not on PATH" in lacks([], point_params(NAME, backend="llama-server"))
    assert not lacks([], point_params(NAME))


def test_server_that_fails_to_start_is_reported_with_its_reason(scratch: None) -> None:
    orders = server_orders("xllamacpp", "/nowhere.gguf")
    with (
        pytest.raises(HarnessError, match=r"does not start with nowhere.gguf: \w+"),
        runtime_server.running_server(orders),
    ):
        pass


def test_server_that_dies_under_load_is_reported(models: Path, scratch: None) -> None:
    path = gguf_files.model_file("llama-tiny", SHAPES["llama-tiny"], "Q8_0")
    orders = server_orders("xllamacpp", str(path))
    load = {"users": 1, "prompt_tokens": 8, "new_tokens": 200, "seconds": 60, "timeout_s": 60, "cpus": []}
    with runtime_server.running_server(orders) as running:
        threading.Timer(1.5, running.child._process.kill).start()
        with pytest.raises(HarnessError, match="the server ended"):
            language_serving.run_load(running, load)


def test_check_detects_wrong_probabilities(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gguf_files.model_file("llama-tiny-checked", token_check.checked_shape("llama-tiny"), "Q8_0")
    orders = {**server_orders("xllamacpp", str(path)), "slots": 2}
    with runtime_server.running_server(orders) as running:
        assert token_check.logit_error("llama-tiny", "Q8_0", running.next_tokens) < token_check.TOLERANCE
        swapped = token_check.logit_error("llama-tiny", "Q8_0", lambda prompts: running.next_tokens(prompts)[::-1])
    assert swapped > token_check.TOLERANCE


# The tests below check the simulated users.


def stream_event(text: str, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text}], **more}).encode() + b"\n"


def answer_lines(count: int = 3, prompt: int = 8) -> list[bytes]:
    """Return the lines of a right answer with `count` tokens: two in the last event with text, one in each other."""
    return [stream_event("a"), b"\n", *(stream_event("a") for _ in range(count - 3)), stream_event("aa"),
            stream_event("", timings={"prompt_n": prompt}), b"\n", b"data: [DONE]\n", b"\n"]  # fmt: skip


def make_answer(lines: list[bytes], count: int = 3) -> simulated_users.Answer:
    return simulated_users.Answer(
        0.0, count, lines=[(float(time_s), line) for time_s, line in enumerate(lines)], ended=99.0
    )


def test_complete_answer_is_right() -> None:
    simulated_users.require_right_answer(make_answer(answer_lines()), 8)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "broke off"),
        (answer_lines()[:-2], "broke off"),
        ([b"data: [DONE]\n"], "broke off"),
        ([stream_event("a"), *answer_lines()], "4 tokens instead of 3"),
        (answer_lines()[1:], "2 tokens instead of 3"),
        ([stream_event("b"), *answer_lines()[1:]], "wrote 'b' instead of only 'a'"),
        (answer_lines(prompt=2), "computed 2 of 8 prompt tokens"),
        ([*answer_lines()[:-4], stream_event(""), *answer_lines()[-2:]], "its version is too old"),
        ([b'data: {"error": {"message": "no slot"}}\n', *answer_lines()], "streamed .*no slot"),
        ([b"data: [1]\n", *answer_lines()], "streamed"),
        ([b"data: \xff\n", *answer_lines()], "streamed"),
    ],
)  # fmt: skip
def test_wrong_answers_give_a_reason(lines: list[bytes], words: str) -> None:
    with pytest.raises(simulated_users.AnswerError, match=words):
        simulated_users.require_right_answer(make_answer(lines), 8)


LINES = st.one_of(
    st.binary(max_size=30), st.sampled_from(answer_lines()), st.binary(max_size=20).map(lambda data: b"data:" + data)
)


@given(st.lists(LINES, max_size=8))
def test_any_stream_counts_as_one_answer_or_fault(lines: list[bytes]) -> None:
    first = simulated_users.Answer(0.0, 1, first=True, counted=False, ended=0.5)
    result = simulated_users.summarise_answers([first, make_answer(lines)], 8, over=100.0)
    assert len(result.whole) + sum(result.faults.values()) == 1


@given(st.integers(0, len(b"".join(answer_lines())) - 3))
def test_truncated_answer_is_an_error(cut: int) -> None:
    with pytest.raises(simulated_users.AnswerError):
        simulated_users.require_right_answer(make_answer(b"".join(answer_lines())[:cut].splitlines(keepends=True)), 8)


def test_times_come_from_counted_answers_and_the_rate_from_all_tokens() -> None:
    """Of a user's four answers, the first and an unfinished answer are not counted, one is counted, and one fails."""
    first = simulated_users.Answer(0.0, 3, first=True, counted=False, lines=[(1.0, stream_event("aaa"))], ended=2.0)
    counted = simulated_users.Answer(
        2.0, 3, lines=[(4.0, stream_event("a")), (5.0, stream_event("a")), (7.0, stream_event("a"))], ended=8.0
    )
    counted.lines += [(7.5, stream_event("", timings={"prompt_n": 8})), (7.5, b"data: [DONE]\n")]
    unfinished = simulated_users.Answer(
        8.0, 3, counted=False, lines=[(9.0, stream_event("a")), (11.0, stream_event("a"))]
    )
    failed = simulated_users.Answer(3.0, 3, lines=[(4.0, stream_event("a"))], ended=5.0, fault="the server said 500")
    result = simulated_users.summarise_answers([first, counted, unfinished, failed], 8, over=10.0)
    assert (result.first, result.between, result.whole, result.user_rates) == ([2.0], [1.0, 2.0], [6.0], [2 / 3])
    assert (result.tokens, result.span_s) == (4, 8.0)
    assert result.faults == {"the server said 500": 1}


class StreamingServer(StandInServer):
    """Server that records requests and streams letters, with a pause of `pause_s` before each letter."""

    def __init__(self, fault: Callable[[RequestHandler], object] | None = None, pause_s: float = 0.002) -> None:
        self.fault, self.pause_s, self.lock = fault, pause_s, threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.open, self.most = 0, 0
        super().__init__()

    def count_open(self, change: int) -> None:
        with self.lock:
            self.open += change
            self.most = max(self.most, self.open)

    def answer(self, handler: RequestHandler, body: bytes) -> None:
        handler.close_connection = True
        self.requests.append(request := json.loads(body))
        if self.fault:
            self.fault(handler)
            return
        self.count_open(1)
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for _ in range(request["max_tokens"]):
            time.sleep(self.pause_s)
            send_chunk(handler, stream_event("a") + b"\n")
        send_chunk(
            handler, stream_event("", timings={"prompt_n": len(request["prompt"])}) + b"\n" + b"data: [DONE]\n\n"
        )
        self.count_open(-1)
        send_chunk(handler, b"")


def send_chunk(handler: RequestHandler, data: bytes) -> None:
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def send_one_token(handler: RequestHandler) -> None:
    """Send the first token in an answer, then stop."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    send_chunk(handler, stream_event("a") + b"\n")


def run_users(server: StreamingServer, count: int) -> simulated_users.LoadResult:
    load = {"port": server.server_address[1], "users": count, "prompt_tokens": 8, "new_tokens": 8, "seconds": 0.2,
             "timeout_s": 5.0, "seed": 3, "letter": 97}  # fmt: skip
    try:
        return simulated_users.Crowd(load).run()
    finally:
        server.shutdown()
        server.server_close()


def test_users_send_a_new_prompt_after_each_answer() -> None:
    server = StreamingServer()
    result = run_users(server, 4)
    assert server.most == 4
    assert len(result.whole) >= 4 and not result.faults
    assert min(result.first) >= server.pause_s and min(result.whole) >= 8 * server.pause_s
    assert result.tokens > 0 and result.span_s > 0 and result.cpu_s > 0
    prompts = [tuple(request["prompt"]) for request in server.requests]
    assert len(set(prompts)) == len(prompts) > 8
    # Sort the requests, because a user may send a second one before another user sends the first.
    assert sorted(request["max_tokens"] for request in server.requests)[:4] == [2, 4, 6, 8]
    assert sum(request["max_tokens"] < 8 for request in server.requests) == 3
    assert all(
        request["stream"] and request["ignore_eos"] and not request["cache_prompt"] for request in server.requests
    )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda handler: handler.send_error(500, "broken"), "the server said 500"),
        (lambda handler: handler.send_error(400), "the server said 400"),
        (send_one_token, "broke off"),
        (lambda handler: None, "broke off"),
        (lambda handler: handler.wfile.write(b"no HTTP\r\n\r\n"), "broke off"),
    ],
    ids=["500", "400", "cut", "nothing", "no HTTP"],
)
def test_failed_answers_are_counted_by_fault(fault: Any, words: str) -> None:
    result = run_users(StreamingServer(fault), 2)
    assert not result.whole
    assert len(result.faults) == 1 and words in next(iter(result.faults))
    assert sum(result.faults.values()) >= 2


def test_load_without_right_answers_fails_with_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"stood_s": 0.0, "whole": [], "faults": {"the server said 500: broken": 2}}
    child = SimpleNamespace(answer=lambda _: result, stop=lambda: None)
    monkeypatch.setattr(language_serving, "start_process", lambda *_: child)
    with pytest.raises(RuntimeError, match="no answer was right: the server said 500: broken"):
        language_serving.run_load(SimpleNamespace(port=1, letter=97, require_alive=lambda: None), {"seconds": 1})


def test_refused_connection_is_a_harness_error() -> None:
    server = StreamingServer()
    server.shutdown()
    server.server_close()
    with pytest.raises(HarnessError, match="ECONNREFUSED"):
        run_users(server, 2)


def test_percentiles_need_enough_samples() -> None:
    result = {"user_rates": [2.0], "tokens": 10, "span_s": 2.0, "faults": {"x": 1}, "whole": [1.0] * 3, "cpu_s": 0.2,
            "load_s": 4.0, "late": [1e-4], "first": [0.5] * 3, "between": [0.1] * 100}  # fmt: skip
    metrics = {name: value for name, (value, _) in language_serving.load_metrics(result, shared=2).items()}
    assert metrics["p99_token_latency"] == 0.1 and "p99_first_token_latency" not in metrics
    assert (metrics["failed_share"], metrics["requests"], metrics["tokens_per_s"]) == (0.25, 4, 5.0)
    assert metrics["client_share"] == pytest.approx(0.025)
    assert language_serving.load_metrics(result, shared=0)["client_share"] == (0.0, "1")
