"""Work on tables: filter, sort, group, join and parse, by rows and library, with and without transfers to the GPU."""

from __future__ import annotations

from typing import Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.tabular.random_tables import make_case
from experiments.tabular.table_libraries import open_library
from experiments.workload import Threads, Unsupported, Workload

Op = Literal["filter", "sort", "group_by", "join", "parse_csv", "parse_json"]
Transfers = Literal["none", "excluded", "included"]

# Calls use up to MOST_TABLES tables in turn, with at most MOST_ROWS rows together unless a single table is longer: a
# branch predictor would memorise a single short table.
MOST_TABLES = 64
MOST_ROWS = 200_000
FEWEST_ROWS = 1_000
# Tolerated relative error for a float64 total or mean, or a parsed number. All other results must be exact: their error
# is the share of wrong rows, and a single wrong row in 1e8 exceeds the tolerance.
TOLERANCE = 1e-12
# Peak bytes per row for the most demanding library: inputs, result, temporaries, and the check's table.
ROW_BYTES = {"filter": 80, "sort": 120, "group_by": 120, "join": 160, "parse_csv": 600, "parse_json": 1100}


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    return {**params, "rows": params["rows"] // 10} if params["rows"] >= 10 * FEWEST_ROWS else None


def memory(op: str, rows: int, **_: Any) -> float:
    return float(ROW_BYTES[op] * max(rows, MOST_ROWS))


def environment(params: dict[str, Any]) -> dict[str, str]:
    """Set the number of Polars' threads, which Polars reads only at process start."""
    limited = params["backend"] == "polars" and params.get("threads")
    return {"POLARS_MAX_THREADS": str(params["threads"])} if limited else {}


def extra_s(rows: int, threads: int, **_: Any) -> float:
    """Estimate the extra seconds on a GPU: kernels are compiled, and one host core makes tables and checks results."""
    return 0.0 if threads else 0.3 + 4e-7 * rows


@experiment("tabular", smaller=smaller, memory=memory, environment=environment, extra_s=extra_s, protocol=2)
def tabular(
    device: Device,
    op: Op,
    rows: int,
    transfers: Transfers,
    backend: Literal["pandas", "polars", "torch", "cupy"],
    threads: Threads,
) -> Workload:
    """Apply one operation to tables with `rows` rows of 8-byte numbers, or to as many lines of text.

    filter: about half the rows in (row, value). sort: (row, value) by value. group_by: total and mean for each of
        rows/100 keys. join: a table with rows/10 unique keys to one with `rows` rows, four in five of which find a
        partner. parse_csv, parse_json: text to three columns.
    transfers: excluded leaves tables and results in the library's memory. included copies the tables from ordinary host
        memory, and the results back, within the call. none is the only value on a CPU, whose times are the baseline for
        excluded and included.
    Unsupported: operations that a library lacks, and thread counts that it cannot use.
    """
    if rows < 1:
        raise Unsupported("rows must be at least 1")
    if (transfers == "none") != (device.kind == "cpu"):
        raise Unsupported(f"transfers {transfers}: a CPU has none, a GPU includes or excludes them")
    import numpy as np

    library = open_library(backend, device, op)
    if device.kind == "cpu" and library.threads != threads:
        raise Unsupported(f"{backend} works with {library.threads} threads in this process, not with {threads}")
    operation, random = getattr(library, op), np.random.default_rng()

    def load_tables(inputs: tuple[Any, ...]) -> list[Any]:
        return [data if isinstance(data, bytes) else library.load(data) for data in inputs]

    def round_trip(inputs: tuple[Any, ...]) -> Any:
        return library.columns(operation(*load_tables(inputs)))

    def make_call(inputs: tuple[Any, ...]) -> Any:
        if transfers == "included":
            return lambda: round_trip(inputs)
        tables = load_tables(inputs)
        return lambda: operation(*tables)

    def check() -> float:
        new_case = make_case(op, rows, random)
        result = make_call(new_case.inputs)()
        return new_case.error(result if transfers == "included" else library.columns(result))

    tables = min(MOST_TABLES, max(1, MOST_ROWS // rows))
    return Workload(
        run=[make_call(make_case(op, rows, random).inputs) for _ in range(tables)],
        check=check,
        tolerance=TOLERANCE,
    )
