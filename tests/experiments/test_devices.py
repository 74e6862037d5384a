"""What is found of GPUs, why others are left out, and what becomes of one that does not open, without any GPU."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch as real

from contract.errors import StudyError
from contract.node import NODE_SCHEMA
from contract.schema import check
from experiments import devices, doctor, environment, hardware, nvml, worker
from experiments.devices import accelerator, rocm
from experiments.devices.accelerator import Accelerator
from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.devices.cuda import CudaDevice, covered
from experiments.devices.mps import MpsDevice
from experiments.devices.rocm import RocmDevice
from experiments.devices.xpu import XpuDevice
from experiments.kernels import cuda as cuda_c
from experiments.work import Dtype, Unsupported
from tests.experiments.nvml_standin import Library
from tests.experiments.torch_standin import ARC, H100, MI300X, P100, Torch, install

ROOT = Path(__file__).parents[2]
WHEELS = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hardware, "gpus", list)
    monkeypatch.setattr(nvml, "module", lambda: Library(broken=True, cuda=0))


def driver(monkeypatch: pytest.MonkeyPatch, cuda: int) -> None:
    """A driver that goes up to CUDA 12.4, say: 12040."""
    monkeypatch.setattr(nvml, "module", lambda: Library({}, cuda=cuda))


def test_a_build_of_torch_for_the_cpu_leaves_out_every_gpu_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch())
    found, left_out = devices.detect()
    assert [device.name for device in found] == ["cpu"]
    assert left_out == ["torch 2.11.0 was built without CUDA, MPS, ROCm, XPU"]


def test_a_gpu_that_torch_was_not_built_for_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch())
    monkeypatch.setattr(hardware, "gpus", lambda: [{"name": "NVIDIA H100"}])
    driver(monkeypatch, 12080)
    first, *_ = devices.detect()[1]
    assert first.startswith("CUDA: there is NVIDIA H100, but torch 2.11.0 was built without CUDA")
    assert "https://download.pytorch.org/whl/cu128" in first


TOO_OLD = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your version "
    "of the CUDA driver. (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:119.)"
)
ODD = (
    "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error {} (Triggered internally at /p/CUDAFunctions.cpp:1.)"
)


@pytest.mark.parametrize(
    ("said", "latest", "hidden", "words"),
    [
        (
            TOO_OLD,
            0,
            None,
            r"CUDA: the driver is too old: it goes up to CUDA 11\.4, torch 2\.11\.0 .* 13\.0.*whl/cu114",
        ),
        ("", 12040, None, r"goes up to CUDA 12\.4, torch 2\.11\.0 was built for 13\.0\. Update it, or install"),
        ("", 13000, "", "CUDA_VISIBLE_DEVICES is '', which shows torch no GPU: unset it"),
        ("", 13000, "7", "CUDA_VISIBLE_DEVICES is '7'"),
        (ODD.format("802: system not yet initialized"), 13000, None, "802: system not yet .*nvidia-fabricmanager"),
        (
            ODD.format("803: system has unsupported display driver"),
            13000,
            None,
            "error 803: system has unsupported display driver: the driver in .*: restart",
        ),
        (ODD.format("999: unknown error"), 13000, None, "999: unknown error.*install the driver again"),
        (
            "CUDA initialization: CUDA unknown error - this may be due to",
            13000,
            None,
            r"no NVIDIA GPU \(CUDA init.*NVML",
        ),
        ("", 0, None, "sees no NVIDIA GPU; NVML: "),
    ],
)
def test_why_a_build_for_cuda_sees_no_gpu(
    said: str, latest: int, hidden: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Torch(cuda="13.0", said=said))
    driver(monkeypatch, latest)
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
        ((6, 0), WHEELS, False),
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
    assert covered(capability, built) is runs


def test_a_gpu_without_code_is_left_out_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(H100, P100, RuntimeError("CUDA error: lost\nmore"), cuda="13.0", architectures=WHEELS))
    names, (old, broken) = CudaDevice.detect()
    assert names == ["cuda:0"]
    assert old.startswith("cuda:1: torch 2.11.0 has no code for Tesla P100, which is of compute capability 6.0")
    assert "whl/cu126" in old
    assert broken == "cuda:2: CUDA error: lost"
    newer = SimpleNamespace(**{**vars(H100), "major": 15})
    install(monkeypatch, Torch(newer, cuda="13.0", architectures=WHEELS))
    assert "install a newer torch" in CudaDevice.detect()[1][0]


def test_an_amd_gpu_without_code_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(**{**vars(MI300X), "name": "Radeon RX 580", "gcnArchName": "gfx803"})
    install(monkeypatch, Torch(MI300X, old, hip="7.0.51831", architectures=["gfx90a", "gfx942"]))
    names, (reason,) = RocmDevice.detect()
    assert names == ["cuda:0"]
    assert reason.startswith("cuda:1: torch 2.11.0 has no code for Radeon RX 580, which is a gfx803")
    assert CudaDevice.detect() == ([], ["torch 2.11.0 was built without CUDA, MPS, XPU"])
    install(monkeypatch, Torch(old, hip="7.0", architectures=["gfx8-generic"]))
    assert RocmDevice.detect() == (["cuda:0"], [])


def test_why_a_build_for_rocm_sees_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, Torch(hip="7.0"))

    def reason() -> str:
        return RocmDevice.detect()[1][0]

    monkeypatch.setattr(rocm, "_DRIVER", tmp_path / "kfd")
    assert "the driver is not loaded" in reason()
    (tmp_path / "kfd").touch()
    assert reason() == "ROCm: torch 2.11.0 sees no AMD GPU"
    monkeypatch.setattr(rocm.os, "access", lambda *_: False)
    assert "render,video" in reason()
    monkeypatch.undo()
    install(monkeypatch, Torch(hip="7.0"))
    monkeypatch.setattr(rocm, "_DRIVER", tmp_path / "kfd")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    assert "HIP_VISIBLE_DEVICES is '-1'" in reason()


def test_intels_and_apples_gpus_are_found_or_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(ARC, xpu="20250301"))
    assert XpuDevice.detect() == (["xpu:0"], [])
    install(monkeypatch, Torch(xpu="20250301"))
    assert "Level Zero" in XpuDevice.detect()[1][0]
    monkeypatch.setenv("ZE_AFFINITY_MASK", "9")
    assert "ZE_AFFINITY_MASK is '9'" in XpuDevice.detect()[1][0]
    install(monkeypatch, Torch(H100, mps=True))
    assert MpsDevice.detect() == (["mps"], [])
    install(monkeypatch, Torch(mps=True))
    assert "macOS 14" in MpsDevice.detect()[1][0]


def test_torch_that_does_not_load_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    accelerator.loaded.cache_clear()
    try:
        found, left_out = devices.detect()
    finally:
        accelerator.loaded.cache_clear()
    assert [device.name for device in found] == ["cpu"]
    (line,) = left_out
    assert line.startswith("torch cannot be loaded (")
    assert "\n" not in line


def test_finding_takes_nothing_and_opening_takes_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(H100, H100, cuda="13.0"))
    found, _ = devices.detect()
    assert [device.name for device in found] == ["cpu", "cuda:0", "cuda:1"]
    assert devices.find("cuda:1") is CudaDevice
    assert CudaDevice.peers("cuda:1") == ["cuda:0"]
    assert torch.opened == []
    assert devices.open_device("cuda:1").name == "cuda:1"
    assert torch.opened == ["cuda:1"]


OOM = (
    "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 1.06 MiB is free"
)
BUSY = "CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA kernel errors might be asynchronously"
ECC = "CUDA error: uncorrectable ECC error encountered\nSearch for `cudaErrorECCUncorrectable'"


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (RuntimeError(OOM), r"^cuda:0 cannot be used: CUDA out of memory\. Other processes use its memory: stop them"),
        (RuntimeError("CUDA error: out of memory\nmore"), r"CUDA error: out of memory\. Other processes"),
        (RuntimeError(BUSY), r"busy or unavailable\. Another process has it to itself, or its compute mode forbids"),
        (RuntimeError(ECC), r"ECC error encountered\. Its memory is damaged: reset it"),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "install another"),
        (AssertionError("Torch not compiled with CUDA enabled"), r"cannot be used: Torch not compiled.*enabled\.$"),
    ],
)
def test_a_gpu_that_cannot_be_worked_on_says_so_in_one_line(
    refusal: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Torch(H100, cuda="13.0", refuses=refusal))
    with pytest.raises(StudyError, match=words) as caught:
        devices.open_device("cuda:0")
    assert "\n" not in str(caught.value)
    usable, left_out = devices.usable(devices.detect()[0])
    assert [device.name for device in usable] == ["cpu"]
    assert left_out == [str(caught.value)]


def test_a_gpu_that_computes_wrongly_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(H100, cuda="13.0"))
    monkeypatch.setattr(torch, "ones", lambda *_, **__: SimpleNamespace(sum=lambda: 0.0))
    with pytest.raises(StudyError, match="it computes 1 \\+ 1 = 0"):
        devices.open_device("cuda:0")


def test_a_device_that_others_have_taken_is_each_points_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(H100, cuda="13.0", refuses=RuntimeError(OOM)))
    order = {"experiment": "gemm", "device": "cuda:0", "params": {}, "policy": {}}
    answers = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{json.dumps(order)}\n" * 2))
    monkeypatch.setattr(worker.os, "dup", lambda _: 9)
    monkeypatch.setattr(worker.os, "dup2", lambda *_: None)
    text = io.TextIOWrapper(answers, "utf-8", write_through=True)
    monkeypatch.setattr(worker.os, "fdopen", lambda *_, **__: text)
    worker.serve()
    said = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [one["status"] for one in said] == ["failed"] * 2
    assert said[0]["reason"].startswith("cuda:0 cannot be used: CUDA out of memory.")


def test_an_unknown_name_is_answered_with_those_there_are_and_why_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch())
    with pytest.raises(StudyError, match=r"^no device 'mps' on this machine\. Devices: cpu\. torch .* built without"):
        devices.open_device("mps")


EVERY: list[tuple[type[Accelerator], str, Torch, dict[str, Any]]] = [
    (CudaDevice, "cuda:0", Torch(H100, cuda="13.0"),
     {"maker": "NVIDIA", "compute_capability": "9.0", "multiprocessors": 132, "l2_bytes": 50 << 20,
      "runtime": "CUDA 13.0", "memory_bytes": 85 * 10**9, "name": "NVIDIA H100 80GB HBM3"}),
    (RocmDevice, "cuda:0", Torch(MI300X, hip="7.0.51831"),
     {"maker": "AMD", "architecture": "gfx942:sramecc+:xnack-", "l2_bytes": 4 << 20, "runtime": "HIP 7.0.51831"}),
    (XpuDevice, "xpu:0", Torch(ARC, xpu="20250301"),
     {"maker": "Intel", "driver": "1.6.3", "multiprocessors": 32, "runtime": "XPU 20250301"}),
    (MpsDevice, "mps", Torch(H100, mps=True), {"maker": "Apple", "memory_bytes": 12 * 10**9, "unified_memory": True}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "torch", "facts"), EVERY)
def test_a_gpu_is_described_by_what_is_known_of_it(
    kind: type[Accelerator], name: str, torch: Torch, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, torch)
    device = kind(name)
    entry = device.describe()
    check(entry, NODE_SCHEMA["properties"]["devices"]["items"], name)
    assert entry | facts == entry
    assert (entry["id"], entry["kind"]) == (name, "gpu")
    assert not {None, "", 0} & {value for value in entry.values() if not isinstance(value, bool)}
    assert 0 < device.free_bytes() <= entry["memory_bytes"]
    assert device.last_level_cache_bytes >= entry.get("l2_bytes", 1)
    json.dumps(entry)


def test_memory_that_is_not_told_is_what_this_process_has_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = install(monkeypatch, Torch(ARC, xpu="20250301"))

    def refuse(_: str) -> tuple[int, int]:
        raise RuntimeError("The device doesn't support querying the available free memory")

    monkeypatch.setattr(torch, "mem_get_info", refuse)
    assert XpuDevice("xpu:0").free_bytes() == 15 * 10**9


def test_memory_that_is_shared_is_free_only_if_the_host_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(H100, mps=True))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5))
    assert MpsDevice("mps").free_bytes() == 5


class Moved:
    """A tensor that knows where it went."""

    def __init__(self, *steps: str) -> None:
        self.steps = steps

    def cpu(self) -> Moved:
        return Moved(*self.steps, "cpu")

    def double(self) -> Moved:
        return Moved(*self.steps, "double")


@pytest.mark.parametrize(
    ("device", "way"),
    [("cuda", ("double",)), ("rocm", ("double",)), ("xpu", ("cpu", "double")), ("mps", ("cpu", "double"))],
)
def test_float64_is_computed_where_it_can_be(
    device: str, way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, name, torch, _ = next(one for one in EVERY if one[0].__module__.endswith(f".{device}"))
    install(monkeypatch, torch)
    data: Any = Moved()
    made: Any = kind(name).exact(data)
    assert made.steps == way
    if "cpu" in way:
        with pytest.raises(Unsupported, match=f"{name} does not compute with float64"):
            kind(name).normal((2, 2), Dtype.FLOAT64)
    else:
        assert kind(name).torch_dtype(Dtype.FLOAT64) is real.float64


def test_what_apples_gpu_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Torch(H100, mps=True))
    device, data = MpsDevice("mps"), real.ones(2)
    with pytest.raises(Unsupported, match="float8"):
        device.normal((2, 2), Dtype.FLOAT8)
    with pytest.raises(Unsupported, match="page-locked"):
        device.pinned(data)
    assert device.torch_dtype(Dtype.BFLOAT16) is real.bfloat16


@pytest.mark.parametrize("name", ["mps", "xpu:0"])
def test_cuda_c_and_nvml_are_not_for_other_makers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="NVIDIA's and AMD's"):
        cuda_c.kernel("", "none", name)
    library = Library({})
    with pytest.raises(library.NVMLError):
        nvml.handle(name, library)
    monkeypatch.setattr(real.version, "hip", "7.0")
    with pytest.raises(library.NVMLError):
        nvml.handle("cuda:0", library)


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
        cuda_c.cupy_on("cuda:0")


@pytest.mark.parametrize("name", ["cpu", "cuda:11", "xpu:0", "mps"])
def test_the_workflow_takes_a_device_by_any_name(name: str) -> None:
    rule = (ROOT / "workflow/rules/measure.smk").read_text(encoding="utf-8")
    allowed = re.search(r'^\s+device="(.+)",$', rule, re.MULTILINE)
    assert allowed is not None
    # As the rules write it into file names and read it back.
    written = name.replace(":", "-")
    assert re.fullmatch(allowed[1], written)
    assert written.replace("-", ":") == name


def test_the_doctor_tells_of_gpus_that_torch_has_no_code_for() -> None:
    torch = doctor.cuda.Torch(
        "2.11.0", "13.0", None, sees=True, left_out=("cuda:1: torch has no code for it: do this",)
    )
    found = {one.name: one for one in doctor.cuda.examine(Path("/nonexistent"), None, Library({}), torch)}
    assert found["cuda:1"].level is doctor.Level.WARNING
    assert found["cuda:1"].seen == "torch has no code for it: do this"


def test_nothing_hands_a_gpus_work_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    assert "PYTORCH_ENABLE_MPS_FALLBACK" not in environment.clean()


def test_every_kind_of_device_has_its_class() -> None:
    assert {kind.maker for kind in devices.KINDS} == {"", "NVIDIA", "AMD", "Intel", "Apple"}
    kinds: tuple[type[Device], ...] = devices.KINDS
    assert kinds[0] is CpuDevice
