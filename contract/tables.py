"""The table of samples: declared once, checked where it is written and where it is read.

The data dictionary is generated from this declaration.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pandera.pandas as pa
import pyarrow as arrow
import pyarrow.parquet as parquet

from contract.errors import StudyError
from contract.files import atomic
from contract.flags import FLAGS, known

SCHEMA_VERSION = 1
STATUSES = ("ok", "wrong", "unsupported", "skipped", "oom", "failed", "timeout")
STOP_REASONS = ("converged", "plateau", "budget", "samples")
# Columns that earlier data lack: there they are read as empty.
LATER = ("memory_clock_mhz", "utilisation")
ORIGINS = ("measured", "synthetic")


def _column(dtype: str, description: str, *checks: pa.Check, unit: str = "", null: bool = False) -> pa.Column:
    return pa.Column(dtype, checks=list(checks), nullable=null, description=description, metadata={"unit": unit})


def _json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


_NOT_NEGATIVE = pa.Check.ge(0, error="must not be negative")
_POSITIVE = pa.Check.gt(0, error="must be positive")

SAMPLES = pa.DataFrameSchema(
    {
        "node": _column(
            "str",
            "Machine: its kind (a readable name and a hash of its hardware) and, after a dot, which one of that kind",
        ),
        "run": _column("str", "The process that measured this round"),
        "round": _column("int64", "Round, from 1: one process, every point once, in shuffled order", pa.Check.ge(1)),
        "experiment": _column("str", "Experiment"),
        "device": _column("str", "Device: cpu, cuda:0, …"),
        "backend": _column("str", "Library that did the work"),
        "dtype": _column("str", "Number format of the operands; empty where none applies"),
        "threads": _column("int64", "CPU threads the work was given; 0 where none applies", _NOT_NEGATIVE),
        "params": _column(
            "str",
            "The point's other parameters: a JSON object with sorted keys",
            # Each text is read once, however often it stands there.
            pa.Check(
                lambda params: params.isin([text for text in params.unique() if _json_object(text)]),
                error="is not a JSON object",
            ),
        ),
        "metric": _column("str", "What was measured: time, time.forward, repeat_share, …"),
        "sample": _column("int64", "Index of the sample within its round, point and metric", _NOT_NEGATIVE),
        "value": _column("float64", "The measured value of one call; empty unless status is ok or wrong", null=True),
        "unit": _column("str", "Unit of value (SI; 1 for shares)"),
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
            pa.Check(
                lambda flags: flags.isin([text for text in flags.unique() if known(text)]),
                error=f"names an unknown flag (known: {', '.join(FLAGS)})",
            ),
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
        pa.Check(
            lambda table: table["status"].eq("ok") | table["reason"].ne(""),
            error="reason: is empty although the status is not ok",
        ),
    ],
    strict=True,
    ordered=False,
    unique=["node", "round", "experiment", "device", "backend", "dtype", "threads", "params", "metric", "sample"],
)


def validate(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """Check a table of samples; return it with its columns in the declared order.

    Raises StudyError with the column, the row and the value of the first fault.
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
    # A bad value in its own column first: it tells more than what follows from it for others.
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
    if hasattr(value, "item"):  # say -0.003, not np.float64(-0.003)
        value = value.item()
    return f"column {column!r}, row {row}: {value!r} {message}"


def write_samples(path: Path, table: pd.DataFrame, about: dict[str, Any]) -> None:
    """Write one round's samples as Parquet, whole or not at all.

    `about` (seed, start and end in UTC, seconds spent, options) goes into the
    file's metadata. Raises StudyError if the table does not conform, OSError if
    the place cannot be written.
    """
    checked = validate(table, str(path))
    contents = arrow.Table.from_pandas(checked, preserve_index=False)
    contents = contents.replace_schema_metadata(
        {b"study": json.dumps({"schema": SCHEMA_VERSION, **about}, sort_keys=True).encode()}
    )
    with atomic(path) as temporary:
        # A round is small: zstd would save a twentieth of its bytes, and take twice as long to be read.
        parquet.write_table(contents, temporary, compression="snappy")


def read_samples(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read one round's samples and what is known about the round.

    Raises StudyError naming the file and the reason if it is cut off, is of
    another schema version, or breaks the data dictionary.
    """
    contents, about = load_samples(path)
    return validate(frame(contents), str(path)), about


def load_samples(path: Path) -> tuple[arrow.Table, dict[str, Any]]:
    """As `read_samples`, but the table is not validated yet: many files are sooner checked together than one by one."""
    try:
        # Files are small: read in one go, they need no reading ahead.
        with parquet.ParquetFile(arrow.BufferReader(path.read_bytes()), pre_buffer=False) as file:
            contents = file.read(use_threads=False)
    except (arrow.ArrowException, OSError) as broken:
        reason = str(broken).splitlines()[0]
        raise StudyError(f"{path}: cannot be read as Parquet ({reason})") from None
    about = json.loads((contents.schema.metadata or {}).get(b"study", b"{}"))
    if about.get("schema") != SCHEMA_VERSION:
        raise StudyError(
            f"{path}: written under version {about.get('schema')} of the data dictionary, "
            f"this program reads version {SCHEMA_VERSION}: measure again or use the matching release"
        )
    return contents, about


def frame(contents: arrow.Table) -> pd.DataFrame:
    """What `load_samples` read, as a data frame; columns that earlier data lack are empty."""
    table = contents.to_pandas()
    return table.assign(**{name: float("nan") for name in LATER if name not in table.columns})


_KINDS = {"float64": "number", "int64": "whole number"}


def dictionary() -> pd.DataFrame:
    """The data dictionary: column, type, unit, whether it may be empty, meaning."""
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
