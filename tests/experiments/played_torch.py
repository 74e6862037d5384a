"""GPU played on a CPU build of torch: its tensors wrap CPU tensors, and torch treats them as another device's.

Like real GPUs, it rejects operands on two devices, and float64 where unsupported. During a capture, it also rejects
waits for the device, and copies from or to pageable memory. Torch accepts a device like this once per process,
irreversibly: run it in a separate process.
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
# Operators that read a result on the host and so wait for the device.
_WAITING = (
    "_local_scalar_dense", "equal", "nonzero", "masked_select", "unique", "_unique", "bincount", "repeat_interleave",
)  # fmt: skip
# Operators that accept operands on both host and device.
_CROSSING = ("copy_", "_to_copy", "_foreach", "index", "_index_put_impl_", "_fused_adam")
_ILLEGAL = "CUDA error: an illegal memory access was encountered"
Recorded = tuple[Callable[..., Any], Any, Any, Any]


class Played:
    """State of the device: its limits, the current capture, and planted faults.

    pinned: page-locked memory by address
    capture: operations recorded so far in the current capture, if any
    spoilt: True after an operation has waited in the capture
    lost: True after a launch has failed, so that every later call fails
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self, name: str = "cuda:0", float64: bool = True) -> None:
        """Reset the state, and imitate the GPU `name` with or without float64."""
        self.name, self.float64 = name, float64
        self.pinned: dict[int, torch.Tensor] = {}
        self.capture: list[Recorded] | None = None
        self.spoilt = self.lost = False

    def wait(self, why: str) -> None:
        """Wait for the device, which spoils a capture."""
        if self.capture is not None:
            self.spoilt = True
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({why})")
        self.fail()

    def refuse_memory_in_a_capture(self) -> None:
        """If a capture is in progress, spoil it and raise an out-of-memory error."""
        if self.capture is not None:
            self.spoilt = True
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    def fail(self) -> None:
        """Raise an illegal access if the device is lost."""
        if self.lost:
            raise torch.AcceleratorError(_ILLEGAL)

    def pin(self, data: torch.Tensor) -> torch.Tensor:
        """Copy data to page-locked memory."""
        if isinstance(data, PlayedTensor):
            raise RuntimeError("cannot pin a tensor of the device: only dense CPU tensors can be pinned")
        copy = data.clone()
        self.pinned[copy.untyped_storage().data_ptr()] = copy
        return copy

    def record(self, call: Callable[..., Any], args: Any, kwargs: Any, out: Any) -> None:
        """If a capture is in progress, record an operation on CPU tensors for later replays."""
        if self.capture is not None:
            self.capture.append((call, args, kwargs, out))


GPU = Played()


class PlayedTensor(torch.Tensor):
    """Tensor on the device. cpu_tensor: the CPU tensor with its data."""

    cpu_tensor: torch.Tensor
    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, cpu_tensor: torch.Tensor) -> PlayedTensor:
        if cpu_tensor.dtype is torch.float64 and not GPU.float64:
            raise TypeError(f"cannot convert a tensor to float64: {NAME} does not support it")
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, cpu_tensor.size(), strides=cpu_tensor.stride(), storage_offset=cpu_tensor.storage_offset(),
            dtype=cpu_tensor.dtype, layout=cpu_tensor.layout, device=torch.device(DEVICE),
        )  # fmt: skip
        tensor.cpu_tensor = cpu_tensor
        return tensor

    def __repr__(self, **_: Any) -> str:
        return f"PlayedTensor({tuple(self.shape)}, {self.dtype})"

    def data_ptr(self) -> int:
        return self.cpu_tensor.data_ptr()

    def untyped_storage(self) -> Any:
        return self.cpu_tensor.untyped_storage()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert a device's tensor to numpy: use Tensor.cpu() first")

    def tolist(self) -> Any:
        GPU.wait("tolist")
        return self.cpu_tensor.tolist()

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operator, args, kwargs or {})


class Playing(TorchDispatchMode):
    """Mode that sends operators without tensor operands, such as `torch.ones`, to the device."""

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operator, args, kwargs or {})


def _run(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the operator on the CPU, and raise the errors that a real device would raise."""
    leaves = tree_leaves((args, kwargs))
    on_device = [leaf for leaf in leaves if isinstance(leaf, PlayedTensor)]
    on_host = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not isinstance(leaf, PlayedTensor)]
    target = kwargs.get("device")
    to_device = torch.device(target).type == NAME if target is not None else bool(on_device)
    if not on_device and not to_device:
        return operator(*args, **kwargs)
    name = operator._schema.name.removeprefix("aten::")
    _raise_device_errors(name, operator, args, on_device, on_host)
    if name in ("copy_", "_to_copy"):
        _wait_for_copy(name, args, kwargs, to_device)
    if name in ("_scaled_mm", "_int_mm"):
        named = zip((argument.name for argument in operator._schema.arguments), args, strict=False)
        return _eight_bit_product(name, **dict(named), **kwargs)
    operator, args, kwargs = _cpu_operator(name, operator, tree_map(_unwrap, args), tree_map(_unwrap, kwargs))
    out = operator(*args, **kwargs)
    GPU.record(operator, args, kwargs, out)
    if name == "_to_copy" and not to_device:
        return out
    operands = {id(tensor.cpu_tensor): tensor for tensor in on_device} | {id(tensor): tensor for tensor in on_host}

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return operands[id(leaf)] if id(leaf) in operands else PlayedTensor(leaf)

    return tree_map(wrap, out)


def _unwrap(leaf: Any) -> Any:
    return leaf.cpu_tensor if isinstance(leaf, PlayedTensor) else leaf


def _raise_device_errors(name: str, operator: Any, args: Any, on_device: list[Any], on_host: list[Any]) -> None:
    """Raise the errors of real devices for a lost context, a wait in a capture, and operands on two devices."""
    GPU.fail()
    masked = name.startswith("index") and any(index.dtype is torch.bool for index in on_device if index is not args[0])
    if masked or name.startswith(_WAITING):
        GPU.wait(name)
    if on_device and not name.startswith(_CROSSING) and any(tensor.dim() for tensor in on_host):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{DEVICE} and cpu! (when checking arguments of {operator})"
        )
    if name.startswith("index") and on_device and not isinstance(args[0], PlayedTensor):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")


def _wait_for_copy(name: str, args: Any, kwargs: Any, to_device: bool) -> None:
    """Wait as copies between host and device do, unless the copy is asynchronous and the host memory page-locked."""
    target, source = (args[0], args[1]) if name == "copy_" else (None, args[0])
    if isinstance(source, PlayedTensor) == (to_device if target is None else isinstance(target, PlayedTensor)):
        return
    host = source if not isinstance(source, PlayedTensor) else target
    locked = host is not None and host.untyped_storage().data_ptr() in GPU.pinned
    asynchronous = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
    if not locked or not asynchronous:
        GPU.wait(f"{name}: {'a blocking copy' if locked else 'memory that is not page-locked'}")


def _cpu_operator(name: str, operator: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Return the operator and arguments to use on the CPU."""
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
    """Compute the fused LSTM cell, which torch lacks on the CPU."""
    for term in (hidden, bias, hidden_bias):
        gates = gates if term is None else gates + term
    enter, forget, new, out = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell, gates


def _eight_bit_product(name: str, self: Any, mat2: Any, out: Any, **more: Any) -> Any:
    """Compute torch._int_mm or torch._scaled_mm, and reject the same operands as NVIDIA GPUs do."""
    a, b = self, mat2
    if name == "_int_mm":
        if not (a.size(0) > 16 and a.size(1) % 8 == 0 and b.size(1) % 8 == 0):
            raise RuntimeError(f"self.size(0) needs to be greater than 16, and multiples of 8: {a.shape}, {b.shape}")
        kind = torch.int32
    else:
        if b.stride(0) != 1 or a.size(1) % 16 or b.size(1) % 16:
            raise RuntimeError("mat2 must be col_major, and trailing dimensions divisible by 16")
        for scale in (more["scale_a"], more["scale_b"]):
            if not isinstance(scale, PlayedTensor) or scale.dtype is not torch.float32 or scale.numel() != 1:
                raise RuntimeError("scales must be float32 tensors of one element, on the same device")
        kind = more["out_dtype"]
    if (out.dtype, out.shape) != (kind, (a.size(0), b.size(1))):
        raise RuntimeError(f"out is {out.dtype} of {tuple(out.shape)}")

    def compute(*_: Any) -> None:
        out.cpu_tensor.copy_(a.cpu_tensor.double() @ b.cpu_tensor.double())

    compute()
    GPU.record(compute, (), {}, None)
    return out


def _with_autocast(operator: Any, kind: torch.dtype) -> Callable[..., Any]:
    """Return a function that converts floating-point operands to `kind` and runs the operator, as autocast does."""
    outside = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(leaf: Any) -> Any:
        is_float = isinstance(leaf, PlayedTensor) and leaf.dtype in (torch.float32, torch.bfloat16)
        return leaf.to(kind) if is_float else leaf

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(outside):
            return operator(*tree_map(cast, args), **tree_map(cast, kwargs))

    return run


class Stream:
    """Stream that runs each launch immediately. cuda_stream: the stream's address."""

    count = 0

    def __init__(self, **_: Any) -> None:
        self.cuda_stream = Stream.count
        Stream.count += 1

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def wait_stream(self, other: Stream) -> None:
        """Do nothing, because each stream runs its launches immediately."""

    def synchronize(self) -> None:
        GPU.wait("a stream's synchronize")


class Event:
    """Event with a time on the host clock."""

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
    """Graph that replays its captured operations on the same memory."""

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
                results = tree_leaves(call(*args, **kwargs))
                for captured, result in zip(tree_leaves(out), results, strict=True):
                    if isinstance(captured, torch.Tensor) and captured.data_ptr() != result.data_ptr():
                        captured.copy_(result)


class _Streams:
    """Default and current stream."""

    def __init__(self) -> None:
        self.default = self.current = Stream()

    def set(self, stream: Stream) -> None:
        self.current = stream

    @contextmanager
    def use(self, stream: Stream) -> Any:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def capture(self, graph: Graph, **_: Any) -> Any:
        """Record launches for a graph. As in torch, the capture's stream stays current after an error."""
        before, self.current = self.current, Stream()
        GPU.capture, GPU.spoilt = [], False
        try:
            yield
        finally:
            graph.operations, GPU.capture = GPU.capture, None
            if GPU.spoilt:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self.current = before


_AUTOCAST = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
_FALLBACK = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
# The operators for each autocast format, from the CUDA lists in torch's "Autocast Op Reference".
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
    current_stream=lambda *_: STREAMS.current,
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
    """Register the device in torch and replace CUDA queries, irreversibly."""
    _register(rename=NAME, backend_module=MODULE)
    # Moving a module to the device must create new parameters: a CPU parameter cannot become a PlayedTensor in place.
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    # Torch has no autocast rules for this device. Register its CUDA rules for the operators in this study's models.
    _FALLBACK.fallback(torch.library.fallthrough_kernel)
    for kind, names in _CASTS.items():
        for name in names:
            _AUTOCAST.impl(name, _with_autocast(getattr(torch.ops.aten, name.partition(".")[0]), kind))
    for name in ("get_device_properties", "get_device_capability", "current_stream", "is_available", "device_count"):
        setattr(torch.cuda, name, getattr(MODULE, name))
    torch.version.cuda = "13.0"
    make_tensor = torch.tensor

    def tensor(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        """Replace torch.tensor, which ignores dispatch modes and so would create the data on the CPU."""
        target = contexts.CURRENT_DEVICE if device is None else device
        if torch.device(target or "cpu").type != NAME:
            return make_tensor(data, *args, device=device, **kwargs)
        return PlayedTensor(make_tensor(data, *args, device="cpu", **kwargs))

    torch.tensor = tensor
