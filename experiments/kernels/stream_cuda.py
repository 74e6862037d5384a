"""McCalpin's STREAM benchmark in CUDA C: copy, scale, add and triad, each in two kernels.

vectors  each thread has several 16-byte loads in flight, to get the most from memory
plain    each thread processes one element, as in a first implementation

A GPU's first-level caches keep nothing between launches. Loads in `vectors` bypass these caches (ld.global.cg), to make
several passes in one launch behave like separate launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from experiments.devices import Device
from experiments.kernels.cuda_compile import compile_kernel
from experiments.kernels.stream import STREAM_SCALAR
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

# BLOCK: threads per block. UNROLL: loads from each operand that a thread starts before it waits for their data. WIDTH:
# bytes per load.
BLOCK, UNROLL, WIDTH = 256, 4, 16
# Blocks that every multiprocessor can hold at once: it has room for at least 1,024 threads with 64 registers each.
RESIDENT = 4

OPTIONS = tuple(
    f"-D{name}={value}"
    for name, value in {"BLOCK": BLOCK, "UNROLL": UNROLL, "RESIDENT": RESIDENT, "SCALAR": STREAM_SCALAR}.items()
)
SOURCE = """
#define INLINE static __device__ __forceinline__
typedef long long i64;

struct Copy  { enum { TWO = 0 }; template <class T> INLINE T of(T a, T) { return a; } };
struct Scale { enum { TWO = 0 }; template <class T> INLINE T of(T a, T) { return (T)SCALAR * a; } };
struct Add   { enum { TWO = 1 }; template <class T> INLINE T of(T a, T b) { return a + b; } };
struct Triad { enum { TWO = 1 }; template <class T> INLINE T of(T a, T b) { return a + (T)SCALAR * b; } };

template <class Op> INLINE float4 lanes(float4 a, float4 b) {
    return make_float4(Op::of(a.x, b.x), Op::of(a.y, b.y), Op::of(a.z, b.z), Op::of(a.w, b.w));
}
template <class Op> INLINE double2 lanes(double2 a, double2 b) {
    return make_double2(Op::of(a.x, b.x), Op::of(a.y, b.y));
}

// A block copies tiles of UNROLL * BLOCK adjacent vectors; with more tiles than blocks, every gridDim-th tile.
template <class Op, class V, class T> INLINE void vectors(T* c, const T* a, const T* b, i64 elements, i64 passes) {
    const i64 width = sizeof(V) / sizeof(T), count = elements / width, tile = UNROLL * BLOCK;
    V* to = reinterpret_cast<V*>(c);
    const V* one = reinterpret_cast<const V*>(a);
    const V* two = reinterpret_cast<const V*>(b);
    for (i64 pass = 0; pass < passes; ++pass)
        for (i64 first = blockIdx.x * tile + threadIdx.x; first < count; first += gridDim.x * tile) {
            if (first + (UNROLL - 1) * BLOCK < count) {
                V x[UNROLL], y[UNROLL];
                #pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    x[u] = __ldcg(one + first + u * BLOCK);
                    y[u] = Op::TWO ? __ldcg(two + first + u * BLOCK) : x[u];
                }
                #pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    to[first + u * BLOCK] = lanes<Op>(x[u], y[u]);
            } else {
                for (i64 i = first; i < count; i += BLOCK)
                    to[i] = lanes<Op>(one[i], Op::TWO ? two[i] : one[i]);
            }
        }
    const i64 last = count * width + threadIdx.x;
    if (blockIdx.x == 0 && last < elements)
        c[last] = Op::of(a[last], Op::TWO ? b[last] : a[last]);
}

template <class Op, class T> INLINE void plain(T* c, const T* a, const T* b, i64 elements) {
    const i64 i = (i64)blockIdx.x * BLOCK + threadIdx.x;
    if (i < elements)
        c[i] = Op::of(a[i], Op::TWO ? b[i] : a[i]);
}

#define KERNELS(op, Op, T, V) \\
    extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) op##_##T##_vectors( \\
        T* c, const T* a, const T* b, i64 elements, i64 passes) { vectors<Op, V>(c, a, b, elements, passes); } \\
    extern "C" __global__ void __launch_bounds__(BLOCK) op##_##T##_plain( \\
        T* c, const T* a, const T* b, i64 elements) { plain<Op>(c, a, b, elements); }
#define TYPES(op, Op) KERNELS(op, Op, float, float4) KERNELS(op, Op, double, double2)
TYPES(copy, Copy)
TYPES(scale, Scale)
TYPES(add, Add)
TYPES(triad, Triad)
"""

# C types for the number formats. A kernel's name contains the C type.
_TYPES = {Dtype.FLOAT32: "float", Dtype.FLOAT64: "double"}


def vector_kernel(op: str, dtype: Dtype, device: Device) -> Callable[..., None]:
    """Return launch(c, a, b, passes) for copy c = a, scale c = s*a, add c = a + b or triad c = a + s*b.

    The arrays are contiguous tensors of equal length. launch raises ValueError if they are not aligned to 16 bytes.
    copy and scale ignore b. Raises Unsupported for formats other than float32 and float64, and as `compile_kernel`
    does.
    """
    launch = compile_kernel(SOURCE, f"{op}_{_c_type(dtype)}_vectors", device.name, OPTIONS)
    resident_blocks = RESIDENT * int(device.describe().get("multiprocessors", 1))

    def run(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, passes: int) -> None:
        if any(array.data_ptr() % WIDTH for array in (c, a, b)):
            raise ValueError(f"accesses of {WIDTH} bytes need arrays that start on a multiple of that")
        tiles = max(1, -(-c.numel() // (UNROLL * BLOCK * WIDTH // dtype.itemsize)))
        # For one pass, launch a block per tile, to let fast multiprocessors process more tiles. For several passes,
        # launch no more blocks than run at once. Any further block would have to wait until an earlier block has
        # finished all its passes.
        blocks = tiles if passes == 1 else min(tiles, resident_blocks)
        launch(blocks, BLOCK, c, a, b, np.int64(c.numel()), np.int64(passes))

    return run


def plain_kernel(op: str, dtype: Dtype, device: Device) -> Callable[..., None]:
    """Return launch(c, a, b) for one pass with one thread per element. Raises Unsupported as `vector_kernel` does."""
    launch = compile_kernel(SOURCE, f"{op}_{_c_type(dtype)}_plain", device.name, OPTIONS)

    def run(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        launch(max(1, -(-c.numel() // BLOCK)), BLOCK, c, a, b, np.int64(c.numel()))

    return run


def _c_type(dtype: Dtype) -> str:
    if dtype not in _TYPES:
        raise Unsupported(f"the kernels of STREAM move {' and '.join(_TYPES)}, not {dtype}")
    return _TYPES[dtype]
