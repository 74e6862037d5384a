"""A GPU played on a CPU build of torch: its tensors wrap CPU tensors, and torch takes them for another device's.

It refuses what real GPUs refuse: operands of two devices, float64 where it has none, and in a capture whatever waits
for the device or copies from and to memory that is not page-locked. Torch can be given such a device once in a
process, for good: use it in processes of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._device as contexts
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as _register

NAME = "played"
DEVICE = f"{NAME}:0"
# Operators that read a result on the host, so that they wait for the device.
_WAITING = (
    "_local_scalar_dense", "equal", "nonzero", "masked_select", "unique", "_unique", "bincount", "repeat_interleave",
)  # fmt: skip
# Operators that take operands of both sides.
_CROSSING = ("copy_", "_to_copy", "_foreach", "index", "_index_put_impl_", "_fused_adam")
_ILLEGAL = "CUDA error: an illegal memory access was encountered"
Recorded = tuple[Callable[..., Any], Any, Any, Any]


class Played:
    """State of the device: its limits, the capture that goes on, and planted faults.

    pinned: page-locked memory by its address. capture: what a capture has recorded, if one goes on; spoilt if something
    waited in it. lost: a launch failed, after which every call fails.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self, name: str = "cuda:0", float64: bool = True) -> None:
        """Be another GPU from now on."""
        self.name, self.float64 = name, float64
        self.pinned: dict[int, torch.Tensor] = {}
        self.capture: list[Recorded] | None = None
        self.spoilt = self.lost = False

    def wait(self, why: str) -> None:
        """Wait for the device; a capture is spoilt by that."""
        if self.capture is not None:
            self.spoilt = True
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({why})")
        self.fail()

    def refuse_memory_in_a_capture(self) -> None:
        """Have no memory left for what is captured, which spoils the capture."""
        if self.capture is not None:
            self.spoilt = True
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    def fail(self) -> None:
        """Raise the error after which every call fails."""
        if self.lost:
            raise torch.AcceleratorError(_ILLEGAL)

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        """A copy in page-locked memory."""
        if isinstance(data, PlayedTensor):
            raise RuntimeError("cannot pin a tensor of the device: only dense CPU tensors can be pinned")
        copy = data.clone()
        self.pinned[copy.untyped_storage().data_ptr()] = copy
        return copy

    def record(self, call: Callable[..., Any], args: Any, kwargs: Any, out: Any) -> None:
        """Keep an operation on CPU tensors for replays, where a capture goes on."""
        if self.capture is not None:
            self.capture.append((call, args, kwargs, out))


GPU = Played()


class PlayedTensor(torch.Tensor):
    """A tensor of the device. held: the CPU tensor with its data."""

    held: torch.Tensor
    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> PlayedTensor:
        if held.dtype is torch.float64 and not GPU.float64:
            raise TypeError(f"cannot convert a tensor to float64: {NAME} does not support it")
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            layout=held.layout, device=torch.device(DEVICE),
        )  # fmt: skip
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"PlayedTensor({tuple(self.shape)}, {self.dtype})"

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert a device's tensor to numpy: use Tensor.cpu() first")

    def tolist(self) -> Any:
        GPU.wait("tolist")
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operator, args, kwargs or {})


class Playing(TorchDispatchMode):
    """Sends operators that make tensors of the device from nothing to it."""

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operator, args, kwargs or {})


def _run(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute by the CPU's operator, with the device's rules."""
    leaves = tree_leaves((args, kwargs))
    there = [leaf for leaf in leaves if isinstance(leaf, PlayedTensor)]
    here = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not isinstance(leaf, PlayedTensor)]
    asked = kwargs.get("device")
    onto = torch.device(asked).type == NAME if asked is not None else bool(there)
    if not there and not onto:
        return operator(*args, **kwargs)
    name = operator._schema.name.removeprefix("aten::")
    _raise_device_errors(name, operator, args, there, here)
    if name in ("copy_", "_to_copy"):
        _wait_for_copy(name, args, kwargs, onto)
    if name in ("_scaled_mm", "_int_mm"):
        given = zip((argument.name for argument in operator._schema.arguments), args, strict=False)
        return _eight_bit_product(name, **dict(given), **kwargs)
    operator, args, kwargs = _cpu_operator(name, operator, tree_map(_unwrap, args), tree_map(_unwrap, kwargs))
    out = operator(*args, **kwargs)
    GPU.record(operator, args, kwargs, out)
    if name == "_to_copy" and not onto:
        return out
    known = {id(one.held): one for one in there} | {id(one): one for one in here}

    def placed(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return known[id(one)] if id(one) in known else PlayedTensor(one)

    return tree_map(placed, out)


def _unwrap(one: Any) -> Any:
    return one.held if isinstance(one, PlayedTensor) else one


def _raise_device_errors(name: str, operator: Any, args: Any, there: list[Any], here: list[Any]) -> None:
    """Raise what a real device raises: of a lost context, of a wait in a capture, of operands of two devices."""
    GPU.fail()
    masked = name.startswith("index") and any(one.dtype is torch.bool for one in there if one is not args[0])
    if masked or name.startswith(_WAITING):
        GPU.wait(name)
    if there and not name.startswith(_CROSSING) and any(one.dim() for one in here):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{DEVICE} and cpu! (when checking arguments of {operator})"
        )
    if name.startswith("index") and there and not isinstance(args[0], PlayedTensor):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")


def _wait_for_copy(name: str, args: Any, kwargs: Any, onto: bool) -> None:
    """Wait as copies between host and device do, unless they are asked not to and the host's memory is page-locked."""
    target, source = (args[0], args[1]) if name == "copy_" else (None, args[0])
    if isinstance(source, PlayedTensor) == (onto if target is None else isinstance(target, PlayedTensor)):
        return
    host = source if not isinstance(source, PlayedTensor) else target
    locked = host is not None and host.untyped_storage().data_ptr() in GPU.pinned
    asynchronous = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
    if not locked or not asynchronous:
        GPU.wait(f"{name}: {'a blocking copy' if locked else 'memory that is not page-locked'}")


def _cpu_operator(name: str, operator: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The operator with the arguments that the CPU takes in place of the device's."""
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    if "pin_memory" in kwargs:
        kwargs["pin_memory"] = False
    if name == "_fused_sdp_choice":
        return (lambda *_, **__: 0), args, {}
    if name == "_thnn_fused_lstm_cell":
        return _lstm_cell, args, kwargs
    return operator, args, kwargs


def _lstm_cell(gates: Any, hidden: Any, cell: Any, bias: Any = None, hidden_bias: Any = None) -> tuple[Any, Any, Any]:
    """The fused cell, which the CPU has not."""
    for one in (hidden, bias, hidden_bias):
        gates = gates if one is None else gates + one
    enter, forget, new, out = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell, gates


def _eight_bit_product(name: str, self: Any, mat2: Any, out: Any, **more: Any) -> Any:
    """torch._int_mm and torch._scaled_mm by their arguments' names, with what they refuse on NVIDIA's GPUs."""
    a, b = self, mat2
    if name == "_int_mm":
        if not (a.size(0) > 16 and a.size(1) % 8 == 0 and b.size(1) % 8 == 0):
            raise RuntimeError(f"self.size(0) needs to be greater than 16, and multiples of 8: {a.shape}, {b.shape}")
        kind = torch.int32
    else:
        if b.stride(0) != 1 or a.size(1) % 16 or b.size(1) % 16:
            raise RuntimeError("mat2 must be col_major, and trailing dimensions divisible by 16")
        for one in (more["scale_a"], more["scale_b"]):
            if not isinstance(one, PlayedTensor) or one.dtype is not torch.float32 or one.numel() != 1:
                raise RuntimeError("scales must be float32 tensors of one element, on the same device")
        kind = more["out_dtype"]
    if (out.dtype, out.shape) != (kind, (a.size(0), b.size(1))):
        raise RuntimeError(f"out is {out.dtype} of {tuple(out.shape)}")

    def compute(*_: Any) -> None:
        out.held.copy_(a.held.double() @ b.held.double())

    compute()
    GPU.record(compute, (), {}, None)
    return out


def _with_autocast(operator: Any, kind: torch.dtype) -> Callable[..., Any]:
    """An operator of autocast: on numbers with a point it computes in this format."""
    outside = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(one: Any) -> Any:
        wanted = isinstance(one, PlayedTensor) and one.dtype in (torch.float32, torch.bfloat16)
        return one.to(kind) if wanted else one

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(outside):
            return operator(*tree_map(cast, args), **tree_map(cast, kwargs))

    return run


class Stream:
    """A queue: what is launched is done at once. cuda_stream: its address."""

    made = 0

    def __init__(self, **_: Any) -> None:
        self.cuda_stream = Stream.made
        Stream.made += 1

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def wait_stream(self, other: Stream) -> None:
        """Both are in order."""

    def synchronize(self) -> None:
        GPU.wait("a stream's synchronize")


class Event:
    """A moment on the host's clock."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timing, self.at = enable_timing, 0.0

    def record(self, stream: Any = None) -> None:
        GPU.fail()
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        GPU.wait("an event's synchronize")

    def elapsed_time(self, later: Event) -> float:
        if not (self.timing and later.timing and self.at and later.at):
            raise RuntimeError("both events must be recorded, with enable_timing=True")
        return (later.at - self.at) * 1e3


class Graph:
    """Operations of a capture, done again on the same memory."""

    def __init__(self) -> None:
        self.operations: list[Recorded] | None = None

    def replay(self) -> None:
        if self.operations is None:
            raise RuntimeError("replay of a graph that holds no capture")
        if GPU.capture is not None:
            GPU.wait("a replay")
        GPU.fail()
        with torch.inference_mode():
            for call, args, kwargs, out in self.operations:
                again = tree_leaves(call(*args, **kwargs))
                for place, value in zip(tree_leaves(out), again, strict=True):
                    if isinstance(place, torch.Tensor) and place.data_ptr() != value.data_ptr():
                        place.copy_(value)


class _Streams:
    """The default stream, and that on which work is launched now."""

    def __init__(self) -> None:
        self.default = self.here = self.capturing = Stream()

    def set(self, stream: Stream) -> None:
        self.here = stream

    @contextmanager
    def use(self, stream: Stream) -> Any:
        before, self.here = self.here, stream
        try:
            yield
        finally:
            self.here = before

    @contextmanager
    def capture(self, graph: Graph, **_: Any) -> Any:
        """Launch nothing but record; as in torch, an error leaves the stream of the capture in place."""
        before, self.here = self.here, Stream()
        GPU.capture, GPU.spoilt = [], False
        try:
            yield
        finally:
            graph.operations, GPU.capture = GPU.capture, None
            if GPU.spoilt:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self.here = before


_AUTOCAST = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
_FALLBACK = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
# By the format that autocast computes them in. Source: torch's "Autocast Op Reference", CUDA.
_CASTS = {
    torch.bfloat16: ("linear", "matmul", "mm", "addmm", "bmm", "conv2d", "scaled_dot_product_attention"),
    torch.float32: (
        "layer_norm",
        "softmax.int",
        "log_softmax.int",
        "nll_loss",
        "cross_entropy_loss",
        "mse_loss",
        "sum",
    ),
}
STREAMS = _Streams()
PROPERTIES = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", total_memory=85 * 10**9, major=9, minor=0, multi_processor_count=4,
    L2_cache_size=1 << 12, max_threads_per_multi_processor=2048, uuid="0" * 8, has_fp64=False,
    last_level_cache_size=1 << 12, gpu_subslice_count=4,
)  # fmt: skip
MODULE = SimpleNamespace(
    is_available=lambda: True,
    is_initialized=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
    set_device=lambda *_: None,
    get_device_properties=lambda *_: PROPERTIES,
    get_device_capability=lambda *_: (9, 0),
    get_device_name=lambda *_: PROPERTIES.name,
    get_arch_list=lambda: ["sm_80", "sm_90", "compute_120"],
    get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
    manual_seed_all=lambda *_: None,
    _is_in_bad_fork=lambda: False,
    synchronize=lambda *_: GPU.wait("synchronize"),
    Event=Event,
    Stream=Stream,
    CUDAGraph=Graph,
    XPUGraph=Graph,
    graph=STREAMS.capture,
    stream=STREAMS.use,
    set_stream=STREAMS.set,
    current_stream=lambda *_: STREAMS.here,
    default_stream=lambda *_: STREAMS.default,
    empty_cache=lambda: None,
    mem_get_info=lambda *_: (80 * 10**9, 85 * 10**9),
    memory_reserved=lambda *_: 0,
    recommended_max_memory=lambda: 85 * 10**9,
    driver_allocated_memory=lambda: 0,
    reset_peak_memory_stats=lambda *_: None,
    max_memory_allocated=lambda *_: 12345,
)


def install() -> None:
    """Give torch the device, and CUDA's questions its answers; for good."""
    _register(rename=NAME, backend_module=MODULE)
    # Modules that move to the device get new parameters: those of the CPU cannot become wrappers.
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    # Torch knows no casts of such a device: these are CUDA's for the operators of this study's models.
    _FALLBACK.fallback(torch.library.fallthrough_kernel)
    for kind, names in _CASTS.items():
        for name in names:
            _AUTOCAST.impl(name, _with_autocast(getattr(torch.ops.aten, name.partition(".")[0]), kind))
    for name in ("get_device_properties", "get_device_capability", "current_stream", "is_available", "device_count"):
        setattr(torch.cuda, name, getattr(MODULE, name))
    torch.version.cuda = "13.0"
    plain = torch.tensor

    def tensor(data: Any, *words: Any, device: Any = None, **more: Any) -> torch.Tensor:
        """torch.tensor, which makes its data on the CPU without asking a mode."""
        where = contexts.CURRENT_DEVICE if device is None else device
        if torch.device(where or "cpu").type != NAME:
            return plain(data, *words, device=device, **more)
        return PlayedTensor(plain(data, *words, device="cpu", **more))

    torch.tensor = tensor
