"""Write the files published beside the pages: verdicts, the dataset and editions."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import atomic_path, read_json, write_json, write_text
from report.dataset.digests import SUMS
from report.dataset.package import dataset_files
from report.pages import site_paths
from report.pages.editions.edition_record import earlier_editions, extract_edition, read_editions, write_editions
from report.verdicts import read_verdicts

# Empty file to stop GitHub Pages from running Jekyll and from dropping files whose names start with a dot or an
# underscore.
_NO_TEMPLATES = ".nojekyll"
RECORD = "site.json"


def write_downloads(report: Path, verdicts: Path, dataset: Path, previous: Path | None = None) -> list[str]:
    """Add the download files to the folder `report`, and return their names.

    Files that only an earlier build wrote are removed.
    report: folder filled by `report render`.
    verdicts: the rendered verdicts.json, with verdicts.csv beside it.
    dataset: folder written by `report dataset` for these verdicts.
    previous: an earlier verdicts.json, or the editions.json from the previous site, to list earlier editions in the new
    editions.json.

    Raises StudyError if the report or the dataset was made from other verdicts, or if an input is missing or unusable.
    Raises OSError if a file cannot be written.
    """
    document = read_verdicts(verdicts)
    check_rendered(report, document)
    _check_dataset(dataset, document)
    current = extract_edition(document, verdicts)
    editions = [*(earlier_editions(read_editions(previous), current) if previous else []), current]
    written = []
    for path in (*dataset_files(dataset), dataset / SUMS):
        name = f"{site_paths.DATASET}/{path.relative_to(dataset).as_posix()}"
        _copy(path, report / name)
        written.append(name)
    # The document goes last: a release compares its time with the verdicts.
    for source, name in ((verdicts.with_suffix(".csv"), site_paths.VERDICTS_TABLE), (verdicts, site_paths.VERDICTS)):
        _copy(source, report / name)
    write_editions(report / site_paths.EDITIONS, editions)
    write_text(report / _NO_TEMPLATES, "")
    written += [site_paths.VERDICTS, site_paths.VERDICTS_TABLE, site_paths.EDITIONS, _NO_TEMPLATES]
    _remove_others(report, written)
    write_json(report / RECORD, {"editions": len(editions), "files": sorted(written)})
    return sorted(written)


def check_rendered(report: Path, document: Mapping[str, Any]) -> None:
    """Raise StudyError unless the folder holds the report rendered from these verdicts."""
    lacking = [name for name in (site_paths.PAGE, site_paths.PDF) if not (report / name).is_file()]
    if lacking:
        raise StudyError(f"{report}: holds no {' and no '.join(lacking)}: render first, with `python -m report render`")
    rendered_utc = read_json(report / site_paths.RENDERED).get("generated_utc")
    if rendered_utc != document["generated_utc"]:
        raise StudyError(
            f"{report}: was rendered from the verdicts of {rendered_utc or 'an unknown time'}, these are of "
            f"{document['generated_utc']}: render again"
        )


def _check_dataset(dataset: Path, document: Mapping[str, Any]) -> None:
    """Raise StudyError unless the folder holds the dataset for these verdicts."""
    package = dataset / "datapackage.json"
    if not package.is_file():
        raise StudyError(f"{package}: no such file: write it with `python -m report dataset --out {dataset}`")
    created = read_json(package).get("created")
    if created != document["generated_utc"]:
        raise StudyError(
            f"{dataset}: was made from the verdicts of {created or 'an unknown time'}, these are of "
            f"{document['generated_utc']}: make it again with `python -m report dataset`"
        )


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise StudyError(f"{source}: no such file: write it with `python -m report judge`")
    if source.resolve() == target.resolve():
        return
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def _remove_others(report: Path, written: list[str]) -> None:
    """Remove files that an earlier build listed but this build did not write. Files that no build listed stay."""
    try:
        listed = {str(name) for name in read_json(report / RECORD)["files"]}
    except (StudyError, KeyError, TypeError):
        return
    for name in listed - set(written):
        place = report / name
        if place.resolve().is_relative_to(report.resolve()):
            place.unlink(missing_ok=True)
            if place.parent != report and place.parent.is_dir() and not any(place.parent.iterdir()):
                place.parent.rmdir()
