"""The second measurements themselves. Each returns values of the claim's own quantity, one for each repetition."""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_SIZE, _REPETITIONS = 2048, 7


def _clock() -> float:
    """Clock of one core in Hz. Raises RuntimeError without a compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("needs a C compiler")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "core"
        source = Path(__file__).with_name("core.c")
        subprocess.run([compiler, "-O3", "-march=native", str(source), "-o", str(program)], check=True)
        return float(subprocess.check_output([str(program)]))


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
    return [_product_rate() / _clock() for _ in range(_REPETITIONS)]


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
