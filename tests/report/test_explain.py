"""Command `explain`: a claim's evidence as plain text, down to the data rows."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report import verdict_sentences
from report.commands.explain import ROWS, WIDTH, Sources, explain, find_sources, find_verdict
from report.commands.short_explanation import explain_shortly
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.reference_figures import REFERENCE, read_reference
from report.data.row_ranges import format_ranges, parse_ranges
from report.verdicts import read_verdicts

from .conftest import Factory
from .test_cli import run_report


@pytest.fixture
def document(small_study: Path) -> dict[str, Any]:
    """Copy of the verdicts that tests may change."""
    return copy.deepcopy(read_verdicts(small_study / "verdicts.json"))


def test_explain_shows_article_rule_rows_and_sensitivity(small_study: Path, document: dict[str, Any]) -> None:
    text = explain(document, "n03", Sources(small_study / "data"))
    flat = " ".join(text.split())
    verdict = find_verdict(document, "N03")
    (part,), (case,) = verdict["parts"], verdict["cases"]
    for fragment in (
        "N03: CHALLENGED",
        verdict["article_title"],
        verdict["says"],
        "measured claim; evidence: measured; rule: version 3",
        verdict_sentences.rule_text(part),
        "Quantity gemm.mac_per_cycle_per_core, in MAC/cycle",
        "made of 2 rows of the summary",
        "gemm on cpu: torch, float32, 1 thread, k=512, m=512, n=512",
        "3 rounds, 15 samples",
        "round 3: 5, median",
        "With float64 instead of float32: challenged",
        f"What would change it ({verdict['robust']})",
        str(verdict_sentences.turn_text(verdict)),
        f"see also: {', '.join(verdict['see_also'])}",
    ):
        assert " ".join(fragment.split()) in flat, fragment
    # The text lists all rows behind the case, and the estimate follows from these rows.
    numbers = parse_ranges(case["behind"])
    assert all(f"row {number}" in flat for number in numbers)
    rows = read_dataset(small_study / "data").table.loc[numbers].set_index("experiment")
    by_hand = rows["flop"]["gemm"] / rows["estimate"]["gemm"] / 2 / rows["estimate"]["clock"]
    assert case["estimate"] == pytest.approx(by_hand)


def test_explain_without_data_tells_how_to_get_the_rows(document: dict[str, Any]) -> None:
    find_verdict(document, "N03")["parts"][0]["followed"] = False
    text = explain(document, "N03")
    assert "made of 2 rows of the summary, all that the quantity read of this node" in " ".join(text.split())
    assert "row " not in text.replace("rows", "")
    assert text.splitlines()[-1].startswith("Use --data DIR, the output folder of `gather`, to print the data behind")


def test_explain_limits_the_row_count(small_study: Path, document: dict[str, Any]) -> None:
    (case,) = find_verdict(document, "N03")["cases"]
    rows = read_dataset(small_study / "data").table.index.tolist()
    case["behind"] = format_ranges(rows)
    cut = explain(document, "N03", Sources(small_study / "data", most=3))
    assert f"made of {len(rows)} rows of the summary; the first 3" in cut and cut.count("    row ") == 3 < len(rows)
    assert explain(document, "N03", Sources(small_study / "data", most=None)).count("    row ") == len(rows)


def test_explanations_fit_the_width_and_cite_their_entries(small_study: Path, document: dict[str, Any]) -> None:
    sources = Sources(small_study / "data", read_reference(REFERENCE), most=None)
    for verdict in document["verdicts"]:
        text = explain(document, verdict["id"], sources)
        flat = " ".join(text.split())
        # Addresses are not wrapped, so that they can be copied.
        assert all(len(line) <= WIDTH or " " not in line.strip() for line in text.splitlines()), verdict["id"]
        assert " ".join(verdict["says"].split()) in flat
        entries = [name for part in verdict["parts"] for name in part["entries"]]
        assert all(f"{name} = " in flat for name in entries) and (not entries or "verified) https://" in flat)


def test_reference_entries_past_the_limit_are_counted(small_study: Path, document: dict[str, Any]) -> None:
    reference = read_reference(REFERENCE)
    names = find_verdict(document, "N03")["parts"][0]["entries"] = sorted(reference)[:5]
    for most, more in ((4, "and 1 more; use --rows all to print all"), (5, ""), (None, "")):
        text = explain(document, "N03", Sources(small_study / "data", reference, most))
        assert sum(f"{name} = " in text for name in names) == (most or 5)
        assert ("more; use --rows all" in text) == bool(more) and more in text


def test_data_folder_is_found_and_must_match_the_verdicts(
    small_study: Path, document: dict[str, Any], tmp_path: Path
) -> None:
    claim, verdicts = find_verdict(document, "N03"), small_study / "verdicts.json"
    assert find_sources(verdicts, None, REFERENCE, ROWS, claim).data == small_study / "data"
    assert find_sources(small_study / "elsewhere" / "verdicts.json", None, REFERENCE, ROWS, claim).data is None
    with pytest.raises(StudyError, match=r"nowhere: holds no results\.parquet"):
        find_sources(verdicts, Path("nowhere"), REFERENCE, ROWS, claim)
    Factory(tmp_path / "nodes")("node-z").gemm(27.9).gemm(14, n=256).clock().write()
    gather([tmp_path / "nodes"], tmp_path / "data", allow_synthetic=True)
    with pytest.raises(StudyError, match="not the data that these verdicts were made from"):
        explain(document, "N03", Sources(tmp_path / "data"))


def test_explain_rejects_unknown_claims_and_row_counts(small_study: Path) -> None:
    for words, message in (
        (("N033", "--verdicts", small_study / "verdicts.json"), "there is no claim 'N033'. Did you mean 'N03'"),
        (("N03", "--all", "--rows", "many"), "argument --rows"),
    ):
        result = run_report("explain", *words)
        assert result.returncode == 2 and result.stdout == "" and message in result.stderr.splitlines()[-1]


def test_short_explanation_has_number_threshold_evidence_and_change(
    small_study: Path, document: dict[str, Any]
) -> None:
    verdict = find_verdict(document, "N03")
    lines = explain_shortly(document, "n03", small_study / "verdicts.json").splitlines()
    fields = {line[2:16].strip(): line[16:] for line in lines[1:] if line[2] != " "}
    assert lines[0].startswith("N03: CHALLENGED, measured here. ")
    assert [*fields] == ["claim", "finding", "number", "rests on", "nearest case", "would change", "more"]
    assert fields["number"].endswith(verdict_sentences.rule_text(verdict["parts"][0]))
    assert fields["rests on"].startswith("1 case on ")
    assert ", against it: " in fields["nearest case"]
    assert "`" not in "".join(lines) and "cell" not in "".join(lines)


def test_short_explanations_are_short(small_study: Path, document: dict[str, Any]) -> None:
    for verdict in document["verdicts"]:
        lines = explain_shortly(document, verdict["id"], small_study / "verdicts.json").splitlines()
        assert len(lines) <= 12 and all(len(line) <= WIDTH for line in lines), lines


@pytest.mark.parametrize(("numbers", "text"), [((), ""), ((5, 3, 4, 9, 4), "3-5 9")])
def test_row_ranges_round_trip(numbers: tuple[int, ...], text: str) -> None:
    assert format_ranges(numbers) == text
    assert parse_ranges(text) == sorted(set(numbers))
