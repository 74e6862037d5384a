"""Ranks in data-parallel training start, get equal weights, are timed, and report errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from experiments import hardware
from experiments.devices.cpu import CpuDevice
from experiments.models import ranks
from experiments.models.ranks import BEYOND, Replica
from experiments.models.trainer import Trainer
from experiments.workload import Dtype, HarnessError, Unsupported
from tests.experiments.point_runs import build_work, observe, passes_check
from tests.experiments.second_device import SecondCpu

ORDER = {"model": "mlp", "batch": 4, "dtype": "float32", "interconnect": "gloo", "devices": ["cpu", "cpu"],
         "threads": 1}  # fmt: skip


@pytest.mark.skipif(hardware.usable_cores() < 2, reason="two ranks take two cores")
def test_two_ranks_agree_and_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = partial(ranks.train_ranks, command=("-m", "tests.experiments.quick_rank"))
    monkeypatch.setattr(ranks, "train_ranks", quick)
    workload = build_work("several-devices", ranks=2)
    assert passes_check(workload)
    metrics = observe(workload)
    assert len(metrics["communication_share"]) >= 4
    assert all(0 <= share <= 1 for share in metrics["communication_share"])
    assert metrics["samples_per_s"] > 0


def test_rank_errors_and_silent_exits_are_reported() -> None:
    with pytest.raises(Unsupported, match="no device 'cuda:7'"):
        ranks.train_ranks(2, {**ORDER, "devices": ["cpu", "cuda:7"]})
    with pytest.raises(HarnessError, match="process of rank 0 ended with exit code 0"):
        ranks.train_ranks(1, ORDER, command=("-c", "pass"))


class PairedDevice(SecondCpu):
    """One of two devices in a node."""

    @classmethod
    def detect(cls) -> tuple[list[str], list[str]]:
        return ["cpu", "cpu:1"], []


def test_each_rank_has_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    answer = {"error": 0.0, "step_time": [0.5, 0.5], "step_time_alone": [0.4, 0.6]}
    monkeypatch.setattr(ranks, "train_ranks", lambda *arguments: calls.append(arguments) or answer)
    workload = build_work("several-devices", PairedDevice(), ranks=2)
    assert passes_check(workload)
    assert observe(workload) == {"communication_share": [pytest.approx(0.2), 0.0], "samples_per_s": 16.0}
    ((count, order),) = calls  # the ranks were started only once
    assert (count, order["devices"]) == (2, ["cpu", "cpu:1"])


@pytest.fixture
def single_replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the replica of a single rank, in this process."""
    for name, value in ranks.loopback_variables().items():
        monkeypatch.setenv(name, value)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Replica(CpuDevice(), "mlp", 4, Dtype.FLOAT32)
    dist.destroy_process_group()


def test_wrong_gradients_are_detected(single_replica: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [weights.clone() for weights in single_replica.unwrapped.parameters()]
    assert single_replica.error() < 1e-5
    assert all(map(torch.equal, before, single_replica.unwrapped.parameters()))
    backward = Trainer.backward

    def halve_gradients(trainer: Trainer) -> None:
        backward(trainer)
        for weights in trainer.model.parameters():
            assert weights.grad is not None
            weights.grad *= 0.5

    monkeypatch.setattr(Trainer, "backward", halve_gradients)
    assert 0.3 < single_replica.error() < 0.7


@pytest.mark.parametrize("fault", [1e-3, float("nan")])
def test_different_weights_across_ranks_are_detected(
    single_replica: Any, monkeypatch: pytest.MonkeyPatch, fault: float
) -> None:
    assert single_replica.weight_spread() == 0.0
    monkeypatch.setattr(dist, "broadcast", lambda first, *_, **__: first.add_(fault))
    assert not single_replica.weight_spread() <= 1e-6
    assert single_replica.error() == BEYOND
