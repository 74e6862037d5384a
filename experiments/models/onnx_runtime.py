"""Networks that run in ONNX Runtime, on CPUs and NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiments.devices import Device
from experiments.models.onnx_files import onnx_file
from experiments.workload import Dtype, Unsupported

if TYPE_CHECKING:
    import torch

Call = Callable[["torch.Tensor"], "torch.Tensor"]
CUDA = "CUDAExecutionProvider"


def session(name: str, batch: int, dtype: Dtype, threads: int, device: Device) -> Call:
    """Load the network `name` on the device and return a callable that maps a batch of inputs to the outputs.

    The weights are drawn from seed 0. batch: samples per call. dtype: float32, tf32 (only on a GPU), or int8 (only on a
    CPU, with a network quantised by `onnx_file`). threads: CPU threads; 0 for ONNX Runtime's default. Raises
    Unsupported for other formats and for models that exceed the file size limit.
    """
    import onnxruntime
    import torch

    formats = (Dtype.FLOAT32, Dtype.INT8) if device.kind == "cpu" else (Dtype.FLOAT32, Dtype.TF32)
    if dtype not in formats:
        raise Unsupported(f"ONNX Runtime computes in {' and '.join(formats)} here, not in {dtype}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    on_cpu = device.kind == "cpu"
    provider = (
        "CPUExecutionProvider" if on_cpu else _cuda_provider(device, dtype, onnxruntime.get_available_providers())
    )
    loaded = onnxruntime.InferenceSession(onnx_file(name, batch, dtype is Dtype.INT8), options, providers=[provider])
    if not on_cpu:
        return bind_session(loaded, *device.name.split(":"))
    input_name = loaded.get_inputs()[0].name

    def call(inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(loaded.run(None, {input_name: inputs.numpy()})[0])

    return call


def _cuda_provider(device: Device, dtype: Dtype, providers: list[str]) -> tuple[str, dict[str, Any]]:
    """Return (name, options) for ONNX Runtime's CUDA provider. Raises Unsupported if ONNX Runtime lacks CUDA."""
    import torch

    if device.maker != "NVIDIA":
        raise device.unsupported_backend("onnx")
    if CUDA not in providers:
        raise Unsupported("this onnxruntime is built without CUDA: pip install onnxruntime-gpu instead of onnxruntime")
    return CUDA, {
        "device_id": device.name.partition(":")[2],
        "use_tf32": str(int(dtype is Dtype.TF32)),
        # Compute on torch's stream, to keep the computations in order with torch's copies.
        "user_compute_stream": str(torch.cuda.current_stream(device.name).cuda_stream),
    }


def bind_session(loaded: Any, kind: str, index: str) -> Call:
    """Return a callable that maps inputs on a device to the output; every call overwrites the same output tensor."""
    import numpy as np
    import torch

    (source,), target, binding = loaded.get_inputs(), loaded.get_outputs()[0], loaded.io_binding()
    where = torch.device(kind, int(index))
    out = torch.empty(target.shape, dtype=torch.float32, device=where)
    binding.bind_output(target.name, kind, int(index), np.float32, tuple(out.shape), out.data_ptr())

    def call(inputs: torch.Tensor) -> torch.Tensor:
        number = np.float32 if inputs.is_floating_point() else np.int64
        binding.bind_input(source.name, kind, int(index), number, tuple(inputs.shape), inputs.data_ptr())
        loaded.run_with_iobinding(binding)
        return out

    return call
