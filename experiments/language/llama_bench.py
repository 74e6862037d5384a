"""Timings by llama.cpp's benchmark program llama-bench, if it is installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.child_processes import run_program
from experiments.devices import Device
from experiments.workload import Unsupported

ABSENT = "llama-bench is not on PATH: install llama.cpp (https://github.com/ggml-org/llama.cpp)"
GPU_BACKENDS = {"CUDA", "ROCm", "HIP", "Vulkan", "Metal", "MTL", "SYCL"}
# Timed repeats per test. llama-bench adds a warm-up to them.
REPEATS = 5


def program_path() -> str | None:
    """Return the path to llama-bench, or None if it is not on PATH."""
    return shutil.which("llama-bench")


def test_seconds(path: Path, device: Device, threads: int, prompt: int, tokens: int) -> list[float]:
    """Run llama-bench and return the seconds for each repeat.

    If `tokens` is 0, a repeat processes a prompt with `prompt` tokens. Otherwise it decodes `tokens` tokens after this
    prompt, and the result is in seconds per decoded token. Raises Unsupported if llama-bench is absent or does not
    support the device, RuntimeError if it fails.
    """
    program = program_path()
    if program is None:
        raise Unsupported(ABSENT)
    test = ["-p", "0", "-n", str(tokens), "-d", str(prompt)] if tokens else ["-p", str(prompt), "-n", "0"]
    layers = "0" if device.kind == "cpu" else "999"
    # For a CPU, exclude all GPUs: GPU builds would compute long prompts on a GPU even if all layers are on the CPU.
    limit = ["-dev", "none", "-t", str(threads)]
    if device.kind == "gpu":
        limit = ["-sm", "none", "-mg", device.name.partition(":")[2] or "0"]
    ended = run_program([program, "-m", str(path), "-ngl", layers, "-r", str(REPEATS), "-o", "json", *limit, *test])
    if ended.returncode:
        last = ([line for line in ended.stderr.splitlines() if line.strip()] or ["no message"])[-1].strip()
        raise RuntimeError(f"llama-bench failed with exit code {ended.returncode}: {last}")
    return _parse_seconds(ended.stdout, device, tokens)


def _parse_seconds(text: str, device: Device, tokens: int) -> list[float]:
    """Return the seconds for each repeat from llama-bench's JSON output `text`; per decoded token unless `tokens` is 0.

    Raises RuntimeError if the output has no times, Unsupported if this llama-bench build does not support the GPU.
    """
    try:
        answers: list[Mapping[str, Any]] = json.loads(text)
        seconds = [sample * 1e-9 / (tokens or 1) for sample in answers[0]["samples_ns"]]
        backends = str(answers[0]["backends"])
    except (ValueError, LookupError, TypeError):
        raise RuntimeError("llama-bench's JSON has no times: its version is too old or too new") from None
    if device.kind == "gpu" and not GPU_BACKENDS & set(backends.split(",")):
        raise Unsupported(f"the llama-bench on PATH supports only {backends}: build llama.cpp with -DGGML_CUDA=ON")
    return seconds
