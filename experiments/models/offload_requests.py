"""Operations that a host can offload to a device, with their inputs and a check of their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from experiments.backends.pytorch import onednn_linear
from experiments.devices import Device
from experiments.workload import Dtype, Unsupported, largest_error, relative_error

if TYPE_CHECKING:
    import torch

FORMATS = (Dtype.FLOAT64, Dtype.FLOAT32, Dtype.TF32, Dtype.BFLOAT16, Dtype.FLOAT16)
# Rows in a product C to check entry by entry. If C has more rows, it is also multiplied by a random vector x, to check
# the product C x. With fewer rows, all sums in C x might cancel almost completely.
CHECKED_ROWS = 16
Call = Callable[[], "torch.Tensor"]


class Request(ABC):
    """Operation on a device, computed by one of the device's libraries.

    inputs: shapes of the inputs to transfer to the device. elements: elements to transfer, inputs and result together.
    flop: FLOP per operation. tolerance: largest accepted relative error.
    """

    inputs: Sequence[tuple[int, ...]]
    elements: int
    flop: float
    tolerance: float

    def __init__(self, device: Device, backend: str, dtype: Dtype) -> None:
        if dtype not in FORMATS:
            raise Unsupported(f"requests do not support {dtype}")
        self.device, self.backend, self.dtype = device, backend, dtype

    @abstractmethod
    def bind(self, *data: torch.Tensor) -> Call:
        """Return a callable that computes the result from the values in `data` when it is called.

        data: inputs on the device; the callable transfers nothing. Raises Unsupported if the library cannot compute.
        """

    @abstractmethod
    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        """Return the relative error of `result`, compared to the result in float64."""

    def draw_inputs(self) -> list[torch.Tensor]:
        """Draw random inputs on the device."""
        return [self.device.random_normal(shape, self.dtype) for shape in self.inputs]

    def _to_float64(self, data: torch.Tensor) -> torch.Tensor:
        return self.device.to_float64(data.to(self.device.name))


class Elementwise(Request):
    """Sigmoid y = 1 / (1 + exp(-x)) of m numbers."""

    flop = 0.0

    def __init__(self, device: Device, backend: str, dtype: Dtype, m: int, n: int, k: int) -> None:
        super().__init__(device, backend, dtype)
        if n != 1 or k != 1:
            raise Unsupported("elementwise requests use only m: set n and k to 1")
        if backend != "torch":
            raise device.unsupported_backend(backend)
        if dtype is Dtype.TF32:
            raise Unsupported("TF32 exists only inside matrix units of NVIDIA GPUs")
        self.inputs, self.elements = [(m,)], 2 * m
        # Rounding occurs four times (exponential, sum, quotient, result), and no cancellation amplifies the errors.
        self.tolerance = 4 * dtype.unit_roundoff

    def bind(self, *data: torch.Tensor) -> Call:
        import torch

        (x,) = data
        y = torch.empty_like(x)
        return lambda: torch.sigmoid(x, out=y)

    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        return relative_error(self._to_float64(result), 1 / (1 + (-self._to_float64(data[0])).exp()))


class Product(Request):
    """Matrix product C = A @ B with shapes (m, k) and (k, n), for which both operands are transferred."""

    def __init__(self, device: Device, backend: str, dtype: Dtype, m: int, n: int, k: int) -> None:
        super().__init__(device, backend, dtype)
        self.inputs, self.elements = [(m, k), (k, n)], m * k + k * n + m * n
        self.flop, self.tolerance = 2.0 * m * n * k, dtype.matmul_tolerance(k)

    def bind(self, *data: torch.Tensor) -> Call:
        a, b = data
        return self.device.matmul(self.backend, a, b, self.dtype)

    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        """Return the larger error of two checks.

        The first CHECKED_ROWS rows are compared entry by entry. If C has more rows, C x is compared to A (B x) for a
        random vector x (Freivalds' method).
        """
        import torch

        a, b, c = map(self._to_float64, (*data, result))
        error = relative_error(c[:CHECKED_ROWS], a[:CHECKED_ROWS] @ b)
        if len(a) <= CHECKED_ROWS:
            return error
        x = torch.randn(b.shape[1], 1, dtype=b.dtype, device=b.device)
        return largest_error(error, relative_error(c @ x, a @ (b @ x)))


class Layers(Request):
    """Linear layers whose weights stay on the device, as in serving; only the input and the output are transferred.

    One layer computes y = x W, and two layers compute y = relu(x W1) W2. x has the shape (rows, widths[0]), and the
    weights of layer i have the shape (widths[i], widths[i + 1]).
    """

    def __init__(self, device: Device, backend: str, dtype: Dtype, rows: int, widths: Sequence[int]) -> None:
        super().__init__(device, backend, dtype)
        shapes = list(pairwise(widths))
        self.inputs, self.elements = [(rows, widths[0])], rows * (widths[0] + widths[-1])
        self.flop = 2.0 * rows * sum(k * n for k, n in shapes)
        self.tolerance = sum(dtype.matmul_tolerance(k) for k, _ in shapes)
        # Scale the weights to keep the activations' magnitude from layer to layer.
        self.weights = [device.random_normal((k, n), dtype) * k**-0.5 for k, n in shapes]
        self.packed = self._pack_weights(rows) if backend == "onednn" else []

    def bind(self, *data: torch.Tensor) -> Call:
        (x,) = data
        if self.packed:
            return self._onednn_call(x)
        layers: list[tuple[Call, torch.Tensor]] = []
        for weight in self.weights:
            product = self.device.matmul(self.backend, x, weight, self.dtype)
            x = product()  # a buffer that each call overwrites
            layers.append((product, x))
        *first, (last, _) = layers

        def forward() -> torch.Tensor:
            for product, hidden in first:
                product()
                hidden.relu_()
            return last()

        return forward

    def _pack_weights(self, rows: int) -> list[torch.Tensor]:
        """Return the weights in oneDNN's own layout, to spare the calls from converting them."""
        import torch

        if self.device.kind != "cpu":
            raise self.device.unsupported_backend(self.backend)
        linear = onednn_linear(self.weights[0].dtype)
        try:
            pack = torch.ops.mkldnn._reorder_linear_weight
            packed = [pack(weight.t().contiguous(), rows) for weight in self.weights]
            linear(self.weights[0][:, :1].t().contiguous(), packed[0])
            return packed
        except (AttributeError, RuntimeError) as refusal:
            raise Unsupported(f"oneDNN: {str(refusal).splitlines()[0]}") from None

    def _onednn_call(self, x: torch.Tensor) -> Call:
        linear, (*first, last) = onednn_linear(x.dtype), self.packed

        def forward() -> torch.Tensor:
            hidden = x
            for weight in first:
                hidden = linear(hidden, weight).relu_()
            return linear(hidden, last)

        return forward

    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        exact = self._to_float64(data[0])
        *first, last = map(self._to_float64, self.weights)
        for weight in first:
            exact = (exact @ weight).relu()
        return relative_error(self._to_float64(result), exact @ last)
