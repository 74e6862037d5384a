"""A result whose threads lacked cores in most rounds is told as disturbed wherever its number stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    """A node whose products of float32 were crowded in two of three rounds, those of float64 in one."""
    folder = tmp_path_factory.mktemp("disturbed")
    node = Factory(folder / "nodes")("node-a").gemm(27.9).gemm(14, dtype="float64").clock()
    for row in node.rows:
        rounds = {"float32": (1, 2), "float64": (3,)}.get(row["dtype"], ())
        # Most samples, not all.
        if row["experiment"] == "gemm" and row["round"] in rounds and row["sample"]:
            row["flags"] = CROWDED
    node.write()
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)
    judge(read_dataset(folder / "data", read_reference(REFERENCE)), folder / "verdicts.json", allow_synthetic=True)
    return folder


def test_the_summary_counts_the_rounds_in_which_threads_lacked_cores(study: Path) -> None:
    table = read_summary(study / "data").set_index(["experiment", "dtype"])
    assert table["n_disturbed"].to_dict() == {("clock", ""): 0, ("gemm", "float32"): 2, ("gemm", "float64"): 1}
    assert table["flags"]["gemm", "float32"].endswith("crowded in 8 of 15 samples (most: others had 1.0 cores, so "
                                                      "that 1 thread had 0.4 free cores)")  # fmt: skip


def test_cases_that_rest_on_it_say_so_and_others_do_not(study: Path) -> None:
    document = read_json(study / "verdicts.json")
    cases = [case for verdict in document["verdicts"] for case in verdict["cases"] if case.get("node")]
    assert read_dataset(study / "data").disturbed == {1}
    # Multiply-adds a cycle are a product over a clock, which was not disturbed.
    assert {case["disturbed"] for case in cases if case["behind"] == "0-1"} == {0.5}
    seen: set[str] = set()
    for verdict in document["verdicts"]:
        if any("disturbed" in case for case in verdict["cases"]):
            context = claim_context(verdict, document, {})
            assert any("disturbed)" in row["number"] for table in context["tables"] for row in table["rows"])
            assert any(table["disturbed"] for table in context["tables"])
            seen.add(verdict["id"])
    assert seen and len(seen) < len(document["verdicts"])


def test_the_page_of_the_measurement_and_explain_say_so(study: Path) -> None:
    evidence = Evidence(read_json(study / "verdicts.json"), study / "data")
    asked = ("matrix-products", "one-thread")
    pages = {
        family.key: disturbed_results.exhibits_with_disturbances(family, evidence)
        for family in families()
        if family.key in asked
    }
    said = [text for text in pages["matrix-products"][0].says if text.startswith("Disturbed: ")]
    assert len(said) == 1 and "gemm with 1 thread on " in said[0] and " (1)." in said[0]
    assert not [text for one in pages["one-thread"] for text in one.says if text.startswith("Disturbed")]
    rows = read_rows(study / "data", [0, 1, 2])
    told: dict[Any, str] = {row["dtype"]: row_lines(number, row)[1][1] for number, row in rows.items()}
    assert "disturbed: in 2 of them others had cores that it needed" in told["float32"]
    assert "disturbed" not in told[""]
