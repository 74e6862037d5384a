"""What ran on which device: counted by points, and what gave nothing is named."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from report.render.ran import ran

NODES = [
    {
        "id": "n", "label": "A node",
        "devices": [{"id": "cpu", "name": "a CPU"}, {"id": "cuda:0", "name": "a GPU", "maker": "NVIDIA"}],
    }
]  # fmt: skip


def row(experiment: str, device: str, status: str, params: str = "{}", metric: str = "time") -> dict[str, object]:
    point = {"experiment": experiment, "backend": "torch", "dtype": "float32", "threads": 1, "params": params}
    return {"node": "n", "device": device, **point, "metric": metric, "status": status}


def test_each_device_has_its_experiments_with_results_and_those_without(tmp_path: Path) -> None:
    rows = [
        row("gemm", "cpu", "ok"),
        row("gemm", "cuda:0", "ok"),
        # One point with two metrics, of which one failed, gave a result.
        row("gemm", "cuda:0", "unsupported", metric="graph_time"),
        row("gemm", "cuda:0", "oom", '{"n":9}'),
        row("transfer", "cuda:0", "ok"),
        row("batched", "cuda:0", "unsupported"),
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "summary.parquet")
    cpu, gpu = ran(tmp_path, NODES)
    assert cpu == {
        "node": "A node", "device": "cpu (a CPU)", "maker": "–", "through": "gemm 1/1",
        "without": "batched and transfer",
    }  # fmt: skip
    assert (gpu["maker"], gpu["through"], gpu["without"]) == ("NVIDIA", "gemm 1/2 and transfer 1/1", "batched")
