"""The second measurements themselves. Each returns values of the claim's own quantity, one for each repetition."""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

_SIZE, _REPETITIONS = 2048, 7


def _core() -> tuple[float, float]:
    """Clock in Hz and peak in float32 multiply-adds a second of one core. Raises RuntimeError without a compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("needs a C compiler")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "core"
        source = Path(__file__).with_name("core.c")
        subprocess.run([compiler, "-O3", "-march=native", str(source), "-o", str(program)], check=True)
        told = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    return float(told[0]), float(told[1])


def _product_rate() -> float:
    """Multiply-adds a second of SciPy's own BLAS on one core, the best of ten products; the result is checked."""
    from scipy.linalg.blas import sgemm
    from threadpoolctl import threadpool_limits

    draw = np.random.default_rng(1)
    a, b = (np.asfortranarray(draw.standard_normal((_SIZE, _SIZE), dtype=np.float32)) for _ in range(2))
    best = math.inf
    with threadpool_limits(1):
        for _ in range(10):
            began = time.perf_counter()
            c = sgemm(1.0, a, b)
            best = min(best, time.perf_counter() - began)
    row = a[0].astype(float) @ b.astype(float)
    if not np.allclose(c[0], row, rtol=1e-3, atol=1e-2):
        raise RuntimeError("SciPy's product is wrong")
    return _SIZE**3 / best


def mac_per_cycle() -> list[float]:
    """MAC per cycle of one core: SciPy's BLAS over a clock calibrated in C."""
    return [_product_rate() / _core()[0] for _ in range(_REPETITIONS)]


def peak_share() -> list[float]:
    """Share of one core's peak that a product reaches: SciPy's BLAS over a kernel of compiled intrinsics.

    Raises RuntimeError if a product is faster than the peak: the kernel was not compiled as it is meant.
    """
    shares = [_product_rate() / _core()[1] for _ in range(_REPETITIONS)]
    if max(shares) > 1.05:
        raise RuntimeError(f"a product reaches {max(shares):.2f} of the peak: the peak is none")
    return shares


def accuracy_per_doubling() -> list[float]:
    """Slope of test accuracy over log2 of the batch, seed by seed: scikit-learn's own network and optimiser on its
    own digits, 30 epochs, the learning rate tuned for each batch on the mean of all seeds."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16, digits, test_size=0.3, random_state=0)
    batches, seeds = [8, 32, 128, 512, len(train_x)], range(10)
    best: dict[int, list[float]] = {}
    for batch in batches:
        for rate in (0.01, 0.03, 0.1, 0.3, 1.0):
            found = []
            for seed in seeds:
                network = MLPClassifier(
                    (64,), solver="sgd", momentum=0.0, alpha=0.0, batch_size=batch, learning_rate_init=rate,
                    max_iter=30, n_iter_no_change=1000, random_state=seed,
                )  # fmt: skip
                with np.errstate(all="ignore"):
                    found.append(_fitted(network, train_x, train_y, test_x, test_y))
            if batch not in best or statistics.fmean(found) > statistics.fmean(best[batch]):
                best[batch] = found
    x = np.log2(batches)
    return [float(np.polyfit(x, [best[batch][seed] for batch in batches], 1)[0]) for seed in seeds]


def _fitted(network: Any, train_x: Any, train_y: Any, test_x: Any, test_y: Any) -> float:
    """Test accuracy after training; that of a coin with ten sides where the rate let it diverge."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            network.fit(train_x, train_y)
        except ValueError:
            return 0.1
    return float(network.score(test_x, test_y))


def engine_gain() -> list[float]:
    """Latency of PyTorch over that of ONNX Runtime, the middle one of three small networks written out here."""
    import onnxruntime
    import torch
    from torch import nn

    torch.manual_seed(0)
    networks: list[tuple[nn.Module, tuple[int, ...]]] = [
        (nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), (1, 256)),
        (
            nn.Sequential(
                nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                nn.Flatten(), nn.Linear(64, 10),
            ),
            (1, 3, 32, 32),
        ),
        (nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), (1, 64, 128)),
    ]  # fmt: skip
    pairs: list[tuple[Callable[[], Any], Callable[[], Any]]] = []
    for network, shape in networks:
        network.eval()
        x = torch.randn(shape)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            torch.onnx.export(network, (x,), str(path), dynamo=True, verbose=False)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            name, given = session.get_inputs()[0].name, x.numpy()
            with torch.inference_mode():
                same = np.allclose(session.run(None, {name: given})[0], network(x).numpy(), rtol=1e-3, atol=1e-4)
                if not same:
                    raise RuntimeError("the two engines disagree")
                pairs.append((partial(network, x), partial(session.run, None, {name: given})))
    with torch.inference_mode():
        return [
            statistics.median(_latency(by_torch) / _latency(by_onnx) for by_torch, by_onnx in pairs)
            for _ in range(_REPETITIONS)
        ]


def _latency(call: Callable[[], Any]) -> float:
    """Seconds of one call: the median of 300, after 100 for warming up."""
    for _ in range(100):
        call()
    times = []
    for _ in range(300):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def search_latency() -> list[float]:
    """99th percentile of the nearest of a million vectors of 384 numbers, all read for each request, behind the
    standard library's server at 5 requests a second, by a client that sends each request at its own time, whether the
    last was answered or not."""
    draw = np.random.default_rng(2)
    table = draw.standard_normal((1_000_000, 384), dtype=np.float32)
    queries = table[:8] + draw.standard_normal((8, 384), dtype=np.float32) / 4
    with served(lambda body: int(np.argmax(table @ np.frombuffer(body, dtype=np.float32)))) as port:
        return [_open_loop(port, queries, seed) for seed in range(3)]


@contextmanager
def served(answer: Callable[[bytes], int]) -> Iterator[int]:
    """The port of the standard library's server, which answers each request's body with a number."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            told = str(answer(self.rfile.read(int(self.headers["Content-Length"])))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


def _open_loop(port: int, queries: Any, seed: int, rate: float = 5.0, requests: int = 100) -> float:
    """99th percentile of the seconds from when a request was due until its answer was read, which is the query's
    own number."""
    due = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, requests))
    took = [math.nan] * requests
    began = time.perf_counter()

    def ask(place: int) -> None:
        time.sleep(max(0.0, began + due[place] - time.perf_counter()))
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/", queries[place % len(queries)].tobytes())
        answer = connection.getresponse()
        if int(answer.read()) == place % len(queries) and answer.status == 200:
            took[place] = time.perf_counter() - began - due[place]
        connection.close()

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(requests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(map(math.isnan, took)):
        raise RuntimeError("a request was not answered, or not rightly")
    return float(np.percentile(took, 99))
