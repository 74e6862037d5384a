"""What this machine is: read from the system, cheaply, without importing PyTorch."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import platform
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from contract.ending import available_cpus
from contract.errors import StudyError
from contract.node import read_node
from experiments import counters, nvml

# Extensions that decide how many multiply-adds a core does per cycle, by lscpu's names.
_SIMD = re.compile(
    r"^(sse2|sse4_2|avx|avx2|fma|f16c|avx512\w+|avx_vnni|avx512_\w+|amx_\w+|asimd\w*|sve\w*|sme|sme2|sme_\w+|bf16|i8mm)\Z"
)

# Of the host, for good; else of its time since it was started (most containers have no id of their own).
_HOST_IDS = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@cache
def cpu() -> dict[str, Any]:
    """Model, cores, caches and SIMD or matrix extensions.

    Keys: model, vendor, family, model_number, sockets, cores (physical, of the
    machine), usable_cores (that this process may use), threads_per_core, simd,
    matrix, caches (bytes by level, with the number of instances), virtual.
    """
    seen = _lscpu()
    flags = sorted(flag for flag in seen.get("Flags", "").split() if _SIMD.match(flag))
    cores = int(seen.get("Core(s) per socket", 0) or 0) * int(seen.get("Socket(s)", 1) or 1)
    return {
        "model": _model(seen),
        "vendor": seen.get("Vendor ID", ""),
        "family": seen.get("CPU family", ""),
        "model_number": seen.get("Model", ""),
        "architecture": platform.machine(),
        "sockets": int(seen.get("Socket(s)", 1) or 1),
        "cores": cores or usable_cores(),
        "usable_cores": usable_cores(),
        "threads_per_core": int(seen.get("Thread(s) per core", 1) or 1),
        "simd": flags,
        "matrix": [flag for flag in flags if flag.startswith(("amx", "sme", "avx512_bf16"))],
        "caches": _caches(seen),
        "virtual": bool(seen.get("Hypervisor vendor")),
    }


def usable_cores() -> int:
    """Physical cores that this process may use: its affinity, its cgroup's quota, not SMT siblings."""
    import psutil

    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    per_core = max(1, (psutil.cpu_count(logical=True) or 1) // (psutil.cpu_count(logical=False) or 1))
    granted = counters.quota()
    return max(1, min(logical // per_core or 1, int(granted) if granted else logical))


def refuse_part_of_job() -> None:
    """Raise StudyError where Slurm gave this job more processors of the machine than this process may use.

    A step of an exclusive job has the whole machine, and is still bound to the cores that it was said to need.
    """
    # Snakemake takes the first of them away from what it starts.
    name = "SLURM_JOB_CPUS_PER_NODE"
    given = re.match(r"\d+", os.environ.get(name) or os.environ.get(f"{name}_PACK_GROUP_0", ""))
    if given and int(given[0]) > (bound := available_cpus()):
        raise StudyError(
            f"of {given[0]} processors that Slurm gave this job, it may use {bound}: say `cores: {given[0]}` where the "
            "machine is named, or `--cpus-per-task` to Slurm"
        )


def last_level_cache_bytes() -> int:
    """Size of all last-level caches of the node together, in bytes; 32 MiB if the system does not say."""
    sizes = [cache["bytes"] for cache in cpu()["caches"].values()]
    return max(sizes, default=32 * 2**20)


def memory_bytes() -> int:
    """Memory of the machine in bytes."""
    import psutil

    return int(psutil.virtual_memory().total)


@cache
def _lscpu() -> dict[str, str]:
    """`lscpu -J`, flattened; empty where there is no lscpu (macOS, Windows)."""
    try:
        # In English: the keys are translated otherwise.
        seen = subprocess.run(
            ["lscpu", "-J"], capture_output=True, text=True, check=True, timeout=20, env={**os.environ, "LC_ALL": "C"}
        )
        entries = json.loads(seen.stdout)["lscpu"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return {}
    flat: dict[str, str] = {}

    def walk(items: list[dict[str, Any]]) -> None:
        for item in items:
            flat[item["field"].rstrip(":")] = item.get("data") or ""
            walk(item.get("children", []))

    walk(entries)
    return flat


def _model(seen: dict[str, str]) -> str:
    name = seen.get("Model name", "")
    if name in ("", "-") and platform.system() == "Darwin":
        asked = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False, timeout=20
        )
        name = asked.stdout.strip()
    return name or platform.processor() or platform.machine()


def _caches(seen: dict[str, str]) -> dict[str, dict[str, int]]:
    """Bytes of each level in all, and in how many instances: lscpu says `2 MiB (2 instances)`."""
    caches = {}
    scale = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for level in ("L1d", "L1i", "L2", "L3"):
        found = re.match(r"([\d.]+) (B|KiB|MiB|GiB)(?: \((\d+) instances?\))?", seen.get(f"{level} cache", ""))
        if found:
            caches[level] = {
                "bytes": int(float(found[1]) * scale[found[2]]),
                "instances": int(found[3] or 1),
            }
    return caches


def identity(described: Path | None = None) -> tuple[str, str]:
    """This machine's kind and instance; the instance of an earlier record in `described`, if that is of this kind.

    So rounds go on to count that were measured before its image, or this program, named it otherwise.
    """
    here = kind()
    if described and described.exists():
        with suppress(StudyError):
            before = read_node(described)
            if before["kind"] == here:
                return here, before["instance"]
    return here, instance()


def kind() -> str:
    """A readable, stable name of this kind of machine, with a hash of its hardware.

    Nothing in it names a person, host or serial number; two machines of the same
    make share it.
    """
    about, cards = cpu(), [card["name"] for card in nvml.gpus()]
    facts = {key: about[key] for key in ("model", "vendor", "family", "model_number", "usable_cores", "simd")}
    digest = hashlib.sha256(json.dumps([facts, cards], sort_keys=True).encode()).hexdigest()[:6]
    words = re.sub(r"\(r\)|\(tm\)|\bcpu\b|@.*|\d+-core processor|processor", " ", about["model"].lower())
    parts = [re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "cpu", f"{about['usable_cores']}c"]
    for card in sorted(set(cards)):
        count = cards.count(card)
        parts.append((f"{count}x-" if count > 1 else "") + re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-"))
    return f"{'-'.join(parts)[:73].strip('-')}-{digest}"


def instance() -> str:
    """Which machine of its kind this is: six hexadecimal digits that tell nothing else; empty if the system cannot say.

    Hosts that were made from one image may share it: whoever reads their data has to expect that.
    """
    for place in _HOST_IDS:
        try:
            host = place.read_bytes().strip()
        except OSError:
            continue
        # What systemd writes into an image before its first start.
        if host not in (b"", b"uninitialized"):
            # As machine-id(5) asks: keyed, so that nobody can tell which id it was made from.
            return hmac.new(host, b"does-ai-need-a-gpu: instance of a node", hashlib.sha256).hexdigest()[:6]
    return ""
