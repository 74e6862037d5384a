"""llama-bench of a llama.cpp that is installed here, asked by its own JSON."""

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
# Names of llama.cpp's backends for GPUs.
GPU_BACKENDS = {"CUDA", "ROCm", "HIP", "Vulkan", "Metal", "MTL", "SYCL"}
# Tests of one kind that it makes after warming up.
REPEATS = 5


def program() -> str | None:
    """The path of llama-bench; None where there is none."""
    return shutil.which("llama-bench")


def seconds(path: Path, device: Device, threads: int, prompt: int, tokens: int) -> list[float]:
    """Seconds of each test: of a whole prompt, or, if `tokens` are to be written after it, of each token.

    Raises Unsupported where there is no llama-bench or it does not compute on the device, RuntimeError where it fails.
    """
    path_of = program()
    if path_of is None:
        raise Unsupported(ABSENT)
    test = ["-p", "0", "-n", str(tokens), "-d", str(prompt)] if tokens else ["-p", str(prompt), "-n", "0"]
    layers = "0" if device.kind == "cpu" else "999"
    # A build for GPUs would compute long prompts on one, wherever the layers are.
    limit = ["-dev", "none", "-t", str(threads)]
    if device.kind == "gpu":
        limit = ["-sm", "none", "-mg", device.name.partition(":")[2] or "0"]
    ended = run_program([path_of, "-m", str(path), "-ngl", layers, "-r", str(REPEATS), "-o", "json", *limit, *test])
    if ended.returncode:
        last = ([line for line in ended.stderr.splitlines() if line.strip()] or ["no word"])[-1].strip()
        raise RuntimeError(f"llama-bench ended with exit code {ended.returncode}: {last}")
    return _parsed(ended.stdout, device, tokens)


def _parsed(text: str, device: Device, tokens: int) -> list[float]:
    """The times in llama-bench's JSON. Raises RuntimeError if there are none, Unsupported as `seconds`."""
    try:
        answers: list[Mapping[str, Any]] = json.loads(text)
        found = [one * 1e-9 / (tokens or 1) for one in answers[0]["samples_ns"]]
        backends = str(answers[0]["backends"])
    except (ValueError, LookupError, TypeError):
        raise RuntimeError("llama-bench's JSON has no times: its version is too old or too new") from None
    if device.kind == "gpu" and not GPU_BACKENDS & set(backends.split(",")):
        raise Unsupported(f"the llama-bench on PATH computes by {backends} alone: build llama.cpp with -DGGML_CUDA=ON")
    return found
