"""Describe and name this machine; load PyTorch only if it may know GPUs that no other source reports."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.node import INSTANCE, kind_of_node, read_node
from experiments import counters, gpus, memory_limit, nvml, processor, topology

# Files with an id of the host, in the order to try: the permanent id, which most containers lack, and the boot's id.
_HOST_IDS = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@cache
def cpu() -> dict[str, Any]:
    """Describe the processor. Only the keys model and usable_cores are always present.

    Keys: model, vendor, family, model_number, architecture, sockets, cores (physical cores in the machine),
    usable_cores (as from the function `usable_cores`), quota (cores granted by a cgroup, if fewer), threads_per_core,
    kinds (if the cores are of several kinds), simd, matrix, caches (bytes and instances per level), virtual, unknown
    (the names of keys for which the system gives no value).
    """
    return processor.describe(topology.allowed_cpus(), counters.cpu_quota())


def usable_cores() -> int:
    """Count the physical cores (not SMT threads) in this process's affinity, limited by the cgroup's quota."""
    return processor.usable_cores(topology.allowed_cpus(), counters.cpu_quota())


def refuse_partial_allocation() -> None:
    """Raise StudyError if Slurm gave this job more processors than this process may use.

    Even in an exclusive job, which gets the whole machine, Slurm binds each step to the cores that the step requested.
    """
    # Try a second variable too, since Snakemake unsets the first variable for its child processes.
    name = "SLURM_JOB_CPUS_PER_NODE"
    granted = re.match(r"\d+", os.environ.get(name) or os.environ.get(f"{name}_PACK_GROUP_0", ""))
    if granted and int(granted[0]) > (bound := len(topology.allowed_cpus())):
        raise StudyError(
            f"Slurm gave this job {granted[0]} processors, but this process may use only {bound}: set "
            f"`cores: {granted[0]}` for this machine in the config, or pass `--cpus-per-task` to Slurm"
        )


def last_level_cache_bytes() -> int:
    """Return the node's total last-level cache in bytes; 32 MiB if unknown."""
    sizes = [cache["bytes"] for cache in cpu().get("caches", {}).values()]
    return max(sizes, default=32 * 2**20)


def memory_bytes() -> int:
    """Return the bytes of memory this process may use: all of the machine's memory, or less under a cgroup limit."""
    return memory_limit.total_bytes()


def identity(described: Path | None = None) -> tuple[str, str]:
    """Return this machine's kind (`machine_kind`) and instance (`machine_instance`), which form the node's name.

    described: the file with an earlier record. If the record may describe this machine, return its kind and instance:
    then a change to the system image or to this program, or a GPU that does not answer now, does not change the node's
    name, and earlier rounds stay valid. If the record is missing or describes another machine, but the folder `nodes`
    beside the file has rounds from exactly one instance of this machine's kind, return this kind and that instance.
    """
    if described and described.exists():
        with suppress(StudyError):
            before = read_node(described)
            if _matches(before, gpus.list_gpus()):
                return before["kind"], before["instance"]
    own_kind, own_instance = machine_kind(), machine_instance()
    if (
        described
        and own_instance not in (instances := _measured_instances(described.parent / "nodes", own_kind))
        and len(instances) == 1
    ):
        return own_kind, instances[0]
    return own_kind, own_instance


def _measured_instances(nodes: Path, kind: str) -> list[str]:
    """List a machine kind's instances with rounds in `nodes`; '' stands for a node name without an instance."""
    names = {path.parent.name for path in nodes.glob("*/[!.]*.parquet")}
    instances = {name.partition(".")[2] for name in names if kind_of_node(name) == kind}
    return sorted(name for name in instances if not name or re.fullmatch(INSTANCE["pattern"], name))


def machine_kind() -> str:
    """Return a readable, stable name for this kind of machine, with a hash of its hardware.

    The name contains no user name, host name or serial number. Machines with equal hardware have the same name.
    """
    return _kind_name(cpu(), [card["name"] for card in gpus.list_gpus()])


def _kind_name(about: Mapping[str, Any], cards: Sequence[str]) -> str:
    """Return the kind for a processor (described by `cpu`) and GPU names."""
    facts = {key: about.get(key, "") for key in ("model", "vendor", "family", "model_number", "usable_cores", "simd")}
    # Hash these keys only if they are present: earlier versions of this program did not have them, and a machine
    # without them must keep its kind.
    facts |= {key: about[key] for key in ("kinds", "quota") if key in about}
    digest = hashlib.sha256(json.dumps([facts, cards], sort_keys=True).encode()).hexdigest()[:6]
    words = re.sub(r"\(r\)|\(tm\)|\bcpu\b|@.*|\d+-core processor|processor", " ", about["model"].lower())
    parts = [_slug(words) or "cpu", f"{about['usable_cores']}c"]
    if "quota" in about:
        parts.append(f"quota-{about['quota']:g}".replace(".", "-"))
    for card in sorted(set(cards)):
        count = cards.count(card)
        parts.append((f"{count}x-" if count > 1 else "") + _slug(re.sub(r"\(r\)|\(tm\)", "", card.lower())))
    return f"{'-'.join(parts)[:73].strip('-')}-{digest}"


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def _matches(record: Mapping[str, Any], here: Sequence[gpus.Card]) -> bool:
    """True if a record may describe this machine: every hardware fact that can be read now is unchanged."""
    then, now = record["hardware"]["cpu"], cpu()
    if record["kind"] == _kind_name(now, [card["name"] for card in here]):
        return True
    unasked = {key: then[key] for key in now.get("unknown", ()) if key in then}
    recorded = [card["name"] for card in record["hardware"]["gpus"]]
    changed = gpus.compare_gpus(record, here)
    return _kind_name({**now, **unasked}, recorded) == record["kind"] and not changed.gone and not changed.new


def refuse_silent_gpus(where: Path) -> None:
    """Raise StudyError if the record in a file matches this machine except for GPUs that do not answer now."""
    if not where.exists():
        return
    try:
        record, here = read_node(where), gpus.list_gpus()
    except StudyError:
        return  # the caller replaces an unreadable record
    _refuse_silent_gpus(record, here, where)


def _refuse_silent_gpus(record: Mapping[str, Any], here: Sequence[gpus.Card], where: Path) -> None:
    changed = gpus.compare_gpus(record, here)
    if changed.silent and _matches(record, here):
        raise StudyError(
            f"{where} describes a machine with {gpus.format_names(changed.silent)}, and {changed.why}. Then give the "
            "same command again: nothing that was measured is lost"
        )


def refuse_other_machine(where: Path) -> dict[str, Any]:
    """Read the record in a file. Raises StudyError unless it describes this machine and its GPUs answer."""
    record, here = read_node(where), gpus.list_gpus()
    _refuse_silent_gpus(record, here, where)
    if not _matches(record, here):
        name, changed = _kind_name(cpu(), [card["name"] for card in here]), gpus.compare_gpus(record, here)
        more = f" and has no {gpus.format_names(changed.gone)}" if changed.gone else ""
        more += f" and has {gpus.format_names(changed.new)}, which it does not name" if changed.new else ""
        refused = nvml.recorded_refusal(record)
        more += f" (NVML did not answer then: {refused})" if changed.new and refused else ""
        raise StudyError(
            f"{where} describes {record['kind']}, this machine is {name}{more}. Measure into a folder of its own "
            "(--config results=FOLDER), or remove that file: the rounds already measured stay under their node's name"
        )
    return record


def machine_instance() -> str:
    """Return six hexadecimal digits to tell apart machines with the same kind; '' if the system has no id.

    Hosts cloned from one image may share the digits.
    """
    for place in _HOST_IDS:
        try:
            host = place.read_bytes().strip()
        except OSError:
            continue
        # systemd writes "uninitialized" into images before their first boot.
        if host not in (b"", b"uninitialized"):
            # Use a keyed hash, as machine-id(5) requires, so that the id stays private.
            return hmac.new(host, b"does-ai-need-a-gpu: instance of a node", hashlib.sha256).hexdigest()[:6]
    return ""
