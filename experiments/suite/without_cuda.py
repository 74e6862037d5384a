"""The same kernels on the same chip through Vulkan and through CUDA: the cost of the interface.

`vulkan` runs WGSL without run-time checks, `webgpu` with the checks that WebGPU requires (see
`experiments.kernels.webgpu`), `cuda` the same kernels in CUDA C. The host's clock times all three, over so many
launches that their submission hardly matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.kernels import webgpu, wgsl_and_cuda
from experiments.kernels.stream import STREAM_SCALAR
from experiments.registry import experiment
from experiments.suite.gemm import MOST_COPIES
from experiments.workload import Dtype, Threads, Workload, relative_error

if TYPE_CHECKING:
    import torch

    Operands = Sequence[tuple[torch.Tensor, torch.Tensor]]
    # Batch: function that takes a launch count and returns a call that makes these launches and waits for them.
    # Result: function that takes operands and returns the result of one launch.
    Batch = Callable[[int], Callable[[], object]]
    Result = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# CALL_S: minimum seconds per call, since submission and completion take some 0.1 ms. The launch count is doubled until
# a call takes this long.
# MOST_LAUNCHES: maximum launch count, which any queue accepts.
CALL_S, MOST_LAUNCHES = 10e-3, 1024


def memory(kernel: str, n: int, **_: Any) -> float:
    """Estimate the bytes for operands and result, in the call and in the check, plus the check's float64 copies."""
    return 2 * 4.0 * _element_count(kernel, n) + 8.0 * _element_count(kernel, n)


def _element_count(kernel: str, n: int) -> int:
    return 3 * n if kernel == "triad" else 3 * n * n


@experiment("without-cuda", memory=memory, fits=("gpu",))
def without_cuda(
    device: Device,
    kernel: wgsl_and_cuda.Name,
    n: int,
    dtype: Literal["float32"],
    backend: Literal["vulkan", "webgpu", "cuda"],
    threads: Threads,
) -> Workload:
    """Launch the kernel once: it multiplies two n x n matrices, or computes c = a + s*b over n elements.

    All launches in a call write the same memory, so that no two launches overlap, whatever the interface.
    Unsupported: missing wgpu, Vulkan loader or driver for the chip, or missing CuPy. On a CPU, for tests, Vulkan runs
        in software.
    """
    single = Dtype(dtype)
    shape = (n,) if kernel == "triad" else (n, n)
    footprint = 4 * _element_count(kernel, n)
    copies = min(MOST_COPIES, 1 + 2 * device.last_level_cache_bytes // footprint)

    def draw_operands() -> tuple[torch.Tensor, torch.Tensor]:
        return device.random_normal(shape, single), device.random_normal(shape, single)

    a, b = draw_operands()
    operands = [(a, b)] + [(a.clone(), b.clone()) for _ in range(copies - 1)]
    if backend == "cuda":
        batch, result = _cuda_launchers(device, kernel, operands)
    else:
        batch, result = _vulkan_launchers(device, kernel, n, operands, checked=backend == "webgpu")
    call, launches = _grow_call(device, batch)

    def check() -> float:
        a, b = draw_operands()
        left, right, computed = (device.to_float64(tensor) for tensor in (a, b, result(a, b)))
        return relative_error(computed, left + STREAM_SCALAR * right if kernel == "triad" else left @ right)

    return Workload(
        run=call,
        clock="host",
        per=float(launches),
        flop=2.0 * n if kernel == "triad" else 2.0 * n**3,
        bytes=float(footprint),
        check=check,
        tolerance=4 * single.unit_roundoff if kernel == "triad" else single.matmul_tolerance(n),
    )


def _cuda_launchers(device: Device, kernel: wgsl_and_cuda.Name, operands: Operands) -> tuple[Batch, Result]:
    import torch

    launch = wgsl_and_cuda.cuda_kernel(kernel, device)
    out = torch.empty_like(operands[0][0])

    def batch(count: int) -> Callable[[], object]:
        def call() -> None:
            for a, b in islice(cycle(operands), count):
                launch(a, b, out)
            device.synchronise()

        return call

    def result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.full_like(a, torch.nan)
        launch(a, b, out)
        return out

    return batch, result


def _vulkan_launchers(
    device: Device, kernel: wgsl_and_cuda.Name, n: int, operands: Operands, checked: bool
) -> tuple[Batch, Result]:
    import torch

    vulkan = webgpu.open_vulkan(device)
    pipeline = webgpu.Kernel(vulkan, wgsl_and_cuda.WGSL, kernel, wgsl_and_cuda.wgsl_sizes(kernel, n), checked)
    grid = wgsl_and_cuda.launch_grid(kernel, n)

    def bind_buffers(a: torch.Tensor, b: torch.Tensor, out: Any) -> Any:
        return pipeline.bind(*(vulkan.buffer(tensor.cpu().numpy()) for tensor in (a, b)), out)

    out = vulkan.empty_buffer(operands[0][0].numel())
    bindings = [bind_buffers(a, b, out) for a, b in operands]

    def result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out_buffer = vulkan.empty_buffer(a.numel())
        pipeline.batch([bind_buffers(a, b, out_buffer)], grid, 1)()
        return torch.from_numpy(vulkan.read(out_buffer).reshape(a.shape)).to(device.name)

    return lambda count: pipeline.batch(bindings, grid, count), result


def _grow_call(device: Device, batch: Batch) -> tuple[Callable[[], object], int]:
    """Return (call, launch count). The call takes at least CALL_S, or makes MOST_LAUNCHES launches."""
    count = 1
    batch(count)()  # the first call compiles the kernel
    while True:
        call = batch(count)
        if count >= MOST_LAUNCHES or device.time_on_host([call])[0] >= CALL_S:
            return call, count
        count *= 2
