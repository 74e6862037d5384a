"""Disturbed results: if other programs left too few cores in most rounds, all outputs mark the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from contract.files import read_json
from report.data.gather import gather
from report.data.gathered_files import read_dataset, read_summary
from report.data.reference_figures import REFERENCE, read_reference
from report.data.summary_rows import read_rows, row_lines
from report.judging.judge import judge
from report.pages import disturbed_results
from report.pages.claim_page import claim_context
from report.pages.figure_data import Evidence
from report.pages.site_content import families

from .conftest import Factory

CROWDED = "busy: 50% other load; crowded: others had 1.0 cores, so that 1 thread had 0.4 free cores"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a judged node.

    Its experiment `gemm` has the flag `crowded` for float32 in rounds 1 and 2, and for float64 in round 3.
    """
    folder = tmp_path_factory.mktemp("disturbed")
    node = Factory(folder / "nodes")("node-a").gemm(27.9).gemm(14, dtype="float64").clock()
    for row in node.rows:
        rounds = {"float32": (1, 2), "float64": (3,)}.get(row["dtype"], ())
        # In a crowded round, all samples but the first have the flag.
        if row["experiment"] == "gemm" and row["round"] in rounds and row["sample"]:
            row["flags"] = CROWDED
    node.write()
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)
    judge(read_dataset(folder / "data", read_reference(REFERENCE)), folder / "verdicts.json", allow_synthetic=True)
    return folder


def test_summary_counts_disturbed_rounds(study: Path) -> None:
    table = read_summary(study / "data").set_index(["experiment", "dtype"])
    assert table["n_disturbed"].to_dict() == {("clock", ""): 0, ("gemm", "float32"): 2, ("gemm", "float64"): 1}
    assert table["flags"]["gemm", "float32"].endswith("crowded")
    row = int(table["row"]["gemm", "float32"])
    assert read_rows(study / "data", [row])[row]["flags"].endswith(
        "crowded in 8 of 15 samples (most: others had 1.0 cores, so that 1 thread had 0.4 free cores)"
    )
    flags = pl.read_parquet(study / "data" / "result_flags.parquet").filter(pl.col("flag") == "crowded")
    assert set(flags.select("n_samples", "of_samples", "worst").iter_rows()) == {(8, 15, 1.0), (4, 15, 1.0)}


def test_cases_with_disturbed_rows_are_marked(study: Path) -> None:
    document = read_json(study / "verdicts.json")
    cases = [case for verdict in document["verdicts"] for case in verdict["cases"] if case.get("node")]
    assert read_dataset(study / "data").disturbed_rows == {1}
    # The multiply-adds per cycle come from two summary rows. The row for `gemm` is disturbed and the row for `clock` is
    # not, so the disturbed fraction is 0.5.
    assert {case["disturbed"] for case in cases if case["behind"] == "0-1"} == {0.5}
    marked: set[str] = set()
    for verdict in document["verdicts"]:
        if any("disturbed" in case for case in verdict["cases"]):
            context = claim_context(verdict, document, {})
            assert any("disturbed)" in row["number"] for table in context["tables"] for row in table["rows"])
            assert any(table["disturbed"] for table in context["tables"])
            marked.add(verdict["id"])
    assert marked and len(marked) < len(document["verdicts"])


def test_family_page_and_row_lines_mark_disturbed_results(study: Path) -> None:
    evidence = Evidence(read_json(study / "verdicts.json"), study / "data")
    keys = ("matrix-products", "one-thread")
    pages = {
        family.key: disturbed_results.exhibits_with_disturbances(family, evidence)
        for family in families()
        if family.key in keys
    }
    remarks = [text for text in pages["matrix-products"][0].says if text.startswith("Disturbed: ")]
    assert len(remarks) == 1 and "gemm with 1 thread on " in remarks[0] and " (1)." in remarks[0]
    assert not [text for exhibit in pages["one-thread"] for text in exhibit.says if text.startswith("Disturbed")]
    rows = read_rows(study / "data", [0, 1, 2])
    lines: dict[Any, str] = {row["dtype"]: row_lines(number, row)[1][1] for number, row in rows.items()}
    assert "disturbed: in 2 of them others had cores that it needed" in lines["float32"]
    assert "disturbed" not in lines[""]
