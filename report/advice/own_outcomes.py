"""Outcomes from this study's own machines, so that constants rest on them too: one source a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from contract.files import read_json
from report.advice.chips import UnknownNameError
from report.advice.jobs import WORK, Job, UnclearJobError, examine
from report.advice.outcomes import Outcome
from report.data.table_rows import row_dicts

# Models that the study measures, as `report.advice.models` knows them; the first three are language models.
_MODELS = {
    "llama-0.5b": "Qwen2.5 0.5B", "llama-1b": "Llama 3.2 1B", "llama-8b": "Llama 3.1 8B",
    "resnet-50": "ResNet-50", "bert-base": "BERT-base", "mobilenet-v2": "MobileNetV2", "vit-base": "ViT-B-16",
}  # fmt: skip
_PROGRAMS = {
    "xllamacpp": "llama.cpp", "llama-cpp-python": "llama.cpp", "transformers": "transformers", "torch": "PyTorch",
    "onnx": "ONNX Runtime", "openvino": "OpenVINO", "openvino-genai": "OpenVINO", "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}  # fmt: skip
_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "int8": "int8"}
# Columns that are read; a study of few experiments has not all of them.
_CASE = (
    "result_id", "node", "experiment", "device", "backend", "dtype", "threads", "metric", "status", "estimate", "model",
    "phase", "format",
)  # fmt: skip
_SIZES = ("tokens", "rows", "trees", "batch")
_TOKENS, _COLUMNS, _LEAVES = 128, 28, {"xgboost": 64, "lightgbm": 31}


def hardware_text(hardware: Mapping[str, Any], gpu: bool) -> str:
    """Name a node's GPU or processor as `report.advice.chips.find_machine` reads it."""
    if gpu:
        gpus = hardware.get("gpus") or [{}]
        return str(gpus[0].get("name", ""))
    cpu = hardware.get("cpu") or {}
    # Cloud providers hide the model; its instructions tell the generation.
    units = set(cpu.get("simd") or ())
    name = str(cpu.get("model", ""))
    if cpu.get("virtual") and "amx_bf16" in units:
        name += " sapphire rapids"
    elif cpu.get("virtual") and "EPYC" in name and "avx512f" in units:
        name += " genoa"
    return f"{name} {cpu.get('usable_cores', 1)} cores {hardware.get('memory_bytes', 0) / 2**30:.0f} GB"


def own_outcomes(data: Path) -> tuple[list[Outcome], dict[str, str]]:
    """Return outcomes from gathered data (output of `gather`), and why machines were left out, by machine.

    Only kinds that the adviser knows count. A machine is left out if its processor or GPU is in no table.
    """
    nodes = {node["id"]: node for node in read_json(data / "nodes.json")}
    results = pd.read_parquet(data / "results.parquet").reindex(columns=[*_CASE, *_SIZES])
    results = results.astype(dict.fromkeys(_SIZES, float))
    results = results[(results["metric"] == "time") & (results["status"] == "ok") & (results["threads"] != 1)]
    outcomes, left_out = [], {}
    for row in row_dicts(results):
        node = nodes.get(str(row["node"]))
        setting = _setting(row)
        if node is None or setting is None or row["backend"] not in _PROGRAMS:
            continue
        kind, model, precision, work, items = setting
        if not all(math.isfinite(size) and size > 0 for size in (float(row["estimate"]), items, *work.values())):
            continue
        machine = str(row["node"]).rsplit(".", 2)[0].split(".")[0]
        job = Job(
            id=str(row["result_id"]),
            kind=kind,
            model=model,
            hardware=hardware_text(node["hardware"], row["device"] != "cpu"),
            precision=precision,
            work={name: work.get(name) for name in WORK},
            software=_PROGRAMS[row["backend"]],
            year=float(str(node.get("started_utc") or "2026")[:4]),
        )
        try:
            situation = examine(job)
        except (UnknownNameError, UnclearJobError) as error:
            left_out[machine] = str(error)
            continue
        seconds, place = float(row["estimate"]) / items, {"node": str(row["node"])}
        outcomes.append(Outcome(f"this study, {machine}", job.id, situation, seconds, 0.0, place))
    return outcomes, left_out


def _setting(row: Mapping[str, Any]) -> tuple[str, str, str | None, dict[str, float], float] | None:
    """Return kind, model, format, sizes, and the items in one result; None for other experiments."""
    experiment, model = row["experiment"], _MODELS.get(str(row["model"]), "")
    if experiment == "language-models" and model and row["phase"] in ("decode", "prompt"):
        tokens = float(row["tokens"])
        work = {"tokens_in": tokens} | ({"tokens_out": 8.0} if row["phase"] == "decode" else {})
        return str(row["phase"]), model, str(row["format"]), work, 1.0
    if experiment == "boosting" and row["phase"] == "fit" and row["backend"] in _LEAVES:
        leaves = float(_LEAVES[row["backend"]])
        work = {"rows": float(row["rows"]), "columns": float(_COLUMNS), "trees": float(row["trees"]), "leaves": leaves}
        return "tables", str(row["backend"]), None, work, 1.0
    if experiment in ("training", "inference") and model:
        batch = float(row["batch"])
        text = model == "BERT-base"
        kind = ("fine-tune" if text else "train") if experiment == "training" else ("embed" if text else "classify")
        work = {"batch": batch} | ({"tokens_per_sample": float(_TOKENS)} if text else {"pixels": 224.0 * 224.0})
        return kind, model, _FORMATS.get(str(row["dtype"])), work, batch
    return None
