"""GPUs from all makers are detected, opened, described, timed and captured in graphs, on a stand-in for torch."""

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
from experiments import devices, fingerprint, nvml, preflight, worker
from experiments.cli import main
from experiments.devices import accelerator, rocm
from experiments.devices.accelerator import Accelerator
from experiments.devices.cuda import CudaDevice, install_advice, is_covered
from experiments.devices.mps import MpsDevice
from experiments.devices.rocm import RocmDevice
from experiments.devices.xpu import XpuDevice
from experiments.doctor import cuda_checks
from experiments.doctor.finding import Level
from experiments.jobs import Plan
from experiments.kernels import cuda_compile as cuda_c
from experiments.workload import Dtype, Unsupported, Workload
from tests.experiments.nvml_standin import FakeNvml
from tests.experiments.test_node import RECORD
from tests.experiments.torch_standin import ARC, H100, MI300X, P100, Event, Stream, Torch, install

WHEELS = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.fixture(autouse=True)
def no_hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvml, "nvidia_gpus", list)
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml(broken=True, cuda=0))


def test_cpu_build_of_torch_leaves_out_all_gpus_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch())
    detected, left_out = devices.detect()
    assert [device.name for device in detected] == ["cpu"]
    assert left_out == ["torch 2.11.0 was built without CUDA, MPS, ROCm, XPU"]
    with pytest.raises(StudyError, match=r"^no device 'mps' .*Devices: cpu\. torch .* built without"):
        devices.open_device("mps")
    # With a GPU in the machine, the reason names the build to install.
    monkeypatch.setattr(nvml, "nvidia_gpus", lambda: [{"name": "NVIDIA H100"}])
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml({}, cuda=12080))
    for cuda, capability, build in ((12080, (9, 0), "cu128"), (13000, (6, 1), "cu126"), (13000, (7, 0), "cu126")):
        fake = FakeNvml({"CudaComputeCapability": capability}, cuda=cuda)
        monkeypatch.setattr(nvml, "load_pynvml", lambda fake=fake: fake)
        assert re.search(f"there is NVIDIA H100, .*whl/{build}", devices.detect()[1][0])


TOO_OLD = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Update it"
ODD = (
    "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error {} (Triggered internally at /p/CUDAFunctions.cpp:1.)"
)


@pytest.mark.parametrize(
    ("warning", "latest", "hidden", "words"),  # latest: newest CUDA version for the driver; 12040 means 12.4
    [
        (TOO_OLD, 0, None, r"up to CUDA 11\.4, torch 2\.11\.0 .* 13\.0.*whl/cu118"),
        ("", 12040, None, r"up to CUDA 12\.4, torch 2\.11\.0 was built for 13\.0.*whl/cu128"),
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
def test_reason_why_a_cuda_build_sees_no_gpu(
    warning: str, latest: int, hidden: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Torch(cuda="13.0", warning=warning))
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
        ((8, 9), WHEELS, True),  # GPUs with capability 8.9 run code for 8.6
        ((7, 0), WHEELS, False),
        ((11, 0), WHEELS, False),  # the wheels have no code for capability 11.0
        ((12, 1), WHEELS, True),
        ((11, 0), [*WHEELS, "compute_90"], True),  # the driver compiles the PTX code of 9.0 for 11.0
        ((8, 0), ["compute_90"], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["sm_90a", "compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["compute_100f"], False),
        ((9, 0), [], True),
        ((9, 0), ["of_tomorrow"], True),
    ],
)
def test_is_covered_finds_builds_with_code_for_a_gpu(capability: tuple[int, int], built: list[str], runs: bool) -> None:
    assert is_covered(capability, built) is runs


def test_driver_error_is_reported_before_hiding_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(cuda="13.0"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    mismatch = NVMLError(NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml(refuses=mismatch, cuda=0))
    (reason,) = CudaDevice.detect()[1]
    assert re.search(r"NVML does not answer \(.*version mismatch\): .*restart the", reason)


def test_only_gpus_without_code_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(H100, P100, RuntimeError("CUDA error: lost\nmore"), cuda="13.0", architectures=WHEELS))
    names, (old, broken) = CudaDevice.detect()
    assert names == ["cuda:0"]
    assert re.search(r"^cuda:1: .*no code for Tesla P100.*6\.0.*whl/cu126", old)
    assert broken.startswith("cuda:2: CUDA error: lost: ")
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


def test_reasons_why_other_makers_gpus_are_not_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_torch_that_fails_to_load_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    accelerator.load_torch.cache_clear()
    try:
        detected, (line,) = devices.detect()
    finally:
        accelerator.load_torch.cache_clear()
    assert [device.name for device in detected] == ["cpu"]
    assert line.startswith("torch cannot be loaded (")
    assert "\n" not in line


def test_detection_opens_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(H100, H100, cuda="13.0"))
    detected, _ = devices.detect()
    assert [device.name for device in detected] == ["cpu", "cuda:0", "cuda:1"]
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
def test_unusable_gpu_and_its_points_fail_with_one_line(
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
    outcomes = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert outcomes == [{"status": "failed", "reason": reason}] * 2


class MakerGpu(NamedTuple):
    """A maker's device class, the name of its GPU, a torch with that GPU, and facts that its record must hold."""

    kind: type[Accelerator]
    name: str
    torch: Torch
    facts: dict[str, Any]


MAKER_GPUS: list[tuple[type[Accelerator], str, Any, dict[str, Any], dict[str, Any]]] = [
    (CudaDevice, "cuda:0", H100, {"cuda": "13.0"},
     {"maker": "NVIDIA", "compute_capability": "9.0", "multiprocessors": 132, "l2_bytes": 50 << 20,
      "runtime": "CUDA 13.0", "memory_bytes": 85 * 10**9, "name": "NVIDIA H100 80GB HBM3"}),
    (RocmDevice, "cuda:0", MI300X, {"hip": "7.0.51831"},
     {"maker": "AMD", "architecture": "gfx942:sramecc+:xnack-", "l2_bytes": 4 << 20, "runtime": "HIP 7.0.51831"}),
    (XpuDevice, "xpu:0", ARC, {"xpu": "20250301"},
     {"maker": "Intel", "driver": "1.6.3", "multiprocessors": 32, "runtime": "XPU 20250301"}),
    (MpsDevice, "mps", H100, {"mps": True}, {"maker": "Apple", "memory_bytes": 12 * 10**9, "unified_memory": True}),
]  # fmt: skip


@pytest.fixture(params=MAKER_GPUS, ids=lambda case: case[0].__name__)
def maker_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MakerGpu:
    kind, name, properties, built, facts = request.param
    return MakerGpu(kind, name, install(monkeypatch, Torch(properties, **built)), facts)


def test_gpu_is_detected_and_described(maker_gpu: MakerGpu) -> None:
    kind, name, _, facts = maker_gpu
    assert kind.detect() == ([name], [])
    assert kind in devices.KINDS
    device = kind(name)
    entry = device.describe()
    check_document(entry, NODE_SCHEMA["properties"]["devices"]["items"], name)
    assert entry | facts == entry
    assert (entry["id"], entry["kind"]) == (name, "gpu")
    assert (entry["unwatched"] == "not NVIDIA's") == (kind is not CudaDevice), "its clock and power are not recorded"
    assert not {None, "", 0} & {value for value in entry.values() if not isinstance(value, (bool, dict))}
    assert 0 < device.free_bytes() <= entry["memory_bytes"]
    assert entry["last_level_cache_bytes"] == device.last_level_cache_bytes >= entry.get("l2_bytes", 1)
    json.dumps(entry)
    rule = (Path(__file__).parents[2] / "workflow/rules/measure.smk").read_text(encoding="utf-8")
    allowed = re.search(r'^\s+device="(.+)",$', rule, re.MULTILINE)
    assert allowed is not None
    assert re.fullmatch(allowed[1], name.replace(":", "-")), "as the workflow writes it into file names"


def test_unsupported_formats_are_refused_before_data_are_made(maker_gpu: MakerGpu) -> None:
    device, float64 = maker_gpu.kind(maker_gpu.name), maker_gpu.kind in (CudaDevice, RocmDevice)
    is_nvidia, is_apple = maker_gpu.kind is CudaDevice, maker_gpu.kind is MpsDevice
    refused = {Dtype.FLOAT64: not float64, Dtype.TF32: not is_nvidia, Dtype.FLOAT8: is_apple}
    assert {dtype: bool(device.refusal(dtype)) for dtype in refused} == refused
    for dtype in [dtype for dtype in refused if refused[dtype]]:
        with pytest.raises(Unsupported, match=f"{dtype}"):
            device.random_normal((2, 2), dtype)
    assert device.torch_dtype(Dtype.FLOAT32) is real.float32
    a: Any = SimpleNamespace(shape=(2, 3), dtype="float32")
    b: Any = SimpleNamespace(shape=(3, 4), dtype="float32")
    assert device.matmul("torch", a, b, Dtype.FLOAT32)() == (2, 4)
    nvidia_only = () if is_nvidia else (Dtype.TF32, Dtype.FLOAT8, Dtype.INT8)
    for backend, dtype in (("numpy", Dtype.FLOAT32), *(("torch", dtype) for dtype in nvidia_only)):
        with pytest.raises(Unsupported, match=f"{backend} does not run on {maker_gpu.name}|NVIDIA"):
            device.matmul(backend, a, b, dtype)
    if maker_gpu.kind in (MpsDevice, XpuDevice):
        with pytest.raises(Unsupported, match="captures no graphs"):
            device.graph([lambda: None])
    assert device.overhead_s > 0


def test_old_nvidia_gpus_lack_tf32_and_apple_gpus_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(SimpleNamespace(**{**vars(H100), "major": 7, "minor": 5}), cuda="13.0"))
    with pytest.raises(Unsupported, match=r"tf32 needs compute capability 8\.0"):
        CudaDevice("cuda:0").random_normal((2, 2), Dtype.TF32)
    install(monkeypatch, Torch(H100, mps=True))
    with pytest.raises(Unsupported, match="page-locked"):
        MpsDevice("mps").pin(real.ones(2))


def test_free_memory_excludes_memory_in_use_by_others_and_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(ARC, xpu="20250301"))
    # Some drivers do not report free memory.
    monkeypatch.setattr(
        torch, "mem_get_info", lambda _: Torch(allocation_error=RuntimeError("no support")).ones(1, "xpu")
    )
    assert XpuDevice("xpu:0").free_bytes() == 15 * 10**9, "memory that this process has not reserved"
    install(monkeypatch, Torch(H100, mps=True))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5))
    assert MpsDevice("mps").free_bytes() == 5, "it shares the host's memory"


@pytest.mark.parametrize(("dtype", "allowed"), [(Dtype.TF32, True), (Dtype.FLOAT32, False)])
def test_float32_is_not_silently_rounded_to_tf32(monkeypatch: pytest.MonkeyPatch, dtype: Dtype, allowed: bool) -> None:
    torch = install(monkeypatch, Torch(H100, cuda="13.0"))
    operand: Any = SimpleNamespace(shape=(2, 2), dtype="float32")
    CudaDevice("cuda:0").matmul("torch", operand, operand, dtype)
    assert torch.backends.cuda.matmul.allow_tf32 is allowed


def test_cuda_c_and_nvml_refuse_other_makers_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml({})
    for name in ("mps", "xpu:0"):
        with pytest.raises(Unsupported, match="NVIDIA's and AMD's"):
            cuda_c.compile_kernel("", "none", name)
        with pytest.raises(library.NVMLError):
            nvml.device_handle(name, library)
    monkeypatch.setattr(real.version, "hip", "7.0")
    with pytest.raises(library.NVMLError):
        nvml.device_handle("cuda:0", library)


def test_device_times_phases_and_counters_are_read_during_work(
    maker_gpu: MakerGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters are read after the last event is recorded and before the host waits.

    Thus the time between two events includes no reading of counters.
    """
    device, torch, done = maker_gpu.kind(maker_gpu.name), maker_gpu.torch, list[str]()
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
    assert done.count("synchronise") == 2, "no wait in between"


def test_counters_are_read_after_work_timed_by_the_host(maker_gpu: MakerGpu) -> None:
    torch = maker_gpu.torch
    was_done: list[bool] = []

    def read() -> None:
        was_done.append(torch.now == torch.queued == 4.0)
        time.sleep(0.1)

    assert maker_gpu.kind(maker_gpu.name).time(Workload(run=lambda: torch.launch(2.0), clock="host"), 2, read)[0] < 0.05
    assert was_done == [True]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return install(monkeypatch, Torch(H100, cuda="13.0"))


def test_apple_gpu_may_stamp_two_events_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_graph_runs_calls_at_each_replay_but_not_at_capture(torch: Torch) -> None:
    queued: list[float] = []

    def call() -> None:
        queued.append(torch.queued)
        torch.launch(1.0)

    device, before = CudaDevice("cuda:0"), torch.here
    replay = device.graph([call, call])
    assert len(queued) == 4  # the two calls run once to warm up and once in the capture
    assert torch.queued == 2.0
    assert device.time_launches([replay, replay]) == [pytest.approx(2e-3), pytest.approx(2e-3)]
    assert len(queued) == 4
    with pytest.raises(Unsupported, match=r"^cannot be captured in a graph: operation not permitted .* capturing$"):
        device.graph([torch.synchronize])
    assert torch.here is before, "torch leaves the stream of a failed capture in place"
    assert device.spoilt, "torch 2.11's allocator believes that the capture goes on"


def test_only_a_failed_capture_spoils_the_process(torch: Torch) -> None:
    def refuse() -> None:
        if not torch.capturing:
            raise Unsupported("no such library")

    device = CudaDevice("cuda:0")
    with pytest.raises(Unsupported, match="no such library"):
        device.graph([refuse])
    assert not device.spoilt
    device.graph([lambda: None])
    assert (device.spoilt, device.fault()) == (False, "")


def test_fault_names_why_a_lost_device_cannot_compute(torch: Torch) -> None:
    device = CudaDevice("cuda:0")
    torch.allocation_error = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert "cuda:0 cannot be used: CUDA error: an illegal memory access" in device.fault()


def test_concurrent_calls_use_streams_ordered_with_the_current_stream(torch: Torch) -> None:
    streams: list[Stream] = []
    device, here = CudaDevice("cuda:0"), torch.here
    for _ in range(2):
        device.launch_concurrently([lambda: streams.append(torch.here)] * 3)
    assert len(set(map(id, streams))) == 3
    assert here not in streams
    assert all(here in stream.waited_for for stream in streams)
    assert here.waited_for == streams
    assert torch.here is here
    MpsDevice("mps").launch_concurrently([lambda: streams.append(torch.here)] * 2)
    assert streams[-2:] == [here] * 2, "on Apple GPUs the calls run in sequence"


@pytest.mark.parametrize(
    ("cuda", "hip", "package"),
    [("12.8", None, "cupy-cuda12x"), (None, "7.0", "cupy-rocm-7-0"), (None, None, "cupy-cuda13x")],
)
def test_missing_cupy_names_the_package_that_fits_torch(
    cuda: str | None, hip: str | None, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real.version, "cuda", cuda)
    monkeypatch.setattr(real.version, "hip", hip)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unsupported, match=f"pip install {package}$"):
        cuda_c.open_cupy("cuda:0")


@pytest.mark.parametrize(
    ("capability", "lacking"),
    [
        ((6, 0), "bfloat16 tf32 float8_e4m3fn int8"),
        ((6, 1), "bfloat16 tf32 float8_e4m3fn int8"),
        ((7, 5), "bfloat16 tf32 float8_e4m3fn"),
        ((8, 6), "float8_e4m3fn"),
        ((8, 9), ""),
    ],
)
def test_formats_without_units_are_refused_and_replaced_in_the_record(
    capability: tuple[int, int], lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(**{**vars(P100), "major": capability[0], "minor": capability[1]})
    torch = install(monkeypatch, Torch(card, cuda="12.6"))
    monkeypatch.setattr(torch, "is_bf16_supported", lambda *_, **__: True, raising=False)  # by emulation
    device = CudaDevice("cuda:0")
    assert " ".join(dtype for dtype in Dtype if device.refusal(dtype)) == " ".join(
        dtype for dtype in Dtype if dtype in lacking.split()
    )
    for dtype in map(Dtype, lacking.split()):
        with pytest.raises(Unsupported, match="needs compute capability"):
            device.torch_dtype(dtype)
    entry = device.describe()
    check_document(entry, NODE_SCHEMA["properties"]["devices"]["items"], "cuda:0")
    replaced = {"bfloat16": "float16", "tf32": "float32"}
    lines = fingerprint.unknown_gpu_facts({"hardware": {"gpus": [], "nvml": "driver 580"}, "devices": [entry]})
    assert ("cuda:0: no units for bfloat16: float16 is measured in its place" in lines) == ("bfloat16" in lacking)
    assert entry.get("substitutes", {}) == {key: value for key, value in replaced.items() if key in lacking}


@pytest.mark.parametrize(
    ("latest", "capability", "words"),
    [
        ((13, 0), (6, 0), "CUDA 12.6 .*whl/cu126"),
        ((12, 4), (5, 2), "CUDA 12.6 .*whl/cu126"),
        ((12, 4), (7, 5), "CUDA 12.8 .*whl/cu128"),
        ((12, 8), (12, 0), "CUDA 12.8 .*whl/cu128"),
        ((13, 1), (12, 1), "CUDA 13.0 .*whl/cu130"),
        ((11, 4), (8, 0), "CUDA 11.8 .*whl/cu118"),
        ((11, 4), (12, 0), "^update the driver, which supports only CUDA 11.4, .*whl/cu128"),
        (None, (6, 1), "whl/cu126"),
        ((13, 0), None, "whl/cu130"),
        ((13, 0), (15, 0), "^install a newer torch"),
    ],
)
def test_advice_names_a_build_for_the_card_and_the_driver(
    latest: tuple[int, int] | None, capability: tuple[int, int] | None, words: str
) -> None:
    assert re.search(words, install_advice(latest, capability))


@pytest.mark.parametrize(
    ("card", "built", "words"),
    [
        (P100, WHEELS, r"compute capability 6\.0 .*: install a build of torch for CUDA 12\.6"),
        (SimpleNamespace(**{**vars(H100), "major": 12}), ["sm_50", "sm_80", "sm_90"], r"12\.0 .*CUDA 13\.0"),
    ],
)
def test_card_that_torch_has_no_code_for_leaves_the_cpu_measured(
    card: Any, built: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, Torch(card, cuda="13.0", architectures=built))
    monkeypatch.setattr(nvml, "load_pynvml", lambda: FakeNvml({}, cuda=13000))
    assert [device.name for device in devices.detect()[0]] == ["cpu"]
    assert main(["list"]) == 0
    assert re.search(f"^left out: cuda:0: .*{words}", capsys.readouterr().out, re.MULTILINE)
    (look,) = preflight._absent_devices(Plan((), 3), ["cpu"], devices.detect()[1])
    assert re.search(words, look.seen) and "\n" not in look.seen
    finding = cuda_checks._unusable_gpu(CudaDevice.detect()[1][0])
    assert f"{finding.name}: {finding.seen}: {finding.mend}" == CudaDevice.detect()[1][0]
    assert finding.level is Level.WARNING and finding.mend.startswith("install a build of torch for CUDA 1")
    hardware = {**RECORD["hardware"], "nvml": "driver 580, 1 GPU(s)"}
    record = {**RECORD, "hardware": hardware, "left_out": devices.detect()[1], "options": {"preset": "rented"}}
    with pytest.raises(StudyError, match=f"{words}.*--config preset=rented$"):
        fingerprint.require_device(record, "gpu")


@pytest.mark.parametrize(
    ("packages", "cuda", "words"),
    [
        (["cupy-cuda12x", "cupy-cuda13x"], "13.0", "installed together.*uninstall --yes cupy-cuda12x cupy-cuda13x "),
        (["cupy-cuda12x"], "13.0", "needs CUDA 12's libraries.*pip install cupy-cuda13x$"),
        (["cupy-cuda13x"], "12.6", "needs CUDA 13's libraries.*pip install cupy-cuda12x$"),
        (["cupy-cuda12x"], "12.6", "^$"),
        (["cupy"], "13.0", "^$"),
        ([], "13.0", "^$"),
    ],
)
def test_cupy_that_cannot_run_is_named_with_its_remedy(
    packages: list[str], cuda: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Torch(H100, cuda=cuda))
    monkeypatch.setattr(cuda_c, "load_torch", accelerator.load_torch)
    monkeypatch.setattr(cuda_c, "distributions", lambda: [SimpleNamespace(name=name) for name in [*packages, "cups"]])
    lines = cuda_c.installed_cupy_fault()
    assert re.search(words, " ".join(lines))
    install_finding = cuda_checks.cupy_install(bool(packages), cuda_c.installed_cupy(), cuda)
    assert (install_finding.level is Level.WARNING) == bool(lines)
    shown = preflight._absent_devices(Plan((), 3), ["cpu", "cuda:0"], [*lines, "torch was built without MPS"])
    assert [f"{line.what}: {line.seen}" for line in shown] == lines
