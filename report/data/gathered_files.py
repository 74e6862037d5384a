"""Read gathered data for the judge and the renderer: the summary immediately, and samples on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
from pyarrow import ArrowException, parquet

from contract.errors import StudyError
from contract.files import read_json
from contract.sample_table import SAMPLES
from report.data.dataset import Dataset, categorical
from report.data.machine_names import short_names
from report.data.node_reader import Node, Nodes, empty_samples
from report.data.published_records import Published
from report.data.summary import COLUMNS, POINT
from report.dataset.declaration import PLAIN_UNITS

# Keys that `gather` adds to a node's record.
_ADDED_KEYS = ("label", "source", "rounds", "contributed", "repeats")


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
            self._cached = None
            ids = [node.id for node in self.nodes] if self.partial else []
            there = (self.folder / "samples.parquet").is_file()
            table = _read_samples(self.folder, *request, ids) if there else super().samples(columns=columns)
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
    summary = read_summary(folder, ["row", *POINT, *COLUMNS, "protocol"], only)
    records = read_json(folder / "nodes.json") if (folder / "nodes.json").exists() else None
    if not isinstance(records, list) or not records:
        raise StudyError(f"{folder / 'nodes.json'}: missing, or names no nodes. Write it with: python -m report gather")
    nodes = []
    for record in records:
        if not only or record["id"] in only:
            own = {name: value for name, value in record.items() if name not in _ADDED_KEYS}
            added = record.get("contributed", ""), record.get("repeats", {})
            nodes.append(Node(own, str(record["source"]), empty_samples(), list(record["rounds"]), *added))
    gathered = GatheredNodes(nodes, read_json(folder / "refused.json"), folder, bool(only))
    return Dataset(gathered, reference or {}, summary, published or Published(), short_names(records))


def read_summary(
    folder: Path, columns: Sequence[str] = (), nodes: Sequence[str] = (), rows: Sequence[int] = ()
) -> pd.DataFrame:
    """Read the results as summary rows, indexed by row number: the row of results.parquet, from 0.

    Units and parameters are those of samples: 1 for values without a dimension, and the JSON text `params`.
    columns, nodes, rows: columns, node ids and row numbers to read (default: all). Raises StudyError if a table is
    missing or unreadable.
    """
    wanted = list(columns) or ["row", *POINT, *COLUMNS]
    table = _scan(folder / "results.parquet").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    if nodes:
        table = table.filter(pl.col("node").is_in(list(nodes)))
    if rows:
        table = table.filter(pl.col("row").is_in(list(rows)))
    if "params" in wanted:
        points = _scan(folder / "points.parquet").select("point_id", "params")
        table = table.join(points, on="point_id", how="left", maintain_order="left")
    frame = _collect(
        table.select(list(dict.fromkeys(["row", *wanted]))).with_columns(_STUDY_UNITS), folder / "results.parquet"
    )
    return frame.set_index(frame["row"].rename(None))[wanted]


def read_result_ids(folder: Path) -> list[str]:
    """Return the result id of each summary row. Raises StudyError if the results cannot be read."""
    try:
        ids: list[str] = parquet.read_table(folder / "results.parquet", columns=["result_id"])["result_id"].to_pylist()
    except (OSError, ArrowException) as broken:
        raise StudyError(f"{folder / 'results.parquet'}: cannot be read ({broken}): gather again") from None
    return ids


def _read_samples(
    folder: Path, experiments: Sequence[str], columns: Sequence[str], nodes: Sequence[str]
) -> pd.DataFrame:
    """Read the samples that count, with the columns of SAMPLES; skip row groups without these experiments and nodes.

    Flags are bare names.
    """
    wanted = list(columns) or list(SAMPLES.columns)
    table = _scan(folder / "samples.parquet").filter("counts")
    if experiments:
        table = table.filter(pl.col("experiment").is_in(list(experiments)))
    if nodes:
        table = table.filter(pl.col("node").is_in(list(nodes)))
    if missing := set(wanted) & {"device", "backend", "dtype", "threads", "params"}:
        points = _scan(folder / "points.parquet").select("point_id", *sorted(missing))
        table = table.join(points, on="point_id", how="left", maintain_order="left")
    if missing := set(wanted) & {"round", "run", "origin"}:
        runs = _scan(folder / "runs.parquet").select("run_id", "origin", round="round_no", run="process")
        table = table.join(runs.select("run_id", *sorted(missing)), on="run_id", how="left", maintain_order="left")
    table = table.rename({"sample_no": "sample"}).with_columns(
        _STUDY_UNITS, pl.col("flags").str.replace_all(r"(\w)-\w+", "${1}")
    )
    return _collect(table.select(wanted), folder / "samples.parquet")


# Units of samples, in which values without a dimension have the unit 1.
_STUDY_UNITS = pl.col("^unit$").replace(dict.fromkeys(PLAIN_UNITS, "1"))


def _scan(path: Path) -> pl.LazyFrame:
    if not path.is_file():
        raise StudyError(f"{path}: no such file: write it with `python -m report gather`")
    return pl.scan_parquet(path)


def _collect(table: pl.LazyFrame, path: Path) -> pd.DataFrame:
    """Collect a table as a data frame with categorical texts. Raises StudyError if a file cannot be read."""
    try:
        rows = table.with_columns(pl.col(pl.String).cast(pl.Categorical)).collect()
        # Convert one column after the other, and drop each from `rows`. This halves the peak memory use.
        series = {name: rows.drop_in_place(name).to_pandas() for name in rows.columns}
        return categorical(pd.DataFrame(series, copy=False))
    except (OSError, pl.exceptions.PolarsError) as broken:
        raise StudyError(f"{path}: cannot be read ({str(broken).splitlines()[0]}): gather again") from None
