"""GPUs of any maker on a stand-in for torch: found or left out with the reason, opened, described, timed, captured."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest
import torch as real
from pynvml import NVML_ERROR_LIB_RM_VERSION_MISMATCH, NVMLError

from contract.errors import StudyError
from contract.node import NODE_SCHEMA
from contract.schema import check_document
from experiments import devices, nvml, worker
from experiments.devices import accelerator, rocm
from experiments.devices.accelerator import Accelerator
from experiments.devices.cuda import CudaDevice, is_covered
from experiments.devices.mps import MpsDevice
from experiments.devices.rocm import RocmDevice
from experiments.devices.xpu import XpuDevice
from experiments.kernels import cuda_compile as cuda_c
from experiments.workload import Dtype, Unsupported, Workload
from tests.experiments.nvml_standin import FakeNvml
from tests.experiments.torch_standin import ARC, H100, MI300X, P100, Event, Stream, Torch, install

WHEELS = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvml, "nvidia_gpus", list)
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml(broken=True, cuda=0))


def test_a_build_of_torch_for_the_cpu_leaves_out_every_gpu_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch())
    found, left_out = devices.detect()
    assert [device.name for device in found] == ["cpu"]
    assert left_out == ["torch 2.11.0 was built without CUDA, MPS, ROCm, XPU"]
    with pytest.raises(StudyError, match=r"^no device 'mps' .*Devices: cpu\. torch .* built without"):
        devices.open_device("mps")
    # A card is there: what to install for it.
    monkeypatch.setattr(nvml, "nvidia_gpus", lambda: [{"name": "NVIDIA H100"}])
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml({}, cuda=12080))
    assert re.search("there is NVIDIA H100, .*whl/cu128", devices.detect()[1][0])


TOO_OLD = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Update it"
ODD = (
    "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error {} (Triggered internally at /p/CUDAFunctions.cpp:1.)"
)


@pytest.mark.parametrize(
    ("said", "latest", "hidden", "words"),  # latest: CUDA that the driver goes up to, 12040 for 12.4
    [
        (TOO_OLD, 0, None, r"up to CUDA 11\.4, torch 2\.11\.0 .* 13\.0.*whl/cu114"),
        ("", 12040, None, r"up to CUDA 12\.4, torch 2\.11\.0 was built for 13\.0"),
        ("", 13000, "", "CUDA_VISIBLE_DEVICES is ''"),
        ("", 13000, "7", "CUDA_VISIBLE_DEVICES is '7'"),
        (ODD.format("101: invalid device ordinal"), 13000, "7", "CUDA_VISIBLE_DEVICES is '7'"),
        (ODD.format("803: unsupported display driver"), 13000, "0", "error 803: .*restart"),
        (ODD.format("802: system not yet initialized"), 13000, None, "802: .*nvidia-fabricmanager"),
        (ODD.format("803: unsupported display driver"), 13000, None, "error 803: .*restart"),
        (ODD.format("999: unknown error"), 13000, None, "999: .*install the driver again"),
        ("CUDA initialization: CUDA unknown error - this", 13000, None, r"\(CUDA init.*NVML"),
        ("", 0, None, "sees no NVIDIA GPU; NVML: "),
    ],
)
def test_why_a_build_for_cuda_sees_no_gpu(
    said: str, latest: int, hidden: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Torch(cuda="13.0", warning=said))
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml({}, cuda=latest))
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    names, (reason,) = CudaDevice.detect()
    assert names == []
    assert re.search(words, reason), reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((9, 0), WHEELS, True),
        ((8, 9), WHEELS, True),  # code of 8.6
        ((7, 0), WHEELS, False),
        ((11, 0), WHEELS, False),  # nothing of that major version
        ((12, 1), WHEELS, True),
        ((11, 0), [*WHEELS, "compute_90"], True),  # compiled by the driver
        ((8, 0), ["compute_90"], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["sm_90a", "compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["compute_100f"], False),
        ((9, 0), [], True),
        ((9, 0), ["of_tomorrow"], True),
    ],
)
def test_code_is_for_some_gpus(capability: tuple[int, int], built: list[str], runs: bool) -> None:
    assert is_covered(capability, built) is runs


def test_a_driver_in_trouble_comes_before_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(cuda="13.0"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    mismatch = NVMLError(NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml(refuses=mismatch, cuda=0))
    (reason,) = CudaDevice.detect()[1]
    assert re.search(r"NVML does not answer \(.*version mismatch\): .*restart the", reason)


def test_a_gpu_without_code_is_left_out_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(H100, P100, RuntimeError("CUDA error: lost\nmore"), cuda="13.0", architectures=WHEELS))
    names, (old, broken) = CudaDevice.detect()
    assert names == ["cuda:0"]
    assert re.search(r"^cuda:1: .*no code for Tesla P100.*6\.0.*whl/cu126", old)
    assert broken == "cuda:2: CUDA error: lost"
    install(monkeypatch, Torch(SimpleNamespace(**{**vars(H100), "major": 15}), cuda="13.0", architectures=WHEELS))
    assert "install a newer torch" in CudaDevice.detect()[1][0]
    old_amd = SimpleNamespace(**{**vars(MI300X), "name": "Radeon RX 580", "gcnArchName": "gfx803"})
    install(monkeypatch, Torch(MI300X, old_amd, hip="7.0.51831", architectures=["gfx90a", "gfx942"]))
    names, (reason,) = RocmDevice.detect()
    assert names == ["cuda:0"]
    assert "no code for Radeon RX 580 (gfx803)" in reason
    assert CudaDevice.detect() == ([], ["torch 2.11.0 was built without CUDA, MPS, XPU"])
    install(monkeypatch, Torch(old_amd, hip="7.0", architectures=["gfx8-generic"]))
    assert RocmDevice.detect() == (["cuda:0"], [])


def test_why_other_makers_gpus_are_not_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, Torch(hip="7.0"))
    monkeypatch.setattr(rocm, "_DRIVER", tmp_path / "kfd")
    assert "the driver is not loaded" in RocmDevice.detect()[1][0]
    (tmp_path / "kfd").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rocm.os, "access", lambda *_: False)
        assert "render,video" in RocmDevice.detect()[1][0]
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    assert "HIP_VISIBLE_DEVICES is '-1'" in RocmDevice.detect()[1][0]
    install(monkeypatch, Torch(xpu="20250301"))
    assert "Level Zero" in XpuDevice.detect()[1][0]
    monkeypatch.setenv("ZE_AFFINITY_MASK", "9")
    assert "ZE_AFFINITY_MASK is '9'" in XpuDevice.detect()[1][0]
    install(monkeypatch, Torch(mps=True))
    assert "macOS 14" in MpsDevice.detect()[1][0]


def test_torch_that_does_not_load_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    accelerator.load_torch.cache_clear()
    try:
        found, (line,) = devices.detect()
    finally:
        accelerator.load_torch.cache_clear()
    assert [device.name for device in found] == ["cpu"]
    assert line.startswith("torch cannot be loaded (")
    assert "\n" not in line


def test_finding_takes_nothing_and_opening_takes_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(H100, H100, cuda="13.0"))
    found, _ = devices.detect()
    assert [device.name for device in found] == ["cpu", "cuda:0", "cuda:1"]
    assert devices.find_device_class("cuda:1") is CudaDevice
    assert CudaDevice.peers("cuda:1") == ["cuda:0"]
    assert torch.opened == []
    assert devices.open_device("cuda:1").name == "cuda:1"
    assert torch.opened == ["cuda:1"]
    monkeypatch.setattr(torch, "ones", lambda *_, **__: SimpleNamespace(sum=lambda: 0.0))
    with pytest.raises(StudyError, match="it computes 1 \\+ 1 = 0"):
        devices.open_device("cuda:0")


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has"), r"out of memory\. Other processes"),
        (RuntimeError("CUDA error: out of memory\nmore"), r"CUDA error: out of memory\. Other processes"),
        (RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA"), r"compute mode prohibits"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered\nSearch for"), r"Its memory is damaged"),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "install another"),
        (AssertionError("Torch not compiled with CUDA enabled"), r"cannot be used: Torch not compiled.*enabled\.$"),
    ],
)
def test_a_gpu_that_cannot_be_worked_on_says_so_in_one_line_and_so_do_its_points(
    refusal: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Torch(H100, cuda="13.0", allocation_error=refusal))
    with pytest.raises(StudyError, match=words) as caught:
        devices.open_device("cuda:0")
    reason = str(caught.value)
    assert "\n" not in reason
    usable, left_out = devices.open_devices(devices.detect()[0])
    assert ([device.name for device in usable], left_out) == (["cpu"], [reason])
    order = {"experiment": "gemm", "device": "cuda:0", "params": {}, "policy": {}}
    answers = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{json.dumps(order)}\n" * 2))
    for name, answer in (("dup", 9), ("dup2", None), ("fdopen", answers)):
        monkeypatch.setattr(os, name, lambda *_, answer=answer, **__: answer)
    worker.serve()
    said = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert said == [{"status": "failed", "reason": reason}] * 2


class Made(NamedTuple):
    """A maker's GPU, torch that sees it, and facts of its entry in a record."""

    kind: type[Accelerator]
    name: str
    torch: Torch
    facts: dict[str, Any]


EVERY: list[tuple[type[Accelerator], str, Any, dict[str, Any], dict[str, Any]]] = [
    (CudaDevice, "cuda:0", H100, {"cuda": "13.0"},
     {"maker": "NVIDIA", "compute_capability": "9.0", "multiprocessors": 132, "l2_bytes": 50 << 20,
      "runtime": "CUDA 13.0", "memory_bytes": 85 * 10**9, "name": "NVIDIA H100 80GB HBM3"}),
    (RocmDevice, "cuda:0", MI300X, {"hip": "7.0.51831"},
     {"maker": "AMD", "architecture": "gfx942:sramecc+:xnack-", "l2_bytes": 4 << 20, "runtime": "HIP 7.0.51831"}),
    (XpuDevice, "xpu:0", ARC, {"xpu": "20250301"},
     {"maker": "Intel", "driver": "1.6.3", "multiprocessors": 32, "runtime": "XPU 20250301"}),
    (MpsDevice, "mps", H100, {"mps": True}, {"maker": "Apple", "memory_bytes": 12 * 10**9, "unified_memory": True}),
]  # fmt: skip


@pytest.fixture(params=EVERY, ids=lambda one: one[0].__name__)
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Made:
    kind, name, about, built, facts = request.param
    return Made(kind, name, install(monkeypatch, Torch(about, **built)), facts)


def test_a_gpu_is_found_and_described_by_what_is_known_of_it(made: Made) -> None:
    kind, name, _, facts = made
    assert kind.detect() == ([name], [])
    assert kind in devices.KINDS
    device = kind(name)
    entry = device.describe()
    check_document(entry, NODE_SCHEMA["properties"]["devices"]["items"], name)
    assert entry | facts == entry
    assert (entry["id"], entry["kind"]) == (name, "gpu")
    assert (entry["unwatched"] == "not NVIDIA's") == (kind is not CudaDevice), "its clock and power are not recorded"
    assert not {None, "", 0} & {value for value in entry.values() if not isinstance(value, bool)}
    assert 0 < device.free_bytes() <= entry["memory_bytes"]
    assert entry["last_level_cache_bytes"] == device.last_level_cache_bytes >= entry.get("l2_bytes", 1)
    json.dumps(entry)
    rule = (Path(__file__).parents[2] / "workflow/rules/measure.smk").read_text(encoding="utf-8")
    allowed = re.search(r'^\s+device="(.+)",$', rule, re.MULTILINE)
    assert allowed is not None
    assert re.fullmatch(allowed[1], name.replace(":", "-")), "as the workflow writes it into file names"


def test_formats_are_computed_where_they_can_be_and_refused_elsewhere_before_data_are_made(made: Made) -> None:
    device, float64 = made.kind(made.name), made.kind in (CudaDevice, RocmDevice)
    of_nvidia, of_apple = made.kind is CudaDevice, made.kind is MpsDevice
    refused = {Dtype.FLOAT64: not float64, Dtype.TF32: not of_nvidia, Dtype.FLOAT8: of_apple}
    assert {dtype: bool(device.refusal(dtype)) for dtype in refused} == refused
    for dtype in [one for one in refused if refused[one]]:
        with pytest.raises(Unsupported, match=f"{dtype}"):
            device.random_normal((2, 2), dtype)
    assert device.torch_dtype(Dtype.FLOAT32) is real.float32
    a: Any = SimpleNamespace(shape=(2, 3), dtype="float32")
    b: Any = SimpleNamespace(shape=(3, 4), dtype="float32")
    assert device.matmul("torch", a, b, Dtype.FLOAT32)() == (2, 4)
    of_others = () if of_nvidia else (Dtype.TF32, Dtype.FLOAT8, Dtype.INT8)
    for backend, dtype in (("numpy", Dtype.FLOAT32), *(("torch", dtype) for dtype in of_others)):
        with pytest.raises(Unsupported, match=f"{backend} does not run on {made.name}|NVIDIA"):
            device.matmul(backend, a, b, dtype)
    if made.kind in (MpsDevice, XpuDevice):
        with pytest.raises(Unsupported, match="captures no graphs"):
            device.graph([lambda: None])
    assert device.overhead_s > 0


def test_an_older_gpu_of_nvidia_has_no_tf32_and_apples_no_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(SimpleNamespace(**{**vars(H100), "major": 7, "minor": 5}), cuda="13.0"))
    with pytest.raises(Unsupported, match=r"tf32 needs compute capability 8\.0"):
        CudaDevice("cuda:0").random_normal((2, 2), Dtype.TF32)
    install(monkeypatch, Torch(H100, mps=True))
    with pytest.raises(Unsupported, match="page-locked"):
        MpsDevice("mps").pin(real.ones(2))


def test_free_memory_is_what_others_and_the_host_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(ARC, xpu="20250301"))
    # Some drivers refuse to tell it.
    monkeypatch.setattr(
        torch, "mem_get_info", lambda _: Torch(allocation_error=RuntimeError("no support")).ones(1, "xpu")
    )
    assert XpuDevice("xpu:0").free_bytes() == 15 * 10**9, "what this process has not taken"
    install(monkeypatch, Torch(H100, mps=True))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5))
    assert MpsDevice("mps").free_bytes() == 5, "it shares the host's"


@pytest.mark.parametrize(("dtype", "allowed"), [(Dtype.TF32, True), (Dtype.FLOAT32, False)])
def test_float32_is_not_silently_rounded_to_tf32(monkeypatch: pytest.MonkeyPatch, dtype: Dtype, allowed: bool) -> None:
    torch = install(monkeypatch, Torch(H100, cuda="13.0"))
    operand: Any = SimpleNamespace(shape=(2, 2), dtype="float32")
    CudaDevice("cuda:0").matmul("torch", operand, operand, dtype)
    assert torch.backends.cuda.matmul.allow_tf32 is allowed


def test_cuda_c_and_nvml_are_not_for_other_makers(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml({})
    for name in ("mps", "xpu:0"):
        with pytest.raises(Unsupported, match="NVIDIA's and AMD's"):
            cuda_c.compile_kernel("", "none", name)
        with pytest.raises(library.NVMLError):
            nvml.device_handle(name, library)
    monkeypatch.setattr(real.version, "hip", "7.0")
    with pytest.raises(library.NVMLError):
        nvml.device_handle("cuda:0", library)


def test_phases_are_timed_by_the_device_and_its_counters_read_while_it_works(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last event has been recorded, before anybody waits: nothing but launches lies between two events."""
    device, torch, done = made.kind(made.name), made.torch, list[str]()
    assert device.time(Workload(run=lambda: torch.launch(2.0)), calls=5) == [pytest.approx(2e-3)]
    record, synchronise = Event.record, Torch.synchronize
    monkeypatch.setattr(Event, "record", lambda event: done.append("record") or record(event))
    monkeypatch.setattr(Torch, "synchronize", lambda torch: done.append("synchronise") or synchronise(torch))

    def read() -> None:
        assert torch.now < torch.queued, "the device is idle"
        done.append("read")

    work = Workload(phases=[("forward", lambda: torch.launch(1.0)), ("backward", lambda: torch.launch(3.0))])
    assert device.time(work, 4, read) == [pytest.approx(1e-3), pytest.approx(3e-3)]
    assert (done[0], *done[-3:]) == ("synchronise", "record", "read", "synchronise")
    assert done.count("synchronise") == 2, "nobody waits in between"


def test_where_the_host_times_its_counters_are_read_when_all_is_done(made: Made) -> None:
    torch = made.torch
    waited: list[bool] = []

    def read() -> None:
        waited.append(torch.now == torch.queued == 4.0)
        time.sleep(0.1)

    assert made.kind(made.name).time(Workload(run=lambda: torch.launch(2.0), clock="host"), 2, read)[0] < 0.05
    assert waited == [True]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return install(monkeypatch, Torch(H100, cuda="13.0"))


def test_on_apples_gpu_two_events_may_be_stamped_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(H100, mps=True))
    stamped: list[Event] = []

    def elapsed_time(start: Event, end: Event) -> float:
        assert end not in stamped, "torch would wait forever"
        stamped.append(end)
        if start not in stamped:
            raise RuntimeError("Events were not created with argument 'enable_timing=True'")
        if end.at <= start.at:
            raise RuntimeError("End event 2 was not recorded after start event 1")
        return end.at - start.at

    monkeypatch.setattr(Event, "elapsed_time", elapsed_time)
    spent = MpsDevice("mps").time_launches([lambda: None, lambda: torch.launch(2.0)])
    assert spent == [pytest.approx(math.nan, nan_ok=True), pytest.approx(2e-3)]
    monkeypatch.setattr(Event, "elapsed_time", lambda *_: Torch(allocation_error=RuntimeError("lost")).ones(1, "mps"))
    with pytest.raises(RuntimeError, match="lost"):
        MpsDevice("mps").time_launches([lambda: None])


def test_a_graph_does_all_calls_at_each_replay_and_nothing_when_captured(torch: Torch) -> None:
    seen: list[float] = []

    def call() -> None:
        seen.append(torch.queued)
        torch.launch(1.0)

    device, before = CudaDevice("cuda:0"), torch.here
    replay = device.graph([call, call])
    assert len(seen) == 4  # once to set up, once to capture
    assert torch.queued == 2.0
    assert device.time_launches([replay, replay]) == [pytest.approx(2e-3), pytest.approx(2e-3)]
    assert len(seen) == 4
    with pytest.raises(Unsupported, match=r"^cannot be captured in a graph: operation not permitted .* capturing$"):
        device.graph([torch.synchronize])
    assert torch.here is before, "torch leaves the stream of a failed capture in place"
    assert device.spoilt, "torch 2.11's allocator believes that the capture goes on"


def test_a_process_is_spoilt_by_a_capture_that_fails_and_by_nothing_before_it(torch: Torch) -> None:
    def refuse() -> None:
        if not torch.capturing:
            raise Unsupported("no such library")

    device = CudaDevice("cuda:0")
    with pytest.raises(Unsupported, match="no such library"):
        device.graph([refuse])
    assert not device.spoilt
    device.graph([lambda: None])
    assert (device.spoilt, device.fault()) == (False, "")


def test_a_device_that_computes_nothing_any_more_says_why(torch: Torch) -> None:
    device = CudaDevice("cuda:0")
    torch.allocation_error = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert "cuda:0 cannot be used: CUDA error: an illegal memory access" in device.fault()


def test_calls_beside_each_other_have_streams_that_wait_for_what_was_before_and_are_waited_for(torch: Torch) -> None:
    seen: list[Stream] = []
    device, here = CudaDevice("cuda:0"), torch.here
    for _ in range(2):
        device.launch_concurrently([lambda: seen.append(torch.here)] * 3)
    assert len(set(map(id, seen))) == 3
    assert here not in seen
    assert all(here in stream.waited_for for stream in seen)
    assert here.waited_for == seen
    assert torch.here is here
    MpsDevice("mps").launch_concurrently([lambda: seen.append(torch.here)] * 2)
    assert seen[-2:] == [here] * 2, "on Apple's they follow each other"


@pytest.mark.parametrize(
    ("cuda", "hip", "package"),
    [("12.8", None, "cupy-cuda12x"), (None, "7.0", "cupy-rocm-7-0"), (None, None, "cupy-cuda13x")],
)
def test_the_cupy_that_fits_torch_is_named(
    cuda: str | None, hip: str | None, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real.version, "cuda", cuda)
    monkeypatch.setattr(real.version, "hip", hip)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unsupported, match=f"pip install {package}$"):
        cuda_c.open_cupy("cuda:0")
