"""Extract records from MLPerf results: `python -m studies.mlperf training|inference CLONE SOURCE.csv DATE [ROUND]`.

CLONE is a checkout or bare clone with results from MLCommons. It is either the repository for one round (such as
training_results_v3.1), or cm4mlperf-results, which collects several rounds with the same scores but without number
formats; ROUND (such as v4.0) selects a round there.

The output has the valid results from the closed division, on CPUs and on GPUs, for each benchmark and scenario in which
some system has no accelerator. For inference, it also has the latencies of single requests to a GPU. It leaves out runs
of MLCommons' untuned reference code.

A training record has the mean over a result's runs without the fastest and the slowest, as MLPerf scores them, times
the scaling factor for convergence (scaling.json). Its low and high are the fastest and the slowest remaining run. An
inference record has the score in the performance run's summary, within the scenario's latency limits. Values are totals
of a system, undivided. A training result that an earlier round beside SOURCE.csv holds too is marked as its copy.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from contract import arguments
from contract.errors import StudyError, run_command
from contract.provenance import run_git
from report.data.published_records import COLUMNS

Record = dict[str, Any]
_GPU = re.compile(r"nvidia|geforce|quadro|tesla|radeon|instinct|\bmi\d{3}|rtx|\b[ahlbtv]\d{2,3}\b|jetson|orin", re.I)
_PREFIX = {"G": 10**9, "M": 10**6}
_NONE = {"", "0", "n/a", "none", "-", "no"}
_OWN_CODE = re.compile(r"-reference-|[-_]cpp-", re.I)
_COLLECTION = "cm4mlperf-results"
_TRAINING = "mlperf-training-"
_EVENT = re.compile(r":::MLLOG (\{.*\})")
_RATE = r"^(Samples per second|Tokens per second)\s*:\s*([\d.e+]+)"
_SERVED = r"^(Completed samples per second|Completed tokens per second|Scheduled samples per second)\s*:\s*([\d.e+]+)"
_LATENCY = r"^(90th? percentile latency \(ns\)|90\.0th percentile latency \(ns\))\s*:\s*(\d+)"
# For each scenario: MLPerf's spelling, the pattern to find the score in the log, and the measure. The keys are in lower
# case, because submitters' spellings vary.
_FIGURES = {
    "offline": ("Offline", re.compile(_RATE, re.M), "rate"),
    "server": ("Server", re.compile(_SERVED, re.M), "rate"),
    "singlestream": ("SingleStream", re.compile(_LATENCY, re.M), "latency"),
}
_COLUMNS = (*COLUMNS, "scenario", "quality")
# Columns of the files in which some record has a value.
_OPTIONAL = ("global_batch", "copy_of")
# Columns in which a result agrees with its copy in a later round. Systems are renamed between rounds.
_SAME_RESULT = ("measured_by", "model", "cpu", "gpu", "gpus", "nodes", "value", "low", "high", "runs")
_SCENARIOS = {"Offline": "offline", "Server": "server", "SingleStream": "single stream"}
_DTYPES = (
    (r"fp4", "float4"),
    (r"int4", "int4"),
    (r"fp8|float8|e4m3", "float8"),
    (r"int8|uint8|i8\b", "int8"),
    (r"bf16|bfloat16", "bfloat16"),
    (r"fp16|float16|half", "float16"),
    (r"fp32|float32", "float32"),
)
# Model names by folder name in the submissions.
_MODEL_NAMES = {
    "bert": "BERT-large",
    "resnet": "ResNet-50",
    "ssd": "RetinaNet",
    "dlrm": "DLRM",
    "dlrm_dcnv2": "DLRM-DCNv2",
    "resnet50": "ResNet-50",
    "retinanet": "RetinaNet",
    "rnnt": "RNN-T",
    "whisper": "Whisper",
    "llama3_1-8b": "Llama 3.1 8B",
    "llama3.1-8b": "Llama 3.1 8B",
    "rgat": "R-GAT",
}
_QUALITY = {"bert": "BERT-large", "gptj": "GPT-J 6B", "dlrm": "DLRM", "dlrm-v2": "DLRM-DCNv2", "3d-unet": "3D-UNet"}


def _model_and_quality(benchmark: str) -> tuple[str, str]:
    """Return the model and the required quality from a benchmark's name.

    The quality is in per cent of the reference model's quality ('99.9'); it is empty if the name states none.
    """
    name, _, share = benchmark.rpartition("-")
    return (_QUALITY[name], share) if name in _QUALITY else (_MODEL_NAMES.get(benchmark, benchmark), "")


class Clone:
    """Files in a clone's newest commit."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.commit = run_git(at, "rev-parse", "HEAD").strip()
        self.paths = run_git(at, "ls-tree", "-r", "--name-only", "-z", "HEAD").split("\0")

    def read_text(self, path: str) -> str:
        return run_git(self.at, "show", f"HEAD:{path}")

    def read_json(self, path: str) -> Mapping[str, Any]:
        """Read a JSON object. Returns {} if the file contains no such object, which happens in some submissions."""
        try:
            read = json.loads(self.read_text(path).lstrip("\ufeff"))
        except (ValueError, StudyError):
            return {}
        return read if isinstance(read, Mapping) else {}


def _first_integer(field: Any) -> int:
    """Return the first integer in a field, or 0 if the field has no integer."""
    match = re.search(r"\d+", str(field))
    return int(match[0]) if match else 0


def _field_text(about: Mapping[str, Any], field: str) -> str:
    return " ".join(str(about.get(field, "")).split())


def _parse_system(system: str, about: Mapping[str, Any]) -> Record | None:
    """Return the record columns that describe a system's hardware, or None if the system's results are left out.

    Results are left out if they are from an accelerator other than a whole GPU, from MLCommons' reference code, or from
    a GPU that only the system's name mentions.
    """
    name = _field_text(about, "accelerator_model_name")
    each, nodes = _first_integer(about.get("accelerators_per_node")), _first_integer(about.get("number_of_nodes")) or 1
    host = _field_text(about, "host_processor_model_name")
    # If the processor's name mentions a GPU, this integrated GPU does the work, so the system is not a bare CPU.
    bare = each == 0 and name.lower() in _NONE and not re.search(r"\bGPU\b", host)
    # A MIG slice is left out, because it is only a fraction of a GPU.
    if not bare and (not (each and _GPU.search(name)) or "mig" in name.lower()):
        return None
    if _OWN_CODE.search(system) or (bare and "-gpu-" in system.lower()):
        return None
    sockets, cores = (
        _first_integer(about.get("host_processors_per_node")),
        _first_integer(about.get("host_processor_core_count")),
    )
    memory = re.match(r"(\d+)\s*([GM])i?B", str(about.get("accelerator_memory_capacity", "")), re.I)
    return {
        "device": "cpu" if bare else "gpu",
        "cpu": host,
        "cpus": sockets * nodes or "",
        "cores": cores * sockets * nodes or "",
        "gpu": "" if bare else name,
        "gpus": "" if bare else each * nodes,
        "nodes": nodes,
        "memory_bytes": int(memory[1]) * _PREFIX[memory[2].upper()] if memory and not bare else "",
        "software": _field_text(about, "framework"),
        "by": str(about.get("submitter", "")).strip(),
        "preview": "preview: not yet on sale" if "preview" in str(about.get("status", "")).lower() else "",
    }


def _parse_dtype(weights: str) -> str:
    names = [name for pattern, name in _DTYPES if re.search(pattern, weights, re.I)]
    return names[0] if len(names) == 1 else "mixed" if names else ""


def training_records(clone: Clone, round_: str) -> Iterator[Record]:
    """Yield records from one MLPerf Training round."""
    results: dict[tuple[str, str, str], list[str]] = {}
    for path in clone.paths:
        match = re.fullmatch(r"([^/]+)/results/([^/]+)/([^/]+)/(result_\d+\.txt|scaling\.json)", path)
        if match:
            results.setdefault((match[1], match[2], match[3]), []).append(path)
    system_of = cache(lambda entrant, system: clone.read_json(f"{entrant}/systems/{system}.json"))
    for (entrant, system, benchmark), paths in sorted(results.items()):
        about = system_of(entrant, system)
        hardware = _parse_system(system, about) if str(about.get("division", "")).lower() == "closed" else None
        if hardware is None:
            continue
        runs = [run for path in paths if path.endswith(".txt") and (run := _parse_run(clone.read_text(path)))]
        times = sorted(seconds for seconds, _ in runs)
        if len(times) < 3:
            continue
        scaling = next((clone.read_json(path) for path in paths if path.endswith(".json")), {})
        factor = float(scaling.get("scaling_factor", 1.0))
        scored = [time_ * factor for time_ in times[1:-1]]
        batches = {batch for _, batch in runs}
        yield {
            **hardware,
            "id": f"{entrant}.{system}.{benchmark}",
            "where": f"results/{system}/{benchmark}: run_start to run_stop of {len(times)} runs",
            "path": f"{entrant}/results/{system}/{benchmark}",
            "task": "train-to-target",
            "model": _model_and_quality(benchmark)[0],
            "setting": f"MLPerf Training {round_}, closed",
            "scenario": "training",
            # Logs do not name the number format. These formats are from the submitted code, as sources.yaml says.
            "dtype": "bfloat16" if hardware["device"] == "cpu" else "mixed",
            "measure": "time",
            "value": statistics.fmean(scored),
            "low": min(scored),
            "high": max(scored),
            "unit": "s",
            "runs": len(times),
            "global_batch": batches.pop() if len(batches) == 1 else "",
            "note": _join_notes(
                f"scaled by {factor:.4g} for convergence" if factor != 1 else "",
                hardware["preview"],
            ),
        }


def _parse_run(text: str) -> tuple[float, int] | None:
    """Return a run's seconds and global batch size, or None if the run did not reach its target quality."""
    start = stop = batch = 0
    done = False
    for match in _EVENT.finditer(text):
        try:
            event = json.loads(match[1])
        except ValueError:
            continue
        key = event.get("key")
        if key == "run_start" and not start:
            start = event["time_ms"]
        elif key == "run_stop":
            stop, done = event["time_ms"], done or event.get("metadata", {}).get("status") == "success"
        elif key == "global_batch_size":
            batch = int(event["value"])
    return ((stop - start) / 1000, batch) if start and stop and done else None


def inference_records(clone: Clone, round_: str) -> Iterator[Record]:
    """Yield records from one MLPerf Inference round."""
    beside: dict[str, list[str]] = {}
    for path in clone.paths:
        # These files name the weights' number format. Newer rounds keep them beside the results, older rounds in the
        # folder `measurements`.
        match = re.fullmatch(r"closed/([^/]+)/(?:measurements|results)/([^/]+/[^/]+/[^/]+)/[^/]+\.json", path)
        if match:
            beside.setdefault(f"{match[1]}/{match[2]}".lower(), []).append(path)
    system_of = cache(lambda entrant, system: clone.read_json(f"closed/{entrant}/systems/{system}.json"))
    pattern = re.compile(r"closed/([^/]+)/results/([^/]+)/([^/]+)/([^/]+)/performance/run_1/mlperf_log_summary\.txt")
    for path in clone.paths:
        match = pattern.fullmatch(path)
        if not match or match[4].lower() not in _FIGURES:
            continue
        entrant, system, benchmark, scenario = match.groups()
        hardware = _parse_system(system, system_of(entrant, system))
        if hardware is None:
            continue
        text = clone.read_text(path)
        _, figure, measure = _FIGURES[scenario.lower()]
        figures = figure.findall(text)
        if not figures or not re.search(r"Result is\s*:\s*VALID", text):
            continue
        # If a log has scores in samples and in tokens, take tokens, because they are the score for language models.
        name, value = next((figure for figure in figures if "okens" in figure[0]), figures[0])
        counted = "tokens" if "okens" in name else "samples"
        measured = beside.get(f"{entrant}/{system}/{benchmark}/{scenario}".lower(), [])
        weights = next(
            (kind for file in measured if (kind := str(clone.read_json(file).get("weight_data_types", "")))), ""
        )
        yield {
            **_inference_fields(hardware, benchmark, round_, scenario),
            "id": f"{entrant}.{system}.{benchmark}.{scenario}",
            "where": name,
            "path": path,
            "dtype": _parse_dtype(weights),
            "measure": measure,
            "value": float(value) / (1e9 if measure == "latency" else 1),
            "unit": "s" if measure == "latency" else f"{counted}/s",
            "note": _join_notes("90th percentile" if measure == "latency" else counted,
                            f"weights {weights}" if weights else "", hardware["preview"]),
        }  # fmt: skip


def collection_records(clone: Clone, round_: str) -> Iterator[Record]:
    """Yield records for one MLPerf Inference round from MLCommons' collection.

    The collection does not tell the number formats and the memory sizes.
    """
    pattern = re.compile(
        rf"experiment/mlperf-inference--{re.escape(round_)}--(datacenter|edge)--closed--[^/]+/[^/]+/cm-result\.json"
    )
    places: set[str] = set()
    for path in filter(pattern.fullmatch, clone.paths):
        for result in json.loads(clone.read_text(path)):
            # An inferred result repeats another result under a lower quality requirement, so it is left out.
            scenario, place = str(result["Scenario"]), str(result["Location"])
            if scenario.lower() not in _FIGURES or result["inferred"] or result["errors"] or place.lower() in places:
                continue
            described = {**result, "submitter": result["Organization"], "status": result["Availability"]}
            hardware = _parse_system(str(result["Platform"]), described)
            if hardware is None:
                continue
            places.add(place.lower())
            _, _, measure = _FIGURES[scenario.lower()]
            counted = str(result["Units"])
            yield {
                **_inference_fields(hardware, str(result["Model"]), round_, scenario),
                "id": f"{result['Organization']}.{result['Platform']}.{result['Model']}.{scenario}",
                "where": f"Result of {place}",
                "path": path,
                "dtype": "",
                "measure": measure,
                "value": float(result["Result"]) / (1e3 if measure == "latency" else 1),
                "unit": "s" if measure == "latency" else counted.lower(),
                "note": _join_notes("90th percentile" if measure == "latency" else counted, hardware["preview"]),
            }


def _inference_fields(hardware: Record, benchmark: str, round_: str, scenario: str) -> Record:
    """Return the fields that are common to inference records from both kinds of repositories."""
    model, quality = _model_and_quality(benchmark)
    scenario_name = _FIGURES[scenario.lower()][0]
    return {
        **hardware,
        "task": "infer",
        "model": model,
        "setting": f"MLPerf Inference {round_}, closed, {scenario_name}" + (f", {quality}%" if quality else ""),
        "scenario": _SCENARIOS[scenario_name],
        "quality": float(quality) / 100 if quality else "",
        "runs": 1,
    }


def _join_notes(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def write_records(records: list[Record], clone: Clone, repository: str, out: Path, date: str) -> None:
    """Write the CSV file for data/published.

    It contains the records for a model and setting that also have a CPU record, and all latency records.
    """
    bare = {(record["model"], record["setting"]) for record in records if record["device"] == "cpu"}
    written = [
        record for record in records if (record["model"], record["setting"]) in bare or record["measure"] == "latency"
    ]
    firsts = _earlier_results(out)
    rows = []
    for record in sorted(
        written, key=lambda record: (record["model"], record["setting"], record["device"], record["id"])
    ):
        address = f"https://github.com/mlcommons/{repository}/blob/{clone.commit}/{record['path']}"
        url = address.replace(" ", "%20").replace("(", "%28").replace(")", "%29")
        name = re.sub(r"[^a-z0-9_.-]+", "-", record["id"].lower()).strip("-.")
        fields = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in record.items()}
        row = {**fields, "id": name, "measured_by": record["by"], "url": url, "date": date}
        rows.append({**row, "copy_of": firsts.get(_result(row), "")})
    more = [name for name in _OPTIONAL if any(row.get(name) for row in rows)]
    with out.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [*_COLUMNS, *more], restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _result(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in _SAME_RESULT)


def _earlier_results(out: Path) -> dict[tuple[str, ...], str]:
    """Map each training result in the files of earlier rounds beside `out` to its first record (source/id)."""
    firsts: dict[tuple[str, ...], str] = {}
    if out.stem.startswith(_TRAINING):
        for path in sorted(out.parent.glob(f"{_TRAINING}*.csv")):
            if path.stem < out.stem:
                with path.open(newline="", encoding="utf-8") as file:
                    for row in csv.DictReader(file):
                        firsts.setdefault(_result(row), f"{path.stem}/{row['id']}")
    return firsts


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records from one MLPerf round. Raises StudyError if CLONE is no results repository."""
    parser = arguments.Parser(prog="python -m studies.mlperf", description=__doc__)
    parser.add_argument("kind", choices=["training", "inference"])
    parser.add_argument("clone", type=arguments.parse_path, metavar="CLONE")
    parser.add_argument("out", type=arguments.parse_path, metavar="SOURCE.csv")
    parser.add_argument("date", metavar="DATE")
    parser.add_argument("round", nargs="?", metavar="ROUND")
    options = parser.parse_args(argv)
    named = re.search(rf"{options.kind}_results_(v\d+\.\d+)", str(options.clone))
    collection = options.kind == "inference" and _COLLECTION in str(options.clone) and options.round
    if not (named or collection) or not options.clone.is_dir():
        raise StudyError(f"{options.clone}: no clone of {options.kind}_results_v…, nor of {_COLLECTION} with a round")
    clone = Clone(options.clone)
    if named:
        records = {"training": training_records, "inference": inference_records}[options.kind](clone, named[1])
    else:
        records = collection_records(clone, options.round)
    write_records(list(records), clone, named[0] if named else _COLLECTION, options.out, options.date)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
