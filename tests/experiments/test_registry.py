"""An invalid experiment is refused at registration, with an error that says what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from contract.errors import StudyError
from contract.sample_table import SAMPLES
from experiments.devices import Device
from experiments.registry import OWN, TAKEN, experiment, get_experiment
from experiments.workload import Dtype, Threads, Workload
from report.data.summary import COLUMNS


def no_threads(device: Device, n: int) -> Workload: ...
def threads_of_another_type(device: Device, threads: int) -> Workload: ...
def format_by_another_name(device: Device, kind: Dtype, threads: Threads) -> Workload: ...
def any_library(device: Device, backend: str, threads: Threads) -> Workload: ...
def a_column(device: Device, node: Literal["a", "b"], threads: Threads) -> Workload: ...
def no_type(device: Device, n, threads: Threads) -> Workload: ...
def a_list(device: Device, n: list[int], threads: Threads) -> Workload: ...
def right(device: Device, n: int, dtype: Dtype, threads: Threads) -> Workload: ...


@pytest.mark.parametrize(
    ("function", "name", "options", "message"),
    [
        (no_threads, "new", {}, "add the parameter `threads: Threads`"),
        (threads_of_another_type, "new", {}, "parameter 'threads': make its type Threads"),
        (format_by_another_name, "new", {}, "parameter 'kind': rename it to 'dtype'"),
        (any_library, "new", {}, "parameter 'backend': make its type Library or a Literal"),
        (a_column, "new", {}, "parameter 'node': a column has that name"),
        (no_type, "new", {}, "parameter 'n': make its type int, float"),
        (a_list, "new", {}, "parameter 'n': make its type int, float"),
        (right, "New_one", {}, "lowercase letters and digits"),
        (right, "gemm", {}, "choose a unique name"),
        (right, "new", {"memories": len}, "no option 'memories'.*Did you mean 'memory'"),
        (right, "new", {"protocol": 0}, "protocol: make it a whole number, 1 or more"),
        (right, "new", {"memory": lambda n: n}, "memory is called with all parameters by name, but got an unexpected"),
        (
            right,
            "new",
            {"extra_s": lambda shape, **_: 1},
            "extra_s is called with .* missing a required argument: 'shape'",
        ),
    ],
)
def test_invalid_experiment_is_refused_with_its_place(
    function: Callable[..., Workload], name: str, options: dict[str, Any], message: str
) -> None:
    get_experiment("gemm")  # registers the experiment gemm
    with pytest.raises(StudyError, match=rf"test_registry.py, line \d+: experiment '{name}': .*{message}"):
        experiment(name, **options)(function)


def test_column_names_are_reserved() -> None:
    assert {*SAMPLES.columns, *COLUMNS} <= {*TAKEN.split(), *OWN}
