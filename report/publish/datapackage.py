"""Describe the files of data/: a Frictionless Data Package, with digests in the format of sha256sum.

Source: Data Package 2.0, https://datapackage.org/standard/data-package/ (and data-resource/, table-schema/). The field
property `unit` is our extension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, write_json, write_text
from contract.node import read_node, record_path
from contract.node_pack import ROUND
from contract.sample_table import SAMPLES, sample_dictionary
from report.advice.outcomes import COLUMNS, OUTCOMES
from report.data.published_records import COUNTS, MEANING, NUMBERS, PUBLISHED, REQUIRED, UNITS, read_published
from report.dataset.digests import SUMS, digest, digest_faults, format_digests
from report.publish.field_descriptor import PROFILE, field_descriptor
from report.publish.study_metadata import NAME, read_study

# Folders of data/ whose files have a digest. An edition has its own.
FOLDERS = ("nodes", "published", "reference", "names")
_MEDIA = {
    ".csv": ("csv", "text/csv"),
    ".json": ("json", "application/json"),
    ".parquet": ("parquet", "application/vnd.apache.parquet"),
    ".yaml": ("yaml", "application/yaml"),
    ".md": ("md", "text/markdown"),
}
_TYPES = {"number": "number", "whole number": "integer", "text": "string"}
_OUTCOMES = OUTCOMES.relative_to(PUBLISHED.parent).as_posix()
_PACKAGE, _SAMPLES, _RECORDS = "datapackage.json", "samples.schema.json", "published.schema.json"


def write_published(folder: Path) -> Path:
    """Write `folder`/datapackage.json and SHA256SUMS for the files under nodes/, published/, reference/ and names/.

    Each file is a resource: a round's samples have the schema samples.schema.json, a source's records
    published.schema.json. Returns the package's path. Raises StudyError if there is no node, or a node record or a
    source is unreadable, and OSError if a file cannot be read or written.
    """
    for place in (folder / "nodes").glob("*"):
        if record_path(place).is_file():
            read_node(record_path(place))
    sources = read_published(folder / "published").sources
    files = published_files(folder)
    if not any(path.suffix == ".parquet" for path in files):
        raise StudyError(f"{folder}: no rounds to describe: publish a node first")
    write_json(folder / _SAMPLES, _sample_schema())
    if sources:
        write_json(folder / _RECORDS, _record_schema())
    about = read_study()
    package = {
        "$schema": f"{PROFILE}/datapackage.json",
        "name": f"{NAME}-files",
        "title": f"{about.title}. Files of samples, published measurements, reference figures and names",
        "version": about.version,
        "contributors": [{"title": about.authors}],
        "keywords": list(about.keywords),
        "resources": [_resource(folder, path, sources) for path in files],
    }
    path = folder / _PACKAGE
    write_json(path, package)
    write_text(folder / SUMS, format_digests(folder, files))
    return path


def print_faults(folder: Path) -> int:
    """Print each fault of the lists of data/; return 1 if there are any. Raises StudyError."""
    files = published_files(folder)
    faults = list(_list_faults(folder, files))
    print("\n".join(faults) or f"{folder}: {len(files)} files, all as their digests say")
    if faults:
        print("If these files are right, list them anew: python -m report datapackage")
    return 1 if faults else 0


def is_listed(folder: Path) -> bool:
    """Tell if both lists of data/ describe its files."""
    try:
        return not any(_list_faults(folder, published_files(folder)))
    except StudyError:
        return False


def _list_faults(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    """Yield a line per file that differs from SHA256SUMS, else a line if datapackage.json describes other files.

    Raises StudyError if a list is missing or unreadable.
    """
    faults = list(digest_faults(folder, files))
    yield from faults
    if faults:
        return
    listed = {item.get("path"): item.get("hash") for item in read_json(folder / _PACKAGE).get("resources", ())}
    if listed != {path.relative_to(folder).as_posix(): f"sha256:{digest(path)}" for path in files}:
        yield f"{_PACKAGE}: describes other files than {SUMS} lists"


def published_files(folder: Path) -> list[Path]:
    """List the files of data/ that have a digest, sorted. Hidden files and copies of rounds are left out."""
    files = (path for name in FOLDERS for path in (folder / name).glob("**/*"))
    hidden = re.compile(r"(^|/)\.")
    plain = [
        path
        for path in files
        if path.suffix in _MEDIA and path.is_file() and not hidden.search(path.relative_to(folder).as_posix())
    ]
    return sorted(
        (path for path in plain if path.suffix != ".parquet" or ROUND.fullmatch(path.name)), key=Path.as_posix
    )


def _resource(folder: Path, path: Path, sources: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    place = path.relative_to(folder)
    name = place.with_suffix("").as_posix().replace("/", ".").lower()
    kind, media = _MEDIA[path.suffix]
    # A file has the digest alone, and no `bytes`: Frictionless counts none for Parquet.
    return {
        "name": name if path.suffix == ".parquet" else f"{name}.{kind}",
        "path": place.as_posix(),
        **dict(_table_properties(place, sources)),
        "format": kind,
        "mediatype": media,
        **({} if kind == "parquet" else {"encoding": "utf-8"}),
        "hash": f"sha256:{digest(path)}",
    }


def _table_properties(place: Path, sources: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield title, type, schema and sources of a file that holds samples or records."""
    if place.suffix == ".parquet":
        yield "title", f"{place.parent.name}: samples of one round, {place.stem}"
        yield "type", "table"
        yield "schema", _SAMPLES
    elif place.parts[0] == "published" and place.stem in sources:
        source = sources[place.stem]
        yield "title", f"Measured by others: {source['title']}"
        yield "description", source["note"]
        yield "type", "table"
        yield "schema", _RECORDS
        yield "sources", [{"title": f"{source['title']}, {source['publisher']}", "path": source["url"]}]
    elif place.as_posix() == _OUTCOMES:
        yield "title", "Jobs that people ran, with the time or rate that they got"
        yield "type", "table"
        fields = [field_descriptor(name, kind, meaning, unit) for name, (kind, meaning, unit) in COLUMNS.items()]
        yield "schema", {"fields": fields, "primaryKey": ["id"]}


def _sample_schema() -> dict[str, Any]:
    columns = sample_dictionary().to_dict("records")
    fields = [
        field_descriptor(
            str(row["column"]), _TYPES[str(row["type"])], str(row["meaning"]), str(row["unit"]),
            not row["may_be_empty"] and row["column"] != "attempt",
        )
        for row in columns
    ]  # fmt: skip
    # A file holds one attempt, and old files lack that column and LATER: with "superset", they may.
    key = [name for name in SAMPLES.unique or [] if name != "attempt"]
    match = {"fieldsMatch": "superset", "primaryKey": key}
    return {"$schema": f"{PROFILE}/tableschema.json", "fields": fields, **match}


def _record_schema() -> dict[str, Any]:
    units = ", ".join(f"{measure} in {unit}" for measure, unit in UNITS.items())
    fields = [
        field_descriptor(
            name,
            "integer" if name in COUNTS else "number" if name in NUMBERS else "string",
            f"{meaning} ({units})" if name == "unit" else meaning,
            required=name in REQUIRED,
        )
        for name, meaning in MEANING.items()
    ]
    # With "superset", a source's table may lack some schema fields.
    match = {"fieldsMatch": "superset", "primaryKey": ["id"]}
    return {"$schema": f"{PROFILE}/tableschema.json", "fields": fields, **match}
