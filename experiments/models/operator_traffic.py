"""The operators of a step: what each computes, what it has to move, and how long it takes.

Bytes are the least that an unfused operator moves: what it reads and what it writes, each once.
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

# Operators that read only the rows that their indices name, out of their first tensor.
_PICKS = ("embedding", "index_select", "index", "gather", "take")
# Operators that write over what was there without reading it.
_OVERWRITES = ("copy_", "zero_", "fill_", "normal_", "uniform_", "_foreach_zero_", "_foreach_copy_", "index_copy_")
# Operators that write rows of their last operand over those that their indices name, as into a cache.
_PUTS = ("index_copy_",)
# Operators that only make room.
_EMPTY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
_MARK = "operator "


@dataclass
class Operator:
    """One call of an operator below automatic differentiation.

    name, shapes: as PyTorch knows it, and of the tensors that it is given. flop: of a product, convolution,
    attention or recurrent layer by its formula; of others one for each element that comes out, which is the least.
    bytes: 0 for one that only looks at its operand in another way. product: one of the former. touched: address
    and bytes of each piece of memory that it reads or writes. seconds: nan if it was not timed.
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
        """FLOP per byte. Only of operators that move something."""
        return self.flop / self.bytes


class _Recorder(TorchDispatchMode):
    """Notes every operator; each under a name of its own in the profiler's record, if `marked`."""

    def __init__(self, marked: bool = False) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.marked = marked

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            # Made of other operators, and here whole because nobody asks for gradients.
            with self:
                return func.decompose(*args, **kwargs)
        if self.marked:
            with record_function(f"{_MARK}{len(self.operators)}"):
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        self.operators.append(_operator(func, args, kwargs, out))
        return out


def record(call: Callable[[], object]) -> list[Operator]:
    """The operators of one call, in order."""
    recorder = _Recorder()
    with recorder:
        call()
    return recorder.operators


def traffic(call: Callable[[], object]) -> tuple[float, float]:
    """FLOP and bytes of one call, over all of its operators."""
    found = record(call)
    return sum(one.flop for one in found), sum(one.bytes for one in found)


def time_operators(call: Callable[[], object], device: Device, calls: int) -> list[Operator]:
    """The operators of so many calls in a row with their times, by torch's profiler, on the device where they run.

    On a GPU an operator's time is that of the kernels which it launches; on a CPU it ends when the operator returns,
    and leaves out PyTorch's work around it. A call before those, which pays for the profiler's start, is left out.
    Raises ProfileError where an operator has no event or kernels are lost (to be noticed, that takes 2 calls);
    Unsupported where the profiler does not know the device.
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

    on_cpu = profiling.activity(device) is ProfilerActivity.CPU
    kernels: list[str] = []
    for event in profiling.record(run, device):
        # A GPU's own record of the mark spans all of its kernels: they count once, where they were launched.
        if not event.name.startswith(_MARK) or event.device_type != DeviceType.CPU:
            continue
        number = int(event.name.removeprefix(_MARK))
        spent = sum(inner.cpu_time_total if on_cpu else inner.device_time_total for inner in event.cpu_children)
        recorder.operators[number].seconds = float(spent) * 1e-6
        if number >= first:
            kernels += _launched(event)
    found = recorder.operators[first:]
    if lost := [one.name for one in found if math.isnan(one.seconds)]:
        raise ProfileError(f"the profiler has no event of {len(lost)} of {len(found)} operators, say {lost[0]}")
    if not on_cpu:
        profiling.check_whole(kernels, calls)
    return found


def _launched(event: Any) -> list[str]:
    """Names of the kernels that an operator, or an operator within it, launched."""
    return [kernel.name for kernel in event.kernels] + [
        name for inner in event.cpu_children for name in _launched(inner)
    ]


def cached_share(operators: Sequence[Operator], capacity: float) -> float:
    """Share of a repeated step's bytes that a cache of `capacity` bytes would hold: least recently used goes first.

    A piece of memory is still there if all that was touched since, itself included, fits (reuse distance:
    Mattson et al. 1970, IBM Systems Journal 9(2):78). The first time through fills the cache.
    """
    recent: OrderedDict[int, float] = OrderedDict()
    held = total = 0.0
    for number, one in enumerate(chain(operators, operators)):
        for place, size in one.touched:
            hit = _distance(recent, place, capacity) + size <= capacity
            if number >= len(operators):
                held, total = held + size * hit, total + size
            recent[place] = max(size, recent.get(place, 0.0))
            recent.move_to_end(place)
    return held / total if total else 0.0


def _distance(recent: OrderedDict[int, float], place: int, capacity: float) -> float:
    """Bytes that were touched since this piece of memory was; infinity past the capacity, or if it never was."""
    since = 0.0
    for other in reversed(recent):
        if other == place:
            return since
        since += recent[other]
        if since > capacity:
            break
    return math.inf


def _operator(func: Any, args: Any, kwargs: Any, out: Any) -> Operator:
    name = str(func._overloadpacket).removeprefix("aten.")
    shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, Tensor))
    read, written, overwritten = _operands(func, name, args, kwargs)
    before = {_place(one) for one in chain(read, written, overwritten)}
    made = [tensor for tensor in _tensors(out) if _place(tensor) not in before]
    looked = not made and not written and not overwritten
    if name in _EMPTY or (looked and any(True for _ in _tensors(out))):
        return Operator(str(func), shapes, 0.0, False, ())
    if name in _PUTS:
        put = (_place(overwritten[0]), float(read[-1].nbytes))
        return Operator(str(func), shapes, float(read[-1].numel()), False, (*_sizes(read).items(), put))
    results = [*made, *written, *overwritten]
    counted = _product_flop(func, name, args, kwargs, out)
    flop = float(sum(result.numel() for result in results)) if counted is None else counted
    pieces: dict[int, float] = {}
    for moved in (_read(name, read, made), _sizes(chain(written, made, overwritten)), _sizes(written)):
        for place, size in moved.items():
            pieces[place] = pieces.get(place, 0.0) + size
    return Operator(str(func), shapes, flop, counted is not None, tuple(pieces.items()))


def _operands(func: Any, name: str, args: Any, kwargs: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Tensors that are read, that are changed, and that are written over."""
    read: list[Tensor] = []
    changed: list[Tensor] = []
    overwritten: list[Tensor] = []
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    for argument in func._schema.arguments:
        found = list(_tensors(given.get(argument.name)))
        if argument.alias_info is None or not argument.alias_info.is_write:
            read += found
        else:
            (overwritten if name in _OVERWRITES or argument.is_out else changed).extend(found)
    return read, changed, overwritten


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)


def _place(tensor: Tensor) -> int:
    """The address of a tensor's memory, or what stands for it where there is none."""
    storage = tensor.untyped_storage()
    try:
        return storage.data_ptr() or storage._cdata
    except RuntimeError:
        return int(storage._cdata)


def _sizes(tensors: Iterable[Tensor]) -> dict[int, float]:
    """Bytes of each piece of memory that the tensors name; what several of them show of it counts once."""
    views: dict[int, dict[Any, float]] = {}
    whole: dict[int, float] = {}
    for tensor in tensors:
        place = _place(tensor)
        # Along a stride of 0 the same numbers are seen again.
        elements = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
        views.setdefault(place, {})[(tensor.storage_offset(), tensor.shape, tensor.stride())] = (
            elements * tensor.element_size()
        )
        whole[place] = float(tensor.untyped_storage().nbytes())
    return {place: min(sum(seen.values()), whole[place]) for place, seen in views.items()}


def _read(name: str, read: Sequence[Tensor], made: Sequence[Tensor]) -> dict[int, float]:
    """Bytes that are read; of a table, the rows that are looked up."""
    if name not in _PICKS or not read:
        return _sizes(read)
    table, *indices = read
    picked = max((one.numel() for one in made), default=0)
    least = min(float(picked * table.element_size()), *_sizes([table]).values())
    return _sizes(indices) | {_place(table): least}


def _product_flop(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> float | None:
    """FLOP of a product, convolution, attention or recurrent layer; None of anything else."""
    packet = func._overloadpacket
    if packet is torch.ops.aten.convolution_backward:
        # As much as forward for each gradient: the counter takes all channels for the weights of grouped ones.
        above, x, weight = args[:3]
        whole = conv_flop_count(x.shape, weight.shape, above.shape, transposed=args[7])
        return float(whole * sum(args[10][:2]))
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out))
    given = list(_tensors(args))
    if "scaled_dot_product" in name:
        # As the counter does where it knows the kernel: whole, though a causal one may skip half.
        if "backward" in name:
            return float(sdpa_backward_flop_count(*(one.shape for one in given[:4])))
        return float(sdpa_flop_count(*(one.shape for one in given[:3])))
    if "rnn" in name and given and given[0].dim() == 3:
        # input (steps, batch, features) and, for each layer and direction, matrices (gates, features); a backward
        # pass computes the gradients of inputs and of weights.
        steps = given[0].shape[0] * given[0].shape[1]
        weights = sum(matrix.numel() for matrix in _matrices(args))
        return 2.0 * steps * weights * (2 if "backward" in name else 1)
    return None


def _matrices(args: Any) -> list[Tensor]:
    """The weights of a recurrent layer: cuDNN and MIOpen take a list of all, oneDNN those of its one layer."""
    listed = args[1] if isinstance(args[1], list | tuple) else args[1:3]
    return [tensor for tensor in _tensors(listed) if tensor.dim() == 2]
