"""The record of a node: what the machine is, what ran on it, from which code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import check, read_json, write_json

_TEXT = {"type": "string"}
_DEVICE = {
    "type": "object",
    "required": ["id", "kind", "name"],
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+(:[0-9]+)?$"},
        "kind": {"enum": ["cpu", "gpu"]},
        "name": _TEXT,
        "memory_bytes": {"type": "integer", "minimum": 0},
    },
}

NODE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["schema", "id", "origin", "hardware", "software", "devices", "left_out", "study", "started_utc"],
    "properties": {
        "schema": {"const": 1},
        "id": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{2,86}$"},
        "kind": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{2,79}$"},
        "instance": {"type": "string", "pattern": "^([0-9a-f]{6})?$"},
        "origin": {"enum": ["measured", "synthetic"]},
        "hardware": {"type": "object", "required": ["cpu", "memory_bytes", "gpus"]},
        "software": {"type": "object", "required": ["os", "python", "packages", "blas"]},
        "devices": {"type": "array", "minItems": 1, "items": _DEVICE},
        "left_out": {"type": "array", "items": _TEXT},
        "study": {"type": "object", "required": ["version", "commit"]},
        "started_utc": _TEXT,
        "ended_utc": _TEXT,
        "options": {"type": "object"},
    },
    "additionalProperties": False,
}


def node_id(kind: str, instance: str) -> str:
    """A node's name: its kind, and which one of that kind it is, where that is known."""
    return f"{kind}.{instance}" if instance else kind


def kind_of_node(node: str) -> str:
    """The kind of a node by its name: what comes after it tells the machines of that kind apart."""
    return node.partition(".")[0]


def read_node(path: Path) -> dict[str, Any]:
    """Read a node record; earlier ones do not tell instances of a kind apart, theirs is empty.

    Raises StudyError naming the file and the fault.
    """
    record = read_json(path)
    check(record, NODE_SCHEMA, path)
    record = {"kind": record["id"], "instance": "", **record}
    if record["id"] != node_id(record["kind"], record["instance"]):
        raise StudyError(f"{path}: id {record['id']!r} is not that of kind {record['kind']!r} and its instance")
    return record


def write_node(path: Path, record: dict[str, Any]) -> None:
    """Write a node record, whole or not at all. Raises StudyError if it does not conform, OSError."""
    check(record, NODE_SCHEMA, path)
    write_json(path, record)
