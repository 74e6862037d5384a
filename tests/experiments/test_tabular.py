"""Every library does what its operations say, a wrong result is noticed, and nothing is mislabelled."""

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

# A device of the other kind, whose memory is the host's.
GPU: Any = SimpleNamespace(
    kind="gpu",
    name="cpu",
    supports_float64=True,
    unsupported_backend=lambda name: Unsupported(f"{name} does not run here"),
)
ON_CPU = [name for name, library in LIBRARIES.items() if "cpu" in library.fits]
DOES = [(name, op) for name in ON_CPU for op in (*ON_TABLES, *ON_TEXT) if op not in LIBRARIES[name].without]
ON_TABLES_THERE = sorted({name for name, op in DOES if op in ON_TABLES})


def work(op: str, backend: str, rows: int = 1000, device: Any = CPU, **more: Any) -> Workload:
    """A point with the threads that the library has in this process."""
    if "threads" not in more:
        more["threads"] = open_library(backend, device, op).threads if device is CPU else 0
    more = {"transfers": "none" if device is CPU else "included", **more}
    return get_experiment("tabular").function(device, op=op, rows=rows, backend=backend, **more)


@pytest.mark.parametrize(("name", "op"), DOES)
def test_a_right_result_passes_its_check(name: str, op: str) -> None:
    for rows in (1, 7, 3000):
        made = work(op, name, rows)
        run_once(made)
        assert passes_check(made)
        assert len(made.calls) == suite.MOST_TABLES, "short tables take turns"


def in_library(name: str, table: dict[str, np.ndarray], *others: dict[str, np.ndarray], op: str) -> dict[str, Any]:
    library = open_library(name, CPU, op)
    return library.columns(getattr(library, op)(*(library.load(one) for one in (table, *others))))


# Few distinct numbers, so that keys and values repeat; whole ones, so that sums are exact.
SMALL = st.integers(-4, 4)
TABLES = st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=40)


@pytest.mark.parametrize("name", ON_TABLES_THERE)
@given(rows=TABLES, partners=st.sets(SMALL, min_size=1))
@settings(max_examples=12)
def test_operations_do_as_plain_python_does(name: str, rows: list[tuple[int, int]], partners: set[int]) -> None:
    keys, values = [key for key, _ in rows], [float(value) for _, value in rows]
    table = {"row": np.arange(len(rows)), "value": np.array(values)}
    kept = in_library(name, table, op="filter")
    assert list(zip(kept["row"], kept["value"], strict=True)) == [(i, v) for i, v in enumerate(values) if v > 0]
    ordered = in_library(name, table, op="sort")
    assert list(ordered["value"]) == sorted(values)
    assert sorted(ordered["row"]) == list(range(len(rows)))
    assert [values[row] for row in ordered["row"]] == list(ordered["value"])

    groups: dict[int, list[float]] = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        groups[key].append(value)
    found = in_library(name, {"key": np.array(keys), "value": np.array(values)}, op="group_by")
    got = {int(k): (t, m) for k, t, m in zip(found["key"], found["total"], found["mean"], strict=True)}
    assert len(found["key"]) == len(groups)
    assert got == {key: (sum(group), pytest.approx(sum(group) / len(group))) for key, group in groups.items()}

    others = sorted(partners, key=lambda key: (key * 5) % 9)
    right = {"key": np.array(others), "weight": np.array([key / 3 for key in others])}
    found = in_library(name, {"key": np.array(keys), "row": np.arange(len(keys))}, right, op="join")
    pairs = sorted(zip(found["row"].tolist(), found["key"].tolist(), found["weight"].tolist(), strict=True))
    assert pairs == [(row, key, key / 3) for row, key in enumerate(keys) if key in partners]


@pytest.mark.parametrize("op", ON_TEXT)
@given(rows=st.integers(1, 60), seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_the_text_says_exactly_the_numbers_that_are_expected(op: str, rows: int, seed: int) -> None:
    made = make_case(op, rows, np.random.default_rng(seed))
    lines = made.inputs[0].decode().splitlines()
    table = list(csv.DictReader(lines)) if op == "parse_csv" else [json.loads(line) for line in lines]
    kinds = {"id": int, "value": float, "name": str}
    assert made.error({name: np.array([kind(row[name]) for row in table]) for name, kind in kinds.items()}) == 0.0


def changed(column: str, change: Any) -> Any:
    """A result with one column changed."""
    return lambda result: {**result, column: change(result[column].copy())}


def put(position: int, value: float) -> Any:
    def change(column: np.ndarray) -> np.ndarray:
        column[position] = value
        return column

    return change


def of_every(change: Any) -> Any:
    return lambda result: {name: change(column) for name, column in result.items()}


def shorter(column: np.ndarray) -> np.ndarray:
    return column[:-1]


FAULTS = [
    pytest.param("filter", of_every(shorter), id="filter: a row lost"),
    pytest.param("filter", of_every(lambda column: column[::-1]), id="filter: another order"),
    pytest.param("filter", changed("value", put(5, math.nan)), id="filter: nan"),
    pytest.param("sort", of_every(lambda column: np.roll(column, 1)), id="sort: the largest first"),
    pytest.param("sort", changed("row", lambda row: np.roll(row, 1)), id="sort: rows torn apart"),
    pytest.param("sort", changed("row", put(3, 10**6)), id="sort: a row that is not there"),
    pytest.param("sort", of_every(lambda column: column[[0, *range(len(column) - 1)]]), id="sort: a row twice"),
    pytest.param("sort", changed("value", put(-1, math.nan)), id="sort: nan"),
    pytest.param("group_by", changed("total", lambda total: total * (1 + 1e-9)), id="group_by: totals off by 1e-9"),
    pytest.param("group_by", changed("mean", put(0, math.nan)), id="group_by: nan"),
    pytest.param("group_by", changed("key", put(0, -1)), id="group_by: a wrong key"),
    pytest.param("join", of_every(shorter), id="join: a pair lost"),
    pytest.param("join", changed("weight", lambda weight: np.roll(weight, 1)), id="join: wrong partners"),
    pytest.param("join", lambda result: {"key": result["key"], "row": result["row"]}, id="join: a column lost"),
    pytest.param("parse_csv", changed("id", put(0, 0)), id="parse_csv: a wrong number"),
    pytest.param("parse_csv", changed("value", lambda value: value.astype("f4")), id="parse_csv: rounded to float32"),
    pytest.param("parse_csv", changed("name", lambda name: np.char.upper(name.astype(str))), id="another word"),
]


@pytest.mark.parametrize(("op", "fault"), FAULTS)
def test_a_wrong_result_fails_its_check(monkeypatch: pytest.MonkeyPatch, op: str, fault: Any) -> None:
    columns = LIBRARIES["pandas"].columns
    monkeypatch.setattr(LIBRARIES["pandas"], "columns", lambda self, table: fault(columns(self, table)))
    assert not passes_check(work(op, "pandas"))


@pytest.mark.parametrize("op", ON_TABLES)
@pytest.mark.parametrize("name", ON_TABLES_THERE)
def test_no_call_makes_the_next_one_easier(name: str, op: str) -> None:
    """Tables stay as they are, above all unsorted, and no result is a view of one."""
    made = make_case(op, 500, np.random.default_rng(0))
    before = [{column: values.copy() for column, values in one.items()} for one in made.inputs]
    library = open_library(name, CPU, op)
    tables = [library.load(one) for one in made.inputs]
    results = [library.columns(getattr(library, op)(*tables)) for _ in range(2)]
    for table, kept, given_ in zip(tables, before, made.inputs, strict=True):
        now = library.columns(table)
        for column, values in kept.items():
            assert np.array_equal(now[column], values)
            assert all(not np.shares_memory(part, given_[column]) for part in results[0].values())
    assert [made.error(result) <= suite.TOLERANCE for result in results] == [True, True]


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


class OnDevice(np.ndarray):
    """Stands in for CuPy's arrays: computes as NumPy does, and refuses arrays of the host as CuPy does."""

    def take(self, indices: Any, *more: Any, **named: Any) -> Any:
        refuse([indices])
        return super().take(indices, *more, **named)


def refuse(given_: Any) -> None:
    for one in given_:
        if isinstance(one, (list, tuple)):
            refuse(one)
        elif isinstance(one, np.ndarray) and not isinstance(one, OnDevice):
            raise TypeError("Implicit conversion of a host array to a device array is not allowed")


class Cupy(ModuleType):
    """NumPy under CuPy's name, with a border between host and device."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.used: list[int] = []
        self.cuda = SimpleNamespace(Device=lambda number: SimpleNamespace(use=lambda: self.used.append(number)))

    def __getattr__(self, name: str) -> Any:
        known = getattr(np, name)
        if not callable(known) or isinstance(known, type):
            return known

        def function(*given_: Any, **more: Any) -> Any:
            refuse([*given_, *more.values()])
            result = known(*given_, **more)
            return result.view(OnDevice) if isinstance(result, np.ndarray) else result

        return function

    def asarray(self, host: np.ndarray) -> OnDevice:
        assert type(host) is np.ndarray
        return host.copy().view(OnDevice)

    def asnumpy(self, there: OnDevice) -> np.ndarray:
        assert isinstance(there, OnDevice)
        return np.array(there)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    module = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


CUDA: Any = SimpleNamespace(kind="gpu", name="cuda:1", unsupported_backend=GPU.unsupported_backend)


@pytest.mark.parametrize("transfers", ["excluded", "included"])
@pytest.mark.parametrize("op", ON_TABLES)
def test_the_code_for_cupy_is_right_and_stays_on_the_device(cupy: Cupy, op: str, transfers: str) -> None:
    tensors: Any = work(op, "torch", device=GPU, transfers=transfers)
    assert passes_check(tensors)
    there = {type(column) is np.ndarray for column in tensors.calls[0]().values()}
    assert there == {transfers == "included"}, "they go back only if that counts"
    made = work(op, "cupy", 3000, CUDA, transfers=transfers)
    result: Any = made.calls[0]()
    assert {isinstance(column, OnDevice) for column in result.values()} == {transfers == "excluded"}
    assert passes_check(made)
    assert set(cupy.used) == {1}


def test_what_is_said_of_a_library_is_true() -> None:
    for name, library in LIBRARIES.items():
        for op in (*ON_TABLES, *ON_TEXT):
            assert (getattr(library, op) is getattr(Library, op)) == (op in library.without), (name, op)
    # Polars sets up its threads when its process starts.
    started_with = get_experiment("tabular").environment
    assert started_with({"backend": "polars", "threads": 3}) == {"POLARS_MAX_THREADS": "3"}
    assert started_with({"backend": "pandas", "threads": 1}) == {}


def test_a_single_wrong_row_of_the_largest_table_exceeds_the_tolerance() -> None:
    assert suite.TOLERANCE < 1 / 1e8
    assert differing_share({"a": [1, 2, 3, 5]}, {"a": np.array([1, 2, 3, 4])}) == 0.25
    assert differing_share({"a": [1]}, {"a": np.array([1, 2])}) == math.inf
