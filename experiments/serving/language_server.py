"""A language model behind its runtime's own server: llama-server, or the same in xllamacpp's library.

Both are llama.cpp's server: they speak OpenAI's protocol, and batch the users' tokens as they come.
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
# Layers of which no model has more.
ALL_LAYERS = 999
# Settings that versions without them need not know: the server keeps no answered prompts, and asks no other host.
_SETTINGS = {"LLAMA_ARG_CACHE_RAM": "0", "LLAMA_ARG_OFFLINE": "1"}


def program_path() -> str | None:
    """The path of llama-server; None where there is none."""
    return shutil.which(PROGRAM)


def require_program(on_gpu: bool) -> str:
    """The path of llama-server. Raises Unsupported where it is absent, or, for a GPU, its build computes on none."""
    if (path := program_path()) is None:
        raise Unsupported(ABSENT)
    # "  CUDA0: NVIDIA H100 (81000 MiB, 80000 MiB free)"; libraries for CPUs are listed as well.
    listed = rf"^\s+({'|'.join(GPU_BACKENDS)})\d*: "
    if on_gpu and not re.search(listed, child_processes.run_program([path, "--list-devices"]).stdout, re.MULTILINE):
        raise Unsupported(f"the {PROGRAM} on PATH computes on CPUs alone: build llama.cpp with -DGGML_CUDA=ON")
    return path


def server_arguments(asked: Mapping[str, Any]) -> list[str]:
    """Arguments of llama-server for the orders of `main`."""
    words = ["-m", asked["model"], "--host", LOOPBACK, "--port", "0", "-np", str(asked["slots"])]
    threads = str(asked["threads"] or max(1, len(asked["cpus"])))
    words += ["-c", str(asked["slots"] * asked["context"]), "-t", threads, "-tb", threads]
    if asked["gpu"] is None:
        # A build for GPUs would compute long prompts on one, wherever the layers are.
        return [*words, "-ngl", "0", "--device", "none"]
    return [*words, "-ngl", str(ALL_LAYERS), "-sm", "none", "-mg", str(asked["gpu"])]


def start_library_server(asked: Mapping[str, Any]) -> tuple[Any, int]:
    """xllamacpp's server, which answers as long as it is held, and its port. Raises ModuleNotFoundError."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = asked["model"]
    settings.hostnames, settings.port, settings.offline = [LOOPBACK], 0, True
    settings.n_parallel, settings.n_ctx = asked["slots"], asked["slots"] * asked["context"]
    settings.n_gpu_layers, settings.cache_ram_mib = 0, 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = asked["threads"]
    server = xllamacpp.Server(settings)
    return server, int(server.listening_address.rpartition(":")[2])


def _log_to(path: str) -> None:
    """Send all output of this process to a file, which its maker holds open and nobody finds afterwards."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND)
    Path(path).unlink()
    os.dup2(log, 1)
    os.dup2(log, 2)


def main() -> None:
    """Serve until the parent is gone.

    Orders: backend, model (a file), slots, context (tokens of a slot), threads (0: as many as `cpus`), gpu (its number;
    None: a CPU computes), log (a file), cpus. The answer tells the port of a library; a program takes this process
    over, and tells nobody.
    """
    asked, tell = read_order()
    _log_to(asked["log"])
    if asked["backend"] == PROGRAM:
        tell({"port": 0})
        path = require_program(on_gpu=False)
        os.execve(path, [path, *server_arguments(asked)], {**os.environ, **_SETTINGS})
    try:
        server, port = start_library_server(asked)
    except ModuleNotFoundError as absent:
        tell({"unsupported": str(missing_library(absent))})
        return
    except RuntimeError as refusal:  # the library's log, which is written meanwhile, gives no such reason
        tell({"harness": f"the server of xllamacpp does not start with {Path(asked['model']).name}: {refusal}"})
        return
    tell({"port": port})
    while server:
        time.sleep(3600)


if __name__ == "__main__":
    main()
