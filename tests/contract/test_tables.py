"""Test that the sample table is validated on writing and reading."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.__main__ import dictionary_markdown
from contract.errors import StudyError
from contract.sample_table import LATER, SAMPLES, read_samples, sample_dictionary, validate, write_samples

ROW: dict[str, Any] = {
    "node": "n", "run": "r", "round": 1, "attempt": 1, "experiment": "gemm", "device": "cpu", "backend": "torch",
    "dtype": "float32", "threads": 1, "params": '{"m":1}', "metric": "time", "sample": 0, "value": 1e-3, "unit": "s",
    "calls": 1, "flop": 2.0, "bytes": 1.0, "status": "ok", "reason": "", "stop_reason": "budget", "error": 1e-7,
    "tolerance": 1e-6, "elapsed_s": 0.1, "clock_mhz": None, "memory_clock_mhz": None, "temperature_c": None,
    "power_w": None, "utilisation": None, "other_load": 0.0, "steal": 0.0, "flags": "", "origin": "synthetic",
}  # fmt: skip


def make_table(*changes: dict[str, Any]) -> pd.DataFrame:
    rows = [{**ROW, "sample": index, **change} for index, change in enumerate(changes)]
    frame = pd.DataFrame(rows)
    for column, declared in SAMPLES.columns.items():
        if str(declared.dtype) == "float64" and column in frame:
            frame[column] = frame[column].astype("float64")
    return frame


def test_samples_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "gemm.cpu.1.parquet"
    written = make_table({}, {"value": 2e-3}, {"status": "skipped", "reason": "budget", "value": None})
    write_samples(path, written, {"seed": 7})
    read, about = read_samples(path)
    pd.testing.assert_frame_equal(read, validate(written, "written"))
    assert about["seed"] == 7


def test_rounds_with_and_without_a_protocol_are_read(tmp_path: Path) -> None:
    path = tmp_path / "gemm.cpu.1.parquet"
    for about, version in (({}, 1), ({"schema": 1, "protocol": 3}, 1), ({"protocol": 3}, 2)):
        write_samples(path, make_table({}), about)
        assert read_samples(path)[1] == {"schema": version, **about}
    for about, fault in (({"schema": 2}, "missing: protocol"), ({"schema": 3}, "this program reads versions 1 and 2")):
        write_samples(path, make_table({}), about)
        with pytest.raises(StudyError, match=fault):
            read_samples(path)


def test_later_columns_are_read_as_empty(tmp_path: Path) -> None:
    path, earlier = tmp_path / "new.parquet", tmp_path / "old.parquet"
    write_samples(path, make_table({"utilisation": 0.5}), {})
    contents = parquet.read_table(path)
    parquet.write_table(contents.drop_columns(list(LATER)), earlier)
    read, _ = read_samples(earlier)
    assert read[list(LATER)].isna().all(axis=None)
    assert read["value"].tolist() == [1e-3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": -0.003}, "column 'value', row 1: -0.003 is not a time"),
        ({"value": None}, "column 'value', row 1: nan is empty"),
        ({"status": "okay"}, "column 'status', row 1: 'okay'"),
        ({"status": "skipped"}, "column 'reason', row 1"),
        ({"params": "[1]"}, "column 'params', row 1: '[1]' is not a JSON object"),
        ({"threads": -1}, "column 'threads', row 1: -1 must not be negative"),
        ({"sample": 0}, "row 0: the same sample stands in the file twice"),
        ({"origin": "guessed"}, "column 'origin', row 1: 'guessed'"),
        ({"error": 1e-5}, "column 'error', row 1: 1e-05 exceeds the tolerance"),
        ({"unit": "ms"}, "column 'unit', row 1: 'ms' is not the unit"),
        ({"metric": "busy_share", "unit": "1", "value": 1.5}, "column 'value', row 1: 1.5 is more than the whole"),
        ({"flags": "buzy: 3%"}, "column 'flags', row 1: 'buzy: 3%' names an unknown flag"),
        ({"flop": math.inf}, "column 'flop', row 1: inf is not finite"),
    ],
)
def test_error_names_bad_row(change: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError) as caught:
        validate(make_table({}, change), "x.parquet")
    assert f"x.parquet: {words}" in str(caught.value)


def test_error_names_missing_and_unknown_columns() -> None:
    for frame, message in (
        (make_table({}).drop(columns="value"), "column 'value' is missing"),
        (make_table({}).assign(speed=1), "column 'speed' is not in the data dictionary"),
        (make_table({}).assign(round="one"), r"column 'round': holds .*, not int64"),
    ):
        with pytest.raises(StudyError, match=message):
            validate(frame, "x")


def test_truncated_file_and_other_schema_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_samples(path, make_table({}), {})
    whole = path.read_bytes()
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StudyError, match=r"a\.parquet: cannot be read as Parquet"):
            read_samples(path)
    make_table({}).to_parquet(path)
    with pytest.raises(StudyError, match="written under version None of the data dictionary"):
        read_samples(path)


def test_invalid_table_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(StudyError):
        write_samples(tmp_path / "a.parquet", make_table({"value": -1.0}), {})
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=25, deadline=None)
@given(st.floats(min_value=1e-12, max_value=1e6), st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_time_and_reason_round_trip(tmp_path_factory: pytest.TempPathFactory, seconds: float, reason: str) -> None:
    path = tmp_path_factory.mktemp("samples") / "a.parquet"
    write_samples(path, make_table({"value": seconds, "status": "wrong", "reason": "x" + reason}), {})
    read, _ = read_samples(path)
    assert math.isclose(read["value"][0], seconds, rel_tol=0)
    assert read["reason"][0] == "x" + reason


def test_committed_dictionary_matches_declaration() -> None:
    committed = Path(__file__).parents[2] / "data" / "dictionary.md"
    assert committed.read_text(encoding="utf-8") == dictionary_markdown(), (
        "run: python -m contract > data/dictionary.md"
    )
    words = sample_dictionary().set_index("column")
    assert (words["meaning"].str.len() > 4).all()
    assert words.loc[["flop", "bytes", "elapsed_s", "clock_mhz", "power_w"], "unit"].tolist() == [
        "FLOP", "B", "s", "MHz", "W",
    ]  # fmt: skip
