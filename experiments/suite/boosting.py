"""Gradient-boosted trees on tables: fitting and predicting, by library and rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from experiments.devices import Device
from experiments.registry import experiment
from experiments.workload import Threads, Unsupported, Workload

if TYPE_CHECKING:
    import numpy as np

Phase = Literal["fit", "predict"]
Backend = Literal["xgboost", "lightgbm", "sklearn"]

# Number of columns, as in HIGGS, the usual data set in benchmarks of boosting (Baldi, Sadowski & Whiteson 2014,
# doi:10.1038/ncomms5308).
COLUMNS = 28
# Settings for all libraries. DEPTH limits the trees in XGBoost, LEAVES those in LightGBM and scikit-learn; both limits
# are the libraries' defaults.
LEARNING_RATE, DEPTH, LEAVES = 0.1, 6, 31
FEWEST_ROWS, FEW_ROWS, FEW_TREES = 1_000, 100_000, 10
# LEARNT_ROWS: number of rows to train a model before its predictions are timed.
# HELD_ROWS: number of fresh rows to check a model.
# SINGLE_ROWS: number of these fresh rows that the check also predicts one by one.
LEARNT_ROWS, HELD_ROWS, SINGLE_ROWS = 20_000, 20_000, 20
# Tolerated difference between the probability predicted for a row alone and for the same row in a batch.
SAME = 1e-6
# ERROR, UNLEARNT: after learning from n rows, the tolerated relative error is ERROR / cbrt(n) + UNLEARNT, plus a term
# for few trees (see `tolerance`). From 1,000 to 100,000 rows, every library's error was 5.1 / cbrt(n) to 5.4 / cbrt(n);
# ERROR is about 1.5 times as large. UNLEARNT allows for the error that remains however many rows there are: with 100
# small trees, an error of 0.07 remained after a million rows.
ERROR, UNLEARNT = 8.0, 0.05
# Predictions use up to MOST_TABLES tables in turn, with at most MOST_ROWS rows together unless a single table is
# longer: a branch predictor would memorise a few rows.
MOST_TABLES, MOST_ROWS = 64, 100_000
SEED = 28
# Seconds per row and tree for a prediction on one thread.
PREDICT_S = {"xgboost": 1.1e-8, "lightgbm": 4.1e-8, "sklearn": 5.5e-8}
# Number of spins at a barrier before an OpenMP thread sleeps; they take some dozens of microseconds.
SPINS = "10000"


class Table(NamedTuple):
    """Table with true probabilities.

    inputs: float32, (rows, COLUMNS). labels: 0 or 1, (rows,). chances: true probability for label 1, float64, (rows,).
    """

    inputs: np.ndarray
    labels: np.ndarray
    chances: np.ndarray


def random_table(rows: int, random: np.random.Generator) -> Table:
    """Draw normal columns. A sum of three functions (linear, sine, absolute value) sets the probability for label 1.

    Each function takes one of the first three columns; the other columns have no influence.
    """
    import numpy as np

    inputs = random.standard_normal((rows, COLUMNS), dtype=np.float32)
    line, wave, fold = inputs[:, :3].astype(np.float64).T
    chances = 1 / (1 + np.exp(-2 * (line + np.sin(2 * wave) + np.abs(fold) - 0.8)))
    return Table(inputs, (random.random(rows) < chances).astype(np.int32), chances)


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    fewer = {**params, "trees": min(params["trees"], FEW_TREES), "rows": min(params["rows"], FEW_ROWS)}
    return fewer if fewer != params else None


def memory(rows: int, **_: Any) -> float:
    """Estimate the bytes for inputs in float32, scikit-learn's float64 copy, bins, and the library's data per row."""
    return 600.0 * max(rows, LEARNT_ROWS)


def environment(params: dict[str, Any]) -> dict[str, str]:
    """Set the number of OpenMP threads at process start, because scikit-learn has no other setting for it.

    A limit that is set later, in the running process, would also limit the other libraries. GOMP_SPINCOUNT makes
    waiting threads sleep soon. Without it, if another process takes a core, all other threads spin until the delayed
    thread arrives, and a fit takes 7 to 50 s instead of 1 s.
    """
    threads = params.get("threads")
    return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": SPINS} if threads else {}


def call_s(phase: Phase, rows: int, trees: int, backend: Backend, threads: int = 0, **_: Any) -> float:
    """Estimate the seconds for a fit, which sorts the columns first, or for a prediction; `threads` is 0 on a GPU."""
    if phase == "fit":
        one_thread_s = 0.25 + 3.5e-6 * rows + trees * (2e-3 + 1.1e-7 * rows)
        return one_thread_s * (0.1 + 0.9 / threads if threads else 0.1)
    return 5e-4 + PREDICT_S[backend] * rows * trees / (threads or 10)


def extra_s(phase: Phase, trees: int, backend: Backend, threads: int = 0, **_: Any) -> float:
    """Estimate the seconds to load the library and, for predictions, to train a model first."""
    learnt_s = call_s("fit", LEARNT_ROWS, trees, backend, threads) if phase == "predict" else 0.0
    return learnt_s + (0.1 if threads else 2.0)


@experiment(
    "boosting", smaller=smaller, memory=memory, call_s=call_s, environment=environment, extra_s=extra_s, load_s=2.0
)
def boosting(device: Device, phase: Phase, rows: int, trees: int, backend: Backend, threads: Threads) -> Workload:
    """Fit `trees` trees to `rows` rows with 28 columns, or predict the probabilities for `rows` rows.

    All libraries get the same synthetic data from `random_table`; inputs and results lie in host memory. fit: the whole
    `fit` call, which first sorts each column into 255 or 256 bins. predict: `predict_proba` with a model trained on
    LEARNT_ROWS rows. XGBoost grows trees to depth 6 by histograms, LightGBM and scikit-learn to 31 leaves.
    Error: norm of the differences between predicted and true probabilities on fresh rows, divided by the norm of the
        differences between true probabilities and 1/2. The error is 1 if nothing was learnt, and infinite if the
        prediction for a row alone differs from the prediction for the same row in a batch.
    Unsupported: a GPU that the installed build of the library cannot use.
    """
    import numpy as np

    if rows < 1 or trees < 1 or (phase == "fit" and rows < FEWEST_ROWS):
        raise Unsupported(f"a fit needs at least {FEWEST_ROWS:,} rows, a prediction at least 1, both at least 1 tree")
    make = {"xgboost": _xgboost_factory, "lightgbm": _lightgbm_factory, "sklearn": _sklearn_factory}[backend](
        device, trees, threads
    )
    learnt = random_table(rows if phase == "fit" else LEARNT_ROWS, np.random.default_rng(SEED))

    def fit() -> Any:
        return make().fit(learnt.inputs, learnt.labels)

    if phase == "fit":
        return Workload(run=fit, check=lambda: _error(fit()), tolerance=tolerance(rows, trees), clock="host")
    model, count = fit(), min(MOST_TABLES, max(1, MOST_ROWS // rows))
    batches = np.split(random_table(rows * count, np.random.default_rng()).inputs, count)
    return Workload(
        run=[partial(model.predict_proba, inputs) for inputs in batches],
        check=lambda: _error(model),
        tolerance=tolerance(LEARNT_ROWS, trees),
        clock="host",
    )


def tolerance(rows: int, trees: int) -> float:
    """Return the tolerated error after learning from `rows` rows (see `ERROR`), plus the error that few trees leave.

    Each tree leaves the fraction 1 - LEARNING_RATE of the error for the next trees.
    """
    return float(ERROR / rows ** (1 / 3) + UNLEARNT + (1 - LEARNING_RATE) ** trees)


def _error(model: Any) -> float:
    """Return the model's error as defined in `boosting`; nan if a probability is nan."""
    import numpy as np

    sample = random_table(HELD_ROWS, np.random.default_rng())
    predicted = model.predict_proba(sample.inputs)[:, 1]
    predicted_singly = [model.predict_proba(sample.inputs[at : at + 1])[0, 1] for at in range(SINGLE_ROWS)]
    if float(np.abs(predicted_singly - predicted[:SINGLE_ROWS]).max()) > SAME:
        return float("inf")
    return float(np.linalg.norm(predicted - sample.chances) / np.linalg.norm(sample.chances - 0.5))


def _xgboost_factory(device: Device, trees: int, threads: int) -> Callable[[], Any]:
    """Return a factory for untrained models. Raises Unsupported for a GPU that the installed build cannot use."""
    import xgboost

    if device.kind == "gpu":
        if device.maker != "NVIDIA":
            raise device.unsupported_backend("xgboost")
        if not xgboost.build_info().get("USE_CUDA"):
            raise Unsupported(
                "this build of xgboost has no CUDA: pip uninstall --yes xgboost-cpu, then pip install xgboost"
            )
    xgboost.set_config(verbosity=0)
    return partial(
        xgboost.XGBClassifier, n_estimators=trees, max_depth=DEPTH, learning_rate=LEARNING_RATE, tree_method="hist",
        n_jobs=threads or None, device="cpu" if device.kind == "cpu" else device.name,
    )  # fmt: skip


def _lightgbm_factory(device: Device, trees: int, threads: int) -> Callable[[], Any]:
    """Return a factory for untrained models. Raises Unsupported if LightGBM does not load or cannot use the GPU."""
    try:
        import lightgbm
    except OSError as broken:
        raise Unsupported(
            f"lightgbm cannot be loaded ({broken}): install the system's OpenMP (apt-get install libgomp1, "
            "brew install libomp)"
        ) from broken
    options: dict[str, Any] = {"n_estimators": trees, "num_leaves": LEAVES, "learning_rate": LEARNING_RATE}
    options |= {"n_jobs": threads or None, "verbosity": -1}
    if device.kind == "gpu":
        options |= _gpu_options(lightgbm, device)
    return partial(lightgbm.LGBMClassifier, **options)


def _gpu_options(lightgbm: Any, device: Device) -> dict[str, Any]:
    """Return the options that make LightGBM use this GPU. Raises Unsupported if the installed build cannot use it.

    LightGBM's wheels support only OpenCL, and only the log names the device that OpenCL uses.
    """
    import numpy as np

    log, sample = _Log(), random_table(FEWEST_ROWS, np.random.default_rng(SEED))
    lightgbm.register_logger(log)
    cuda = {"device_type": "cuda", "gpu_device_id": int(device.name.partition(":")[2] or 0)}
    for options in ([cuda] if device.maker == "NVIDIA" else []) + [{"device_type": "gpu"}]:
        log.lines.clear()
        try:
            lightgbm.LGBMClassifier(n_estimators=1, verbosity=1, **options).fit(sample.inputs, sample.labels)
        except lightgbm.basic.LightGBMError as lack:
            log.lacks.append(str(lack).splitlines()[0])
            continue
        name = str(device.describe()["name"])
        if options["device_type"] == "cuda" or any(name in line for line in log.lines):
            return options
        log.lacks.append(f"OpenCL computes on another device than {name}")
    raise Unsupported(
        f"lightgbm: {'; '.join(log.lacks)}: pip install --force-reinstall --no-binary lightgbm "
        "--config-settings=cmake.define.USE_CUDA=ON lightgbm"
    )


class _Log:
    """Logger for LightGBM's messages.

    lines: the messages. lacks: for each device type that cannot use the GPU, the reason.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lacks: list[str] = []

    def info(self, line: str) -> None:
        self.lines.append(line)

    warning = info


def _sklearn_factory(device: Device, trees: int, threads: int) -> Callable[[], Any]:
    """Return a factory for untrained models. Raises Unsupported on a GPU, or if OMP_NUM_THREADS is not `threads`."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    if device.kind != "cpu":
        raise device.unsupported_backend("sklearn")
    if os.environ.get("OMP_NUM_THREADS") != str(threads):
        raise Unsupported(f"scikit-learn works with the threads of its process (OMP_NUM_THREADS), not with {threads}")
    return partial(
        HistGradientBoostingClassifier, max_iter=trees, max_leaf_nodes=LEAVES, learning_rate=LEARNING_RATE,
        early_stopping=False,
    )  # fmt: skip
