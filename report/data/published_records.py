"""Published measurements by others: one CSV a source, what each source is in sources.yaml, and comparisons of records.

A record is one figure: who measured it, where exactly it stands, on what, doing what. Two records are the same work if
they agree in WORK. What a source does not tell stays empty; nothing is filled in.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import StudyError
from contract.files import place, read_yaml
from contract.schema import did_you_mean
from report import PACKAGE, ROOT

PUBLISHED = ROOT / "data" / "published"
SCHEMA = json.loads((PACKAGE / "schemas" / "published.schema.json").read_text(encoding="utf-8"))
# Columns of every source's file, and the meaning of each; its first words say what must stand there.
_COMMON = {
    "id": "Name of the record within its source",
    "measured_by": "Who ran it: a maker, an entrant, a user",
    "where": "Table and row, message, cell or key under the address at which the figure stands",
    "url": "Address of the file or message, at a commit where there is one",
    "date": "When it was measured or published; of a list that grew, when the version that was read was last changed",
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
    "low": "Lower end of its spread, where told",
    "high": "Upper end of its spread, where told",
    "unit": "Unit of the figure",
    "runs": "Number of runs, where told",
    "note": "What limits the figure",
}
COLUMNS = tuple(_COMMON)
# Columns that follow in this order in the files that tell any of them; an absent column reads as empty.
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
}
COUNTS = (
    "cpus", "cores", "gpus", "nodes", "batch", "runs",
    "threads", "model_bytes", "parameters", "m", "n", "k", "products",
)  # fmt: skip
NUMBERS = (*COUNTS, "quality", "memory_bytes", "value", "low", "high")
REQUIRED = ("id", "measured_by", "where", "url", "date", "device", "task", "model", "measure", "value", "unit")
# What has to be the same for two records to be of the same work.
WORK = ("task", "model", "setting", "batch", "measure")
UNITS = {
    "time": "s",
    "latency": "s",
    "rate": "1/s",
    "bandwidth": "B/s",
    "flops": "FLOP/s",
    "share": "1",
    "ratio": "1",
    "count": "1",
    "cycles": "cycles",
    "power": "W",
    "energy": "J",
    "price": "USD",
    "price-per-hour": "USD/h",
}
# Of which less is better: a time is turned over before it is compared as a rate.
LESS_IS_BETTER = ("time", "latency", "cycles", "energy", "power", "price", "price-per-hour")
# No one device of today goes beyond these; a figure that does has a wrong unit.
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
    "triad", "copy-in", "copy-out", "load-latency", "launch", "threads", "branch", "table", "input", "price",
    "telemetry", "libraries",
)  # fmt: skip
COPIES = ("", "included", "pinned")
SCENARIOS = ("", "training", "offline", "server", "single stream")
BACK_ENDS = ("", "vulkan", "opencl", "cuda", "cudnn", "plain kernels")
DTYPES = ("", "float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4", "int8", "int4", "mixed")
_ID = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_URL = re.compile(r"https://[a-z0-9.-]+/[^\s<>\"]*")
_DATE = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-[0-3]\d)?)?")

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Two records of the same work, from different sources or within one: the first is divided by the second.

    differs: in what they differ that `WORK` or their format asks to be the same, with the reason in `why`.
    """

    id: str
    of: str
    over: str
    differs: tuple[str, ...]
    strength: str
    why: str


@dataclass(frozen=True)
class Published:
    """All records by `key` ('source/id'), their sources by id, and the declared comparisons."""

    records: pd.DataFrame = field(default_factory=lambda: _frame([]))
    sources: Mapping[str, Record] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()

    @cached_property
    def by_key(self) -> Mapping[str, Record]:
        rows = self.records.to_dict("records")
        return {str(row["key"]): {str(name): one for name, one in row.items()} for row in rows}

    def family(self, source: str) -> str:
        """What a source has in common with those that are not independent of it."""
        return str(self.sources[source].get("family", source))


def read_published(directory: Path) -> Published:
    """All published measurements under `directory`; none if there is no such folder.

    Raises StudyError with file and line for a record that lacks its source, its unit or its hardware, for a figure
    outside what is physically possible, and for a comparison of unlike work.
    """
    listing = directory / "sources.yaml"
    if not directory.is_dir():
        return Published()
    sources = {one["id"]: one for one in read_yaml(listing, {**SCHEMA, "$ref": "#/$defs/sources"}) or []}
    files = {path.stem: path for path in sorted(directory.glob("*.csv"))}
    for name, path in files.items():
        if name not in sources:
            raise StudyError(
                f"{path}: no source {name!r} in {listing}: describe it there.{did_you_mean(name, list(sources))}"
            )
    for number, name in enumerate(sources):
        if name not in files:
            raise StudyError(f"{place(listing, number)}: {name}: there is no file {directory / (name + '.csv')}")
    rows = [row for name, path in files.items() for row in _read_records(path, name)]
    found = Published(_frame(rows), sources)
    return Published(found.records, sources, tuple(_read_comparisons(directory / "comparisons.yaml", found)))


def _frame(rows: Sequence[Record]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=["key", "source", *MEANING], dtype=object)
    return frame.astype(dict.fromkeys(NUMBERS, float))


def _read_records(path: Path, source: str) -> Iterator[Record]:
    seen: dict[str, int] = {}
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
                    raise StudyError(f"{where}: has not {len(columns)} fields")
                row |= absent
                for fault in _record_faults(row):
                    raise StudyError(f"{where}: {row['id'] or 'a record without an id'}: {fault}")
                if row["id"] in seen:
                    raise StudyError(f"{where}: the id {row['id']!r} is used twice, first in line {seen[row['id']]}")
                seen[row["id"]] = table.line_num
                numbers = {name: float(row[name]) if row[name] else math.nan for name in NUMBERS}
                yield {**row, **numbers, "source": source, "key": f"{source}/{row['id']}"}
    except (UnicodeDecodeError, csv.Error) as fault:
        raise StudyError(f"{path}: cannot be read as CSV in UTF-8 ({fault})") from None


def _record_faults(row: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a record, in words."""
    for name, pattern, wanted in (
        ("id", _ID, "small letters, digits, dots, hyphens"),
        ("url", _URL, "an https address: a record needs its source"),
        ("date", _DATE, "a date: a year, with month and day where they are known"),
    ):
        if not pattern.fullmatch(row[name]):
            yield f"{name}: {row[name]!r} is not {wanted}"
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
    if row["measure"] in UNITS and row["unit"] != UNITS[row["measure"]]:
        yield f"unit: {row['unit']!r} is not that of {row['measure']}: {UNITS[row['measure']]}"
    yield from _number_faults(row)


def _number_faults(row: Mapping[str, str]) -> Iterator[str]:
    numbers: dict[str, float] = {}
    for name in NUMBERS:
        if not row[name]:
            continue
        try:
            numbers[name] = float(row[name])
        except ValueError:
            yield f"{name}: {row[name]!r} is no number"
            return
        if not 0 <= numbers[name] < 1e30:
            yield f"{name}: {row[name]} is below nothing or beyond any number that a machine reaches"
    for name in COUNTS:
        if name in numbers and not (numbers[name].is_integer() and numbers[name] > 0):
            yield f"{name}: {row[name]} is no count"
    value = numbers.get("value")
    if value is None:
        return
    if not numbers.get("low", value) <= value <= numbers.get("high", value):
        yield f"value: {row['value']} does not lie between low and high"
    many = numbers.get("gpus" if row["device"] == "gpu" else "cpus", 1.0)
    most = MOST.get(row["measure"], math.inf) * (many if row["measure"] in ("bandwidth", "flops", "power") else 1)
    if value > most:
        yield f"value: {row['value']} {row['unit']} is more than any such hardware can do ({most:g}): check the unit"
    if value == 0 and row["measure"] not in ("share", "count", "ratio"):
        yield f"value: a {row['measure']} of nothing was not measured"


def _read_comparisons(path: Path, found: Published) -> Iterator[Comparison]:
    """The declared comparisons. Raises StudyError for unlike work that is not declared as such."""
    if not path.exists():
        return
    names = set[str]()
    for number, raw in enumerate(read_yaml(path, {**SCHEMA, "$ref": "#/$defs/comparisons"}) or []):
        one = Comparison(raw["id"], raw["of"], raw["over"], tuple(raw["differs"]), raw["strength"], raw["why"])
        if one.id in names:
            raise StudyError(f"{place(path, number, 'id')}: the id {one.id!r} is used twice")
        names.add(one.id)
        for side in ("of", "over"):
            key = getattr(one, side)
            if key not in found.by_key:
                near = did_you_mean(key, list(found.by_key))
                raise StudyError(f"{place(path, number, side)}: {one.id}: there is no record {key!r}.{near}")
        above, below = found.by_key[one.of], found.by_key[one.over]
        unlike = [name for name in WORK if _differ(above[name], below[name]) and name not in one.differs]
        if unlike:
            told = "; ".join(f"{name}: {above[name]!r} and {below[name]!r}" for name in unlike)
            raise StudyError(f"{place(path, number)}: {one.id}: a ratio of unlike work ({told}): name it under differs")
        if above["unit"] != below["unit"]:
            raise StudyError(f"{place(path, number)}: {one.id}: {above['unit']} cannot be divided by {below['unit']}")
        if (
            one.strength == "direct"
            and not (above["dtype"] and below["dtype"])
            and above["measure"] not in _FORMAT_FREE
        ):
            raise StudyError(f"{place(path, number)}: {one.id}: the number format of one side is not told: indirect")
        yield one


# Bytes and latencies are the same in every number format.
_FORMAT_FREE = ("bandwidth", "latency", "time", "price", "price-per-hour", "count", "cycles")


def _differ(one: Any, other: Any) -> bool:
    """Whether two values of a column differ; both unknown do not."""
    return not (one == other or (one != one and other != other))
