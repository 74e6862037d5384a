"""Fingerprint a node: its hardware and installed software, without personal data."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from contract.errors import StudyError
from contract.node import SCHEMA_VERSION, node_id, utc_time
from contract.provenance import current_commit, short_commit, study_version
from experiments import counters, driver_errors, gpus, hardware, machine_facts, machine_state, nvml
from experiments.backend_versions import backend_versions, onednn_version
from experiments.devices import detect, open_devices
from experiments.devices.accelerator import load_torch

PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "torch",
    "llvmlite",
    "numba",
    "polars",
    "scikit-learn",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "cupy-rocm-7-0",
    "wgpu",
    "snakemake",
    "triton",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
)
# Minimum seconds to observe the load from other processes.
WATCH_S = 1.0


def fingerprint(options: dict[str, Any], before: Path | None = None) -> dict[str, Any]:
    """Return the node record (`contract.node`), without the key `ended_utc`.

    before: the file with an earlier record. If that record may describe this machine, the node keeps its name
    (`hardware.identity`).
    Raises StudyError if torch cannot be loaded, or if a GPU in the earlier record does not answer now.
    """
    process = psutil.Process()
    totals = counters.read_totals(process)
    torch, refusal = load_torch()
    if torch is None:
        raise StudyError(refusal)
    if before:
        hardware.refuse_silent_gpus(before)
    detected, left_out = detect()
    devices, refused = open_devices(detected)
    entries = [device.describe() for device in devices]
    kind, instance = hardware.identity(before)
    backends, unreadable = backend_versions()
    facts, unreadable_facts = machine_facts.read_facts(machine_facts.Machine(hardware.cpu()))
    record = {
        "schema": SCHEMA_VERSION,
        "id": node_id(kind, instance),
        "kind": kind,
        "instance": instance,
        "origin": "measured",
        "hardware": {
            "cpu": dict(hardware.cpu()),
            "memory_bytes": hardware.memory_bytes(),
            "gpus": _add_memory(gpus.list_gpus(), entries),
            "nvml": nvml.status(),
        },
        "software": {
            "os": f"{platform.system()} {_kernel_version()}",
            "libc": " ".join(platform.libc_ver()),
            "python": platform.python_version(),
            "packages": _package_versions(),
            "blas": _blas_libraries(),
            "torch": _torch_build(),
            "backends": backends,
        },
        "devices": entries,
        "left_out": [*left_out, *refused],
        "study": {"version": study_version(), "commit": short_commit(current_commit())},
        "started_utc": utc_time(),
        "options": options,
        "load_before": _watch_load(process, totals),
        "unreadable": unreadable | unreadable_facts,
    }
    machine_facts.add_facts(record, facts)
    return record


def _watch_load(process: psutil.Process, before: counters.Totals) -> dict[str, float]:
    """Return the load from other processes since `before`, over at least WATCH_S, without this process's own load."""
    time.sleep(max(0.0, WATCH_S - (time.perf_counter() - before.time_s)))
    values, _ = machine_state.compare_totals(before, counters.read_totals(process), os.cpu_count() or 1)
    shares = {name: round(value, 4) for name in ("other_load", "steal") if (value := values[name]) is not None}
    return machine_facts.load_average() | shares


def _add_memory(cards: list[gpus.Card], devices: Sequence[dict[str, Any]]) -> list[gpus.Card]:
    """Add torch's memory size to GPU entries if NVML reports none, as for a GPU that shares the machine's memory."""
    sizes = {device["name"]: device["memory_bytes"] for device in devices if "memory_bytes" in device}
    for card in cards:
        if "memory_bytes" not in card and card["name"] in sizes:
            card["memory_bytes"] = sizes[card["name"]]
            card.get("unanswered", {}).pop("memory_bytes", None)
            if not card.get("unanswered", True):
                del card["unanswered"]
    return cards


def unknown_gpu_facts(record: dict[str, Any]) -> list[str]:
    """List the unknown facts about a node's GPUs, and the number formats that the GPUs lack, one per line."""
    refused = nvml.recorded_refusal(record)
    in_trouble = refused and not driver_errors.means_no_driver(refused)
    lines = [f"NVML does not answer ({refused}): {driver_errors.advice(refused)}"] if in_trouble else []
    for card in record["hardware"]["gpus"]:
        reasons = {name: why for name, why in card.get("unanswered", {}).items() if name not in nvml.SETTINGS}
        if reasons:
            unknown = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
            lines.append(f"{card['name']}: not reported by NVML: {unknown}")
    for device in record["devices"]:
        if reason := device.get("unwatched"):
            lines.append(f"{device['id']}: {nvml.Unwatched(reason).meaning}")
        for lost, instead in device.get("substitutes", {}).items():
            lines.append(f"{device['id']}: no units for {lost}: {instead} is measured in its place")
    return lines


def summarize_node(record: dict[str, Any]) -> str:
    """Summarize a node record in one line: processor, memory, accelerators and unknown facts."""
    cpu, accelerators = (
        record["hardware"]["cpu"],
        [device["name"] for device in record["devices"] if device["kind"] != "cpu"],
    )
    cores = f"{cpu['quota']:g} cores by a cgroup's quota" if "quota" in cpu else _format_cores(cpu["usable_cores"])
    gigabytes = record["hardware"]["memory_bytes"] / 1e9
    unknown = f"; unknown: {', '.join(cpu['unknown'])}" if "unknown" in cpu else ""
    return (
        f"{cpu['model']}, {cores}, {gigabytes:.{0 if gigabytes >= 10 else 1}f} GB; "
        f"{' and '.join(accelerators) or 'no GPU'}{unknown}"
    )


def _format_cores(number: int) -> str:
    return "1 core" if number == 1 else f"{number} cores"


def require_device(record: dict[str, Any], kind: str) -> None:
    """Raise StudyError if the node has no device with this kind."""
    if any(device["kind"] == kind for device in record["devices"]):
        return
    left_out = "; ".join(record["left_out"]) or "nothing was left out"
    devices = ", ".join(f"{device['id']} ({device['name']})" for device in record["devices"])
    refused = nvml.refusal()
    mend = f"For an NVIDIA GPU, {driver_errors.advice(refused)}. " if refused else ""
    preset = record.get("options", {}).get("preset", "quick")
    raise StudyError(
        f"gpu profile: no GPU found that torch can use: {left_out}. NVML: {record['hardware']['nvml']}. "
        f"Found: {devices}. {mend}The CPU alone is measured with: snakemake --cores all --config preset={preset}"
    )


def _kernel_version() -> str:
    """Return the kernel version without vendor or host suffixes."""
    return re.split(r"[^0-9.]", platform.release())[0]


def _package_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _blas_libraries() -> list[dict[str, Any]]:
    """Describe each BLAS and OpenMP library the study loads, with its name, version, threads and chosen kernels."""
    import numpy
    import torch
    from threadpoolctl import threadpool_info

    # Load both libraries, since threadpoolctl lists only loaded ones.
    _ = numpy.__version__, torch.__version__
    keys = ("user_api", "internal_api", "version", "num_threads", "threading_layer", "architecture")
    return [{key: pool[key] for key in keys if pool.get(key) is not None} for pool in threadpool_info()]


def _cudnn_version() -> str | None:
    import torch

    version, _ = nvml.try_question(torch.backends.cudnn.version)
    return str(version) if version else None


def _torch_build() -> dict[str, Any]:
    """Describe the torch build: versions, and the configuration lines on libraries and CPU capability."""
    import torch

    lines = [line.strip(" -") for line in torch.__config__.show().splitlines()]
    # Drop the "Build settings" line, since its compiler flags contain paths from the build machine.
    library_lines = [
        line for line in lines if re.search(r"MKL|DNN|OpenMP|CPU capability|CUDA Runtime|CuDNN|LAPACK", line)
    ]
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "config": [line for line in library_lines if not line.startswith("Build settings")],
        "git": getattr(torch.version, "git_version", None),
        "onednn": onednn_version() or None,
        "cudnn": _cudnn_version(),
    }
