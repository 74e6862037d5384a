"""One request from end to end: launch, copy in, compute, copy out, wait; data start and end in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from experiments import hardware
from experiments.devices import Device
from experiments.models.offload_requests import Elementwise, Layers, Product, Request
from experiments.registry import experiment
from experiments.workload import Dtype, Phase, Threads, Unsupported, Workload

if TYPE_CHECKING:
    import torch

Op = Literal["elementwise", "gemv", "gemm", "mlp"]

# MOST_SLOTS: maximum number of host buffers. Requests use the buffers in turn, so that the data for each request have
# left the caches if possible.
# MOST_BYTES: maximum number of bytes in all buffers together; a single buffer may be larger.
MOST_SLOTS, MOST_BYTES = 8, 1 << 28
# SHORT_BYTES: if a request moves fewer bytes, launching a phase of the request (copy in, compute, copy out) takes
# longer than the device's work in this phase. To time the device alone, one graph then holds several copies of the
# phase.
# REPEATS: maximum number of these copies in the graph.
SHORT_BYTES, REPEATS = 4 << 20, 20


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Take an eighth of the work, down to 64 rows, for a cheaper sweep point on a CPU; accelerators never need one."""
    if params["host_memory"] != "none":
        return None
    names = ("m", "n", "k") if params["op"] == "gemm" else ("m",)
    share = 2 if params["op"] == "gemm" else 8
    reduced = {name: min(params[name], max(64, params[name] // share)) for name in names}
    return {**params, **reduced} if any(reduced[name] < params[name] for name in names) else None


def memory(op: str, m: int, n: int, k: int, dtype: str, **_: Any) -> float:
    """Estimate the bytes for the data in all slots, for resident weights, and for the check's float64 copies."""
    travelling = {"elementwise": 2 * m, "gemv": k + m, "gemm": m * k + k * n + m * n, "mlp": 2 * m * k}[op]
    resident = {"gemv": m * k, "mlp": 2 * k * n}.get(op, 0)
    itemsize = Dtype(dtype).itemsize
    slot_bytes = min(MOST_SLOTS * travelling * itemsize, max(MOST_BYTES, travelling * itemsize))
    return float(slot_bytes + (travelling + 2 * resident) * (itemsize + 8) + m * n * 8)


def flop(op: str, m: int, n: int, k: int, uses: int, **_: Any) -> float:
    """Return the FLOP of one request, which applies the operation `uses` times."""
    return uses * {"elementwise": 0.0, "gemv": 2.0 * m * k, "gemm": 2.0 * m * n * k, "mlp": 4.0 * m * n * k}[op]


def _request(op: str, device: Device, backend: str, dtype: Dtype, m: int, n: int, k: int) -> Request:
    if op == "elementwise":
        return Elementwise(device, backend, dtype, m, n, k)
    if op == "gemm":
        return Product(device, backend, dtype, m, n, k)
    if op == "gemv" and n != 1:
        raise Unsupported("gemv multiplies one vector: n must be 1")
    return Layers(device, backend, dtype, *((1, [k, m]) if op == "gemv" else (m, [k, n, k])))


@experiment("offload", smaller=smaller, memory=memory, flop=flop)
def offload(
    device: Device,
    op: Op,
    m: int,
    n: int,
    k: int,
    uses: int,
    host_memory: Literal["pinned", "pageable", "none"],
    launch: Literal["eager", "graph"],
    dtype: Dtype,
    backend: Literal["torch", "onednn", "numpy"],
    threads: Threads,
) -> Workload:
    """Send a request's data to the device, apply the operation `uses` times, and fetch the result.

    op: elementwise, the sigmoid of m numbers (n = k = 1); gemv, a resident (m, k) matrix times a vector (n = 1); gemm,
        (m, k) by (k, n), with both operands sent; mlp, m rows with k numbers through resident layers k to n and n to k
        with relu between.
    host_memory: pinned, with asynchronous copies (GPUs without pinned memory, such as Apple's, use plain memory);
        pageable, with synchronous copies; none on a CPU, without copies.
    launch: eager launches each phase (copy in, compute, copy out) separately, graph launches the request as one graph.

    The host measures the time from the first launch to the result's arrival. Without a graph, the host also times the
    launch of each phase until the call returns, and then the wait for the result. device_time is the device's own time
    for each phase. This metric exists for pinned memory only, because the host does part of each pageable copy.
    bytes: all data to send and fetch; on a CPU, which copies nothing, the same data.
    """
    if uses < 1 or min(m, n, k) < 1:
        raise Unsupported("m, n, k and uses must be at least 1")
    if (host_memory == "none") != (device.kind == "cpu"):
        raise Unsupported(f"host memory {host_memory}: a CPU takes none, a GPU pinned or pageable")
    if launch == "graph" and host_memory != "pinned":
        raise Unsupported("a graph can copy from and to pinned memory only")
    request = _request(op, device, backend, dtype, m, n, k)
    travelling = request.elements * dtype.itemsize
    slots = min(MOST_SLOTS, 1 + 2 * hardware.last_level_cache_bytes() // travelling, max(1, MOST_BYTES // travelling))
    counts: dict[str, Any] = {
        "flop": uses * request.flop or None, "bytes": float(travelling), "tolerance": request.tolerance,
    }  # fmt: skip
    if device.kind == "cpu":
        data = request.draw_inputs()
        calls = [_repeat_call(request.bind(*[operand.clone() for operand in data]), uses) for _ in range(slots)]
        return Workload(run=calls, check=lambda: _host_error(request), **counts)
    trip = Trip(request, uses, slots, host_memory == "pinned")
    if launch == "graph":
        return Workload(phases=trip.capture_graphs(), clock="host", check=trip.error, **counts)
    return Workload(phases=trip.phases, clock="host", check=trip.error, beside=trip.device_workloads(), **counts)


def _repeat_call(call: Callable[[], torch.Tensor], uses: int) -> Callable[[], torch.Tensor]:
    """Return a callable that makes `uses` calls in a row and returns the last result."""
    if uses == 1:
        return call

    def call_repeatedly() -> torch.Tensor:
        for _ in range(uses - 1):
            call()
        return call()

    return call_repeatedly


def _host_error(request: Request) -> float:
    data = request.draw_inputs()
    return request.error(data, request.bind(*data)())


class Trip:
    """Request on a device: copy data from a host buffer, compute, and copy the result back.

    Successive requests use the host buffers (`slots`) in turn.
    """

    def __init__(self, request: Request, uses: int, slots: int, pinned: bool) -> None:
        self.request, self.device, self.uses, self.pinned = request, request.device, uses, pinned
        self.device_data = request.draw_inputs()
        self.compute = _repeat_call(request.bind(*self.device_data), uses)
        self.result = self.compute()
        self.slots = [([self._host_copy(operand) for operand in self.device_data], self._host_copy(self.result))
                      for _ in range(slots)]  # fmt: skip
        self.turn = 0
        self.phases: Sequence[Phase] = [
            ("enqueue_h2d", lambda: self.send(self._next_slot())),
            ("enqueue_compute", self.compute),
            ("enqueue_d2h", lambda: self.fetch(self.turn)),
            ("synchronise", self.device.synchronise),
        ]

    def _host_copy(self, data: torch.Tensor) -> torch.Tensor:
        import torch

        copy = torch.empty(data.shape, dtype=data.dtype).copy_(data)
        return self.device.stage(copy) if self.pinned else copy

    def _next_slot(self) -> int:
        self.turn = (self.turn + 1) % len(self.slots)
        return self.turn

    def send(self, slot: int) -> None:
        # Copy pageable memory synchronously, or the data could change before the copy reads them.
        for host_data, device_data in zip(self.slots[slot][0], self.device_data, strict=True):
            device_data.copy_(host_data, non_blocking=self.pinned)

    def fetch(self, slot: int) -> None:
        self.slots[slot][1].copy_(self.result, non_blocking=self.pinned)

    def capture_graphs(self) -> Sequence[Phase]:
        """Capture the request as one graph per slot. Return the new phases, and store them for `error` to run.

        Raises Unsupported if the device cannot capture the request.
        """
        graphs = [
            self.device.graph([partial(self.send, slot), self.compute, partial(self.fetch, slot)])
            for slot in range(len(self.slots))
        ]
        self.phases = [("launch", lambda: graphs[self._next_slot()]()), ("synchronise", self.device.synchronise)]
        return self.phases

    def device_workloads(self) -> Sequence[Workload]:
        """Return the workload that times each phase by the device's clock, in graphs with pinned copies.

        Return no workload for pageable memory. If a graph cannot be captured, return a workload that raises the error,
        so that the metric is recorded with this reason.
        """
        if not self.pinned:
            return ()
        short = self.request.elements * self.request.dtype.itemsize < SHORT_BYTES
        repeats = max(1, REPEATS // self.uses) if short else 1
        slots = [number % len(self.slots) for number in range(repeats)]
        parts: dict[str, list[Callable[[], object]]] = {
            "h2d": [partial(self.send, slot) for slot in slots],
            "compute": [self.compute] * repeats,
            "d2h": [partial(self.fetch, slot) for slot in slots],
        }
        try:
            phases = [(name, self.device.graph(calls)) for name, calls in parts.items()]
        except (Unsupported, RuntimeError) as refusal:  # running out of memory, for example, must fail only this metric
            return [Workload(run=partial(_raise, refusal), metric="device_time")]
        return [Workload(phases=phases, metric="device_time", per=float(repeats))]

    def error(self) -> float:
        """Return the relative error of the result that a request with fresh data leaves in host memory."""
        import torch

        inputs, result = self.slots[(self.turn + 1) % len(self.slots)]
        for buffer, data in zip(inputs, self.request.draw_inputs(), strict=True):
            buffer.copy_(data)
        # Fill with nan to expose values that are never written.
        result.fill_(torch.nan)
        for _, phase in self.phases:
            phase()
        return self.request.error(inputs, result)


def _raise(error: Exception) -> NoReturn:
    raise error
