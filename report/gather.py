"""Gather: every node's samples and their summary as tidy tables, with the data dictionary."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from contract.files import atomic, write_json
from contract.tables import dictionary
from report.nodes import read_nodes
from report.summary import COLUMNS, summarise


def gather(directories: Sequence[Path], out: Path, allow_synthetic: bool = False) -> None:
    """Write samples, summary (Parquet and CSV), dictionary.csv, nodes.json and refused.json into `out`.

    Raises StudyError if no node can be used, OSError if `out` cannot be written.
    """
    found = read_nodes(directories, allow_synthetic)
    samples = found.samples()
    summary = summarise(samples)
    for name, table in (("samples", samples), ("summary", summary)):
        with atomic(out / f"{name}.parquet") as path:
            table.to_parquet(path, index=False, compression="zstd")
        with atomic(out / f"{name}.csv") as path:
            table.to_csv(path, index=False)
    with atomic(out / "dictionary.csv") as path:
        whole_dictionary().to_csv(path, index=False)
    nodes = [{**node.record, "label": node.label, "source": node.source, "rounds": node.rounds} for node in found.nodes]
    write_json(out / "nodes.json", nodes)
    write_json(out / "refused.json", found.refused)
    points = int((summary["status"] == "ok").sum())
    print(
        f"{len(found.nodes)} node(s), {len(samples):,} samples, {points:,} of {len(summary):,} series ok, "
        f"{len(found.refused)} file(s) left out: {out}",
        file=sys.stderr,
    )


def whole_dictionary() -> pd.DataFrame:
    """The data dictionary of both tables: table, column, type, unit, whether it may be empty, meaning."""
    samples = dictionary().assign(table="samples")
    summary = pd.DataFrame(
        [{"table": "summary", "column": name, "meaning": meaning} for name, meaning in COLUMNS.items()]
    )
    columns = ["table", "column", "type", "unit", "may_be_empty", "meaning"]
    return pd.concat([samples, summary], ignore_index=True).reindex(columns=columns)
