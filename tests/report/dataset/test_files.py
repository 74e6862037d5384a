"""Tables as CSV keep their types and values in the programs that read them, by the programs' defaults."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from report.dataset.files import write_csv

# Texts that programs like to misread.
MISREAD = [
    "1e10", "0123", "146241", "012345678901", "12.50", "1,000", "50%", ".5", "=1+1", "+1", "-1", "@SUM(A1)", "\tx",
    "'x", "\uff1d1+1", "NA", "None", "null", "nan", "TRUE", "false", "Infinity", "#N/A", "<NA>", " 7 ", "1_000",
    "1.#IND",
]  # fmt: skip
PLAIN = ["", "none", "1.2.3", "0x1000065", "12ab", "e10", "2026-11-28T10:11:12Z", "a,b", 'say "a"', "two\nlines", "é µ"]
TEXTS = st.sampled_from([*MISREAD, *PLAIN]) | st.from_regex(r"[0-9a-f]{6,12}", fullmatch=True)


def read_everywhere(table: pl.DataFrame, folder: Path) -> tuple[pd.DataFrame, pl.DataFrame]:
    """Write a table as CSV, and read it by the defaults of pandas and polars; warnings are errors."""
    write_csv(table.lazy(), folder / "a.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return pd.read_csv(folder / "a.csv"), pl.read_csv(folder / "a.csv")


@settings(
    max_examples=100, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(TEXTS, min_size=1, max_size=4))
@example(MISREAD)
def test_no_text_is_read_as_another_type(tmp_path: Path, texts: list[str]) -> None:
    table = pl.DataFrame({"id": [f"row {at}" for at in range(len(texts))], "text": texts})
    for frame in read_everywhere(table, tmp_path):
        kept = ["" if text is None or text != text else str(text).removeprefix("'") for text in frame["text"]]
        assert kept == texts
        assert not any(texts) or isinstance(next(text for text in frame["text"] if text == text and text), str)


def test_plain_texts_are_written_as_they_are(tmp_path: Path) -> None:
    _, frame = read_everywhere(pl.DataFrame({"text": PLAIN}), tmp_path)
    assert frame["text"].fill_null("").to_list() == PLAIN


@pytest.mark.parametrize("first", [0, 50, 150, 999])
def test_types_are_those_of_columns_that_begin_with_missing_or_whole_values(tmp_path: Path, first: int) -> None:
    lacking = [None] * first
    table = pl.DataFrame(
        {
            "id": [f"row {at}" for at in range(1000)],
            "share": [0.0] * first + [0.019] * (1000 - first),
            "late": [*lacking, *(at / 3 for at in range(1000 - first))],
            "count": [*lacking, *range(1000 - first)],
            "flag": [*lacking, *[True] * (1000 - first)],
            "sparse": [*lacking, "a", *[""] * (999 - first)],
        },
        schema={"id": pl.String, "share": pl.Float64, "late": pl.Float64, "count": pl.Int64, "flag": pl.Boolean,
                "sparse": pl.String},
    )  # fmt: skip
    by_pandas, by_polars = read_everywhere(table, tmp_path)
    assert by_polars.schema == table.schema
    assert by_polars.sort("id").drop("sparse").equals(table.sort("id").drop("sparse"))
    assert by_pandas.sort_values("id")["late"].tolist() == pytest.approx(
        [float("nan") if value is None else value for value in table.sort("id")["late"]], nan_ok=True
    )
