"""Loader workers give training loops correct samples and stop when their point ends; loader errors name a cause."""

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

MODEL_SOURCES = [("mlp", "memory"), ("mlp", "photographs"), ("resnet-50", "photographs"), ("gpt-1m", "memory"),
       ("bert-base-classifier", "encoded"), ("gpt2-124m", "encoded"), ("minilm-l6", "memory")]  # fmt: skip


def first_batch(samples: data_loading.Samples) -> list[torch.Tensor]:
    return [torch.stack(column) for column in zip(*(samples[index % len(samples)] for index in range(4)), strict=True)]


@pytest.mark.parametrize(("model", "source"), MODEL_SOURCES)
def test_samples_fit_the_model_and_survive_pickling(model: str, source: str) -> None:
    from_source = data_loading.make_samples(source, ZOO[model])
    tensors = first_batch(from_source)
    for tensor, expected in zip(tensors, ZOO[model].batch(4), strict=True):
        assert (tensor.numel(), tensor.dtype) == (expected.numel(), expected.dtype)
    assert tensors[0].shape[1:] == ZOO[model].sample
    assert from_source.wrong_share(*tensors) == 0.0
    assert all(seconds > 0 for seconds in from_source.sample_times())
    received = pickle.loads(ForkingPickler.dumps(from_source))
    assert len(received) == len(from_source)
    assert received.wrong_share(*first_batch(received)) == 0.0
    attributes = [var for var in vars(from_source).values() if isinstance(var, torch.Tensor)]
    assert not any(tensor.is_shared() for tensor in attributes), "containers have little shared memory"


def test_wrong_decoding_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, text = (
        data_loading.make_samples(source, ZOO[model])
        for model, source in (("mlp", "photographs"), ("bert-base-classifier", "encoded"))
    )
    batches = [first_batch(samples) for samples in (pictures, text)]
    monkeypatch.setattr(data_loading.Photographs, "decode", lambda self, index: Image.new("RGB", (640, 427)))
    monkeypatch.setattr(data_loading.gzip, "decompress", lambda piece: b"other " * 10_000)
    assert [samples.wrong_share(*tensors) for samples, tensors in zip((pictures, text), batches, strict=True)] == [
        1.0,
        1.0,
    ]


@pytest.mark.parametrize(
    ("model", "source", "fault"),
    [
        ("mlp", "memory", lambda x, y: (x, (y + 1) % 10)),
        ("mlp", "photographs", lambda x, y: (x, y + 2)),
        ("gpt-1m", "memory", lambda x, y: (x, x)),
        ("minilm-l6-classifier", "encoded", lambda x, y: (x, y - 2)),
    ],
)
def test_corrupted_batch_fails_the_check(monkeypatch: pytest.MonkeyPatch, model: str, source: str, fault: Any) -> None:
    workload = build_work("orchestration", model=model, source=source, batch=8)
    next_batch = data_loading.Feed.next
    monkeypatch.setattr(data_loading.Feed, "next", lambda self: fault(*next_batch(self)))
    assert not passes_check(workload)


def test_steps_use_the_host_clock_and_a_gpu_loop_is_also_timed_without_waits() -> None:
    workload = build_work("orchestration")
    assert (workload.clock, list(workload.beside)) == ("host", [])
    assert len(observe(workload)["decode_time"]) == data_loading.TIMES
    device = SecondCpu()
    workload = build_work("orchestration", device, source="memory")
    (beside,) = workload.beside
    assert (beside.per, beside.clock) == (AHEAD, "device")
    device.waits = 0
    beside.calls[0]()
    assert device.waits == 0
    run_once(workload)
    assert device.waits == 2


def active_workers() -> set[psutil.Process]:
    return {psutil.Process(child.pid) for child in multiprocessing.active_children()}


@pytest.mark.parametrize("device", [CPU, SecondCpu()], ids=["cpu", "gpu"])
def test_workers_end_with_their_point_and_their_cpu_time_still_counts(device: Device) -> None:
    before = active_workers()
    workload = build_work("orchestration", device, workers=2, source="photographs")
    run_once(workload)
    started = active_workers() - before
    assert len(started) == 2
    # With a GPU, a fork server starts the workers, because it has no threads of GPU libraries, unlike this process.
    # Python 3.14 uses it for all.
    forked = device.kind == "cpu" and multiprocessing.get_start_method() == "fork"
    assert {process.ppid() == os.getpid() for process in started} == {forked}
    cpu_s = counters.read_totals(psutil.Process()).own_s
    del workload
    gc.collect()
    assert not psutil.wait_procs(started, 10)[1]
    assert counters.read_totals(psutil.Process()).own_s >= cpu_s - 0.1, (
        "the workers' CPU time would look like other load"
    )


def test_batches_are_pinned_for_cuda_and_xpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_loading, "DataLoader", loader := Mock(return_value=[]))
    for device in (CudaDevice("cuda:0"), XpuDevice("xpu:0"), MpsDevice("mps"), CPU):
        data_loading.Feed(ZOO["mlp"], 4, "memory", 1, device)
    assert [call.kwargs["pin_memory"] for call in loader.call_args_list] == [True, True, False, False]


@pytest.mark.filterwarnings("ignore")  # Python warns of a fork in a process with threads
def test_killed_loader_process_is_a_harness_error() -> None:
    before = active_workers()
    feed = data_loading.Feed(ZOO["mlp"], 6, "memory", 1, CPU)
    (worker,) = active_workers() - before
    worker.kill()
    with pytest.raises(HarnessError, match="processes that prepare batches: DataLoader worker"):
        while True:
            feed.next()


def test_dataset_error_is_not_a_harness_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("not decoded")

    monkeypatch.setattr(data_loading.MemorySamples, "__getitem__", fail)
    with pytest.raises(RuntimeError, match="not decoded") as raised:
        data_loading.Feed(ZOO["mlp"], 6, "memory", 0, CPU).next()
    assert raised.type is RuntimeError


@pytest.mark.parametrize(("free", "words"), [(2**26, "64.0 MiB free .*--shm-size"), (2**30, ""), (None, "there is no")])
def test_low_shared_memory_error_suggests_shm_size(
    monkeypatch: pytest.MonkeyPatch, free: int | None, words: str
) -> None:
    def disk_usage(_: object) -> Any:
        if free is None:
            raise FileNotFoundError
        return SimpleNamespace(free=free)

    monkeypatch.setattr(data_loading.shutil, "disk_usage", disk_usage)
    fault = data_loading._shared_memory_fault()
    assert bool(fault) == bool(words)
    assert re.search(words, fault)
    monkeypatch.setattr(data_loading.sys, "platform", "darwin")
    assert data_loading._shared_memory_fault() == ""


def test_full_preset_contains_the_baseline_of_every_point() -> None:
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
