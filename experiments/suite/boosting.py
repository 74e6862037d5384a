"""Gradient-boosted trees, with which people learn from tables: fitting and predicting, by library and rows."""

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

# HIGGS, on which boosting is usually timed, has 28 columns (Baldi, Sadowski & Whiteson 2014, doi:10.1038/ncomms5308).
COLUMNS = 28
# Settings in which the libraries agree; their own defaults of depth (6) and of leaves (31) stay.
LEARNING_RATE, DEPTH, LEAVES = 0.1, 6, 31
FEWEST_ROWS, FEW_ROWS, FEW_TREES = 1_000, 100_000, 10
# Rows from which the model learns that predicts; rows held out for a check; those of them predicted one by one as well.
LEARNT_ROWS, HELD_ROWS, SINGLE_ROWS = 20_000, 20_000, 20
# Largest difference of a chance predicted alone and among others.
SAME = 1e-6
# Largest relative error of chances learnt from n rows, times the cube root of n: half more than the 5.1 to 5.4 of each
# library from 1,000 to 100,000 rows. And what 100 small trees cannot learn: 0.07 was left after a million rows.
ERROR, UNLEARNT = 8.0, 0.05
# Different inputs of a prediction that are used in turn: a branch predictor learns a few rows by heart.
MOST_TABLES, MOST_ROWS = 64, 100_000
SEED = 28
# Seconds in which a library predicts a row by a tree on one thread.
PREDICT_S = {"xgboost": 1.1e-8, "lightgbm": 4.1e-8, "sklearn": 5.5e-8}
# Looks at a barrier before a thread sleeps: some dozens of microseconds.
SPINS = "10000"


class Table(NamedTuple):
    """inputs: float32, (rows, COLUMNS). labels: 0 or 1, (rows,). chances: of label 1, float64, (rows,)."""

    inputs: np.ndarray
    labels: np.ndarray
    chances: np.ndarray


def table(rows: int, random: np.random.Generator) -> Table:
    """Make random normal columns, three of which tell how likely a row's label is 1: a line, a wave and a fold."""
    import numpy as np

    inputs = random.standard_normal((rows, COLUMNS), dtype=np.float32)
    line, wave, fold = inputs[:, :3].astype(np.float64).T
    chances = 1 / (1 + np.exp(-2 * (line + np.sin(2 * wave) + np.abs(fold) - 0.8)))
    return Table(inputs, (random.random(rows) < chances).astype(np.int32), chances)


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Ten trees of at most FEW_ROWS rows."""
    fewer = {**params, "trees": min(params["trees"], FEW_TREES), "rows": min(params["rows"], FEW_ROWS)}
    return fewer if fewer != params else None


def memory(rows: int, **_: Any) -> float:
    """Inputs in float32, in scikit-learn's float64 and in bins, and what a library keeps for each row."""
    return 600.0 * max(rows, LEARNT_ROWS)


def environment(params: dict[str, Any]) -> dict[str, str]:
    """OpenMP's threads: scikit-learn has no other setting, and a limit that it gets later would hold the others too.

    Threads sleep after a short wait: where another process takes a core, those that wait in a loop for the one that
    stands still made a fit of 1 s take 7 to 50 s.
    """
    threads = params.get("threads")
    return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": SPINS} if threads else {}


def call_s(phase: Phase, rows: int, trees: int, backend: Backend, threads: int = 0, **_: Any) -> float:
    """Seconds of a fit, which sorts the columns first, or of a prediction. Without threads, of a GPU."""
    if phase == "fit":
        alone = 0.25 + 3.5e-6 * rows + trees * (2e-3 + 1.1e-7 * rows)
        return alone * (0.1 + 0.9 / threads if threads else 0.1)
    return 5e-4 + PREDICT_S[backend] * rows * trees / (threads or 10)


def extra_s(phase: Phase, trees: int, backend: Backend, threads: int = 0, **_: Any) -> float:
    """Seconds until the library is ready, with a model that predicts; a fit's check is one of any point's calls."""
    learnt_s = call_s("fit", LEARNT_ROWS, trees, backend, threads) if phase == "predict" else 0.0
    return learnt_s + (0.1 if threads else 2.0)


@experiment(
    "boosting", smaller=smaller, memory=memory, call_s=call_s, environment=environment, extra_s=extra_s, load_s=2.0
)
def boosting(device: Device, phase: Phase, rows: int, trees: int, backend: Backend, threads: Threads) -> Workload:
    """One fit of `trees` trees to `rows` rows of 28 columns, or one prediction of the chances of `rows` rows.

    Synthetic data by the formula of `table`, the same for every library; they lie in host memory,
    and so does the answer. fit: all that `fit` does, which sorts each column into 255 or 256 bins
    first. predict: `predict_proba` of a model of LEARNT_ROWS rows. XGBoost grows trees by
    histograms to depth 6, LightGBM and scikit-learn to 31 leaves.
    Error: of the chances of fresh rows against the true ones, relative to their distance from 1/2:
    1 where nothing was learnt. Infinite where a row gets another chance alone than among others.
    Unsupported: builds without the GPU.
    """
    import numpy as np

    if rows < 1 or trees < 1 or (phase == "fit" and rows < FEWEST_ROWS):
        raise Unsupported(f"a fit needs {FEWEST_ROWS:,} rows, a prediction a row, both a tree")
    make = {"xgboost": _xgboost, "lightgbm": _lightgbm, "sklearn": _sklearn}[backend](device, trees, threads)
    learnt = table(rows if phase == "fit" else LEARNT_ROWS, np.random.default_rng(SEED))

    def fit() -> Any:
        return make().fit(learnt.inputs, learnt.labels)

    if phase == "fit":
        return Workload(run=fit, check=lambda: _error(fit()), tolerance=tolerance(rows, trees), clock="host")
    model, count = fit(), min(MOST_TABLES, max(1, MOST_ROWS // rows))
    asked = np.split(table(rows * count, np.random.default_rng()).inputs, count)
    return Workload(
        run=[partial(model.predict_proba, inputs) for inputs in asked],
        check=lambda: _error(model),
        tolerance=tolerance(LEARNT_ROWS, trees),
        clock="host",
    )


def tolerance(rows: int, trees: int) -> float:
    """Largest error of a model that has learnt: `ERROR` has the reason. Each tree leaves 1 - LEARNING_RATE to learn."""
    return float(ERROR / rows ** (1 / 3) + UNLEARNT + (1 - LEARNING_RATE) ** trees)


def _error(model: Any) -> float:
    """The error of a model, as `boosting` has it; nan if a chance is."""
    import numpy as np

    held = table(HELD_ROWS, np.random.default_rng())
    found = model.predict_proba(held.inputs)[:, 1]
    alone = [model.predict_proba(held.inputs[at : at + 1])[0, 1] for at in range(SINGLE_ROWS)]
    if float(np.abs(alone - found[:SINGLE_ROWS]).max()) > SAME:
        return float("inf")
    return float(np.linalg.norm(found - held.chances) / np.linalg.norm(held.chances - 0.5))


def _xgboost(device: Device, trees: int, threads: int) -> Callable[[], Any]:
    """A maker of untrained models. Raises Unsupported."""
    import xgboost

    if device.kind == "gpu":
        if device.maker != "NVIDIA":
            raise device.unsupported("xgboost")
        if not xgboost.build_info().get("USE_CUDA"):
            raise Unsupported(
                "this build of xgboost has no CUDA: pip uninstall --yes xgboost-cpu, then pip install xgboost"
            )
    xgboost.set_config(verbosity=0)
    return partial(
        xgboost.XGBClassifier, n_estimators=trees, max_depth=DEPTH, learning_rate=LEARNING_RATE, tree_method="hist",
        n_jobs=threads or None, device="cpu" if device.kind == "cpu" else device.name,
    )  # fmt: skip


def _lightgbm(device: Device, trees: int, threads: int) -> Callable[[], Any]:
    """A maker of untrained models. Raises Unsupported."""
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
        options |= _of_gpu(lightgbm, device)
    return partial(lightgbm.LGBMClassifier, **options)


def _of_gpu(lightgbm: Any, device: Device) -> dict[str, Any]:
    """LightGBM's options for a GPU. Raises Unsupported where its build has none for it.

    Wheels have OpenCL alone, which says only in its log on what it computes.
    """
    import numpy as np

    log, few = _Log(), table(FEWEST_ROWS, np.random.default_rng(SEED))
    lightgbm.register_logger(log)
    cuda = {"device_type": "cuda", "gpu_device_id": int(device.name.partition(":")[2] or 0)}
    for options in ([cuda] if device.maker == "NVIDIA" else []) + [{"device_type": "gpu"}]:
        log.lines.clear()
        try:
            lightgbm.LGBMClassifier(n_estimators=1, verbosity=1, **options).fit(few.inputs, few.labels)
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
    """Lines of LightGBM's log; lacks: reasons why it cannot."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lacks: list[str] = []

    def info(self, line: str) -> None:
        self.lines.append(line)

    warning = info


def _sklearn(device: Device, trees: int, threads: int) -> Callable[[], Any]:
    """A maker of untrained models. Raises Unsupported."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    if device.kind != "cpu":
        raise device.unsupported("sklearn")
    if os.environ.get("OMP_NUM_THREADS") != str(threads):
        raise Unsupported(f"scikit-learn works with the threads of its process (OMP_NUM_THREADS), not with {threads}")
    return partial(
        HistGradientBoostingClassifier, max_iter=trees, max_leaf_nodes=LEAVES, learning_rate=LEARNING_RATE,
        early_stopping=False,
    )  # fmt: skip
