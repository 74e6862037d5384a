"""Command `numbers`: print the five numbers of a machine."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from contract.errors import StudyError
from report.data.best_results import Best, best_results, read_results
from report.data.gather import gather
from report.data.machine_names import own_nodes
from report.data.node_reader import NODES
from report.formatting import (
    count_machines_and_runs,
    format_interval,
    labels_text,
    range_words,
    with_unit,
)
from report.verdicts import STUDY_DATA, print_fallback


def print_numbers(data: Path | None, nodes: Sequence[str]) -> None:
    """Print the five numbers of each node, per device: the best of its points.

    data: output folder of `gather`; None for the study's, or before any study for the published nodes, with a note on
    stderr. nodes: node ids; without any, the nodes that are not published ones, else all. Raises StudyError if a table
    cannot be read, or a node is not in it.
    """
    records, table = _read_or_gather(data)
    if unknown := sorted({*nodes} - {*records}):
        raise StudyError(f"no node {unknown[0]} in {data or STUDY_DATA}. Nodes: {', '.join(records)}")
    own = own_nodes([*records.values()])
    for name in nodes or [name for name in records if name in own] or records:
        print(f"{records[name]['label']}: {name}")
        lines = [format_best(best) for best in best_results(table.filter(node=name))]
        print("\n".join(lines or ["  nothing measured yet"]))


def _read_or_gather(data: Path | None) -> tuple[dict[str, dict[str, Any]], pl.DataFrame]:
    folder = data or STUDY_DATA
    if data is None and not (folder / "nodes.json").exists():
        print_fallback(folder, "these are the published machines")
        with TemporaryDirectory() as scratch, redirect_stderr(io.StringIO()):
            gather([NODES], Path(scratch))
            return read_results(Path(scratch))
    return read_results(folder)


def format_best(best: Best, compared: bool = False) -> str:
    """Format a machine's best result as a line, with its labels, or with the range of other machines if `compared`."""
    result = format_interval(best.estimate, best.low, best.high, best.unit)
    text = f"  {best.number.title:22} {best.device:8} {result:34}"
    return f"{text} {range_beside(best) if compared else labels_text(best.labels)}".rstrip()


def range_beside(best: Best) -> str:
    """Format the best results of other machines, from the least to the most: '51 to 54 GB/s on 2 machines'."""
    values = sorted(best.beside.values())
    if not values:
        return "not measured there"
    ends = range_words(with_unit(values[0], best.unit), with_unit(values[-1], best.unit))
    return f"{ends} on {count_machines_and_runs([*best.beside])}"
