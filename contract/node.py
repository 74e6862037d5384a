"""The record of a node: what the machine is, what ran on it, from which code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import parse_json, read_plain_file, write_json
from contract.schema import check_document

# The largest that was published has 3 kB.
MOST_BYTES = 2**20
# A node's record: sealed once all rounds are measured, and until then.
RECORD, PARTIAL = "node.json", "node.partial.json"
# What the reason begins with why a plan does without a point, where the node lacks something for it.
LACKS = "unsupported: "
A_TIME = {
    "type": "string",
    "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    "description": "a time in UTC as in 2026-11-22T16:08:56Z",
}


def utc_time(ago_s: float = 0.0) -> str:
    """So many seconds ago, as A_TIME describes it."""
    return (datetime.now(UTC) - timedelta(seconds=ago_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def text_schema(most: int = 200) -> dict[str, Any]:
    """The schema of a line of text: nothing in it moves a terminal's cursor."""
    return {
        "type": "string",
        "maxLength": most,
        "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$",
        "description": "one line of text",
    }


def integer_schema(most: float, least: int = 0) -> dict[str, Any]:
    """The schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": int(most)}


def number_schema(most: float) -> dict[str, Any]:
    """The schema of a number that is not negative."""
    return {"type": "number", "minimum": 0, "maximum": most}


def list_schema(items: dict[str, Any], most: int = 1000) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": items, "maxItems": most}


def object_schema(required: str, /, **properties: Any) -> dict[str, Any]:
    """The schema of an object with these keys and no others."""
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
        "additionalProperties": False,
    }


def map_schema(values: dict[str, Any], most: int = 100) -> dict[str, Any]:
    """The schema of an object with any keys and values of one kind."""
    return {"type": "object", "propertyNames": text_schema(), "additionalProperties": values, "maxProperties": most}


_NUMBER = {"type": "number", "minimum": -1e18, "maximum": 1e18}
OPTIONS = map_schema({"anyOf": [text_schema(1000), {"type": ["boolean", "null"]}, _NUMBER]})
_BYTES = integer_schema(2**53)
_MAYBE = {"anyOf": [text_schema(), {"type": "null"}]}
# Last-level cache of a GPU that does not tell its own: above every one that ships at the time of writing.
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
    # Of the cache before its memory, where that is another than the L2 cache, or larger than the runtime tells.
    last_level_cache_bytes=_BYTES,
    unified_memory={"type": "boolean"},
    # Why clock, power and the like are not recorded beside its samples, or not all of them.
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
    # Cut into slices.
    mig={"type": "boolean"},
    # Fields that its library does not tell, with the reason that it gives.
    unanswered=map_schema(text_schema(), 20),
    # Maker and source of an entry that is not from NVIDIA's library.
    maker=text_schema(),
    known_by={"enum": ["torch"]},
)
_TORCH = object_schema(
    "version", version=text_schema(), cuda=_MAYBE, hip=_MAYBE, config=list_schema(text_schema(1000), 50)
)
_POOL = map_schema({"anyOf": [text_schema(), integer_schema(1e5)]}, 20)
# Seconds of each round that has anything to measure, as planned, as they were, and those of them in which it stood
# still; points without a place in the plan, by reason.
_JOB = object_schema(
    "predicted_s left_out",
    predicted_s=list_schema(number_schema(1e8), 100),
    wall_s=list_schema(number_schema(1e8), 100),
    stood_s=list_schema(number_schema(1e8), 100),
    left_out=map_schema(integer_schema(1e6)),
)

# Digits that nobody types as the name of a host or a person by accident.
INSTANCE = {"type": "string", "pattern": "^[0-9a-f]{6}$"}
NODE_SCHEMA: dict[str, Any] = object_schema(
    "schema id origin hardware software devices left_out study started_utc",
    schema={"const": 1},
    id={"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{2,86}$"},
    # A point would begin the instance.
    kind={"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{2,79}$"},
    instance={"type": "string", "pattern": "^([0-9a-f]{6})?$"},
    origin={"enum": ["measured", "synthetic"]},
    hardware=object_schema(
        "cpu memory_bytes gpus",
        cpu=_CPU,
        memory_bytes=integer_schema(2**53, 1),
        gpus=list_schema(_GPU, 100),
        nvml=text_schema(1000),
    ),
    software=object_schema(
        "os python packages blas",
        os=text_schema(),
        libc=text_schema(),
        python=text_schema(),
        packages=map_schema(text_schema()),
        blas=list_schema(_POOL, 50),
        torch=_TORCH,
    ),
    devices={**list_schema(_DEVICE, 100), "minItems": 1},
    left_out=list_schema(text_schema(4000), 100),
    study=object_schema("version commit", version=text_schema(), commit=text_schema()),
    started_utc=A_TIME,
    ended_utc=A_TIME,
    options=OPTIONS,
    hosts=list_schema(INSTANCE, 1000),
    jobs=map_schema(_JOB, 1000),
)


def node_id(kind: str, instance: str) -> str:
    """A node's name: its kind, and which one of that kind it is, where that is known."""
    return f"{kind}.{instance}" if instance else kind


def kind_of_node(node: str) -> str:
    """The kind of a node by its name: what comes after it tells the machines of that kind apart."""
    return node.partition(".")[0]


def machine_of_node(node: str) -> str:
    """The machine of a node by its name; a number after the instance tells the runs on that machine apart."""
    return node.rpartition(".")[0] if node.count(".") > 1 else node


def count_machines(nodes: Iterable[str]) -> int:
    """How many machines nodes are of: one that was measured more than once counts once."""
    return len({machine_of_node(node) for node in nodes})


def gpu_cache_bytes(device: Mapping[str, Any]) -> int:
    """Bytes of a GPU's last-level cache, by its entry of a record; GPU_CACHE_BYTES where that does not tell it."""
    return int(device.get("last_level_cache_bytes") or device.get("l2_bytes") or GPU_CACHE_BYTES)


def record_path(folder: Path) -> Path:
    """Where a node's record lies: the sealed one, or that of a node whose measuring was cut off."""
    sealed, partial = folder / RECORD, folder / PARTIAL
    return partial if partial.exists() and not sealed.exists() else sealed


def missing_rounds(record: Mapping[str, Any], files: Iterable[str]) -> list[str]:
    """What a node was to measure and has not, as in the names of files: gemm.cuda-0.2. Empty in earlier records.

    files: names of the files of rounds that there are.
    """
    there = {name.removesuffix(".parquet") for name in files}
    asked = (
        f"{name}.{number}"
        for name, job in record.get("jobs", {}).items()
        for number in range(1, len(job["predicted_s"]) + 1)
    )
    return [name for name in asked if name not in there]


def parse_job_name(name: str) -> tuple[str, str]:
    """The experiment and the device of a job, by its name as in those of its files: gemm.cuda-0."""
    experiment, _, device = name.rpartition(".")
    return experiment, device.replace("-", ":")


def parse_left_out(left_out: str) -> tuple[str, str]:
    """The status and the reason of a point that a plan leaves out: for want of time, or of what the node lacks."""
    return ("unsupported", left_out.removeprefix(LACKS)) if left_out.startswith(LACKS) else ("skipped", left_out)


def read_node(path: Path) -> dict[str, Any]:
    """Read a node record, of a plain file of MOST_BYTES at most; in earlier ones the id alone tells the kind.

    Raises StudyError naming the file and the fault.
    """
    return parse_node(read_plain_file(path, MOST_BYTES), path)


def parse_node(data: bytes, where: Path | str) -> dict[str, Any]:
    """The same of a record's bytes. Raises StudyError naming the place and the fault."""
    record = parse_json(data, where)
    check_document(record, NODE_SCHEMA, where)
    kind, _, instance = record["id"].partition(".")
    record = {"kind": kind, "instance": instance, **record}
    if record["id"] != node_id(record["kind"], record["instance"]):
        raise StudyError(f"{where}: id {record['id']!r} is not that of kind {record['kind']!r} and its instance")
    return record


def write_node(path: Path, record: dict[str, Any]) -> None:
    """Write a node record, whole or not at all. Raises StudyError if it does not conform, OSError."""
    check_document(record, NODE_SCHEMA, path)
    write_json(path, record)
