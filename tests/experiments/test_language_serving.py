"""Language models are served by the runtime's own server, users wait for answers, and each fault is told as its own."""

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
    """Files are written once, and kept in a folder of the tests."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(gguf_files.FOLDER, str(folder))
        patch.setattr(weights, "POOL_BLOCKS", 8191)
        yield folder


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files and the home folder are the test's; nothing of ours is left in them, and nothing runs on."""
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
def test_the_last_words_of_a_server_are_the_last_line_of_its_log(log: str, words: str) -> None:
    child: Any = None
    assert runtime_server.Server(child, io.BytesIO(log.encode())).last_log_line() == words


def test_users_are_answered_rightly_by_the_librarys_server(models: Path, scratch: None) -> None:
    made = build_work(NAME, users=3)
    assert passes_check(made)
    seen = observe(made)
    assert seen["requests"] >= 3
    assert seen["failed_share"] == 0
    assert min(seen["tokens_per_s"], seen["user_tokens_per_s"], seen["p50_first_token_latency"]) > 0
    assert 0 < seen["p50_token_latency"] <= seen["p50_answer_latency"]


def asked_for(backend: str, model: str) -> dict[str, Any]:
    """Orders of a server for one user on the CPU."""
    return {
        "backend": backend, "model": model, "slots": 1, "context": 256, "threads": 1, "gpu": None, "cpus": [],
    }  # fmt: skip


def as_program(folder: Path, monkeypatch: pytest.MonkeyPatch, *devices: str) -> Path:
    """A `llama-server` on PATH that is xllamacpp's, lists these devices, and notes its arguments in a file."""
    folder.mkdir()
    place = folder / "llama-server"
    place.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, time\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path.cwd())!r})\n"
        "if sys.argv[1:] == ['--list-devices']:\n"
        f"    print('Available devices:', *{devices!r}, sep='\\n  ')\n"
        "    sys.exit()\n"
        f"Path({str(folder / 'arguments.json')!r}).write_text(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
        "given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))\n"
        "from experiments.serving.language_server import start_library_server\n"
        "slots = int(given['-np'])\n"
        "held = start_library_server({'model': given['-m'], 'slots': slots, 'context': int(given['-c']) // slots,\n"
        "                         'threads': int(given.get('-t', 1))})\n"
        "time.sleep(600)\n"
    )
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "arguments.json"


@pytest.mark.parametrize(("device", "devices"), [(CPU, ()), (GPU, ("CUDA0: A GPU (81000 MiB, 80000 MiB free)",))])
def test_a_program_on_path_serves_as_well(
    device: Any, devices: Any, models: Path, scratch: None, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = as_program(tmp_path_factory.mktemp("bin") / "bin", monkeypatch, *devices)
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "7")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    made = build_work(NAME, device, backend="llama-server")
    assert passes_check(made)
    assert observe(made)["requests"] >= 2
    arguments, environment = json.loads(told.read_text())
    layers = arguments[arguments.index("-ngl") + 1]
    assert (layers, "-mg" in arguments) == (("0", False) if device is CPU else ("999", True))
    assert (("--device", "none") in pairwise(arguments)) == (device is CPU)
    assert "LLAMA_ARG_CTX_SIZE" not in environment
    assert environment["LLAMA_ARG_CACHE_RAM"] == "0"


def test_a_server_that_is_absent_or_has_no_gpu_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = get_experiment(NAME).lacks
    with pytest.raises(Unsupported, match="xllamacpp does not run on"):
        build_work(NAME, GPU)
    as_program(tmp_path / "bin", monkeypatch, "BLAS: OpenBLAS (0 MiB, 0 MiB free)", "(none)")
    with pytest.raises(Unsupported, match="supports only CPUs: build llama"):
        build_work(NAME, GPU, backend="llama-server")
    assert not lacks([], point_params(NAME, backend="llama-server"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="llama-server is not on PATH: install"):
        build_work(NAME, backend="llama-server")
    assert "not on PATH" in lacks([], point_params(NAME, backend="llama-server"))
    assert not lacks([], point_params(NAME))


def test_a_server_that_does_not_start_is_told_with_the_librarys_reason(scratch: None) -> None:
    orders = asked_for("xllamacpp", "/nowhere.gguf")
    with (
        pytest.raises(HarnessError, match=r"does not start with nowhere.gguf: \w+"),
        runtime_server.running_server(orders),
    ):
        pass


def test_a_server_that_ends_under_load_is_told(models: Path, scratch: None) -> None:
    path = gguf_files.model_file("llama-tiny", SHAPES["llama-tiny"], "Q8_0")
    orders = asked_for("xllamacpp", str(path))
    load = {"users": 1, "prompt_tokens": 8, "new_tokens": 200, "seconds": 60, "timeout_s": 60, "cpus": []}
    with runtime_server.running_server(orders) as running:
        threading.Timer(1.5, running.child._process.kill).start()
        with pytest.raises(HarnessError, match="the server ended"):
            language_serving.run_load(running, load)


def test_the_check_notices_wrong_probabilities(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gguf_files.model_file("llama-tiny-checked", token_check.checked_shape("llama-tiny"), "Q8_0")
    orders = {**asked_for("xllamacpp", str(path)), "slots": 2}
    with runtime_server.running_server(orders) as running:
        assert token_check.logit_error("llama-tiny", "Q8_0", running.next_tokens) < token_check.TOLERANCE
        swapped = token_check.logit_error("llama-tiny", "Q8_0", lambda prompts: running.next_tokens(prompts)[::-1])
    assert swapped > token_check.TOLERANCE


# ------------------------------------------------------------------ users


def event(text: str, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text}], **more}).encode() + b"\n"


def whole(count: int = 3, prompt: int = 8) -> list[bytes]:
    """The lines of a right answer: a token by itself, and two that came together."""
    return [event("a"), b"\n", *(event("a") for _ in range(count - 3)), event("aa"),
            event("", timings={"prompt_n": prompt}), b"\n", b"data: [DONE]\n", b"\n"]  # fmt: skip


def answer(lines: list[bytes], count: int = 3) -> simulated_users.Answer:
    return simulated_users.Answer(0.0, count, lines=[(float(at), line) for at, line in enumerate(lines)], ended=99.0)


def test_a_whole_answer_is_right() -> None:
    simulated_users.require_right_answer(answer(whole()), 8)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "broke off"),
        (whole()[:-2], "broke off"),
        ([b"data: [DONE]\n"], "broke off"),
        ([event("a"), *whole()], "4 tokens instead of 3"),
        (whole()[1:], "2 tokens instead of 3"),
        ([event("b"), *whole()[1:]], "wrote 'b' instead of only 'a'"),
        (whole(prompt=2), "computed 2 of 8 prompt tokens"),
        ([*whole()[:-4], event(""), *whole()[-2:]], "its version is too old"),
        ([b'data: {"error": {"message": "no slot"}}\n', *whole()], "streamed .*no slot"),
        ([b"data: [1]\n", *whole()], "streamed"),
        ([b"data: \xff\n", *whole()], "streamed"),
    ],
)  # fmt: skip
def test_an_answer_that_was_not_asked_for_is_told(lines: list[bytes], words: str) -> None:
    with pytest.raises(simulated_users.AnswerError, match=words):
        simulated_users.require_right_answer(answer(lines), 8)


LINES = st.one_of(
    st.binary(max_size=30), st.sampled_from(whole()), st.binary(max_size=20).map(lambda one: b"data:" + one)
)


@given(st.lists(LINES, max_size=8))
def test_no_stream_breaks_the_load(lines: list[bytes]) -> None:
    first = simulated_users.Answer(0.0, 1, first=True, counted=False, ended=0.5)
    seen = simulated_users.summarise_answers([first, answer(lines)], 8, over=100.0)
    assert len(seen.whole) + sum(seen.faults.values()) == 1


@given(st.integers(0, len(b"".join(whole())) - 3))
def test_an_answer_that_is_cut_anywhere_is_no_answer(cut: int) -> None:
    with pytest.raises(simulated_users.AnswerError):
        simulated_users.require_right_answer(answer(b"".join(whole())[:cut].splitlines(keepends=True)), 8)


def test_times_are_those_of_counted_answers_and_the_rate_that_of_all_tokens() -> None:
    """A first answer until 2, one that counts, one that is not whole at the end, and one that failed."""
    first = simulated_users.Answer(0.0, 3, first=True, counted=False, lines=[(1.0, event("aaa"))], ended=2.0)
    counted = simulated_users.Answer(2.0, 3, lines=[(4.0, event("a")), (5.0, event("a")), (7.0, event("a"))], ended=8.0)
    counted.lines += [(7.5, event("", timings={"prompt_n": 8})), (7.5, b"data: [DONE]\n")]
    going = simulated_users.Answer(8.0, 3, counted=False, lines=[(9.0, event("a")), (11.0, event("a"))])
    failed = simulated_users.Answer(3.0, 3, lines=[(4.0, event("a"))], ended=5.0, fault="the server said 500")
    seen = simulated_users.summarise_answers([first, counted, going, failed], 8, over=10.0)
    assert (seen.first, seen.between, seen.whole, seen.user_rates) == ([2.0], [1.0, 2.0], [6.0], [2 / 3])
    assert (seen.tokens, seen.span_s) == (4, 8.0)
    assert seen.faults == {"the server said 500": 1}


class Stand(StandInServer):
    """Streams letters, `pause_s` before each, and notes requests."""

    def __init__(self, says: Callable[[RequestHandler], object] | None = None, pause_s: float = 0.002) -> None:
        self.says, self.pause_s, self.one = says, pause_s, threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.open, self.most = 0, 0
        super().__init__()

    def count(self, more: int) -> None:
        with self.one:
            self.open += more
            self.most = max(self.most, self.open)

    def answer(self, asked: RequestHandler, body: bytes) -> None:
        asked.close_connection = True
        self.asked.append(wanted := json.loads(body))
        if self.says:
            self.says(asked)
            return
        self.count(1)
        asked.send_response(200)
        asked.send_header("Transfer-Encoding", "chunked")
        asked.end_headers()
        for _ in range(wanted["max_tokens"]):
            time.sleep(self.pause_s)
            chunk(asked, event("a") + b"\n")
        chunk(asked, event("", timings={"prompt_n": len(wanted["prompt"])}) + b"\n" + b"data: [DONE]\n\n")
        self.count(-1)
        chunk(asked, b"")


def chunk(asked: RequestHandler, data: bytes) -> None:
    asked.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def cut(asked: RequestHandler) -> None:
    """One token of an answer, and no more."""
    asked.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk(asked, event("a") + b"\n")


def offered(stand: Stand, count: int) -> simulated_users.LoadResult:
    asked = {"port": stand.server_address[1], "users": count, "prompt_tokens": 8, "new_tokens": 8, "seconds": 0.2,
             "timeout_s": 5.0, "seed": 3, "letter": 97}  # fmt: skip
    try:
        return simulated_users.Crowd(asked).run()
    finally:
        stand.shutdown()
        stand.server_close()


def test_users_ask_again_when_they_have_their_answer_and_never_twice_the_same() -> None:
    stand = Stand()
    seen = offered(stand, 4)
    assert stand.most == 4
    assert len(seen.whole) >= 4 and not seen.faults
    assert min(seen.first) >= stand.pause_s and min(seen.whole) >= 8 * stand.pause_s
    assert seen.tokens > 0 and seen.span_s > 0 and seen.cpu_s > 0
    prompts = [tuple(one["prompt"]) for one in stand.asked]
    assert len(set(prompts)) == len(prompts) > 8
    # A user may ask again before another has asked once.
    assert sorted(one["max_tokens"] for one in stand.asked)[:4] == [2, 4, 6, 8]
    assert sum(one["max_tokens"] < 8 for one in stand.asked) == 3
    assert all(one["stream"] and one["ignore_eos"] and not one["cache_prompt"] for one in stand.asked)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (lambda asked: asked.send_error(500, "broken"), "the server said 500"),
        (lambda asked: asked.send_error(400), "the server said 400"),
        (cut, "broke off"),
        (lambda asked: None, "broke off"),
        (lambda asked: asked.wfile.write(b"no HTTP\r\n\r\n"), "broke off"),
    ],
    ids=["500", "400", "cut", "nothing", "no HTTP"],
)
def test_failed_answers_are_counted_by_their_fault(says: Any, words: str) -> None:
    seen = offered(Stand(says), 2)
    assert not seen.whole
    assert len(seen.faults) == 1 and words in next(iter(seen.faults))
    assert sum(seen.faults.values()) >= 2


def test_a_load_without_a_right_answer_fails_with_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"stood_s": 0.0, "whole": [], "faults": {"the server said 500: broken": 2}}
    child = SimpleNamespace(answer=lambda _: seen, stop=lambda: None)
    monkeypatch.setattr(language_serving, "start_process", lambda *_: child)
    with pytest.raises(RuntimeError, match="no answer was right: the server said 500: broken"):
        language_serving.run_load(SimpleNamespace(port=1, letter=97, require_alive=lambda: None), {"seconds": 1})


def test_a_port_where_nobody_listens_is_the_harnesss_trouble() -> None:
    stand = Stand()
    stand.shutdown()
    stand.server_close()
    with pytest.raises(HarnessError, match="ECONNREFUSED"):
        offered(stand, 2)


def test_percentiles_need_enough_times() -> None:
    seen = {"user_rates": [2.0], "tokens": 10, "span_s": 2.0, "faults": {"x": 1}, "whole": [1.0] * 3, "cpu_s": 0.2,
            "load_s": 4.0, "late": [1e-4], "first": [0.5] * 3, "between": [0.1] * 100}  # fmt: skip
    found = {name: value for name, (value, _) in language_serving.load_metrics(seen, shared=2).items()}
    assert found["p99_token_latency"] == 0.1 and "p99_first_token_latency" not in found
    assert (found["failed_share"], found["requests"], found["tokens_per_s"]) == (0.25, 4, 5.0)
    assert found["client_share"] == pytest.approx(0.025)
    assert language_serving.load_metrics(seen, shared=0)["client_share"] == (0.0, "1")
