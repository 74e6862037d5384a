"""Declaration of the sample table, used to check samples when they are written and when they are read.

The data dictionary is generated from this declaration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa
import pyarrow as arrow
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from contract.errors import StudyError
from contract.files import atomic_path, parse_json, read_plain_file
from contract.node import (
    A_TIME,
    OPTIONS,
    integer_schema,
    list_schema,
    map_schema,
    number_schema,
    object_schema,
    text_schema,
)
from contract.sample_flags import FLAGS, flags_known
from contract.schema import check_document

# In version 2, a round's `protocol` counts the changes of its experiment (`Experiment.protocol`). In version 1, it
# counted the changes of the whole program, and the first rounds had none.
SCHEMA_VERSIONS = (1, 2)
STATUSES = ("ok", "wrong", "unsupported", "skipped", "oom", "failed", "timeout")
STOP_REASONS = ("converged", "plateau", "budget", "samples")
# Columns that were added later, so that old files lack them. They are read as empty. Files without the column `attempt`
# hold first attempts.
LATER = ("memory_clock_mhz", "utilisation")
ORIGINS = ("measured", "synthetic")
# Limits for one round, about forty times the rows and a hundred times the bytes in the largest published round.
# MOST_ROWS: rows. MOST_BYTES: bytes of the file. MOST_EXPANDED: bytes after decompression. MOST_TEXT: bytes of text.
MOST_ROWS, MOST_BYTES, MOST_EXPANDED, MOST_TEXT = 500_000, 2**24, 2**28, 2**28
# Unit of a metric, by a pattern for its name. The first pattern to match determines the unit. A metric whose name
# matches no pattern may have any unit.
UNIT_OF = {
    "clock": "Hz",
    "*_share": "1",
    "*flop": "FLOP",
    "*bytes": "B",
    "peak_memory": "B",
    "rate": "FLOP/s",
    "*energy": "J",
    "*energy_from_power": "J",
    "time*": "s",
    "*time": "s",
    "*time.*": "s",
    "*latency": "s",
    "*delay": "s",
}

ROUND_SCHEMA = object_schema(
    "schema",
    schema={"enum": list(SCHEMA_VERSIONS)},
    seed=integer_schema(2**53),
    started_utc=A_TIME,
    ended_utc=A_TIME,
    wall_s=number_schema(1e8),
    # Seconds of wall_s during which the process was paused.
    stood_s=number_schema(1e8),
    host={"type": "string", "pattern": "^([0-9a-f]{6})?$"},
    warmup_s=number_schema(1e8),
    timed_s=number_schema(1e8),
    workers=integer_schema(1e6),
    options=OPTIONS,
    left_out_of_environment=map_schema(text_schema(4000)),
    environments=list_schema(map_schema(text_schema(4000)), 100),
    protocol=integer_schema(1e6),
    # Protocols of metrics that have another one than the experiment.
    metric_protocols=map_schema(integer_schema(1e6)),
    planned={"type": "string", "pattern": "^[0-9a-f]{12}$"},
)
ROUND_SCHEMA["if"] = {"properties": {"schema": {"const": 2}}}
ROUND_SCHEMA["then"] = {"required": ["protocol"]}


# Regular expressions for text columns.
# _NAME, _WORD: few characters are allowed, because these texts appear in file names and on terminals.
# _LINE: only the length is limited.
_NAME, _WORD, _LINE = r"[a-z0-9][a-z0-9_.-]{0,79}", r"[A-Za-z0-9_.:+-]{0,80}", r"(?s:.{0,10000})"
_FINITE = pa.Check(lambda values: ~np.isinf(values), error="is not finite")
_SMALL = pa.Check.le(2**53, error="is too large")


def _column(
    dtype: str, description: str, *checks: pa.Check, unit: str = "", null: bool = False, like: str = _LINE
) -> pa.Column:
    """Declare a column. Its numbers must be finite, and its whole numbers at most 2**53.

    like: regular expression that the texts in the column must match.
    """
    own = {
        "str": lambda: _check_each(re.compile(like).fullmatch, "is not such a name or text"),
        "int64": lambda: _SMALL,
    }
    all_checks = [*checks, own.get(dtype, lambda: _FINITE)()]
    return pa.Column(dtype, checks=all_checks, nullable=null, description=description, metadata={"unit": unit})


def _check_each(holds: Callable[[str], object], error: str) -> pa.Check:
    """Make a check for a text column that tests each distinct text only once."""
    return pa.Check(lambda texts: texts.isin([text for text in texts.unique() if holds(text)]), error=error)


def _is_flat_object(text: str) -> bool:
    """Tell if a text is a JSON object with only numbers and texts."""
    try:
        document = parse_json(text.encode(), "")
    except (StudyError, AttributeError, UnicodeEncodeError):
        return False
    return isinstance(document, dict) and not any(isinstance(value, (dict, list)) for value in document.values())


def metric_unit(metric: str) -> str | None:
    """Return the unit of a metric with this name, or None if any unit is allowed."""
    return next((unit for pattern, unit in UNIT_OF.items() if fnmatchcase(metric, pattern)), None)


def _unit_matches_metric(table: pd.DataFrame) -> pd.Series:
    wanted = table["metric"].map({metric: metric_unit(metric) for metric in table["metric"].unique()})
    return wanted.isna() | wanted.eq(table["unit"])


def _error_within_tolerance(table: pd.DataFrame) -> pd.Series:
    judged = table["status"].eq("ok") & table["tolerance"].notna()
    return ~judged | table["error"].le(table["tolerance"])


_NOT_NEGATIVE = pa.Check.ge(0, error="must not be negative")
_POSITIVE = pa.Check.gt(0, error="must be positive")

SAMPLES = pa.DataFrameSchema(
    {
        "node": _column(
            "str",
            "Machine: its kind (a readable name and a hash of its hardware) and, after a dot, which one of that kind",
            like=_NAME,
        ),
        "run": _column("str", "The process that measured this round", like=_WORD),
        "round": _column("int64", "Round, from 1: one process, every point once, in shuffled order", pa.Check.ge(1)),
        "attempt": _column(
            "int64",
            "Attempt at the point in this round, from 1: 2 and 3 follow at the end of the run if others disturbed the "
            "attempts before",
            pa.Check.ge(1),
        ),
        "experiment": _column("str", "Experiment", like=_NAME),
        "device": _column("str", "Device: cpu, cuda:0, …", like=r"[a-z]{1,20}(:[0-9]{1,4})?"),
        "backend": _column("str", "Library that did the work", like=_WORD),
        "dtype": _column("str", "Number format of the operands; empty where none applies", like=_WORD),
        "threads": _column("int64", "CPU threads the work was given; 0 where none applies", _NOT_NEGATIVE),
        "params": _column(
            "str",
            "The point's other parameters: a JSON object with sorted keys",
            _check_each(_is_flat_object, "is not a JSON object of numbers and texts"),
        ),
        "metric": _column("str", "What was measured: time, time.forward, repeat_share, …", like=_WORD),
        "sample": _column("int64", "Index of the sample within its round, point and metric", _NOT_NEGATIVE),
        "value": _column("float64", "The measured value of one call; empty unless status is ok or wrong", null=True),
        "unit": _column("str", "Unit of value (SI; 1 for shares)", like=r"[A-Za-z0-9/]{1,20}"),
        "calls": _column("int64", "Calls that one sample averages over", _NOT_NEGATIVE, unit="1"),
        "flop": _column("float64", "Floating-point operations of one call", _NOT_NEGATIVE, unit="FLOP", null=True),
        "bytes": _column("float64", "Least memory traffic of one call", _NOT_NEGATIVE, unit="B", null=True),
        "status": _column("str", "Outcome: " + ", ".join(STATUSES), pa.Check.isin(STATUSES)),
        "reason": _column("str", "Why the status is not ok; empty if it is"),
        "stop_reason": _column(
            "str",
            "Why sampling ended: " + ", ".join(STOP_REASONS) + "; empty if it never began",
            pa.Check.isin(("", *STOP_REASONS)),
        ),
        "error": _column("float64", "Relative error of the result against float64", _NOT_NEGATIVE, unit="1", null=True),
        "tolerance": _column("float64", "Largest error that counts as right", _NOT_NEGATIVE, unit="1", null=True),
        "elapsed_s": _column("float64", "Time since the round began", _NOT_NEGATIVE, unit="s", null=True),
        "clock_mhz": _column("float64", "Clock that the device's counter showed", _POSITIVE, unit="MHz", null=True),
        "memory_clock_mhz": _column(
            "float64", "Clock of the device's memory that its counter showed", _POSITIVE, unit="MHz", null=True
        ),
        "temperature_c": _column("float64", "Temperature of the device", unit="°C", null=True),
        "power_w": _column("float64", "Power that the device drew", _NOT_NEGATIVE, unit="W", null=True),
        "utilisation": _column(
            "float64",
            "Share of the time in which anything at all ran on a GPU, as its driver counts it",
            _NOT_NEGATIVE,
            unit="1",
            null=True,
        ),
        "other_load": _column(
            "float64",
            "CPU time that others took of the node, as a share of all cores",
            _NOT_NEGATIVE,
            unit="1",
            null=True,
        ),
        "steal": _column(
            "float64",
            "CPU time that the hypervisor withheld, as a share of all cores",
            _NOT_NEGATIVE,
            unit="1",
            null=True,
        ),
        "flags": _column(
            "str",
            "What may have spoilt the sample, as `name: what was seen`, separated by semicolons "
            f"(earlier data: bare names, separated by spaces). Names: {', '.join(FLAGS)}; empty if nothing was seen",
            _check_each(flags_known, f"names an unknown flag (known: {', '.join(FLAGS)})"),
        ),
        "origin": _column("str", "measured, or synthetic (tests only)", pa.Check.isin(ORIGINS)),
    },
    checks=[
        pa.Check(
            lambda table: table["value"].notna() | ~table["status"].isin(("ok", "wrong")),
            error="value: is empty although the status says that it was measured",
        ),
        pa.Check(
            lambda table: ~(table["unit"].eq("s") & table["value"].le(0)),
            error="value: is not a time",
        ),
        pa.Check(_unit_matches_metric, error="unit: is not the unit of this metric"),
        pa.Check(
            lambda table: ~table["metric"].str.endswith("_share") | ~table["value"].gt(1 + 1e-6),
            error="value: is more than the whole, for a share",
        ),
        pa.Check(_error_within_tolerance, error="error: exceeds the tolerance although the status is ok"),
        pa.Check(
            lambda table: table["status"].eq("ok") | table["reason"].ne(""),
            error="reason: is empty although the status is not ok",
        ),
    ],
    strict=True,
    ordered=False,
    unique=[
        "node",
        "round",
        "attempt",
        "experiment",
        "device",
        "backend",
        "dtype",
        "threads",
        "params",
        "metric",
        "sample",
    ],
)


def validate(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """Check a sample table; return it with its columns in the declared order.

    Raises StudyError with the column, row and value of the first fault.
    """
    try:
        checked = SAMPLES.validate(table, lazy=True)
    except pa.errors.SchemaErrors as faults:
        raise StudyError(f"{where}: {_first_fault(table, faults)}") from None
    return checked[list(SAMPLES.columns)]


def _first_fault(table: pd.DataFrame, faults: pa.errors.SchemaErrors) -> str:
    cases = faults.failure_cases
    absent = [name for name in SAMPLES.columns if name not in table.columns]
    if absent:
        return f"column {absent[0]!r} is missing"
    extra = [str(name) for name in table.columns if name not in SAMPLES.columns]
    if extra:
        return f"column {extra[0]!r} is not in the data dictionary"
    # Report faults in single columns first, because faults in the whole table may follow from them.
    cases = cases.sort_values("schema_context", kind="stable")
    located = cases[cases["index"].notna()]
    case = (located if len(located) else cases).iloc[0]
    if case["check"] == "multiple_fields_uniqueness":
        return f"row {int(case['index'])}: the same sample stands in the file twice"
    if pd.isna(case["index"]) or str(case["check"]).startswith("dtype"):
        return f"column {case['column']!r}: holds {case['failure_case']}, not {SAMPLES.columns[case['column']].dtype}"
    row, column, message = int(case["index"]), case["column"], str(case["check"])
    if case["schema_context"] == "DataFrameSchema":
        column, _, message = message.partition(": ")
        value = table.iloc[row][column]
    else:
        value = case["failure_case"]
    if hasattr(value, "item"):  # so that the message has -0.003, not np.float64(-0.003)
        value = value.item()
    return f"column {column!r}, row {row}: {value!r} {message}"


def write_samples(path: Path, table: pd.DataFrame, about: dict[str, Any]) -> None:
    """Write one round's samples as Parquet, atomically.

    `about` (seed, start and end in UTC, seconds spent, options, protocol) goes into the file's metadata.
    Raises StudyError if the table violates the declaration, and OSError if the file cannot be written.
    """
    write_unchecked(path, validate(table, str(path)), about)


def write_unchecked(path: Path, table: pd.DataFrame, about: dict[str, Any]) -> None:
    """Write samples like `write_samples`, but without validation, because readers validate them."""
    contents = arrow.Table.from_pandas(table, preserve_index=False)
    version = 2 if "protocol" in about else 1
    contents = contents.replace_schema_metadata(
        {b"study": json.dumps({"schema": version, **about}, sort_keys=True).encode()}
    )
    with atomic_path(path) as temporary:
        # Compress with snappy: on such small files, zstd would save 5% but double the reading time.
        parquet.write_table(contents, temporary, compression="snappy")


def read_samples(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read and validate one round's samples and metadata.

    Raises StudyError with the file name and the reason if the file is truncated, has another schema version, or breaks
    the data dictionary.
    """
    contents, about = load_samples(path)
    return validate(to_data_frame(contents), str(path)), about


def load_samples(path: Path) -> tuple[arrow.Table, dict[str, Any]]:
    """Read samples like `read_samples`, but without validation, because validating many files together is faster."""
    contents, about = load_encoded(path)
    return _decode_texts(contents), about


def load_encoded(path: Path) -> tuple[arrow.Table, dict[str, Any]]:
    """Read samples like `load_samples`, but keep text dictionary-encoded: decoding many files together is faster."""
    data = read_plain_file(path, MOST_BYTES)
    try:
        with _open_parquet(arrow.BufferReader(data)) as file:
            _check_size(file.metadata, path)
            contents = file.read(use_threads=False)
        contents.validate(full=True)
        _check_texts(contents, path)
    except (arrow.ArrowException, OSError) as broken:
        reason = (str(broken).splitlines() or [type(broken).__name__])[0]
        raise StudyError(f"{path}: cannot be read as Parquet ({reason})") from None
    about = parse_json((contents.schema.metadata or {}).get(b"study", b"{}"), f"{path}: metadata 'study'")
    version = about.get("schema") if isinstance(about, dict) else None
    if version not in SCHEMA_VERSIONS:
        readable = " and ".join(map(str, SCHEMA_VERSIONS))
        raise StudyError(
            f"{path}: written under version {version} of the data dictionary, "
            f"this program reads versions {readable}: measure again or use the matching release"
        )
    check_document(about, ROUND_SCHEMA, f"{path}: metadata 'study'")
    if "attempt" not in contents.column_names:
        contents = contents.append_column("attempt", arrow.array(np.ones(len(contents), dtype=np.int64)))
    # Drop other metadata, which pandas would apply to the data frame.
    return contents.replace_schema_metadata(None), about


def _open_parquet(source: arrow.BufferReader) -> parquet.ParquetFile:
    """Open a Parquet file, and keep its text dictionary-encoded. Pre-buffering is off, because files are small."""
    try:
        return parquet.ParquetFile(source, pre_buffer=False, read_dictionary=_TEXTS)
    except KeyError:
        # A text column is missing. `validate` reports this later.
        there = [name for name in parquet.read_schema(source).names if name in _TEXTS]
        return parquet.ParquetFile(source, pre_buffer=False, read_dictionary=there)


def rename_node(contents: arrow.Table, old: str, new: str) -> arrow.Table:
    """Replace the node id `old` by `new` in a sample table."""
    at = contents.column_names.index("node")
    column = contents.column(at)
    encoded = arrow.types.is_dictionary(column.type)
    names = column.cast(column.type.value_type) if encoded else column
    other = compute.if_else(compute.equal(names, old), arrow.scalar(new, names.type), names)
    return contents.set_column(at, contents.schema.field(at), other.dictionary_encode() if encoded else other)


def _check_size(footer: parquet.FileMetaData, path: Path) -> None:
    """Raise StudyError if a file would take too much memory to read."""
    groups = [footer.row_group(at) for at in range(min(footer.num_row_groups, 1000))]
    sizes = {
        "rows": (footer.num_rows, MOST_ROWS),
        "columns": (footer.num_columns, 100),
        "groups of rows": (footer.num_row_groups, 1000),
        "bytes, expanded": (sum(group.total_byte_size for group in groups), MOST_EXPANDED),
    }
    for what, (size, most) in sizes.items():
        if not 0 <= size <= most:
            raise StudyError(f"{path}: has {size:,} {what} (limit: {most:,})")


def _check_texts(contents: arrow.Table, path: Path) -> None:
    """Raise StudyError if the decoded text would take too much memory."""
    # Most files need no exact count: they would stay below the limit even if every row held all the file's text.
    if len(contents) * contents.get_total_buffer_size() <= MOST_TEXT:
        return
    size = 0
    for name, column in zip(contents.column_names, contents.columns, strict=True):
        for chunk in column.chunks if arrow.types.is_dictionary(column.type) else ():
            # Count a chunk's bytes only if they may exceed 1% of the limit. A row holds at most all texts in the chunk.
            if len(chunk) * chunk.dictionary.nbytes > MOST_TEXT / 100:
                size += compute.sum(compute.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        if size > MOST_TEXT:
            raise StudyError(f"{path}: column {name!r}: holds more than {MOST_TEXT:,} bytes of text")


def _decode_texts(contents: arrow.Table) -> arrow.Table:
    """Decode dictionary-encoded text columns."""
    plain = [
        field.with_type(field.type.value_type) if arrow.types.is_dictionary(field.type) else field
        for field in contents.schema
    ]
    return contents.unify_dictionaries().combine_chunks().cast(arrow.schema(plain))


def to_data_frame(contents: arrow.Table) -> pd.DataFrame:
    """Convert a table from `load_samples` or `load_encoded` to a data frame; fill missing LATER columns with NaN."""
    table = _decode_texts(contents).to_pandas()
    return table.assign(**{name: float("nan") for name in LATER if name not in table.columns})


_KINDS = {"float64": "number", "int64": "whole number"}
_TEXTS = [str(name) for name, column in SAMPLES.columns.items() if str(column.dtype) not in _KINDS]


def sample_dictionary() -> pd.DataFrame:
    """Return the data dictionary, a table with the columns column, type, unit, may_be_empty and meaning."""
    return pd.DataFrame(
        [
            {
                "column": name,
                "type": _KINDS.get(str(column.dtype), "text"),
                "unit": (column.metadata or {}).get("unit", ""),
                "may_be_empty": column.nullable,
                "meaning": column.description,
            }
            for name, column in SAMPLES.columns.items()
        ]
    )
