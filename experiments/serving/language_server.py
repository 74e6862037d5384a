"""Language model behind llama.cpp's server: llama-server, or the same server in xllamacpp.

Both use OpenAI's protocol and continuous batching.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract import child_processes
from experiments.children import read_order
from experiments.language.llama_bench import GPU_BACKENDS
from experiments.workload import Unsupported, missing_library

LOOPBACK = "127.0.0.1"
PROGRAM = "llama-server"
ABSENT = f"{PROGRAM} is not on PATH: install llama.cpp (https://github.com/ggml-org/llama.cpp)"
# Number of layers to put on the GPU, larger than in any model.
ALL_LAYERS = 999
# Environment variables that turn off the prompt cache and requests to other hosts; older versions ignore them.
_SETTINGS = {"LLAMA_ARG_CACHE_RAM": "0", "LLAMA_ARG_OFFLINE": "1"}


def program_path() -> str | None:
    """Find llama-server on PATH; None if absent."""
    return shutil.which(PROGRAM)


def require_program(on_gpu: bool) -> str:
    """Find llama-server. Raises Unsupported if absent, or if `on_gpu` and its build supports no GPU."""
    if (path := program_path()) is None:
        raise Unsupported(ABSENT)
    # A GPU is listed as "  CUDA0: NVIDIA H100 (81000 MiB, 80000 MiB free)"; CPU libraries are listed too.
    gpu_line = rf"^\s+({'|'.join(GPU_BACKENDS)})\d*: "
    if on_gpu and not re.search(gpu_line, child_processes.run_program([path, "--list-devices"]).stdout, re.MULTILINE):
        raise Unsupported(f"the {PROGRAM} on PATH supports only CPUs: build llama.cpp with -DGGML_CUDA=ON")
    return path


def server_arguments(order: Mapping[str, Any]) -> list[str]:
    """Build llama-server's arguments from `order`, the mapping of settings that `main` reads."""
    words = ["-m", order["model"], "--host", LOOPBACK, "--port", "0", "-np", str(order["slots"])]
    threads = str(order["threads"] or max(1, len(order["cpus"])))
    words += ["-c", str(order["slots"] * order["context"]), "-t", threads, "-tb", threads]
    if order["gpu"] is None:
        # GPU builds would otherwise compute long prompts on the GPU, even with all layers on the CPU.
        return [*words, "-ngl", "0", "--device", "none"]
    return [*words, "-ngl", str(ALL_LAYERS), "-sm", "none", "-mg", str(order["gpu"])]


def start_library_server(order: Mapping[str, Any]) -> tuple[Any, int]:
    """Start xllamacpp's server; return the server and its port. The caller must keep a reference to the server.

    Raises ModuleNotFoundError if xllamacpp is missing.
    """
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = order["model"]
    settings.hostnames, settings.port, settings.offline = [LOOPBACK], 0, True
    settings.n_parallel, settings.n_ctx = order["slots"], order["slots"] * order["context"]
    settings.n_gpu_layers, settings.cache_ram_mib = 0, 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = order["threads"]
    server = xllamacpp.Server(settings)
    return server, int(server.listening_address.rpartition(":")[2])


def _log_to(path: str) -> None:
    """Redirect all output to a log file, and unlink the file: the parent process has it open."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND)
    Path(path).unlink()
    os.dup2(log, 1)
    os.dup2(log, 2)


def main() -> None:
    """Serve until the parent process ends.

    Orders: backend, model (a file), slots, context (tokens per slot), threads (0: as many as `cpus`), gpu (its number,
    None for CPU), log (a file), cpus (logical CPUs to which this process is pinned). The reply contains the port of
    xllamacpp's server, but 0 for llama-server: this process replies before llama-server replaces it and chooses a port.
    """
    order, reply = read_order()
    _log_to(order["log"])
    if order["backend"] == PROGRAM:
        reply({"port": 0})
        path = require_program(on_gpu=False)
        os.execve(path, [path, *server_arguments(order)], {**os.environ, **_SETTINGS})
    try:
        server, port = start_library_server(order)
    except ModuleNotFoundError as absent:
        reply({"unsupported": str(missing_library(absent))})
        return
    except RuntimeError as refusal:  # the log does not contain the error's message
        reply({"harness": f"xllamacpp's server does not start with {Path(order['model']).name}: {refusal}"})
        return
    reply({"port": port})
    while server:
        time.sleep(3600)


if __name__ == "__main__":
    main()
