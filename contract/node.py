"""The node record and its schema. A record describes a machine, its software, its jobs and the study's commit.

Records with `schema` 1 lack the backends' versions and the facts in `experiments.machine_facts`. Both versions are
readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import parse_json, read_plain_file, write_json
from contract.schema import check_document

# Maximum bytes in a record. The largest published record has 3 kB.
MOST_BYTES = 2**20
# Version of the format of new records.
SCHEMA_VERSION = 2
# RECORD: file name of a sealed record, which is written after all rounds are measured.
# PARTIAL: file name of the record until then.
RECORD, PARTIAL = "node.json", "node.partial.json"
# Prefix for a plan's reason to leave out a sweep point that the node cannot run.
LACKS = "unsupported: "
A_TIME = {
    "type": "string",
    "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    "description": "a time in UTC as in 2026-11-22T16:08:56Z",
}


def utc_time(ago_s: float = 0.0) -> str:
    """Return the UTC time `ago_s` seconds ago, in the format of A_TIME."""
    return (datetime.now(UTC) - timedelta(seconds=ago_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse a time from `utc_time`. Raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def text_schema(most: int = 200) -> dict[str, Any]:
    """Return the schema for one text line without terminal control characters."""
    return {
        "type": "string",
        "maxLength": most,
        "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$",
        "description": "one line of text",
    }


def integer_schema(most: float, least: int = 0) -> dict[str, Any]:
    """Return the schema for a whole number."""
    return {"type": "integer", "minimum": least, "maximum": int(most)}


def number_schema(most: float) -> dict[str, Any]:
    """Return the schema for a number from 0 to `most`."""
    return {"type": "number", "minimum": 0, "maximum": most}


def list_schema(items: dict[str, Any], most: int = 1000) -> dict[str, Any]:
    """Return the schema for a list."""
    return {"type": "array", "items": items, "maxItems": most}


def object_schema(required: str, /, **properties: Any) -> dict[str, Any]:
    """Return the schema for an object that allows only these keys. required: mandatory keys, separated by spaces."""
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
        "additionalProperties": False,
    }


def map_schema(values: dict[str, Any], most: int = 100) -> dict[str, Any]:
    """Return the schema for an object with arbitrary keys, whose values all follow one schema."""
    return {"type": "object", "propertyNames": text_schema(), "additionalProperties": values, "maxProperties": most}


_NUMBER = {"type": "number", "minimum": -1e18, "maximum": 1e18}
OPTIONS = map_schema({"anyOf": [text_schema(1000), {"type": ["boolean", "null"]}, _NUMBER]})
_BYTES = integer_schema(2**53)
_MAYBE = {"anyOf": [text_schema(), {"type": "null"}]}
# Last-level cache size to assume for a GPU that does not report it. Every GPU on sale when this was written had a
# smaller cache.
GPU_CACHE_BYTES = 256 << 20
_DEVICE = object_schema(
    "id kind name",
    id={"type": "string", "pattern": "^[a-z]{1,20}(:[0-9]{1,4})?$"},
    kind={"enum": ["cpu", "gpu"]},
    name=text_schema(),
    maker=text_schema(),
    memory_bytes=_BYTES,
    multiprocessors=integer_schema(1e5),
    compute_capability=text_schema(),
    architecture=text_schema(),
    l2_bytes=_BYTES,
    # This key exists if the last-level cache is not the L2 cache, or is larger than the runtime reports.
    last_level_cache_bytes=_BYTES,
    unified_memory={"type": "boolean"},
    # Number formats that the GPU has no units for, each with the format that was measured in its place.
    substitutes=map_schema(text_schema(50), 20),
    # Reason why this device's clock, power and other counters are recorded only partly or not at all.
    unwatched=text_schema(),
    runtime=text_schema(),
    driver=text_schema(),
)
_CPU = object_schema(
    "model usable_cores",
    model=text_schema(),
    vendor=text_schema(),
    family=text_schema(),
    model_number=text_schema(),
    architecture=text_schema(),
    sockets=integer_schema(1000, 1),
    cores=integer_schema(1e5, 1),
    usable_cores=integer_schema(1e5, 1),
    quota=number_schema(1e5),
    threads_per_core=integer_schema(16, 1),
    kinds=list_schema(
        object_schema("name", name=text_schema(), cores=integer_schema(1e5, 1), usable_cores=integer_schema(1e5)), 20
    ),
    simd=list_schema(text_schema(50), 200),
    matrix=list_schema(text_schema(50), 200),
    caches={
        **map_schema(object_schema("bytes instances", bytes=_BYTES, instances=integer_schema(1e5, 1)), 10),
        "propertyNames": {"enum": ["L1d", "L1i", "L2", "L3", "L4"]},
    },
    virtual={"type": "boolean"},
    unknown=list_schema(text_schema(50), 30),
    microarchitecture=text_schema(),
    microcode=text_schema(),
    # As this system sees it: a virtual machine may see each thread as a core.
    smt={"enum": ["on", "off"]},
    governor=text_schema(),
    # Kernel driver that sets the clock (cpufreq).
    driver=text_schema(),
    boost={"type": "boolean"},
    nominal_mhz=number_schema(1e5),
    min_mhz=number_schema(1e5),
    max_mhz=number_schema(1e5),
    # Highest clock in /proc/cpuinfo when the record was made. In a virtual machine, this is the nominal clock.
    cpuinfo_mhz=number_schema(1e5),
)
_GPU = object_schema(
    "name",
    name=text_schema(),
    memory_bytes=_BYTES,
    power_limit_w=number_schema(1e5),
    max_sm_clock_mhz=number_schema(1e5),
    max_memory_clock_mhz=number_schema(1e5),
    pcie_generation=integer_schema(100),
    pcie_width=integer_schema(1000),
    # True if the GPU is partitioned (Multi-Instance GPU).
    mig={"type": "boolean"},
    driver=text_schema(),
    # Newest CUDA version that the driver supports.
    driver_cuda=text_schema(),
    default_power_limit_w=number_schema(1e5),
    persistence={"type": "boolean"},
    ecc={"type": "boolean"},
    # Link when the record was made. `pcie_generation` and `pcie_width` are the maximum, which an idle GPU may reduce.
    current_pcie_generation=integer_schema(100),
    current_pcie_width=integer_schema(1000),
    # Clocks that the user or the driver sets for computing.
    application_sm_clock_mhz=number_schema(1e5),
    application_memory_clock_mhz=number_schema(1e5),
    # Fields that NVML does not report, with NVML's reason.
    unanswered=map_schema(text_schema(), 20),
    maker=text_schema(),
    # Source of this entry if it does not come from NVML.
    known_by={"enum": ["torch"]},
)
_TORCH = object_schema(
    "version", version=text_schema(), cuda=_MAYBE, hip=_MAYBE, config=list_schema(text_schema(1000), 50),
    git=_MAYBE, onednn=_MAYBE, cudnn=_MAYBE,
)  # fmt: skip
# Library behind a name in the samples' column `backend`. build: the compiler, the library inside the package, its
# commit, or the kind of the package's build.
_BACKEND = object_schema("package version", package=text_schema(), version=text_schema(), build=text_schema())
_POOL = map_schema({"anyOf": [text_schema(), integer_schema(1e5)]}, 20)
# predicted_s, wall_s, stood_s: predicted, measured and paused seconds, for each round in which the job has points.
# left_out: for each reason, the number of points that the plan leaves out.
_JOB = object_schema(
    "predicted_s left_out",
    # The round numbers that belong to predicted_s; left out if they are 1, 2, 3, ...
    rounds=list_schema(integer_schema(1e6), 100),
    predicted_s=list_schema(number_schema(1e8), 100),
    wall_s=list_schema(number_schema(1e8), 100),
    stood_s=list_schema(number_schema(1e8), 100),
    left_out=map_schema(integer_schema(1e6)),
)

# Round count after which results were judged; then the points measured further before, and their list's digest.
_LOOK = object_schema(
    "rounds",
    rounds=integer_schema(1e6),
    points=integer_schema(1e6),
    anchors=integer_schema(1e6),
    digest={"type": "string", "pattern": "^[0-9a-f]{12}$"},
)
# An instance is a text that distinguishes machines with the same kind. It has only hexadecimal digits, so that no host
# name or personal name gets in by accident.
INSTANCE = {"type": "string", "pattern": "^[0-9a-f]{6}$"}
NODE_SCHEMA: dict[str, Any] = object_schema(
    "schema id origin hardware software devices left_out study started_utc",
    schema={"enum": [1, SCHEMA_VERSION]},
    id={"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{2,86}$"},
    # A kind has no dot, because a dot separates kind and instance in the id.
    kind={"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{2,79}$"},
    instance={"type": "string", "pattern": "^([0-9a-f]{6})?$"},
    origin={"enum": ["measured", "synthetic"]},
    hardware=object_schema(
        "cpu memory_bytes gpus",
        cpu=_CPU,
        memory_bytes=integer_schema(2**53, 1),
        gpus=list_schema(_GPU, 100),
        nvml=text_schema(1000),
        memory=object_schema(
            "",
            # The machine's memory. `memory_bytes` is less under a cgroup limit.
            machine_bytes=_BYTES,
            type=text_schema(),
            speed_mt_s=integer_schema(1e6),
            modules=integer_schema(1e4),
            channels=integer_schema(1e4),
        ),
        numa_nodes=integer_schema(1e4, 1),
        huge_pages=object_schema(
            "", transparent=text_schema(), reserved=integer_schema(2**53), size_kb=integer_schema(2**40)
        ),
        clock_source=text_schema(),
        hypervisor=text_schema(),
        # Maker and model from the firmware (DMI); in a cloud, the provider and its product.
        vendor=text_schema(),
        product=text_schema(),
        instance_type=text_schema(),
        # Limits for this process; null if there is none. cpu_quota: cores that a cgroup grants. cpus: allowed CPUs.
        limits=object_schema(
            "",
            cpu_quota={"anyOf": [number_schema(1e5), {"type": "null"}]},
            cpus=text_schema(4000),
            memory_bytes={"anyOf": [_BYTES, {"type": "null"}]},
        ),
    ),
    software=object_schema(
        "os python packages blas",
        os=text_schema(),
        libc=text_schema(),
        python=text_schema(),
        packages=map_schema(text_schema()),
        blas=list_schema(_POOL, 50),
        torch=_TORCH,
        backends=map_schema(_BACKEND, 200),
        distribution=text_schema(),
        # The kernel's status for each processor vulnerability.
        mitigations=map_schema(text_schema()),
    ),
    devices={**list_schema(_DEVICE, 100), "minItems": 1},
    left_out=list_schema(text_schema(4000), 100),
    study=object_schema("version commit", version=text_schema(), commit=text_schema()),
    started_utc=A_TIME,
    ended_utc=A_TIME,
    options=OPTIONS,
    hosts=list_schema(INSTANCE, 1000),
    jobs=map_schema(_JOB, 1000),
    looks=list_schema(_LOOK, 10),
    # Load while the record was made. other_load, steal: shares of the time of all cores; steal is missing on systems
    # that do not count it.
    load_before=object_schema(
        "other_load", load_1min=number_schema(1e6), other_load=number_schema(1e3), steal=number_schema(1e3)
    ),
    # Facts that could not be read, by their key such as `hardware.cpu.governor`, with the reason.
    unreadable=map_schema(text_schema(), 200),
)
NODE_SCHEMA["if"] = {"properties": {"schema": {"const": SCHEMA_VERSION}}}
NODE_SCHEMA["then"] = {
    "required": ["unreadable", "load_before"],
    "properties": {"software": {"required": ["backends"]}},
}


def node_id(kind: str, instance: str) -> str:
    """Return a node's name: its kind and, if known, its instance."""
    return f"{kind}.{instance}" if instance else kind


def kind_of_node(node: str) -> str:
    """Return the kind in a node's name: the part before the first dot."""
    return node.partition(".")[0]


def machine_of_node(node: str) -> str:
    """Return a node's name without its run number, which follows the instance."""
    return node.rpartition(".")[0] if node.count(".") > 1 else node


def count_machines(nodes: Iterable[str]) -> int:
    """Count the distinct machines among nodes."""
    return len({machine_of_node(node) for node in nodes})


def gpu_cache_bytes(device: Mapping[str, Any]) -> int:
    """Return a GPU's last-level cache size in bytes from its record entry; default: GPU_CACHE_BYTES."""
    return int(device.get("last_level_cache_bytes") or device.get("l2_bytes") or GPU_CACHE_BYTES)


def record_path(folder: Path) -> Path:
    """Return the path to a node's sealed record, or to the partial record if only the partial record exists."""
    sealed, partial = folder / RECORD, folder / PARTIAL
    return partial if partial.exists() and not sealed.exists() else sealed


def missing_rounds(record: Mapping[str, Any], files: Iterable[str]) -> list[str]:
    """List the planned rounds that have no file, in the form `gemm.cuda-0.2`.

    The list is empty for a record without `jobs`. files: names of the existing round files.
    """
    there = {name.removesuffix(".parquet") for name in files}
    planned = (
        f"{name}.{number}"
        for name, job in record.get("jobs", {}).items()
        for number in job.get("rounds", range(1, len(job["predicted_s"]) + 1))
    )
    return [name for name in planned if name not in there]


def parse_job_name(name: str) -> tuple[str, str]:
    """Split a job name, such as `gemm.cuda-0`, into experiment and device, such as `gemm` and `cuda:0`."""
    experiment, _, device = name.rpartition(".")
    return experiment, device.replace("-", ":")


def parse_left_out(left_out: str) -> tuple[str, str]:
    """Parse a plan's reason to leave out a point; return a status, `unsupported` or `skipped`, and the bare reason."""
    return ("unsupported", left_out.removeprefix(LACKS)) if left_out.startswith(LACKS) else ("skipped", left_out)


def read_node(path: Path) -> dict[str, Any]:
    """Read a node record from a regular file with up to MOST_BYTES.

    Raises StudyError with the file and the fault.
    """
    return parse_node(read_plain_file(path, MOST_BYTES), path)


def parse_node(data: bytes, where: Path | str) -> dict[str, Any]:
    """Parse and check a node record, and add the `kind` and `instance` that early records lack.

    Raises StudyError with `where`.
    """
    record = parse_json(data, where)
    check_document(record, NODE_SCHEMA, where)
    kind, _, instance = record["id"].partition(".")
    record = {"kind": kind, "instance": instance, **record}
    if record["id"] != node_id(record["kind"], record["instance"]):
        raise StudyError(f"{where}: id {record['id']!r} does not match kind {record['kind']!r} and its instance")
    return record


def write_node(path: Path, record: dict[str, Any]) -> None:
    """Check a node record and write it atomically. Raises OSError, and StudyError if the record violates the schema."""
    check_document(record, NODE_SCHEMA, path)
    write_json(path, record)
