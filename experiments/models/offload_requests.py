"""What a request asks for: which data travel there and back, what is computed from them, and what is right."""

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
# Rows of a product that are checked entry by entry. Of fewer, C x could be nothing but cancellation.
CHECKED_ROWS = 16
Call = Callable[[], "torch.Tensor"]


class Request(ABC):
    """One operation on a device, by one of its libraries.

    inputs: shapes of the data that travel there. elements: of all data that travel, the
    result's among them. flop: operations of one use of the data. tolerance: largest right error.
    """

    inputs: Sequence[tuple[int, ...]]
    elements: int
    flop: float
    tolerance: float

    def __init__(self, device: Device, backend: str, dtype: Dtype) -> None:
        if dtype not in FORMATS:
            raise Unsupported(f"requests in {dtype} are not part of this experiment")
        self.device, self.backend, self.dtype = device, backend, dtype

    @abstractmethod
    def on(self, *data: torch.Tensor) -> Call:
        """A callable that computes from these data, where they lie. Raises Unsupported."""

    @abstractmethod
    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        """Relative error of a result against float64."""

    def fresh(self) -> list[torch.Tensor]:
        """Random data on the device."""
        return [self.device.random_normal(shape, self.dtype) for shape in self.inputs]

    def _exact(self, data: torch.Tensor) -> torch.Tensor:
        return self.device.to_float64(data.to(self.device.name))


class Elementwise(Request):
    """y = 1 / (1 + exp(-x)) on m numbers: an activation function, in one pass."""

    flop = 0.0

    def __init__(self, device: Device, backend: str, dtype: Dtype, m: int, n: int, k: int) -> None:
        super().__init__(device, backend, dtype)
        if n != 1 or k != 1:
            raise Unsupported("element by element, m counts the elements: n and k are 1")
        if backend != "torch":
            raise device.unsupported(backend)
        if dtype is Dtype.TF32:
            raise Unsupported("TF32 exists only inside matrix units of NVIDIA GPUs")
        self.inputs, self.elements = [(m,)], 2 * m
        # Nothing cancels: the exponential, the sum, the quotient and the result are each rounded once.
        self.tolerance = 4 * dtype.unit_roundoff

    def on(self, *data: torch.Tensor) -> Call:
        import torch

        (x,) = data
        y = torch.empty_like(x)
        return lambda: torch.sigmoid(x, out=y)

    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        return relative_error(self._exact(result), 1 / (1 + (-self._exact(data[0])).exp()))


class Product(Request):
    """C = A @ B, (m, k) by (k, n): both operands travel there."""

    def __init__(self, device: Device, backend: str, dtype: Dtype, m: int, n: int, k: int) -> None:
        super().__init__(device, backend, dtype)
        self.inputs, self.elements = [(m, k), (k, n)], m * k + k * n + m * n
        self.flop, self.tolerance = 2.0 * m * n * k, dtype.matmul_tolerance(k)

    def on(self, *data: torch.Tensor) -> Call:
        a, b = data
        return self.device.matmul(self.backend, a, b, self.dtype)

    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        """Some rows entry by entry, and of more the whole by Freivalds' check, C x against A (B x)."""
        import torch

        a, b, c = map(self._exact, (*data, result))
        some = relative_error(c[:CHECKED_ROWS], a[:CHECKED_ROWS] @ b)
        if len(a) <= CHECKED_ROWS:
            return some
        x = torch.randn(b.shape[1], 1, dtype=b.dtype, device=b.device)
        return largest_error(some, relative_error(c @ x, a @ (b @ x)))


class Layers(Request):
    """Rows through layers of weights that stay on the device, as in serving; only the rows travel.

    y = x W, or with several layers y = relu(x W1) W2: x (rows, widths[0]), W (widths[i], widths[i + 1]).
    """

    def __init__(self, device: Device, backend: str, dtype: Dtype, rows: int, widths: Sequence[int]) -> None:
        super().__init__(device, backend, dtype)
        shapes = list(pairwise(widths))
        self.inputs, self.elements = [(rows, widths[0])], rows * (widths[0] + widths[-1])
        self.flop = 2.0 * rows * sum(k * n for k, n in shapes)
        self.tolerance = sum(dtype.matmul_tolerance(k) for k, _ in shapes)
        # Of a size that keeps the rows' numbers as large as they were.
        self.weights = [device.random_normal((k, n), dtype) * k**-0.5 for k, n in shapes]
        self.packed = self._packed(rows) if backend == "onednn" else []

    def on(self, *data: torch.Tensor) -> Call:
        (x,) = data
        if self.packed:
            return self._through_onednn(x)
        layers: list[tuple[Call, torch.Tensor]] = []
        for weight in self.weights:
            product = self.device.matmul(self.backend, x, weight, self.dtype)
            x = product()  # its own output, which it writes again each time
            layers.append((product, x))
        *first, (last, _) = layers

        def forward() -> torch.Tensor:
            for product, hidden in first:
                product()
                hidden.relu_()
            return last()

        return forward

    def _packed(self, rows: int) -> list[torch.Tensor]:
        """The weights as oneDNN's kernels want them: what stays is laid out once."""
        import torch

        if self.device.kind != "cpu":
            raise self.device.unsupported(self.backend)
        linear = onednn_linear(self.weights[0].dtype)
        try:
            pack = torch.ops.mkldnn._reorder_linear_weight
            packed = [pack(weight.t().contiguous(), rows) for weight in self.weights]
            linear(self.weights[0][:, :1].t().contiguous(), packed[0])
            return packed
        except (AttributeError, RuntimeError) as refusal:
            raise Unsupported(f"oneDNN: {str(refusal).splitlines()[0]}") from None

    def _through_onednn(self, x: torch.Tensor) -> Call:
        linear, (*first, last) = onednn_linear(x.dtype), self.packed

        def forward() -> torch.Tensor:
            hidden = x
            for weight in first:
                hidden = linear(hidden, weight).relu_()
            return linear(hidden, last)

        return forward

    def error(self, data: Sequence[torch.Tensor], result: torch.Tensor) -> float:
        exact = self._exact(data[0])
        *first, last = map(self._exact, self.weights)
        for weight in first:
            exact = (exact @ weight).relu()
        return relative_error(self._exact(result), exact @ last)
