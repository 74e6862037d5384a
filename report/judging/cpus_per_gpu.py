"""Count the server processors that one GPU replaces, job by job, from published runs, for the report's opening."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from report.data.dataset import Dataset
from report.data.table_rows import row_dicts
from report.quantities.published import value_or_default
from report.quantities.published_speeds import PROCESSOR, speedup_over_servers

# MLPerf tasks and models to report, each with its description for readers.
JOBS = {
    ("train-to-target", "BERT-large"): "train BERT-large, a language model",
    ("train-to-target", "ResNet-50"): "train ResNet-50, which classifies images",
    ("train-to-target", "RetinaNet"): "train RetinaNet, which finds objects in images",
    ("train-to-target", "DLRM"): "train DLRM, which recommends",
    ("train-to-target", "DLRM-DCNv2"): "train DLRM-DCNv2, which recommends",
    ("infer", "ResNet-50"): "classify images with ResNet-50",
    ("infer", "BERT-large"): "answer questions with BERT-large",
    ("infer", "RetinaNet"): "find objects with RetinaNet",
    ("infer", "GPT-J 6B"): "summarise text with GPT-J 6B",
    ("infer", "Llama 3.1 8B"): "summarise text with Llama 3.1 8B",
    ("infer", "Whisper"): "write down speech with Whisper",
    ("infer", "DLRM-DCNv2"): "recommend with DLRM-DCNv2",
}
# MLPerf's stricter quality target, as a fraction of the reference model's quality.
HIGHER = 0.999


def replaced_processors(data: Dataset) -> list[dict[str, Any]]:
    """Record, for each job, the slowest and the fastest GPU and the server processors that each replaces.

    Each job uses its newest MLPerf round in which servers with and without a GPU took part. A GPU's `low` and `high`
    are the range of its results in this round. Only training and batch inference at the laxer quality target are
    included, without robot modules (Jetson). machines: how many servers shared the work without a GPU. If there are
    several, they lost time between them, and the numbers are the most that they can be.
    """
    by_job: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    speedups = speedup_over_servers(data).filter(baseline=PROCESSOR, family="mlperf")
    for row in row_dicts(speedups.frame) if len(speedups) else []:
        key, record = (row["task"], row["model"]), data.published.records_by_key[row["records"].split()[0]]
        bulk = record["scenario"] in ("training", "offline") and record["quality"] != HIGHER
        if key in JOBS and bulk and "Jetson" not in str(row["gpu"]):
            by_job.setdefault(key, []).append({**row, "date": record["date"]})
    rows = []
    for key, job in JOBS.items():
        if key not in by_job:
            continue
        newest = max(row["date"] for row in by_job[key])
        newest_rows = [row for row in by_job[key] if row["date"] == newest]
        least, most = (pick(newest_rows, key=lambda row: float(row["estimate"])) for pick in (min, max))
        rows.append(
            {
                "job": job,
                "training": key[0] == "train-to-target",
                "setting": str(most["setting"]).split(", ")[0],
                "source": most["source"],
                "gpus": len({row["gpu"] for row in newest_rows}),
                "processor": most["cpu"],
                "machines": int(
                    value_or_default(data.published.records_by_key[most["records"].split()[-1]]["nodes"], 1)
                ),
                **{name: _gpu_record(row) for name, row in (("least", least), ("most", most))},
            }
        )
    return rows


def _gpu_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Record a GPU and the number of processors that it replaces."""
    ends = {name: float(row[name]) for name in ("estimate", "low", "high")}
    return {"gpu": row["gpu"], **ends, "records": row["records"], "detail": row["detail"]}
