"""Command `overview`: end a study with this machine beside the published ones, its noisy results, and the report."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from contract.files import read_json
from report.commands.explain import WIDTH
from report.commands.machine_numbers import format_best
from report.data.best_results import best_results, count_disturbed, read_results
from report.data.machine_names import own_nodes
from report.formatting import first_items, format_count
from report.outcomes import format_counts

# At most this many experiments with noisy results are named.
_NAMED = 4


def overview_lines(results: Path, tally: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines. results: a study's folder. tally: its number of claims by verdict.

    Raises StudyError if one of the study's files cannot be read.
    """
    records, table = read_results(results / "data")
    own = _own_ids(results, records)
    published = table.filter(~pl.col("node").is_in(own))
    for name in own:
        rows = table.filter(node=name)
        beside = ", and on the right the best of each published machine" if published.height else ""
        yield f"this machine, {records[name]['label']}: its best results{beside}"
        for best in best_results(rows, published if published.height else None):
            yield format_best(best, compared=bool(published.height))
        yield from textwrap.wrap(_noise_text(rows), WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    claims = f"{format_count(sum(tally.values()), 'claim')}: {format_counts(tally)}"
    yield from textwrap.wrap(claims, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    if own:
        folder = "" if results == Path("results") else f" {results / 'nodes'}"
        yield f"hand in your measurements as one file (data/README.md): python -m experiments pack{folder}"
    yield f"report: {results / 'report' / 'index.html'}"


def _own_ids(results: Path, records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the ids of this study's own machines."""
    record = results / "node.json"
    own = {read_json(record)["id"]} if record.is_file() else own_nodes([*records.values()])
    return [name for name in records if name in own]


def _noise_text(rows: pl.DataFrame) -> str:
    """Count the results of a machine that other processes disturbed in most rounds, by experiment."""
    counts = count_disturbed(rows)
    if not counts:
        return f"noise: other processes disturbed none of {rows.height:,} results"
    named = first_items([f"{name} {number}" for name, number in counts.most_common()], _NAMED)
    return (
        f"noise: other processes disturbed {counts.total():,} of {rows.height:,} results in most rounds ({named}); "
        "their intervals may be wider. Causes: python -m experiments doctor"
    )
