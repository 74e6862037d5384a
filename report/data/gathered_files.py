"""Read gathered data for the judge and the renderer: the summary immediately, and samples on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl

from contract.errors import StudyError
from contract.files import read_json
from report.data.dataset import Dataset, categorical
from report.data.node_reader import Node, Nodes, empty_samples
from report.data.published_records import Published

# Keys that `gather` adds to a node's record.
_ADDED_KEYS = ("label", "source", "rounds", "contributed")


@dataclass
class GatheredNodes(Nodes):
    """Nodes in a gathered folder, whose samples are read on demand."""

    folder: Path = Path()
    # True if the folder also holds other nodes, so that samples must be filtered by node.
    partial: bool = False
    # Cache only the last request's result, because the samples from a thousand nodes are large.
    _cached: tuple[Any, pd.DataFrame] | None = None

    def samples(self, *experiments: str, columns: Sequence[str] = ()) -> pd.DataFrame:
        request = experiments, tuple(columns)
        if self._cached is None or self._cached[0] != request:
            path = self.folder / "samples.parquet"
            self._cached = None
            ids = [node.id for node in self.nodes] if self.partial else []
            table = _read_table(path, *request, ids) if path.is_file() else super().samples(columns=columns)
            self._cached = request, table
        return self._cached[1]


def read_dataset(
    folder: Path,
    reference: Mapping[str, Mapping[str, Any]] | None = None,
    published: Published | None = None,
    only: Sequence[str] = (),
) -> Dataset:
    """Read the dataset that `gather` wrote to a folder. Raises StudyError if a table is missing or unreadable.

    only: node ids to read (default: all).
    """
    summary = read_summary(folder, nodes=only)
    records = read_json(folder / "nodes.json")
    if not isinstance(records, list) or not records:
        raise StudyError(f"{folder / 'nodes.json'}: names no nodes. Write it with: python -m report gather")
    nodes = []
    for record in records:
        if not only or record["id"] in only:
            own = {name: value for name, value in record.items() if name not in _ADDED_KEYS}
            pack = record.get("contributed", "")
            nodes.append(Node(own, str(record["source"]), empty_samples(), list(record["rounds"]), pack))
    gathered = GatheredNodes(nodes, read_json(folder / "refused.json"), folder, bool(only))
    return Dataset(gathered, reference or {}, summary, published=published or Published())


def read_summary(folder: Path, columns: Sequence[str] = (), nodes: Sequence[str] = ()) -> pd.DataFrame:
    """Read the summary table, indexed by row number. columns, nodes: columns and node ids to read (default: all).

    Raises StudyError if the table is missing or unreadable.
    """
    path = folder / "summary.parquet"
    if not nodes:
        return _read_table(path, columns=columns)
    table = _read_table(path, columns=["row", *columns] if columns else (), nodes=nodes)
    return table.set_index(table["row"].rename(None))


def _read_table(
    path: Path, experiments: Sequence[str] = (), columns: Sequence[str] = (), nodes: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a table's rows for these experiments and nodes (default: all); skip row groups without such rows."""
    if not path.is_file():
        raise StudyError(f"{path}: no such file: write it with `python -m report gather`")
    try:
        table = pl.scan_parquet(path)
        if experiments:
            table = table.filter(pl.col("experiment").is_in(list(experiments)))
        if nodes:
            table = table.filter(pl.col("node").is_in(list(nodes)))
        if columns:
            table = table.select(columns)
        rows = table.with_columns(pl.col(pl.String).cast(pl.Categorical)).collect()
        # Convert one column after the other, and drop each from `rows`. This halves the peak memory use.
        series = {name: rows.drop_in_place(name).to_pandas() for name in rows.columns}
        return categorical(pd.DataFrame(series, copy=False))
    except (OSError, pl.exceptions.PolarsError) as broken:
        raise StudyError(f"{path}: cannot be read ({str(broken).splitlines()[0]}): gather again") from None
