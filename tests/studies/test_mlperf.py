"""MLPerf's result logs become records: how a score is made of runs, and which entries count."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from studies.mlperf import main

SYSTEM: dict[str, Any] = {
    "division": "closed", "submitter": "Synthetic", "status": "available", "number_of_nodes": "2",
    "host_processor_model_name": "Synthetic Xeon", "host_processors_per_node": "2", "host_processor_core_count": "56",
    "accelerators_per_node": "0", "accelerator_model_name": "N/A", "framework": "PyTorch",
}  # fmt: skip
GPU = {**SYSTEM, "accelerators_per_node": "8", "accelerator_model_name": "NVIDIA H100-SXM-80GB"}


class Round:
    """A repository of results under construction."""

    def __init__(self, root: Path, kind: str) -> None:
        self.kind, self.at = kind, root / f"{kind}_results_v9.9"
        self.at.mkdir()

    def file(self, path: str, text: str) -> None:
        (self.at / path).parent.mkdir(parents=True, exist_ok=True)
        (self.at / path).write_text(text)

    def trained(self, name: str, system: dict[str, Any], seconds: list[float], status: str = "success") -> None:
        self.file(f"Maker/systems/{name}.json", json.dumps(system))
        for at, one in enumerate(seconds):
            events = (
                ("global_batch_size", 256, 0, {}), ("run_start", None, 1000, {}),
                ("run_stop", None, 1000 + one * 1000, {"status": status}),
            )  # fmt: skip
            lines = [
                f"0: :::MLLOG {json.dumps({'key': key, 'value': value, 'time_ms': time, 'metadata': more})}"
                for key, value, time, more in events
            ]
            self.file(f"Maker/results/{name}/bert/result_{at}.txt", "\n".join(["noise", *lines]))

    def answered(self, name: str, system: dict[str, Any], summary: str, scenario: str = "Offline") -> None:
        self.file(f"closed/Maker/systems/{name}.json", json.dumps(system))
        self.file(f"closed/Maker/results/{name}/resnet50/{scenario}/performance/run_1/mlperf_log_summary.txt", summary)
        weights = json.dumps({"weight_data_types": "INT8"})
        self.file(f"closed/Maker/measurements/{name}/resnet50/{scenario}/{name}.json", weights)

    def records(self) -> list[dict[str, str]]:
        git = ["git", "-C", str(self.at), "-c", "user.name=test", "-c", "user.email=test@example.org"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "results"]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        out = self.at.parent / "records.csv"
        assert main([self.kind, str(self.at), str(out), "2024-05"]) == 0
        with out.open(newline="") as file:
            return list(csv.DictReader(file))


def test_a_score_is_the_mean_of_the_runs_without_the_fastest_and_the_slowest(tmp_path: Path) -> None:
    made = Round(tmp_path, "training")
    made.trained("cpus", SYSTEM, [100, 110, 120, 500, 90])
    made.file("Maker/results/cpus/bert/scaling.json", json.dumps({"scaling_factor": 1.1}))
    made.trained("gpus", GPU, [10, 11, 12])
    cpus, gpus = made.records()
    assert float(cpus["value"]) == pytest.approx(1.1 * 110) and float(gpus["value"]) == pytest.approx(11)
    assert (float(cpus["low"]), float(cpus["high"]), cpus["runs"]) == (pytest.approx(110), pytest.approx(132), "5")
    assert (cpus["device"], cpus["cores"], cpus["cpus"]) == ("cpu", "224", "4")
    assert (gpus["device"], gpus["gpus"], gpus["nodes"], gpus["model"]) == ("gpu", "16", "2", "BERT-large")
    assert "global batch 256" in gpus["note"] and "scaled by 1.1" in cpus["note"]


def test_only_what_a_machine_without_a_gpu_did_too_counts(tmp_path: Path) -> None:
    made = Round(tmp_path, "training")
    made.trained("gpus", GPU, [10, 11, 12])
    assert made.records() == []


def test_failed_runs_open_entries_and_other_accelerators_do_not_count(tmp_path: Path) -> None:
    made = Round(tmp_path, "training")
    made.trained("cpus", SYSTEM, [100, 110, 120])
    made.trained("failed", GPU, [10, 11, 12], status="aborted")
    made.trained("open", {**GPU, "division": "open"}, [10, 11, 12])
    made.trained("slices", {**GPU, "accelerator_model_name": "NVIDIA A100 (1x1g.10gb MIG)"}, [10, 11, 12])
    made.trained("other", {**GPU, "accelerator_model_name": "Habana Gaudi2"}, [10, 11, 12])
    assert [one["device"] for one in made.records()] == ["cpu"]


def test_answers_are_read_from_the_valid_summaries(tmp_path: Path) -> None:
    made = Round(tmp_path, "inference")
    valid = "Samples per second: {}\nResult is : VALID\n"
    made.answered("cpus", {**SYSTEM, "number_of_nodes": "1"}, valid.format(20))
    made.answered(
        "gpus", {**GPU, "number_of_nodes": "1", "accelerator_memory_capacity": "81559 MiB"}, valid.format(1600)
    )
    made.answered("broken", {**GPU, "number_of_nodes": "1"}, "Samples per second: 9\nResult is : INVALID\n")
    single = "90th percentile latency (ns) : 2000000\nResult is : VALID\n"
    made.answered("one", {**GPU, "number_of_nodes": "1"}, single, "SingleStream")
    found = {one["id"]: one for one in made.records()}
    assert sorted(found) == [
        "maker.cpus.resnet50.offline",
        "maker.gpus.resnet50.offline",
        "maker.one.resnet50.singlestream",
    ]
    gpu, alone = found["maker.gpus.resnet50.offline"], found["maker.one.resnet50.singlestream"]
    assert (float(gpu["value"]), gpu["dtype"], gpu["unit"], gpu["memory_bytes"]) == (1600, "int8", "1/s", "81559000000")
    assert (float(alone["value"]), alone["measure"]) == (pytest.approx(0.002), "latency")


def test_a_folder_that_is_no_round_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "nothing"
    folder.mkdir()
    assert main(["training", str(folder), str(tmp_path / "out.csv"), "2024"]) == 2
    assert "no clone of training_results_v" in capsys.readouterr().err
