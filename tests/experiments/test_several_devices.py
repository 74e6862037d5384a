"""Ranks start, agree, are timed, and never outlive the process that started them."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest
import torch

from experiments import hardware
from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.models.trainer import Trainer
from experiments.registry import get, typed
from experiments.several import launch
from experiments.sweep import read_preset, sweep
from experiments.work import Dtype, Unsupported, Work
from tests.experiments.second_device import SecondCpu

ORDER = {"model": "mlp", "batch": 4, "dtype": "float32", "interconnect": "gloo", "devices": ["cpu", "cpu"],
         "threads": 1}  # fmt: skip
POINT = {"model": "mlp", "batch": 4, "ranks": 2, "interconnect": "gloo", "dtype": "float32", "backend": "torch"}


def work(device: Device | None = None, **params: Any) -> Work:
    experiment = get("several-devices")
    return experiment.function(device or CpuDevice(), **typed(experiment, {**POINT, "threads": 1, **params}))


@pytest.mark.skipif(hardware.usable_cores() < 2, reason="two ranks take two cores")
def test_two_ranks_agree_and_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "answer", partial(launch.answer, command=("-m", "tests.experiments.quick_rank")))
    made = work()
    assert made.check is not None
    assert made.tolerance is not None
    assert made.observe is not None
    assert made.check() <= made.tolerance
    seen = made.observe()
    together, alone, shares = (seen[name][0] for name in ("step_time", "step_time_alone", "communication_share"))
    assert isinstance(together, list)
    assert isinstance(alone, list)
    assert isinstance(shares, list)
    assert len(together) == len(alone) == len(shares) >= 4
    assert all(seconds > 0 for seconds in [*together, *alone])
    assert all(0 <= share <= 1 for share in shares)
    assert seen["samples_per_s"] == (pytest.approx(2 * 4 / statistics.median(together)), "samples/s")


@pytest.mark.parametrize(
    ("change", "kind", "why"),
    [
        ({"devices": ["cuda:7"]}, Unsupported, "no device 'cuda:7'"),
        ({"model": "none"}, RuntimeError, "none"),
    ],
)
def test_what_befalls_a_rank_is_told(change: dict[str, Any], kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        launch.answer(1, {**ORDER, "devices": ["cpu"], **change}, 1)


def test_ranks_that_never_answer_are_a_failure() -> None:
    with pytest.raises(RuntimeError, match="no answer"):
        launch.answer(1, ORDER, 1, command=("-m", "experiments.several"))


@pytest.mark.parametrize("moment", ["starting", "training"])
def test_ranks_end_with_a_process_that_is_killed(moment: str) -> None:
    endless = {**ORDER, "devices": ["cpu"], "batch": 200_000}
    code = f"from experiments.several import launch; launch.answer(1, {json.dumps(endless)}, 1)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as child:
        family = waited(psutil.Process(child.pid), ranks=moment == "training")
        os.kill(child.pid, signal.SIGKILL)
        begun = time.monotonic()
        left = family
        while left and time.monotonic() < begun + 60:
            left = [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
            # A launcher that was on its way still starts the ranks, who end when they see that nobody waits.
            for one in list(left):
                try:
                    left += [new for new in one.children(recursive=True) if new not in left]
                except psutil.NoSuchProcess:
                    continue
            time.sleep(0.1)
        assert not left


def waited(process: psutil.Process, ranks: bool) -> list[psutil.Process]:
    """The launcher, or both it and a rank that has begun to work, once they are there."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        family = process.children(recursive=True)
        if len(family) >= 1 + ranks and (not ranks or family[-1].cpu_times().user > 1):
            return family
        time.sleep(0.05)
    raise AssertionError("nothing was started")


@pytest.mark.parametrize(
    ("device", "params", "why"),
    [
        (CpuDevice(), {"ranks": 4, "threads": 1000}, "4 ranks of 1000 threads need 4000 cores"),
        (CpuDevice(), {"interconnect": "nccl"}, "NCCL, or AMD's RCCL, does not join cpu"),
        (CpuDevice(), {"ranks": 0}, "at least one rank"),
        (CpuDevice(), {"ranks": 1, "dtype": "float16"}, "loss scaling"),
        (CpuDevice(), {"ranks": 1, "model": "cnn"}, "batch norm"),
        (SecondCpu(), {}, "2 devices are needed to train on several, this node has 1"),
        (SecondCpu(), {"ranks": 1}, "2 devices are needed to train on several, this node has 1"),
    ],
)
def test_what_cannot_be_is_unsupported(device: Device, params: dict[str, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        work(device, **params)


CPU = {"id": "cpu", "kind": "cpu", "name": "AMD EPYC 9655"}


def gpus(count: int, maker: str = "NVIDIA") -> list[dict[str, Any]]:
    return [{"id": f"cuda:{number}", "kind": "gpu", "maker": maker, "name": "a GPU"} for number in range(count)]


@pytest.mark.parametrize(
    ("devices", "ranks", "threads", "why"),
    [
        ([CPU, *gpus(1)], 1, 0, "2 devices are needed to train on several, this node has 1"),
        ([CPU, *gpus(1)], 2, 0, "2 devices are needed to train on several, this node has 1"),
        ([CPU, *gpus(2)], 8, 0, "8 devices are needed to train on several, this node has 2"),
        ([CPU, *gpus(1), *gpus(1, "Intel")], 2, 0, "2 devices are needed to train on several, this node has 1"),
        ([CPU, *gpus(8)], 8, 0, ""),
        ([CPU, *gpus(2)], 1, 0, ""),
        ([CPU], 2, 1, ""),  # ranks on a CPU share it
        ([CPU], 0, 1, "a job has at least one rank"),
    ],
)
def test_what_a_node_lacks_is_known_from_its_record_before_a_process_starts(
    devices: list[dict[str, Any]], ranks: int, threads: int, why: str
) -> None:
    assert get("several-devices").lacks(devices, {**POINT, "ranks": ranks, "threads": threads}) == why


def test_an_experiment_that_says_nothing_lacks_nothing() -> None:
    assert get("gemm").lacks([CPU], {}) == ""


def test_what_a_node_lacks_is_told_without_torch() -> None:
    code = (
        "import sys; from experiments.suite.several_devices import lacking; "
        "print(lacking([], {'ranks': 2, 'threads': 0}), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "2 devices are needed to train on several, this node has 0 False"


class Pair(SecondCpu):
    """One of two devices of a node."""

    @classmethod
    def detect(cls) -> tuple[list[str], list[str]]:
        return ["cpu", "cpu:1"], []


def test_each_rank_has_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def answer(ranks: int, order: dict[str, Any], threads: int) -> dict[str, Any]:
        asked.append((ranks, order["devices"], threads))
        return {"error": 0.0, "step_time": [0.5, 0.5], "step_time_alone": [0.4, 0.6]}

    monkeypatch.setattr(launch, "answer", answer)
    made = work(Pair(), threads=0)
    assert made.check is not None
    assert made.observe is not None
    assert made.check() == 0.0
    assert made.observe() == {
        "step_time": ([0.5, 0.5], "s"),
        "step_time_alone": ([0.4, 0.6], "s"),
        "communication_share": ([pytest.approx(0.2), 0.0], "1"),
        "samples_per_s": (16.0, "samples/s"),
    }
    assert asked == [(2, ["cpu", "cpu:1"], 0)]  # started once


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The replica of a rank without others, in this process."""
    import torch.distributed as dist

    from experiments.several.replica import Replica

    for name, value in launch._environment(1).items():
        monkeypatch.setenv(name, value)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Replica(CpuDevice(), "mlp", 4, Dtype.FLOAT32)
    dist.destroy_process_group()


def test_a_rank_that_learns_something_else_is_noticed(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [weights.clone() for weights in alone.plain.parameters()]
    assert alone.error() < 1e-5
    assert all(map(torch.equal, before, alone.plain.parameters()))
    backward = Trainer.backward

    def halved(trainer: Trainer) -> None:
        backward(trainer)
        for weights in trainer.model.parameters():
            assert weights.grad is not None
            weights.grad *= 0.5

    monkeypatch.setattr(Trainer, "backward", halved)
    assert 0.3 < alone.error() < 0.7


@pytest.mark.parametrize("fault", [1e-3, float("nan")])
def test_ranks_with_different_weights_are_noticed(alone: Any, monkeypatch: pytest.MonkeyPatch, fault: float) -> None:
    import torch.distributed as dist

    from experiments.several.replica import BEYOND

    assert alone.spread() == 0.0
    monkeypatch.setattr(dist, "broadcast", lambda first, *_, **__: first.add_(fault))
    assert not alone.spread() <= 1e-6
    assert alone.error() == BEYOND


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_every_job_of_the_full_preset_is_also_done_by_one_rank(kind: str) -> None:
    points = [dict(point.params) for point in sweep(read_preset("full"), "several-devices", "full").points(kind)]
    assert points
    for point in points:
        assert {**point, "ranks": 1} in points, point
