"""Measuring processes get only the listed variables, and records hold nothing private."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import worker_environment
from experiments.models import ranks
from experiments.serving import server_processes
from experiments.worker_processes import Worker


def split_names(text: str) -> list[str]:
    return text.split()


# Each of these variables is needed for measuring on some machine.
NEEDED = split_names(
    "PATH HOME TMPDIR TEMP LANG LC_ALL LC_CTYPE PYTHONPATH PYTHONHOME VIRTUAL_ENV LD_LIBRARY_PATH "
    "DYLD_LIBRARY_PATH SYSTEMROOT CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES "
    "ZE_AFFINITY_MASK ONEAPI_DEVICE_SELECTOR CUDA_HOME CUDA_PATH VK_DRIVER_FILES VK_ICD_FILENAMES XDG_RUNTIME_DIR "
    "XDG_CACHE_HOME"
)
# Each of these variables changes measurements in a different way.
SPOILING = split_names(
    "LD_PRELOAD LD_AUDIT LD_BIND_NOW DYLD_INSERT_LIBRARIES GLIBC_TUNABLES MALLOC_ARENA_MAX MALLOC_PERTURB_ "
    "OPENBLAS_CORETYPE OMP_NUM_THREADS OMP_PROC_BIND KMP_AFFINITY KMP_BLOCKTIME MKL_CBWR ONEDNN_MAX_CPU_ISA "
    "ATEN_CPU_CAPABILITY TORCH_LOGS TORCHINDUCTOR_MAX_AUTOTUNE TORCHDYNAMO_DISABLE PYTORCH_CUDA_ALLOC_CONF "
    "PYTORCH_ENABLE_MPS_FALLBACK ONNXRUNTIME_LOG ORT_DISABLE CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING "
    "NVIDIA_TF32_OVERRIDE NCCL_P2P_DISABLE XLA_FLAGS TRITON_INTERPRET NUMBA_DISABLE_JIT POLARS_MAX_THREADS "
    "PYTHONOPTIMIZE PYTHONDEVMODE PYTHONTRACEMALLOC PYTHONMALLOC PYTHONFAULTHANDLER PYTHONHASHSEED PYTHONWARNINGS "
    "PYTHONSTARTUP PYTHONINSPECT PYTHONBREAKPOINT HTTP_PROXY http_proxy SLURM_CPU_BIND VK_INSTANCE_LAYERS ANY"
)


def test_needed_variables_pass_and_spoiling_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NEEDED, *SPOILING):
        monkeypatch.setenv(name, "1")
    environment = worker_environment.clean_environment()
    assert [name for name in NEEDED if name not in environment] == []
    assert [name for name in SPOILING if name in environment] == []
    assert not worker_environment.blocked_variables().keys() & set(NEEDED)


@pytest.mark.parametrize("start", ["round", "serving", "several"])
def test_every_measuring_process_gets_a_clean_environment(monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    for name in ("VK_DRIVER_FILES", *SPOILING):
        monkeypatch.setenv(name, "1")
    started: list[dict[str, str]] = []

    class Started(Exception):  # noqa: N818
        pass

    def note(*_: Any, env: dict[str, str], **__: Any) -> None:
        started.append(env)
        raise Started

    monkeypatch.setattr("subprocess.Popen", note)
    with pytest.raises(Started):
        if start == "round":
            Worker([sys.executable], None, {"OPENBLAS_CORETYPE": "Zen"}, lambda: None).start({})
        elif start == "serving":
            server_processes.start_process("http_load", {})
        else:
            ranks.train_ranks(1, {})
    (environment,) = started
    assert environment["VK_DRIVER_FILES"] == "1"
    # Only the worker of a round has a variable in SPOILING, because its point requests this variable.
    own = {"OPENBLAS_CORETYPE": "Zen"} if start == "round" else {}
    assert {name: environment[name] for name in SPOILING if name in environment} == own


def test_recorded_variables_are_well_known_and_hold_no_path() -> None:
    private = {
        "ACME_TOKEN": "x", "NVIDIA_API_KEY": "x", "POLARS_CLOUD_CLIENT_SECRET": "x", "CUDA_HOME": "/opt/cuda",
        "NCCL_VERSION": "2", "TORCH_HOME": "/home/ada",
    }  # fmt: skip
    recorded = {
        "OMP_NUM_THREADS": "4",
        "LD_PRELOAD": "/home/ada/lib/libjemalloc.so",
        "GLIBC_TUNABLES": "glibc.malloc.x=1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**private, **recorded}.items():
            patch.setenv(name, value)
        variables = worker_environment.blocked_variables()
    assert {name: variables.get(name) for name in recorded} == {**recorded, "LD_PRELOAD": "(not told)"}
    assert not private.keys() & variables.keys()


def test_process_environment_is_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError), worker_environment.clean_environment_applied():
        assert "OMP_NUM_THREADS" not in os.environ
        assert os.environ["PATH"] == before["PATH"]
        raise ZeroDivisionError
    assert dict(os.environ) == before


MEASURE = """
import sys
from contextlib import suppress
elsewhere = []
def watch(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto") and "127.0.0.1" not in str(given):
        elsewhere.append((event, str(given)))
sys.addaudithook(watch)
from tests.experiments.point_runs import answer_point
points = [("inference", {"backend": "onnx"}), ("inference", {"backend": "openvino"}),
          ("inference", {"model": "mobilenet-v2", "batch": 1}), ("boosting", {"backend": "xgboost", "trees": 10}),
          ("boosting", {"trees": 10})]
answers = [answer_point(name, **changed) for name, changed in points]
print([(answer["status"], answer["reason"]) for answer in answers], elsewhere, sep="\\n")
"""


def test_libraries_open_no_connection_and_write_no_home_files(tmp_path: Path) -> None:
    """The test cannot see connections by compiled code, but it finds files that such code writes to the home folder."""
    environment = {
        name: value for name, value in worker_environment.clean_environment().items() if not name.startswith("XDG_")
    }
    changes = {
        "HOME": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ORT_DISABLE_TELEMETRY": "0",
        "HF_HUB_OFFLINE": "0",
    }
    completed = subprocess.run(
        [sys.executable, "-c", MEASURE],
        env=environment | changes,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    answers, elsewhere = completed.stdout.splitlines()[-2:]
    assert answers == str([("ok", "ok")] * 5)
    assert elsewhere == "[]"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
