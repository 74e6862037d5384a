"""Describe the data as Frictionless Data Packages: files and their columns.

Source: Data Package 2.0, https://datapackage.org/standard/data-package/ (and data-resource/, table-schema/). The field
property `unit` is our extension.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as arrow
import pyarrow.parquet as parquet

from contract.errors import StudyError
from contract.files import write_json
from contract.node import read_node, record_path
from contract.sample_table import SAMPLES, sample_dictionary
from report.data.published_records import COUNTS, MEANING, NUMBERS, REQUIRED, UNITS, read_published
from report.data.summary import SERIES
from report.publish.study_metadata import NAME, read_study

PROFILE = "https://datapackage.org/profiles/2.0"
_KEYS = {"samples": ["node", *(SAMPLES.unique or [])], "summary": SERIES}
_TITLES = {
    "samples": "Samples: one row per timed value",
    "summary": "Summary: one row per point and metric, with intervals",
    "dictionary": "Data dictionary of both tables",
    "nodes": "Machines: what each is, what ran on it, from which commit",
    "refused": "Files that were left out, and why",
}
_MEDIA = {
    ".csv": ("csv", "text/csv"),
    ".json": ("json", "application/json"),
    ".parquet": ("parquet", "application/vnd.apache.parquet"),
}
_WORDS = {"number": "number", "whole number": "integer", "text": "string"}
_PACKAGE, _SCHEMA, _OTHERS = "datapackage.json", "samples.schema.json", "published.schema.json"


def write_datapackage(folder: Path) -> Path:
    """Write datapackage.json for a folder from `gather`; return its path.

    The package lists the files with size and hash, and the tables with their columns. Raises StudyError if
    dictionary.csv or a table is missing, and OSError if a file cannot be read or written.
    """
    described = pd.read_csv(_existing_file(folder / "dictionary.csv"), keep_default_na=False)
    schemas = {
        name: _table_schema(parquet.read_schema(_existing_file(folder / f"{name}.parquet")), described, name)
        for name in ("samples", "summary")
    }
    schemas["dictionary"] = {"fields": [_field_descriptor(name, "string") for name in described.columns]}
    resources = []
    for stem, title in _TITLES.items():
        for path in sorted(folder.glob(f"{stem}.*")):
            if path.suffix in _MEDIA:
                resources.append(_file_resource(path, title, schemas.get(stem)))
    return _write_package(folder, f"{NAME}-tables", "The samples of all nodes and their summary", resources)


def write_published(folder: Path) -> Path:
    """Write `folder`/datapackage.json for the nodes under `folder`/nodes; return its path.

    A node's round files form one table, with the schema samples.schema.json. Each published source in
    `folder`/published forms one table, with the schema published.schema.json. Raises StudyError if a node record or a
    source is unreadable, and OSError if a file cannot be read or written.
    """
    columns = sample_dictionary()
    names = [str(name) for name in columns["column"]]
    rows = {str(row["column"]): row for row in columns.to_dict("records")}
    write_json(
        folder / _SCHEMA,
        {
            "$schema": f"{PROFILE}/tableschema.json",
            "fields": [_field_descriptor(name, _WORDS[str(rows[name]["type"])], rows[name]) for name in names],
            "primaryKey": _KEYS["samples"],
        },
    )
    resources: list[dict[str, Any]] = []
    for record in sorted(record_path(place) for place in (folder / "nodes").glob("*")):
        if not record.is_file():
            continue
        read_node(record)
        node = record.parent.name
        rounds = sorted(path.relative_to(folder).as_posix() for path in record.parent.glob("[!.]*.parquet"))
        about = {
            "name": f"{node}-record",
            "title": f"{node}: the machine",
            "path": f"nodes/{node}/{record.name}",
        }
        resources.append({**about, **_media_type(".json")})
        if rounds:
            table = {"name": node, "title": f"{node}: samples of all rounds", "type": "table", "path": rounds}
            resources.append({**table, **_media_type(".parquet"), "schema": _SCHEMA})
    resources += _published_resources(folder / "published")
    return _write_package(folder, f"{NAME}-nodes", "Published nodes: the samples of every round", resources)


def _published_resources(folder: Path) -> list[dict[str, Any]]:
    """Describe the published measurements: one table for each source, all with the same schema.

    Raises StudyError if a source is unreadable.
    """
    sources = read_published(folder).sources
    units = ", ".join(f"{measure} in {unit}" for measure, unit in UNITS.items())
    fields = [
        _field_descriptor(
            name,
            "integer" if name in COUNTS else "number" if name in NUMBERS else "string",
            {"meaning": f"{meaning} ({units})" if name == "unit" else meaning, "may_be_empty": name not in REQUIRED},
        )
        for name, meaning in MEANING.items()
    ]
    if sources:
        # With "superset", a source's table may lack some schema fields.
        match = {"fieldsMatch": "superset", "primaryKey": ["id"]}
        schema = {"$schema": f"{PROFILE}/tableschema.json", "fields": fields, **match}
        write_json(folder.parent / _OTHERS, schema)
    return [
        {
            "name": f"published-{name}",
            "title": f"Measured by others: {source['title']}",
            "description": source["note"],
            "type": "table",
            "path": f"published/{name}.csv",
            "sources": [{"title": f"{source['title']}, {source['publisher']}", "path": source["url"]}],
            **_media_type(".csv"),
            "schema": _OTHERS,
        }
        for name, source in sources.items()
    ]


def _write_package(folder: Path, name: str, title: str, resources: Sequence[Mapping[str, Any]]) -> Path:
    if not resources:
        raise StudyError(f"{folder}: no resources to describe: publish a node first")
    about = read_study()
    package = {
        "$schema": f"{PROFILE}/datapackage.json",
        "name": name,
        "title": f"{about.title}. {title}",
        "version": about.version,
        "licenses": [{"name": about.licence, "path": f"https://spdx.org/licenses/{about.licence}.html"}],
        "contributors": [{"title": about.authors}],
        "keywords": list(about.keywords),
        "resources": list(resources),
    }
    path = folder / _PACKAGE
    write_json(path, package)
    return path


def _existing_file(path: Path) -> Path:
    if not path.is_file():
        raise StudyError(f"{path}: no such file: write it with `python -m report gather`")
    return path


def _file_resource(path: Path, title: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        # Include the suffix: CSV and Parquet versions need distinct names.
        "name": f"{path.stem}-{path.suffix[1:]}",
        "title": title,
        "path": path.name,
        **({"type": "table"} if schema else {}),
        **_media_type(path.suffix),
        "bytes": path.stat().st_size,
        "hash": f"sha256:{digest}",
        **({"schema": schema} if schema else {}),
    }


def _media_type(suffix: str) -> dict[str, str]:
    name, media = _MEDIA[suffix]
    return {"format": name, "mediatype": media, **({} if suffix == ".parquet" else {"encoding": "utf-8"})}


def _table_schema(columns: arrow.Schema, described: pd.DataFrame, table: str) -> dict[str, Any]:
    """Return a table schema, with types from Parquet and with meanings and units from dictionary.csv (`described`).

    If a field for a column in `summary` is empty there, it is taken from the column with this name in `samples`.
    """
    entries: dict[str, Mapping[str, Any]] = {}
    for name in ("samples", table):
        for row in described[described["table"] == name].to_dict("records"):
            earlier = entries.get(str(row["column"]), {})
            entries[str(row["column"])] = {
                str(key): value for key, value in {**earlier, **_nonempty_fields(row)}.items()
            }
    required = (
        {name for name, column in SAMPLES.columns.items() if not column.nullable} if table == "samples" else set()
    )
    return {
        "fields": [
            _field_descriptor(name, _field_type(columns.field(name).type), entries[name], name in required)
            for name in columns.names
        ],
        "primaryKey": _KEYS[table],
    }


def _nonempty_fields(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in row.items() if value != ""}


def _field_type(kind: arrow.DataType) -> str:
    if arrow.types.is_integer(kind):
        return "integer"
    return "number" if arrow.types.is_floating(kind) else "string"


def _field_descriptor(
    name: str, kind: str, entry: Mapping[Any, Any] | None = None, required: bool | None = None
) -> dict[str, Any]:
    entry = entry or {}
    if required is None:
        required = entry.get("may_be_empty") in (False, "False")
    field: dict[str, Any] = {"name": name, "type": kind}
    if entry.get("meaning"):
        field["description"] = str(entry["meaning"])
    if entry.get("unit"):
        field["unit"] = str(entry["unit"])
    if kind == "string":
        # An empty text means "not applicable", so readers must not take it for a missing value.
        field["missingValues"] = []
    elif required:
        field["constraints"] = {"required": True}
    return field
