"""Layers with and without a vendor's libraries: same shape, inputs and format; only the library changes.

Without cuDNN, PyTorch's convolution processes the batch image by image: it copies the image's patches into a matrix
for cuBLAS to multiply. Its LSTM uses cuBLAS products and its own kernels for the gates. On a CPU, oneDNN takes the
place of cuDNN, and the BLAS that of cuBLAS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.registry import experiment
from experiments.suite.gemm import MOST_COPIES
from experiments.torch_switches import switches
from experiments.workload import Dtype, Threads, Unsupported, Workload, largest_error, relative_error

if TYPE_CHECKING:
    import torch

    from experiments.models.layers import Layer, Product

Shape = Literal[
    "conv1-7x7", "conv2-1x1", "conv2-3x3", "conv3-3x3", "conv4-1x1", "conv4-3x3", "conv5-3x3",
    "256-cells", "512-cells", "1024-cells",
    "1024x1024", "2048x2048", "4096x4096", "8192x8192", "768x3072", "16384x512",
    "loaded",
]  # fmt: skip

FORMATS = (Dtype.FLOAT64, Dtype.FLOAT32, Dtype.TF32, Dtype.BFLOAT16, Dtype.FLOAT16)
# Pattern for PyTorch operators that leave a convolution or an LSTM to a library.
LIBRARY_OPERATOR = re.compile(r"aten::_?(cudnn|miopen|mkldnn|nnpack)_\w*(convolution|rnn)")
# Factor on a layer's number of terms. The tolerance grows with the square root of this number, so the factor makes the
# tolerance ten times as large: convolutions by Winograd's algorithm (Lavin & Gray 2016, "Fast algorithms for
# convolutional neural networks") can err ten times as much as plain sums.
FAST_TERMS = 100
# Number of columns in the matrix for Freivalds' check.
CHECKED_COLUMNS = 4


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    return {**params, "batch": params["batch"] // 8 or 1} if params["batch"] > 1 else None


def memory(layer: str, shape: str, batch: int, passes: str, dtype: str, **_: Any) -> float:
    """Estimate the bytes for two copies of operands and results in their format, and two copies in float64.

    With gradients, all of these need twice as many bytes.
    """
    from experiments.models.layers import find_layer

    layer_spec = find_layer(layer, shape)
    elements = layer_spec.elements(batch) * (2 if passes == "both" else 1) if layer_spec else 0
    return elements * (2.0 * Dtype(dtype).itemsize + 2 * 8.0)


def flop(layer: str, shape: str, batch: int, passes: str, **_: Any) -> float:
    """Return the FLOP for one call; the backward pass needs twice as many as the forward pass."""
    from experiments.models.layers import find_layer

    layer_spec = find_layer(layer, shape)
    return layer_spec.flop(batch) * (3 if passes == "both" else 1) if layer_spec else 0.0


def extra_s(threads: int, **_: Any) -> float:
    """Estimate the seconds to make the layer and to check it in float64."""
    return 0.2 if threads else 0.5


@experiment("libraries", smaller=smaller, memory=memory, flop=flop, extra_s=extra_s)
def libraries(
    device: Device,
    layer: Literal["convolution", "lstm", "product", "none"],
    shape: Shape,
    batch: int,
    passes: Literal["forward", "both"],
    variant: Literal["library", "native", "naive", "tiled"],
    dtype: Dtype,
    threads: Threads,
) -> Workload:
    """Call a layer on a batch. Two sweep points that differ in a single parameter show the effect of this parameter.

    passes: forward, without gradients; both, with gradients for the input and the weights.
    variant: library (PyTorch with default settings), native (PyTorch's own kernels). Products: library means cuBLAS;
        naive and tiled are this project's kernels.
    dtype: comparing tf32 with float32 isolates the matrix units.

    Layer `none` times nothing: it reports the files from which the process loaded NVIDIA's libraries.

    Unsupported: variants and formats that a device lacks, and variants that do not change PyTorch's use of a library.
    """
    from experiments import library_paths
    from experiments.models.layers import Product, find_layer

    if layer == "none":
        return Workload(observe=lambda: library_paths.origins(device))
    layer_spec = find_layer(layer, shape)
    if layer_spec is None or dtype not in FORMATS:
        raise Unsupported(f"no {layer} {shape} in {dtype}")
    if not isinstance(layer_spec, Product):
        return _layer_workload(device, layer_spec, batch, passes == "both", variant, dtype)
    if passes != "forward":
        raise Unsupported("products are measured forward only")
    return _product_workload(device, layer_spec, batch, variant, dtype)


def _copy_count(device: Device, elements: int, dtype: Dtype) -> int:
    return min(MOST_COPIES, 1 + 2 * device.last_level_cache_bytes // (elements * dtype.itemsize))


def _layer_workload(device: Device, layer: Layer, batch: int, gradients: bool, variant: str, dtype: Dtype) -> Workload:
    from experiments.models.layers import output_and_gradients

    if variant not in ("library", "native"):
        raise Unsupported(f"variant {variant} applies to products only")
    within = switches(device.name, dtype, library=variant != "native")
    copies = _copy_count(device, layer.elements(batch), dtype)
    with within:
        # Every layer needs products: this call raises Unsupported if the device has no product in this format.
        device.matmul("torch", device.random_normal((16, 16), dtype), device.random_normal((16, 16), dtype), dtype)
        where = {"device": device.name, "dtype": device.torch_dtype(dtype)}
        # Without gradients, put the layers in evaluation mode, in which libraries keep less data.
        modules = [layer.module(**where).train(gradients) for _ in range(copies)]
        x = device.random_normal(layer.inputs(batch), dtype)
        y = _check_library_use(lambda: output_and_gradients(modules[0], x, None)[0], variant != "native")
        above = device.random_normal(tuple(y.shape), dtype) if gradients else None

    def call(module: torch.nn.Module, x: torch.Tensor, above: torch.Tensor | None) -> Callable[[], object]:
        # Keep each result until the next call with the same operands, so that results rotate through memory too.
        last_results: list[list[torch.Tensor]] = [[]]

        def run() -> None:
            with within:
                last_results[0] = output_and_gradients(module, x, above)

        return run

    def check() -> float:
        new_inputs = device.random_normal(layer.inputs(batch), dtype)
        with within:
            computed = output_and_gradients(modules[0], new_inputs, above)
        exact_above = device.to_float64(above) if above is not None else None
        exact_inputs = device.to_float64(new_inputs)
        # Compute the reference with PyTorch's own kernels, which share no code with the library.
        with switches(exact_inputs.device.type, Dtype.FLOAT64, library=False):
            exact = output_and_gradients(
                deepcopy(modules[0]).to(exact_inputs.device).double(), exact_inputs, exact_above
            )
        pairs = zip(computed, exact, strict=True)
        return largest_error(*[relative_error(device.to_float64(result), expected) for result, expected in pairs])

    operands = [(x, above), *((x.clone(), above.clone() if above is not None else None) for _ in modules[1:])]
    terms = max(FAST_TERMS * layer.depth, layer.positions(batch) if gradients else 0)
    return Workload(
        run=[call(module, *data) for module, data in zip(modules, operands, strict=True)],
        flop=layer.flop(batch) * (3 if gradients else 1),
        check=check,
        tolerance=dtype.matmul_tolerance(terms),
        graph=not gradients,
    )


def _check_library_use(call: Callable[[], torch.Tensor], library: bool) -> torch.Tensor:
    """Return the call's result.

    Raises Unsupported if PyTorch calls no library although `library` is True, or calls one although it is False.
    """
    # Avoid newer profilers: even to record only the CPU they attach CUPTI (Kineto's CUDA_RUNTIME), which slows later
    # timings.
    from torch.autograd import profiler_legacy

    try:
        with profiler_legacy.profile() as profile:
            out = call()
    except NotImplementedError as lack:
        raise Unsupported(f"PyTorch: {str(lack).splitlines()[0]}") from None
    called = any(LIBRARY_OPERATOR.match(event.name) for event in profile.function_events or ())
    if library and not called:
        raise Unsupported("PyTorch calls no library for this layer here")
    if called and not library:
        raise Unsupported("PyTorch still calls a library that was switched off")
    return out


def _product_workload(device: Device, shape: Product, batch: int, variant: str, dtype: Dtype) -> Workload:
    multiply = _make_multiply(device, variant, dtype)

    def draw_operands() -> tuple[torch.Tensor, torch.Tensor]:
        return device.random_normal((batch, shape.depth), dtype), device.random_normal(
            (shape.depth, shape.width), dtype
        )

    def check() -> float:
        """Apply Freivalds' check, C x against A (B x) in float64, to detect a wrong entry anywhere cheaply."""
        a, b = draw_operands()
        x = device.to_float64(device.random_normal((shape.width, CHECKED_COLUMNS), Dtype.FLOAT32))
        return relative_error(
            device.to_float64(multiply(a, b)()) @ x, device.to_float64(a) @ (device.to_float64(b) @ x)
        )

    a, b = draw_operands()
    copies = _copy_count(device, shape.elements(batch), dtype)
    operands = [(a, b), *((a.clone(), b.clone()) for _ in range(copies - 1))]
    return Workload(
        run=[multiply(left, right) for left, right in operands],
        flop=shape.flop(batch),
        check=check,
        tolerance=dtype.matmul_tolerance(shape.depth),
        graph=True,
    )


Multiply = Callable[["torch.Tensor", "torch.Tensor"], Callable[[], "torch.Tensor"]]


def _make_multiply(device: Device, variant: str, dtype: Dtype) -> Multiply:
    """Return a function that takes two operands and returns a callable, which writes their product to its own output.

    Raises Unsupported if the device or the format lacks the variant, or if the variant applies to layers only.
    """
    if variant in ("naive", "tiled"):
        return _own_kernel(device, "naive" if variant == "naive" else "tiled", dtype)
    if variant == "library":
        # `Device.matmul` also turns TF32 on or off, as `dtype` requires.
        return lambda a, b: device.matmul("torch", a, b, dtype)
    raise Unsupported(f"variant {variant} applies to layers only")


def _own_kernel(device: Device, kind: Literal["naive", "tiled"], dtype: Dtype) -> Multiply:
    import torch

    from experiments.kernels import naive_products

    if device.kind == "cpu":
        raise Unsupported("plain loops on a CPU are backends of gemm")
    if dtype is not Dtype.FLOAT32:
        raise Unsupported(f"this project has no {kind} product in {dtype}")
    kernel = naive_products.product(kind, device.name)

    def multiply(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=device.name)

        def run() -> torch.Tensor:
            kernel(a, b, out)
            return out

        return run

    return multiply
