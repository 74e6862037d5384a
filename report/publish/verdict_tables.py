"""Write verdicts as typed tables: a row per claim, and a row per case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from contract.files import atomic_path
from contract.node import count_machines
from report import statistics, verdict_sentences
from report.formatting import case_nodes, verdict_case_name

_TEXT, _NUMBER, _COUNT = arrow.string(), arrow.float64(), arrow.int64()
_TEXTS, _NUMBERS = arrow.list_(_TEXT), arrow.list_(_NUMBER)

# For each column: its type, True if values may be missing, and its meaning, which is stored as column metadata.
CLAIMS: Mapping[str, tuple[arrow.DataType, bool, str]] = {
    "id": (_TEXT, False, "The claim"),
    "article": (_TEXT, False, "The article that makes it"),
    "article_title": (_TEXT, False, "That article's title"),
    "section": (_TEXT, False, "Where in the article"),
    "says": (_TEXT, False, "What the article says, in our words"),
    "kind": (_TEXT, False, "How it is to be decided: measured, derived, documented, judgement"),
    "verdict": (_TEXT, False, "supported, challenged, depends, outdated, undecided, awaiting …, not testable"),
    "finding": (_TEXT, False, "What was found, in one plain sentence"),
    "rule": (_TEXT, False, "The rule or rules, in words"),
    "quantity": (_TEXT, True, "The quantity of the first part that is decided; the next six columns are of that part"),
    "unit": (_TEXT, True, "Unit of estimate, low, high and threshold; 1 for ratios and shares"),
    "estimate": (_NUMBER, True, "Estimate of the case that stands for all"),
    "low": (_NUMBER, True, f"Lower end of its {100 * statistics.LEVEL:g}% interval"),
    "high": (_NUMBER, True, f"Upper end of its {100 * statistics.LEVEL:g}% interval"),
    "threshold": (_NUMBERS, True, "The threshold: one number, or both ends of a range"),
    "threshold_why": (_TEXT, True, "Why that one"),
    "cases": (_COUNT, False, "Cases that were compared, over all parts"),
    "cases_supporting": (_COUNT, False, "Cases that support the claim"),
    "cases_challenging": (_COUNT, False, "Cases that challenge it"),
    "turn": (_TEXT, True, "The nearest change that turns the verdict, in words"),
    "see_also": (_TEXTS, False, "Claims worth seeing beside it"),
    "sources": (_TEXTS, False, "Addresses of the published sources that it leans on"),
    "evidence_tier": (
        _TEXT,
        False,
        "Weakest tier that the verdict rests on: measured, derived, published, documented, none",
    ),
    "decided_on": (_TEXT, False, "Whose measurements it needs: here, others; empty if it is not decided"),
    "version": (_COUNT, False, "Version of the rule"),
}
CASES: Mapping[str, tuple[arrow.DataType, bool, str]] = {
    "claim": (_TEXT, False, "The claim"),
    "part": (_TEXT, False, "The claim's part; empty if it has one"),
    "quantity": (_TEXT, False, "What was compared"),
    "node": (_TEXT, True, "Machine; empty for published figures"),
    "device": (_TEXT, True, "Device of that machine; empty if several or none"),
    "machines": (
        _COUNT,
        False,
        "Machines of one kind that it is of, each once, `node` the first; 0 for published figures",
    ),
    "label": (_TEXT, False, "The case in words"),
    "labels": (_TEXT, False, "The case's other labels: a JSON object with sorted keys"),
    "estimate": (_NUMBER, True, "Estimate, after the rule's own arithmetic (ratio, slope, crossing) and scale"),
    "low": (_NUMBER, True, f"Lower end of its {100 * statistics.LEVEL:g}% interval"),
    "high": (_NUMBER, True, f"Upper end of its {100 * statistics.LEVEL:g}% interval"),
    "instance_low": (_NUMBER, True, "Least estimate of these machines, where they are several"),
    "instance_high": (_NUMBER, True, "Greatest estimate of these machines"),
    "unit": (_TEXT, False, "Unit of estimate, low and high; 1 for ratios and shares"),
    "n_rounds": (_COUNT, False, "Rounds behind it; 0 for published figures"),
    "n_samples": (_COUNT, False, "Samples in those rounds"),
    "behind": (_TEXT, True, "Rows of the summary behind it, by number from 0, as '3-5 9'"),
    "disturbed": (
        _NUMBER,
        True,
        "Share of the rows it is made from whose threads lacked cores in most rounds; empty if none",
    ),
    "outcome": (_TEXT, False, "supports, challenges or undecided"),
}
# Number of rows to convert and write at a time.
_TOGETHER = 20_000


def write_tables(document: Mapping[str, Any], out: Path) -> tuple[Path, Path]:
    """Write verdicts.parquet and verdict_cases.parquet beside `out` (verdicts.json); return both paths.

    document: the verdicts. Raises OSError if a file cannot be written.
    """
    verdicts = document["verdicts"]
    about = {name: document[name] for name in ("generated_utc", "commit", "study_version", "origin")}
    claims, cases = out.with_suffix(".parquet"), out.with_name("verdict_cases.parquet")
    _write_table(claims, CLAIMS, map(_claim_row, verdicts), about)
    _write_table(cases, CASES, (row for verdict in verdicts for row in _case_rows(verdict)), about)
    return claims, cases


def _claim_row(verdict: Mapping[str, Any]) -> dict[str, Any]:
    outcomes = [case["outcome"] for case in verdict["cases"]]
    threshold = verdict["threshold"]
    return {
        **{name: verdict.get(name) for name in CLAIMS},
        "threshold": [threshold] if isinstance(threshold, (int, float)) else threshold,
        "cases": len(outcomes),
        "cases_supporting": outcomes.count("supports"),
        "cases_challenging": outcomes.count("challenges"),
        "rule": verdict_sentences.rules_text(verdict["parts"]),
        "turn": verdict_sentences.turn_text(verdict),
        "sources": [source["url"] for source in verdict["sources"]],
    }


def _case_rows(verdict: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    parts = {part["name"]: part for part in verdict["parts"]}
    encoder = json.JSONEncoder(sort_keys=True, ensure_ascii=False)
    for case in verdict["cases"]:
        part = parts[case["part"]]
        yield {
            **{name: case.get(name) for name in CASES},
            "machines": count_machines(case_nodes(case)),
            "claim": verdict["id"],
            "label": verdict_case_name(case),
            "quantity": part["quantity"],
            "unit": part["unit"],
            "labels": encoder.encode(case["labels"]),
        }


def _write_table(
    path: Path,
    columns: Mapping[str, tuple[arrow.DataType, bool, str]],
    rows: Iterator[Mapping[str, Any]],
    about: Mapping[str, Any],
) -> None:
    fields = [
        arrow.field(name, kind, nullable=empty, metadata={"description": meaning})
        for name, (kind, empty, meaning) in columns.items()
    ]
    schema = arrow.schema(fields, metadata={b"study": json.dumps(about, sort_keys=True).encode()})
    with atomic_path(path) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as file:
        # Rows are written in batches, because together, the rows for a thousand machines would need as much memory as
        # the verdicts from which they are made.
        while batch := list(islice(rows, _TOGETHER)):
            table = arrow.Table.from_pylist(batch, schema=schema)
            table.validate(full=True)
            file.write_table(table)
