"""Tables with their text as codes say what they said, and one experiment is read without the others."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from report.data.categorical import coded, keys, read_coded

TEXT = st.sampled_from(["", "b", "a", "é", "B", "aa"])
TABLES = st.lists(st.tuples(TEXT, TEXT, st.integers(0, 3)), min_size=1, max_size=30).map(
    lambda rows: pd.DataFrame(rows, columns=["experiment", "node", "threads"]).astype({"experiment": str, "node": str})
)


def written(path: Path, *parts: pd.DataFrame) -> Path:
    """A Parquet file with a group of rows for each part."""
    tables = [arrow.Table.from_pandas(part, preserve_index=False) for part in parts]
    with parquet.ParquetWriter(path, tables[0].schema) as file:
        for table in tables:
            file.write_table(table)
    return path


@given(TABLES)
def test_codes_group_and_sort_as_their_texts_do(table: pd.DataFrame) -> None:
    made = coded(table)
    assert all(isinstance(made[name].dtype, pd.CategoricalDtype) for name in ("experiment", "node"))
    assert made.astype({"experiment": str, "node": str}).equals(table)
    for frame in (table, made):
        sizes = frame.groupby(["node", "experiment"], observed=True, sort=True).size()
        assert list(sizes.index) == sorted(set(zip(table["node"], table["experiment"], strict=True)))
    assert coded(made) is made


@given(TABLES, TABLES)
def test_keys_agree_where_rows_do(one: pd.DataFrame, other: pd.DataFrame) -> None:
    columns = ["node", "experiment", "threads"]
    mine, theirs = keys(coded(one), other, columns)
    for key, row in zip(mine, one[columns].itertuples(index=False, name=None), strict=True):
        for another, beside in zip(theirs, other[columns].itertuples(index=False, name=None), strict=True):
            assert (key == another) == (row == beside)


@given(TABLES, TABLES, st.lists(TEXT, min_size=1, max_size=3, unique=True))
def test_the_experiments_that_are_asked_for_are_read_whole(
    tmp_path_factory: pytest.TempPathFactory, one: pd.DataFrame, other: pd.DataFrame, wanted: list[str]
) -> None:
    path = written(tmp_path_factory.mktemp("table") / "t.parquet", one, other)
    whole = pd.concat([one, other], ignore_index=True)
    assert read_coded(path).astype({"experiment": str, "node": str}).equals(whole)
    expected = whole[whole["experiment"].isin(wanted)].reset_index(drop=True)
    found = read_coded(path, wanted)
    assert found.astype({"experiment": str, "node": str}).equals(expected)
    for columns in (["node", "threads"], ["threads", "experiment"]):
        narrow = read_coded(path, wanted, columns)
        assert narrow.astype({name: str for name in columns if name != "threads"}).equals(expected[columns])


def test_groups_of_other_experiments_are_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [pd.DataFrame({"experiment": [name] * 3, "value": [1.0, 2.0, 3.0]}) for name in ("clock", "gemm", "peak")]
    path = written(tmp_path / "t.parquet", *parts)
    read: list[list[int]] = []
    whole = parquet.ParquetFile.read_row_groups

    def noted(file: parquet.ParquetFile, groups: list[int], columns: list[str] | None = None) -> arrow.Table:
        read.append(groups)
        return whole(file, groups, columns=columns)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_groups", noted)
    assert list(read_coded(path, ["gemm"])["value"]) == [1.0, 2.0, 3.0]
    assert read == [[1]]
    assert not len(read_coded(path, ["none"]))
