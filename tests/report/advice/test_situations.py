"""Situations that the adviser reads from jobs: the part that computes, rated speed by format, sizes not told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from report.advice.formulas import FORMULAS
from report.advice.jobs import Situation, examine, parse_job


def read_job(kind: str, hardware: str, model: str = "Llama 3.1 8B", **more: Any) -> Situation:
    return examine(parse_job({"kind": kind, "model": model, "hardware": hardware, **more}))


@pytest.mark.parametrize(
    ("hardware", "software", "chip"),
    [
        ("Ryzen AI Max+ 395 128GB", "llama.cpp (Vulkan)", "radeon-8060s"),
        ("AMD Strix Halo (gfx1151) integrated GPU", "llama.cpp", "radeon-8060s"),
        ("Ryzen 7 7840U 32GB", "llama.cpp, ROCm", "radeon-780m"),
        ("Ryzen 7 7840U 32GB", "llama.cpp", "ryzen-7-7840u"),
        ("EPYC 9554", "ROCm", "epyc-9554"),
    ],
)
def test_vulkan_or_rocm_means_the_gpu_in_a_processor(hardware: str, software: str, chip: str) -> None:
    assert chip in read_job("decode", hardware, software=software).machine.chip


@pytest.mark.parametrize(
    ("hardware", "count"),
    [
        ("EPYC 9175F x2, 16x DDR5-6000", 2),
        ("EPYC 9554, 12x DDR5-4800", 1),
        ("Ryzen 9 5950X, 4x 16GB DIMM", 1),
        ("Xeon E5-2698B v3 x2, 8x 32GB", 2),
    ],
)
def test_memory_modules_are_no_processors(hardware: str, count: int) -> None:
    assert read_job("decode", hardware).machine.count == count


@pytest.mark.parametrize(
    ("hardware", "short", "long", "gain"),
    [
        ("H100", "fp8", "fp16", 2.0),
        ("A100 80GB", "fp8", "fp16", 1.0),
        ("Xeon 8480+", "bf16", "fp32", 2.0),
        ("EPYC 9554", "bf16", "fp32", 2.0),
        ("Core i7-8700K", "bf16", "fp32", 1.0),
    ],
)
def test_short_formats_are_faster_where_there_are_units_for_them(
    hardware: str, short: str, long: str, gain: float
) -> None:
    speeds = [read_job("serve", hardware, precision=each).inputs["flops"] for each in (short, long)]
    assert speeds[0] / speeds[1] == pytest.approx(gain)


def test_an_unknown_network_that_sees_pictures_is_no_language_model() -> None:
    sizes = {"pixels": 1024, "samples": 50000, "batch": 64}
    situation = read_job("train", "RTX 3090", "my own CNN", parameters=3.4e6, work=sizes)
    assert (situation.inputs["picture"], situation.inputs["language"]) == (1.0, 0.0)
    assert situation.inputs["item_flop"] == pytest.approx(400 * 3.4e6 * 32 / 224)


def test_a_program_on_a_gpu_is_apart_from_the_same_on_a_processor() -> None:
    names = [
        read_job("tables", hardware, "CatBoost", work={"rows": 1e6}).features["program"]
        for hardware in ("RTX 3090", "Ryzen 9 5950X")
    ]
    assert names == ["catboost on a GPU", "catboost"]


def test_prompts_are_usually_twice_as_long_as_answers() -> None:
    assert read_job("serve", "A100 80GB", work={"tokens_out": 50}).inputs["tokens_in"] == 100.0


def test_a_loaded_model_is_not_loaded_again() -> None:
    jobs = [
        read_job("transcribe", "RTX 3090", "Whisper large-v3", work={"audio_s": 30, "text": text})
        for text in ("one clip", "one clip, inference only")
    ]
    constants = {name: each.centre for name, each in FORMULAS["transcribe"].constants.items()}
    whole, loaded = (FORMULAS["transcribe"].time(each.inputs, constants) for each in jobs)
    assert whole - loaded == pytest.approx(1.54e9 * 2 / constants["load_rate"], rel=0.05)


def test_few_users_read_few_experts() -> None:
    steps = FORMULAS["serve"].steps
    names = [*steps][: [*steps].index("seen_bytes") + 1]
    seen = replace(FORMULAS["serve"], steps={name: steps[name] for name in names}, constants={})

    def read_share(users: float) -> float:
        inputs = read_job("serve", "H200", "Qwen3 30B-A3B", work={"users": users}).inputs
        return seen.time(inputs, {}) / (inputs["parameters"] * inputs["weight_bits"] / 8)

    assert 0.08 < read_share(1) < 0.15
    assert read_share(200) > 0.99
