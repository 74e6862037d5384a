"""What all tests of the experiments share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from experiments import counters, topology
from tests.experiments.point_runs import CPU

Tree = Callable[[dict[str, str]], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """Writes files of the kernel below a root of the test's own, and forgets in the end what was read there."""

    def write(files: dict[str, str]) -> Path:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n", encoding="utf-8")
        return tmp_path

    yield write
    for cached in (counters.cgroup_folders, topology.physical_cores, topology.cpuinfo, topology.online_cpus):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work on cores that others use too: its threads would wait for one another."""
    before = torch.get_num_threads()
    # Whatever another test has asked of the device that they share.
    CPU.set_threads(1)
    yield
    torch.set_num_threads(before)
