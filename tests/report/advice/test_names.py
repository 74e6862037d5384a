"""Names of chips, models, formats and programs, as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.advice.chips import GIB, UnknownNameError, find_machine, rows
from report.advice.formats import find_format, find_program
from report.advice.models import find_model, listed_models, size_in_name


@pytest.mark.parametrize(
    ("text", "chip", "count", "memory"),
    [
        ("RTX 3060 12GB", "rtx-3060-12gb", 1, 12),
        ("rtx3060ti", "rtx-3060-ti", 1, 8),
        ("3090", "rtx-3090", 1, 24),
        ("4090 x 2", "rtx-4090", 2, 24),
        ("Two RTX 3090", "rtx-3090", 2, 24),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super", 1, 16),
        ("4x A100-SXM4-80GB", "a100-sxm-80gb", 4, 80),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb", 1, 40),
        ("V100 (32G)", "v100-sxm2-32gb", 1, 32),
        ("2x A10G 24GB", "a10g", 2, 24),
        ("A6000", "rtx-a6000", 1, 48),
        ("NVIDIA Quadro RTX 5000", "quadro-rtx-5000", 1, 16),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada", 1, 48),
        ("RX 7900XTX", "rx-7900-xtx", 1, 24),
        ("2x Xeon 8480+", "xeon-8480-plus", 2, 256),
        ("dual Xeon Gold 6226R", "xeon-6226r", 2, 256),
        ("EPYC 9654 2-socket", "epyc-9654", 2, 256),
        ("AMD EPYC 7443P", "epyc-7443", 1, 256),
        ("Ryzen 5 7600", "amd-ryzen-5-or-7-7000", 1, 32),
        ("Core i9-7900X", "intel-core-x", 1, 32),
        ("Intel(R) Core(TM) i7-10700K CPU @ 3.80GHz", "core-i7-10700k", 1, 32),
        ("M2 Ultra 76-core GPU 192GB", "apple-m2-ultra-76", 1, 192),
        ("MacBook Pro M3 Pro 18GB", "apple-m3-pro-18", 1, 18),
        ("Ryzen AI Max+ 395 128GB (Radeon 8060S)", "radeon-8060s", 1, 128),
        ("RTX 4090 + Ryzen 9 7950X", "rtx-4090", 1, 24),
        ("Colab T4", "t4", 1, 16),
    ],
)
def test_machines_are_recognised(text: str, chip: str, count: int, memory: float) -> None:
    machine = find_machine(text)
    assert (machine.chip, machine.count) == (chip, count)
    assert machine.memory_bytes / GIB == pytest.approx(memory, rel=0.02)


def test_a_text_changes_memory_speed_cores_and_memory() -> None:
    fast = find_machine("Core i9-13900K DDR5-6400 64GB")
    assert fast.bandwidth == pytest.approx(2 * 8 * 6400e6)
    assert fast.memory_bytes == 64 * GIB
    assert find_machine("Core i5-12400 DDR4-3200 dual channel").bandwidth == pytest.approx(51.2e9)
    part = find_machine("AWS c5.4xlarge (16 vCPU)")
    assert part.cores == 8
    assert find_machine("Apple M1 (CPU only)").is_cpu


def test_a_machine_of_ones_own_is_read_from_its_figures() -> None:
    own = find_machine("936 GB/s, 71 TFLOP/s, 24 GB")
    assert (own.bandwidth, own.matrix_flops, own.memory_bytes) == (936e9, 71e12, 24 * GIB)


def test_laptop_builds_are_slower_than_cards() -> None:
    for name in ("RTX 3060", "RTX 2080 Super"):
        assert find_machine(f"{name} laptop").vector_flops < find_machine(name).vector_flops * 1.02
        assert find_machine(f"{name} laptop").kind == "gpu-laptop"


@pytest.mark.parametrize("text", ["toaster 9000", "TPU v3", "", "GTX 9999"])
def test_unknown_hardware_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnknownNameError, match=f"hardware '{text}' is not known"):
        find_machine(text)
    assert UnknownNameError("hardware", "RX 79000", ("Radeon RX 7900 XT",)).nearest == ("Radeon RX 7900 XT",)


@given(st.sampled_from([row.machine for row in rows()]), st.integers(2, 16))
def test_every_listed_chip_is_recognised_by_its_own_name(machine: object, count: int) -> None:
    name = getattr(machine, "name", "")
    recognised = find_machine(name)
    assert recognised.bandwidth == pytest.approx(getattr(machine, "bandwidth", 0), rel=0.5)
    assert find_machine(f"{count}x {name}").count == count


@pytest.mark.parametrize(
    ("text", "kind", "key"),
    [
        ("Llama 3.1 8B", "decode", "llama-3.1-8b"),
        ("llama3.1:8b", "decode", "llama-3.1-8b"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M", "decode", "llama-3.1-8b"),
        ("GPT-2 124M", "train", "gpt2"),
        ("gpt2", "train", "gpt2"),
        ("resnet50", "classify", "resnet50"),
        ("ResNet-50", "train", "resnet50"),
        ("Whisper large-v2", "transcribe", "whisper-large-v2"),
        ("SD 1.5", "pictures", "sd-1.5"),
        ("Stable Diffusion 1.4", "pictures", "sd-1.5"),
        ("BERT-base uncased", "fine-tune", "bert-base"),
        ("sentence-transformers/all-MiniLM-L6-v2", "embed", "all-minilm-l6-v2"),
        ("DeepSeek-R1-Distill-Qwen-7B", "decode", "deepseek-r1-distill-qwen-7b"),
    ],
)
def test_models_are_recognised(text: str, kind: str, key: str) -> None:
    expected = listed_models().get(key)
    recognised = find_model(text, kind)
    assert recognised.listed
    assert expected is None or recognised.parameters == pytest.approx(expected.parameters, rel=0.01)


def test_a_model_with_a_size_alone_gets_the_usual_shape() -> None:
    model = find_model("some new model 7B", "decode")
    assert not model.listed
    assert model.parameters == 7e9
    assert 24 <= model.layers <= 40
    experts = find_model("Brand-new-30B-A3B", "decode")
    assert (experts.parameters, experts.active) == (30e9, 3e9)


def test_a_size_that_contradicts_a_name_is_heeded() -> None:
    assert find_model("Llama 3 70B", "decode").parameters == pytest.approx(70.6e9, rel=0.02)
    assert find_model("Qwen3", "decode", 8.2e9).parameters == pytest.approx(8.2e9, rel=0.05)


def test_an_unknown_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="model 'resnet5000' is not known") as caught:
        find_model("resnet5000", "classify")
    assert caught.value.nearest


@pytest.mark.parametrize(
    ("text", "size"),
    [("7B", 7e9), ("0.5b", 5e8), ("GPT-2 124M", 1.24e8), ("Mixtral 8x7B", 46.5e9), ("YOLOv8m", 0), ("base", 0)],
)
def test_sizes_in_names(text: str, size: float) -> None:
    assert size_in_name(text) == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize(
    ("text", "bits", "arithmetic"),
    [
        ("Q4_K_M", 4.85, "float16"),
        ("q8_0", 8.5, "float16"),
        ("bf16", 16, "bfloat16"),
        ("fp32", 32, "float32"),
        ("4bit (QLoRA)", 4.5, "float16"),
        ("GPTQ-Int8", 8.3, "float16"),
        ("AWQ", 4.3, "float16"),
        ("int8", 8.5, "int8"),
        ("FP8", 8, "float8"),
    ],
)
def test_formats(text: str, bits: float, arithmetic: str) -> None:
    form = find_format(text)
    assert form is not None
    assert (form.weight_bits, form.arithmetic) == (bits, arithmetic)


def test_programs() -> None:
    names = {
        "llama.cpp b2100": "llama.cpp", "Ollama": "llama.cpp", "vLLM 0.4": "vllm", "SGLang": "vllm",
        "openai/whisper": "openai-whisper", "whisper.cpp": "whisper.cpp", "faster-whisper": "faster-whisper",
        "LightGBM (R)": "lightgbm",
        "XGBoost exact": "xgboost-exact", "transformers / PyTorch": "transformers", "PyTorch 2.1": "pytorch",
        "my own": "",
    }  # fmt: skip
    assert {text: find_program(text) for text in names} == names
    assert find_format("as it comes") is None
