"""A load without a pause does the work that it is named after."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.registry import get, typed
from experiments.suite.sustained import IN_A_GRAPH
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.second_device import SecondCpu


def work(load: str, extent: int, device: Device | None = None, **more: Any) -> Work:
    experiment = get("sustained")
    params = {"load": load, "extent": extent, "dtype": "float32", "backend": "torch", "threads": 0, **more}
    return experiment.function(device or SecondCpu(), **typed(experiment, params))


@pytest.mark.parametrize(
    ("load", "extent", "flop", "moved"),
    [
        ("products", 64, 2 * 64**3, 3 * 64**2 * 4),
        ("triad", 3 * 4 * 1000, None, 3 * 4 * 1000),
        ("one_block", 8, 2 * 8**3 * IN_A_GRAPH, None),
        ("idle", 1, None, None),
    ],
)
def test_a_load_lasts_and_counts_its_work(load: str, extent: int, flop: int | None, moved: int | None) -> None:
    made = work(load, extent)
    assert (made.lasting, made.flop, made.bytes, made.beside, made.graph) == (True, flop, moved, (), False)
    if made.check is not None:
        made.calls[0]()
        assert made.tolerance is not None
        assert made.check() <= made.tolerance


class Broken(SecondCpu):
    """Loses a row of every product."""

    def matmul(self, backend: str, a: torch.Tensor, b: torch.Tensor, dtype: Dtype) -> Any:
        product = super().matmul(backend, a, b, dtype)
        return lambda: product().index_fill_(0, torch.tensor(3), 0.0)


class Stale(SecondCpu):
    """Replays nothing: what a graph gives whose buffers are others than those that are read."""

    def graph(self, calls: Any) -> Any:
        super().graph(calls)
        return lambda: None


@pytest.mark.parametrize("device", [Broken(), Stale()])
def test_a_wrong_product_in_a_graph_fails_its_check(device: Device) -> None:
    made = work("one_block", 16, device)
    assert made.check is not None
    assert made.tolerance is not None
    assert not made.check() <= made.tolerance


@pytest.mark.parametrize(
    ("load", "more", "why"),
    [
        ("one_block", {"threads": 1}, "cpu has no graphs"),
        ("triad", {"backend": "onednn"}, "backend onednn does not run"),
        ("products", {"backend": "llvm-nt"}, "backend llvm-nt does not run"),
    ],
)
def test_what_cannot_be_is_unsupported(load: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        work(load, 64, CpuDevice(), **more)


def test_memory_is_that_of_the_work() -> None:
    memory = get("sustained").memory
    assert memory is not None
    of = {"dtype": "bfloat16", "backend": "torch", "threads": 0}
    assert memory(load="products", extent=8192, **of) == 3 * 8192**2 * (2 + 8)
    assert memory(load="triad", extent=2**30, **of) >= 2**30
    assert memory(load="idle", extent=1, **of) == 0
