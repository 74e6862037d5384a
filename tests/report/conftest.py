"""Factory for synthetic node folders.

The package `contract` writes these folders in the same format as the folders of measured nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contract.node import machine_of_node, write_node
from contract.sample_table import SAMPLES, metric_unit, write_unchecked

ROOT = Path(__file__).parents[2]
CPU = {"id": "cpu", "kind": "cpu", "name": "Synthetic(R) CPU @ 3 GHz"}
GPU = {"id": "cuda:0", "kind": "gpu", "name": "Synthetic GPU"}


@dataclass
class SyntheticNode:
    """A synthetic node. Only `write` creates its folder on disk.

    cpu: fields to add to the CPU in the node's record. more: further record fields. times: each round's start and
    end, by number.
    """

    folder: Path
    devices: list[dict[str, Any]]
    cores: int = 2
    cache: int = 2**25
    origin: str = "synthetic"
    seed: int = 0
    cpu: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    times: dict[int, tuple[str, str]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Node id in the files: the folder name without a number for a later run (the 2 in `kind.0a1b2c.2`)."""
        return machine_of_node(self.folder.name)

    def point(
        self,
        experiment: str,
        value: float | Mapping[str, float],
        *,
        device: str = "cpu",
        backend: str = "torch",
        dtype: str = "float32",
        threads: int = 1,
        params: Mapping[str, Any] | None = None,
        unit: str = "s",
        flop: float = float("nan"),
        bytes: float = float("nan"),
        rounds: int = 3,
        samples: int = 5,
        spread: float = 0.01,
        status: str = "ok",
        reason: str = "",
        metric: str = "time",
    ) -> SyntheticNode:
        """Add a point whose values vary at random about `value`.

        spread: standard deviation between rounds, relative to `value`. Within a round it is a quarter as large.
        `value` may also map several metrics to their values. Metrics with 'share' in their name have unit 1 and values
        up to 1.
        """
        random = np.random.default_rng([self.seed, len(self.rows)])
        for name, centre in (value if isinstance(value, Mapping) else {metric: value}).items():
            for number in range(1, rounds + 1):
                shift = random.normal(0, spread)
                for sample in range(samples if status == "ok" else 1):
                    noise = np.exp(shift + random.normal(0, spread / 4)) if spread else 1.0
                    value = min(1.0, centre * noise) if "share" in name else centre * noise
                    self.rows.append(
                        {
                            "node": self.id, "run": f"run{self.seed}.{number}", "round": number, "attempt": 1,
                            "experiment": experiment, "device": device, "backend": backend, "dtype": dtype,
                            "threads": 0 if device != "cpu" else threads,
                            "params": json.dumps(dict(params or {}), sort_keys=True),
                            "metric": name, "sample": sample,
                            "value": value if status in ("ok", "wrong") else float("nan"),
                            "unit": metric_unit(name) or ("1" if "share" in name else unit), "calls": 1,
                            "flop": float(flop), "bytes": float(bytes),
                            "status": status, "reason": reason, "stop_reason": "converged" if status == "ok" else "",
                            "error": 0.0, "tolerance": 1e-6, "elapsed_s": 1.0, "clock_mhz": float("nan"),
                            "memory_clock_mhz": float("nan"), "temperature_c": float("nan"), "power_w": float("nan"),
                            "utilisation": float("nan"), "other_load": 0.0, "steal": 0.0,
                            "flags": "", "origin": self.origin,
                        }
                    )  # fmt: skip
        return self

    def gemm(self, mac_per_cycle: float, clock: float = 3e9, n: int = 512, **more: Any) -> SyntheticNode:
        """Add a product of two n x n matrices; all threads together do `mac_per_cycle` multiply-adds per cycle."""
        flop = 2.0 * n**3
        seconds = flop / (2 * mac_per_cycle * clock)
        return self.point("gemm", seconds, params={"m": n, "n": n, "k": n}, flop=flop, **more)

    def clock(self, hertz: float = 3e9, **more: Any) -> SyntheticNode:
        return self.point(
            "clock", hertz, backend="llvm", dtype="", params={"chain": 1000}, metric="clock", unit="Hz", **more
        )

    def peak(self, flop_per_s: float, kernel: str = "fma", **more: Any) -> SyntheticNode:
        more = {"backend": "llvm", **more}
        return self.point("peak", 1e9 / flop_per_s, params={"kernel": kernel, "loops": 10}, flop=1e9, **more)

    def record(self) -> dict[str, Any]:
        return {
            "schema": 1, "id": self.id, "kind": self.id.partition(".")[0], "instance": self.id.partition(".")[2],
            "origin": self.origin,
            "hardware": {
                "cpu": {
                    "model": "Synthetic(R) CPU @ 3 GHz", "usable_cores": self.cores,
                    "caches": {"L3": {"bytes": self.cache, "instances": 1}}, **self.cpu,
                },
                "memory_bytes": 2**33, "gpus": [],
            },
            "software": {"os": "Linux", "python": "3.11", "packages": {}, "blas": []},
            "devices": self.devices, "left_out": [], "study": {"version": "0", "commit": "0"},
            "started_utc": "2026-11-21T00:00:00Z", "ended_utc": "2026-11-21T00:01:00Z", **self.more,
        }  # fmt: skip

    def write(self) -> Path:
        """Write node.json and a Parquet file for each experiment, device and round, and return the folder."""
        write_node(self.folder / "node.json", self.record())
        if self.rows:
            table = pd.DataFrame(self.rows)[list(SAMPLES.columns)]
            for (experiment, device, number), part in table.groupby(["experiment", "device", "round"]):
                name = f"{experiment}.{device.replace(':', '-')}.{number}.parquet"
                about: dict[str, Any] = {"seed": 1, "wall_s": 10.0, "warmup_s": 2.0, "timed_s": 5.0}
                about |= dict(zip(("started_utc", "ended_utc"), self.times.get(number, ()), strict=False))
                write_unchecked(self.folder / name, part, about)
        return self.folder


@dataclass
class Factory:
    """Builder for synthetic nodes in one folder."""

    root: Path

    def __call__(self, name: str = "node-a", gpus: int = 0, **more: Any) -> SyntheticNode:
        cards = [{**GPU, "id": f"cuda:{index}"} for index in range(gpus)]
        return SyntheticNode(self.root / name, [CPU, *cards], **more)

    def write(self, nodes: Iterable[SyntheticNode]) -> Path:
        for node in nodes:
            node.write()
        return self.root


@pytest.fixture
def synthetic(tmp_path: Path) -> Factory:
    """Builder for nodes with origin synthetic, as in `synthetic('name').gemm(27.9).clock().write()`."""
    return Factory(tmp_path / "nodes")


@pytest.fixture(scope="session")
def small_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the data from one synthetic node in data/, and with verdicts on all claims in verdicts.json.

    Tests share the folder, so they must not write to it.
    """
    from report.data.gather import gather
    from report.data.gathered_files import read_dataset
    from report.data.reference_figures import REFERENCE, read_reference
    from report.judging.judge import judge

    from .built_once import build_once

    def make(folder: Path) -> None:
        Factory(folder / "nodes")("node-a").gemm(27.9).gemm(14, n=256).gemm(14, dtype="float64").clock().write()
        gather([folder / "nodes"], folder / "data", allow_synthetic=True)
        judge(read_dataset(folder / "data", read_reference(REFERENCE)), folder / "verdicts.json", allow_synthetic=True)

    return build_once(tmp_path_factory, "small", make)


@pytest.fixture(scope="session")
def dataset(published_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the dataset of the published nodes. Tests share the folder, so they must not write to it."""
    from report.data.published_records import PUBLISHED, read_published
    from report.data.reference_figures import REFERENCE, read_reference
    from report.dataset.package import write_dataset

    from .built_once import build_once

    def make(folder: Path) -> None:
        data, verdicts = published_study / "data", published_study / "verdicts.json"
        write_dataset(data, verdicts, folder / "dataset", read_reference(REFERENCE), read_published(PUBLISHED))

    return build_once(tmp_path_factory, "dataset", make) / "dataset"
