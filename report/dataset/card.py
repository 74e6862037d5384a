"""Describe the dataset for people and catalogues: data card, Croissant, citation, deposit and licence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from pyarrow import parquet

from contract.files import write_json, write_text
from contract.provenance import short_commit
from report.data.disturbances import MEANING
from report.dataset.declaration import Column, tables
from report.dataset.digests import digest
from report.dataset.files import columns_of
from report.publish.study_metadata import NAME, Study

LICENCE, LICENCE_TITLE = "CC-BY-4.0", "Creative Commons Attribution 4.0 International"
LICENCE_URL = "https://creativecommons.org/licenses/by/4.0/"
_TEMPLATES = Path(__file__).with_name("templates")
_CROISSANT_TYPES = {
    "text": "sc:Text", "integer": "sc:Integer", "number": "sc:Float", "boolean": "sc:Boolean",
}  # fmt: skip
# The context of Croissant 1.0: https://docs.mlcommons.org/croissant/docs/croissant-spec.html, appendix on JSON-LD.
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "samplingRate": "cr:samplingRate",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def write_card(folder: Path, document: Mapping[str, Any], study: Study, counts: Mapping[str, int]) -> None:
    """Write README.md, LICENSE, CITATION.cff and .zenodo.json into the dataset's folder.

    document: the verdicts. counts: rows by table.
    """
    machines = parquet.read_table(folder / "machines.parquet", columns=["virtual"])["virtual"].to_pylist()
    about = {
        "virtual": sum(virtual is True for virtual in machines),
        "title": study.title,
        "version": study.version,
        "authors": study.authors,
        "keywords": study.keywords,
        "commit": short_commit(document["commit"]),
        "generated": document["generated_utc"][:10],
        "licence": LICENCE_TITLE,
        "licence_url": LICENCE_URL,
        "counts": counts,
        "flags": {**MEANING, "throttled": f"{MEANING['throttled']}; in samples with the reason, as in throttled-power"},
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "key": ", ".join(f"`{name}`" for name in table.key),
                "rows": f"{counts[table.name]:,}",
                "columns": columns_of(folder, table),
            }
            for table in tables().values()
        ],
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    for name in ("README.md", "LICENSE", "CITATION.cff"):
        write_text(folder / name, environment.get_template(name).render(about).rstrip() + "\n")
    write_json(folder / ".zenodo.json", _deposit(about))


def _deposit(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a deposit, as Zenodo reads it: https://developers.zenodo.org/#representation."""
    return {
        "upload_type": "dataset",
        "title": f"{about['title']}: dataset",
        "description": "Measurements of AI workloads on CPUs and GPUs, measurements that others published, and the "
        "verdicts on claims that rest on both. README.md describes every table and column.",
        "creators": [{"name": about["authors"]}],
        "version": about["version"],
        "publication_date": about["generated"],
        "access_right": "open",
        "license": LICENCE.lower(),
        "keywords": list(about["keywords"]),
        "notes": f"Made from commit {about['commit']}.",
    }


def croissant(folder: Path, document: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Describe the Parquet files as a Croissant 1.0 dataset: a file object and a record set per table."""
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"{NAME}-dataset",
        "description": f"{study.title}: measurements, published records and verdicts, with an id for each number.",
        "url": "README.md",
        "license": LICENCE_URL,
        "version": study.version,
        "datePublished": document["generated_utc"],
        "citeAs": f"{study.authors}: {study.title}, dataset, version {study.version}",
        "creator": {"@type": "sc:Organization", "name": study.authors},
        "keywords": list(study.keywords),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": f"{name}.parquet",
                "name": f"{name}.parquet",
                "contentUrl": f"{name}.parquet",
                "encodingFormat": "application/x-parquet",
                "sha256": digest(folder / f"{name}.parquet"),
            }
            for name in tables()
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": name,
                "name": name,
                "description": table.title,
                "key": [{"@id": f"{name}/{column}"} for column in table.key],
                "field": [_croissant_field(name, column) for column in columns_of(folder, table)],
            }
            for name, table in tables().items()
        ],
    }


def _croissant_field(table: str, column: Column) -> dict[str, Any]:
    refers = column.refers.replace(".", "/")
    return {
        "@type": "cr:Field",
        "@id": f"{table}/{column.name}",
        "name": column.name,
        "description": f"{column.means} ({column.unit})" if column.unit else column.means,
        "dataType": _CROISSANT_TYPES[column.type],
        "source": {"fileObject": {"@id": f"{table}.parquet"}, "extract": {"column": column.name}},
        **({"references": {"field": {"@id": refers}}} if refers else {}),
    }
