"""Replication: measure surprising results again by other means, on the same machine.

The means share no code with `experiments`: they are other libraries, another compiler, another clock, handwritten
loops. `python -m studies.replication --verdicts results/verdicts.json --out data/second.json` writes the first and the
second result, and tells if both lie on the same side of the claim's threshold. It takes minutes on two cores, and needs
an idle machine.
"""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from contract.arguments import Parser, parse_path
from contract.errors import StudyError, run_command
from contract.files import read_json, write_json
from report.formatting import verdict_case_name

_SIZE, _REPETITIONS = 2048, 7


def _clock_hz() -> float:
    """Measure one core's clock in Hz. Raises StudyError without a compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise StudyError("replication: needs a C compiler: install gcc or clang")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(__file__).with_name("clock.c"), Path(folder) / "clock"
        subprocess.run([compiler, "-O3", "-march=native", str(source), "-o", str(program)], check=True)
        return float(subprocess.check_output([str(program)]))


def _product_rate() -> float:
    """Return the multiply-adds per second that SciPy's BLAS reaches on one core, in the fastest of ten products.

    Raises StudyError if the last product is wrong.
    """
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
    if not np.allclose(c[0], a[0].astype(float) @ b.astype(float), rtol=1e-3, atol=1e-2):
        raise StudyError("replication: SciPy's product is wrong")
    return _SIZE**3 / best


def mac_per_cycle() -> list[float]:
    """Measure the multiply-adds per cycle on one core; return a value for each repetition.

    The rate of multiply-adds comes from SciPy's BLAS, and the clock from a program in C.
    """
    return [_product_rate() / _clock_hz() for _ in range(_REPETITIONS)]


def accuracy_per_doubling() -> list[float]:
    """Train scikit-learn's network on its digits; return for each seed the slope of test accuracy over log2(batch).

    Each training takes 30 epochs. For each batch size, the learning rate is used that has the best mean over all seeds.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16, digits, test_size=0.3, random_state=0)
    batches, rates, seeds = [8, 32, 128, 512, len(train_x)], (0.01, 0.03, 0.1, 0.3, 1.0), range(10)

    def accuracy(batch: int, rate: float, seed: int) -> float:
        network = MLPClassifier(
            (64,), solver="sgd", momentum=0.0, alpha=0.0, batch_size=batch, learning_rate_init=rate,
            max_iter=30, n_iter_no_change=1000, random_state=seed,
        )  # fmt: skip
        try:
            network.fit(train_x, train_y)
        except ValueError:
            # The training diverged at this learning rate. Return the accuracy of guessing among ten classes.
            return 0.1
        return float(network.score(test_x, test_y))

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tried = [[[accuracy(batch, rate, seed) for seed in seeds] for rate in rates] for batch in batches]
    best = [max(by_rate, key=statistics.fmean) for by_rate in tried]
    return [float(slope) for slope in np.polyfit(np.log2(batches), best, 1)[0]]


def engine_gain() -> list[float]:
    """Compare the latency of three small networks in PyTorch and in ONNX Runtime.

    Returns the ratio of PyTorch's latency to ONNX Runtime's latency for each repetition, as the median over the
    networks.
    """
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
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        for number, (network, shape) in enumerate(networks):
            network.eval()
            x, file = torch.randn(shape), str(Path(folder) / f"{number}.onnx")
            with torch.inference_mode(False):
                torch.onnx.export(network, (x.clone(),), file, dynamo=True, verbose=False)
            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            by_onnx = partial(session.run, None, {session.get_inputs()[0].name: x.numpy()})
            if not np.allclose(by_onnx()[0], network(x).numpy(), rtol=1e-3, atol=1e-4):
                raise StudyError("replication: PyTorch and ONNX Runtime disagree")
            pairs.append((partial(network, x), by_onnx))
        return [
            statistics.median(_latency(by_torch) / _latency(by_onnx) for by_torch, by_onnx in pairs)
            for _ in range(_REPETITIONS)
        ]


def _latency(call: Callable[[], Any]) -> float:
    """Return the median seconds over 300 calls, after 100 warm-up calls."""
    return statistics.median(timeit.repeat(call, number=1, repeat=400)[100:])


@dataclass(frozen=True)
class Replication:
    """Measurement to replicate part of a claim.

    measure: function to measure again, which returns values. means: text that describes this measurement. labels:
    labels of the case to replicate; if they are empty, the case is used whose estimate equals that of the claim's part.
    """

    claim: str
    part: str
    measure: Callable[[], list[float]]
    means: str
    labels: Mapping[str, str] = field(default_factory=dict)


REPLICATIONS = (
    Replication(
        "N03",
        "multiply-adds per cycle and core",
        mac_per_cycle,
        "SciPy's BLAS on one thread, over a clock from a chain of additions in C",
    ),
    Replication(
        "G13",
        "accuracy rises with the batch",
        accuracy_per_doubling,
        "scikit-learn's network and optimiser on its digits, ten seeds",
        {"data": "digits", "model": "mlp"},
    ),
    Replication("G30", "", engine_gain, "three networks written for this, timed call by call"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all replications; return 1 if a result disagrees, else 0.

    Raises StudyError if the verdicts lack a part or case.
    """
    top = Parser(prog="python -m studies.replication", description=__doc__)
    top.add_argument("--verdicts", type=parse_path, default=Path("results/verdicts.json"), metavar="FILE")
    top.add_argument("--out", type=parse_path, metavar="FILE")
    top.add_argument("--only", nargs="+", action="extend", metavar="CLAIM")
    options = top.parse_args(argv)
    document = read_json(options.verdicts)
    verdicts = {str(verdict["id"]): verdict for verdict in document["verdicts"]}
    rows = []
    for entry in REPLICATIONS:
        if options.only and entry.claim not in options.only:
            continue
        part = next((part for part in verdicts[entry.claim]["parts"] if part["name"] == entry.part), None)
        if part is None:
            raise StudyError(f"{options.verdicts}: claim {entry.claim} has no part {entry.part!r}")
        rows.append(
            comparison_row(
                entry,
                part,
                _find_case(entry, part, verdicts[entry.claim]["cases"]),
                entry.measure(),
            )
        )
        first, second, agrees = rows[-1]["first"], rows[-1]["second"], "agrees" if rows[-1]["agrees"] else "DISAGREES"
        print(
            f"{entry.claim} {agrees}: {first['estimate']:.4g} [{first['low']:.4g}, {first['high']:.4g}] first, "
            f"{second['median']:.4g} [{second['low']:.4g}, {second['high']:.4g}] second, "
            f"threshold {part['threshold']:.4g} {part['unit']}: {entry.means}",
            flush=True,
        )
    if options.out:
        node = {str(row.pop("node")) for row in rows}
        if len(node) != 1:
            raise StudyError(f"{options.verdicts}: the results are of {', '.join(sorted(node))}: measure one machine")
        write_json(options.out, {"origin": "measured", "commit": document["commit"], "node": node.pop(), "rows": rows})
    return 0 if all(entry["agrees"] for entry in rows) else 1


def _find_case(entry: Replication, part: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Find the case to replicate. Raises StudyError unless exactly one case matches."""
    matching = [case for case in cases if case["part"] == entry.part and case["estimate"] is not None]
    if entry.labels:
        matching = [
            case for case in matching if entry.labels.items() <= {k: str(v) for k, v in case["labels"].items()}.items()
        ]
    else:
        matching = [case for case in matching if case["estimate"] == part["estimate"]]
    if len(matching) != 1:
        raise StudyError(f"{entry.claim}, {entry.part!r}: {len(matching)} cases match, exactly one is needed")
    return matching[0]


def comparison_row(
    entry: Replication, part: Mapping[str, Any], case: Mapping[str, Any], values: Sequence[float]
) -> dict[str, Any]:
    """Return a table row with the study's result (`first`) and the replication's result (`second`).

    `agrees` is true if the first estimate and the second median are on the same side of the threshold. The second
    result has a 95% interval from Student's t, for the mean value, or for the mean logarithm if all values are
    positive.
    """
    log = min(values) > 0
    ends = stats.ttest_1samp(np.log(values) if log else values, 0.0).confidence_interval(0.95)
    low, high = map(float, np.exp(ends) if log else ends)
    middle, first, threshold = statistics.median(values), case["estimate"], part["threshold"]
    return {
        "node": case["node"],
        "claim": entry.claim,
        "part": entry.part,
        "labels": verdict_case_name(case),
        "means": entry.means,
        "unit": part["unit"],
        "threshold": threshold,
        "first": {name: case[name] for name in ("estimate", "low", "high")},
        "second": {"median": middle, "low": low, "high": high, "values": list(values)},
        "agrees": (first >= threshold) == (middle >= threshold),
    }


if __name__ == "__main__":
    sys.exit(run_command(main))
