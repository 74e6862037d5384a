"""A fleet of synthetic nodes: what gathering and judging cost where a thousand machines have reported.

The nodes are the published one, again and again: each with as many of its points as are asked
for, three rounds of a few samples, and a speed of its own. They say that they are synthetic,
so that nothing but this benchmark judges them.
"""

from __future__ import annotations

import json
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
from numpy.typing import NDArray
from pyarrow import parquet

from contract.files import read_json, write_json
from contract.tables import SCHEMA_VERSION, frame, load_samples
from report.data.summary import POINT

ROUNDS, SAMPLES = 3, 3
_ABOUT = {b"study": json.dumps({"schema": SCHEMA_VERSION, "wall_s": 1.0, "warmup_s": 0.2, "timed_s": 0.5}).encode()}


def template(folder: Path, points: int, seed: int = 1) -> pd.DataFrame:
    """Samples of `points` rows of a published node's summary (a point and a metric each), ROUNDS x SAMPLES of each.

    Points are drawn at random, each with all its metrics, until there are so many. Raises ValueError if the node has
    fewer.
    """
    # Whoever gathers the fleet validates it.
    rounds = [frame(load_samples(path)[0]) for path in sorted(folder.glob("*.parquet"))]
    rows = pd.concat(rounds, ignore_index=True)
    rows = rows[rows["sample"] < SAMPLES]
    metrics = rows.groupby(POINT)["metric"].nunique().sample(frac=1, random_state=seed)
    chosen = metrics[metrics.cumsum() <= points]
    if chosen.sum() < 0.95 * points:
        raise ValueError(f"{folder}: {metrics.sum()} series, {points} are wanted")
    whole = rows.merge(chosen.index.to_frame(index=False), on=POINT)
    # Every point and metric in all rounds, whatever the node's own rounds were.
    base = whole[whole["round"] == whole.groupby([*POINT, "metric"])["round"].transform("min")]
    return pd.concat([base.assign(round=number) for number in range(1, ROUNDS + 1)], ignore_index=True)


def write(folder: Path, source: Path, nodes: int, points: int, seed: int = 1) -> None:
    """Write `nodes` node folders into `folder`, each with `points` rows of the summary of the node at `source`."""
    record, rows = read_json(source / "node.json"), template(source, points, seed)
    files = {}
    for (experiment, device, number), part in rows.groupby(["experiment", "device", "round"]):
        table = arrow.Table.from_pandas(part, preserve_index=False).replace_schema_metadata(_ABOUT)
        name = f"{experiment}.{str(device).replace(':', '-')}.{number}.parquet"
        files[name] = _File(table, part["value"].to_numpy(float), part["unit"].to_numpy() != "1")
    # What all nodes have in common goes to each process once.
    with ProcessPoolExecutor(initializer=_hold, initargs=(record, files)) as pool:
        folders = [folder / f"synthetic-{number:04d}" for number in range(nodes)]
        deque(pool.map(_node, folders, range(seed, seed + nodes), chunksize=8), maxlen=0)


@dataclass(frozen=True)
class _File:
    """A round's samples of the published node; values and whether they are timed, of shape (samples,)."""

    table: arrow.Table
    values: NDArray[np.float64]
    timed: NDArray[np.bool_]


_held: tuple[dict[str, Any], dict[str, _File]] = ({}, {})


def _hold(record: dict[str, Any], files: dict[str, _File]) -> None:
    global _held
    _held = record, files


def _node(folder: Path, seed: int) -> None:
    record, files = _held
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    write_json(folder / "node.json", {**record, "id": folder.name, "origin": "synthetic"})
    speed = random.normal(0, 0.3)
    for name, file in files.items():
        noise = speed + random.normal(0, 0.02, len(file.values))
        own = {
            "node": arrow.repeat(folder.name, len(file.values)),
            "origin": arrow.repeat("synthetic", len(file.values)),
            "value": arrow.array(np.where(file.timed, file.values * np.exp(noise), file.values)),
        }
        columns = [own.get(column, file.table[column]) for column in file.table.column_names]
        made = arrow.table(columns, schema=file.table.schema)
        # Compressing small files by zstd takes as long as all the rest.
        parquet.write_table(made, folder / name, compression="snappy")
