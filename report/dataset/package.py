"""Write the dataset: all tables, with the files that describe, license and check them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyarrow import parquet

from contract.errors import StudyError
from contract.files import replace_folder, write_json, write_text
from report.data.gathered_files import read_result_ids
from report.data.published_records import Published
from report.dataset import card, judged, published
from report.dataset.declaration import Column, Table, tables
from report.dataset.digests import SUMS, digest, format_digests
from report.dataset.files import columns_of, write_table
from report.dataset.measured import to_table
from report.publish.field_descriptor import PROFILE, field_descriptor
from report.publish.study_metadata import NAME, Study, read_study
from report.verdicts import read_verdicts

# Tables that `gather` writes, and files beside them that the dataset takes over.
MEASURED = (
    "machines", "runs", "software", "points", "samples", "results", "result_flags", "metrics", "parameters",
)  # fmt: skip
RECORDS = "nodes.json"
# Files beside the tables, their digests and the records.
_BESIDE = ("README.md", "LICENSE", "CITATION.cff", ".zenodo.json", "datapackage.json", "croissant.json")


def write_dataset(data: Path, verdicts: Path, out: Path, reference: published.Entries, records: Published) -> list[str]:
    """Write the dataset into the folder `out`, which it replaces; return the names of its files.

    data: folder written by `gather`. verdicts: `verdicts.json` for these data. reference, records: published figures
    and measurements. Raises StudyError if a table is missing, the verdicts are of other data, or `out` holds other
    files, and OSError if a file cannot be written. If it fails, `out` stays as it was.
    """
    document = read_verdicts(verdicts)
    _refuse_other_folder(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    # The name is fixed, so that the next run removes what a killed run left.
    folder = out.with_name(f".{out.name}.new")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        _copy_measured(data, folder)
        for name, rows in _published_tables(reference, records):
            write_table(folder, name, to_table(name, rows))
        cells, evidence = judged.cell_rows(document, _result_ids(folder, document))
        for name, rows in (("claims", judged.claim_rows(document)), ("cells", cells), ("cell_evidence", evidence)):
            write_table(folder, name, to_table(name, rows))
        _describe(folder, document, read_study())
        replace_folder(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return sorted(path.name for path in out.iterdir())


def _refuse_other_folder(out: Path) -> None:
    """Raise StudyError if `out` is a file, or a folder with files that no dataset has: it would be deleted."""
    own = {f"{name}{suffix}" for name in tables() for suffix in (".parquet", ".csv")} | {*_BESIDE, RECORDS, SUMS}
    others = (
        [out] if out.is_file() else [path for path in (out.iterdir() if out.exists() else ()) if path.name not in own]
    )
    if others:
        raise StudyError(
            f"{others[0]}: is in no dataset: move it away, or name a new folder, because this command replaces {out}"
        )


def _copy_measured(data: Path, folder: Path) -> None:
    for name in MEASURED:
        for suffix in (".parquet", ".csv") if tables()[name].csv else (".parquet",):
            _copy(data / f"{name}{suffix}", folder)
    _copy(data / RECORDS, folder)


def _copy(source: Path, folder: Path) -> None:
    if not source.is_file():
        raise StudyError(f"{source}: no such file: write it with `python -m report gather`")
    shutil.copyfile(source, folder / source.name)


def _published_tables(
    reference: published.Entries, records: Published
) -> Iterable[tuple[str, Sequence[Mapping[str, Any]]]]:
    yield "records", published.record_rows(records)
    yield "sources", published.source_rows(records)
    yield from published.name_tables(records, reference)
    yield "reference", published.reference_rows(reference)
    yield "prices", published.price_rows(records, reference)


def _result_ids(folder: Path, document: Mapping[str, Any]) -> list[str]:
    """Return the result ids in order of the summary's rows. Raises StudyError unless the verdicts are of these data."""
    ids = read_result_ids(folder)
    lacking = {name.partition("/")[0] for name in ids} - {node["id"] for node in document["nodes"]}
    if lacking:
        raise StudyError(f"the verdicts are not of these data: they lack {', '.join(sorted(lacking))}: judge again")
    return ids


def _describe(folder: Path, document: Mapping[str, Any], study: Study) -> None:
    """Write the data card, the packages for programs, the citation files and the digests."""
    counts = {name: parquet.read_metadata(folder / f"{name}.parquet").num_rows for name in tables()}
    card.write_card(folder, document, study, counts)
    write_json(folder / "datapackage.json", data_package(folder, document, study))
    write_json(folder / "croissant.json", card.croissant(folder, document, study))
    write_text(folder / SUMS, format_digests(folder, dataset_files(folder)))


def dataset_files(folder: Path) -> list[Path]:
    """List a dataset's files that have a digest, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)


def data_package(folder: Path, document: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Describe the dataset as a Data Package: a resource per table and format, with keys and references.

    Source: Data Package 2.0, https://datapackage.org/standard/data-package/. The field property `unit` is our
    extension. A Parquet resource has no `bytes`, because Frictionless counts none for it.
    """
    resources = [resource for table in tables().values() for resource in _resources(folder, table)]
    record = folder / RECORDS
    resources.append(
        {
            "name": "nodes",
            "title": "Full record of each node",
            "path": RECORDS,
            "format": "json",
            "mediatype": "application/json",
            "encoding": "utf-8",
            "bytes": record.stat().st_size,
            "hash": f"sha256:{digest(record)}",
        }
    )
    return {
        "$schema": f"{PROFILE}/datapackage.json",
        "name": f"{NAME}-dataset",
        "title": f"{study.title}: dataset",
        "version": study.version,
        "created": document["generated_utc"],
        "licenses": [{"name": card.LICENCE, "path": card.LICENCE_URL, "title": card.LICENCE_TITLE}],
        "contributors": [{"title": study.authors}],
        "keywords": list(study.keywords),
        "resources": resources,
    }


def _resources(folder: Path, table: Table) -> Iterable[dict[str, Any]]:
    for suffix, media in (("parquet", "application/vnd.apache.parquet"), ("csv", "text/csv")):
        path = folder / f"{table.name}.{suffix}"
        if suffix == "csv" and not table.csv:
            continue
        yield {
            "name": f"{table.name}-{suffix}" if suffix == "csv" else table.name,
            "title": table.title,
            "type": "table",
            "path": path.name,
            "format": suffix,
            "mediatype": media,
            **({"encoding": "utf-8", "bytes": path.stat().st_size} if suffix == "csv" else {}),
            "hash": f"sha256:{digest(path)}",
            "schema": _schema(folder, table, suffix),
        }


def _schema(folder: Path, table: Table, suffix: str) -> dict[str, Any]:
    foreign_keys = [
        {
            "fields": [column.name],
            "reference": {"resource": column.refers.partition(".")[0], "fields": [column.refers.partition(".")[2]]},
        }
        for column in table.columns
        if column.refers and suffix == "parquet" and column.name in table.key
    ]
    nulls = columns_with_nulls(folder / f"{table.name}.parquet")
    columns = {column.name: column for column in columns_of(folder, table)}
    names = table.csv_names(columns) if suffix == "csv" else list(columns)
    return {
        "$schema": f"{PROFILE}/tableschema.json",
        "fields": [_field(columns[name], name in table.key, nulls) for name in names],
        "primaryKey": list(table.key),
        **({"foreignKeys": foreign_keys} if foreign_keys else {}),
    }


def columns_with_nulls(path: Path) -> set[str]:
    """Return the columns of a Parquet file that have missing values."""
    footer = parquet.read_metadata(path)
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    columns = [group.column(at) for group in groups for at in range(group.num_columns)]
    return {column.path_in_schema for column in columns if column.statistics is None or column.statistics.null_count}


def _field(column: Column, required: bool, nulls: set[str]) -> dict[str, Any]:
    # pandas, by which Frictionless reads Parquet, turns whole numbers into floats beside missing values.
    kind = "number" if column.type == "integer" and column.name in nulls else column.type
    return field_descriptor(column.name, "string" if kind == "text" else kind, column.means, column.unit, required)
