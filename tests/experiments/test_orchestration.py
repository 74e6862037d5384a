"""Training loops are fed with the right data, by processes that end with their point, and say what they wait for."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.models import data, loading
from experiments.models.zoo import ZOO
from experiments.registry import get, typed
from experiments.suite.orchestration import AHEAD
from experiments.sweep import read_preset, sweep
from experiments.work import Unsupported, Work
from tests.experiments.second_device import SecondCpu

POINT = {"model": "mlp", "batch": 6, "source": "encoded", "workers": 0, "dtype": "float32", "backend": "torch"}
FED = [("mlp", "memory"), ("mlp", "encoded"), ("mlp", "photographs"), ("resnet", "memory"), ("resnet", "encoded"),
       ("resnet", "photographs"), ("gpt-1m", "memory"), ("gpt-1m", "encoded")]  # fmt: skip


def work(device: Device | None = None, **params: Any) -> Work:
    experiment = get("orchestration")
    return experiment.function(device or CpuDevice(), **typed(experiment, {**POINT, "threads": 1, **params}))


def samples(model: str, source: str) -> loading.Samples:
    entry = ZOO[model]
    return loading.samples(source, entry.sample, entry.images, entry.length)


def batch(given: loading.Samples, size: int = 4) -> list[torch.Tensor]:
    return [torch.stack(column) for column in zip(*(given[index % len(given)] for index in range(size)), strict=True)]


@pytest.mark.parametrize(("model", "source"), FED)
def test_samples_are_what_the_model_takes(model: str, source: str) -> None:
    entry = ZOO[model]
    given, expected = batch(samples(model, source)), entry.batch(4)
    for one, other in zip(given, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert samples(model, source).wrong(*given) == 0.0
    assert all(seconds > 0 for seconds in samples(model, source).seconds())


def test_augmentation_changes_pictures_and_decoding_does_not() -> None:
    pictures = samples("resnet", "encoded")
    assert isinstance(pictures, loading.Pictures)
    images, labels = data.mnist()
    drawn = [pictures[4000] for _ in range(8)]
    assert len({image.sum().item() for image, _ in drawn}) > 1
    assert {int(label) for _, label in drawn} == {int(labels[4000])}
    whole = torch.from_numpy(np.array(pictures.decoded(4000))) / 255
    assert torch.equal(whole, images[4000, 0])


def broken_picture(self: Any, index: int) -> Image.Image:
    return Image.new("L", (8, 8), 17)


def broken_photograph(self: Any, index: int) -> Image.Image:
    return Image.new("RGB", (640, 427))


@pytest.mark.parametrize(
    ("model", "source", "fault"),
    [("mlp", "encoded", broken_picture), ("mlp", "photographs", broken_photograph)],
)
def test_wrong_decoding_is_noticed(monkeypatch: pytest.MonkeyPatch, model: str, source: str, fault: Any) -> None:
    given = samples(model, source)
    drawn = batch(given)
    monkeypatch.setattr(type(given), "decoded", fault)
    assert given.wrong(*drawn) == 1.0


@pytest.mark.parametrize(
    ("model", "source", "fault"),
    [
        ("mlp", "memory", lambda x, y: (x, (y + 1) % 10)),
        ("mlp", "memory", lambda x, y: (x * 0.99, y)),
        ("mlp", "encoded", lambda x, y: (x + 1, y)),
        ("mlp", "photographs", lambda x, y: (x, y + 2)),
        ("gpt-1m", "memory", lambda x, y: (x, x)),
        ("gpt-1m", "encoded", lambda x, y: (x.flip(0), y)),
    ],
)
def test_a_batch_that_was_spoilt_on_its_way_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, model: str, source: str, fault: Any
) -> None:
    made = work(model=model, source=source, batch=8)
    following = loading.Feed.next
    monkeypatch.setattr(loading.Feed, "next", lambda self: fault(*following(self)))
    assert made.check is not None
    assert made.tolerance is not None
    assert not made.check() <= made.tolerance


def test_nan_in_what_is_loaded_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    made = work()
    monkeypatch.setattr(loading.Feed, "error", lambda _: math.nan)
    assert made.check is not None
    assert math.isnan(made.check())


def test_a_turn_loads_and_steps_on_the_hosts_clock() -> None:
    made = work(CpuDevice())
    assert ([name for name, _ in made.phases], made.clock, list(made.beside)) == (["load", "step"], "host", [])
    assert made.flop == ZOO["mlp"].step_flop(6)
    assert made.observe is not None
    seconds, unit = made.observe()["decode_time"]
    assert unit == "s"
    assert isinstance(seconds, list)
    assert len(seconds) == loading.TIMES


def test_on_a_gpu_the_loop_is_timed_as_it_is_written_too() -> None:
    device = SecondCpu()
    made = work(device, source="memory")
    (beside,) = made.beside
    assert (beside.metric, beside.per, beside.clock) == ("loop_time", AHEAD, "device")
    device.waits = 0
    beside.calls[0]()
    assert device.waits == 0  # the host runs ahead
    for _, phase in made.phases:
        phase()
    assert device.waits == 2


def test_preloaded_batches_stay_and_take_turns() -> None:
    feed = loading.Feed(ZOO["mlp"], 6, "preloaded", 0, CpuDevice())
    places = [feed.next()[0].data_ptr() for _ in range(2 * loading.PRELOADED)]
    assert len(set(places)) == loading.PRELOADED
    assert places[: loading.PRELOADED] == places[loading.PRELOADED :]
    assert feed.error() == 0.0
    made = work(source="preloaded")
    assert made.observe is not None
    assert made.observe() == {}


def test_workers_end_with_their_point() -> None:
    before = set(psutil.Process().children())
    made = work(workers=2, source="memory")
    for _, phase in made.phases:
        phase()
    started = set(psutil.Process().children()) - before
    assert len(started) == 2
    del made
    gc.collect()
    assert not psutil.wait_procs(started, 10)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends a process with its parent")
def test_workers_end_with_a_process_that_is_killed() -> None:
    code = (
        "import time\n"
        "from experiments.devices.cpu import CpuDevice\n"
        "from experiments.models.loading import Feed\n"
        "from experiments.models.zoo import ZOO\n"
        "feed = Feed(ZOO['mlp'], 4, 'memory', 1, CpuDevice())\n"
        "feed.next()\n"
        "print('fed', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"fed\n"
        workers = psutil.Process(child.pid).children(recursive=True)
        assert workers
        os.kill(child.pid, signal.SIGKILL)
        # The loader's own watch looks only every 5 s.
        assert not psutil.wait_procs(workers, 4)[1]


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"source": "preloaded", "workers": 1}, "need no workers"),
        ({"model": "gpt-1m", "source": "photographs"}, "takes no photographs"),
        ({"model": "tabular"}, "images and text"),
        ({"model": "embedding"}, "images and text"),
        ({"dtype": "float16"}, "loss scaling"),
    ],
)
def test_what_cannot_be_is_unsupported(params: dict[str, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        work(**params)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_every_loop_of_the_full_preset_has_one_with_its_data_in_place(kind: str) -> None:
    points = [dict(point.params) for point in sweep(read_preset("full"), "orchestration", "full").points(kind)]
    assert points
    for point in points:
        assert {**point, "source": "preloaded", "workers": 0} in points, point
