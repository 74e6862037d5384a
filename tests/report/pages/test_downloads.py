"""Downloads beside the pages: verdicts, data and editions, rebuilt in place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from contract.errors import StudyError
from contract.files import read_json
from report.cli import main
from report.dataset.check import dataset_faults
from report.pages import render, site_paths
from report.pages.downloads import RECORD, write_downloads
from report.pages.editions.edition_record import read_editions
from tests.report.pages.edition_files import Study, stand_in_report


@pytest.fixture
def report(edition_2: Study, tmp_path: Path) -> Path:
    """The second edition's report without its downloads."""
    return stand_in_report(tmp_path / "report", edition_2)


def folder_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_site_holds_the_whole_dataset(report: Path, edition_2: Study) -> None:
    written = write_downloads(report, edition_2.verdicts, edition_2.dataset)
    assert all((report / name).is_file() for name in written)
    assert list(dataset_faults(report / site_paths.DATASET)) == []


def test_rebuild_is_identical_and_keeps_earlier_editions(report: Path, edition_1: Study, edition_2: Study) -> None:
    write_downloads(report, edition_2.verdicts, edition_2.dataset, edition_1.verdicts)
    before = folder_contents(report)
    times = [read_edition["generated_utc"] for read_edition in read_editions(report / site_paths.EDITIONS)]
    assert times == [edition_1.document["generated_utc"], edition_2.document["generated_utc"]]
    # A rebuild may read the earlier editions from the site's editions file instead of an earlier verdicts.json.
    write_downloads(report, edition_2.verdicts, edition_2.dataset, report / site_paths.EDITIONS)
    assert folder_contents(report) == before


def test_rebuild_removes_only_files_of_an_earlier_build(report: Path, edition_2: Study) -> None:
    write_downloads(report, edition_2.verdicts, edition_2.dataset)
    unlisted, outside = report / "data" / "mine.csv", report.parent / "outside"
    stale = report / "data" / "node-z" / "gemm.cpu.csv"
    stale.parent.mkdir()
    for path in (unlisted, outside, stale):
        path.write_text("anything", encoding="utf-8")
    listed = read_json(report / RECORD)
    listed["files"] += ["data/node-z/gemm.cpu.csv", "../outside", str(outside)]
    (report / RECORD).write_text(json.dumps(listed), encoding="utf-8")
    assert (
        main(
            [
                "site",
                "--verdicts",
                str(edition_2.verdicts),
                "--dataset",
                str(edition_2.dataset),
                "--report",
                str(report),
            ]
        )
        == 0
    )
    assert not stale.parent.exists() and unlisted.is_file() and outside.is_file()
    assert (report / site_paths.PAGE).is_file() and (report / "data" / "results.csv").is_file()


def test_folder_without_report_is_refused(report: Path, edition_2: Study) -> None:
    (report / site_paths.PDF).unlink()
    with pytest.raises(StudyError, match=f"{site_paths.PDF}: render first"):
        write_downloads(report, edition_2.verdicts, edition_2.dataset)


def test_report_rendered_from_other_verdicts_is_refused(report: Path, edition_1: Study) -> None:
    with pytest.raises(StudyError, match=r"rendered from the verdicts of 2026-02-01.*render again"):
        write_downloads(report, edition_1.verdicts, edition_1.dataset)
    assert not (report / site_paths.VERDICTS).exists()


def test_verdicts_without_their_table_are_refused(report: Path, edition_2: Study, tmp_path: Path) -> None:
    alone = Path(shutil.copy(edition_2.verdicts, tmp_path / "verdicts.json"))
    with pytest.raises(StudyError, match=r"verdicts\.csv: no such file"):
        write_downloads(report, alone, edition_2.dataset)


def test_new_render_removes_files_that_only_an_earlier_render_made(tmp_path: Path) -> None:
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    for path in (
        out / "claims/X01.html",
        out / "claims/X01.qmd",
        out / "sitemap.xml",
        out / "data.csv",
        tmp_path / "a",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    scratch.mkdir()
    for name in ("index.html", "figures", "previews"):
        (scratch / name).touch()
    listed = ["claims/X01.html", "claims/X01.qmd", "sitemap.xml", "index.html", "../a", str(tmp_path / "a")]
    render._move_outputs(scratch, out, ["index"], {"files": listed})
    assert folder_contents(out).keys() == {"index.html", "data.csv"}
    assert (tmp_path / "a").exists()
