"""The kernels in WGSL, run by a software Vulkan, and their twins in CUDA C, run as C++: the same results."""

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
from tests.missing_tools import missing

# Cells past the last whole tile, and whole tiles; elements past the last block.
SIZES = [("naive", 33), ("naive", 64), ("tiled", 33), ("tiled", 64), ("triad", 1), ("triad", 1000)]


@pytest.fixture
def vulkan() -> webgpu.Vulkan:
    try:
        return webgpu.open_vulkan(CPU)
    except Unsupported as reason:
        missing(f"the GPU's kernels in WGSL: {reason}; `apt-get install mesa-vulkan-drivers` (Debian)")


def point(device: Device, kernel: str, n: int, backend: str) -> Workload:
    # Always the same numbers: a single one may cancel to next to nothing, of which any rounding is a large share.
    torch.manual_seed(1)
    return build_work("without-cuda", device, kernel=kernel, n=n, backend=backend)


@pytest.mark.parametrize(("kernel", "n"), SIZES)
def test_vulkan_computes_the_same(vulkan: webgpu.Vulkan, kernel: str, n: int) -> None:
    for backend in ("vulkan", "webgpu"):
        made = point(CPU, kernel, n, backend)
        assert passes_check(made)
        assert made.flop == (2 * n if kernel == "triad" else 2 * n**3)
        assert made.bytes == 12 * (n if kernel == "triad" else n**2)


@pytest.mark.parametrize(("kernel", "n"), [(kernel, n) for kernel, n in SIZES if n != 64])
def test_cuda_computes_the_same(monkeypatch: pytest.MonkeyPatch, kernel: str, n: int) -> None:
    cupy = install(monkeypatch)
    monkeypatch.setattr(without_cuda, "MOST_LAUNCHES", 2)
    made = point(GPU, kernel, n, "cuda")
    assert passes_check(made)
    # The same blocks as in WGSL.
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
def test_a_wrong_kernel_fails_the_check(
    vulkan: webgpu.Vulkan, monkeypatch: pytest.MonkeyPatch, kernel: str, text: str, wrong: str
) -> None:
    assert text in wgsl_and_cuda.WGSL
    monkeypatch.setattr(wgsl_and_cuda, "WGSL", wgsl_and_cuda.WGSL.replace(text, wrong))
    assert not passes_check(point(CPU, kernel, 33 if kernel != "triad" else 1000, "vulkan"))


def test_more_blocks_than_an_axis_has_are_folded(vulkan: webgpu.Vulkan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wgsl_and_cuda.launch_grid("triad", 2**25) == (43691, 3)
    monkeypatch.setattr(wgsl_and_cuda, "MOST_BLOCKS", 3)
    assert wgsl_and_cuda.launch_grid("triad", 2000) == (3, 3)
    assert passes_check(point(CPU, "triad", 2000, "vulkan"))


def test_a_batch_uses_its_arguments_in_turn_over_all_submissions(vulkan: webgpu.Vulkan) -> None:
    kernel = webgpu.Kernel(vulkan, wgsl_and_cuda.WGSL, "triad", (4, 1, 1))
    data = np.arange(4, dtype=np.float32)
    outs = [vulkan.empty_buffer(4) for _ in range(webgpu.TOGETHER + 2)]
    bound = [kernel.bind(vulkan.buffer(data + place), vulkan.buffer(data), out) for place, out in enumerate(outs)]
    kernel.batch(bound, (1, 1), webgpu.TOGETHER + 1)()
    for place, out in enumerate(outs[:-1]):
        assert np.array_equal(vulkan.read(out), 4 * data + place)
    assert not vulkan.read(outs[-1]).any()


@pytest.mark.parametrize("each_s", [1e-5, 3e-3, 1.0])
def test_a_call_makes_as_many_launches_as_hide_its_submission(each_s: float) -> None:
    made: list[int] = []
    device: Any = SimpleNamespace(time_on_host=lambda calls: [calls[0](), made[-1] * each_s + 1e-4][1:])
    call, count = without_cuda._grow_call(device, lambda count: lambda: made.append(count))
    call()
    assert made[-1] == count
    assert count * each_s >= without_cuda.CALL_S - 1e-4 or count == without_cuda.MOST_LAUNCHES
    assert count == 1 or count / 2 * each_s < without_cuda.CALL_S


def adapter(name: str, kind: str = "DiscreteGPU") -> Any:
    return SimpleNamespace(info={"device": name, "adapter_type": kind})


class Card(SecondCpu):
    """A GPU of a name, whose memory shrinks when one adapter's grows."""

    def __init__(self, name: str, holder: Any = None) -> None:
        super().__init__()
        self.called, self.holder = name, holder

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": self.called}

    def free_bytes(self) -> int:
        return 2**33 - (self.holder.taken if self.holder else 0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Adapters in the order in which they were opened; each keeps what it took."""

    def opening(one: Any) -> Any:
        order.append(one)
        one.taken = 0

        def empty_buffer(length: int) -> Any:
            one.taken = 4 * length
            return SimpleNamespace(destroy=lambda: setattr(one, "taken", 0))

        return SimpleNamespace(adapter=one, empty_buffer=empty_buffer)

    order: list[Any] = []
    monkeypatch.setattr(webgpu, "Vulkan", opening)
    return order


def seen(monkeypatch: pytest.MonkeyPatch, *found: Any) -> None:
    monkeypatch.setattr(webgpu, "_enumerate_adapters", lambda: found)


@pytest.mark.parametrize("name", ["NVIDIA H100", "H100 by another name"])
def test_the_adapter_is_the_one_of_that_name_or_else_of_that_memory(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen(monkeypatch, adapter("llvmpipe", "CPU"), adapter("Intel UHD"), wanted := adapter("NVIDIA H100"))
    assert webgpu.open_vulkan(Card("NVIDIA H100")).adapter is wanted
    assert opened == [wanted]
    opened.clear()
    cards = [adapter("NVIDIA H100") for _ in range(3)]
    for card in cards:
        card.taken = 0
    seen(monkeypatch, *cards)
    assert webgpu.open_vulkan(Card(name, cards[1])).adapter is cards[1]
    assert opened == cards[:2]
    with pytest.raises(Unsupported, match=f"does not show {name}, only NVIDIA H100, NVIDIA H100, NVIDIA H100"):
        webgpu.open_vulkan(Card(name))


@pytest.mark.parametrize(
    ("device", "there", "why"),
    [
        (Card("NVIDIA H100"), [adapter("llvmpipe", "CPU")], "does not show NVIDIA H100, only llvmpipe .*nvidia_icd"),
        (Card("llvmpipe"), [adapter("llvmpipe", "CPU")], "does not show llvmpipe"),
        (CpuDevice(), [adapter("NVIDIA H100")], "apt install mesa-vulkan-drivers"),
        (Card("NVIDIA H100"), None, r"libvulkan\.so\.1 is missing"),
    ],
)
def test_software_passes_for_no_gpu_and_what_is_missing_is_told(
    device: Device, there: list[Any] | None, why: str, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(name: str) -> Any:
        raise OSError(name)

    seen(monkeypatch, *(there or []))
    if there is None:
        monkeypatch.setattr(ctypes, "CDLL", nowhere)
    with pytest.raises(Unsupported, match=why):
        webgpu.open_vulkan(device)
    assert opened == []


def test_without_wgpu_or_room_in_a_buffer_it_is_unsupported(
    vulkan: webgpu.Vulkan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulkan, "_largest_buffer", 400)
    with pytest.raises(Unsupported, match="in one buffer"):
        point(CPU, "triad", 101, "vulkan")
    monkeypatch.setattr(webgpu, "_enumerate_adapters", webgpu._enumerate_adapters.__wrapped__)
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(Unsupported, match="pip install wgpu"):
        webgpu.open_vulkan(Card("NVIDIA H100"))


def test_without_a_driver_the_process_lives_and_says_so() -> None:
    words = [sys.executable, "-c", "from experiments.kernels import webgpu; webgpu.adapters()"]
    nowhere = {**os.environ, "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    done = subprocess.run(words, env=nowhere, capture_output=True, text=True, check=False)
    assert "Unsupported: no Vulkan adapter: " in done.stderr
