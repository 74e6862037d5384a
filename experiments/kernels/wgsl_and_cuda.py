"""Three kernels in WGSL with equivalents in CUDA C: naive and tiled products, and STREAM's triad.

The WGSL and the CUDA version do the same work per thread, in float32, with every multiply-add fused. In both versions,
the loop over a tile is unrolled: CUDA's compiler unrolls it, and the WGSL text is written without the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from experiments.devices import Device
from experiments.kernels.naive_products import TILE, product
from experiments.kernels.stream import STREAM_SCALAR
from experiments.kernels.stream_cuda import BLOCK, plain_kernel
from experiments.workload import Dtype

if TYPE_CHECKING:
    import torch

Name = Literal["naive", "tiled", "triad"]

# WebGPU's limit for blocks along one grid axis.
MOST_BLOCKS = 65535

_TILE_PRODUCT = "\n        ".join(f"sum = fma(left[y][{i}], right[{i}][x], sum);" for i in range(TILE))

# For a product, `sizes` holds m, n and k. For the triad, the first number is the array length.
WGSL = f"""
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> sizes: vec3<u32>;

@compute @workgroup_size({TILE}, {TILE})
fn naive(@builtin(global_invocation_id) thread: vec3<u32>) {{
    let m = sizes.x; let n = sizes.y; let k = sizes.z;
    let row = thread.y; let column = thread.x;
    if (row >= m || column >= n) {{ return; }}
    var sum = 0.0;
    for (var i = 0u; i < k; i++) {{
        sum = fma(a[row * k + i], b[i * n + column], sum);
    }}
    c[row * n + column] = sum;
}}

var<workgroup> left: array<array<f32, {TILE}>, {TILE}>;
var<workgroup> right: array<array<f32, {TILE}>, {TILE}>;

@compute @workgroup_size({TILE}, {TILE})
fn tiled(@builtin(global_invocation_id) thread: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {{
    let m = sizes.x; let n = sizes.y; let k = sizes.z;
    let row = thread.y; let column = thread.x;
    let y = local.y; let x = local.x;
    var sum = 0.0;
    for (var start = 0u; start < k; start += {TILE}u) {{
        // Pad with zeros beyond the operands.
        left[y][x] = 0.0;
        right[y][x] = 0.0;
        if (row < m && start + x < k) {{ left[y][x] = a[row * k + start + x]; }}
        if (start + y < k && column < n) {{ right[y][x] = b[(start + y) * n + column]; }}
        workgroupBarrier();
        {_TILE_PRODUCT}
        workgroupBarrier();
    }}
    if (row < m && column < n) {{ c[row * n + column] = sum; }}
}}

@compute @workgroup_size({BLOCK})
fn triad(
    @builtin(workgroup_id) block: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
) {{
    let i = (block.y * grid.x + block.x) * {BLOCK}u + thread.x;
    if (i < sizes.x) {{ c[i] = fma({STREAM_SCALAR}, b[i], a[i]); }}
}}
"""


def wgsl_sizes(name: Name, n: int) -> tuple[int, int, int]:
    """Return the sizes to pass to the WGSL kernel for two n x n matrices, or for a triad over n elements."""
    return (n, 1, 1) if name == "triad" else (n, n, n)


def launch_grid(name: Name, n: int) -> tuple[int, int]:
    """Return (blocks along x, blocks along y). A triad's y axis is used only if MOST_BLOCKS along x are too few."""
    if name != "triad":
        return -(-n // TILE), -(-n // TILE)
    blocks = -(-n // BLOCK)
    rows = -(-blocks // MOST_BLOCKS)
    return -(-blocks // rows), rows


def cuda_kernel(name: Name, device: Device) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
    """Return launch(a, b, out) for the CUDA C kernel on torch's stream. Raises Unsupported as `compile_kernel` does."""
    if name != "triad":
        return product(name, device.name)
    launch = plain_kernel(name, Dtype.FLOAT32, device)
    return lambda a, b, out: launch(out, a, b)
