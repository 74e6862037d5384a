"""Order and rounding: spread among the results of one matrix product when only the order of the work changes.

The methods change the cell order (`cell_order`, `permuted`), the order of additions inside a cell (`summation`,
`split_k`), the thread count (`threads`), the library (`libraries`), or nothing (`repeat` makes the same call again).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from experiments.backends import Library
from experiments.devices import Device
from experiments.kernels import summation_orders
from experiments.registry import experiment
from experiments.workload import Dtype, Threads, Unsupported, Workload, largest_error, relative_error

if TYPE_CHECKING:
    import torch

Method = Literal["cell_order", "permuted", "summation", "split_k", "threads", "libraries", "repeat"]

RANDOM_ORDERS = 3
PARTS = (2, 4, 8, 16)
REPEATS = 20
# Maximum number of cells to compare with the reference, because a reference for float64 takes some 20 operations per
# term.
REFERENCE_CELLS = 8192
# Fixed seed: all processes and devices fingerprint the same inputs.
FINGERPRINT_SEED = 20_05


@dataclass(frozen=True)
class Case:
    """One product's operands, number format, library and threads."""

    device: Device
    a: torch.Tensor
    b: torch.Tensor
    dtype: Dtype
    backend: str
    threads: int

    def product(self, a: torch.Tensor, b: torch.Tensor, backend: str = "") -> torch.Tensor:
        """Return a copy of a @ b, because a library writes every result to the same memory."""
        return self.device.matmul(backend or self.backend, a, b, self.dtype)().clone()


def memory(m: int, n: int, k: int, dtype: str, **_: Any) -> float:
    """Estimate the bytes for the operands (twice), for every stored result, and for the float64 copies to compare."""
    operands, results = m * k + k * n, max(REPEATS, RANDOM_ORDERS + len(PARTS))
    return operands * (2 * Dtype(dtype).itemsize + 8.0) + m * n * (results * Dtype(dtype).itemsize + 5 * 8.0)


def flop(m: int, n: int, k: int, **_: Any) -> float:
    return 2.0 * m * n * k


def extra_s(call_s: float, method: str, **_: Any) -> float:
    """Estimate the seconds for the products to compare."""
    return {"repeat": 13, "permuted": 3, "split_k": 3}.get(method, 0) * call_s


@experiment("numerics", memory=memory, flop=flop, observed=True, extra_s=extra_s)
def numerics(
    device: Device,
    method: Method,
    m: int,
    n: int,
    k: int,
    dtype: Dtype,
    backend: Library,
    threads: Threads,
) -> Workload:
    """Multiply (m, k) by (k, n) in the orders given by `method` and compare cell by cell; nothing is timed.

    Metrics: a cell's spread is the difference between its largest and smallest value in all orders. `spread_ulp` and
        `spread_median_ulp` are the largest and the median spread over all cells; `spread_relative`, the spreads'
        Frobenius norm relative to the first result's norm; `differing_share`, the share of cells in which some order
        changes a bit; `error_ulp`, the largest error in any order, on up to REFERENCE_CELLS cells; for `repeat` also
        `distinct_results` among REPEATS, and a `fingerprint`.

    One unit in the last place (ulp) is the result format's spacing at the result's root mean square. The cell's own
    last place is no suitable unit, because a cell's error scales with its terms, not with their sum: if the terms
    cancel, the error can be any multiple of the cell's last place (Goldberg 1991, "What every computer scientist should
    know about floating-point arithmetic", section on cancellation; Higham 2002, "Accuracy and Stability of Numerical
    Algorithms", section 3.1). The unit doubles where the root mean square passes a power of 2. For random normal data,
    this happens at k = 4^i, so choose values of k far from these to keep rounds comparable.

    backend: the library that multiplies; `scalar` for the plain loop in `cell_order`; `torch` for the single operations
        in `summation`; for `libraries`, the library to compare with PyTorch's product.
    Unsupported: formats that library or device lack, and methods without a second result to compare.
    """
    a, b = device.random_normal((m, k), dtype), device.random_normal((k, n), dtype)
    results = _METHODS[method](Case(device, a, b, dtype, backend, threads))
    if not device.supports_float64:  # compare on the host, which has float64
        a, b, results = a.cpu(), b.cpu(), [result.cpu() for result in results]
    exact = a.double() @ b.double()
    # Number of partial sums per cell that the methods `summation` and `split_k` round to the format. Libraries
    # accumulate in float32 or better, so their products need no extra tolerance.
    rounded = {"summation": k, "split_k": max(PARTS)}.get(method, 0)

    def observe() -> dict[str, tuple[float, str]]:
        metrics = spread_metrics(results, ulp(exact, results[0].dtype))
        metrics["error_ulp"] = (_worst_error(a, b, results, exact), "1")
        if method == "repeat":
            metrics["distinct_results"] = (float(len({digest(result) for result in results})), "1")
            metrics["fingerprint"] = (float(_fingerprint(device, m, n, k, dtype, backend)), "1")
        # A result with nan or infinity has failed its check; report the finite metrics only.
        return {metric: (value, unit) for metric, (value, unit) in metrics.items() if math.isfinite(value)}

    return Workload(
        observe=observe,
        check=lambda: largest_error(*[relative_error(result.double(), exact) for result in results]),
        tolerance=dtype.matmul_tolerance(k) + 2 * math.sqrt(rounded) * dtype.unit_roundoff,
    )


def _cell_order(case: Case) -> list[torch.Tensor]:
    if case.backend != "scalar":
        raise Unsupported(f"{case.backend} does not let us set the cell order: take backend scalar, the plain loop")
    if case.dtype is Dtype.TF32:
        raise Unsupported("TF32 exists only inside matrix units of NVIDIA GPUs")
    orders = summation_orders.cell_orders(case.a.shape[0], case.b.shape[1])
    single_thread = summation_orders.product_by_cells(case.a, case.b, orders["rows"], 1)
    return [
        single_thread,
        *(summation_orders.product_by_cells(case.a, case.b, cells, max(1, case.threads)) for cells in orders.values()),
    ]


def _permute(case: Case) -> list[torch.Tensor]:
    """Multiply A and B as given and with A's rows and B's columns reversed or shuffled; put the cells back in place."""
    import torch

    m, n = case.a.shape[0], case.b.shape[1]
    moves = [(torch.arange(m).flip(0), torch.arange(n).flip(0))]
    moves += [(torch.randperm(m), torch.randperm(n)) for _ in range(RANDOM_ORDERS)]
    products = [case.product(case.a, case.b)]
    for move in moves:
        rows, columns = (order.to(case.a.device) for order in move)
        moved = case.product(case.a[rows], case.b[:, columns].contiguous())
        products.append(moved[rows.argsort()][:, columns.argsort()])
    return products


def _summation(case: Case) -> list[torch.Tensor]:
    """Add up the terms of every cell forwards, backwards, in random orders, pairwise and in blocks."""
    import torch

    if case.backend != "torch":
        raise Unsupported("sums in a given order need PyTorch's single operations: take backend torch")
    if case.dtype is Dtype.TF32:
        raise Unsupported("TF32 exists only inside matrix units of NVIDIA GPUs")
    k = case.a.shape[1]
    sequences = [list(range(k)), list(range(k - 1, -1, -1))]
    sequences += [torch.randperm(k).tolist() for _ in range(RANDOM_ORDERS)]
    inside = (summation_orders.pairwise_product, summation_orders.blocked_product)
    return [
        *(summation_orders.sequential_product(case.a, case.b, terms) for terms in sequences),
        *(add(case.a, case.b) for add in inside),
    ]


def _split_k(case: Case) -> list[torch.Tensor]:
    """Compute the product in one call, and as a sum of 2 to 16 partial products, as if several devices shared it."""
    parts = [parts for parts in PARTS if parts <= case.a.shape[1]]
    whole = case.product(case.a, case.b)
    return [whole, *(summation_orders.split_product(case.product, case.a, case.b, count) for count in parts)]


def _threads(case: Case) -> list[torch.Tensor]:
    if case.threads < 2:
        raise Unsupported("threads must be at least 2, to compare with one thread")
    products = []
    for count in (1, case.threads):
        case.device.set_threads(count)
        products.append(case.product(case.a, case.b))
    return products


def _libraries(case: Case) -> list[torch.Tensor]:
    if case.backend == "torch":
        raise Unsupported("PyTorch's product is the baseline: take another library as backend")
    return [case.product(case.a, case.b, name) for name in ("torch", case.backend)]


def _repeat(case: Case) -> list[torch.Tensor]:
    call = case.device.matmul(case.backend, case.a, case.b, case.dtype)
    return [call().clone() for _ in range(REPEATS)]


_METHODS: dict[str, Callable[[Case], list[Any]]] = {
    "cell_order": _cell_order,
    "permuted": _permute,
    "summation": _summation,
    "split_k": _split_k,
    "threads": _threads,
    "libraries": _libraries,
    "repeat": _repeat,
}


def ulp(values: torch.Tensor, form: torch.dtype) -> float:
    """Return one unit in the last place in format `form`, at the root mean square of `values`."""
    import torch

    size = float(values.double().square().mean().sqrt())
    return float(torch.finfo(form).eps) * 2.0 ** math.floor(math.log2(size))


def spread_metrics(results: list[torch.Tensor], unit: float) -> dict[str, tuple[float, str]]:
    """Return the spread metrics (see `numerics`) for two or more equally shaped results. unit: one ulp."""
    import torch

    first = results[0]
    low, high = first.double(), first.double()
    changed = torch.zeros(first.shape, dtype=torch.bool, device=first.device)
    for other in results[1:]:
        low, high = torch.minimum(low, other.double()), torch.maximum(high, other.double())
        changed |= _bits(other) != _bits(first)
    widths = high - low
    return {
        "spread_ulp": (float(widths.max()) / unit, "1"),
        "spread_median_ulp": (float(widths.median()) / unit, "1"),
        "spread_relative": (float(torch.linalg.norm(widths) / torch.linalg.norm(first.double())), "1"),
        "differing_share": (float(changed.double().mean()), "1"),
    }


def _bits(result: torch.Tensor) -> torch.Tensor:
    import torch

    return result.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[result.itemsize])


def _worst_error(a: torch.Tensor, b: torch.Tensor, results: list[torch.Tensor], exact: torch.Tensor) -> float:
    """Return the largest error over all results, in ulp, on randomly drawn rows.

    The reference is a product in float64 or, for float64 results, in twice that precision.
    """
    import torch

    rows = torch.randperm(a.shape[0])[: max(1, REFERENCE_CELLS // b.shape[1])].to(a.device)
    expected = summation_orders.dot2(a[rows], b) if results[0].dtype is torch.float64 else exact[rows]
    errors = [float((result[rows].double() - expected).abs().max()) for result in results]
    return largest_error(*errors) / ulp(exact, results[0].dtype)


def digest(result: torch.Tensor) -> int:
    """Return a hash below 2^48: equal for equal bits, and different otherwise but for rare collisions."""
    import torch

    content = result.contiguous().cpu().view(torch.uint8).numpy().tobytes()
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")


def _fingerprint(device: Device, m: int, n: int, k: int, dtype: Dtype, backend: str) -> int:
    """Return the digest for a product with fixed operands, to compare processes."""
    import numpy as np
    import torch

    random = np.random.default_rng(FINGERPRINT_SEED)
    a, b = (
        torch.from_numpy(random.standard_normal(shape)).to(device.torch_dtype(dtype)).to(device.name)
        for shape in ((m, k), (k, n))
    )
    return digest(device.matmul(backend, a, b, dtype)())
