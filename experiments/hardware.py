"""Describe and name this machine, cheaply; PyTorch is loaded only where it alone may know of a GPU."""

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

# Of the host, for good; else of its time since it was started (most containers have no id of their own).
_HOST_IDS = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@cache
def cpu() -> dict[str, Any]:
    """The processor, as far as the system tells: only model and usable_cores are always there.

    Keys: model, vendor, family, model_number, architecture, sockets, cores (physical, of
    the machine), usable_cores (`usable_cores`), quota (cores that a cgroup grants, if
    fewer), threads_per_core, kinds (of core, if there are several), simd, matrix, caches
    (bytes by level, with the number of instances), virtual, unknown (names of what the
    system does not tell).
    """
    return processor.describe(topology.allowed_cpus(), counters.quota())


def usable_cores() -> int:
    """Physical cores that this process may use: of its affinity, without SMT siblings, and within a cgroup's quota."""
    return processor.usable_cores(topology.allowed_cpus(), counters.quota())


def refuse_partial_allocation() -> None:
    """Raise StudyError where Slurm gave this job more processors of the machine than this process may use.

    A step of an exclusive job has the whole machine, and is still bound to the cores that it was said to need.
    """
    # Snakemake takes the first of them away from what it starts.
    name = "SLURM_JOB_CPUS_PER_NODE"
    given = re.match(r"\d+", os.environ.get(name) or os.environ.get(f"{name}_PACK_GROUP_0", ""))
    if given and int(given[0]) > (bound := len(topology.allowed_cpus())):
        raise StudyError(
            f"of {given[0]} processors that Slurm gave this job, it may use {bound}: say `cores: {given[0]}` where the "
            "machine is named, or `--cpus-per-task` to Slurm"
        )


def last_level_cache_bytes() -> int:
    """Size of all last-level caches of the node together, in bytes; 32 MiB if the system does not say."""
    sizes = [cache["bytes"] for cache in cpu().get("caches", {}).values()]
    return max(sizes, default=32 * 2**20)


def memory_bytes() -> int:
    """Memory that this process may use, in bytes: the machine's, or a cgroup's limit below it."""
    return memory_limit.total_bytes()


def identity(described: Path | None = None) -> tuple[str, str]:
    """This machine's kind and instance: those of an earlier record in `described`, if it fits this machine.

    So rounds go on to count that were measured before its image, or this program, named it otherwise. A GPU that cannot
    be asked now does not make it another machine. Where that record is lost, the folders of nodes beside it tell the
    name, unless several of this kind are there and none is this one.
    """
    if described and described.exists():
        with suppress(StudyError):
            before = read_node(described)
            if _matches(before, gpus.list_gpus()):
                return before["kind"], before["instance"]
    here, own = machine_kind(), machine_instance()
    if described and own not in (known := _measured_instances(described.parent / "nodes", here)) and len(known) == 1:
        return here, known[0]
    return here, own


def _measured_instances(nodes: Path, here: str) -> list[str]:
    """The instances of a kind whose rounds lie in a folder of nodes; '' for one without an instance."""
    names = {path.parent.name for path in nodes.glob("*/[!.]*.parquet")}
    found = {name.partition(".")[2] for name in names if kind_of_node(name) == here}
    return sorted(one for one in found if not one or re.fullmatch(INSTANCE["pattern"], one))


def machine_kind() -> str:
    """A readable, stable name of this kind of machine, with a hash of its hardware.

    Nothing in it names a person, host or serial number; two machines of the same
    make share it.
    """
    return _kind_name(cpu(), [card["name"] for card in gpus.list_gpus()])


def _kind_name(about: Mapping[str, Any], cards: Sequence[str]) -> str:
    """The kind of a machine with this processor, as `cpu` describes it, and with GPUs of these names."""
    facts = {key: about.get(key, "") for key in ("model", "vendor", "family", "model_number", "usable_cores", "simd")}
    # Only where they are: machines without have their names from before.
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
    """True if a record may be of this machine: all that can be asked now is as it was."""
    then, now = record["hardware"]["cpu"], cpu()
    if record["kind"] == _kind_name(now, [card["name"] for card in here]):
        return True
    unasked = {key: then[key] for key in now.get("unknown", ()) if key in then}
    recorded = [card["name"] for card in record["hardware"]["gpus"]]
    changed = gpus.compare_gpus(record, here)
    return _kind_name({**now, **unasked}, recorded) == record["kind"] and not changed.gone and not changed.new


def refuse_silent_gpus(where: Path) -> None:
    """Raise StudyError if the record in a file fits this machine, but for GPUs that do not answer now."""
    if not where.exists():
        return
    try:
        record, here = read_node(where), gpus.list_gpus()
    except StudyError:
        return  # an earlier record that does not read is written anew
    _refuse_silent_gpus(record, here, where)


def _refuse_silent_gpus(record: Mapping[str, Any], here: Sequence[gpus.Card], where: Path) -> None:
    changed = gpus.compare_gpus(record, here)
    if changed.silent and _matches(record, here):
        raise StudyError(
            f"{where} describes a machine with {gpus.format_names(changed.silent)}, and {changed.why}. Then give the "
            "same command again: nothing that was measured is lost"
        )


def refuse_other_machine(where: Path) -> dict[str, Any]:
    """The record in a file. Raises StudyError unless it is of this machine, and its GPUs answer."""
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
