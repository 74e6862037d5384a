"""Training loops are fed with the right data, by processes that end with their point, and say what they wait for."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import re
from multiprocessing.reduction import ForkingPickler
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import torch
from PIL import Image

from experiments import counters
from experiments.devices.base import Device
from experiments.devices.cuda import CudaDevice
from experiments.devices.mps import MpsDevice
from experiments.devices.xpu import XpuDevice
from experiments.models import data_loading
from experiments.models.zoo import ZOO
from experiments.suite.orchestration import AHEAD
from experiments.sweep import find_sweep, read_preset
from experiments.workload import HarnessError
from tests.experiments.point_runs import CPU, build_work, observe, passes_check, run_once
from tests.experiments.second_device import SecondCpu

FED = [("mlp", "memory"), ("mlp", "photographs"), ("resnet-50", "photographs"), ("gpt-1m", "memory"),
       ("bert-base-classifier", "encoded"), ("gpt2-124m", "encoded"), ("minilm-l6", "memory")]  # fmt: skip


def batch(given: data_loading.Samples) -> list[torch.Tensor]:
    return [torch.stack(column) for column in zip(*(given[index % len(given)] for index in range(4)), strict=True)]


@pytest.mark.parametrize(("model", "source"), FED)
def test_samples_are_what_the_model_takes_and_reach_worker_processes_as_they_are(model: str, source: str) -> None:
    from_source = data_loading.make_samples(source, ZOO[model])
    given = batch(from_source)
    for one, other in zip(given, ZOO[model].batch(4), strict=True):
        assert (one.numel(), one.dtype) == (other.numel(), other.dtype)
    assert given[0].shape[1:] == ZOO[model].sample
    assert from_source.wrong_share(*given) == 0.0
    assert all(seconds > 0 for seconds in from_source.sample_times())
    received = pickle.loads(ForkingPickler.dumps(from_source))
    assert len(received) == len(from_source)
    assert received.wrong_share(*batch(received)) == 0.0
    held = [var for var in vars(from_source).values() if isinstance(var, torch.Tensor)]
    assert not any(one.is_shared() for one in held), "containers have little shared memory"


def test_wrong_decoding_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, text = (
        data_loading.make_samples(source, ZOO[model])
        for model, source in (("mlp", "photographs"), ("bert-base-classifier", "encoded"))
    )
    drawn = [batch(one) for one in (pictures, text)]
    monkeypatch.setattr(data_loading.Photographs, "decode", lambda self, index: Image.new("RGB", (640, 427)))
    monkeypatch.setattr(data_loading.gzip, "decompress", lambda piece: b"other " * 10_000)
    assert [one.wrong_share(*given) for one, given in zip((pictures, text), drawn, strict=True)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("model", "source", "fault"),
    [
        ("mlp", "memory", lambda x, y: (x, (y + 1) % 10)),
        ("mlp", "photographs", lambda x, y: (x, y + 2)),
        ("gpt-1m", "memory", lambda x, y: (x, x)),
        ("bert-base-classifier", "encoded", lambda x, y: (x, y - 2)),
    ],
)
def test_a_batch_that_was_spoilt_on_its_way_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, model: str, source: str, fault: Any
) -> None:
    made = build_work("orchestration", model=model, source=source, batch=8)
    following = data_loading.Feed.next
    monkeypatch.setattr(data_loading.Feed, "next", lambda self: fault(*following(self)))
    assert not passes_check(made)


def test_a_turn_is_on_the_hosts_clock_and_on_a_gpu_the_loop_is_timed_as_it_is_written_too() -> None:
    made = build_work("orchestration")
    assert (made.clock, list(made.beside)) == ("host", [])
    assert len(observe(made)["decode_time"]) == data_loading.TIMES
    device = SecondCpu()
    made = build_work("orchestration", device, source="memory")
    (beside,) = made.beside
    assert (beside.per, beside.clock) == (AHEAD, "device")
    device.waits = 0
    beside.calls[0]()
    assert device.waits == 0  # the host runs ahead
    run_once(made)
    assert device.waits == 2


def workers() -> set[psutil.Process]:
    return {psutil.Process(child.pid) for child in multiprocessing.active_children()}


@pytest.mark.parametrize("device", [CPU, SecondCpu()], ids=["cpu", "gpu"])
def test_workers_end_with_their_point_and_their_cpu_time_stays_counted(device: Device) -> None:
    before = workers()
    made = build_work("orchestration", device, workers=2, source="photographs")
    run_once(made)
    started = workers() - before
    assert len(started) == 2
    # A GPU's are forked by a server that has no thread of the GPU's libraries.
    assert {one.ppid() == os.getpid() for one in started} == {device.kind == "cpu"}
    spent = counters.read_totals(psutil.Process()).own
    del made
    gc.collect()
    assert not psutil.wait_procs(started, 10)[1]
    assert counters.read_totals(psutil.Process()).own >= spent - 0.1, "what they took would look like others' load"


def test_batches_are_page_locked_for_every_gpu_that_reads_such_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_loading, "DataLoader", asked := Mock(return_value=[]))
    for device in (CudaDevice("cuda:0"), XpuDevice("xpu:0"), MpsDevice("mps"), CPU):
        data_loading.Feed(ZOO["mlp"], 4, "memory", 1, device)
    assert [call.kwargs["pin_memory"] for call in asked.call_args_list] == [True, True, False, False]


@pytest.mark.filterwarnings("ignore")  # threads of the tests' own beside a fork
def test_worker_processes_that_give_no_batches_are_the_harnesss_failure() -> None:
    before = set(psutil.Process().children())
    feed = data_loading.Feed(ZOO["mlp"], 6, "memory", 1, CPU)
    (worker,) = set(psutil.Process().children()) - before
    worker.kill()
    with pytest.raises(HarnessError, match="processes that prepare batches: DataLoader worker"):
        while True:
            feed.next()


def test_a_mistake_in_the_loop_itself_is_none_of_the_harnesss(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("not decoded")

    monkeypatch.setattr(data_loading.MemorySamples, "__getitem__", fail)
    with pytest.raises(RuntimeError, match="not decoded") as mistake:
        data_loading.Feed(ZOO["mlp"], 6, "memory", 0, CPU).next()
    assert mistake.type is RuntimeError


@pytest.mark.parametrize(("free", "words"), [(2**26, "64.0 MiB free .*--shm-size"), (2**30, ""), (None, "there is no")])
def test_little_shared_memory_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, free: int | None, words: str
) -> None:
    def usage(_: object) -> Any:
        if free is None:
            raise FileNotFoundError
        return SimpleNamespace(free=free)

    monkeypatch.setattr(data_loading.shutil, "disk_usage", usage)
    said = data_loading._shared_memory_fault()
    assert bool(said) == bool(words)
    assert re.search(words, said)


def test_every_point_of_the_full_preset_has_the_one_that_it_is_compared_with() -> None:
    content = read_preset("full")
    bases: dict[str, dict[str, Any]] = {
        "orchestration": {"source": "preloaded", "workers": 0}, "several-devices": {"ranks": 1},
        "libraries": {"variant": "library"},
    }  # fmt: skip
    for name, base in bases.items():
        for kind in ("cpu", "gpu"):
            points = [dict(point.params) for point in find_sweep(content, name, "full").points(kind)]
            assert points
            for point in points:
                assert {**point, **base} in points, point
                if point["dtype"] == "tf32":
                    assert {**point, "dtype": "float32"} in points, point
