"""WGSL kernels on a Vulkan device in software give right results, and so do the same kernels in CUDA C on the CPU."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from experiments.devices.base import Device
from experiments.devices.cpu import CpuDevice
from experiments.kernels import naive_products, stream_cuda, webgpu, wgsl_and_cuda
from experiments.suite import without_cuda
from experiments.workload import Unsupported, Workload
from tests.experiments.cuda_standin import install
from tests.experiments.point_runs import CPU, GPU, build_work, passes_check
from tests.experiments.second_device import SecondCpu
from tests.missing_tools import skip_without

# Some sizes fill all tiles and blocks, and others leave a tile or block partly empty.
SIZES = [("naive", 33), ("naive", 64), ("tiled", 33), ("tiled", 64), ("triad", 1), ("triad", 1000)]


@pytest.fixture
def vulkan() -> webgpu.Vulkan:
    try:
        return webgpu.open_vulkan(CPU)
    except Unsupported as reason:
        skip_without(f"the GPU's kernels in WGSL: {reason}; `apt-get install mesa-vulkan-drivers` (Debian)")


def point(device: Device, kernel: str, n: int, backend: str) -> Workload:
    # Fix the random numbers, because a sum that cancels to almost zero has a large relative rounding error.
    torch.manual_seed(1)
    return build_work("without-cuda", device, kernel=kernel, n=n, backend=backend)


@pytest.mark.parametrize(("kernel", "n"), SIZES)
def test_vulkan_kernels_are_right(vulkan: webgpu.Vulkan, kernel: str, n: int) -> None:
    for backend in ("vulkan", "webgpu"):
        workload = point(CPU, kernel, n, backend)
        assert passes_check(workload)
        assert workload.flop == (2 * n if kernel == "triad" else 2 * n**3)
        assert workload.bytes == 12 * (n if kernel == "triad" else n**2)


@pytest.mark.parametrize(("kernel", "n"), [(kernel, n) for kernel, n in SIZES if n != 64])
def test_cuda_kernels_are_right(monkeypatch: pytest.MonkeyPatch, kernel: str, n: int) -> None:
    cupy = install(monkeypatch)
    monkeypatch.setattr(without_cuda, "MOST_LAUNCHES", 2)
    workload = point(GPU, kernel, n, "cuda")
    assert passes_check(workload)
    # The CUDA kernels have the same block sizes as the WGSL kernels.
    block = (stream_cuda.BLOCK,) if kernel == "triad" else (naive_products.TILE, naive_products.TILE)
    assert set(cupy.launches) == {(*wgsl_and_cuda.launch_grid(kernel, n)[: len(block)], *block)}


@pytest.mark.parametrize(
    ("kernel", "text", "wrong"),
    [
        pytest.param("naive", "i < k;", "i + 1u < k;", id="the last product left out"),
        pytest.param("tiled", "left[y][7], right[7]", "left[y][7], right[6]", id="a wrong row"),
        pytest.param("tiled", "row < m && start + x < k", "start + x < k && row + 1u < m", id="a row left out"),
        pytest.param("triad", "i < sizes.x", "i + 1u < sizes.x", id="the last element left out"),
        pytest.param("triad", "fma(3.0", "fma(2.9999", id="another scalar"),
    ],
)
def test_wrong_kernel_fails_the_check(
    vulkan: webgpu.Vulkan, monkeypatch: pytest.MonkeyPatch, kernel: str, text: str, wrong: str
) -> None:
    assert text in wgsl_and_cuda.WGSL
    monkeypatch.setattr(wgsl_and_cuda, "WGSL", wgsl_and_cuda.WGSL.replace(text, wrong))
    assert not passes_check(point(CPU, kernel, 33 if kernel != "triad" else 1000, "vulkan"))


def test_blocks_beyond_one_axis_are_folded(vulkan: webgpu.Vulkan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wgsl_and_cuda.launch_grid("triad", 2**25) == (43691, 3)
    monkeypatch.setattr(wgsl_and_cuda, "MOST_BLOCKS", 3)
    assert wgsl_and_cuda.launch_grid("triad", 2000) == (3, 3)
    assert passes_check(point(CPU, "triad", 2000, "vulkan"))


def test_batch_rotates_its_arguments_across_submissions(vulkan: webgpu.Vulkan) -> None:
    kernel = webgpu.Kernel(vulkan, wgsl_and_cuda.WGSL, "triad", (4, 1, 1))
    data = np.arange(4, dtype=np.float32)
    outs = [vulkan.empty_buffer(4) for _ in range(webgpu.TOGETHER + 2)]
    bound = [kernel.bind(vulkan.buffer(data + place), vulkan.buffer(data), out) for place, out in enumerate(outs)]
    kernel.batch(bound, (1, 1), webgpu.TOGETHER + 1)()
    for place, out in enumerate(outs[:-1]):
        assert np.array_equal(vulkan.read(out), 4 * data + place)
    assert not vulkan.read(outs[-1]).any()


@pytest.mark.parametrize("each_s", [1e-5, 3e-3, 1.0])
def test_call_makes_enough_launches_to_hide_its_submission(each_s: float) -> None:
    launch_counts: list[int] = []
    device: Any = SimpleNamespace(time_on_host=lambda calls: [calls[0](), launch_counts[-1] * each_s + 1e-4][1:])
    call, count = without_cuda._grow_call(device, lambda count: lambda: launch_counts.append(count))
    call()
    assert launch_counts[-1] == count
    assert count * each_s >= without_cuda.CALL_S - 1e-4 or count == without_cuda.MOST_LAUNCHES
    assert count == 1 or count / 2 * each_s < without_cuda.CALL_S


def fake_adapter(name: str, kind: str = "DiscreteGPU") -> Any:
    return SimpleNamespace(info={"device": name, "adapter_type": kind})


class NamedGpu(SecondCpu):
    """GPU with the name `name`. Its free memory shrinks by the bytes that the adapter `holder` has allocated."""

    def __init__(self, name: str, holder: Any = None) -> None:
        super().__init__()
        self.called, self.holder = name, holder

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": self.called}

    def free_bytes(self) -> int:
        return 2**33 - (self.holder.taken if self.holder else 0)


@pytest.fixture
def opened_adapters(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of adapters in the order in which they are opened; each records its allocated bytes."""

    def open_adapter(adapter: Any) -> Any:
        order.append(adapter)
        adapter.taken = 0

        def empty_buffer(length: int) -> Any:
            adapter.taken = 4 * length
            return SimpleNamespace(destroy=lambda: setattr(adapter, "taken", 0))

        return SimpleNamespace(adapter=adapter, empty_buffer=empty_buffer)

    order: list[Any] = []
    monkeypatch.setattr(webgpu, "Vulkan", open_adapter)
    return order


def show_adapters(monkeypatch: pytest.MonkeyPatch, *adapters: Any) -> None:
    monkeypatch.setattr(webgpu, "_enumerate_adapters", lambda: adapters)


@pytest.mark.parametrize("name", ["NVIDIA H100", "H100 by another name"])
def test_adapter_is_found_by_name_or_else_by_memory(
    opened_adapters: list[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    show_adapters(
        monkeypatch, fake_adapter("llvmpipe", "CPU"), fake_adapter("Intel UHD"), wanted := fake_adapter("NVIDIA H100")
    )
    assert webgpu.open_vulkan(NamedGpu("NVIDIA H100")).adapter is wanted
    assert opened_adapters == [wanted]
    opened_adapters.clear()
    cards = [fake_adapter("NVIDIA H100") for _ in range(3)]
    for card in cards:
        card.taken = 0
    show_adapters(monkeypatch, *cards)
    assert webgpu.open_vulkan(NamedGpu(name, cards[1])).adapter is cards[1]
    assert opened_adapters == cards[:2]
    with pytest.raises(Unsupported, match=f"does not show {name}, only NVIDIA H100, NVIDIA H100, NVIDIA H100"):
        webgpu.open_vulkan(NamedGpu(name))


@pytest.mark.parametrize(
    ("device", "adapters", "why"),
    [
        (
            NamedGpu("NVIDIA H100"),
            [fake_adapter("llvmpipe", "CPU")],
            "does not show NVIDIA H100, only llvmpipe .*nvidia_icd",
        ),
        (NamedGpu("llvmpipe"), [fake_adapter("llvmpipe", "CPU")], "does not show llvmpipe"),
        (CpuDevice(), [fake_adapter("NVIDIA H100")], "apt install mesa-vulkan-drivers"),
        (NamedGpu("NVIDIA H100"), None, r"libvulkan\.so\.1 is missing"),
    ],
)
def test_software_adapter_is_no_gpu_and_missing_drivers_are_named(
    device: Device, adapters: list[Any] | None, why: str, opened_adapters: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_load(name: str) -> Any:
        raise OSError(name)

    show_adapters(monkeypatch, *(adapters or []))
    if adapters is None:
        monkeypatch.setattr(ctypes, "CDLL", fail_to_load)
    with pytest.raises(Unsupported, match=why):
        webgpu.open_vulkan(device)
    assert opened_adapters == []


def test_missing_wgpu_or_a_small_buffer_limit_is_unsupported(
    vulkan: webgpu.Vulkan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulkan, "_largest_buffer", 400)
    with pytest.raises(Unsupported, match="in one buffer"):
        point(CPU, "triad", 101, "vulkan")
    monkeypatch.setattr(webgpu, "_enumerate_adapters", webgpu._enumerate_adapters.__wrapped__)
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(Unsupported, match="pip install wgpu"):
        webgpu.open_vulkan(NamedGpu("NVIDIA H100"))


def test_missing_driver_is_reported_without_a_crash() -> None:
    words = [sys.executable, "-c", "from experiments.kernels import webgpu; webgpu.adapters()"]
    nowhere = {**os.environ, "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    done = subprocess.run(words, env=nowhere, capture_output=True, text=True, check=False)
    assert "Unsupported: no Vulkan adapter: " in done.stderr
