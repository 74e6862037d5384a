"""Fixtures for all tests of experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from experiments import counters, power_state, topology
from tests.experiments.point_runs import CPU

Tree = Callable[[dict[str, str]], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """Yield a function that writes kernel files below a temporary root.

    At the end, clear the caches of functions that read such files.
    """

    def write(files: dict[str, str]) -> Path:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n", encoding="utf-8")
        return tmp_path

    yield write
    for cached in (counters.cgroup_folders, topology.physical_cores, topology.cpuinfo, topology.online_cpus):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def mains_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests on a notebook see no battery, whose use would flag samples."""
    monkeypatch.setattr(power_state, "is_plugged_in", lambda: None)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, because threads with little work mostly wait for each other on busy cores."""
    before = torch.get_num_threads()
    # All tests share the object `CPU`, and an earlier test may have changed its thread count.
    CPU.set_threads(1)
    yield
    torch.set_num_threads(before)
