"""Table libraries: operations are right, wrong results fail, and the stated properties of the libraries are true."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.registry import get_experiment
from experiments.suite import tabular as suite
from experiments.tabular.random_tables import differing_share, make_case
from experiments.tabular.table_libraries import LIBRARIES, ON_TABLES, ON_TEXT, Library, open_library
from experiments.workload import Unsupported, Workload
from tests.experiments.point_runs import CPU, passes_check, run_once

# A GPU stand-in that uses host memory.
GPU: Any = SimpleNamespace(
    kind="gpu",
    name="cpu",
    supports_float64=True,
    unsupported_backend=lambda name: Unsupported(f"{name} does not run here"),
)
ON_CPU = [name for name, library in LIBRARIES.items() if "cpu" in library.fits]
SUPPORTED = [(name, op) for name in ON_CPU for op in (*ON_TABLES, *ON_TEXT) if op not in LIBRARIES[name].without]
TABLE_LIBRARIES = sorted({name for name, op in SUPPORTED if op in ON_TABLES})


def work(op: str, backend: str, rows: int = 1000, device: Any = CPU, **more: Any) -> Workload:
    """Build the work of a point. On the CPU, the default thread count is what the library uses in this process."""
    if "threads" not in more:
        more["threads"] = open_library(backend, device, op).threads if device is CPU else 0
    more = {"transfers": "none" if device is CPU else "included", **more}
    return get_experiment("tabular").function(device, op=op, rows=rows, backend=backend, **more)


@pytest.mark.parametrize(("name", "op"), SUPPORTED)
def test_right_result_passes_its_check(name: str, op: str) -> None:
    for rows in (1, 7, 3000):
        workload = work(op, name, rows)
        run_once(workload)
        assert passes_check(workload)
        assert len(workload.calls) == suite.MOST_TABLES, "short tables rotate"


def run_in_library(name: str, table: dict[str, np.ndarray], *others: dict[str, np.ndarray], op: str) -> dict[str, Any]:
    library = open_library(name, CPU, op)
    return library.columns(getattr(library, op)(*(library.load(columns) for columns in (table, *others))))


# With few distinct integers, keys and values repeat and sums are exact.
SMALL = st.integers(-4, 4)
TABLES = st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=40)


@pytest.mark.parametrize("name", TABLE_LIBRARIES)
@given(rows=TABLES, partners=st.sets(SMALL, min_size=1))
@settings(max_examples=12)
def test_operations_match_plain_python(name: str, rows: list[tuple[int, int]], partners: set[int]) -> None:
    keys, values = [key for key, _ in rows], [float(value) for _, value in rows]
    table = {"row": np.arange(len(rows)), "value": np.array(values)}
    filtered = run_in_library(name, table, op="filter")
    assert list(zip(filtered["row"], filtered["value"], strict=True)) == [(i, v) for i, v in enumerate(values) if v > 0]
    ordered = run_in_library(name, table, op="sort")
    assert list(ordered["value"]) == sorted(values)
    assert sorted(ordered["row"]) == list(range(len(rows)))
    assert [values[row] for row in ordered["row"]] == list(ordered["value"])

    groups: dict[int, list[float]] = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        groups[key].append(value)
    result = run_in_library(name, {"key": np.array(keys), "value": np.array(values)}, op="group_by")
    totals_and_means = {int(k): (t, m) for k, t, m in zip(result["key"], result["total"], result["mean"], strict=True)}
    assert len(result["key"]) == len(groups)
    assert totals_and_means == {
        key: (sum(group), pytest.approx(sum(group) / len(group))) for key, group in groups.items()
    }

    others = sorted(partners, key=lambda key: (key * 5) % 9)
    right = {"key": np.array(others), "weight": np.array([key / 3 for key in others])}
    result = run_in_library(name, {"key": np.array(keys), "row": np.arange(len(keys))}, right, op="join")
    pairs = sorted(zip(result["row"].tolist(), result["key"].tolist(), result["weight"].tolist(), strict=True))
    assert pairs == [(row, key, key / 3) for row, key in enumerate(keys) if key in partners]


@pytest.mark.parametrize("op", ON_TEXT)
@given(rows=st.integers(1, 60), seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_text_inputs_hold_exactly_the_expected_numbers(op: str, rows: int, seed: int) -> None:
    case = make_case(op, rows, np.random.default_rng(seed))
    lines = case.inputs[0].decode().splitlines()
    table = list(csv.DictReader(lines)) if op == "parse_csv" else [json.loads(line) for line in lines]
    kinds = {"id": int, "value": float, "name": str}
    assert case.error({name: np.array([kind(row[name]) for row in table]) for name, kind in kinds.items()}) == 0.0


def change_column(column: str, change: Any) -> Any:
    """Return a fault that changes one column."""
    return lambda result: {**result, column: change(result[column].copy())}


def set_value(position: int, value: float) -> Any:
    def change(column: np.ndarray) -> np.ndarray:
        column[position] = value
        return column

    return change


def change_all_columns(change: Any) -> Any:
    return lambda result: {name: change(column) for name, column in result.items()}


def drop_last_row(column: np.ndarray) -> np.ndarray:
    return column[:-1]


FAULTS = [
    pytest.param("filter", change_all_columns(drop_last_row), id="filter: a row lost"),
    pytest.param("filter", change_all_columns(lambda column: column[::-1]), id="filter: another order"),
    pytest.param("filter", change_column("value", set_value(5, math.nan)), id="filter: nan"),
    pytest.param("sort", change_all_columns(lambda column: np.roll(column, 1)), id="sort: the largest first"),
    pytest.param("sort", change_column("row", lambda row: np.roll(row, 1)), id="sort: rows torn apart"),
    pytest.param("sort", change_column("row", set_value(3, 10**6)), id="sort: a row that is not there"),
    pytest.param(
        "sort", change_all_columns(lambda column: column[[0, *range(len(column) - 1)]]), id="sort: a row twice"
    ),
    pytest.param("sort", change_column("value", set_value(-1, math.nan)), id="sort: nan"),
    pytest.param(
        "group_by", change_column("total", lambda total: total * (1 + 1e-9)), id="group_by: totals off by 1e-9"
    ),
    pytest.param("group_by", change_column("mean", set_value(0, math.nan)), id="group_by: nan"),
    pytest.param("group_by", change_column("key", set_value(0, -1)), id="group_by: a wrong key"),
    pytest.param("join", change_all_columns(drop_last_row), id="join: a pair lost"),
    pytest.param("join", change_column("weight", lambda weight: np.roll(weight, 1)), id="join: wrong partners"),
    pytest.param("join", lambda result: {"key": result["key"], "row": result["row"]}, id="join: a column lost"),
    pytest.param("parse_csv", change_column("id", set_value(0, 0)), id="parse_csv: a wrong number"),
    pytest.param(
        "parse_csv", change_column("value", lambda value: value.astype("f4")), id="parse_csv: rounded to float32"
    ),
    pytest.param("parse_csv", change_column("name", lambda name: np.char.upper(name.astype(str))), id="another word"),
]


@pytest.mark.parametrize(("op", "fault"), FAULTS)
def test_wrong_result_fails_its_check(monkeypatch: pytest.MonkeyPatch, op: str, fault: Any) -> None:
    columns = LIBRARIES["pandas"].columns
    monkeypatch.setattr(LIBRARIES["pandas"], "columns", lambda self, table: fault(columns(self, table)))
    assert not passes_check(work(op, "pandas"))


@pytest.mark.parametrize("op", ON_TABLES)
@pytest.mark.parametrize("name", TABLE_LIBRARIES)
def test_calls_leave_their_tables_unchanged(name: str, op: str) -> None:
    """Calls do not sort their tables in place, and results are not views of the tables."""
    case = make_case(op, 500, np.random.default_rng(0))
    before = [{column: values.copy() for column, values in columns.items()} for columns in case.inputs]
    library = open_library(name, CPU, op)
    tables = [library.load(columns) for columns in case.inputs]
    results = [library.columns(getattr(library, op)(*tables)) for _ in range(2)]
    for table, original, inputs in zip(tables, before, case.inputs, strict=True):
        now = library.columns(table)
        for column, values in original.items():
            assert np.array_equal(now[column], values)
            assert all(not np.shares_memory(part, inputs[column]) for part in results[0].values())
    assert [case.error(result) <= suite.TOLERANCE for result in results] == [True, True]


def test_tables_are_as_described() -> None:
    random = np.random.default_rng(1)
    for rows, groups in ((20_000, 200), (300, 10)):
        assert len(np.unique(make_case("group_by", rows, random).inputs[0]["key"])) == groups
    left, right = make_case("join", 20_000, random).inputs
    assert len(np.unique(right["key"])) == len(right["key"]) == 2000
    assert np.isin(left["key"], right["key"]).mean() == pytest.approx(0.8, abs=0.05)
    assert np.mean(make_case("filter", 20_000, random).inputs[0]["value"] > 0) == pytest.approx(0.5, abs=0.05)
    (text,) = make_case("parse_csv", 200_000, random).inputs
    assert text.startswith(b"id,value,name\n") and text.count(b"\n") == 200_001
    values = [float(line.split(b",")[1]) for line in text.splitlines()[1:]]
    assert np.std(values) == pytest.approx(1.0, rel=0.02)
    missing = {"nan", "null", "none", "na", "n/a", "nil"}
    words = {line.rsplit(b",", 1)[1].decode().lower() for line in text.splitlines()}
    assert not missing & words, "no word is taken for a missing value"


class DeviceArray(np.ndarray):
    """A stand-in for CuPy arrays that computes like NumPy and refuses host arrays."""

    def take(self, indices: Any, *more: Any, **named: Any) -> Any:
        refuse_host_arrays([indices])
        return super().take(indices, *more, **named)


def refuse_host_arrays(values: Any) -> None:
    for value in values:
        if isinstance(value, (list, tuple)):
            refuse_host_arrays(value)
        elif isinstance(value, np.ndarray) and not isinstance(value, DeviceArray):
            raise TypeError("Implicit conversion of a host array to a device array is not allowed")


class Cupy(ModuleType):
    """A stand-in for CuPy: NumPy with separate host and device arrays."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.used: list[int] = []
        self.cuda = SimpleNamespace(Device=lambda number: SimpleNamespace(use=lambda: self.used.append(number)))

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(np, name)
        if not callable(attribute) or isinstance(attribute, type):
            return attribute

        def function(*arguments: Any, **more: Any) -> Any:
            refuse_host_arrays([*arguments, *more.values()])
            result = attribute(*arguments, **more)
            return result.view(DeviceArray) if isinstance(result, np.ndarray) else result

        return function

    def asarray(self, host: np.ndarray) -> DeviceArray:
        assert type(host) is np.ndarray
        return host.copy().view(DeviceArray)

    def asnumpy(self, there: DeviceArray) -> np.ndarray:
        assert isinstance(there, DeviceArray)
        return np.array(there)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    module = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


CUDA: Any = SimpleNamespace(kind="gpu", name="cuda:1", unsupported_backend=GPU.unsupported_backend)


@pytest.mark.parametrize("transfers", ["excluded", "included"])
@pytest.mark.parametrize("op", ON_TABLES)
def test_cupy_code_is_right_and_stays_on_the_device(cupy: Cupy, op: str, transfers: str) -> None:
    tensors: Any = work(op, "torch", device=GPU, transfers=transfers)
    assert passes_check(tensors)
    on_host = {type(column) is np.ndarray for column in tensors.calls[0]().values()}
    assert on_host == {transfers == "included"}, "results return to the host only if transfers count"
    workload = work(op, "cupy", 3000, CUDA, transfers=transfers)
    result: Any = workload.calls[0]()
    assert {isinstance(column, DeviceArray) for column in result.values()} == {transfers == "excluded"}
    assert passes_check(workload)
    assert set(cupy.used) == {1}


def test_library_properties_are_true() -> None:
    for name, library in LIBRARIES.items():
        for op in (*ON_TABLES, *ON_TEXT):
            assert (getattr(library, op) is getattr(Library, op)) == (op in library.without), (name, op)
    # Polars reads its thread count only when it starts, so a variable in the worker's environment must set the count.
    started_with = get_experiment("tabular").environment
    assert started_with({"backend": "polars", "threads": 3}) == {"POLARS_MAX_THREADS": "3"}
    assert started_with({"backend": "pandas", "threads": 1}) == {}


def test_one_wrong_row_in_the_largest_table_exceeds_the_tolerance() -> None:
    assert suite.TOLERANCE < 1 / 1e8
    assert differing_share({"a": [1, 2, 3, 5]}, {"a": np.array([1, 2, 3, 4])}) == 0.25
    assert differing_share({"a": [1]}, {"a": np.array([1, 2])}) == math.inf
