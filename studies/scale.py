"""`python -m studies.scale`: gather and judge a thousand synthetic nodes within four minutes and two gigabytes.

Each node copies `--series` series (a point and a metric) from the published node with most files. It has three rounds
with a few samples, and a random speed. Each step runs in a new process. Exits with 1 if a limit is exceeded. Needs an
idle machine, and six gigabytes in a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contract.errors import StudyError, run_command
from contract.files import read_json, write_json
from contract.sample_table import load_samples, to_data_frame, write_unchecked
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.published_records import PUBLISHED, read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.data.summary import POINT
from report.judging.judge import judge

NODES_FOLDER = Path(__file__).parents[1] / "data" / "nodes"
ROUNDS, SAMPLES = 3, 3
# Limits on time and memory for 1,000 nodes with 2,000 series each, on two idle cores.
SECONDS, MEGABYTES = 240.0, 2048.0

Files = dict[str, pd.DataFrame]


def make_template(folder: Path, series: int) -> Files:
    """Draw random points that have about `series` series in all from a published node; return rounds by file name.

    Each point keeps all its metrics. Raises StudyError if the node has too few series.
    """
    rows = pd.concat(
        [to_data_frame(load_samples(path)[0]) for path in sorted(folder.glob("*.parquet"))], ignore_index=True
    )
    rows = rows[rows["sample"] < SAMPLES]
    metrics = rows.groupby(POINT, observed=True)["metric"].nunique().sample(frac=1, random_state=1)
    chosen = metrics[metrics.cumsum() <= series]
    if chosen.sum() < 0.95 * series:
        raise StudyError(f"{folder}: {metrics.sum()} series, {series} are wanted")
    whole = rows.merge(chosen.index.to_frame(index=False), on=POINT)
    first = whole[whole["round"] == whole.groupby([*POINT, "metric"], observed=True)["round"].transform("min")]
    return {
        f"{experiment}.{str(device).replace(':', '-')}.{number}.parquet": part.assign(round=number)
        for (experiment, device), part in first.groupby(["experiment", "device"], observed=True)
        for number in range(1, ROUNDS + 1)
    }


def write_node(record: dict[str, Any], files: Files, folder: Path, seed: int) -> None:
    """Write one synthetic node.

    All values except shares are multiplied by a random factor for the node and by a small random factor for the sample.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    write_json(folder / "node.json", {**record, "id": folder.name, "origin": "synthetic"})
    speed = random.normal(0, 0.3)
    for name, rows in files.items():
        noise = np.where(rows["unit"] != "1", np.exp(speed + random.normal(0, 0.02, len(rows))), 1.0)
        samples = rows.assign(node=folder.name, origin="synthetic", value=rows["value"] * noise)
        write_unchecked(folder / name, samples, {"wall_s": 1.0, "warmup_s": 0.2, "timed_s": 0.5})


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def write_fleet(folder: Path, nodes: int, series: int) -> None:
    """Write synthetic nodes into the subfolders synthetic-0000, synthetic-0001, … in `folder`."""
    source = max((path.parent for path in NODES_FOLDER.glob("*/node.json")), key=_folder_bytes)
    write = partial(write_node, read_json(source / "node.json"), make_template(source, series))
    with ProcessPoolExecutor() as pool:
        folders = [folder / f"synthetic-{number:04d}" for number in range(nodes)]
        deque(pool.map(write, folders, range(nodes), chunksize=8), maxlen=0)


def gather_fleet(work: Path) -> None:
    gather(sorted((work / "fleet").iterdir()), work / "data", allow_synthetic=True)


def judge_fleet(work: Path) -> None:
    data = read_dataset(work / "data", read_reference(REFERENCE), read_published(PUBLISHED))
    judge(data, work / "verdicts.json", allow_synthetic=True)


def peak_mb(step: Callable[[Path], None], work: Path, workers: int) -> float:
    """Run a step, and return an upper bound on its peak memory in MB.

    The bound is the peak of the calling process, plus `workers` times the largest peak of a worker process.
    """
    step(work)
    mine, theirs = (resource.getrusage(of).ru_maxrss for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    # ru_maxrss is in kilobytes on Linux and in bytes on macOS.
    return (mine + workers * theirs) / (1e6 if sys.platform == "darwin" else 1e3)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Raises StudyError if the published node has too few series."""
    parser = argparse.ArgumentParser(prog="python -m studies.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--series", type=int, default=2000)
    options = parser.parse_args(argv)
    spent, most = 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        work = Path(folder)
        write_fleet(work / "fleet", options.nodes, options.series)
        for step, workers in ((gather_fleet, os.cpu_count() or 1), (judge_fleet, 0)):
            begun = time.perf_counter()
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                peak = pool.submit(peak_mb, step, work, workers).result()
            wall = time.perf_counter() - begun
            spent, most = spent + wall, max(most, peak)
            print(f"{step.__name__}: {wall:.0f} s, at most {peak:,.0f} MB", flush=True)
    within_limits = spent <= SECONDS and most <= MEGABYTES
    summary = f"{options.nodes:,} nodes of {options.series:,} series: {spent:.0f} s and {most:,.0f} MB"
    print(f"{summary}, {'within' if within_limits else 'over'} {SECONDS:.0f} s and {MEGABYTES:,.0f} MB")
    return 0 if within_limits else 1


if __name__ == "__main__":
    sys.exit(run_command(main))
