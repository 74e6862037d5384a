"""FLOP, memory traffic and time per operator in a step.

Bytes are the minimum for an unfused operator: every input read once, every output written once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from experiments.devices import Device
from experiments.models import profiling
from experiments.workload import ProfileError

# Operators that read only indexed rows from their first tensor.
_PICKS = ("embedding", "index_select", "index", "gather", "take")
# Operators that overwrite a tensor without reading it.
_OVERWRITES = ("copy_", "zero_", "fill_", "normal_", "uniform_", "_foreach_zero_", "_foreach_copy_", "index_copy_")
# Operators that write their last operand to the rows given by an index, for example to update a cache.
_PUTS = ("index_copy_",)
_EMPTY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
_MARK = "operator "


@dataclass
class Operator:
    """An operator call below autograd.

    name: PyTorch's name. shapes: input shapes. flop: from a formula for products, convolutions, attention and
    recurrent layers; for other operators the minimum, one per output element. product: True if `flop` is from a
    formula. touched: (address, bytes) for each memory block read or written; empty for views. seconds: nan if not
    timed.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    flop: float
    product: bool
    touched: tuple[tuple[int, float], ...]
    seconds: float = math.nan

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return sum(size for _, size in self.touched)

    @property
    def intensity(self) -> float:
        """FLOP per byte, defined only if `bytes` is positive."""
        return self.flop / self.bytes


class _Recorder(TorchDispatchMode):
    """Mode that records every operator; if `marked`, also wraps each in a uniquely named profiler range."""

    def __init__(self, marked: bool = False) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.marked = marked

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            # Outside autograd, composite operators arrive whole: decompose them, and record their parts.
            with self:
                return func.decompose(*args, **kwargs)
        if self.marked:
            with record_function(f"{_MARK}{len(self.operators)}"):
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        self.operators.append(_make_operator(func, args, kwargs, out))
        return out


def record_operators(call: Callable[[], object]) -> list[Operator]:
    """Record the operators in one call, in order."""
    recorder = _Recorder()
    with recorder:
        call()
    return recorder.operators


def total_traffic(call: Callable[[], object]) -> tuple[float, float]:
    """Sum FLOP and bytes over the operators in one call."""
    operators = record_operators(call)
    return sum(operator.flop for operator in operators), sum(operator.bytes for operator in operators)


def time_operators(call: Callable[[], object], device: Device, calls: int) -> list[Operator]:
    """Time the operators in `calls` successive calls with torch's profiler, on the device where they run.

    GPU: time in the kernels that an operator launches. CPU: time until the operator returns, without PyTorch's
    overhead around it. Excludes a warm-up call, which pays for the profiler's start. Raises ProfileError if an
    operator has no event or kernels are lost (detecting lost kernels takes 2 calls), Unsupported if the profiler
    does not support the device.
    """
    recorder = _Recorder(marked=True)
    first = 0

    def run() -> None:
        nonlocal first
        with recorder:
            call()
            first = len(recorder.operators)
            for _ in range(calls):
                call()

    on_cpu = profiling.device_activity(device) is ProfilerActivity.CPU
    kernels: list[str] = []
    for event in profiling.record_events(run, device):
        # Skip the GPU's record for the range: its kernels count where they were launched.
        if not event.name.startswith(_MARK) or event.device_type != DeviceType.CPU:
            continue
        number = int(event.name.removeprefix(_MARK))
        microseconds = sum(inner.cpu_time_total if on_cpu else inner.device_time_total for inner in event.cpu_children)
        recorder.operators[number].seconds = float(microseconds) * 1e-6
        if number >= first:
            kernels += _kernel_names(event)
    operators = recorder.operators[first:]
    if lost := [operator.name for operator in operators if math.isnan(operator.seconds)]:
        raise ProfileError(f"the profiler lost {len(lost)} of {len(operators)} operators, for example {lost[0]}")
    if not on_cpu:
        profiling.require_all_kernels(kernels, calls)
    return operators


def _kernel_names(event: Any) -> list[str]:
    """List the kernels that an operator launched, directly or through inner operators."""
    return [kernel.name for kernel in event.kernels] + [
        name for inner in event.cpu_children for name in _kernel_names(inner)
    ]


def cached_share(operators: Sequence[Operator], capacity: float) -> float:
    """Return the share of bytes in a repeated step that hit an LRU cache with `capacity` bytes.

    A memory block hits if the cache has room for the block and all bytes touched since its last use (reuse distance:
    Mattson et al. 1970, IBM Systems Journal 9(2):78). The first of two passes only fills the cache.
    """
    recent: OrderedDict[int, float] = OrderedDict()
    cached = total = 0.0
    for number, operator in enumerate(chain(operators, operators)):
        for address, size in operator.touched:
            hit = _reuse_distance(recent, address, capacity) + size <= capacity
            if number >= len(operators):
                cached, total = cached + size * hit, total + size
            recent[address] = max(size, recent.get(address, 0.0))
            recent.move_to_end(address)
    return cached / total if total else 0.0


def _reuse_distance(recent: OrderedDict[int, float], address: int, capacity: float) -> float:
    """Sum the bytes touched since this block; infinity if they exceed the capacity, or the block was never touched."""
    distance = 0.0
    for other in reversed(recent):
        if other == address:
            return distance
        distance += recent[other]
        if distance > capacity:
            break
    return math.inf


def _make_operator(func: Any, args: Any, kwargs: Any, out: Any) -> Operator:
    name = str(func._overloadpacket).removeprefix("aten.")
    shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, Tensor))
    read, written, overwritten = _operands(func, name, args, kwargs)
    operands = {_address(tensor) for tensor in chain(read, written, overwritten)}
    created = [tensor for tensor in _tensors(out) if _address(tensor) not in operands]
    is_view = not created and not written and not overwritten
    if name in _EMPTY or (is_view and any(True for _ in _tensors(out))):
        return Operator(str(func), shapes, 0.0, False, ())
    if name in _PUTS:
        put = (_address(overwritten[0]), float(read[-1].nbytes))
        return Operator(str(func), shapes, float(read[-1].numel()), False, (*_bytes_by_address(read).items(), put))
    results = [*created, *written, *overwritten]
    counted = _product_flop(func, name, args, kwargs, out)
    flop = float(sum(result.numel() for result in results)) if counted is None else counted
    blocks: dict[int, float] = {}
    for moved in (
        _read_bytes(name, read, created),
        _bytes_by_address(chain(written, created, overwritten)),
        _bytes_by_address(written),
    ):
        for address, size in moved.items():
            blocks[address] = blocks.get(address, 0.0) + size
    return Operator(str(func), shapes, flop, counted is not None, tuple(blocks.items()))


def _operands(func: Any, name: str, args: Any, kwargs: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Sort operands into (read, changed in place, overwritten)."""
    read: list[Tensor] = []
    changed: list[Tensor] = []
    overwritten: list[Tensor] = []
    values = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    for argument in func._schema.arguments:
        tensors = list(_tensors(values.get(argument.name)))
        if argument.alias_info is None or not argument.alias_info.is_write:
            read += tensors
        else:
            (overwritten if name in _OVERWRITES or argument.is_out else changed).extend(tensors)
    return read, changed, overwritten


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor's storage, or an id if the storage has no memory."""
    storage = tensor.untyped_storage()
    try:
        return storage.data_ptr() or storage._cdata
    except RuntimeError:
        return int(storage._cdata)


def _bytes_by_address(tensors: Iterable[Tensor]) -> dict[int, float]:
    """Sum bytes per storage; identical views count once, and no storage exceeds its size."""
    views: dict[int, dict[Any, float]] = {}
    storages: dict[int, float] = {}
    for tensor in tensors:
        address = _address(tensor)
        # A dimension with stride 0 repeats the same elements, which count once.
        elements = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
        views.setdefault(address, {})[(tensor.storage_offset(), tensor.shape, tensor.stride())] = (
            elements * tensor.element_size()
        )
        storages[address] = float(tensor.untyped_storage().nbytes())
    return {address: min(sum(sizes.values()), storages[address]) for address, sizes in views.items()}


def _read_bytes(name: str, read: Sequence[Tensor], created: Sequence[Tensor]) -> dict[int, float]:
    """Sum bytes read per storage; for tables, only the looked-up rows."""
    if name not in _PICKS or not read:
        return _bytes_by_address(read)
    table, *indices = read
    picked = max((tensor.numel() for tensor in created), default=0)
    least = min(float(picked * table.element_size()), *_bytes_by_address([table]).values())
    return _bytes_by_address(indices) | {_address(table): least}


def _product_flop(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> float | None:
    """Count the FLOP in a product, convolution, attention or recurrent layer; None for other operators."""
    packet = func._overloadpacket
    if packet is torch.ops.aten.convolution_backward:
        # Each gradient takes as much FLOP as the forward pass. torch's counter overcounts grouped weight gradients.
        output_gradient, x, weight = args[:3]
        forward = conv_flop_count(x.shape, weight.shape, output_gradient.shape, transposed=args[7])
        return float(forward * sum(args[10][:2]))
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out))
    tensors = list(_tensors(args))
    if "scaled_dot_product" in name:
        # Full attention as in torch's counter, though a causal kernel may skip half.
        if "backward" in name:
            return float(sdpa_backward_flop_count(*(tensor.shape for tensor in tensors[:4])))
        return float(sdpa_flop_count(*(tensor.shape for tensor in tensors[:3])))
    if "rnn" in name and tensors and tensors[0].dim() == 3:
        # Arguments are the input (steps, batch, features) and, for each layer and direction, matrices (gates,
        # features). The backward pass takes the FLOP twice, for gradients of inputs and of weights.
        steps = tensors[0].shape[0] * tensors[0].shape[1]
        weights = sum(matrix.numel() for matrix in _weight_matrices(args))
        return 2.0 * steps * weights * (2 if "backward" in name else 1)
    return None


def _weight_matrices(args: Any) -> list[Tensor]:
    """Find a recurrent layer's weight matrices: a list for cuDNN and MIOpen, separate arguments for oneDNN."""
    weights = args[1] if isinstance(args[1], list | tuple) else args[1:3]
    return [tensor for tensor in _tensors(weights) if tensor.dim() == 2]
