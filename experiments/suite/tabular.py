"""Work on tables: filter, sort, group, join and parse, by rows and library, with and without the way to the GPU."""

from __future__ import annotations

from typing import Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.tabular.random_tables import case
from experiments.tabular.table_libraries import open_library
from experiments.workload import Threads, Unsupported, Workload

Op = Literal["filter", "sort", "group_by", "join", "parse_csv", "parse_json"]
Transfers = Literal["none", "excluded", "included"]

# Different tables that are used in turn: a branch predictor learns a short one by heart.
MOST_TABLES = 64
MOST_ROWS = 200_000
FEWEST_ROWS = 1_000
# Largest relative error of a float64 total or mean, or of a number read from text; everything else is exact,
# and a single wrong row of 1e8 shows.
TOLERANCE = 1e-12
# Bytes per row at the peak, with the library that needs most: inputs, result, what lies in between, the check's own
# table.
ROW_BYTES = {"filter": 80, "sort": 120, "group_by": 120, "join": 160, "parse_csv": 600, "parse_json": 1100}


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """A tenth of the rows, down to a thousand."""
    return {**params, "rows": params["rows"] // 10} if params["rows"] >= 10 * FEWEST_ROWS else None


def memory(op: str, rows: int, **_: Any) -> float:
    """The tables of all turns together."""
    return float(ROW_BYTES[op] * max(rows, MOST_ROWS))


def environment(params: dict[str, Any]) -> dict[str, str]:
    """Polars sets up its threads when the process starts."""
    limited = params["backend"] == "polars" and params.get("threads")
    return {"POLARS_MAX_THREADS": str(params["threads"])} if limited else {}


def extra_s(rows: int, threads: int, **_: Any) -> float:
    """A GPU's tables are made and its results judged by one core of its host; its kernels are compiled."""
    return 0.0 if threads else 0.3 + 4e-7 * rows


@experiment("tabular", smaller=smaller, memory=memory, environment=environment, extra_s=extra_s)
def tabular(
    device: Device,
    op: Op,
    rows: int,
    transfers: Transfers,
    backend: Literal["pandas", "polars", "torch", "cupy"],
    threads: Threads,
) -> Workload:
    """One operation on tables of `rows` rows of 8-byte numbers, or on as many lines of text.

    filter: about half of the rows of (row, value). sort: (row, value) by value. group_by: total
    and mean for each of rows/100 keys. join: a table of rows/10 unique keys to one of `rows`
    rows, of which four in five find a partner. parse_csv, parse_json: text to three columns.
    Tables lie where the library works, and so do results. transfers: excluded (as just
    said) or included (on a GPU, from ordinary host memory and back within the call); none on a
    CPU, which has no such way: its points are the base of both.
    Unsupported: what a library lacks, and numbers of threads that it does not work with.
    """
    if rows < 1:
        raise Unsupported("a table has at least one row")
    if (transfers == "none") != (device.kind == "cpu"):
        raise Unsupported(f"transfers {transfers}: a CPU has none, a GPU includes or excludes them")
    import numpy as np

    library = open_library(backend, device, op)
    if device.kind == "cpu" and library.threads != threads:
        raise Unsupported(f"{backend} works with {library.threads} threads in this process, not with {threads}")
    operation, random = getattr(library, op), np.random.default_rng()

    def placed(inputs: tuple[Any, ...]) -> list[Any]:
        return [one if isinstance(one, bytes) else library.load(one) for one in inputs]

    def there_and_back(inputs: tuple[Any, ...]) -> Any:
        return library.columns(operation(*placed(inputs)))

    def call(inputs: tuple[Any, ...]) -> Any:
        if transfers == "included":
            return lambda: there_and_back(inputs)
        tables = placed(inputs)
        return lambda: operation(*tables)

    def check() -> float:
        fresh = case(op, rows, random)
        result = call(fresh.inputs)()
        return fresh.error(result if transfers == "included" else library.columns(result))

    tables = min(MOST_TABLES, max(1, MOST_ROWS // rows))
    return Workload(
        run=[call(case(op, rows, random).inputs) for _ in range(tables)],
        check=check,
        tolerance=TOLERANCE,
    )
