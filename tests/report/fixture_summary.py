"""A synthetic summary table with every experiment of this edition, in the shape that `report gather` writes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd

from report.summary import COLUMNS, POINT

NODE = "example-cpu-2c-0a1b2c"


def row(chance: random.Random, experiment: str, metric: str, estimate: float, **given: Any) -> dict[str, Any]:
    """One row; what is not given is as for a point on one thread of the CPU."""
    half = chance.uniform(0.005, 0.05)
    flop, moved = given.get("flop"), given.get("bytes")
    return {
        **dict.fromkeys([*POINT, *COLUMNS]),
        "node": NODE, "experiment": experiment, "device": "cpu", "metric": metric, "unit": "s", "status": "ok",
        "reason": "", "stop_reason": "converged", "n_rounds": 3, "n_samples": 45, "estimate": estimate,
        "low": estimate * (1 - half), "high": estimate * (1 + half), "flags": "", "origin": "synthetic",
        "flop_per_s": flop / estimate if flop else None, "bytes_per_s": moved / estimate if moved else None,
        **given, "params": json.dumps(given.get("params", {}), sort_keys=True),
    }  # fmt: skip


def summary(seed: int = 1) -> pd.DataFrame:
    """A table of rows whose values come from a seeded generator."""
    chance = random.Random(seed)
    rows = []
    for dtype in ("float32", "float64", "bfloat16"):
        for threads in (1, 2):
            speed = 5e10 * threads * {"float32": 2, "float64": 1, "bfloat16": 4}[dtype]
            rows.append(row(chance, "peak", "time", 1.0, backend="llvm", dtype=dtype, threads=threads,
                            params={"kernel": "fma"}, flop=speed * 1.1))  # fmt: skip
            for backend in ("torch", "onednn", "numpy"):
                shapes = [(n, n, n) for n in (64, 128, 256, 512, 1024, 2048)] + [(32, 4096, 1024), (512, 3072, 768)]
                for m, n, k in shapes:
                    rate = speed * chance.uniform(0.5, 0.95) * min(1.0, (m * n * k) ** (1 / 3) / 400)
                    rows.append(row(chance, "gemm", "time", 2 * m * n * k / rate, backend=backend, dtype=dtype,
                                    threads=threads, params={"m": m, "n": n, "k": k}, flop=2 * m * n * k))  # fmt: skip
    for threads in (1, 2):
        for backend in ("llvm", "torch"):
            for op in ("copy", "scale", "add", "triad"):
                for power in range(14, 30, 2):
                    rate = threads * 8e10 / (1 + power / 8) ** 2 * chance.uniform(0.8, 1.2)
                    rows.append(row(chance, "bandwidth", "time", 2**power / rate, backend=backend, dtype="float64",
                                    threads=threads, params={"op": op, "footprint": 2**power}, bytes=2.0**power))  # fmt: skip
    for model in ("mlp", "cnn", "gpt"):
        for dtype in ("float32", "bfloat16"):
            for threads in (1, 2):
                for batch in (1, 8, 64, 512):
                    whole = (1e-3 + 2e-5 * batch) / threads * chance.uniform(0.9, 1.1)
                    for metric, part in {"time": 1.0, "time.forward": 0.3, "time.backward": 0.6, "time.update": 0.1}.items():
                        rows.append(row(chance, "training", metric, whole * part, backend="torch", dtype=dtype,
                                        threads=threads, params={"model": model, "batch": batch}, flop=1e9))  # fmt: skip
    for direction in ("h2d", "d2h"):
        lost = row(chance, "transfer", "time", 1.0, backend="torch", dtype="", threads=0,
                   params={"direction": direction, "size": 4, "memory": "pinned"})  # fmt: skip
        rows.append(lost | {"status": "unsupported", "reason": "no accelerator", "estimate": None, "n_rounds": 0})
    return pd.DataFrame(rows)[[*POINT, *COLUMNS]]


def write(folder: Path, seed: int = 1) -> Path:
    """Write the table as the gather stage does; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    summary(seed).to_parquet(folder / "summary.parquet", index=False)
    return folder
