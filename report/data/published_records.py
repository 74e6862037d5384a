"""Published measurements: read CSV files, sources and comparisons.

Each source has one CSV file and an entry in sources.yaml. A record is a figure with its author, its position in the
source, its hardware and its task. Two records measure the same work if they agree in the columns WORK. Values that a
source does not state are empty. The columns DEFAULTED take an empty value from the source's entry.
"""

from __future__ import annotations

import csv
import json
import math
import re
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import StudyError
from contract.files import read_yaml, yaml_place
from contract.schema import did_you_mean
from report import PACKAGE, ROOT
from report.data.names import KINDS, read_names
from report.data.table_rows import row_dicts

PUBLISHED = ROOT / "data" / "published"
SCHEMA = json.loads((PACKAGE / "schemas" / "published.schema.json").read_text(encoding="utf-8"))
# Allowed values of the columns DEFAULTED, each with its meaning.
PER = {
    "device": "one GPU or processor, or the total divided by their number",
    "node": "one machine with all its GPUs or processors",
    "system": "all GPUs, processors and machines of the record together, undivided",
}
SPREAD_KINDS = {
    "extremes": "lowest and highest of the runs, or of devices measured at once",
    "standard-deviation": "one standard deviation to either side",
    "percentiles": "two percentiles of the runs",
    "days": "lowest and highest over several days or commits",
}
DATE_MEANINGS = {
    "measured": "the day of the run",
    "published": "the day of the publication, file, message or result's round",
    "list-edited": "the last change of a list that grew; its rows may be older",
    "released": "the release of the hardware, at which the price held",
}
DEFAULTED: dict[str, dict[str, str]] = {"per": PER, "spread_kind": SPREAD_KINDS, "date_means": DATE_MEANINGS}
# Columns that every file has, with their descriptions for error messages and the schema.
_COMMON = {
    "id": "Name of the record within its source",
    "measured_by": "Who ran it: a maker, an entrant, a user",
    "where": "Table and row, message, cell or key under the address at which the figure stands",
    "url": "Address of the file or message, at a commit where there is one",
    "date": "Day, month or year, as told; date_means says what happened then",
    "device": "What did the work: cpu or gpu",
    "cpu": "Processor",
    "cpus": "Processors in all",
    "cores": "Cores in all",
    "gpu": "GPU",
    "gpus": "GPUs in all",
    "nodes": "Machines",
    "memory_bytes": "Memory of the device, in bytes",
    "task": "What was done",
    "model": "Network, kernel or operation",
    "setting": "What else has to be the same for a fair comparison",
    "batch": "Batch size",
    "dtype": "Number format, where told",
    "software": "Libraries and versions",
    "variant": "What is switched on or off in comparisons within the source",
    "measure": "What the figure is; its unit follows",
    "value": "The figure, in the unit",
    "low": "Lower end of its spread, where told; spread_kind says of what kind",
    "high": "Upper end of its spread, where told",
    "unit": "Unit of the figure",
    "runs": "Number of runs, where told",
    "note": "What limits the figure",
}
COLUMNS = tuple(_COMMON)


def _choices(what: str, allowed: Mapping[str, str]) -> str:
    """Describe a column in DEFAULTED with its allowed values."""
    listed = "; ".join(f"{name}: {meaning}" for name, meaning in allowed.items())
    return f"{what}. {listed}. Empty: as the source's entry in sources.yaml has it"


# All columns. The optional columns come last, in this order. If a file lacks an optional column, its values are empty.
MEANING = {
    **_COMMON,
    "threads": "Threads at once on the whole GPU, also where the source tells those of one SM",
    "model_bytes": "Bytes of the model's weights",
    "parameters": "Parameters of the model",
    "m": "Rows of a product's result, or of the array that a kernel passes over",
    "n": "Columns of a product's result, or of that array",
    "k": "Terms of each sum of a product",
    "products": "Products of that shape in one call",
    "copies": "How data came to the GPU: included in the figure, or, of a copy, from pinned memory",
    "back_end": "Interface or library that the variant stands for",
    "scenario": "How MLPerf sends requests; training, where it trains",
    "quality": "Share of the reference's accuracy that MLPerf asks for, where a benchmark has several",
    "global_batch": "Samples in one step over all devices, where they may differ in a fair comparison",
    "per": _choices("What the figure is of", PER),
    "spread_kind": _choices("What low and high are", SPREAD_KINDS),
    "date_means": _choices("What happened on the date", DATE_MEANINGS),
    "copy_of": "Record (source/id) with the same result, which came first: count both once",
    "items": "Items, or steps of a chain, that a time or an energy is of, where it is of several",
}
COUNTS = (
    "cpus", "cores", "gpus", "nodes", "batch", "runs",
    "threads", "model_bytes", "parameters", "m", "n", "k", "products", "global_batch", "items",
)  # fmt: skip
NUMBERS = (*COUNTS, "quality", "memory_bytes", "value", "low", "high")
REQUIRED = ("id", "measured_by", "where", "url", "date", "device", "task", "model", "measure", "value", "unit")
# Columns in which two records must agree to measure the same work.
WORK = ("task", "model", "setting", "batch", "measure")
# Units of a rate, by what is counted. A sample is one item of the data set: an image, a text, a row.
RATE_UNITS = ("tokens/s", "samples/s", "queries/s", "steps/s", "loads/s")
# Units that the files may have for each measure.
ALLOWED_UNITS: dict[str, tuple[str, ...]] = {
    "time": ("s",),
    "latency": ("s",),
    "rate": RATE_UNITS,
    "bandwidth": ("B/s",),
    "flops": ("FLOP/s",),
    "share": ("share",),
    "ratio": ("ratio",),
    "count": ("count",),
    "cycles": ("cycles",),
    "power": ("W",),
    "energy": ("J",),
    "price": ("USD",),
    "price-per-hour": ("USD/h",),
}
# The same as text, for the schema of the files.
UNITS = {measure: " or ".join(units) for measure, units in ALLOWED_UNITS.items()}
# Units of the quantities that are made from records: they count rates in 1/s, and shares without a unit.
QUANTITY_UNITS = {
    **UNITS,
    "rate": "1/s",
    **dict.fromkeys(("share", "ratio", "count"), "1"),
}
# Measures whose total over several devices can be divided by their number.
DIVISIBLE = ("rate", "bandwidth", "flops", "power", "energy", "price", "price-per-hour")
# Measures for which a smaller value is better. To compare speeds, ratios of these measures are inverted.
LESS_IS_BETTER = ("time", "latency", "cycles", "energy", "power", "price", "price-per-hour")
# Maximum values for today's hardware; for bandwidth, flops and power, the maximum for one device. A figure above its
# maximum probably has a wrong unit, and is refused.
MOST = {
    "bandwidth": 2e13,
    "flops": 2e16,
    "share": 1.0,
    "power": 1e5,
    "time": 1e9,
    "latency": 1e5,
    "price": 1e7,
    "price-per-hour": 1e4,
}  # fmt: skip
TASKS = (
    "train", "train-to-target", "fine-tune", "infer", "generate", "prompt", "product", "convolution", "recurrence",
    "triad", "copy-in", "copy-out", "load-latency", "launch", "threads", "branch", "chain", "operators", "elementwise",
    "table", "input", "price", "telemetry", "libraries",
)  # fmt: skip
COPIES = ("", "included", "pinned")
SCENARIOS = ("", "training", "offline", "server", "single stream")
BACK_ENDS = ("", "vulkan", "opencl", "cuda", "cudnn", "plain kernels")
DTYPES = ("", "float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4", "int8", "int4", "mixed")
# Value of `licence` in sources.yaml if the source states none.
NO_LICENCE = "none stated"
_ID = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_URL = re.compile(r"https://[a-z0-9.-]+/[^\s<>\"]*")
_DATE = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-[0-3]\d)?)?")
_COMMIT = re.compile(r"/([0-9a-f]{40})(?:/|$)")

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Ratio of two records for the same work: the record `of` divided by the record `over`.

    differs: columns from `WORK`, or the number format, in which the records may differ. why: the reason for this.
    """

    id: str
    of: str
    over: str
    differs: tuple[str, ...]
    strength: str
    why: str


@dataclass(frozen=True)
class Published:
    """Published measurements.

    records: all records, with the columns `key` ('source/id'), `source` and MEANING (those of DEFAULTED filled in from
    the sources), and the ids of their hardware and model (accelerator_id, cpu_id, model_id; '' if the name is in no
    table). sources: sources by id.
    """

    records: pd.DataFrame = field(default_factory=lambda: _frame([]))
    sources: Mapping[str, Record] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()

    @cached_property
    def records_by_key(self) -> Mapping[str, Record]:
        return {str(row["key"]): row for row in row_dicts(self.records)}

    def family(self, source: str) -> str:
        """Return a source's family. Sources in the same family are not independent of each other."""
        return str(self.sources[source].get("family", source))


def read_published(directory: Path) -> Published:
    """Read all published measurements under `directory`. The result is empty if this folder is missing.

    Raises StudyError with file and line if a record lacks its source, unit or hardware, if a figure is physically
    impossible, or if the records in a comparison measure different work.
    """
    listing = directory / "sources.yaml"
    if not directory.is_dir():
        return Published()
    sources = {source["id"]: source for source in read_yaml(listing, {**SCHEMA, "$ref": "#/$defs/sources"}) or []}
    files = {path.stem: path for path in sorted(directory.glob("*.csv"))}
    for name, path in files.items():
        if name not in sources:
            raise StudyError(
                f"{path}: no source {name!r} in {listing}: describe it there.{did_you_mean(name, list(sources))}"
            )
    for number, name in enumerate(sources):
        if name not in files:
            raise StudyError(f"{yaml_place(listing, number)}: {name}: there is no file {directory / (name + '.csv')}")
        if sources[name]["licence"] == NO_LICENCE and sources[name]["may_redistribute"] == "yes":
            raise StudyError(
                f"{yaml_place(listing, number, 'may_redistribute')}: {name}: without a licence only facts may be "
                "passed on: write facts-only"
            )
    rows = [row for name, path in files.items() for row in _read_records(path, sources[name])]
    _check_copies(rows)
    published = Published(_frame(rows), sources)
    return Published(published.records, sources, tuple(_read_comparisons(directory / "comparisons.yaml", published)))


def _frame(rows: Sequence[Record]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=["key", "source", *MEANING, *KINDS.values()], dtype=object)
    return frame.astype(dict.fromkeys(NUMBERS, float))


def _read_records(path: Path, source: Record) -> Iterator[Record]:
    """Yield a source's records; `place` in each is its file and line."""
    line_of_id: dict[str, int] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file, strict=True)
            columns = tuple(table.fieldnames or ())
            if columns != tuple(name for name in MEANING if name in (*COLUMNS, *columns)):
                more = ",".join(name for name in MEANING if name not in COLUMNS)
                raise StudyError(
                    f"{path}, line 1: the columns have to be {','.join(COLUMNS)}, then, where needed, of {more}"
                )
            absent = dict.fromkeys(set(MEANING) - set(columns), "")
            for row in table:
                where = f"{path}, line {table.line_num}"
                if None in row or None in row.values():
                    raise StudyError(f"{where}: must have {len(columns)} fields")
                row |= absent
                row |= {name: row[name] or str(source.get(name, "")) for name in DEFAULTED if _needs(row, name)}
                for fault in _record_faults(row):
                    raise StudyError(f"{where}: {row['id'] or 'a record without an id'}: {fault}")
                if row["id"] in line_of_id:
                    raise StudyError(
                        f"{where}: the id {row['id']!r} is used twice, first in line {line_of_id[row['id']]}"
                    )
                line_of_id[row["id"]] = table.line_num
                numbers = {name: float(row[name]) if row[name] else math.nan for name in NUMBERS}
                ids = _ids(row, source["id"])
                key = f"{source['id']}/{row['id']}"
                yield {**row, **numbers, **ids, "source": source["id"], "key": key, "place": where}
    except (UnicodeDecodeError, csv.Error) as fault:
        raise StudyError(f"{path}: cannot be read as CSV in UTF-8 ({fault})") from None


def _ids(row: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the ids of a record's GPU, processor and model."""
    printed = {"accelerator": row["gpu"], "cpu": row["cpu"], "model": row["model"]}
    return {column: read_names(kind).find(printed[kind], source) for kind, column in KINDS.items()}


def _needs(row: Mapping[str, str], column: str) -> bool:
    """Return True if a record needs a value in one of the columns DEFAULTED."""
    return column != "spread_kind" or bool(row["low"] or row["high"])


def _check_copies(rows: Sequence[Record]) -> None:
    """Raise StudyError if a copy names no record, a record with another result, or a record that is a copy itself."""
    by_key = {row["key"]: row for row in rows}
    for row in rows:
        if not row["copy_of"]:
            continue
        at, first = f"{row['place']}: {row['id']}: copy_of", by_key.get(row["copy_of"])
        if first is None:
            raise StudyError(
                f"{at}: there is no record {row['copy_of']!r}.{did_you_mean(row['copy_of'], list(by_key))}"
            )
        unlike = [name for name in _SAME_RESULT if _differ(row[name], first[name])]
        if unlike:
            raise StudyError(f"{at}: {first['key']} differs in {', '.join(unlike)}: it is another result")
        if first["copy_of"] or first is row:
            raise StudyError(f"{at}: {first['key']} is a copy itself: name the first record")


# Columns in which a copy agrees with its first record.
_SAME_RESULT = ("device", "gpus", "task", "model", "measure", "value", "low", "high", "unit")


def _record_faults(row: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each fault in a record."""
    for name, pattern, wanted in (
        ("id", _ID, "small letters, digits, dots, hyphens"),
        ("url", _URL, "an https address: a record needs its source"),
        ("date", _DATE, "a date: a year, with month and day where they are known"),
    ):
        if not pattern.fullmatch(row[name]):
            yield f"{name}: {row[name]!r} is not {wanted}"
    if _DATE.fullmatch(row["date"]) and date_span(row["date"]) is None:
        yield f"date: {row['date']!r} is not in the calendar"
    for name in ("measured_by", "where", "model", "unit", "value"):
        if not row[name].strip():
            yield f"{name}: is empty ({MEANING[name]})"
    for name, allowed in (
        ("device", ("cpu", "gpu")), ("task", TASKS), ("measure", tuple(UNITS)), ("dtype", DTYPES), ("copies", COPIES),
        ("back_end", BACK_ENDS), ("scenario", SCENARIOS),
    ):  # fmt: skip
        if row[name] not in allowed:
            near = did_you_mean(row[name], list(allowed))
            yield f"{name}: {row[name]!r} is not allowed. Allowed: {', '.join(filter(None, allowed))}.{near}"
    if row["device"] in ("cpu", "gpu") and not row[row["device"]].strip():
        yield f"{row['device']}: is empty: a record needs the hardware that it is of"
    if row["unit"] not in ALLOWED_UNITS.get(row["measure"], (row["unit"],)):
        yield f"unit: {row['unit']!r} must be {UNITS[row['measure']]}, the unit for {row['measure']}"
    for name, meanings in DEFAULTED.items():
        if not _needs(row, name):
            if row[name]:
                yield f"{name}: {row[name]!r} without low or high"
        elif not row[name]:
            yield f"{name}: is empty, here and in sources.yaml. Allowed: {', '.join(meanings)}"
        elif row[name] not in meanings:
            near = did_you_mean(row[name], list(meanings))
            yield f"{name}: {row[name]!r} is not allowed. Allowed: {', '.join(meanings)}.{near}"
    yield from _number_faults(row)


def _number_faults(row: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each faulty number in a record."""
    numbers: dict[str, float] = {}
    for name in NUMBERS:
        if not row[name]:
            continue
        try:
            numbers[name] = float(row[name])
        except ValueError:
            yield f"{name}: {row[name]!r} is not a number"
            return
        if not 0 <= numbers[name] < 1e30:
            yield f"{name}: {row[name]} must be between 0 and 1e30"
    for name in COUNTS:
        if name in numbers and not (numbers[name].is_integer() and numbers[name] > 0):
            yield f"{name}: {row[name]} must be a whole number above 0"
    value = numbers.get("value")
    if value is None:
        return
    if not numbers.get("low", value) <= value <= numbers.get("high", value):
        yield f"value: {row['value']} does not lie between low and high"
    many = 1.0 if row["per"] == "device" else numbers.get("gpus" if row["device"] == "gpu" else "cpus", 1.0)
    most = MOST.get(row["measure"], math.inf) * (many if row["measure"] in ("bandwidth", "flops", "power") else 1)
    if value > most:
        yield f"value: {row['value']} {row['unit']} is more than any such hardware can do ({most:g}): check the unit"
    if value == 0 and row["measure"] not in ("share", "count", "ratio"):
        yield f"value: must be above 0 for {row['measure']}"


def _read_comparisons(path: Path, published: Published) -> Iterator[Comparison]:
    """Read the declared comparisons.

    Raises StudyError for a fault, for example if the two records differ in a WORK column that `differs` lacks.
    """
    if not path.exists():
        return
    names = set[str]()
    for number, raw in enumerate(read_yaml(path, {**SCHEMA, "$ref": "#/$defs/comparisons"}) or []):
        pair = Comparison(raw["id"], raw["of"], raw["over"], tuple(raw["differs"]), raw["strength"], raw["why"])
        if pair.id in names:
            raise StudyError(f"{yaml_place(path, number, 'id')}: the id {pair.id!r} is used twice")
        names.add(pair.id)
        for side in ("of", "over"):
            key = getattr(pair, side)
            if key not in published.records_by_key:
                near = did_you_mean(key, list(published.records_by_key))
                raise StudyError(f"{yaml_place(path, number, side)}: {pair.id}: there is no record {key!r}.{near}")
        above, below = published.records_by_key[pair.of], published.records_by_key[pair.over]
        where = f"{yaml_place(path, number)}: {pair.id}"
        unlike = [name for name in WORK if _differ(above[name], below[name]) and name not in pair.differs]
        if unlike:
            unequal = "; ".join(f"{name}: {above[name]!r} and {below[name]!r}" for name in unlike)
            raise StudyError(f"{where}: a ratio of unlike work ({unequal}): name it under differs")
        if above["unit"] != below["unit"]:
            raise StudyError(f"{where}: {above['unit']} cannot be divided by {below['unit']}")
        formats_known = above["measure"] in _FORMAT_FREE or (above["dtype"] and below["dtype"])
        if pair.strength == "direct" and not formats_known:
            raise StudyError(
                f"{where}: a direct comparison needs the number format of both records: "
                "fill in dtype, or write strength: indirect"
            )
        yield pair


# Measures that can be compared without knowing the two records' number formats.
_FORMAT_FREE = ("bandwidth", "latency", "time", "price", "price-per-hour", "count", "cycles")


def _differ(left: Any, right: Any) -> bool:
    """True if two values differ. Two NaN count as equal."""
    return not (left == right or (left != left and right != right))


def date_span(text: str) -> tuple[date, date] | None:
    """Return the first and the last day of a year, a month or a day; None if the calendar has no such day."""
    year, *rest = (int(part) for part in text.split("-"))
    first_month, last_month = (rest[0], rest[0]) if rest else (1, 12)
    first, last = date(year, first_month, 1), date(year, last_month, monthrange(year, last_month)[1])
    if len(rest) < 2:
        return first, last
    return (first.replace(day=rest[1]),) * 2 if 0 < rest[1] <= last.day else None


def url_commit(url: str) -> str:
    """Return the git commit in an address, which is the digest of the content there; '' if it has none."""
    match = _COMMIT.search(url)
    return match[1] if match else ""


def value_per_device(records: pd.DataFrame) -> pd.Series:
    """Return each figure for one GPU or processor; NaN if it cannot be divided or their number is not told.

    The total of a machine or a system is divided by its devices. Times, shares and counts have no such share, so only
    those of one device have a value.
    """
    devices = records["gpus"].where(records["device"] == "gpu", records["cpus"])
    machines = records["nodes"].fillna(1).where(records["per"] == "node", 1.0)
    shared = (records["value"] / (devices / machines)).where(records["measure"].isin(DIVISIBLE))
    return records["value"].where(records["per"] == "device", shared)


def with_derived(records: pd.DataFrame) -> pd.DataFrame:
    """Add the columns value_per_device, date_from, date_to and digest, which follow from the others.

    date_from and date_to: first and last day of the date. digest: commit in the record's address; empty without one.
    """
    spans = [date_span(text) or (None, None) for text in records["date"]]
    return records.assign(
        value_per_device=value_per_device(records),
        date_from=pd.Series([first for first, _ in spans], index=records.index, dtype=object),
        date_to=pd.Series([last for _, last in spans], index=records.index, dtype=object),
        digest=records["url"].map(url_commit),
    )
