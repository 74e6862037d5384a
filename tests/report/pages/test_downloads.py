"""What lies beside the pages: verdicts, data and editions, built again as often as one likes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from contract.errors import StudyError
from contract.files import read_json
from report.cli import main
from report.data.row_ranges import parse_ranges
from report.pages import site_paths
from report.pages.downloads import RECORD, write_downloads
from report.pages.editions.edition_record import read_editions
from tests.report.pages.edition_files import Judged, stand_in_report


@pytest.fixture
def report(second: Judged, tmp_path: Path) -> Path:
    """The second edition's report without its downloads."""
    return stand_in_report(tmp_path / "report", second)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_rows_that_a_verdict_names_lead_to_samples(report: Path, second: Judged) -> None:
    made = write_downloads(report, second.verdicts, second.data)
    assert all((report / name).is_file() for name in made)
    listed = pd.read_csv(report / site_paths.FILES)
    rows = {node: set[int]() for node in listed["node"]}
    for one in listed.itertuples():
        rows[str(one.node)] |= set(pd.read_csv(report / str(one.path))["row"])
    measured = [
        case for verdict in second.document["verdicts"] for case in verdict["cases"] if case["node"] and case["behind"]
    ]
    assert measured
    for case in measured:
        assert set(parse_ranges(case["behind"])) <= rows[case["node"]]


def test_built_again_it_is_the_same_and_knows_the_editions(report: Path, first: Judged, second: Judged) -> None:
    write_downloads(report, second.verdicts, second.data, first.verdicts)
    before = contents(report)
    times = [read_edition["generated_utc"] for read_edition in read_editions(report / site_paths.EDITIONS)]
    assert times == [first.document["generated_utc"], second.document["generated_utc"]]
    # The site as it was tells of the earlier editions as well as their verdicts do.
    write_downloads(report, second.verdicts, second.data, report / site_paths.EDITIONS)
    assert contents(report) == before


def test_what_an_earlier_build_made_is_removed_and_nothing_else(report: Path, second: Judged) -> None:
    write_downloads(report, second.verdicts, second.data)
    mine, outside = report / "data" / "mine.csv", report.parent / "outside"
    gone = report / "data" / "node-z" / "gemm.cpu.csv"
    gone.parent.mkdir()
    for path in (mine, outside, gone):
        path.write_text("anything", encoding="utf-8")
    listed = read_json(report / RECORD)
    listed["files"] += ["data/node-z/gemm.cpu.csv", "../outside", str(outside)]
    (report / RECORD).write_text(json.dumps(listed), encoding="utf-8")
    assert main(["site", "--verdicts", str(second.verdicts), "--data", str(second.data), "--report", str(report)]) == 0
    assert not gone.parent.exists() and mine.is_file() and outside.is_file()
    assert (report / site_paths.PAGE).is_file() and (report / site_paths.SUMMARY).is_file()


def test_a_folder_without_a_report_is_refused(report: Path, second: Judged) -> None:
    (report / site_paths.PDF).unlink()
    with pytest.raises(StudyError, match=f"{site_paths.PDF}: render first"):
        write_downloads(report, second.verdicts, second.data)


def test_a_report_of_other_verdicts_is_refused(report: Path, first: Judged) -> None:
    with pytest.raises(StudyError, match=r"rendered from the verdicts of 2026-02-01.*render again"):
        write_downloads(report, first.verdicts, first.data)
    assert not (report / site_paths.VERDICTS).exists()


def test_verdicts_without_their_table_are_refused(report: Path, second: Judged, tmp_path: Path) -> None:
    alone = Path(shutil.copy(second.verdicts, tmp_path / "verdicts.json"))
    with pytest.raises(StudyError, match=r"verdicts\.csv: no such file"):
        write_downloads(report, alone, second.data)
