"""Reports from partial measurements, with failures confined to one page or figure."""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pypdf import PdfReader

from contract.errors import StudyError
from contract.files import read_json
from contract.node import write_node
from contract.sample_table import LATER, write_unchecked
from report.cli import main
from report.pages import site_content
from report.pages.charts import Chart
from report.pages.failures import Failures, read_failed_figures, read_failures
from report.pages.figure_data import Evidence
from report.pages.site_content import families
from tests.golden import partial
from tests.report.built_once import build_once

# Seeds for each test run; `python -m tests.golden.partial` tries more.
SEEDS = range(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_and_figures_are_made_from_any_part_of_the_nodes(tmp_path: Path, seed: int) -> None:
    partial.write_study(tmp_path / "nodes", seed, most=2)
    partial.judge_study(tmp_path, others=seed == 0)
    assert [str(failure) for failure in partial.find_failures(tmp_path, 0.1, seed).items] == []


def write_one_round(folder: Path, names: list[str], only: Sequence[str] = (), older: bool = False) -> None:
    """Write and judge the first round from each node.

    only: experiments to write; empty for all. older: if true, use the format of an earlier protocol.
    """
    for name in names:
        record, samples = partial.nodes()[name]
        if older:
            record = {key: value for key, value in record.items() if key not in ("jobs", "hosts")}
            samples = samples.drop(columns=list(LATER))
        samples = samples[samples["experiment"].isin(only)] if only else samples
        write_node(folder / "nodes" / name / "node.json", record)
        write_unchecked(folder / "nodes" / name / "rounds.parquet", samples[samples["round"] == 1], partial.TIMES)
    partial.judge_study(folder, others=False)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a study that has one round of some experiments on one machine.

    few.json has only three verdicts, to render quickly.
    """

    def make(folder: Path) -> None:
        write_one_round(folder, ["laptop"], ["bandwidth", "clock", "gemm", "peak", "training"])
        document = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
        document["verdicts"] = [verdict for verdict in document["verdicts"] if verdict["id"] in ("W04", "W15", "G09")]
        (folder / "few.json").write_text(json.dumps(document), encoding="utf-8")

    return build_once(tmp_path_factory, "one-round", make)


def test_one_round_in_an_earlier_format_makes_all_pages(tmp_path: Path) -> None:
    write_one_round(tmp_path, ["laptop", "amd-epyc-2c-089962.146241"], older=True)
    assert [str(failure) for failure in partial.find_failures(tmp_path, 0.1).items] == []


class BrokenPageError(Exception):
    """Error that tests raise while a page or a figure is made."""


def study_options(study: Path) -> list[str]:
    return ["--verdicts", str(study / "few.json"), "--data", str(study / "data")]


def break_page(*_: Any) -> NoReturn:
    raise BrokenPageError("no such case | <b>")


def test_failing_page_leaves_other_pages_intact(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim_context, originals = site_content.claim_context, families()
    monkeypatch.setattr(
        site_content,
        "claim_context",
        lambda verdict, *more: (break_page if verdict["id"] == "W15" else claim_context)(verdict, *more),
    )
    replaced = tuple(dataclasses.replace(each, show=break_page) if each.key == "memory" else each for each in originals)
    monkeypatch.setattr(site_content, "families", lambda: replaced)
    monkeypatch.setattr("report.pages.front_page.front_context", break_page)
    monkeypatch.setattr(site_content, "example_rows", break_page)
    report, failed = tmp_path / "report", {"measurements/memory", "claims/W15", "index", "advice"}
    assert main(["render", *study_options(study), "--out", str(report), "--renderer", "pandoc"]) == 1
    errors = capsys.readouterr().err
    pages = {str(path.relative_to(report))[:-5]: path.read_text(encoding="utf-8") for path in report.rglob("*.html")}
    assert {name for name, page in pages.items() if "This page could not be made" in page} == failed
    for name in failed:
        assert f"page {name}: could not be made: BrokenPageError: no such case" in errors
        assert name in pages["measurements/checks"]
    assert "no such case | &lt;b&gt;" in pages["measurements/checks"]
    assert {"claims", "claims/W04", "do-i-need-one", "machines", "measurements/index"} < {*pages}
    for name in ("report", "appendix"):
        assert len(PdfReader(report / f"{name}.pdf").pages) > 3
    assert main(["lint", *study_options(study), "--report", str(report)]) == 1
    lines = capsys.readouterr().out
    assert all(f"page {name}: could not be made" in lines for name in failed)
    assert main(["failures", "--report", str(report)]) == 1


def test_failing_figure_leaves_other_figures_intact(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    family_charts = site_content.family_charts

    def charts_with_broken_first(*args: Any) -> list[Chart]:
        first, *rest = family_charts(*args)
        return [dataclasses.replace(first, draw=break_page), *rest]

    monkeypatch.setattr("report.pages.render.family_charts", charts_with_broken_first)
    folder = tmp_path / "report" / "figures"
    assert main(["figures", "matrix-products", *study_options(study), "--out", str(folder)]) == 1
    assert "could not be made: BrokenPageError: no such case" in capsys.readouterr().err
    listed = json.loads((folder / "matrix-products.json").read_text(encoding="utf-8"))
    name = listed["figures"][0]
    assert [failure["name"] for failure in listed["failed"]] == [name] and len(listed["figures"]) > 1
    drawn = {figure: (folder / f"{figure}.svg").read_text(encoding="utf-8") for figure in listed["figures"]}
    assert [figure for figure, svg in drawn.items() if "This figure could not be drawn" in svg] == [name]


@pytest.mark.parametrize("damaged", ["{}", "5", "[1]", "[[]]", '[{"kind": "page"}]', "null", ""])
def test_damaged_failure_list_is_refused_by_file_name(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "failures.json").write_text(damaged, encoding="utf-8")
    with pytest.raises(StudyError, match=r"failures\.json"):
        read_failures(tmp_path)
    (tmp_path / "failures.json").rename(tmp_path / "memory.json")
    with pytest.raises(StudyError, match=r"memory\.json"):
        read_failed_figures(tmp_path)


def test_read_error_fails_one_page_and_full_disk_fails_the_report(tmp_path: Path) -> None:
    failures = Failures()
    with failures.catch("page", "claims"):
        (tmp_path / "missing.json").read_bytes()
    assert "FileNotFoundError" in failures.items.pop().reason
    with failures.catch("page", "memory"):
        raise OSError("Corrupt snappy compressed data.")
    assert [str(failure) for failure in failures.items] == [
        "page memory: could not be made: OSError: Corrupt snappy compressed data."
    ]
    with pytest.raises(OSError, match="No space"), failures.catch("page", "roofline"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert len(failures.items) == 1


def test_unknown_quantity_or_label_is_a_key_error(published_study: Path) -> None:
    evidence = Evidence(read_json(published_study / "verdicts.json"), published_study / "data")
    for read_quantity in (evidence.quantity, evidence.views[0].quantity):
        with pytest.raises(KeyError, match=r"gemm\.speed"):
            read_quantity("gemm.speed")
        with pytest.raises(KeyError, match=r"gemm\.rate has no label colour"):
            read_quantity("gemm.rate", colour="red")
