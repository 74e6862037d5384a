"""Each query in data/README.md gives the same table in DuckDB, pandas and Polars."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest

QUERIES = (Path(__file__).parents[3] / "data" / "README.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^### (\d+\. .*?)$(.*?)(?=^###? |\Z)", QUERIES, re.MULTILINE | re.DOTALL)


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with sorted columns and rows, numbers as floats and texts as text."""
    plain = pd.DataFrame(
        {
            name: column.astype(float) if pd.api.types.is_numeric_dtype(column.dtype) else column.astype(object)
            for name, column in sorted(table.items())
        }
    )
    return plain.sort_values([name for name in plain if plain[name].dtype == object] + list(plain), ignore_index=True)


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_query_gives_one_table_in_all_three(
    title: str, text: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dataset)
    (statement,) = re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    tables = [duckdb.connect().sql(statement).df()]
    for program in programs:
        names = {"pd": pd, "pl": pl}
        exec(program, names)  # the README's own code
        table: object = names["table"]
        tables.append(table.to_pandas() if isinstance(table, pl.DataFrame) else table)  # type: ignore[arg-type]
    assert len(tables) == 3 and len(tables[0]), title
    for table in tables[1:]:
        pd.testing.assert_frame_equal(in_order(tables[0]), in_order(table), check_dtype=False, rtol=1e-9)


def test_readme_has_the_queries() -> None:
    assert len(SECTIONS) == 11
