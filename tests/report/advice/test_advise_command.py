"""Command `advise`: what people read, files with jobs, and mistakes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contract.errors import StudyError
from report.advice.answers import Range, answer, read_calibration
from report.advice.choices import read_words
from report.advice.jobs import KINDS, Job
from report.advice.own_outcomes import hardware_text
from report.advice.this_machine import THIS, machine_text
from report.cli import main
from report.commands.advise import parse_result, parse_time


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["advise", *words]) == 0
    return capsys.readouterr().out


def test_one_machine(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "--chat", "--model", "llama-3.1-8b", "--on", "RTX 3060 12GB", "--software", "llama.cpp")
    first, memory = text.splitlines()[:2]
    assert first.startswith("GeForce RTX 3060 12 GB chats with Llama 3.1 8B at ")
    assert first.endswith(").")
    assert " to " in first
    assert "weights 4.9 GB" in memory
    assert "it fits." in memory
    assert text.count("https://") == 2
    assert "off by" in text.splitlines()[-1]


def test_all_machines_and_a_wish(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "--transcribe", "--model", "whisper-large-v3", "--within", "12h", "--work", "audio_s=360000")
    assert "you want it within 12 hours" in text.splitlines()[0]
    rows = [line for line in text.splitlines() if "fits" in line and " to " in line]
    assert len(rows) > 25
    with_budget = run(capsys, "--transcribe", "--model", "whisper-large-v3", "--within", "12h", "--budget", "400")
    assert "RTX 4090" not in with_budget
    assert "RTX 3060" in with_budget


@pytest.mark.parametrize(
    ("own", "words"),
    [("100h", "is slower than the range"), ("3min", "is faster than the range"), ("3h", "is normal")],
)
def test_is_my_time_normal(capsys: pytest.CaptureFixture[str], own: str, words: str) -> None:
    sizes = ["samples=1000000", "tokens_per_sample=128", "batch=32"]
    text = run(capsys, "--fine-tune", "--model", "bert-base", "--on", "T4", "--normal", own, "--work", *sizes)
    assert words in text
    assert all(cause in text for cause in read_words()["causes"]["fine-tune"])


def test_the_year_of_the_software_counts(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tables", "--on", "Ryzen 9 5950X", "--normal", "20h", "--work", "rows=1000000"]
    old, new = (run(capsys, *options, "--year", year) for year in ("2019", "2025"))
    times = [
        float(re.search(r"([\d,.]+) times as long as the middle", text)[1].replace(",", "")) for text in (old, new)
    ]
    slope = read_calibration()["kinds"]["tables"]["year"]
    assert times[1] / times[0] == pytest.approx(math.exp(-6 * slope), rel=0.1)


def test_a_file_of_jobs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    jobs = [
        {"id": "a", "kind": "decode", "model": "Llama 3.1 8B", "hardware": "RTX 4090", "unit": "token/s", "work": {}},
        {"id": "b", "kind": "decode", "model": "Llama 3.1 8B", "hardware": "toaster", "unit": "token/s", "work": {}},
    ]
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n".join(map(json.dumps, jobs)) + "\n\n", encoding="utf-8")
    answers = [json.loads(line) for line in run(capsys, "--jobs", str(file), "--json").splitlines()]
    assert [each["id"] for each in answers] == ["a", "b"]
    assert answers[0]["middle"] > 0
    assert "toaster" in answers[1]["refused"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "tell the job"),
        (["--chat", "--on", "RTX 4090"], "model is missing"),
        (["--chat", "--model", "llama-3.1-8b", "--on", "toaster"], "hardware 'toaster' is not known"),
        (["--chat", "--model", "nonesuch"], "model 'nonesuch' is not known"),
        (["--chat", "--model", "llama-3.1-8b", "--within", "2h"], "--within is for a time"),
        (["--train", "--model", "gpt2", "--want", "20 token/s"], "--want is for a rate"),
        (["--chat", "--model", "llama-3.1-8b", "--want", "fast"], "is not a rate such as"),
        (["--chat", "--model", "llama-3.1-8b", "--want", "20 GB/s"], "is not a rate such as"),
        (["--train", "--model", "gpt2", "--on", "T4", "--normal", "30"], "neither a time such as 30h nor a rate"),
        (["--train", "--model", "gpt2", "--on", "T4", "--normal", "3 GB/s"], "unit 'gb/s' is not one of"),
        (["--train", "--model", "gpt2", "--within", "soon"], "is not a time such as"),
        (["--train", "--model", "gpt2", "--work", "sample=3"], "no size is called 'sample'"),
        (["--train", "--model", "gpt2", "--work", "samples=many"], "must be NAME=NUMBER"),
        (["--train", "--model", "gpt2", "--work", "samples=-3"], "must be above 0"),
        (["--train", "--model", "gpt2", "--normal", "3h"], "--normal needs a machine"),
        (["--pictures", "--model", "sdxl", "--on", "RTX 4090", "--measure"], "no point of two minutes for pictures"),
    ],
)
def test_mistakes_have_one_line(words: list[str], message: str) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        main(["advise", *words])
    assert "\n" not in str(caught.value)


def test_a_broken_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    for text, message in (("{", "line 1: not JSON"), ("3", "line 1: must be a JSON object")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(StudyError, match=message):
            main(["advise", "--jobs", str(file)])


@pytest.mark.parametrize(
    ("kind", "own", "times"),
    [("--train", "2 sample/s", 0.5), ("--train", "64 s/step", 4.0), ("--train", "64 s/it", 4.0),
     ("--train", "0.5 steps a second", 0.125), ("--chat", "8 tokens per second", 0.125), ("--chat", "2 s/token", 2.0)],
)  # fmt: skip
def test_own_result_may_be_a_rate(kind: str, own: str, times: float) -> None:
    """Batches of 16, and one second for an item in place of the answer."""
    job = {"--train": Job("", "train", "gpt2", "RTX 4090", work={"batch": 16.0}, unit="s/step"),
           "--chat": Job("", "decode", "gpt2", "RTX 4090", work={}, unit="token/s")}[kind]  # fmt: skip
    answered = replace(answer(job, read_calibration()), time=Range(0.5, 1.0, 2.0))
    assert parse_result(own, job.kind).item_seconds(answered) == pytest.approx(times)


@pytest.mark.parametrize(("text", "seconds"), [("2h", 7200), ("30 min", 1800), ("1.5 days", 129600), ("90s", 90)])
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


def test_this_machine_is_named_and_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert machine_text("RTX 4090") == "RTX 4090"
    assert machine_text(THIS) not in ("", THIS)
    text = run(capsys, "--tables", "--on", THIS, "--work", "rows=100000")
    assert "learns from a table by XGBoost in" in text


def test_a_virtual_machine_is_named_by_its_instructions() -> None:
    cpu = {"model": "Intel(R) Xeon(R) Processor", "usable_cores": 16, "virtual": True, "simd": ["amx_bf16"]}
    assert "sapphire rapids 16 cores" in hardware_text({"cpu": cpu, "memory_bytes": 2**37}, gpu=False)
    assert hardware_text({"gpus": [{"name": "NVIDIA H100 80GB HBM3"}]}, gpu=True) == "NVIDIA H100 80GB HBM3"


def test_words_cover_all_kinds() -> None:
    words, calibration = read_words(), read_calibration()
    kinds = set(KINDS) - {"fit", "memory", "prompt"}
    assert set(words["kinds"]) == kinds
    assert set(words["causes"]) == kinds | {"prompt"}
    assert set(calibration["kinds"]) == kinds | {"prompt"}
    assert len(words["examples"]) == 8
    assert Range(1, 2, 4).scale(2) == Range(2, 4, 8)


def test_options_with_several_values_may_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--train", "--model", "gpt2", "--on", "RTX 4090"]
    together = run(capsys, *job, "A100", "--work", "samples=1000", "tokens_per_sample=1024")
    apart = run(capsys, *job, "--on", "A100", "--work", "samples=1000", "--work", "tokens_per_sample=1024")
    assert apart == together
    assert "RTX 4090" in apart and "A100" in apart
