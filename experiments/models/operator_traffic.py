"""FLOP, memory traffic and time for each operator in a step.

The memory traffic is the minimum for operators that are not fused: every input is read once, and every output is
written once.
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

# Operators that read only some rows of their first tensor, chosen by an index.
_PICKS = ("embedding", "index_select", "index", "gather", "take")
# Operators that overwrite a tensor without reading it.
_OVERWRITES = ("copy_", "zero_", "fill_", "normal_", "uniform_", "_foreach_zero_", "_foreach_copy_", "index_copy_")
# Operators that write their last operand to some rows of a tensor, chosen by an index (for example, in a cache).
_PUTS = ("index_copy_",)
_EMPTY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
_MARK = "operator "


@dataclass
class Operator:
    """Call of an operator, recorded below autograd.

    name: PyTorch's name for the operator. shapes: shapes of the input tensors.
    flop: FLOP by a formula for products, convolutions, attention and recurrent layers; for all other operators, the
        minimum of one FLOP per output element.
    product: True if `flop` comes from a formula.
    touched: (address, bytes) for each memory block that the operator reads or writes; empty for views.
    seconds: duration; nan if the operator was not timed.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    flop: float
    product: bool
    touched: tuple[tuple[int, float], ...]
    seconds: float = math.nan

    @property
    def bytes(self) -> float:
        """Bytes that the operator reads and writes."""
        return sum(size for _, size in self.touched)

    @property
    def intensity(self) -> float:
        """FLOP per byte; raises ZeroDivisionError if the operator moves no bytes."""
        return self.flop / self.bytes


class _Recorder(TorchDispatchMode):
    """Mode that records every operator call; if `marked`, each call gets its own profiler range with a unique name."""

    def __init__(self, marked: bool = False) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.marked = marked

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            # Without autograd, a composite operator arrives here undecomposed. Decompose it, and record its parts.
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
    """Run `call` once and return its operators in execution order."""
    recorder = _Recorder()
    with recorder:
        call()
    return recorder.operators


def total_traffic(call: Callable[[], object]) -> tuple[float, float]:
    """Run `call` once and return (FLOP, bytes read and written), summed over its operators."""
    operators = record_operators(call)
    return sum(operator.flop for operator in operators), sum(operator.bytes for operator in operators)


def time_operators(call: Callable[[], object], device: Device, calls: int) -> list[Operator]:
    """Run `call` once for warm-up and then `calls` times, and return the operators, timed by torch's profiler.

    On a GPU, an operator's time is the time of the kernels that it launches. On a CPU, it is the time until the
    operator returns, without PyTorch's overhead around the operator. The warm-up call is left out, since it includes
    the profiler's start. Raises ProfileError if the profiler lost operators or kernels (lost kernels can be detected
    only with at least 2 calls), Unsupported if the profiler does not support the device.
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
        # Skip the GPU's event for a profiler range, because kernels count in the host event that launched them.
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
    """Return the names of the kernels that an operator launched, directly or through inner operators."""
    return [kernel.name for kernel in event.kernels] + [
        name for inner in event.cpu_children for name in _kernel_names(inner)
    ]


def cached_share(operators: Sequence[Operator], capacity: float) -> float:
    """Return the fraction of a repeated step's bytes that hit a cache of `capacity` bytes (least recently used).

    A memory block is a hit if the cache has room for the block and for all bytes touched since its last use, the reuse
    distance (Mattson et al. 1970, IBM Systems Journal 9(2):78). The operators are simulated twice: first to fill the
    cache, and then to count the hits.
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
    """Count the bytes touched since the last use of the block at `address`.

    Return infinity if they exceed the capacity, or if the block was never used.
    """
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
    """Return three operand lists: only read, changed in place (read and written), and overwritten unread."""
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
    """Return the address of a tensor's storage, or the storage's id if it has no memory."""
    storage = tensor.untyped_storage()
    try:
        return storage.data_ptr() or storage._cdata
    except RuntimeError:
        return int(storage._cdata)


def _bytes_by_address(tensors: Iterable[Tensor]) -> dict[int, float]:
    """Sum the tensors' bytes for each storage.

    Identical views of a storage count once, and the sum is at most the storage's size.
    """
    views: dict[int, dict[Any, float]] = {}
    storages: dict[int, float] = {}
    for tensor in tensors:
        address = _address(tensor)
        # Leave out dimensions with stride 0, which repeat the same elements.
        elements = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
        views.setdefault(address, {})[(tensor.storage_offset(), tensor.shape, tensor.stride())] = (
            elements * tensor.element_size()
        )
        storages[address] = float(tensor.untyped_storage().nbytes())
    return {address: min(sum(sizes.values()), storages[address]) for address, sizes in views.items()}


def _read_bytes(name: str, read: Sequence[Tensor], created: Sequence[Tensor]) -> dict[int, float]:
    """Sum the bytes read from each storage; for operators in _PICKS, only the chosen rows count."""
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
        # Count the forward pass's FLOP once for each gradient. torch's formula for `convolution_backward` counts too
        # much for weight gradients in grouped convolutions.
        output_gradient, x, weight = args[:3]
        forward = conv_flop_count(x.shape, weight.shape, output_gradient.shape, transposed=args[7])
        return float(forward * sum(args[10][:2]))
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out))
    tensors = list(_tensors(args))
    if "scaled_dot_product" in name:
        # Count full attention, as torch's counter does, although a causal kernel may skip half of it.
        if "backward" in name:
            return float(sdpa_backward_flop_count(*(tensor.shape for tensor in tensors[:4])))
        return float(sdpa_flop_count(*(tensor.shape for tensor in tensors[:3])))
    if "rnn" in name and tensors and tensors[0].dim() == 3:
        # The arguments are the input (steps, batch, features) and, for each layer and direction, weight matrices
        # (gates, features). The backward pass takes twice the FLOP: for the gradients with respect to inputs and
        # weights.
        steps = tensors[0].shape[0] * tensors[0].shape[1]
        weights = sum(matrix.numel() for matrix in _weight_matrices(args))
        return 2.0 * steps * weights * (2 if "backward" in name else 1)
    return None


def _weight_matrices(args: Any) -> list[Tensor]:
    """Return a recurrent layer's weight matrices from its arguments.

    cuDNN and MIOpen take the weights as one list, oneDNN takes them as separate arguments.
    """
    weights = args[1] if isinstance(args[1], list | tuple) else args[1:3]
    return [tensor for tensor in _tensors(weights) if tensor.dim() == 2]
