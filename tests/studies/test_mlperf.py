"""Test which MLPerf results become records, and with which scores."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from studies.mlperf import main

SYSTEM: dict[str, Any] = {
    "division": "closed", "submitter": "Synthetic", "status": "available", "number_of_nodes": "2",
    "host_processor_model_name": "Synthetic Xeon", "host_processors_per_node": "2", "host_processor_core_count": "56",
    "accelerators_per_node": "0", "accelerator_model_name": "N/A", "framework": "PyTorch",
}  # fmt: skip
GPU = {**SYSTEM, "accelerators_per_node": "8", "accelerator_model_name": "NVIDIA H100-SXM-80GB"}


class Round:
    """Builder for a git repository with results from one MLPerf round."""

    def __init__(self, root: Path, kind: str, name: str = "") -> None:
        self.kind, self.at = kind, root / (name or f"{kind}_results_v9.9")
        self.at.mkdir()

    def file(self, path: str, text: str) -> None:
        (self.at / path).parent.mkdir(parents=True, exist_ok=True)
        (self.at / path).write_text(text)

    def add_training(self, name: str, system: dict[str, Any], seconds: list[float], status: str = "success") -> None:
        self.file(f"Maker/systems/{name}.json", json.dumps(system))
        for at, duration_s in enumerate(seconds):
            events = (
                ("global_batch_size", 256, 0, {}), ("run_start", None, 1000, {}),
                ("run_stop", None, 1000 + duration_s * 1000, {"status": status}),
            )  # fmt: skip
            lines = [
                f"0: :::MLLOG {json.dumps({'key': key, 'value': value, 'time_ms': time, 'metadata': more})}"
                for key, value, time, more in events
            ]
            self.file(f"Maker/results/{name}/bert/result_{at}.txt", "\n".join(["noise", *lines]))

    def add_inference(
        self, name: str, system: dict[str, Any], summary: str, scenario: str = "Offline", newer: bool = False
    ) -> None:
        work = f"{name}/resnet50/{scenario}"
        self.file(f"closed/Maker/systems/{name}.json", json.dumps(system))
        self.file(f"closed/Maker/results/{work}/performance/run_1/mlperf_log_summary.txt", summary)
        weights = json.dumps({"weight_data_types": "INT8"})
        beside = f"results/{work}/measurements.json" if newer else f"measurements/{work}/{name}.json"
        self.file(f"closed/Maker/{beside}", weights)

    def records(self, *round_: str, name: str = "records") -> list[dict[str, str]]:
        git = ["git", "-C", str(self.at), "-c", "user.name=test", "-c", "user.email=test@example.org"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "results"]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        out = self.at.parent / f"{name}.csv"
        assert main([self.kind, str(self.at), str(out), "2024-05", *round_]) == 0
        with out.open(newline="") as file:
            return list(csv.DictReader(file))


def test_score_is_mean_without_fastest_and_slowest_run(tmp_path: Path) -> None:
    repo = Round(tmp_path, "training")
    repo.add_training("cpus", SYSTEM, [100, 110, 120, 500, 90])
    repo.file("Maker/results/cpus/bert/scaling.json", json.dumps({"scaling_factor": 1.1}))
    repo.add_training("gpus", GPU, [10, 11, 12])
    cpus, gpus = repo.records()
    assert float(cpus["value"]) == pytest.approx(1.1 * 110) and float(gpus["value"]) == pytest.approx(11)
    assert (float(cpus["low"]), float(cpus["high"]), cpus["runs"]) == (pytest.approx(110), pytest.approx(132), "5")
    assert (cpus["device"], cpus["cores"], cpus["cpus"]) == ("cpu", "224", "4")
    assert (gpus["device"], gpus["gpus"], gpus["nodes"], gpus["model"]) == ("gpu", "16", "2", "BERT-large")
    assert gpus["global_batch"] == "256" and "scaled by 1.1" in cpus["note"]


def test_result_of_an_earlier_round_is_marked_as_its_copy(tmp_path: Path) -> None:
    for number in (8, 9):
        repo = Round(tmp_path, "training", f"training_results_v9.{number}")
        repo.add_training("cpus", SYSTEM, [100, 110 + number, 120])
        repo.add_training(f"gpus{number}", GPU, [10, 11, 12])
        copies = [row.get("copy_of", "") for row in repo.records(name=f"mlperf-training-9.{number}")]
        first = "mlperf-training-9.8/maker.gpus8.bert"
        assert copies == (["", first] if number == 9 else ["", ""])


def test_rates_name_what_they_count(tmp_path: Path) -> None:
    repo = Round(tmp_path, "inference")
    both = "Samples per second: 20\nTokens per second: 900\nResult is : VALID\n"
    repo.add_inference("cpus", {**SYSTEM, "number_of_nodes": "1"}, both)
    repo.add_inference("gpus", {**GPU, "number_of_nodes": "1"}, VALID.format(1600))
    assert [(row["unit"], float(row["value"])) for row in repo.records()] == [("tokens/s", 900), ("samples/s", 1600)]


def test_only_work_with_cpu_results_counts(tmp_path: Path) -> None:
    repo = Round(tmp_path, "training")
    repo.add_training("gpus", GPU, [10, 11, 12])
    assert repo.records() == []


def test_failed_runs_open_division_and_other_accelerators_are_left_out(tmp_path: Path) -> None:
    repo = Round(tmp_path, "training")
    repo.add_training("cpus", SYSTEM, [100, 110, 120])
    repo.add_training("failed", GPU, [10, 11, 12], status="aborted")
    repo.add_training("open", {**GPU, "division": "open"}, [10, 11, 12])
    repo.add_training("slices", {**GPU, "accelerator_model_name": "NVIDIA A100 (1x1g.10gb MIG)"}, [10, 11, 12])
    repo.add_training("other", {**GPU, "accelerator_model_name": "Habana Gaudi2"}, [10, 11, 12])
    assert [record["device"] for record in repo.records()] == ["cpu"]


def test_inference_reads_valid_summaries(tmp_path: Path) -> None:
    repo = Round(tmp_path, "inference")
    valid = "Samples per second: {}\nResult is : VALID\n"
    repo.add_inference("cpus", {**SYSTEM, "number_of_nodes": "1"}, valid.format(20))
    repo.add_inference(
        "gpus", {**GPU, "number_of_nodes": "1", "accelerator_memory_capacity": "81559 MiB"}, valid.format(1600)
    )
    repo.add_inference("broken", {**GPU, "number_of_nodes": "1"}, "Samples per second: 9\nResult is : INVALID\n")
    single = "90th percentile latency (ns) : 2000000\nResult is : VALID\n"
    repo.add_inference("one", {**GPU, "number_of_nodes": "1"}, single, "SingleStream")
    records = {record["id"]: record for record in repo.records()}
    assert sorted(records) == [
        "maker.cpus.resnet50.offline",
        "maker.gpus.resnet50.offline",
        "maker.one.resnet50.singlestream",
    ]
    gpu, alone = records["maker.gpus.resnet50.offline"], records["maker.one.resnet50.singlestream"]
    assert (float(gpu["value"]), gpu["dtype"], gpu["memory_bytes"]) == (1600, "int8", "81559000000")
    assert (gpu["unit"], alone["unit"]) == ("samples/s", "s")
    assert (float(alone["value"]), alone["measure"]) == (pytest.approx(0.002), "latency")


VALID = "Samples per second: {}\nResult is : VALID\n"


def test_inference_reads_newer_rounds(tmp_path: Path) -> None:
    repo = Round(tmp_path, "inference")
    repo.add_inference("cpus", {**SYSTEM, "number_of_nodes": "1"}, VALID.format(20), newer=True)
    repo.add_inference("gpus", {**GPU, "number_of_nodes": "1"}, VALID.format(1600), scenario="offline", newer=True)
    cpu, gpu = repo.records()
    assert (cpu["device"], gpu["device"]) == ("cpu", "gpu") and cpu["setting"] == gpu["setting"]
    assert cpu["dtype"] == gpu["dtype"] == "int8"


def test_untuned_code_and_gpus_listed_as_processors_are_left_out(tmp_path: Path) -> None:
    repo = Round(tmp_path, "inference")
    repo.add_inference("cpus", SYSTEM, VALID.format(20))
    repo.add_inference("box-reference-cpu-onnxruntime", SYSTEM, VALID.format(2))
    repo.add_inference("box-mlcommons_cpp-cpu-onnxruntime", SYSTEM, VALID.format(2))
    repo.add_inference("box-nvidia_original-gpu-tensorrt", SYSTEM, VALID.format(900))
    repo.add_inference("within", {**SYSTEM, "host_processor_model_name": "Synthetic Core [GPU]"}, VALID.format(100))
    assert [record["id"] for record in repo.records()] == ["maker.cpus.resnet50.offline"]


def test_collection_is_read_without_formats(tmp_path: Path) -> None:
    repo = Round(tmp_path, "inference", "cm4mlperf-results")
    base = {
        "Scenario": "Offline", "Organization": "Maker", "Model": "bert-99", "Availability": "available", "errors": 0,
        "inferred": 0, "Units": "Samples/s",
    }  # fmt: skip
    cpus = {**SYSTEM, **base, "Platform": "cpus", "Result": 20, "Location": "closed/Maker/results/cpus/bert-99/Offline"}
    gpus = {**GPU, **base, "Platform": "gpus", "Result": 1600, "Location": "closed/Maker/results/gpus/bert-99/Offline"}
    inferred = {**gpus, "inferred": 1, "Location": "closed/Maker/results/gpus/bert-98/Offline"}
    single = {**gpus, "Scenario": "SingleStream", "Units": "Latency (ms)", "Result": 2.5, "Location": "closed/single"}
    place = "experiment/mlperf-inference--v9.9--{}--closed--language-processing--offline/2024/cm-result.json"
    repo.file(place.format("datacenter"), json.dumps([cpus, gpus, inferred]))
    repo.file(place.format("edge"), json.dumps([gpus, single]))
    repo.file(place.format("datacenter").replace("v9.9", "v8.8"), json.dumps([cpus]))
    records = {record["id"]: record for record in repo.records("v9.9")}
    assert {name: float(entry["value"]) for name, entry in records.items()} == {
        "maker.cpus.bert-99.offline": 20,
        "maker.gpus.bert-99.offline": 1600,
        "maker.gpus.bert-99.singlestream": 0.0025,
    }
    gpu = records["maker.gpus.bert-99.offline"]
    assert (gpu["dtype"], gpu["gpus"], gpu["setting"]) == ("", "16", "MLPerf Inference v9.9, closed, Offline, 99%")
    assert gpu["where"].endswith("gpus/bert-99/Offline") and "/cm4mlperf-results/blob/" in gpu["url"]


def test_error_names_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no clone of training_results_v"):
        main(["training", str(tmp_path), str(tmp_path / "out.csv"), "2024"])
