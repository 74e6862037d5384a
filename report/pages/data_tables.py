"""CSV tables with the site's data, for spreadsheets: the summary, and samples by machine, experiment and device.

Verdicts and samples refer to summary rows by number. Values that all samples of a summary row share (operations, bytes,
tolerance) appear only in the summary. A column that is empty in a whole file is dropped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contract.errors import StudyError
from contract.files import atomic_path
from report.data.dataset import Dataset
from report.data.gathered_files import read_dataset, read_summary
from report.data.summary import SERIES
from report.pages import site_paths

# Columns that are not in sample tables. The file's path names the node, experiment and device; the others are in the
# summary row, or are split into separate columns (params).
_ELSEWHERE = ["node", "experiment", "device", "params", "run", "flop", "bytes", "tolerance", "origin"]
_FIRST = ["row", "round", "backend", "dtype", "threads"]
# Columns to round to _DIGITS digits. They have more digits than are meaningful, and make up half a file.
_COUNTERS = [
    "error", "elapsed_s", "clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "utilisation", "other_load",
    "steal",
]  # fmt: skip
_DIGITS = 6
# A spreadsheet takes text that begins with one of these characters to be a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_data(data: Path, out: Path, nodes: Sequence[str] = ()) -> list[str]:
    """Write the tables from a gathered folder into the site folder `out`; return their relative paths.

    data: folder written by `report gather`.
    nodes: ids of the nodes to write sample tables for; a file with the samples of all nodes is then copied too. If
    `nodes` is empty, every node gets sample tables, and that file is not copied.

    Raises StudyError if a table is missing, if two tables would have the same name, or if a sample has no summary row.
    Raises OSError if a file cannot be written.
    """
    evidence = read_dataset(data, only=nodes)
    if not (data / "samples.parquet").is_file():
        raise StudyError(f"{data / 'samples.parquet'}: no such file: write it with `python -m report gather`")
    listed = []
    for (node, experiment, device), samples in _sample_tables(evidence):
        name = site_paths.samples_path(node, experiment, device)
        write_table(samples, out / name)
        size = (out / name).stat().st_size
        listed.append((name, node, experiment, device, len(samples), size))
    names = [name for name, *_ in listed]
    if len(set(names)) != len(names):
        raise StudyError(f"{data}: two sample tables would get the same name: rename an experiment or a device")
    columns = ["path", "node", "experiment", "device", "samples", "bytes"]
    write_table(pd.DataFrame(sorted(listed), columns=columns), out / site_paths.FILES)
    write_table(read_summary(data) if nodes else evidence.table, out / site_paths.SUMMARY)
    copied = [site_paths.DICTIONARY, site_paths.NODES, *([site_paths.SAMPLES] if nodes else [])]
    for name in copied:
        _copy_atomically(data / Path(name).name, out / name)
    return [*names, site_paths.FILES, site_paths.SUMMARY, *copied]


def _sample_tables(evidence: Dataset) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Yield a sample table for each node, experiment and device; only one experiment is in memory at a time."""
    for experiment in evidence.table["experiment"].unique():
        rows = evidence.table[evidence.table["experiment"] == experiment]
        samples = _with_row_numbers(evidence.samples(str(experiment)), rows)
        for (node, device), part in samples.groupby(["node", "device"], observed=True, sort=True):
            yield (str(node), str(experiment), str(device)), _wide_table(part)


def _with_row_numbers(samples: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Add to each sample the number of its summary row, and sort the samples by this number.

    Raises StudyError if a sample has no summary row.
    """
    numbered = samples.merge(rows[[*SERIES, "row"]], on=SERIES, how="left")
    if numbered["row"].isna().any():
        raise StudyError("samples.parquet: some samples have no row in summary.parquet: gather again")
    return numbered.astype({"row": int}).sort_values(["row", "round", "sample"], kind="stable")


def _wide_table(part: pd.DataFrame) -> pd.DataFrame:
    """Turn each parameter into a column, and drop columns that are empty or that the summary has."""
    codes, texts = pd.factorize(part["params"])
    parameters = _parameter_columns([str(text) for text in texts], list(part.columns)).take(codes)
    table = part.drop(columns=_ELSEWHERE).assign(**{name: _round_digits(part[name]) for name in _COUNTERS})
    other_columns = table.drop(columns=_FIRST)
    parts = [table[_FIRST], parameters, other_columns]
    combined = pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
    return combined[[name for name in combined if name in _FIRST or _has_values(combined[name])]]


def _parameter_columns(texts: Sequence[str], taken: Sequence[str]) -> pd.DataFrame:
    """Return the parameters in JSON texts as a table: a row per text, a column per parameter.

    taken: names in use for other columns. A parameter with such a name gets the prefix `param_`.
    """
    read = [json.loads(text) for text in texts]
    names = list(dict.fromkeys(name for parameters in read for name in parameters))
    columns = {
        f"param_{name}" if name in taken else name: _parameter_column([parameters.get(name) for parameters in read])
        for name in names
    }
    return pd.DataFrame(columns, index=range(len(texts)))


def _parameter_column(values: Sequence[Any]) -> Any:
    """Convert parameter values to a column, with integers as Int64."""
    if all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in values):
        return pd.array(list(values), dtype="Int64")
    return ["" if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]


def _has_values(column: pd.Series) -> bool:
    """True if any entry in the column is neither missing nor ''."""
    return bool((column.notna() & (column.astype(str) != "")).any())


def _round_digits(column: pd.Series) -> pd.Series:
    """Round numbers to `_DIGITS` significant digits."""
    codes, numbers = pd.factorize(column)
    short = [float(f"{number:.{_DIGITS}g}") for number in numbers]
    # `factorize` codes missing values as -1, which selects the last element, nan.
    return pd.Series(np.array([*short, np.nan])[codes], column.index)


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV; text that a spreadsheet would run as a formula is escaped. Raises OSError."""
    safe = {name: _escape_formulas(column) for name, column in table.items()}
    with atomic_path(path) as temporary:
        pd.DataFrame(safe).to_csv(temporary, index=False, lineterminator="\n")


def _escape_formulas(column: pd.Series) -> pd.Series:
    """Keep numbers; put an apostrophe before text that a spreadsheet would run as a formula."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    codes, words = pd.factorize(column)
    # A carriage return is replaced by a space: pandas does not quote it, so it would start a new row.
    safe = [f"'{word}" if word.startswith(_FORMULA) else word for word in map(str, words)]
    safe = [word.replace("\r", " ") for word in safe]
    return pd.Series(np.array([*safe, ""], dtype=object)[codes], column.index)


def _copy_atomically(source: Path, target: Path) -> None:
    """Copy a file atomically. Raises StudyError if `source` is missing, OSError if the copy fails."""
    if not source.is_file():
        raise StudyError(f"{source}: no such file: write it with `python -m report gather`")
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
